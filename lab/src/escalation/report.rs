//! What is told of a case: state by state, with tiers, decisions, reasons and costs, and what is not as
//! it should be.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use tamma_core::report::{self, CostSummary, ReportSources, RunSummary, TaskReport};
use tamma_core::task_loop::State;
use tamma_store::{RunEnd, Store};

use super::case::EscalationCase;
use super::predict::{StateTrace, predict};
use super::runner::CaseOutcome;

/// What is told of a case.
pub(crate) struct CaseReport {
    case: EscalationCase,
    report: TaskReport,
    states: Vec<State>,
    decisions: usize,
    pushed: bool,
    models: Vec<String>,
    /// What is not as it should be.
    pub(crate) faults: Vec<String>,
}

/// Compares a case that was outcome with what `core` predicts and with what the specification says.
pub(crate) async fn compare(
    store: &Store,
    case: EscalationCase,
    outcome: &CaseOutcome,
) -> Result<CaseReport> {
    let mut faults = Vec::new();
    let happened = StateTrace::of(&outcome.log);
    match predict(store, outcome.task, &outcome.log).await {
        Ok(predicted) if predicted == happened => {}
        Ok(predicted) => faults.push(differs(&predicted, &happened)),
        Err(error) => faults.push(format!("core cannot play it: {error:#}")),
    }
    let report = reported(store, case, outcome).await?;
    let expected = case.expected();
    let tiers: Vec<_> = report.iterations.iter().filter_map(|it| it.tier).collect();
    let councils: Vec<_> = report.councils.iter().map(|it| it.after_iteration).collect();
    let cause = outcome.machine.open_question.as_ref().map(|question| question.cause);
    let mut expect = |what: &str, holds: bool, found: String| {
        if !holds {
            faults.push(format!("{what}: {found}"));
        }
    };
    expect("other tiers", tiers == expected.tiers, format!("{tiers:?}"));
    expect("other councils", councils == expected.councils, format!("{councils:?}"));
    expect(
        "another end",
        outcome.machine.state == expected.state,
        outcome.machine.state.to_string(),
    );
    expect("another cause", cause == expected.cause, format!("{cause:?}"));
    expect("its branch", outcome.pushed, "it is not pushed".to_owned());
    Ok(CaseReport {
        case,
        states: happened.states,
        decisions: happened.decisions.len(),
        pushed: outcome.pushed,
        models: outcome.models.iter().cloned().collect(),
        report,
        faults,
    })
}

async fn reported(
    store: &Store,
    case: EscalationCase,
    outcome: &CaseOutcome,
) -> Result<TaskReport> {
    let mut texts = BTreeMap::new();
    for kept in report::referenced_texts(&outcome.log) {
        let text = store.text(&kept).await?;
        texts.insert(kept, text);
    }
    let checks = store.checks(outcome.task).await?;
    let checks: Vec<_> = checks.into_iter().map(|check| (check.iteration, check.record)).collect();
    let known = |run: tamma_store::RunRecord| RunSummary {
        job_number: run.number.job_number,
        mode: run.mode,
        finished: run.end == Some(RunEnd::Finished),
        tier: run.tier,
        usage: run.usage,
    };
    let runs: Vec<_> = store.runs(outcome.task).await?.into_iter().map(known).collect();
    Ok(report::build(&ReportSources {
        task: outcome.task,
        title: case.title(),
        state: outcome.machine.state,
        spend: outcome.machine.spend,
        history: &outcome.log,
        checks: &checks,
        runs: &runs,
        texts: &texts,
    }))
}

fn differs(predicted: &StateTrace, happened: &StateTrace) -> String {
    let at = predicted.states.iter().zip(&happened.states).position(|(one, other)| one != other);
    let at = at.unwrap_or(predicted.states.len().min(happened.states.len()));
    let decision = predicted.decisions.iter().zip(&happened.decisions).find(|(a, b)| a != b);
    format!(
        "core goes another case from state {at} on: {:?}, not {:?}; decisions: {decision:?}",
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
            let decided = it.decision_text.as_deref().unwrap_or("deliver it");
            writeln!(
                f,
                "  {:>2}  {tier:<8}  {passed}  {:>9}  {decided}",
                it.number,
                cost(&it.cost)
            )?;
            for sitting in
                report.councils.iter().filter(|sitting| sitting.after_iteration == it.number)
            {
                let seats: Vec<_> = sitting
                    .members
                    .iter()
                    .map(|(seat, said)| {
                        format!("{seat}{}", if said.is_some() { "" } else { " (absent)" })
                    })
                    .collect();
                writeln!(f, "      council {}: {}", sitting.number, seats.join("; "))?;
            }
            for asked in
                report.decision_requests.iter().filter(|asked| asked.after_iteration == it.number)
            {
                writeln!(f, "      a person is asked: {}", asked.description)?;
            }
        }
        writeln!(f, "  states: {}", in_short(&self.states))?;
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
        if self.pushed {
            writeln!(f, "  its work is on the branch tamma/{} of the repository", report.task)?;
        }
        if self.faults.is_empty() {
            let (states, decisions) = (self.states.len(), self.decisions);
            write!(f, "  as core predicts: {states} states, {decisions} decisions")
        } else {
            write!(f, "  NOT as it should be: {}", self.faults.join("; "))
        }
    }
}

fn cost(spent: &CostSummary) -> String {
    if spent.unknown_runs > 0 { "unknown".to_owned() } else { spent.usd.to_string() }
}

/// The states, with what is repeated said once.
fn in_short(states: &[State]) -> String {
    let words: Vec<_> = states.iter().map(ToString::to_string).collect();
    words.join(" → ")
}
