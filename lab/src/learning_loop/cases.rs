//! Two kinds of lessons: a prohibition stops a plan, a recommendation improves it.

use serde_json::json;
use tamma_core::knowledge::EntryKind;
use tamma_core::plan::FileAction;
use tamma_testkit::agent::{IMPLEMENTER, PLANNER};

use crate::support::scripts::{ScriptedAction, ScriptedCase, plan};

/// Schema, generator, generated file and gate.
pub(crate) const FILES: [(&str, &str); 4] = [
    ("schema.txt", "name\nprice\n"),
    (
        "gen.sh",
        "#!/bin/sh\nset -eu\nmkdir -p generated\nsed 's/^/field /' schema.txt > generated/api.txt\n",
    ),
    ("generated/api.txt", "field name\nfield price\n"),
    (
        "gate.sh",
        "#!/bin/sh\nset -eu\nif ! sed 's/^/field /' schema.txt | cmp -s - generated/api.txt; then\n  \
         echo 'generated/api.txt is not what gen.sh makes of schema.txt'\n  exit 1\nfi\n",
    ),
];

/// Kind of the lesson.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LessonCase {
    /// Stops plans that break it.
    Prohibition,
    /// Tells agents the right way.
    Recommendation,
}

/// Start of the recommendation in the prompts of agents.
const RECOMMENDED: &str = "Recommended: Change schema.txt and run gen.sh";

impl LessonCase {
    pub(crate) fn kind(self) -> EntryKind {
        match self {
            Self::Prohibition => EntryKind::Prohibition,
            Self::Recommendation => EntryKind::Recommendation,
        }
    }

    fn lesson(self, evidence: &[&str]) -> ScriptedAction {
        let lesson = match self {
            Self::Prohibition => json!({
                "kind": "prohibition",
                "text": "Never write generated files by hand: the next run of gen.sh undoes it.",
                "keywords": ["by hand"],
                "globs": ["generated/**"],
                "severity": "critical",
                "evidence": evidence,
            }),
            Self::Recommendation => json!({
                "kind": "recommendation",
                "text": "Change schema.txt and run gen.sh where a field of the generated API changes.",
                "keywords": ["field", "generated", "API"],
                "globs": ["generated/**"],
                "severity": "high",
                "evidence": evidence,
            }),
        };
        ScriptedAction::Tool("submit_lessons", json!({ "lessons": [lesson] }))
    }

    /// Returns the script of the model for all tasks of the case.
    pub(crate) fn script_cases(self) -> Vec<ScriptedCase> {
        let wrong =
            ScriptedAction::Shell("echo 'field colour' >> generated/api.txt".to_owned(), None);
        let right =
            ScriptedAction::Shell("echo colour >> schema.txt && sh gen.sh".to_owned(), None);
        let (modify, files) = (FileAction::Modify, ["schema.txt", "generated/api.txt"]);
        vec![
            ScriptedCase::new(
                "You look back at a development task",
                // Evidence that is not in the record is refused; the second attempt is valid.
                vec![self.lesson(&["check 999"]), self.lesson(&["check 6", "check 9"])],
            ),
            ScriptedCase::new(
                "# What was tried with it",
                vec![plan("The schema, and gen.sh", modify, &files)],
            ),
            ScriptedCase::new(
                PLANNER,
                vec![match self {
                    Self::Prohibition => {
                        plan("Write the field into the generated file by hand", modify, &files[1..])
                    }
                    Self::Recommendation => {
                        plan("A field `colour` in the generated API", modify, &files)
                    }
                }],
            ),
            ScriptedCase::new(RECOMMENDED, vec![right.clone()]),
            ScriptedCase::new("This is attempt 3.", vec![right]),
            ScriptedCase::new(IMPLEMENTER, vec![wrong]),
        ]
    }
}
