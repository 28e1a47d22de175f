//! News from the forge that the state machine cannot use yet.
//!
//! A pull request can be observed while the job that opened it is still running. The poller sends the
//! same facts only once, so they are kept until the state machine accepts them.

use serde::{Deserialize, Serialize};
use tamma_core::forge::PullRequestStatus;
use tamma_core::task_loop::{TaskEvent, TaskLoop, Timestamp};

use super::messages::ForgeSignal;

/// News that waits until the state machine accepts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PendingNews {
    signal: ForgeSignal,
    /// Start of the state in which it arrived.
    since: Timestamp,
}

/// News of a task: at most one of each kind, the newest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ForgeNews {
    pending: Vec<PendingNews>,
    /// Step at which the state machine refused all of it.
    #[serde(skip)]
    refused_at: Option<u64>,
}

impl ForgeNews {
    /// Adds news, which replaces older news of its kind.
    pub(super) fn push(&mut self, signal: ForgeSignal, task_loop: &TaskLoop) {
        self.pending.retain(|it| !it.signal.is_replaced_by(&signal));
        self.pending.push(PendingNews { signal, since: task_loop.since });
        self.refused_at = None;
    }

    /// Returns `true` if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns `true` if the state machine may accept news after this step.
    pub(super) fn is_due(&self, step: u64) -> bool {
        !self.pending.is_empty() && self.refused_at != Some(step)
    }

    /// Takes the first news that is accepted, as an event. The others stay until the next step.
    pub(super) fn take(
        &mut self,
        at: Timestamp,
        step: u64,
        task_loop: &TaskLoop,
        accepts: impl Fn(&TaskEvent) -> bool,
    ) -> Option<TaskEvent> {
        self.pending.retain(|it| !is_outdated(it, task_loop));
        let accepted = self.pending.iter().enumerate().find_map(|(index, news)| {
            let event = news.signal.clone().into_event(at);
            accepts(&event).then_some((index, event))
        });
        let Some((index, event)) = accepted else {
            self.refused_at = Some(step);
            return None;
        };
        self.pending.remove(index);
        Some(event)
    }
}

/// Returns `true` for news about another head than the one that was pushed meanwhile.
fn is_outdated(news: &PendingNews, task_loop: &TaskLoop) -> bool {
    let Some(known) = &task_loop.pull_request else { return false };
    match &news.signal {
        ForgeSignal::Observed(facts) => {
            facts.status == PullRequestStatus::Open
                && news.since != task_loop.since
                && facts.head != known.pushed
        }
        ForgeSignal::QueueSettled(result) => result.head() != known.pushed,
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::forge::{Mergeability, PullRequestFacts};
    use tamma_core::ids::CommitId;
    use tamma_core::pull_request::{OpenedPullRequest, PullRequestState, QueueResult};
    use tamma_core::task_loop::EventKind;

    use super::*;
    use crate::sample_task::sample_task_loop;

    fn commit(digit: &str) -> CommitId {
        digit.repeat(40).parse().expect("a commit")
    }

    fn observed(head: &str, status: PullRequestStatus) -> ForgeSignal {
        ForgeSignal::Observed(Box::new(PullRequestFacts {
            number: 7,
            status,
            draft: false,
            head: commit(head),
            base: commit("0"),
            mergeability: Mergeability::Clean,
            checks: Vec::new(),
            reviews: Vec::new(),
            threads: Vec::new(),
            queued: false,
            incomplete: false,
        }))
    }

    /// Returns the task after it has pushed a head in a later state.
    fn after_push(task_loop: &TaskLoop, head: &str) -> TaskLoop {
        let mut next = task_loop.clone();
        next.since = Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let opened = OpenedPullRequest {
            number: 7,
            url: "https://forge.example/pulls/7".to_owned(),
            head: commit(head),
            base: commit("0"),
        };
        next.pull_request = Some(Box::new(PullRequestState::new(&opened, commit(head))));
        next
    }

    #[test]
    fn news_waits_until_it_is_accepted() {
        let before = sample_task_loop();
        let mut news = ForgeNews::default();
        assert!(news.is_empty() && !news.is_due(0));
        news.push(observed("1", PullRequestStatus::Open), &before);
        assert!(news.is_due(3));
        let at = before.since;
        assert_eq!(news.take(at, 3, &before, |_| false), None);
        assert!(!news.is_due(3), "it is not tried again before the next step");
        assert!(news.is_due(4) && !news.is_empty());
        let after = after_push(&before, "1");
        assert!(news.take(at, 4, &after, |_| true).is_some());
        assert!(news.is_empty());
    }

    #[test]
    fn facts_about_an_older_head_are_dropped_and_an_end_is_not() {
        let before = sample_task_loop();
        let after = after_push(&before, "2");
        let at = before.since;
        let mut news = ForgeNews::default();
        news.push(observed("1", PullRequestStatus::Open), &before);
        assert_eq!(news.take(at, 1, &after, |_| true), None);
        assert!(news.is_empty());
        let closed = PullRequestStatus::Closed { by: "ann".to_owned() };
        news.push(observed("1", closed), &before);
        assert!(news.take(at, 2, &after, |_| true).is_some());
        news.push(observed("3", PullRequestStatus::Open), &after);
        assert!(news.take(at, 3, &after, |_| true).is_some(), "somebody pushed just now");
    }

    #[test]
    fn a_result_of_the_queue_about_an_older_head_is_dropped() {
        let before = sample_task_loop();
        let after = after_push(&before, "2");
        let at = before.since;
        let mut news = ForgeNews::default();
        for (head, is_kept) in [("1", false), ("2", true)] {
            let landed = QueueResult::Landed { head: commit(head), commit: commit("3") };
            news.push(ForgeSignal::QueueSettled(landed), &before);
            assert_eq!(news.take(at, 1, &after, |_| true).is_some(), is_kept);
        }
    }

    #[test]
    fn newer_news_replaces_older_news_of_its_kind() {
        let task_loop = sample_task_loop();
        let mut news = ForgeNews::default();
        let landed = |it| QueueResult::Landed { head: commit("1"), commit: commit(it) };
        let settled = |it| ForgeSignal::QueueSettled(landed(it));
        for signal in [
            observed("1", PullRequestStatus::Open),
            settled("2"),
            observed("3", PullRequestStatus::Open),
            settled("4"),
        ] {
            news.push(signal, &task_loop);
        }
        let at = task_loop.since;
        let kinds: Vec<_> = (0..2)
            .filter_map(|step| news.take(at, step, &task_loop, |_| true))
            .map(|event| event.kind)
            .collect();
        let landed = EventKind::QueueSettled(landed("4"));
        assert!(matches!(&kinds[0], EventKind::PullRequestObserved(it) if it.head == commit("3")));
        assert_eq!(kinds[1], landed);
        assert!(news.is_empty());
    }
}
