//! Mapping of steps to rows.
//!
//! Pure: takes the task loop, entries and commands, returns rows. Field names are column names.

use std::collections::BTreeMap;

use chrono::{SubsecRound as _, TimeDelta, Timelike as _};
use serde::Serialize;
use serde_json::Value;
use tamma_core::actor::Actor;
use tamma_core::approval::{ApprovalScope, Pin};
use tamma_core::budget;
use tamma_core::cause::AlertCause;
use tamma_core::history::{EntryData, EntryName, HistoryEntry};
use tamma_core::ids::{CommitId, Name, PlanHash, PolicyVersion};
use tamma_core::level::RiskLevel;
use tamma_core::rules::Rules;
use tamma_core::task::Priority;
use tamma_core::task_loop::{
    Alert, Command, JobUsage, OpenQuestion, Phase, State, StepRecord, TaskLoop, Timestamp, Trigger,
};
use tamma_core::tier::Tier;

use super::to_i64;
use crate::encoding::json;

/// Columns of a task that lists show.
#[derive(Serialize)]
pub(super) struct Projection<'a> {
    entries: u64,
    priority: Priority,
    state: State,
    phase: Phase,
    live: bool,
    paused: bool,
    since: Timestamp,
    risk: Option<RiskLevel>,
    iterations: u16,
    retries: u8,
    councils: u8,
    spent_usd: tamma_core::cost::Usd,
    spent_tokens: i64,
    spend_estimated: bool,
    budget_usd: Option<tamma_core::cost::Usd>,
    question: Option<&'a OpenQuestion>,
    asked_at: Option<Timestamp>,
    next: Option<tamma_core::task_loop::NextStep>,
    wake_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    failures: u32,
    /// Title and labels of the last edit; `None` leaves the stored ones.
    title: Option<&'a str>,
    labels: Option<&'a [String]>,
}

impl<'a> Projection<'a> {
    pub(super) fn new(it: &'a TaskLoop, rules: &Rules, rows: &StepRows<'a>) -> Self {
        Self {
            entries: it.entry_count,
            priority: it.priority,
            state: it.state,
            phase: it.state.phase(),
            live: !it.state.is_terminal(),
            paused: it.paused.is_some(),
            // Truncated, because PostgreSQL would round it up and the task would be younger than
            // its first entry.
            since: it.since.trunc_subsecs(6),
            risk: it.risk_level(),
            iterations: it.iterations,
            retries: it.retries,
            councils: it.councils,
            spent_usd: it.spend.usd,
            spent_tokens: to_i64(it.spend.tokens),
            spend_estimated: it.spend.estimated,
            budget_usd: budget::task_limit(it.risk_level(), &it.granted, rules).usd,
            question: it.open_question.as_ref(),
            asked_at: it.open_question.as_ref().map(|question| question.asked_at),
            next: it.next_step(rules),
            wake_at: it.wake_at(rules),
            due_at: due_at(it, rules),
            failures: rows.failures,
            title: rows.title,
            labels: rows.labels,
        }
    }
}

/// Returns the time at which a task exceeds its soft timeout. Pauses and waits for a quota do not
/// count.
fn due_at(it: &TaskLoop, rules: &Rules) -> Option<Timestamp> {
    if it.paused.is_some() || it.state.is_terminal() {
        return None;
    }
    let minutes = it.state.soft_timeout(&rules.scrum_master.task_loop.state_timeouts)?;
    let quota = it.quota.as_ref().map(|quota| quota.until);
    let from = quota.map_or(it.clock.started_at, |until| until.max(it.clock.started_at));
    from.checked_add_signed(TimeDelta::minutes(i64::from(minutes)))
}

/// Rows of consecutive steps.
#[derive(Default)]
pub(super) struct StepRows<'a> {
    pub(super) entries: Vec<EntryRow<'a>>,
    /// Sent alerts, one per question.
    pub(super) alerts: Vec<AlertRow<'a>>,
    /// Updates of questions that earlier steps asked.
    pub(super) alert_follow_ups: Vec<AlertFollowUp<'a>>,
    pub(super) approvals: Vec<ApprovalRow<'a>>,
    pub(super) iterations: Vec<IterationRow<'a>>,
    pub(super) usage: Vec<UsageRow>,
    /// Provider blocks, one per provider.
    pub(super) holds: Vec<HoldRow<'a>>,
    /// Number of entries that report a failure.
    pub(super) failures: u32,
    /// Title that the last edit set.
    title: Option<&'a str>,
    /// Labels that the last edit set.
    labels: Option<&'a [String]>,
}

#[derive(Serialize)]
pub(super) struct EntryRow<'a> {
    #[serde(flatten)]
    entry: &'a HistoryEntry,
    // Truncated copy of the entry's time, because PostgreSQL would round it up.
    at: Timestamp,
    at_nanos: u16,
}

#[derive(Serialize)]
pub(super) struct AlertRow<'a> {
    #[serde(flatten)]
    alert: &'a Alert,
    // More exact than the cause of the serialised alert.
    cause: AlertCause,
    // The serialised alert omits an empty list.
    answers: &'a [tamma_core::task_loop::AnswerKind],
    at: Timestamp,
    reminders: u32,
    #[serde(flatten)]
    ending: AlertEnding<'a>,
}

#[derive(Default, Clone, Copy, Serialize)]
struct AlertEnding<'a> {
    acknowledged_by: Option<&'a Name>,
    acknowledged_at: Option<Timestamp>,
    settled_at: Option<Timestamp>,
}

#[derive(Serialize)]
pub(super) struct AlertFollowUp<'a> {
    question: u32,
    #[serde(flatten)]
    ending: AlertEnding<'a>,
}

#[derive(Serialize)]
pub(super) struct ApprovalRow<'a> {
    sequence: u64,
    at: Timestamp,
    decision: &'static str,
    decided_by: Option<&'a Name>,
    reason: Option<&'a str>,
    plan: Option<PlanHash>,
    base: Option<CommitId>,
    policy: Option<PolicyVersion>,
    risk: Option<RiskLevel>,
}

#[derive(Default, Serialize)]
pub(super) struct IterationRow<'a> {
    number: u16,
    tier: Option<Tier>,
    engine: Option<&'a Name>,
    plan: Option<PlanHash>,
    started_at: Option<Timestamp>,
    commit: Option<CommitId>,
    finished_at: Option<Timestamp>,
    outcome: Option<&'static str>,
    score: Option<u8>,
    fingerprint: Option<Value>,
    judged_at: Option<Timestamp>,
}

#[derive(Serialize)]
pub(super) struct UsageRow {
    ticket: u32,
    job: tamma_core::task_loop::JobKind,
    at: Timestamp,
    tokens_input: i64,
    tokens_cached: i64,
    tokens_output: i64,
    cost_usd: Option<tamma_core::cost::Usd>,
}

#[derive(Serialize)]
pub(super) struct HoldRow<'a> {
    provider: &'a Name,
    until: Timestamp,
}

impl<'a> StepRows<'a> {
    pub(super) fn from_steps(steps: &'a [StepRecord]) -> Self {
        let mut rows = Self::default();
        let mut question_alerts: BTreeMap<u32, AlertRow<'a>> = BTreeMap::new();
        let mut endings: BTreeMap<u32, AlertEnding<'a>> = BTreeMap::new();
        let mut iterations: BTreeMap<u16, IterationRow<'a>> = BTreeMap::new();
        for step in steps {
            for entry in &step.entries {
                rows.failures += u32::from(is_failure(entry));
                rows.approvals.extend(approval_row(entry, &step.next));
                update_iteration(&mut iterations, entry, &step.next);
                if let EntryData::Edited(edit) = &entry.data {
                    rows.title = edit.title.as_deref().or(rows.title);
                    rows.labels = edit.labels.as_deref().or(rows.labels);
                }
                rows.entries.push(entry_row(entry));
            }
            for command in &step.commands {
                match command {
                    Command::Alert(alert) => match alert.question {
                        Some(question) => {
                            question_alerts
                                .entry(question)
                                .and_modify(|row| {
                                    row.alert = alert;
                                    row.reminders += 1;
                                })
                                .or_insert_with(|| alert_row(alert, step));
                        }
                        None => rows.alerts.push(alert_row(alert, step)),
                    },
                    Command::CloseQuestion { question_number: question } => {
                        endings.entry(*question).or_default().settled_at = Some(step.at);
                    }
                    Command::BlockProvider { provider, until } => {
                        let until = until.trunc_subsecs(6);
                        match rows.holds.iter_mut().find(|row| row.provider == provider) {
                            Some(row) => row.until = row.until.max(until),
                            None => rows.holds.push(HoldRow { provider, until }),
                        }
                    }
                    Command::StartJob { .. } | Command::StopJob { .. } => {}
                }
            }
            let is_acknowledged =
                step.entries.iter().any(|entry| entry.name == EntryName::SmAlertAcknowledged);
            if let Some(question) = step.next.open_question.as_ref().filter(|_| is_acknowledged) {
                let ending = endings.entry(question.number).or_default();
                ending.acknowledged_by = question.seen_by.as_ref();
                ending.acknowledged_at = Some(step.at);
            }
            rows.usage.extend(step.job_usage.map(|used| usage_row(&used, step.at)));
        }
        for (question, ending) in endings {
            match question_alerts.get_mut(&question) {
                Some(row) => row.ending = ending,
                None => rows.alert_follow_ups.push(AlertFollowUp { question, ending }),
            }
        }
        rows.alerts.extend(question_alerts.into_values());
        rows.iterations = iterations.into_values().collect();
        rows
    }
}

fn entry_row(entry: &HistoryEntry) -> EntryRow<'_> {
    let at_nanos = nanoseconds(entry.at);
    EntryRow { entry, at: entry.at.trunc_subsecs(6), at_nanos }
}

fn alert_row<'a>(alert: &'a Alert, step: &StepRecord) -> AlertRow<'a> {
    AlertRow {
        alert,
        cause: step.alert_cause(alert),
        answers: &alert.answers,
        at: step.at,
        reminders: 0,
        ending: AlertEnding::default(),
    }
}

fn is_failure(entry: &HistoryEntry) -> bool {
    use EntryName as N;
    matches!(
        entry.name,
        N::SmPlanInvalid
            | N::SmPlanDisputed
            | N::SmImplementationFailed
            | N::SmGatesFailed
            | N::SmReviewFailed
            | N::SmDeliveryFailed
            | N::SmErrorOccurred
    )
}

/// Returns the plan decision that an entry records, if any.
fn approval_row<'a>(entry: &'a HistoryEntry, it: &TaskLoop) -> Option<ApprovalRow<'a>> {
    let person = match &entry.actor {
        Actor::Person(name) => Some(name),
        Actor::Tamma | Actor::Council => None,
    };
    let decision = match entry.name {
        EntryName::SmApprovalGranted if person.is_some() => "approve",
        EntryName::SmApprovalGranted => "auto",
        EntryName::SmApprovalDenied => "reject",
        EntryName::SmChangesRequested => "changes",
        EntryName::SmOverridden => "override",
        _ => return None,
    };
    let scope = match &entry.data {
        EntryData::Approval { scope, .. } => Some(*scope),
        // An action with an outdated scope would have been refused.
        _ => it.current_scope(),
    };
    let (plan, pin) = scope.map(|ApprovalScope { plan, pin }| (plan, pin)).unzip();
    let (base, policy) = pin.map(|Pin { base, policy, .. }| (base, policy)).unzip();
    Some(ApprovalRow {
        sequence: entry.sequence,
        at: entry.at,
        decision,
        decided_by: person,
        reason: entry.reason.as_deref(),
        plan,
        base,
        policy,
        risk: it.risk_level(),
    })
}

/// Updates the iteration that an entry is about, if any.
fn update_iteration<'a>(
    iterations: &mut BTreeMap<u16, IterationRow<'a>>,
    entry: &'a HistoryEntry,
    it: &TaskLoop,
) {
    // The count does not include an unfinished run yet.
    let number = match entry.trigger {
        Some(Trigger::RunStarted | Trigger::AgentFailed) => it.iterations + 1,
        _ => it.iterations,
    };
    let at = Some(entry.at);
    match (entry.trigger, &entry.data) {
        (Some(Trigger::RunStarted), data) => {
            let row = iteration_row(iterations, number);
            row.tier = Some(it.tier);
            row.plan = it.plan.as_ref().map(|plan| plan.hash);
            row.started_at = at;
            if let EntryData::Agent(agent) = data {
                row.engine = Some(agent);
            }
        }
        (Some(Trigger::AgentFailed), _) if entry.from == State::InProgress => {
            iteration_row(iterations, number).outcome = Some("engine_failed");
        }
        (Some(Trigger::RunFinished), EntryData::Commit(commit)) => {
            let row = iteration_row(iterations, number);
            row.commit = Some(*commit);
            row.finished_at = at;
        }
        (Some(Trigger::GatesFailed), EntryData::Gates(gates)) => {
            let row = iteration_row(iterations, number);
            row.outcome = Some("gates_failed");
            row.fingerprint = Some(json(&gates.fingerprint));
            row.judged_at = at;
        }
        (Some(on @ (Trigger::ReviewPassed | Trigger::ReviewFailed)), data) => {
            let row = iteration_row(iterations, number);
            row.outcome = Some(match (on, &entry.actor) {
                (Trigger::ReviewPassed, _) => "passed",
                (_, Actor::Person(_)) => "changes_requested",
                (_, Actor::Tamma | Actor::Council) => "review_failed",
            });
            row.judged_at = at;
            if let EntryData::Review(summary) = data {
                row.score = Some(summary.score);
            }
        }
        _ => {}
    }
}

fn iteration_row<'m, 'a>(
    iterations: &'m mut BTreeMap<u16, IterationRow<'a>>,
    number: u16,
) -> &'m mut IterationRow<'a> {
    let new = || IterationRow { number, ..IterationRow::default() };
    iterations.entry(number).or_insert_with(new)
}

fn usage_row(used: &JobUsage, at: Timestamp) -> UsageRow {
    let tamma_core::cost::Usage { tokens, cost } = used.usage;
    UsageRow {
        ticket: used.job_number,
        job: used.job,
        at: at.trunc_subsecs(6),
        tokens_input: to_i64(tokens.input),
        tokens_cached: to_i64(tokens.cached),
        tokens_output: to_i64(tokens.output),
        cost_usd: match cost {
            tamma_core::cost::Cost::Known(usd) => Some(usd),
            tamma_core::cost::Cost::Unknown => None,
        },
    }
}

/// Returns the part of a time below the microsecond resolution of PostgreSQL.
fn nanoseconds(at: Timestamp) -> u16 {
    // The remainder is below 1000.
    u16::try_from(at.nanosecond() % 1000).unwrap_or_default()
}
