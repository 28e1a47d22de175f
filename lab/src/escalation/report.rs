//! Report of a case: runs, tiers, decisions, states, costs and failures.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};
use tamma_core::report::{self, CostSummary, ReportSources, RunSummary, TaskReport};
use tamma_core::task_loop::State;
use tamma_store::{RunEnd, Store};

use super::case::EscalationCase;
use super::predict::{StateTrace, predict};
use super::runner::CaseOutcome;

/// Report of a case.
pub(crate) struct CaseReport {
    case: EscalationCase,
    report: TaskReport,
    states: Vec<State>,
    decisions: usize,
    pushed: Option<String>,
    models: Vec<String>,
    /// Deviations from the prediction or the specification.
    pub(crate) failures: Vec<String>,
}

/// Compares an outcome with the prediction of `core` and with the specification.
pub(crate) async fn compare(
    store: &Store,
    case: EscalationCase,
    outcome: &CaseOutcome,
) -> Result<CaseReport> {
    let mut failures = Vec::new();
    let happened = StateTrace::of(&outcome.history);
    match predict(store, outcome.task, &outcome.history).await {
        Ok(predicted) if predicted == happened => {}
        Ok(predicted) => failures.push(difference(&predicted, &happened)),
        Err(error) => failures.push(format!("core cannot replay it: {error:#}")),
    }
    let report = build_report(store, case, outcome).await?;
    let expected = case.expected();
    let tiers: Vec<_> = report.iterations.iter().filter_map(|it| it.tier).collect();
    let councils: Vec<_> = report.councils.iter().map(|it| it.after_iteration).collect();
    let cause = outcome.task_loop.open_question.as_ref().map(|question| question.cause);
    let mut expect = |name: &str, is_met: bool, actual: String| {
        if !is_met {
            failures.push(format!("{name}: {actual}"));
        }
    };
    expect("unexpected tiers", tiers == expected.tiers, format!("{tiers:?}"));
    expect("unexpected councils", councils == expected.councils, format!("{councils:?}"));
    expect(
        "unexpected state",
        outcome.task_loop.state == expected.state,
        outcome.task_loop.state.to_string(),
    );
    expect("unexpected cause", cause == expected.cause, format!("{cause:?}"));
    expect("branch", outcome.pushed.is_some(), "not pushed".to_owned());
    Ok(CaseReport {
        case,
        states: happened.states,
        decisions: happened.decisions.len(),
        pushed: outcome.pushed.clone(),
        models: outcome.models.iter().cloned().collect(),
        report,
        failures,
    })
}

async fn build_report(
    store: &Store,
    case: EscalationCase,
    outcome: &CaseOutcome,
) -> Result<TaskReport> {
    let mut texts = BTreeMap::new();
    for reference in report::referenced_texts(&outcome.history) {
        let text = store.text(&reference).await?;
        texts.insert(reference, text);
    }
    let checks = store.checks(outcome.task).await?;
    let checks: Vec<_> = checks.into_iter().map(|check| (check.iteration, check.record)).collect();
    let summary = |run: tamma_store::RunRecord| RunSummary {
        job_number: run.number.job_number,
        mode: run.mode,
        agent: run.agent,
        model: run.model,
        finished: run.end == Some(RunEnd::Finished),
        tier: run.tier,
        usage: run.usage,
        claims: None,
    };
    let runs: Vec<_> = store.runs(outcome.task).await?.into_iter().map(summary).collect();
    let pin = outcome.task_loop.pin.context("the task was not prepared")?;
    let rules = store.rules(pin.policy).await?;
    Ok(report::build(&ReportSources {
        task: outcome.task,
        title: case.title(),
        state: outcome.task_loop.state,
        spend: outcome.task_loop.spend,
        history: &outcome.history,
        checks: &checks,
        runs: &runs,
        texts: &texts,
        max_iterations: outcome.task_loop.max_iterations(&rules),
        lessons: &[],
    }))
}

fn difference(predicted: &StateTrace, happened: &StateTrace) -> String {
    let at = predicted.states.iter().zip(&happened.states).position(|(one, other)| one != other);
    let at = at.unwrap_or(predicted.states.len().min(happened.states.len()));
    let decision = predicted.decisions.iter().zip(&happened.decisions).find(|(a, b)| a != b);
    format!(
        "core deviates from state {at} on: {:?} instead of {:?}; decisions: {decision:?}",
        predicted.states.get(at),
        happened.states.get(at)
    )
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        writeln!(f, "{}: {}", self.case, report.title)?;
        for it in &report.iterations {
            let tier = it.tier.map(|tier| tier.to_string()).unwrap_or_default();
            let passed = if it.passed == Some(true) { "passed" } else { "failed" };
            let decided = it.decision_text.as_deref().unwrap_or("deliver");
            writeln!(
                f,
                "  {:>2}  {tier:<8}  {passed}  {:>9}  {decided}",
                it.number,
                cost(&it.cost)
            )?;
            for council in
                report.councils.iter().filter(|council| council.after_iteration == it.number)
            {
                let members: Vec<_> = council
                    .members
                    .iter()
                    .map(|(member, opinion)| {
                        format!("{member}{}", if opinion.is_some() { "" } else { " (absent)" })
                    })
                    .collect();
                writeln!(f, "      council {}: {}", council.number, members.join("; "))?;
            }
            for request in report
                .decision_requests
                .iter()
                .filter(|request| request.after_iteration == it.number)
            {
                writeln!(f, "      decision requested: {}", request.description)?;
            }
        }
        writeln!(f, "  states: {}", join_states(&self.states))?;
        let costs: Vec<_> =
            report.costs.iter().map(|(mode, spent)| format!("{mode} {}", cost(spent))).collect();
        let about = if report.spend.estimated { "~" } else { "" };
        writeln!(
            f,
            "  cost: {about}{} ({}), {} tokens",
            report.spend.usd,
            costs.join(", "),
            report.spend.tokens
        )?;
        if !self.models.is_empty() {
            writeln!(f, "  models: {}", self.models.join(", "))?;
        }
        if let Some(branch) = &self.pushed {
            writeln!(f, "  branch: {branch}")?;
        }
        if self.failures.is_empty() {
            let (states, decisions) = (self.states.len(), self.decisions);
            write!(f, "  as core predicts: {states} states, {decisions} decisions")
        } else {
            write!(f, "  FAILED: {}", self.failures.join("; "))
        }
    }
}

fn cost(spent: &CostSummary) -> String {
    if spent.unknown_runs > 0 { "unknown".to_owned() } else { spent.usd.to_string() }
}

/// Joins states with arrows.
fn join_states(states: &[State]) -> String {
    let names: Vec<_> = states.iter().map(ToString::to_string).collect();
    names.join(" → ")
}
