//! Waits until what a task depends on is completed.

use tamma_core::task_loop::Outcome;
use tamma_flow::port::Answer;

use super::{Activities, Told, Work};
use crate::error::Error;

/// Seconds until it is looked again. People are told by the soft timeout of `pending`.
const LOOK: u32 = 10;

impl Activities {
    pub(super) async fn admit(&self, work: &Work) -> Result<Told, Error> {
        let others = &work.task.depends_on;
        if !others.is_empty() && self.store.incomplete(others).await? > 0 {
            return Ok(Answer::Later { seconds: LOOK }.into());
        }
        Ok(Outcome::Admitted.into())
    }
}
