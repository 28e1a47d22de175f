//! Submissions of agents: plans, results, verdicts, opinions, conclusions, lessons, signals of
//! phases and tasks of stories, validated before use.
//!
//! A submission arrives through one of our [`agent_tools`](crate::agent_tools). Agents without
//! these tools, or that did not use them, submit a JSON block at the end of their last message.
//! Both are checked here. An invalid submission is returned to the agent with all of its errors;
//! [`agent`](crate::agent) limits the number of retries.

mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tamma_core::council::{CouncilConclusion, CouncilOpinion};
use tamma_core::learning::LessonSubmission;
use tamma_core::pipeline::signal::{self, PhaseSignal, SignalSource, SignalSubmission};
use tamma_core::pipeline::{PhaseDefinition, TaskSplit};
use tamma_core::plan::{Plan, PlanError, PlanFacts};
use tamma_core::run_result::RunResult;

pub use self::verdict::ValidatorVerdict;
pub(crate) use self::verdict::VerdictSubmission;

use crate::agent::RunMode;
use crate::sanitize;

/// Result of a run besides changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// Nothing was submitted. Only an implementing run can end like this.
    NotRequired,
    /// Claims of an implementing run about itself.
    Result(RunResult),
    /// Valid plan.
    Plan(Box<Plan>),
    /// Valid verdict.
    Verdict(ValidatorVerdict),
    /// Opinion of a council member.
    Opinion(CouncilOpinion),
    /// Conclusion of the council.
    Conclusion(CouncilConclusion),
    /// Lessons from a task.
    Lessons(LessonSubmission),
    /// Signal of a phase.
    Signal(PhaseSignal, SignalSource),
    /// Tasks of a story.
    Split(TaskSplit),
    /// Still invalid after all retries.
    Invalid {
        /// Validation errors.
        errors: Vec<String>,
        /// Last message of the agent.
        message: String,
    },
}

/// Function that checks whether the evidence of a lesson exists.
pub type EvidenceCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Function that checks whether a file exists at the task's base commit.
pub type PathCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Facts that submissions are checked against.
#[derive(Clone)]
pub struct SubmissionFacts {
    /// Evidence that lessons can cite.
    pub evidence_exists: EvidenceCheck,
    /// Files that plans can change or delete.
    pub path_exists: PathCheck,
    /// Number of the task's own acceptance criteria. Without any, a plan must propose some.
    pub task_criteria: usize,
    /// IDs of the acceptance criteria that a verdict must judge.
    pub criteria: Vec<String>,
    /// Set once the planner was asked for missing signals. It is asked once per run.
    pub signals_requested: Arc<AtomicBool>,
    /// Phase whose signal is expected, for runs of a phase.
    pub phase: PhaseDefinition,
}

impl Default for SubmissionFacts {
    /// Returns the facts of a task without criteria in an empty repository.
    fn default() -> Self {
        let nothing = || Arc::new(|_: &str| false);
        Self {
            evidence_exists: nothing(),
            path_exists: nothing(),
            task_criteria: 0,
            criteria: Vec::new(),
            signals_requested: Arc::default(),
            phase: PhaseDefinition::default(),
        }
    }
}

/// Parses the submission of a mode from the last message.
pub(crate) fn parse_message(
    mode: RunMode,
    text: &str,
    facts: &SubmissionFacts,
) -> Result<Submission, Vec<String>> {
    match mode {
        // The message of an implementer can contain any JSON block.
        RunMode::Implement => match json_block(text) {
            Ok(value) if value["status"].is_string() => check(mode, value, facts),
            Ok(_) | Err(_) => Err(vec!["no result was submitted".to_owned()]),
        },
        RunMode::Phase => match signal::parse(text, &facts.phase) {
            PhaseSignal::Unclear(_) => Err(vec!["no clear signal".to_owned()]),
            signal => Ok(Submission::Signal(signal, SignalSource::LastLine)),
        },
        RunMode::Plan
        | RunMode::Validate
        | RunMode::Advise
        | RunMode::Conclude
        | RunMode::Learn
        | RunMode::Split => check(mode, json_block(text)?, facts),
    }
}

/// Validates the submission of a mode.
pub(crate) fn check(
    mode: RunMode,
    value: Value,
    facts: &SubmissionFacts,
) -> Result<Submission, Vec<String>> {
    match mode {
        RunMode::Implement => {
            let result: RunResult = parse(value)?;
            let errors = result.validate();
            if errors.is_empty() { Ok(Submission::Result(result)) } else { Err(errors) }
        }
        RunMode::Plan => {
            let fields: Vec<String> =
                value.as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default();
            let mut plan: Plan = parse(value)?;
            plan.estimated_signals.clear();
            let errors = plan.validate_submission(PlanFacts {
                fields: &fields.iter().map(String::as_str).collect::<Vec<_>>(),
                task_criteria: facts.task_criteria,
                signals_requested: facts.signals_requested.load(Ordering::Relaxed),
                path_exists: &|path: &str| (facts.path_exists)(path),
            });
            if errors.iter().any(|error| matches!(error, PlanError::MissingSignals(_))) {
                facts.signals_requested.store(true, Ordering::Relaxed);
            }
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            if errors.is_empty() { Ok(Submission::Plan(Box::new(plan))) } else { Err(errors) }
        }
        RunMode::Validate => {
            let verdict: VerdictSubmission = parse(value)?;
            verdict.check(&facts.criteria).map(Submission::Verdict)
        }
        RunMode::Advise => {
            let opinion: CouncilOpinion = parse(value)?;
            let errors = opinion.validate();
            if errors.is_empty() { Ok(Submission::Opinion(opinion)) } else { Err(errors) }
        }
        RunMode::Conclude => {
            let conclusion: CouncilConclusion = parse(value)?;
            let errors = conclusion.validate();
            if errors.is_empty() { Ok(Submission::Conclusion(conclusion)) } else { Err(errors) }
        }
        RunMode::Phase => {
            let signal: SignalSubmission = parse(value)?;
            Ok(Submission::Signal(signal.into_signal()?, SignalSource::Structured))
        }
        RunMode::Split => {
            let split: TaskSplit = parse(value)?;
            let errors = split.validate();
            if errors.is_empty() { Ok(Submission::Split(split)) } else { Err(errors) }
        }
        RunMode::Learn => {
            let lessons: LessonSubmission = parse(value)?;
            let errors = lessons.validation_errors(|label| (facts.evidence_exists)(label));
            if errors.is_empty() { Ok(Submission::Lessons(lessons)) } else { Err(errors) }
        }
    }
}

/// Returns the submission instructions for a mode.
pub(crate) fn instructions(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Implement => include_str!("submission/result.md"),
        RunMode::Plan => include_str!("submission/plan.md"),
        RunMode::Validate => include_str!("submission/verdict.md"),
        RunMode::Advise => include_str!("submission/opinion.md"),
        RunMode::Conclude => include_str!("submission/conclusion.md"),
        RunMode::Learn => include_str!("submission/lessons.md"),
        RunMode::Phase => include_str!("submission/signal.md"),
        RunMode::Split => include_str!("submission/split.md"),
    }
}

/// Builds the prompt that asks for a corrected submission.
pub(crate) fn retry_prompt(mode: RunMode, errors: &[String]) -> String {
    let list = errors.join("\n- ");
    let instructions_text = instructions(mode);
    format!(
        "Your submission is invalid:\n\n- {list}\n\nSubmit it again, complete.\n\n{instructions_text}"
    )
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, Vec<String>> {
    serde_json::from_value(value).map_err(|error| vec![error.to_string()])
}

fn json_block(text: &str) -> Result<Value, Vec<String>> {
    let Some(block) = last_block(text) else {
        return Err(vec!["the message contains no block that starts with ```json".to_owned()]);
    };
    let error_text = |error: serde_json::Error| vec![error.to_string()];
    let value: serde_json::Value = serde_json::from_str(block).map_err(error_text)?;
    // The submission is shown on people's terminals.
    serde_json::from_str(&sanitize::value(value).to_string()).map_err(error_text)
}

/// Returns the last JSON block of a message. Its lines may contain fences.
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
    use strum::IntoEnumIterator as _;
    use tamma_core::run_result::RunStatus;

    use super::*;

    fn facts() -> SubmissionFacts {
        let criteria = ["C1", "C2"].map(str::to_owned).to_vec();
        SubmissionFacts { criteria, ..SubmissionFacts::default() }
    }

    #[test]
    fn result_of_an_implementer_is_found_among_other_blocks() {
        let submit = |text: &str| parse_message(RunMode::Implement, text, &facts());
        let block = "```json\n{\"status\": \"plan_wrong\", \"summary\": \"No such file.\"}\n```";
        let Ok(Submission::Result(result)) = submit(block) else { panic!("a result") };
        assert_eq!(result.status, RunStatus::PlanWrong);
        for nothing in ["Done.", "```json\n{\"port\": 80}\n```"] {
            assert_eq!(submit(nothing), Err(vec!["no result was submitted".to_owned()]));
        }
        let errors = submit("```json\n{\"status\": \"done\", \"summary\": \"\"}\n```");
        assert_eq!(errors, Err(vec!["`summary` is empty: say what you did".to_owned()]));
    }

    #[test]
    fn last_block_is_used_and_may_contain_fences_within_a_line() {
        let text = "First:\n```json\n{\"a\": 1}\n```\nNo, this:\n```json\n{\"b\": \"```\"}\n```\n";
        assert_eq!(last_block(text), Some("\n{\"b\": \"```\"}"));
        assert_eq!(last_block("no block"), None);
        assert_eq!(last_block("```json\n{ never ended"), None);
    }

    #[test]
    fn invalid_plan_is_rejected_with_all_errors() {
        let plan = r#"{"summary": "", "approach": "a", "file_changes": [], "testing_strategy": "t",
            "signals": {}, "test_changes": [], "assumptions": []}"#;
        let text = format!("```json\n{plan}\n```");
        let errors = parse_message(RunMode::Plan, &text, &facts());
        assert_eq!(
            errors.expect_err("errors"),
            [
                "`summary` is empty",
                "`file_changes` is empty: list the files that will change",
                "`questions` is missing: write down what a person should answer, or write `[]`",
                "`verification` is missing: name a test for each criterion",
                "`signals` lacks `modules`, `novelty`, `tests`, `security`, `ambiguity`: grade each \
                 of them; the signals choose the model",
                "`criteria` is empty: the task has none, so propose criteria that can be checked",
            ]
        );
    }

    #[test]
    fn missing_signals_are_requested_once_more() {
        let plan = serde_json::json!({
            "summary": "s", "approach": "a", "testing_strategy": "t",
            "file_changes": [{ "path": "new.rs", "action": "create", "description": "d" }],
            "signals": { "modules": 1, "novelty": "some" },
            "criteria": ["c"], "verification": [{ "criterion": "C1", "test": "t" }],
            "test_changes": [], "assumptions": [], "questions": [],
            "estimated_signals": ["novelty"],
        });
        let facts = facts();
        let errors = check(RunMode::Plan, plan.clone(), &facts).expect_err("errors");
        assert_eq!(
            errors,
            ["`signals` lacks `tests`, `security`, `ambiguity`: grade each of them; the signals \
              choose the model"]
        );
        let Ok(Submission::Plan(accepted)) = check(RunMode::Plan, plan, &facts) else {
            panic!("a plan whose missing signals are estimated")
        };
        assert_eq!((accepted.signals.missing().len(), accepted.estimated_signals.len()), (3, 0));
    }

    #[test]
    fn empty_fields_of_council_submissions_are_rejected() {
        let text = r#"{"root_cause": "a", "fix": " ", "confidence": "high", "against": "b"}"#;
        let errors = parse_message(RunMode::Advise, &format!("```json\n{text}\n```"), &facts())
            .expect_err("errors");
        assert_eq!(errors, ["`fix` is empty"]);
        let text = r#"{"root_cause": "", "fix": "a", "dissent": []}"#;
        let errors = parse_message(RunMode::Conclude, &format!("```json\n{text}\n```"), &facts())
            .expect_err("errors");
        assert_eq!(errors, ["`root_cause` is empty"]);
        let errors =
            parse_message(RunMode::Advise, "It is the list.", &facts()).expect_err("errors");
        assert!(errors[0].contains("```json"), "{errors:?}");
    }

    #[test]
    fn examples_in_the_instructions_are_valid() {
        let facts = SubmissionFacts {
            evidence_exists: Arc::new(|label| ["check 7", "commit 1a2b3c4d5e6f"].contains(&label)),
            path_exists: Arc::new(|path| path == "src/greeting.rs"),
            ..facts()
        };
        for mode in RunMode::iter() {
            let read = parse_message(mode, instructions(mode), &facts);
            assert!(read.is_ok(), "{read:?}");
        }
    }

    #[test]
    fn signal_of_a_phase_is_its_last_line_or_a_submission() {
        let phase = tamma_core::pipeline::PipelineDefinition::built_in().phases.remove(4);
        let facts = SubmissionFacts { phase, ..facts() };
        let last_line = |text: &str| parse_message(RunMode::Phase, text, &facts);
        let success = Submission::Signal(PhaseSignal::Success, SignalSource::LastLine);
        assert_eq!(last_line("Verified.\n\nQA PASS\n"), Ok(success));
        assert_eq!(last_line("QA PASS, I think"), Err(vec!["no clear signal".to_owned()]));
        let submit = |value| check(RunMode::Phase, value, &facts);
        let blocked = serde_json::json!({ "result": "blocked", "reason": "no\ndatabase" });
        let signal = PhaseSignal::Blocked("no database".to_owned());
        assert_eq!(submit(blocked), Ok(Submission::Signal(signal, SignalSource::Structured)));
        let errors = submit(serde_json::json!({ "result": "failed" })).expect_err("errors");
        assert!(errors[0].contains("`reason` is empty"), "{errors:?}");
    }

    #[test]
    fn evidence_of_a_lesson_must_exist() {
        let evidence_exists: EvidenceCheck = Arc::new(|label| label == "event 3");
        let facts = SubmissionFacts { evidence_exists, ..facts() };
        let lesson = |evidence: &str| {
            let lesson = format!(
                r#"{{"kind": "learning", "text": "a", "severity": "low", "evidence": {evidence}}}"#
            );
            parse_message(
                RunMode::Learn,
                &format!("```json\n{{\"lessons\": [{lesson}]}}\n```"),
                &facts,
            )
        };
        assert!(matches!(lesson(r#"["event 3"]"#), Ok(Submission::Lessons(_))));
        let errors = lesson(r#"["event 4"]"#).expect_err("errors");
        assert_eq!(errors, ["lesson 1: `event 4` is not in the record"]);
        assert_eq!(lesson("[]").expect_err("errors").len(), 1);
    }
}
