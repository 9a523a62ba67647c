//! The growth fuzzer as a program; `cargo xtask fuzz growth` builds and runs it.

use std::process::ExitCode;

use fuzz::growth::{Plan, run};

#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let mut found = 0;
    let tried = run(Plan::ALL, &mut |excess| {
        found += 1;
        println!("FOUND {excess}");
    });
    println!("growth: {tried} cases, {found} of them grow faster than their request");
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
