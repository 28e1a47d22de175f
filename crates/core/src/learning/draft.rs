//! A lesson as a model hands it in, and what must be right with it before anybody is shown it.

use globset::Glob;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Lesson, Record};
use crate::ids::Reference;
use crate::knowledge::{Kind, Severity};
use crate::plan::Action;

/// How many lessons a task may hand in. What is more is not read by whoever has to decide.
const MOST: usize = 5;

/// The longest text of a lesson, in characters.
const LONGEST: usize = 600;

/// How many words, paths and references a lesson may have.
const LISTED: usize = 12;

/// What a task has taught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Taught {
    /// The lessons: at most five, the most useful first. Empty where there is nothing to teach.
    pub lessons: Vec<Draft>,
}

/// One lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// What it is: a `recommendation` (do it this way), a `prohibition` (never do this), a
    /// `convention` (how it is done here) or a `learning` (what happened, and what came of it).
    pub kind: Kind,
    /// What it says, in one or two sentences that hold for other tasks too.
    pub text: String,
    /// The words it is about, by which a later plan is found.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// The paths it is about, as globs from the root.
    #[serde(default)]
    pub globs: Vec<String>,
    /// What happens to files under the globs, where only that counts: create, modify, delete.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// The code it is about, as a regular expression.
    #[serde(default)]
    pub pattern: Option<String>,
    /// How bad it is to ignore it: low, medium, high or critical.
    pub severity: Severity,
    /// What it is based on: names in square brackets out of the record, such as `event 12`.
    pub evidence: Vec<String>,
}

impl Taught {
    /// What is wrong with it, for whoever wrote it. `known` says which evidence there is.
    pub fn flaws(&self, known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut flaws = Vec::new();
        if self.lessons.len() > MOST {
            flaws.push(format!("there are {} lessons: choose the {MOST} best", self.lessons.len()));
        }
        for (number, lesson) in self.lessons.iter().enumerate() {
            let own = lesson.flaws(&known);
            flaws.extend(own.into_iter().map(|flaw| format!("lesson {}: {flaw}", number + 1)));
        }
        flaws
    }

    /// The lessons, with evidence that everybody can look up.
    pub fn lessons(self, record: &Record) -> Vec<Lesson> {
        self.lessons.into_iter().map(|draft| draft.lesson(record)).collect()
    }
}

impl Draft {
    fn flaws(&self, known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut flaws = Vec::new();
        if self.text.trim().is_empty() {
            flaws.push("`text` is empty".to_owned());
        }
        let length = self.text.chars().count();
        if length > LONGEST {
            flaws.push(format!("`text` has {length} characters: say it in at most {LONGEST}"));
        }
        for (name, list) in
            [("keywords", &self.keywords), ("globs", &self.globs), ("evidence", &self.evidence)]
        {
            if list.len() > LISTED {
                flaws.push(format!("`{name}` has {}: at most {LISTED}", list.len()));
            }
            if list.iter().any(|it| it.trim().is_empty()) {
                flaws.push(format!("`{name}` has an empty text in it"));
            }
        }
        let odd = self.globs.iter().filter(|glob| Glob::new(glob).is_err());
        flaws.extend(odd.map(|glob| format!("`{glob}` is not a glob")));
        if let Some(Err(error)) = self.pattern.as_deref().map(Regex::new) {
            flaws.push(format!("`pattern` is not a regular expression: {error}"));
        }
        let narrow = !self.globs.is_empty() || !self.keywords.is_empty() || self.pattern.is_some();
        if self.kind == Kind::Prohibition && !narrow {
            flaws.push(
                "a prohibition must say what it forbids: `globs`, `keywords` or a `pattern`"
                    .to_owned(),
            );
        }
        if self.evidence.is_empty() {
            flaws.push("`evidence` is empty: name what in the record shows it".to_owned());
        }
        let unknown = self.evidence.iter().filter(|label| !known(label));
        flaws.extend(unknown.map(|label| format!("there is no `{label}` in the record")));
        flaws
    }

    fn lesson(self, record: &Record) -> Lesson {
        let mut evidence: Vec<Reference> = Vec::new();
        let found = self.evidence.iter().filter_map(|label| record.find(label)?.reference());
        for one in found {
            if !evidence.contains(&one) {
                evidence.push(one);
            }
        }
        let trim = |list: Vec<String>| list.into_iter().map(|it| it.trim().to_owned()).collect();
        Lesson {
            project: record.project,
            occasion: record.occasion(),
            kind: self.kind,
            text: self.text.trim().to_owned(),
            keywords: trim(self.keywords),
            globs: trim(self.globs),
            actions: self.actions,
            pattern: self.pattern,
            severity: self.severity,
            evidence,
            note: record.in_short(),
        }
    }
}
