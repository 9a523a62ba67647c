//! `orlop csi`: a small client for any CSI driver on a socket, for people who debug one.
//!
//! [`args`] reads the command line and makes requests, [`call`] sends them, [`render`] prints the answers, [`errors`]
//! says what went wrong and what to do about it. It knows CSI only: nothing here is special to our own drivers.

mod args;
mod call;
mod errors;
mod keys;
mod parse;
mod render;
mod secrets;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) use args::Args;
use args::SessionArgs;
use call::{RequestLog, Session};
use errors::Failure;
use render::{Printer, Verdict};
use secrets::Secrets;
use tokio::sync::OnceCell;

/// Runs one command to its end and says with which code the process should exit.
pub(crate) fn run(args: Args) -> ExitCode {
    match run_to_verdict(args) {
        Ok(Verdict::Complete) => ExitCode::SUCCESS,
        Ok(Verdict::Partial) => ExitCode::from(1),
        Err(failure) => {
            if let Some(line) = failure.line() {
                eprintln!("orlop csi: {line}");
            }
            failure.exit_code()
        }
    }
}

fn run_to_verdict(Args { session, command }: Args) -> Result<Verdict, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let verdict = crate::process::to_its_end(&runtime, async {
        let format = session.output;
        let session = open(session)?;
        call::run(&session, command, &mut Printer { format, out: &mut out }).await
    });
    // Also after a failure: a broken stream has printed ranges that the reader may keep.
    out.flush().map_err(Failure::Output)?;
    verdict
}

fn open(args: SessionArgs) -> Result<Session, Failure> {
    let SessionArgs { endpoint, timeout, output: _, secrets, secret, request_log } = args;
    Ok(Session {
        endpoint: endpoint.ok_or(Failure::NoEndpoint)?,
        channel: OnceCell::new(),
        timeout: timeout.duration(),
        secrets: Secrets::read(secrets.as_deref(), &secret)?,
        log: if request_log { RequestLog::Stderr } else { RequestLog::Off },
    })
}
