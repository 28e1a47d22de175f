//! Pull requests on the cards of tasks.

use std::collections::BTreeMap;

use tamma_core::ids::TaskId;

use super::{App, Error};
use crate::dto::{PullRequestBadge, TaskCard};

impl App {
    /// Adds the pull requests to the cards of tasks.
    pub(crate) async fn add_pull_request_badges(
        &self,
        cards: &mut [TaskCard],
    ) -> Result<(), Error> {
        // A task without a run has no change, so no pull request either.
        let tasks: Vec<_> =
            cards.iter().filter(|card| card.iterations > 0).map(|card| TaskId(card.id)).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let stored = self.store.pull_requests_of(&tasks).await?;
        let badges = stored.iter().map(|it| (it.task.0, PullRequestBadge::from(it)));
        let mut badges: BTreeMap<_, _> = badges.collect();
        for card in cards {
            card.pull_request_badge = badges.remove(&card.id);
        }
        Ok(())
    }
}
