//! From the flags of `orlop up` to a plan, or to everything that is wrong with them.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use driver_sdk::csi::Endpoint;

use super::Args;
use crate::join::Company;
use crate::page;
use crate::stack::{self, Cluster, Local, Place, Plan, Role};
use crate::usage;

/// Something wrong with a flag, or with the key of its name in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) key: &'static str,
    pub(crate) text: String,
}

/// A driver's socket. An agent has to find it as well, so it must be a file, by its full name.
pub(super) fn socket(text: &str) -> Result<Endpoint, String> {
    if text.contains(",/") || text.contains(",unix:") {
        return Err("there are several in it; give --driver once for each, or in a file a list".to_owned());
    }
    let endpoint: Endpoint = text.parse().map_err(|error: driver_sdk::csi::EndpointError| error.to_string())?;
    match endpoint.path() {
        None => Err("a driver is reached by a unix socket; write unix:///path/to/csi.sock".to_owned()),
        Some(path) if !path.is_absolute() => {
            Err("the socket must have its full path; write unix:///path/to/csi.sock".to_owned())
        }
        Some(_) => Ok(endpoint),
    }
}

impl Args {
    fn cluster(&self) -> Cluster {
        match &self.kubeconfig {
            None => Cluster::Embedded,
            Some(file) => Cluster::Existing { kubeconfig: file.clone(), context: self.context.clone() },
        }
    }

    fn roles(&self) -> BTreeSet<Role> {
        match self.parts.as_slice() {
            [] => Role::usual(&self.cluster()),
            parts => parts.iter().copied().collect(),
        }
    }

    /// What `--parts` means, in its words.
    pub(crate) fn part_names(&self) -> Vec<String> {
        let name = |role: Role| role.to_possible_value().map(|value| value.get_name().to_owned());
        self.roles().into_iter().filter_map(name).collect()
    }

    /// Everything that is wrong with flags that are well by themselves. `given` says whether one was given at all.
    pub(crate) fn wrongs(&self, given: &dyn Fn(&str) -> bool) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        let mut wrong = |key, text: String| wrongs.push(Wrong { key, text });
        if !self.listen.ip().is_loopback() {
            wrong(
                "listen",
                format!(
                    "{}: only loopback addresses are served, such as 127.0.0.1:6443; for other machines see --serve-machines",
                    self.listen
                ),
            );
        }
        if given("listen") && self.kubeconfig.is_some() {
            wrong("listen", "no API is served on an existing cluster; drop this, or --kubeconfig".to_owned());
        }
        if self.serve_machines.is_some() && self.kubeconfig.is_some() {
            let text =
                "machines join an embedded API, and an existing cluster has its own way; drop this, or --kubeconfig";
            wrong("serve-machines", text.to_owned());
        }
        if given("node-monitor-grace-period") && self.kubeconfig.is_some() {
            let text = "an existing cluster finds its lost nodes by itself; drop this, or --kubeconfig";
            wrong("node-monitor-grace-period", text.to_owned());
        }
        if self.context.is_some() && self.kubeconfig.is_none() {
            wrong("context", "this is a context of a kubeconfig; give --kubeconfig, too".to_owned());
        }
        if !self.class.is_empty()
            && let Err(error) = usage::check_name("", &self.class)
        {
            wrong("class", error.to_string().trim_start().to_owned());
        }
        let mut sockets = BTreeSet::new();
        if let Some(twice) = self.driver.iter().find(|endpoint| !sockets.insert(*endpoint)) {
            wrong("driver", format!("{twice} is given twice"));
        }
        if given("class") && !self.class.is_empty() && !self.local_driver {
            wrong(
                "class",
                "this is the local driver's class, and --local-driver is false; drop one of them".to_owned(),
            );
        }
        let shown = matches!(self.page, page::Where::At(_));
        if given("page") && shown && !self.roles().contains(&Role::Page) {
            wrong("page", "--parts leaves the page out; add it there, or drop this".to_owned());
        }
        wrongs
    }

    /// What is to be started. The directory is made.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let named = self.parts.contains(&Role::Node);
        if named && !stack::may_mount() {
            bail!("--parts: `node` mounts volumes, which needs root; leave it out, or run as root");
        }
        let data = self.data()?;
        usage::require_room_for_sockets(&data)?;
        if self.kubeconfig.is_none() {
            usage::require_free("--listen", self.listen)?;
        }
        if let Some(machines) = self.serve_machines {
            usage::require_free("--serve-machines", machines.address())?;
        }
        if let Some(address) = self.http_endpoint {
            usage::require_free("--http-endpoint", address)?;
        }
        if let (page::Where::At(page::Loopback(address)), true) = (self.page, self.roles().contains(&Role::Page)) {
            usage::require_free("--page", address)?;
        }
        usage::make_private_directory("--data", &data)?;
        // Sockets and state are told by their full names, also in messages.
        let data = data.canonicalize().with_context(|| format!("--data {}", data.display()))?;
        Ok(Plan {
            place: Place { data, listen: self.listen },
            cluster: self.cluster(),
            local: if self.local_driver { Local::Run } else { Local::LeaveOut },
            others: self.driver.clone(),
            roles: self.roles(),
            machines: self.serve_machines,
            company: Company::Alone,
            http: self.http_endpoint,
            node_grace: self.node_monitor_grace_period,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn keys(flags: &[&str]) -> Vec<&'static str> {
        let args: Args = process::flags(&[&["--data=/d"], flags].concat()).unwrap();
        let given = |key: &str| flags.iter().any(|flag| flag.starts_with(&format!("--{key}=")));
        args.wrongs(&given).into_iter().map(|wrong| wrong.key).collect()
    }

    #[test]
    fn flags_that_do_not_go_together_are_named() {
        assert_eq!(keys(&[]), [""; 0]);
        assert_eq!(keys(&["--kubeconfig=k", "--context=c"]), [""; 0]);
        assert_eq!(keys(&["--kubeconfig=k", "--listen=127.0.0.1:0"]), ["listen"]);
        assert_eq!(keys(&["--kubeconfig=k", "--serve-machines=10.0.0.1:6444"]), ["serve-machines"]);
        let grace = ["--kubeconfig=k", "--node-monitor-grace-period=1m"];
        assert_eq!(keys(&grace), ["node-monitor-grace-period"]);
        assert_eq!(keys(&["--context=c"]), ["context"]);
        assert_eq!(keys(&["--driver=unix:///a", "--driver=/a"]), ["driver"]);
        assert_eq!(keys(&["--local-driver=false", "--class=fast"]), ["class"]);
        assert_eq!(keys(&["--local-driver=false"]), [""; 0]);
        assert_eq!(keys(&["--parts=controllers", "--page=127.0.0.1:0"]), ["page"]);
        assert_eq!(keys(&["--parts=controllers", "--page=off"]), [""; 0]);
    }

    #[test]
    fn only_sockets_that_an_agent_finds_are_taken() {
        assert!(socket("unix:///run/a.sock").is_ok() && socket("/run/a.sock").is_ok());
        assert!(socket("tcp://127.0.0.1:1").unwrap_err().contains("unix socket"));
        assert!(socket("unix:a.sock").unwrap_err().contains("full path"));
        assert!(socket("unix:///a.sock,unix:///b.sock").unwrap_err().contains("once for each"));
    }

    #[test]
    fn an_existing_cluster_keeps_its_own_controllers_unless_asked() {
        let args = |flags: &[&str]| process::flags::<Args>(&[&["--data=/d"], flags].concat()).unwrap().part_names();
        assert_eq!(args(&[]), ["controllers", "scheduler", "sidecars", "node", "page"]);
        assert_eq!(args(&["--kubeconfig=k"]), ["sidecars", "node", "page"]);
        assert_eq!(args(&["--kubeconfig=k", "--parts=page,controllers"]), ["controllers", "page"]);
    }
}
