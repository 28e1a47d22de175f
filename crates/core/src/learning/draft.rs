//! Lesson drafts as a model submits them, and their validation.

use globset::Glob;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Lesson, TaskRecord};
use crate::ids::Reference;
use crate::knowledge::{EntryKind, EntrySeverity};
use crate::plan::FileAction;

/// Most lessons that a task can submit. Nobody reads more of them.
const MAX_LESSONS: usize = 5;

/// Longest text of a lesson, in characters.
const MAX_TEXT_CHARS: usize = 600;

/// Longest title of a lesson, in characters.
const MAX_TITLE_CHARS: usize = 120;

/// Most keywords, globs and evidence labels of a lesson.
const MAX_LIST_ITEMS: usize = 12;

/// Lessons from a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LessonSubmission {
    /// Lessons: at most five, the most useful first. Empty if there is nothing to learn.
    pub lessons: Vec<LessonDraft>,
}

/// Draft of a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LessonDraft {
    /// Kind: `recommendation` (do it this way), `prohibition` (never do this), `convention`
    /// (practice of this project) or `learning` (what happened, and the result).
    pub kind: EntryKind,
    /// Title: a few words, in one line.
    #[serde(default)]
    pub title: String,
    /// Text: one or two sentences that also apply to other tasks.
    pub text: String,
    /// Keywords by which later plans are matched.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Globs of the files it applies to, from the root.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Actions on files under the globs, if only those matter: create, modify, delete.
    #[serde(default)]
    pub actions: Vec<FileAction>,
    /// Regular expression for code that it applies to.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Severity of ignoring it: low, medium, high or critical.
    pub severity: EntrySeverity,
    /// Evidence: labels in square brackets from the record, such as `event 12`.
    pub evidence: Vec<String>,
}

impl LessonSubmission {
    /// Returns the problems of the drafts, for their author. `is_known` says whether an evidence
    /// label exists.
    pub fn validation_errors(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        if self.lessons.len() > MAX_LESSONS {
            errors.push(format!(
                "too many lessons ({}): keep the {MAX_LESSONS} most useful",
                self.lessons.len()
            ));
        }
        for (number, lesson) in self.lessons.iter().enumerate() {
            let lesson_errors = lesson.validation_errors(&is_known);
            errors.extend(
                lesson_errors.into_iter().map(|error| format!("lesson {}: {error}", number + 1)),
            );
        }
        errors
    }

    /// Converts the drafts to lessons with resolved evidence.
    pub fn into_lessons(self, record: &TaskRecord) -> Vec<Lesson> {
        self.lessons.into_iter().map(|draft| draft.into_lesson(record)).collect()
    }
}

impl LessonDraft {
    fn validation_errors(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        if self.text.trim().is_empty() {
            errors.push("`text` is empty".to_owned());
        }
        if self.title.chars().count() > MAX_TITLE_CHARS {
            errors.push(format!("`title` is longer than {MAX_TITLE_CHARS} characters: shorten it"));
        }
        let length = self.text.chars().count();
        if length > MAX_TEXT_CHARS {
            errors.push(format!(
                "`text` has {length} characters: shorten it to at most {MAX_TEXT_CHARS}"
            ));
        }
        for (name, list) in
            [("keywords", &self.keywords), ("globs", &self.globs), ("evidence", &self.evidence)]
        {
            if list.len() > MAX_LIST_ITEMS {
                errors.push(format!(
                    "`{name}` has {} items: keep at most {MAX_LIST_ITEMS}",
                    list.len()
                ));
            }
            if list.iter().any(|item| item.trim().is_empty()) {
                errors.push(format!("`{name}` contains an empty string"));
            }
        }
        let invalid = self.globs.iter().filter(|glob| Glob::new(glob).is_err());
        errors.extend(invalid.map(|glob| format!("`{glob}` is not a valid glob")));
        if let Some(Err(error)) = self.pattern.as_deref().map(Regex::new) {
            errors.push(format!("`pattern` is not a valid regular expression: {error}"));
        }
        let has_condition =
            !self.globs.is_empty() || !self.keywords.is_empty() || self.pattern.is_some();
        if self.kind == EntryKind::Prohibition && !has_condition {
            errors.push(
                "a prohibition needs a condition: add `globs`, `keywords` or a `pattern`"
                    .to_owned(),
            );
        }
        if self.evidence.is_empty() {
            errors.push("`evidence` is empty: add labels from the record".to_owned());
        }
        let unknown = self.evidence.iter().filter(|label| !is_known(label));
        errors.extend(unknown.map(|label| format!("`{label}` is not in the record")));
        errors
    }

    fn into_lesson(self, record: &TaskRecord) -> Lesson {
        let mut evidence: Vec<Reference> = Vec::new();
        let references =
            self.evidence.iter().filter_map(|label| record.find_evidence(label)?.reference());
        for reference in references {
            if !evidence.contains(&reference) {
                evidence.push(reference);
            }
        }
        let trim =
            |list: Vec<String>| list.into_iter().map(|item| item.trim().to_owned()).collect();
        Lesson {
            project: record.project,
            trigger: record.lesson_trigger(),
            kind: self.kind,
            title: self.title.lines().next().unwrap_or_default().trim().to_owned(),
            text: self.text.trim().to_owned(),
            keywords: trim(self.keywords),
            globs: trim(self.globs),
            actions: self.actions,
            pattern: self.pattern,
            severity: self.severity,
            evidence,
            note: record.summary(),
        }
    }
}
