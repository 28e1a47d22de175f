//! Operations of the forge port, and the request of each.

use strum::{Display, EnumIter, IntoEnumIterator as _};
use tamma_core::forge::ForgeKind;
use tamma_testkit::forge::{ProxyFault, RequestPattern};

/// Operation, in the order of a story. The push belongs to git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Operation {
    ListIntake,
    Push,
    FindChange,
    OpenChange,
    PublishCheck,
    UpsertComment,
    Observe,
    FailedCheckLog,
    UpdateChange,
    /// Without the merge queue.
    Merge,
    /// With the merge queue.
    AdvanceBranch,
}

/// Side of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Side {
    /// The forge has not seen the request.
    Before,
    /// The forge has responded, and nobody got the response.
    After,
}

/// Fault at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Strike {
    KillWorker,
    KillServer,
    KillForge,
    /// The request or the response is lost.
    Lose,
}

/// Planned case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultCase {
    pub(crate) operation: Operation,
    pub(crate) side: Side,
    pub(crate) strike: Strike,
}

impl FaultCase {
    /// Returns the fault of the proxy.
    pub(crate) fn fault(self) -> ProxyFault {
        match (self.strike, self.side) {
            (Strike::Lose, Side::Before) => ProxyFault::LoseRequest,
            (Strike::Lose, Side::After) => ProxyFault::LoseAnswer,
            (Strike::KillWorker | Strike::KillServer | Strike::KillForge, Side::Before) => {
                ProxyFault::HoldRequest
            }
            (Strike::KillWorker | Strike::KillServer | Strike::KillForge, Side::After) => {
                ProxyFault::HoldAnswer
            }
        }
    }
}

impl std::fmt::Display for FaultCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{} {} {}", self.strike, self.side, self.operation))
    }
}

impl Operation {
    /// Returns the request of the operation, in a story of one repository. The fake is a GitHub.
    pub(crate) fn pattern(self, kind: ForgeKind, repository: &str) -> RequestPattern {
        let is_gitea = kind == ForgeKind::Gitea;
        let here = format!("/{repository}/");
        let (method, path, text) = match self {
            Self::ListIntake => ("GET", "/issues", here),
            Self::Push => ("POST", "/git-receive-pack", "refs/heads/tamma/".to_owned()),
            Self::FindChange if is_gitea => ("GET", "/pulls/main/tamma/*", here),
            Self::FindChange => ("GET", "/pulls", here),
            Self::OpenChange => ("POST", "/pulls", here),
            Self::PublishCheck => ("POST", "/statuses/*", here),
            Self::UpsertComment => ("POST", "/issues/*/comments", here),
            Self::Observe if is_gitea => ("GET", "/pulls/*", here),
            Self::Observe => {
                let name = repository.rsplit('/').next().unwrap_or_default();
                ("POST", "/graphql", format!("\"{name}\""))
            }
            Self::FailedCheckLog if is_gitea => ("GET", "/commits/*/statuses", here),
            Self::FailedCheckLog => ("GET", "/actions/jobs/*/logs", here),
            Self::UpdateChange => ("PATCH", "/pulls/*", here),
            Self::Merge if is_gitea => ("POST", "/pulls/*/merge", here),
            Self::Merge => ("PUT", "/pulls/*/merge", here),
            Self::AdvanceBranch if is_gitea => {
                ("POST", "/git-receive-pack", "refs/heads/main".to_owned())
            }
            Self::AdvanceBranch => ("PATCH", "/git/refs/heads/main", here),
        };
        RequestPattern { method, path, text }
    }

    /// Returns the operations of a story, with or without the merge queue.
    pub(crate) fn of_story(with_queue: bool) -> Vec<Self> {
        let left_out = if with_queue { Self::Merge } else { Self::AdvanceBranch };
        Self::iter().filter(|it| *it != left_out).collect()
    }
}

/// Returns the cases of each story: one fault at every operation. A story whose worker is killed has a
/// fault at every second one, and there is another one for the rest, because a job that five workers
/// did not survive is left to a person.
pub(crate) fn every_story(with_queue: bool) -> Vec<Vec<FaultCase>> {
    let mut stories = Vec::new();
    for strike in Strike::iter() {
        let parts = if strike == Strike::KillWorker { 2 } else { 1 };
        for side in Side::iter() {
            for part in 0..parts {
                let operations = Operation::of_story(with_queue).into_iter();
                let own = operations.skip(part).step_by(parts);
                let cases = own.map(|operation| FaultCase { operation, side, strike });
                stories.push(cases.collect());
            }
        }
    }
    stories
}

/// Returns the cases of the quick story.
pub(crate) fn quick_story() -> Vec<FaultCase> {
    [
        (Operation::OpenChange, Side::After, Strike::KillWorker),
        (Operation::UpsertComment, Side::After, Strike::KillServer),
        (Operation::Merge, Side::After, Strike::KillForge),
        (Operation::PublishCheck, Side::After, Strike::Lose),
    ]
    .map(|(operation, side, strike)| FaultCase { operation, side, strike })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_experiment_has_at_least_300_cases() {
        let of_site = |queue| every_story(queue).iter().map(Vec::len).sum::<usize>();
        assert!(2 * (of_site(false) + of_site(true)) >= 300);
    }

    #[test]
    fn every_operation_is_struck_on_both_sides_by_everything() {
        let all: Vec<FaultCase> =
            [false, true].into_iter().flat_map(every_story).flatten().collect();
        for operation in Operation::iter() {
            for side in Side::iter() {
                for strike in Strike::iter() {
                    assert!(all.contains(&FaultCase { operation, side, strike }));
                }
            }
        }
    }
}
