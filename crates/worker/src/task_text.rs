//! Assignment of a run as text, which `get_task` returns.
//!
//! An agent that has summarised its conversation reads it again here: the task, the plan, the
//! failure brief, the gates and the limits.

use std::fmt::Write as _;

use tamma_core::budget::SpendLimit;
use tamma_core::ids::CommitId;
use tamma_core::level::RiskLevel;
use tamma_core::plan::{Plan, criterion_id};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_engine::agent::RunMode;
use tamma_store::Store;

use crate::content_cache::ContentCache;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::prompts::shown_gates;

/// Facts about a run that its job does not contain.
pub(crate) struct RunLimits<'a> {
    pub(crate) mode: RunMode,
    /// Failure brief in the prompt, if any.
    pub(crate) brief: Option<&'a str>,
    /// Time limit, in seconds.
    pub(crate) seconds: u32,
    pub(crate) allowance: SpendLimit,
    /// Patterns of files that must not change.
    pub(crate) protected: &'a [String],
    /// Patterns of commands that must not run.
    pub(crate) denied: &'a [String],
    /// Questions and answers, as in the prompt.
    pub(crate) answers: &'a str,
    /// Section about files that no checkout has, as in the prompt.
    pub(crate) missing_content: &'a str,
}

/// Writes the assignment of a run. A learning run has everything in its prompt and needs none.
pub(crate) async fn task_text(
    store: &Store,
    contents: &ContentCache,
    ctx: &JobContext,
    run: &RunLimits<'_>,
) -> Result<Option<String>, Error> {
    if run.mode == RunMode::Learn {
        return Ok(None);
    }
    let plan = match &ctx.task_loop.plan {
        Some(plan) => Some(contents.plan(ctx.task.id, plan.hash).await?),
        None => None,
    };
    let note = match &ctx.task_loop.note {
        Some(note) if run.mode == RunMode::Plan => Some(store.text(note).await?),
        _ => None,
    };
    let base = ctx.base().ok();
    let risk = ctx.task_loop.risk_level();
    let assignment = AssignedTask { task: &ctx.task, rules: &ctx.rules, base, risk, plan, note };
    Ok(Some(assignment.write(run)))
}

/// Task with everything that an agent can read about it.
struct AssignedTask<'a> {
    task: &'a Task,
    rules: &'a Rules,
    base: Option<CommitId>,
    risk: Option<RiskLevel>,
    plan: Option<Plan>,
    note: Option<String>,
}

impl AssignedTask<'_> {
    /// Returns the criteria as the prompt of the run numbers them. A planner gets those of the task.
    fn criteria(&self, mode: RunMode) -> &[String] {
        match &self.plan {
            Some(plan) if mode != RunMode::Plan => plan.criteria_of(self.task),
            _ => &self.task.acceptance_criteria,
        }
    }

    fn write(&self, run: &RunLimits<'_>) -> String {
        let task = self.task;
        let mut text =
            format!("# Task: {} ({})\n\n{}\n", task.title, task.r#type, task.description);
        let criteria = self.criteria(run.mode);
        if !criteria.is_empty() {
            text.push_str("\n# Acceptance criteria\n\n");
            for (index, criterion) in criteria.iter().enumerate() {
                let _ = writeln!(text, "- {}: {criterion}", criterion_id(index));
            }
        }
        if let Some(plan) = &self.plan {
            let plan = serde_json::to_string_pretty(plan).unwrap_or_default();
            let heading = if run.mode == RunMode::Plan { "Plan so far" } else { "Approved plan" };
            let _ = write!(text, "\n# {heading}\n\n```json\n{plan}\n```\n");
        }
        if let Some(note) = &self.note {
            let _ = write!(text, "\n# Take this into account\n\n{}\n", note.trim());
        }
        if let Some(brief) = run.brief {
            let _ = write!(text, "\n# What failed before\n\n{}\n", brief.trim());
        }
        text.push_str("\n# Gates\n\n");
        let mut has_gates = false;
        // Like the prompts: only an implementer has gates of its own.
        let risk = self.risk.filter(|_| run.mode == RunMode::Implement);
        for (name, gate) in shown_gates(self.rules, risk) {
            has_gates = true;
            let limit = gate.timeout_seconds;
            let _ =
                writeln!(text, "- {name} ({}, at most {limit} s): `{}`", gate.kind, gate.command);
        }
        if !has_gates {
            text.push_str("None.\n");
        }
        text.push_str("\n# Limits\n\n");
        if let Some(base) = self.base {
            let _ = writeln!(text, "- Base commit: {base}; your change so far: `git diff {base}`");
        }
        let _ = writeln!(text, "- Time limit of this run: {} s", run.seconds);
        if let Some(usd) = run.allowance.usd {
            let _ = writeln!(text, "- Cost limit of this run: {usd}");
        }
        if let Some(tokens) = run.allowance.tokens {
            let _ = writeln!(text, "- Token limit of this run: {tokens}");
        }
        let changes =
            if run.mode.is_read_only() { "nothing" } else { "files in your working folder" };
        let _ = writeln!(text, "- You may change: {changes}; never: {}", run.protected.join(", "));
        let _ = writeln!(text, "- Denied commands: {}", run.denied.join(", "));
        text.push_str(run.missing_content);
        if !run.answers.trim().is_empty() {
            let _ = write!(text, "\n{}\n", run.answers.trim());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::complexity::Signals;
    use tamma_core::ids::{ProjectId, TaskId};
    use tamma_core::rules::GateRules;
    use tamma_core::task::{Priority, TaskType};
    use uuid::Uuid;

    use super::*;

    fn limits(mode: RunMode) -> RunLimits<'static> {
        let (protected, denied) = (&[], &[]);
        let (brief, allowance) = (Some("tests failed"), SpendLimit::default());
        let (answers, missing_content) = ("", "");
        let seconds = 60;
        RunLimits { mode, brief, seconds, allowance, protected, denied, answers, missing_content }
    }

    #[test]
    fn assignment_has_the_criteria_and_the_gates_of_the_prompt() {
        let task = Task {
            id: TaskId(Uuid::from_u128(1)),
            project: ProjectId(Uuid::from_u128(2)),
            title: "Greet Cy".to_owned(),
            description: String::new(),
            r#type: TaskType::Feature,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: BTreeMap::new(),
        };
        let plan = Plan {
            summary: "Cy is greeted".to_owned(),
            approach: String::new(),
            file_changes: Vec::new(),
            testing_strategy: String::new(),
            signals: Signals::default().into(),
            estimated_signals: Vec::new(),
            estimated_tokens: None,
            estimated_cost_usd: None,
            risks: Vec::new(),
            dependencies: Vec::new(),
            test_changes: Vec::new(),
            criteria: vec!["Every listed name is greeted.".to_owned()],
            assumptions: Vec::new(),
            questions: Vec::new(),
            verification: Vec::new(),
        };
        let mut rules = Rules::default();
        let gate: GateRules =
            serde_json::from_value(serde_json::json!({ "command": "sh slow.sh" })).expect("a gate");
        rules.gates.insert("slow".to_owned(), gate);
        rules.ceremony.high.gates.push("slow".to_owned());
        let risk = Some(RiskLevel::Low);
        let (base, note) = (None, None);
        let assigned =
            AssignedTask { task: &task, rules: &rules, base, risk, plan: Some(plan), note };
        let text = assigned.write(&limits(RunMode::Implement));
        assert!(text.contains("- C1: Every listed name is greeted."), "{text}");
        assert!(text.contains("# Gates\n\nNone."), "{text}");
        // A planner proposes criteria, and must know every gate.
        let text = assigned.write(&limits(RunMode::Plan));
        assert!(!text.contains("- C1:") && text.contains("sh slow.sh"), "{text}");
        assert!(text.contains("# What failed before\n\ntests failed"), "{text}");
    }
}
