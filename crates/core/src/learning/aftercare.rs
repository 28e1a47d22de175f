//! Lessons from what happened to a change after its merge.

use super::fallback::extract_keywords;
use super::task_record::truncate;
use super::{Lesson, LessonTrigger};
use crate::aftercare::AftercareKind;
use crate::format::single_line;
use crate::ids::{ProjectId, Reference};
use crate::knowledge::{EntryKind, EntrySeverity};

/// Returns the lesson of a finding about the merged change of a task. `detail` is what somebody wrote,
/// such as the subject of the commit.
pub fn aftercare_lesson(
    project: ProjectId,
    title: &str,
    kind: AftercareKind,
    detail: &str,
    evidence: Vec<Reference>,
) -> Lesson {
    let title = truncate(&single_line(title), 200);
    let detail = truncate(&single_line(detail), 300);
    let advice = match kind {
        AftercareKind::Revert => "Find out why before you change the same code in this way again",
        AftercareKind::Fix => "Cover the fixed case with a test when you change the same code",
        AftercareKind::RedBase => {
            "Run the checks of the base branch before such a change is merged"
        }
    };
    Lesson {
        project,
        trigger: LessonTrigger::Failure,
        kind: EntryKind::Learning,
        title: String::new(),
        text: format!("\"{title}\" {} after its merge: {detail}. {advice}.", kind.description()),
        keywords: extract_keywords(&title),
        globs: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: match kind {
            AftercareKind::Revert | AftercareKind::RedBase => EntrySeverity::High,
            AftercareKind::Fix => EntrySeverity::Medium,
        },
        evidence,
        note: format!("the change {} after its merge", kind.description()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::TaskId;

    #[test]
    fn a_finding_becomes_one_lesson_with_the_words_of_the_task() {
        let lesson = |kind, detail| {
            let project = ProjectId(Uuid::from_u128(1));
            aftercare_lesson(project, "Add\nrounding of totals", kind, detail, Vec::new())
        };
        let reverted = lesson(AftercareKind::Revert, "Revert \"Add rounding\"");
        assert!(
            reverted.text.starts_with(
                "\"Add rounding of totals\" was reverted after its merge: Revert \"Add rounding\"."
            ),
            "{}",
            reverted.text
        );
        assert!(reverted.keywords.contains(&"rounding".to_owned()), "{:?}", reverted.keywords);
        assert_eq!(reverted.severity, EntrySeverity::High);
        let task = TaskId(Uuid::from_u128(2));
        let again = lesson(AftercareKind::Revert, "Revert \"Add rounding\"");
        assert_eq!(reverted.id(task), again.id(task), "proposed again, it is the same entry");
        let fixed = lesson(AftercareKind::Fix, "Fix rounding of refunds");
        assert_eq!(fixed.severity, EntrySeverity::Medium);
        assert_ne!(fixed.id(task), reverted.id(task));
    }
}
