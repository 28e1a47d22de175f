//! What an agent hands in: a plan, a verdict, an opinion, a conclusion or lessons, checked before it is
//! believed.
//!
//! It comes through a tool of our [`desk`](crate::desk), or, from an agent that has no tool of ours in
//! its session or did not use it, as a block of JSON at the end of its last message. Both go through
//! the checks here. What is invalid goes back to the agent with everything that is wrong with it; how
//! often is the business of [`agent`](crate::agent).

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::council::{Conclusion, View};
use tamma_core::issue::Issue;
use tamma_core::learning::Taught;
use tamma_core::plan::Plan;
use tamma_core::review::Judgement;

use crate::agent::Mode;
use crate::plain;

/// What the validator says of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// What it says of each criterion, by the text of the criterion.
    pub criteria: BTreeMap<String, Judgement>,
    /// What else it found.
    #[serde(default)]
    pub issues: Vec<Issue>,
}

/// What came of a run beside the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// Nothing was asked for.
    Nothing,
    /// A plan without flaws.
    Plan(Box<Plan>),
    /// A verdict.
    Verdict(Verdict),
    /// What a member of the council thinks.
    Opinion(View),
    /// What the council concludes.
    Conclusion(Conclusion),
    /// What a task has taught.
    Lessons(Taught),
    /// The agent was asked again, and what it handed in is still not right.
    Invalid {
        /// What is wrong with it.
        flaws: Vec<String>,
        /// Its last message.
        text: String,
    },
}

/// Whether there is what a lesson points at.
pub type Known = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// For runs that teach nothing: there is nothing to point at.
pub fn no_evidence() -> Known {
    Arc::new(|_| false)
}

/// Reads what a run of this mode must hand in from the last message.
pub(crate) fn read(mode: Mode, text: &str, known: &Known) -> Result<Submission, Vec<String>> {
    match mode {
        Mode::Implement => Ok(Submission::Nothing),
        Mode::Plan | Mode::Validate | Mode::Advise | Mode::Conclude | Mode::Learn => {
            check(mode, block(text)?, known)
        }
    }
}

/// Checks what a run of this mode hands in.
pub(crate) fn check(mode: Mode, value: Value, known: &Known) -> Result<Submission, Vec<String>> {
    match mode {
        Mode::Implement => Ok(Submission::Nothing),
        Mode::Plan => {
            let plan: Plan = parse(value)?;
            let flaws: Vec<_> = plan.flaws().iter().map(ToString::to_string).collect();
            if flaws.is_empty() { Ok(Submission::Plan(Box::new(plan))) } else { Err(flaws) }
        }
        Mode::Validate => {
            let verdict: Verdict = parse(value)?;
            let flaws = unshown(&verdict);
            if flaws.is_empty() { Ok(Submission::Verdict(verdict)) } else { Err(flaws) }
        }
        Mode::Advise => {
            let view: View = parse(value)?;
            let flaws = view.flaws();
            if flaws.is_empty() { Ok(Submission::Opinion(view)) } else { Err(flaws) }
        }
        Mode::Conclude => {
            let conclusion: Conclusion = parse(value)?;
            let flaws = conclusion.flaws();
            if flaws.is_empty() { Ok(Submission::Conclusion(conclusion)) } else { Err(flaws) }
        }
        Mode::Learn => {
            let taught: Taught = parse(value)?;
            let flaws = taught.flaws(|label| known(label));
            if flaws.is_empty() { Ok(Submission::Lessons(taught)) } else { Err(flaws) }
        }
    }
}

/// Claims that nobody can look up. Whether what they name is there is for the review to find out.
fn unshown(verdict: &Verdict) -> Vec<String> {
    let is_named = |name: &Option<String>| name.as_ref().is_some_and(|it| !it.trim().is_empty());
    let unshown = |judgement: &Judgement| match judgement {
        Judgement::Met { evidence, file, test, .. } => {
            evidence.trim().is_empty() || !(is_named(file) || is_named(test))
        }
        Judgement::Unmet { .. } | Judgement::Unjudged => false,
    };
    let claims = verdict.criteria.iter().filter(|(_, judgement)| unshown(judgement));
    let flaw = |(text, _)| {
        format!("`{text}`: say what shows it, and where: `evidence`, and a `file` or a `test`")
    };
    claims.map(flaw).collect()
}

/// How an agent is told to hand in.
pub(crate) fn instructions(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Implement => None,
        Mode::Plan => Some(include_str!("submission/plan.md")),
        Mode::Validate => Some(include_str!("submission/verdict.md")),
        Mode::Advise => Some(include_str!("submission/opinion.md")),
        Mode::Conclude => Some(include_str!("submission/conclusion.md")),
        Mode::Learn => Some(include_str!("submission/lessons.md")),
    }
}

/// How an agent is told what is wrong with what it handed in.
pub(crate) fn ask_again(mode: Mode, flaws: &[String]) -> String {
    let list = flaws.join("\n- ");
    let how = instructions(mode).unwrap_or_default();
    format!("What you handed in cannot be taken:\n\n- {list}\n\nHand it in again, whole.\n\n{how}")
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, Vec<String>> {
    serde_json::from_value(value).map_err(|error| vec![error.to_string()])
}

fn block(text: &str) -> Result<Value, Vec<String>> {
    let Some(block) = last_block(text) else {
        return Err(vec!["the message has no block that starts with ```json".to_owned()]);
    };
    let flaw = |error: serde_json::Error| vec![error.to_string()];
    let value: serde_json::Value = serde_json::from_str(block).map_err(flaw)?;
    // People read it on terminals.
    serde_json::from_str(&plain::value(value).to_string()).map_err(flaw)
}

/// The last block of JSON in a message. What is in it may hold fences of its own, inside a line.
fn last_block(text: &str) -> Option<&str> {
    let start = text.rmatch_indices("```json").map(|(at, _)| at).find(|at| {
        let before = &text[..*at];
        before.is_empty() || before.ends_with('\n')
    })?;
    let rest = &text[start + "```json".len()..];
    let end = rest.find("\n```")?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_counts_and_fences_inside_its_lines_do_not_end_it() {
        let text = "First:\n```json\n{\"a\": 1}\n```\nNo, this:\n```json\n{\"b\": \"```\"}\n```\n";
        assert_eq!(last_block(text), Some("\n{\"b\": \"```\"}"));
        assert_eq!(last_block("no block"), None);
        assert_eq!(last_block("```json\n{ never ended"), None);
    }

    #[test]
    fn a_plan_is_refused_with_everything_that_is_wrong_with_it() {
        let plan =
            r#"{"summary": "", "approach": "a", "file_changes": [], "testing_strategy": "t"}"#;
        let flaws =
            read(Mode::Plan, &format!("```json\n{plan}\n```"), &no_evidence()).expect_err("flaws");
        assert_eq!(
            flaws,
            ["`summary` is empty", "`file_changes` names no file: say which files will change"]
        );
    }

    #[test]
    fn a_verdict_has_a_judgement_for_each_criterion() {
        let handed_in = |place: &str| {
            let met = format!("{{\"evidence\": \"a test\"{place}}}");
            let text =
                format!("```json\n{{\"criteria\": {{\"it works\": {{\"met\": {met}}}}}}}\n```");
            read(Mode::Validate, &text, &no_evidence())
        };
        for nowhere in ["", ", \"file\": \" \"", ", \"line\": 3"] {
            let flaws = handed_in(nowhere).expect_err("nobody can look it up");
            assert!(flaws[0].starts_with("`it works`: say what shows it"), "{flaws:?}");
        }
        let evidence = "a test".to_owned();
        let test = Some("it_works".to_owned());
        let judged = Judgement::Met { evidence, file: None, line: None, test };
        let criteria = BTreeMap::from([("it works".to_owned(), judged)]);
        let expected = Verdict { criteria, issues: Vec::new() };
        assert_eq!(handed_in(", \"test\": \"it_works\""), Ok(Submission::Verdict(expected)));
    }

    #[test]
    fn what_a_council_hands_in_says_something() {
        let text = r#"{"root_cause": "a", "fix": " ", "confidence": "high", "against": "b"}"#;
        let flaws = read(Mode::Advise, &format!("```json\n{text}\n```"), &no_evidence())
            .expect_err("flaws");
        assert_eq!(flaws, ["`fix` is empty"]);
        let text = r#"{"root_cause": "", "fix": "a", "dissent": []}"#;
        let flaws = read(Mode::Conclude, &format!("```json\n{text}\n```"), &no_evidence())
            .expect_err("flaws");
        assert_eq!(flaws, ["`root_cause` is empty"]);
        let flaws = read(Mode::Advise, "It is the list.", &no_evidence()).expect_err("flaws");
        assert!(flaws[0].contains("```json"), "{flaws:?}");
    }

    #[test]
    fn the_examples_that_agents_are_shown_are_taken() {
        let known: Known = Arc::new(|label| ["check 7", "commit 1a2b3c4d5e6f"].contains(&label));
        for mode in [Mode::Plan, Mode::Validate, Mode::Advise, Mode::Conclude, Mode::Learn] {
            let example = instructions(mode).expect("there are instructions");
            let read = read(mode, example, &known);
            assert!(read.is_ok(), "{read:?}");
        }
    }

    #[test]
    fn a_lesson_points_at_something_that_is_there() {
        let known: Known = Arc::new(|label| label == "event 3");
        let lesson = |evidence: &str| {
            let lesson = format!(
                r#"{{"kind": "learning", "text": "a", "severity": "low", "evidence": {evidence}}}"#
            );
            read(Mode::Learn, &format!("```json\n{{\"lessons\": [{lesson}]}}\n```"), &known)
        };
        assert!(matches!(lesson(r#"["event 3"]"#), Ok(Submission::Lessons(_))));
        let flaws = lesson(r#"["event 4"]"#).expect_err("flaws");
        assert_eq!(flaws, ["lesson 1: there is no `event 4` in the record"]);
        assert_eq!(lesson("[]").expect_err("flaws").len(), 1);
    }
}
