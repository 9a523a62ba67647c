//! What one machine takes: pods, memory, an idle minute, and a restart in the midst of it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::site::Site;
use super::{Args, Numbers};
use crate::bench::memory::settled_rss;
use crate::bench::numbers::milliseconds;
use crate::bench::processor;

/// Pods that warm everything up.
const WARM_UP: usize = 5;

/// Measures all of it.
pub(super) async fn measure(orlop: &Path, args: &Args, numbers: &mut Numbers) -> anyhow::Result<()> {
    crate::tools::provide()?;
    let mut site = Site::start(orlop).await?;
    site.load(WARM_UP).run().await.context("warming up")?;
    numbers.idle_rss = Some(settled_rss(site.agent()?).await?);
    pods(&site, args, numbers).await.context("pods on a machine")?;
    restart(&mut site, args, numbers).await.context("restarting the agent")?;
    site.stop().await
}

/// Pods all at once, and the driver alone before and after them: the machine may become busier or quieter meanwhile.
async fn pods(site: &Site, args: &Args, numbers: &mut Numbers) -> anyhow::Result<()> {
    let before = site.driver_alone(args.pods).await.context("the driver alone")?;
    let pid = site.agent()?;
    let idle = || async {
        let rss = settled_rss(pid).await?;
        anyhow::Ok((rss, processor::percent(pid, Duration::from_secs(args.idle)).await?))
    };
    let (said, (rss, percent)) = site.load(args.pods).run_and(idle).await?;
    let after = site.driver_alone(args.pods).await.context("the driver alone")?;
    let (ready, gone) = (said.span("ready_after_bound")?, said.span("pods_gone")?);
    let alone = milliseconds((before + after) / 2);
    println!("{} pods ready: {ready}; gone: {gone}", args.pods);
    println!(
        "the driver alone: {before:.2?} before, {after:.2?} after; the agent meanwhile: {rss:.1} MB, {percent:.2} %"
    );
    (numbers.ready_p50, numbers.ready_p99) = (Some(ready.p50_ms), Some(ready.p99_ms));
    numbers.driver_alone = Some(alone);
    numbers.over_driver = Some(ready.p99_ms - alone);
    numbers.gone_p99 = Some(gone.p99_ms);
    (numbers.used_rss, numbers.idle_percent) = (Some(rss), Some(percent));
    numbers.ready_writes = said.writes("ready_writes");
    Ok(())
}

/// A restart with many mounts: when the new agent has nothing to do any more, and how many mounts are not what they were.
async fn restart(site: &mut Site, args: &Args, numbers: &mut Numbers) -> anyhow::Result<()> {
    let load = site.load(args.restart);
    let (_, (took, touched, rss)) = load
        .run_and(|| async {
            let before = site.mounts()?;
            let started = site.restart().await?;
            let pid = site.agent()?;
            let took = processor::idle_since(pid).await?.saturating_duration_since(started);
            let after = site.mounts()?;
            let touched = before.iter().filter(|(number, point)| after.get(number) != Some(point)).count();
            println!("restart with {} mounts: {took:.2?}, {touched} touched", before.len());
            anyhow::Ok((took, touched, settled_rss(pid).await?))
        })
        .await?;
    numbers.restart = Some(milliseconds(took));
    numbers.touched = Some(f64::from(u32::try_from(touched)?));
    numbers.many_rss = Some(rss);
    Ok(())
}
