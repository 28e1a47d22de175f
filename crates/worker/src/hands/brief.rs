//! Writes the brief for the next run: what was decided, and what failed.

use tamma_core::escalation::{Decision, Verdict};
use tamma_core::ids::Reference;
use tamma_core::task_loop::Outcome;

use super::{Activities, Told, Work};
use crate::error::Error;

impl Activities {
    pub(super) async fn brief(
        &self,
        work: &Work,
        decision: &Decision,
        note: Option<&Reference>,
    ) -> Result<Told, Error> {
        let mut text = match decision.verdict {
            Verdict::Iterate(tier) => {
                format!("The same plan is tried again, by the tier {tier}.\n\n")
            }
            _ => String::new(),
        };
        if let Some(note) = note {
            text.push_str(&self.store.kept(note).await?);
            text.push_str("\n\n");
        }
        if let Some(report) = self.reports(work).await?.into_iter().next() {
            text.push_str(&report);
        }
        Ok(Outcome::Briefed(self.store.keep(&text).await?).into())
    }

    /// What failed in the jobs of a task so far, the newest first.
    pub(super) async fn reports(&self, work: &Work) -> Result<Vec<String>, Error> {
        let told: Vec<Told> = self.store.answers(work.task.id).await?;
        Ok(told.into_iter().filter_map(|told| told.report).collect())
    }
}
