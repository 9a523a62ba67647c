//! Flags and file together.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{ArgMatches, FromArgMatches as _};

use super::file::{ConfigFile, Problems};
use super::flags::{Flags, given_words, is_given};
use super::yaml::Problem;
use crate::up::{self, Wrong};

/// The settings that count: those of the flags, then those of the file, then the defaults.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) args: up::Args,
    pub(super) matches: ArgMatches,
    file: Option<ConfigFile>,
}

impl Effective {
    /// For a command line, with the file that it may name.
    pub(crate) fn of_call(given: &ArgMatches) -> anyhow::Result<Self> {
        let flags = Flags::of_up();
        let file = given.get_one::<std::path::PathBuf>("config");
        let file = file.map(|path| ConfigFile::read(path, &flags)).transpose()?;
        let on_the_line = |key: &str| flags.find(key).is_some_and(|flag| is_given(given, flag));
        let mut words = file.as_ref().map(|file| file.words(on_the_line)).unwrap_or_default();
        words.extend(given_words(given));
        let matches = flags.parse(words).context("the flags and the configuration file together")?;
        Self::checked(&flags, matches, file, on_the_line)
    }

    /// For a file alone, as far as that can be checked without a machine to run on.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let flags = Flags::of_up();
        let file = ConfigFile::read(path, &flags)?;
        let mut words = file.words(|_| false);
        words.push(format!("--config={}", path.display()).into());
        let matches = flags.parse(words).context("the configuration file")?;
        Self::checked(&flags, matches, Some(file), |_| false)
    }

    /// The defaults.
    pub(super) fn of_nothing() -> anyhow::Result<Self> {
        let flags = Flags::of_up();
        let matches = flags.parse(vec!["--config=-".into()]).context("the defaults")?;
        Self::checked(&flags, matches, None, |_| false)
    }

    fn checked(
        flags: &Flags,
        matches: ArgMatches,
        file: Option<ConfigFile>,
        on_the_line: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let args = up::Args::from_arg_matches(&matches).context("the flags of up")?;
        let given = |key: &str| flags.find(key).is_some_and(|flag| is_given(&matches, flag));
        let wrongs = args.wrongs(&given);
        // A problem that a flag has a part in is told in the flag's name.
        let line = |key: &str| file.as_ref().filter(|_| !on_the_line(key)).and_then(|file| file.line(key));
        let (mut of_file, mut of_flags) = (Vec::new(), Vec::new());
        for Wrong { key, text } in wrongs {
            match line(key) {
                // In a file a setting goes by its name alone.
                Some(line) => of_file.push(Problem { line, text: format!("{key}: {}", text.replace("--", "")) }),
                None => of_flags.push(format!("--{key}: {text}")),
            }
        }
        if let (Some(file), false) = (&file, of_file.is_empty()) {
            return Err(Problems { file: file.path.clone(), problems: of_file }.into());
        }
        if !of_flags.is_empty() {
            bail!("{}", of_flags.join("\n"));
        }
        Ok(Self { args, matches, file })
    }

    /// How many settings the file has.
    pub(super) fn count(&self) -> usize {
        self.file.as_ref().map_or(0, ConfigFile::len)
    }
}
