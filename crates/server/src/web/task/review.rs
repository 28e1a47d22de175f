//! Review tab of a task: results of each iteration and the decisions that followed.

use askama::Template;
use axum::extract::Path;
use tamma_core::format::{format_usd, pluralize};
use tamma_core::gate::GateStatus;
use tamma_core::ids::TaskId;
use tamma_core::issue::{Issue, IssueSeverity};
use tamma_core::report;
use tamma_core::review::record::CheckRecord;
use tamma_core::review::{Criterion, CriterionJudgement};
use tamma_core::task_loop::State;
use uuid::Uuid;

use super::super::html::SafeHtml;
use super::super::layout::{DisplayTime, Layout};
use super::super::session::Session;
use super::super::{PageResult, WebState, labels, markdown};
use super::overview::WordsView;
use super::{CriterionView, TaskData};
use crate::app::{App, Error};
use crate::dto::RecordedEntry;

/// Maximum length of a gate's output, in characters. The end is kept.
const MAX_OUTPUT_CHARS: usize = 20_000;

#[derive(Template)]
#[template(path = "_iterations.html")]
pub(super) struct IterationsFragment {
    layout: Layout,
    iterations: Vec<IterationView>,
    /// Councils before the first iteration, which reviewed a plan or failures of planning.
    early_councils: Vec<CouncilView>,
}

struct IterationView {
    number: u16,
    /// Number of iterations that the task may have.
    max: Option<u16>,
    verdict: String,
    tone: &'static str,
    /// Tier, agent, model, complexity, files and criteria, as far as they are known.
    run_facts: Vec<String>,
    commit: Option<String>,
    at: DisplayTime,
    cost: String,
    score: Option<u8>,
    gates: Vec<GateView>,
    gates_summary: String,
    criteria: Vec<CriterionView>,
    validator: Option<String>,
    /// Unverified claims of the agent.
    claims: Option<SafeHtml>,
    /// Words with which people decided on the change.
    words: Vec<WordsView>,
    issues: Vec<IssueView>,
    suggestions: Vec<String>,
    decision: Option<String>,
    councils: Vec<CouncilView>,
}

struct GateView {
    name: String,
    kind: String,
    tone: &'static str,
    status: &'static str,
    tests: Option<String>,
    duration: String,
    groups: Vec<FailureGroup>,
    /// End of the output; empty if the gate printed nothing.
    output: String,
    is_open: bool,
}

struct FailureGroup {
    name: &'static str,
    explanation: &'static str,
    names: Vec<String>,
}

struct IssueView {
    severity: IssueSeverity,
    tone: &'static str,
    location: Option<String>,
    message: String,
    category: String,
    is_recurring: bool,
}

struct CouncilView {
    number: u8,
    members: Vec<CouncilMemberView>,
    /// `None` while it is in session.
    conclusion: Option<SafeHtml>,
}

struct CouncilMemberView {
    name: String,
    /// `None` if the member did not respond.
    opinion: Option<SafeHtml>,
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
) -> PageResult {
    super::render_part_page(&state, &session, id, "review").await
}

pub(super) async fn load_iterations(
    app: &App,
    layout: &Layout,
    data: &TaskData,
) -> Result<IterationsFragment, Error> {
    let id = TaskId(data.detail.card.id);
    let report = app.report(id, None).await?.report;
    let checks = app.store.checks(id).await?;
    let words = app.entries_with_words(id).await?;
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
            let councils =
                report.councils.iter().filter(|council| council.after_iteration == it.number);
            IterationView {
                number: it.number,
                max: report.max_iterations,
                verdict: match (it.passed, &it.reviewed_by) {
                    (Some(true), Some(by)) => format!("accepted by {by}"),
                    (Some(false), Some(by)) => format!("changes requested by {by}"),
                    (Some(true), None) => "passed".to_owned(),
                    (Some(false), None) => failure_summary(&it.gates, &it.criteria, &it.issues),
                    (None, _) if it.score.is_some() => "needs review".to_owned(),
                    (None, _) => "not reviewed yet".to_owned(),
                },
                tone: match it.passed {
                    Some(true) => "good",
                    Some(false) => "bad",
                    None if it.score.is_some() => "wait",
                    None => "work",
                },
                run_facts: it
                    .tier
                    .map(|tier| format!("{tier} tier"))
                    .into_iter()
                    .chain(it.facts())
                    .collect(),
                commit: it.commit.map(|commit| labels::short_hash(&commit)),
                at: DisplayTime::absolute(it.finished_at.unwrap_or(data.detail.card.since)),
                cost: match it.cost.unknown_runs {
                    0 => format_usd(it.cost.usd),
                    _ => format!("cost {}", it.cost),
                },
                score: it.score,
                gates: it.gates.iter().map(|gate| gate_view(gate, &output(&gate.name))).collect(),
                gates_summary: gates_summary(&it.gates),
                criteria: it.criteria.iter().map(criterion_view).collect(),
                validator: validator_label(it),
                claims: it.claims.as_ref().map(|it| markdown::to_html(&it.to_markdown())),
                words: decision_words(&words, it, &report.iterations),
                issues: it.issues.iter().map(|issue| issue_view(issue, it)).collect(),
                suggestions: it.suggestions.clone(),
                decision: it.decision_text.clone(),
                councils: councils.map(council_view).collect(),
            }
        })
        .collect();
    let early = report.councils.iter().filter(|council| council.after_iteration == 0);
    let early_councils = early.map(council_view).collect();
    Ok(IterationsFragment { layout: layout.clone(), iterations, early_councils })
}

/// Says why a change failed, so that the heading never contradicts the list below it.
fn failure_summary(
    gates: &[report::GateReport],
    criteria: &[Criterion],
    issues: &[Issue],
) -> String {
    let gates = gates.iter().filter(|gate| counts_against_change(gate)).count();
    let count = |is_counted: fn(&Criterion) -> bool| {
        criteria.iter().filter(|criterion| is_counted(criterion)).count()
    };
    let unjudged = count(|it| matches!(it.judgement, CriterionJudgement::Unjudged));
    let unmet = count(|it| matches!(it.judgement, CriterionJudgement::Unmet { .. }));
    let unproven = count(|it| it.evidence_error.is_some());
    let issues = issues.iter().filter(|issue| issue.is_blocking()).count();
    let one = |number: usize| number == 1;
    let noun = |number: usize| if one(number) { "criterion" } else { "criteria" };
    let was = |number: usize| if one(number) { "was" } else { "were" };
    let mut reasons = Vec::new();
    if gates > 0 {
        reasons.push(format!("{} failed", pluralize(gates, "gate")));
    }
    if unmet > 0 {
        let is = if one(unmet) { "is" } else { "are" };
        reasons.push(format!("{unmet} {} {is} not met", noun(unmet)));
    }
    if unjudged > 0 {
        reasons.push(format!("{unjudged} {} {} not judged", noun(unjudged), was(unjudged)));
    }
    if unproven > 0 {
        let lacks = if one(unproven) { "lacks" } else { "lack" };
        reasons.push(format!("{unproven} {} {lacks} evidence", noun(unproven)));
    }
    if issues > 0 {
        reasons.push(format!("{} to fix", pluralize(issues, "issue")));
    }
    if reasons.is_empty() {
        return "failed".to_owned();
    }
    format!("failed: {}", reasons.join(", "))
}

/// Returns the words with which people decided on an iteration: those after its run and before the
/// next one.
fn decision_words(
    words: &[RecordedEntry],
    it: &report::IterationReport,
    all: &[report::IterationReport],
) -> Vec<WordsView> {
    let Some(from) = it.finished_at else { return Vec::new() };
    let next = all.iter().find(|other| other.number == it.number + 1);
    let until = next.and_then(|next| next.finished_at);
    let is_about = |line: &&RecordedEntry| {
        let entry = &line.entry;
        entry.from == State::QualityReview
            && entry.at >= from
            && until.is_none_or(|until| entry.at < until)
    };
    words.iter().filter(is_about).filter_map(WordsView::new).collect()
}

fn counts_against_change(gate: &report::GateReport) -> bool {
    matches!(gate.status, GateStatus::Failed | GateStatus::TimedOut)
}

fn gates_summary(gates: &[report::GateReport]) -> String {
    match (gates.iter().filter(|gate| counts_against_change(gate)).count(), gates.len()) {
        (0, _) => "No gate failed because of this change.".to_owned(),
        (1, 1) => "The gate failed because of this change.".to_owned(),
        (1, all) => format!("1 of {all} gates failed because of this change."),
        (against, all) => format!("{against} of {all} gates failed because of this change."),
    }
}

fn gate_view(gate: &report::GateReport, output: &str) -> GateView {
    let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect();
    let groups = [
        ("New", "caused by the change", names(&gate.new)),
        ("Missing", "removed or skipped by the change", names(&gate.missing)),
        ("Pre-existing", "also fail on the base commit; ignored", names(&gate.pre_existing)),
        ("Flaky", "passed when run again; ignored", names(&gate.flaky)),
    ];
    let skip = output.chars().count().saturating_sub(MAX_OUTPUT_CHARS);
    GateView {
        name: gate.name.clone(),
        kind: gate.kind.to_string(),
        tone: match gate.status {
            GateStatus::Failed | GateStatus::TimedOut => "bad",
            GateStatus::PreExisting | GateStatus::Flaky => "hold",
            GateStatus::Passed => "good",
            GateStatus::NotApplicable => "idle",
        },
        status: gate_status_label(gate.status),
        tests: gate.tests.map(|tests| test_counts(&tests)),
        duration: format_millis(gate.duration_ms),
        groups: groups
            .into_iter()
            .filter(|(_, _, names): &(_, _, Vec<String>)| !names.is_empty())
            .map(|(name, explanation, names)| FailureGroup { name, explanation, names })
            .collect(),
        output: output.chars().skip(skip).collect(),
        is_open: counts_against_change(gate),
    }
}

fn gate_status_label(status: GateStatus) -> &'static str {
    match status {
        GateStatus::Passed => "passed",
        GateStatus::PreExisting => "failed, pre-existing",
        GateStatus::Flaky => "flaky",
        GateStatus::Failed => "failed",
        GateStatus::TimedOut => "timed out",
        GateStatus::NotApplicable => "not applicable",
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
    let (remark, location) = match &criterion.judgement {
        CriterionJudgement::Met { evidence, file, line, test } => {
            let location = match (file, line) {
                (Some(file), Some(line)) => Some(format!("{file}:{line}")),
                (Some(file), None) => Some(file.clone()),
                (None, _) => test.clone(),
            };
            (evidence.clone(), location)
        }
        CriterionJudgement::Unmet { reason } => (reason.clone(), None),
        CriterionJudgement::Unjudged => ("not reviewed".to_owned(), None),
    };
    let remark = match &criterion.evidence_error {
        Some(doubt) => format!("{remark} (evidence rejected: {doubt})"),
        None => remark,
    };
    let tone = if criterion.is_met() { "good" } else { "bad" };
    CriterionView { text: markdown::code_spans_to_html(&criterion.text), tone, remark, location }
}

/// Returns the names of the validators.
fn validator_label(it: &report::IterationReport) -> Option<String> {
    let first = format!("reviewed by {}", it.validator.as_ref()?.agent);
    Some(match &it.second_review {
        None => first,
        Some(second) => {
            let result = if second.confirmed { "confirmed" } else { "not confirmed" };
            format!("{first}; critical finding {result} by {}", second.validator.agent)
        }
    })
}

fn issue_view(issue: &Issue, it: &report::IterationReport) -> IssueView {
    let location = issue.file.as_ref().map(|file| match issue.line {
        Some(line) => format!("{file}:{line}"),
        None => file.clone(),
    });
    IssueView {
        severity: issue.severity,
        tone: if issue.severity >= IssueSeverity::Error { "bad" } else { "wait" },
        location,
        message: match &issue.scenario {
            Some(scenario) => format!("{} Fails with: {scenario}", issue.message),
            None => issue.message.clone(),
        },
        category: issue.category.to_string(),
        is_recurring: it.repeated_faults.iter().any(|failure| failure.contains(&issue.message)),
    }
}

fn council_view(council: &report::CouncilReport) -> CouncilView {
    let member = |(name, opinion): &(String, Option<String>)| CouncilMemberView {
        name: name.clone(),
        opinion: opinion.as_deref().map(markdown::to_html),
    };
    CouncilView {
        number: council.number,
        members: council.members.iter().map(member).collect(),
        conclusion: council.conclusion.as_deref().map(markdown::to_html),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_review_says_what_failed() {
        let criterion = |judgement| Criterion {
            text: "Totals are rounded".to_owned(),
            judgement,
            evidence_error: None,
        };
        let unmet = CriterionJudgement::Unmet { reason: "They are not".to_owned() };
        let unjudged = || criterion(CriterionJudgement::Unjudged);
        let both = [unjudged(), unjudged()];
        assert_eq!(failure_summary(&[], &both, &[]), "failed: 2 criteria were not judged");
        let one = [criterion(unmet), unjudged()];
        assert_eq!(
            failure_summary(&[], &one, &[]),
            "failed: 1 criterion is not met, 1 criterion was not judged"
        );
        assert_eq!(failure_summary(&[], &[], &[]), "failed");
    }
}
