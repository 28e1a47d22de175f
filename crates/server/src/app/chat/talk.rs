//! Replies to general talk: the state of the work, what needs attention, and what the chat can do.
//!
//! If a project has configured a model, its sentence comes first. The other lines come from stored
//! data, so that no model can hide the facts.

use tamma_core::format::pluralize;

use super::{MAX_SUBJECTS, replies};
use crate::app::{App, Error, PageRequest};
use crate::dto::ChatReply;

/// Maximum number of tasks listed in reply to general talk.
const MAX_TASKS: u32 = 3;

/// Last line of every reply to general talk.
const HINT: &str = "Nothing was changed. Ask about a task, its failures or its cost, or request an \
                    action such as “approve the plan”. “Help” lists more.";

/// Note that tells a model's words from facts.
const MODEL_NOTE: &str = "A model wrote the first line. The others come from stored data.";

/// Numbers of tasks, for a summary.
#[derive(Debug, Clone, Copy)]
struct TaskCounts {
    open: u64,
    waiting: u64,
    overdue: usize,
    failing: usize,
}

impl App {
    /// Answers general talk with the state of all projects and the decisions that are due.
    pub(super) async fn talk_reply(&self, by_model: Option<&str>) -> Result<ChatReply, Error> {
        let by_state = self.store.count_by_state(None).await?;
        let open = by_state.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, all)| all);
        let window = |limit| PageRequest { after: None, limit };
        let counts = TaskCounts {
            open: open.sum(),
            waiting: self.store.count_waiting(None).await?,
            overdue: self.overdue_tasks(None, &window(MAX_SUBJECTS)).await?.tasks.len(),
            failing: self.failing_tasks(None, MAX_SUBJECTS).await?.tasks.len(),
        };
        let due = self.inbox(None, &window(MAX_TASKS)).await?;
        let facts = [summary(counts), HINT.to_owned()];
        Ok(ChatReply {
            lines: by_model.map(str::to_owned).into_iter().chain(facts).collect(),
            tasks: due.tasks.iter().map(replies::task_mention).collect(),
            note: by_model.map(|_| MODEL_NOTE.to_owned()),
            ..ChatReply::default()
        })
    }
}

fn summary(counts: TaskCounts) -> String {
    let TaskCounts { open, waiting, overdue, failing } = counts;
    if open == 0 {
        return "No open tasks. To add one, write “new task: …”.".to_owned();
    }
    let needs = if waiting == 1 { "needs" } else { "need" };
    let is = if overdue == 1 { "is" } else { "are" };
    let keeps = if failing == 1 { "keeps" } else { "keep" };
    let parts: Vec<_> = [
        (waiting > 0).then(|| format!("{waiting} {needs} a decision")),
        (overdue > 0).then(|| format!("{overdue} {is} overdue")),
        (failing > 0).then(|| format!("{failing} {keeps} failing")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let open = pluralize(open, "open task");
    match &*parts {
        [] => format!("{open}. Nothing needs your attention."),
        parts => format!("{open}: {}.", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_needs_attention() {
        let counts = TaskCounts { open: 5, waiting: 2, overdue: 1, failing: 1 };
        assert_eq!(
            summary(counts),
            "5 open tasks: 2 need a decision, 1 is overdue, 1 keeps failing."
        );
        let counts = TaskCounts { open: 1, waiting: 0, overdue: 0, failing: 0 };
        assert_eq!(summary(counts), "1 open task. Nothing needs your attention.");
        let counts = TaskCounts { open: 0, ..counts };
        assert_eq!(summary(counts), "No open tasks. To add one, write “new task: …”.");
    }
}
