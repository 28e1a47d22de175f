//! Statements of a council: one opinion per member, and the conclusion of the chair.
//!
//! Members are configured in [`rules`](crate::rules::CouncilRules). The state machine decides when a
//! council is called and in which order its members are asked.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::ids::Reference;
use crate::rules::{AgentSelection, CouncilRules};

/// Maximum length of a text in bytes, so that people and models can read it.
pub const MAX_TEXT_BYTES: usize = 8_000;

/// Opinion of one member
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CouncilOpinion {
    /// Root cause of the failed attempts
    pub root_cause: String,
    /// Fix, in enough detail for a planner: the files and the changes to them
    pub fix: String,
    /// Confidence in this opinion
    pub confidence: Confidence,
    /// Arguments against this opinion
    pub against: String,
    /// Insights about the design of the codebase that outlive this task; empty without any
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architectural_insights: Vec<String>,
}

/// Confidence in an opinion
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
    /// Guess
    Low,
    /// Likely
    Medium,
    /// Supported by evidence
    High,
}

/// Conclusion of the chair
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CouncilConclusion {
    /// Root cause of the failed attempts
    pub root_cause: String,
    /// Requirements for the next plan
    pub fix: String,
    /// Objections of members and their alternatives; empty without dissent
    pub dissent: Vec<String>,
    /// Insights about the design of the codebase that outlive this task; empty without any
    #[serde(default)]
    pub architectural_insights: Vec<String>,
}

impl CouncilOpinion {
    /// Returns the validation errors.
    pub fn validate(&self) -> Vec<String> {
        let texts =
            [("root_cause", &self.root_cause), ("fix", &self.fix), ("against", &self.against)];
        let insights = self.architectural_insights.iter();
        let insights = insights.filter_map(|text| check_text("architectural_insights", text));
        texts.iter().filter_map(|(name, text)| check_text(name, text)).chain(insights).collect()
    }

    /// Renders the opinion as Markdown, for people and for the chair.
    pub fn to_markdown(&self) -> String {
        let Self { root_cause, fix, confidence, against, architectural_insights } = self;
        let mut text = format!(
            "- Root cause ({confidence} confidence): {}\n- Fix: {}\n- Counterarguments: {}\n",
            indent_list_item(root_cause),
            indent_list_item(fix),
            indent_list_item(against)
        );
        for insight in architectural_insights {
            let _ = writeln!(text, "- Architectural insight: {}", indent_list_item(insight));
        }
        text
    }
}

impl CouncilConclusion {
    /// Returns the validation errors.
    pub fn validate(&self) -> Vec<String> {
        let texts = [("root_cause", &self.root_cause), ("fix", &self.fix)];
        let mut errors: Vec<_> =
            texts.iter().filter_map(|(name, text)| check_text(name, text)).collect();
        errors.extend(self.dissent.iter().filter_map(|text| check_text("dissent", text)));
        let insights = self.architectural_insights.iter();
        errors.extend(insights.filter_map(|text| check_text("architectural_insights", text)));
        errors
    }
}

/// Member with its opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOpinion {
    /// Member as configured.
    pub member: AgentSelection,
    /// Opinion; `None` if the member's run failed.
    pub opinion: Option<CouncilOpinion>,
}

/// Renders the minutes of a council as Markdown, for the planner and for people.
pub fn render_minutes(
    conclusion: &CouncilConclusion,
    chair: &AgentSelection,
    members: &[MemberOpinion],
) -> String {
    let mut text = format!(
        "# Council conclusion\n\n## Root cause\n\n{}\n\n## Fix\n\n{}\n\n## Dissent\n\n",
        conclusion.root_cause.trim(),
        conclusion.fix.trim()
    );
    if conclusion.dissent.is_empty() {
        text.push_str("No dissent.\n");
    }
    for dissent in &conclusion.dissent {
        let _ = writeln!(text, "- {}", indent_list_item(dissent));
    }
    if !conclusion.architectural_insights.is_empty() {
        text.push_str("\n## Architectural insights\n\n");
    }
    for insight in &conclusion.architectural_insights {
        let _ = writeln!(text, "- {}", indent_list_item(insight));
    }
    let _ = writeln!(text, "\n## Members\n\nChair: {chair}.");
    text.push_str(&render_opinions(members));
    text
}

/// Renders the opinions of the members as Markdown.
pub fn render_opinions(members: &[MemberOpinion]) -> String {
    let mut text = String::new();
    for (number, MemberOpinion { member, opinion }) in members.iter().enumerate() {
        let _ = writeln!(text, "\n### Member {}: {member}\n", number + 1);
        match opinion {
            Some(opinion) => text.push_str(&opinion.to_markdown()),
            None => text.push_str("Absent: the run failed.\n"),
        }
    }
    text
}

/// Indents text of several lines for a list item.
fn indent_list_item(text: &str) -> String {
    text.trim().lines().collect::<Vec<_>>().join("\n  ")
}

fn check_text(name: &str, text: &str) -> Option<String> {
    if text.trim().is_empty() {
        Some(format!("`{name}` is empty"))
    } else if text.len() > MAX_TEXT_BYTES {
        Some(format!("`{name}` is longer than {MAX_TEXT_BYTES} bytes; shorten it"))
    } else {
        None
    }
}

/// Recorded opinion of a council member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpinionRecord {
    /// Opinion, stored under this reference.
    #[serde(rename = "said")]
    Stored(Reference),
    /// No opinion: the member's run failed.
    Absent,
}

/// Seat of the council.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CouncilSeat {
    /// Member, by its index from 0.
    Member(u8),
    /// Chair, who reads the opinions and concludes.
    Chair,
}

impl CouncilSeat {
    /// Returns the configured member in this seat.
    pub fn member(self, council: &CouncilRules) -> &AgentSelection {
        match self {
            Self::Member(number) => {
                council.members.get(usize::from(number)).unwrap_or(&council.chair)
            }
            Self::Chair => &council.chair,
        }
    }
}
