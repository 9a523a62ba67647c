//! Checks that no compiler makes, over every file of the workspace.
//!
//! Each check gets the files as text and answers with findings. All findings are printed, one per line, each with the
//! place, what is wrong, why that is a rule here, and what to do.

mod arrows;
mod banned;
mod catalogue;
mod dependencies;
mod documents;
mod figures;
mod keys;
mod sizes;
mod source;
mod tree;

use std::fmt;

use anyhow::bail;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(file: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        Self { file: file.into(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// What `cargo xtask tidy` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct TidyArgs {
    /// Check nothing; print how the production code reads, in numbers, and how many rules of docs/behaviour are tested.
    #[arg(long)]
    report: bool,
}

pub(crate) fn run(args: &TidyArgs) -> anyhow::Result<()> {
    let root = crate::root();
    let files = tree::read(&root)?;
    if args.report {
        print!("{}\n{}", figures::report(&files), catalogue::coverage(&files));
        return Ok(());
    }
    let exceptions = std::fs::read_to_string(root.join(sizes::EXCEPTIONS))?;

    let mut findings = arrows::check(&arrows::read(&root)?);
    findings.extend(sizes::check(&files, &exceptions));
    for file in files.iter().filter(|file| file.is_rust()) {
        let source = source::read(&file.text);
        findings.extend(keys::check(file, &source));
        findings.extend(banned::check(file, &source));
    }
    findings.extend(documents::check(&files));
    findings.extend(catalogue::check(&files));
    findings.extend(dependencies::run(&root)?);
    if let Err(error) = crate::codegen::run(true) {
        findings.push(Finding::new("crates/csi/src/generated", 1, format!("{error:#}")));
    }

    findings.sort();
    findings.iter().for_each(|finding| println!("{finding}"));
    let rust = files.iter().filter(|file| file.is_rust()).count();
    match findings.len() {
        0 => println!("tidy: {rust} Rust files and {} others, nothing to say", files.len() - rust),
        many => bail!("tidy: {many} findings"),
    }
    Ok(())
}
