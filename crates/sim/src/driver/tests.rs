//! The model driver through `runtime`'s client: what a provisioner meets.

use csi::v1;
use runtime::csi::Driver;
use runtime::time::VirtualClock;
use runtime::{Metrics, Stopper};

use super::*;
use crate::{Odds, Seed, Setup, simulate};

const WAIT: Duration = Duration::from_secs(10);

fn request(name: &str) -> v1::CreateVolumeRequest {
    let volume_capabilities = vec![v1::VolumeCapability::default()];
    v1::CreateVolumeRequest { name: name.to_owned(), volume_capabilities, ..Default::default() }
}

/// Runs `play` with a client of the model driver.
fn with_driver<T: Send>(
    seed: Seed,
    habits: Habits,
    play: impl AsyncFnOnce(&Model, &Driver) -> T + Send,
) -> (T, Vec<String>)
where
{
    let scenario = async |world: World| {
        let model = Model::new(&world, habits, State::new(&[], 1 << 40));
        let clock = VirtualClock::starting_at(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let driver = Driver::new(model.clone(), runtime::csi::Options::default(), &Metrics::new(&clock));
        let (stopper, stop) = Stopper::new();
        let playing = async {
            driver.ready().await;
            let out = play(&model, &driver).await;
            stopper.stop();
            out
        };
        let (ran, out) = tokio::join!(driver.run(&stop), playing);
        ran.expect("the driver keeps its name");
        (out, world.journal().lines())
    };
    simulate(seed, Setup::default(), scenario).expect("a world can be made")
}

/// What a caller learns who repeats until it is done.
async fn insist(driver: &Driver, name: &str) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        match driver.create_volume(request(name), WAIT).await {
            Ok(made) => {
                heard.push(format!("{:?}", made.volume.map(|volume| volume.volume_id)));
                return heard;
            }
            Err(error) => heard.push(error.to_string()),
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn a_rough_driver_makes_one_volume_per_name_and_two_runs_are_the_same() {
    let run = || {
        with_driver(Seed(7), Habits::rough(), async |model, driver| {
            let living = model.live();
            let playing = async {
                let mut heard = Vec::new();
                for number in 0..100 {
                    heard.extend(insist(driver, &format!("v-{number}")).await);
                }
                heard
            };
            let heard = tokio::select! {
                heard = playing => heard,
                () = living => Vec::new(),
            };
            (heard, model.volumes().len())
        })
    };
    let ((heard, volumes), journal) = run();
    assert_eq!(volumes, 100, "{heard:#?}");
    for text in ["refused", "to be done and answered", "answer is lost", "busy", "more)", "twice", "gone", "back"] {
        assert!(journal.iter().any(|line| line.contains(text)), "never happened: {text}");
    }
    assert_eq!(run(), ((heard, volumes), journal));
}

#[test]
fn a_call_takes_effect_although_its_caller_gave_up() {
    let slow = Habits { slow: Odds::of_10_000(10_000), ..Habits::fair() };
    let slow = Habits { slowness: 6 * WAIT..=6 * WAIT, ..slow };
    let ((first, second, at_first, later), _) = with_driver(Seed(1), slow, async |model, driver| {
        let first = driver.create_volume(request("a"), WAIT).await.expect_err("it takes a minute").code();
        let second = driver.create_volume(request("a"), WAIT).await.expect_err("it is under way").code();
        let at_first = model.volumes().len();
        sleep(6 * WAIT).await;
        (first, second, at_first, model.volumes().len())
    });
    assert_eq!((first, second), (Some(Code::DeadlineExceeded), Some(Code::Aborted)));
    assert_eq!((at_first, later), (0, 1));
}

#[test]
fn a_driver_that_goes_away_cuts_its_calls_and_is_found_again() {
    let second = Duration::from_secs(1);
    let habits = Habits { up: 5 * second..=5 * second, down: 3 * second..=3 * second, ..Habits::fair() };
    let habits = Habits { slow: Odds::of_10_000(10_000), slowness: 20 * second..=20 * second, ..habits };
    let ((cut, absent), _) = with_driver(Seed(2), habits, async |model, driver| {
        let living = model.live();
        let playing = async {
            let cut = driver.create_volume(request("a"), WAIT).await.expect_err("it goes away").code();
            sleep(second).await;
            let absent = driver.create_volume(request("a"), WAIT).await.expect_err("it is gone").code();
            driver.ready().await;
            (cut, absent)
        };
        tokio::select! {
            heard = playing => heard,
            () = living => (None, None),
        }
    });
    assert_eq!((cut, absent), (Some(Code::Unavailable), None));
}
