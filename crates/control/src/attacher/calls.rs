//! ControllerPublishVolume and ControllerUnpublishVolume (ATTACHER-3.6.10, ATTACHER-3.7.4).

use api::Attachment;
use csi::v1;
use lifecycle::attacher::attachment::{Phase, Progress, not_unpublished};
use lifecycle::attacher::publication::Origin;
use lifecycle::attacher::{Handler, Publication, Target};
use lifecycle::driver_limits;
use lifecycle::outcome::{Call, Code, Outcome, outcome};
use runtime::Verdict;
use runtime::csi::{CallError, Driver, Facts};

use super::Attacher;
use super::pass::Step;
use super::round::Round;
use super::wake::What;
use super::writes::Trouble;
use crate::provision::csi::wire;

/// A call that failed, as the outcome table judges it.
struct Failure<'a> {
    phase: Phase,
    error: &'a CallError,
    known: Outcome,
}

fn code_of(error: &CallError) -> Code {
    error.code().map_or(Code::None, |code| Code::from_number(code as i32))
}

impl Attacher {
    pub(super) async fn publish(
        &self,
        attachment: &Attachment,
        round: &mut Round,
        (publication, target): (Publication, Target),
    ) -> Step {
        let Publication { shape, mount_options, access, read_only, context, origin, .. } = publication;
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: target.handle.clone(),
            node_id: target.node_id.clone(),
            volume_capability: Some(wire::capability(&shape, &mount_options, access)),
            readonly: read_only,
            secrets: round.values(target.secret.as_ref()),
            volume_context: context,
        };
        let called = {
            let _permit = self.calls.acquire().await;
            self.driver_for(origin).controller_publish_volume(request, self.options.timeout).await
        };
        match called {
            Ok(answer) => {
                let bytes = driver_limits::size_of(&answer.publish_context);
                if let Err(large) = driver_limits::check("publish_context", bytes, driver_limits::CONTEXT) {
                    // It is published, and the attachment remembers that it may be: detaching takes it back.
                    let message = format!("the volume is attached, and that cannot be stored: {large}");
                    return self.complain(attachment, Trouble { phase: Phase::Attach, message, code: None }).await;
                }
                round.progress = Progress::Published { target, context: answer.publish_context };
                Step::On
            }
            Err(error) => {
                let known = outcome(Call::ControllerPublish, code_of(&error));
                self.not_done(attachment, Failure { phase: Phase::Attach, error: &error, known }).await
            }
        }
    }

    pub(super) async fn unpublish(
        &self,
        attachment: &Attachment,
        round: &mut Round,
        (target, origin, facts): (Target, Origin, &Facts),
    ) -> Step {
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: target.handle.clone(),
            node_id: target.node_id.clone(),
            secrets: round.values(target.secret.as_ref()),
        };
        let called = {
            let _permit = self.calls.acquire().await;
            self.driver_for(origin).controller_unpublish_volume(request, self.options.timeout).await
        };
        let handler = Handler::of(&wire::abilities(&facts.capabilities));
        let known = match &called {
            Ok(_) => Outcome::Done,
            Err(error) => not_unpublished(handler, code_of(error)),
        };
        match called {
            Err(error) if known != Outcome::Done => {
                let phase = if attachment.meta.is_deleting() { Phase::Detach } else { Phase::Attach };
                self.not_done(attachment, Failure { phase, error: &error, known }).await
            }
            Ok(_) | Err(_) => {
                if attachment.meta.is_deleting() {
                    self.board.settled(&attachment.meta.key);
                    tracing::info!(node = attachment.node.as_str(), "the volume is detached");
                }
                round.progress = Progress::Unpublished(target);
                Step::On
            }
        }
    }

    /// Says what went wrong, and tries again later. Nothing is forgotten, whatever the code: what was begun is written on
    /// the attachment.
    async fn not_done(&self, attachment: &Attachment, failure: Failure<'_>) -> Step {
        let Failure { phase, error, known } = failure;
        let key = &attachment.meta.key;
        let message = error.to_string();
        tracing::warn!(attachment = %key, ?known, error = message, "the driver did not do it");
        let Some(code) = error.code() else {
            // Nothing was sent, so that there is nothing to say about the attachment.
            self.board.wait(key, What::Driver);
            return Step::Over(Verdict::Failed(message));
        };
        self.complain(attachment, Trouble { phase, message, code: Some(code as i32) }).await
    }

    /// The driver, for calls about its own volumes or those of the plugin that it took over from.
    fn driver_for(&self, origin: Origin) -> Driver {
        match origin {
            Origin::Csi => self.driver.clone(),
            Origin::Migrated => self.driver.for_migrated(),
        }
    }
}
