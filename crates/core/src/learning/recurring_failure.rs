//! Failures that recur across tasks. They are not the fault of a single task, so they are reported
//! once, as a recommendation or prohibition with the tasks as evidence.

use std::collections::BTreeSet;

use super::fallback::extract_keywords;
use super::task_record::truncate;
use super::{Lesson, LessonTrigger, derive_id};
use crate::ids::{KnowledgeId, ProjectId, Reference, TaskId};
use crate::knowledge::{EntryKind, EntrySeverity};

/// Number of tasks in which a failure must occur.
pub const MIN_TASKS: usize = 3;

/// Occurrence of a failure in a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureOccurrence {
    /// Task that had it.
    pub task: TaskId,
    /// Evidence in that task.
    pub evidence: Vec<Reference>,
}

/// Returns the lesson of a failure in several tasks, with an ID that does not depend on the tasks.
/// `None` if there are too few.
pub fn recurring_failure_lesson(
    project: ProjectId,
    fault: &str,
    in_code: bool,
    occurrences: &[FailureOccurrence],
) -> Option<(KnowledgeId, Lesson)> {
    let tasks: BTreeSet<TaskId> = occurrences.iter().map(|occurrence| occurrence.task).collect();
    if tasks.len() < MIN_TASKS {
        return None;
    }
    let fault = truncate(fault.trim(), 300);
    // A review finding in code can be prohibited; a gate failure can only be checked early.
    let (kind, text) = if in_code {
        (
            EntryKind::Prohibition,
            format!("Do not submit code that fails review again and again: {fault}"),
        )
    } else {
        (EntryKind::Recommendation, format!("Check `{fault}` first: it fails in many tasks."))
    };
    let mut evidence = Vec::new();
    for reference in occurrences.iter().flat_map(|occurrence| occurrence.evidence.iter().take(2)) {
        if !evidence.contains(reference) {
            evidence.push(reference.clone());
        }
    }
    let lesson = Lesson {
        project,
        trigger: LessonTrigger::Failure,
        kind,
        title: String::new(),
        text,
        keywords: extract_keywords(&fault),
        globs: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: EntrySeverity::Medium,
        evidence,
        note: format!("{} tasks failed because of it", tasks.len()),
    };
    Some((derive_id(&format!("pattern/{project}/{kind}/{fault}")), lesson))
}
