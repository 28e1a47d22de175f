//! Review tab of a task: results of each iteration and the decisions that followed.

use askama::Template;
use axum::extract::{Path, State};
use tamma_core::format::format_usd;
use tamma_core::gate::GateStatus;
use tamma_core::ids::TaskId;
use tamma_core::issue::{Issue, IssueSeverity};
use tamma_core::report;
use tamma_core::review::record::CheckRecord;
use tamma_core::review::{Criterion, CriterionJudgement};
use uuid::Uuid;

use super::super::layout::{DisplayTime, Layout};
use super::super::session::Session;
use super::super::{PageResult, WebState, labels};
use super::{CriterionView, TaskData};
use crate::app::{App, Error};

/// Maximum length of a gate's output, in characters. The end is kept.
const MAX_OUTPUT_CHARS: usize = 20_000;

#[derive(Template)]
#[template(path = "_iterations.html")]
pub(super) struct IterationsFragment {
    layout: Layout,
    iterations: Vec<IterationView>,
}

struct IterationView {
    number: u16,
    verdict: String,
    tone: &'static str,
    tier: String,
    agent: String,
    commit: String,
    at: DisplayTime,
    cost: String,
    score: String,
    gates: GatesView,
    criteria: IterationCriteria,
    validator: String,
    issues: IssueList,
    decision: String,
    councils: Vec<CouncilView>,
}

struct GatesView {
    any: bool,
    summary: String,
    list: Vec<GateView>,
}

struct GateView {
    name: String,
    kind: String,
    tone: &'static str,
    status: &'static str,
    tests: String,
    duration: String,
    groups: Vec<FailureGroup>,
    baseline: String,
    output: String,
    full_output_href: String,
    is_open: bool,
}

struct FailureGroup {
    name: &'static str,
    explanation: &'static str,
    names: Vec<String>,
}

struct IterationCriteria {
    any: bool,
    list: Vec<CriterionView>,
}

struct IssueList {
    any: bool,
    list: Vec<IssueView>,
}

struct IssueView {
    severity: String,
    tone: &'static str,
    location: String,
    message: String,
    category: String,
    is_recurring: bool,
}

struct CouncilView {
    number: u8,
    members: Vec<CouncilMemberView>,
    is_concluded: bool,
    conclusion: Vec<String>,
}

struct CouncilMemberView {
    name: String,
    absence_note: &'static str,
    opinion: Vec<String>,
}

pub(in crate::web) async fn page(
    State(hall): State<WebState>,
    visitor: Session,
    Path(id): Path<Uuid>,
) -> PageResult {
    super::render_part_page(&hall, &visitor, id, "review").await
}

pub(super) async fn load_iterations(
    app: &App,
    shell: &Layout,
    known: &TaskData,
) -> Result<IterationsFragment, Error> {
    let id = TaskId(known.detail.card.id);
    let report = app.report(id, None).await?.report;
    let checks = app.store.checks(id).await?;
    let iterations = report
        .iterations
        .iter()
        .rev()
        .map(|it| {
            let output = |gate: &str| {
                checks
                    .iter()
                    .filter(|check| check.iteration == it.number)
                    .find_map(|check| match &check.record {
                        CheckRecord::Gates(tested) => {
                            tested.gates.iter().find(|ran| ran.verdict.name == gate)
                        }
                        CheckRecord::Review(_) => None,
                    })
                    .map(|ran| ran.output.clone())
                    .unwrap_or_default()
            };
            let run = known.detail.iterations.iter().find(|run| run.number == u32::from(it.number));
            let councils =
                report.councils.iter().filter(|council| council.after_iteration == it.number);
            IterationView {
                number: it.number,
                verdict: match (it.passed, &it.reviewed_by) {
                    (Some(true), Some(by)) => format!("accepted by {by}"),
                    (Some(false), Some(by)) => format!("changes requested by {by}"),
                    (Some(true), None) => "passed".to_owned(),
                    (Some(false), None) => "failed".to_owned(),
                    (None, _) if it.score.is_some() => "needs review".to_owned(),
                    (None, _) => "not reviewed yet".to_owned(),
                },
                tone: match it.passed {
                    Some(true) => "good",
                    Some(false) => "bad",
                    None if it.score.is_some() => "wait",
                    None => "work",
                },
                tier: it.tier.map(|tier| tier.to_string()).unwrap_or_default(),
                agent: run.and_then(|run| run.agent.clone()).unwrap_or_default(),
                commit: it.commit.map(|commit| labels::short_hash(&commit)).unwrap_or_default(),
                at: DisplayTime::absolute(it.finished_at.unwrap_or(known.detail.card.since)),
                cost: format_usd(it.cost.usd),
                score: it.score.map(|score| score.to_string()).unwrap_or_default(),
                gates: gates_view(it, output),
                criteria: IterationCriteria {
                    any: !it.criteria.is_empty(),
                    list: it.criteria.iter().map(criterion_view).collect(),
                },
                validator: it
                    .validator
                    .as_ref()
                    .map(|validator| format!("reviewed by {}", validator.agent))
                    .unwrap_or_default(),
                issues: IssueList {
                    any: !it.issues.is_empty(),
                    list: it.issues.iter().map(|issue| issue_view(issue, it)).collect(),
                },
                decision: it.decision_text.clone().unwrap_or_default(),
                councils: councils.map(council_view).collect(),
            }
        })
        .collect();
    Ok(IterationsFragment { layout: shell.clone(), iterations })
}

fn gates_view(it: &report::IterationReport, output: impl Fn(&str) -> String) -> GatesView {
    let counts = |gate: &report::GateReport| {
        matches!(gate.status, GateStatus::Failed | GateStatus::TimedOut)
    };
    let against = it.gates.iter().filter(|gate| counts(gate)).count();
    let list = it
        .gates
        .iter()
        .map(|gate| {
            let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect();
            let groups = [
                ("New", "caused by the change", names(&gate.new)),
                ("Missing", "removed or skipped; count against the change", names(&gate.missing)),
                (
                    "Pre-existing",
                    "also fail on the base commit; do not count",
                    names(&gate.pre_existing),
                ),
                ("Flaky", "passed when run again; do not count", names(&gate.flaky)),
            ];
            let text = output(&gate.name);
            let skip = text.chars().count().saturating_sub(MAX_OUTPUT_CHARS);
            GateView {
                name: gate.name.clone(),
                kind: gate.kind.to_string(),
                tone: match gate.status {
                    GateStatus::Failed | GateStatus::TimedOut => "bad",
                    GateStatus::PreExisting | GateStatus::Flaky => "hold",
                    GateStatus::Passed => "good",
                },
                status: gate_status_label(gate.status),
                tests: gate.tests.map(|tests| test_counts(&tests)).unwrap_or_default(),
                duration: format_millis(gate.duration_ms),
                groups: groups
                    .into_iter()
                    .filter(|(_, _, names): &(_, _, Vec<String>)| !names.is_empty())
                    .map(|(name, what, names)| FailureGroup { name, explanation: what, names })
                    .collect(),
                baseline: String::new(),
                output: text.chars().skip(skip).collect(),
                full_output_href: String::new(),
                is_open: counts(gate),
            }
        })
        .collect();
    GatesView {
        any: !it.gates.is_empty(),
        summary: match (against, it.gates.len()) {
            (0, _) => "No gate counts against the change.".to_owned(),
            (1, 1) => "The gate counts against the change.".to_owned(),
            (1, all) => format!("1 of {all} gates counts against the change."),
            (against, all) => format!("{against} of {all} gates count against the change."),
        },
        list,
    }
}

fn gate_status_label(standing: GateStatus) -> &'static str {
    match standing {
        GateStatus::Passed => "passed",
        GateStatus::PreExisting => "failed, pre-existing",
        GateStatus::Flaky => "flaky",
        GateStatus::Failed => "failed",
        GateStatus::TimedOut => "timed out",
    }
}

fn test_counts(tests: &tamma_core::review::record::TestCounts) -> String {
    format!("{} passed, {} failed, {} skipped", tests.passed, tests.failed, tests.skipped)
}

fn format_millis(millis: u64) -> String {
    if millis < 10_000 { format!("{millis} ms") } else { format!("{} s", millis / 1_000) }
}

/// Builds the view of an acceptance criterion and its judgement.
pub(super) fn criterion_view(criterion: &Criterion) -> CriterionView {
    let (words, place) = match &criterion.judgement {
        CriterionJudgement::Met { evidence, file, line, test } => {
            let place = match (file, line, test) {
                (Some(file), Some(line), _) => format!("{file}:{line}"),
                (Some(file), None, _) => file.clone(),
                (None, _, Some(test)) => test.clone(),
                (None, _, None) => String::new(),
            };
            (evidence.clone(), place)
        }
        CriterionJudgement::Unmet { reason: why } => (why.clone(), String::new()),
        CriterionJudgement::Unjudged => ("not reviewed".to_owned(), String::new()),
    };
    let words = match &criterion.evidence_error {
        Some(doubt) => format!("{words} (does not count: {doubt})"),
        None => words,
    };
    let tone = if criterion.is_met() { "good" } else { "bad" };
    CriterionView { text: criterion.text.clone(), tone, remark: words, location: place }
}

fn issue_view(issue: &Issue, it: &report::IterationReport) -> IssueView {
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) => String::new(),
    };
    IssueView {
        severity: issue.severity.to_string(),
        tone: if issue.severity >= IssueSeverity::Error { "bad" } else { "wait" },
        location: place,
        message: issue.message.clone(),
        category: issue.category.to_string(),
        is_recurring: it.repeated_faults.iter().any(|fault| fault.contains(&issue.message)),
    }
}

fn council_view(council: &report::CouncilReport) -> CouncilView {
    let seat = |(seat, said): &(String, Option<String>)| CouncilMemberView {
        name: seat.clone(),
        absence_note: if said.is_some() { "" } else { "no response" },
        opinion: said.as_deref().map(labels::paragraphs).unwrap_or_default(),
    };
    CouncilView {
        number: council.number,
        members: council.members.iter().map(seat).collect(),
        is_concluded: council.conclusion.is_some(),
        conclusion: council.conclusion.as_deref().map(labels::paragraphs).unwrap_or_default(),
    }
}
