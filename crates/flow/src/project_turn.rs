//! Turns of projects in task queues. All workflows share them.

use tamma_core::ids::ProjectId;
use temporalio_common::Priority;

/// Returns the place of a project's activity in its task queue. Without a level, it has the one of a
/// run with medium priority.
///
/// Within a level, Temporal takes turns between projects if its fairness is on
/// (`matching.enableFairness`). Otherwise the longest wait comes first.
pub(crate) fn project_turn(project: ProjectId, level: Option<u32>) -> Priority {
    Priority::builder().maybe_priority_key(level).fairness_key(project.to_string()).build()
}

#[cfg(test)]
mod tests {
    use tamma_core::ids::TaskId;
    use tamma_core::time::Timestamp;

    use super::*;

    /// Longest fairness key that Temporal accepts, in bytes.
    const LONGEST_KEY: usize = 64;

    #[test]
    fn every_project_has_its_own_key() {
        let keys = [1 << 64, 2 << 64].map(|number| {
            let id = TaskId::from_parts(Timestamp::UNIX_EPOCH, number).0;
            let turn = project_turn(ProjectId(id), Some(2));
            assert_eq!(turn.priority_key, Some(2));
            turn.fairness_key.expect("a key")
        });
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key.len() <= LONGEST_KEY));
    }
}
