//! What a council says: each member for itself, and then the chair for all of them.
//!
//! Who sits there is in [`rules`](crate::rules::Council); when it is called, and in which order its
//! seats are asked, is the machine's business.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::ids::Reference;
use crate::rules::{Council, Seat};

/// The longest text that is taken, in bytes. What a council says must be read by people and models.
pub const LONGEST: usize = 8_000;

/// What one member thinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Why the attempts have failed: the one cause behind what was seen.
    pub root_cause: String,
    /// What will mend it, so that a planner can plan it: which files, and what in them.
    pub fix: String,
    /// How sure you are.
    pub confidence: Confidence,
    /// What speaks against your own view.
    pub against: String,
}

/// How sure somebody is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Confidence {
    /// It is a guess.
    Low,
    /// It is likely.
    Medium,
    /// There is evidence for it.
    High,
}

/// What the chair concludes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conclusion {
    /// Why the attempts have failed.
    pub root_cause: String,
    /// What the next plan must do.
    pub fix: String,
    /// Where members disagree with this, and what they hold instead. Empty where nobody does.
    pub dissent: Vec<String>,
}

impl View {
    /// What is wrong with it, if something is.
    pub fn flaws(&self) -> Vec<String> {
        let texts =
            [("root_cause", &self.root_cause), ("fix", &self.fix), ("against", &self.against)];
        texts.iter().filter_map(|(name, text)| flaw(name, text)).collect()
    }

    /// For people and for the chair, as Markdown.
    pub fn in_words(&self) -> String {
        let Self { root_cause, fix, confidence, against } = self;
        format!(
            "- Root cause ({confidence} confidence): {}\n- Fix: {}\n- Against it: {}\n",
            one(root_cause),
            one(fix),
            one(against)
        )
    }
}

impl Conclusion {
    /// What is wrong with it, if something is.
    pub fn flaws(&self) -> Vec<String> {
        let texts = [("root_cause", &self.root_cause), ("fix", &self.fix)];
        let mut flaws: Vec<_> = texts.iter().filter_map(|(name, text)| flaw(name, text)).collect();
        flaws.extend(self.dissent.iter().filter_map(|text| flaw("dissent", text)));
        flaws
    }
}

/// A seat and what was said from it; nothing where its run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Who sits there.
    pub seat: Seat,
    /// What they think.
    pub view: Option<View>,
}

/// What came of a council, as Markdown: for the planner, for people, and to be kept.
pub fn minutes(conclusion: &Conclusion, chair: &Seat, members: &[Spoken]) -> String {
    let mut text = format!(
        "# What the council concluded\n\n## Root cause\n\n{}\n\n## Fix\n\n{}\n\n## Dissent\n\n",
        conclusion.root_cause.trim(),
        conclusion.fix.trim()
    );
    if conclusion.dissent.is_empty() {
        text.push_str("Nobody disagreed.\n");
    }
    for dissent in &conclusion.dissent {
        let _ = writeln!(text, "- {}", one(dissent));
    }
    let _ = writeln!(text, "\n## Who sat\n\nThe chair: {chair}.");
    text.push_str(&said(members));
    text
}

/// What the members said, one after the other, as Markdown.
pub fn said(members: &[Spoken]) -> String {
    let mut text = String::new();
    for (number, Spoken { seat, view }) in members.iter().enumerate() {
        let _ = writeln!(text, "\n### Member {}: {seat}\n", number + 1);
        match view {
            Some(view) => text.push_str(&view.in_words()),
            None => text.push_str("Was absent: the run failed.\n"),
        }
    }
    text
}

/// A text of several lines, for an item of a list.
fn one(text: &str) -> String {
    text.trim().lines().collect::<Vec<_>>().join("\n  ")
}

fn flaw(name: &str, text: &str) -> Option<String> {
    if text.trim().is_empty() {
        Some(format!("`{name}` is empty"))
    } else if text.len() > LONGEST {
        Some(format!("`{name}` is longer than {LONGEST} bytes: say it shorter"))
    } else {
        None
    }
}

/// What a member of the council said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opinion {
    /// It is kept there.
    Said(Reference),
    /// Nothing: its run failed.
    Absent,
}

/// Whose turn it is in the council.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A member, by its number from 0.
    Member(u8),
    /// The chair, which reads what the members said and concludes.
    Chair,
}

impl Place {
    /// Who sits there.
    pub fn seat(self, council: &Council) -> &Seat {
        match self {
            Self::Member(number) => {
                council.members.get(usize::from(number)).unwrap_or(&council.chair)
            }
            Self::Chair => &council.chair,
        }
    }
}
