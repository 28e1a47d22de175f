//! Patterns across tasks: what stood against the changes of one task after the other is not the fault
//! of any of them. It is told once, as something to do or not to do, with the tasks as evidence.

use std::collections::BTreeSet;

use super::plain::keywords;
use super::record::cut;
use super::{Lesson, Occasion, id_of};
use crate::ids::{KnowledgeId, ProjectId, Reference, TaskId};
use crate::knowledge::{Kind, Severity};

/// In how many tasks a failure must have been seen.
pub const TASKS: usize = 3;

/// A failure that a task has had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The task.
    pub task: TaskId,
    /// Where that can be looked up.
    pub evidence: Vec<Reference>,
}

/// What is told of a failure that several tasks have had: what it becomes, under an identity that is
/// the same whichever task is the third. Nothing, where there are too few.
pub fn pattern(
    project: ProjectId,
    fault: &str,
    in_code: bool,
    sightings: &[Sighting],
) -> Option<(KnowledgeId, Lesson)> {
    let tasks: BTreeSet<TaskId> = sightings.iter().map(|seen| seen.task).collect();
    if tasks.len() < TASKS {
        return None;
    }
    let fault = cut(fault.trim(), 300);
    // What the review finds in code can be kept out of it; what a gate finds has to be looked after.
    let (kind, text) = if in_code {
        (
            Kind::Prohibition,
            format!("Do not hand in what the review refuses again and again: {fault}"),
        )
    } else {
        (Kind::Recommendation, format!("Look after `{fault}` first: it fails in task after task."))
    };
    let mut evidence = Vec::new();
    for one in sightings.iter().flat_map(|seen| seen.evidence.iter().take(2)) {
        if !evidence.contains(one) {
            evidence.push(one.clone());
        }
    }
    let lesson = Lesson {
        project,
        occasion: Occasion::Failure,
        kind,
        text,
        keywords: keywords(&fault),
        globs: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: Severity::Medium,
        evidence,
        note: format!("{} tasks have failed on it", tasks.len()),
    };
    Some((id_of(&format!("pattern/{project}/{kind}/{fault}")), lesson))
}
