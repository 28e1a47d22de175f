//! Which rows follow from steps.
//!
//! Pure: the machine's memory, entries and commands in, rows out. The names of the fields are those
//! of the columns.

use std::collections::BTreeMap;

use chrono::{SubsecRound as _, TimeDelta, Timelike as _};
use serde::Serialize;
use serde_json::Value;
use tamma_core::actor::Actor;
use tamma_core::approval::{Binding, Pin};
use tamma_core::budget;
use tamma_core::ids::{CommitId, Name, PlanHash, PolicyVersion};
use tamma_core::level::Level;
use tamma_core::log::{Entry, EntryName, Fact};
use tamma_core::rules::Rules;
use tamma_core::task::Priority;
use tamma_core::task_loop::{Alert, Command, Phase, Question, State, TaskLoop, Timestamp, Trigger};
use tamma_core::tier::Tier;

use super::{Record, signed};
use crate::spelling::json;
use crate::usage::Used;

/// A task as lists show it.
#[derive(Serialize)]
pub(super) struct Projection<'a> {
    entries: u64,
    priority: Priority,
    state: State,
    phase: Phase,
    live: bool,
    paused: bool,
    since: Timestamp,
    risk: Option<Level>,
    iterations: u16,
    retries: u8,
    councils: u8,
    spent_usd: tamma_core::cost::Usd,
    spent_tokens: i64,
    spend_estimated: bool,
    budget_usd: Option<tamma_core::cost::Usd>,
    question: Option<&'a Question>,
    asked_at: Option<Timestamp>,
    next: Option<tamma_core::task_loop::Next>,
    wake_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    failures: u32,
}

impl<'a> Projection<'a> {
    pub(super) fn of(it: &'a TaskLoop, rules: &Rules, failures: u32) -> Self {
        Self {
            entries: it.entries,
            priority: it.priority,
            state: it.state,
            phase: it.state.phase(),
            live: !it.state.is_terminal(),
            paused: it.paused.is_some(),
            // PostgreSQL would round it up, and a task would be younger than its first entry.
            since: it.since.trunc_subsecs(6),
            risk: it.risk(),
            iterations: it.iterations,
            retries: it.retries,
            councils: it.councils,
            spent_usd: it.spend.usd,
            spent_tokens: signed(it.spend.tokens),
            spend_estimated: it.spend.estimated,
            budget_usd: budget::limit(it.risk(), &it.granted, rules).usd,
            question: it.question.as_ref(),
            asked_at: it.question.as_ref().map(|question| question.at),
            next: it.next(rules),
            wake_at: it.wake_at(rules),
            due_at: due_at(it, rules),
            failures,
        }
    }
}

/// When a task will have been where it is for longer than expected. A pause and the wait for a
/// quota do not count.
fn due_at(it: &TaskLoop, rules: &Rules) -> Option<Timestamp> {
    if it.paused.is_some() || it.state.is_terminal() {
        return None;
    }
    let minutes = it.state.soft_timeout(&rules.scrum_master.task_loop.state_timeouts)?;
    let quota = it.quota.as_ref().map(|quota| quota.until);
    let from = quota.map_or(it.clock.from, |until| until.max(it.clock.from));
    from.checked_add_signed(TimeDelta::minutes(i64::from(minutes)))
}

/// The rows of some steps that follow each other.
#[derive(Default)]
pub(super) struct Rows<'a> {
    pub(super) entries: Vec<EntryRow<'a>>,
    /// Alerts that were sent, each question once.
    pub(super) alerts: Vec<AlertRow<'a>>,
    /// What became of questions that were asked in earlier steps.
    pub(super) followed: Vec<Followed<'a>>,
    pub(super) approvals: Vec<ApprovalRow<'a>>,
    pub(super) iterations: Vec<IterationRow<'a>>,
    pub(super) usage: Vec<UsageRow>,
    /// Providers that nobody may ask for a while, each once.
    pub(super) holds: Vec<HoldRow<'a>>,
    /// How many entries say that something failed.
    pub(super) failures: u32,
}

#[derive(Serialize)]
pub(super) struct EntryRow<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    // In place of the entry's own: PostgreSQL would round it up.
    at: Timestamp,
    at_nanos: u16,
}

#[derive(Serialize)]
pub(super) struct AlertRow<'a> {
    #[serde(flatten)]
    alert: &'a Alert,
    // The alert leaves them out where there are none.
    answers: &'a [tamma_core::task_loop::Answer],
    at: Timestamp,
    reminders: u32,
    #[serde(flatten)]
    ending: Ending<'a>,
}

#[derive(Default, Clone, Copy, Serialize)]
struct Ending<'a> {
    acknowledged_by: Option<&'a Name>,
    acknowledged_at: Option<Timestamp>,
    settled_at: Option<Timestamp>,
}

#[derive(Serialize)]
pub(super) struct Followed<'a> {
    question: u32,
    #[serde(flatten)]
    ending: Ending<'a>,
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
    risk: Option<Level>,
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

impl<'a> Rows<'a> {
    pub(super) fn of(steps: &[Record<'a>]) -> Self {
        let mut rows = Self::default();
        let mut asked: BTreeMap<u32, AlertRow<'a>> = BTreeMap::new();
        let mut endings: BTreeMap<u32, Ending<'a>> = BTreeMap::new();
        let mut iterations: BTreeMap<u16, IterationRow<'a>> = BTreeMap::new();
        for step in steps {
            for entry in step.entries {
                rows.failures += u32::from(says_failed(entry));
                rows.approvals.extend(decision(entry, step.next));
                work(&mut iterations, entry, step.next);
                rows.entries.push(logged(entry));
            }
            for command in step.commands {
                match command {
                    Command::Alert(alert) => match alert.question {
                        Some(question) => {
                            asked
                                .entry(question)
                                .and_modify(|row| {
                                    row.alert = alert;
                                    row.reminders += 1;
                                })
                                .or_insert_with(|| sent(alert, step.at));
                        }
                        None => rows.alerts.push(sent(alert, step.at)),
                    },
                    Command::Settle { question } => {
                        endings.entry(*question).or_default().settled_at = Some(step.at);
                    }
                    Command::HoldProvider { provider, until } => {
                        let until = until.trunc_subsecs(6);
                        match rows.holds.iter_mut().find(|row| row.provider == provider) {
                            Some(row) => row.until = row.until.max(until),
                            None => rows.holds.push(HoldRow { provider, until }),
                        }
                    }
                    Command::Start { .. } | Command::Stop { .. } => {}
                }
            }
            let seen =
                step.entries.iter().any(|entry| entry.name == EntryName::SmAlertAcknowledged);
            if let Some(question) = step.next.question.as_ref().filter(|_| seen) {
                let ending = endings.entry(question.number).or_default();
                ending.acknowledged_by = question.seen_by.as_ref();
                ending.acknowledged_at = Some(step.at);
            }
            rows.usage.extend(step.used.map(|used| usage(&used)));
        }
        for (question, ending) in endings {
            match asked.get_mut(&question) {
                Some(row) => row.ending = ending,
                None => rows.followed.push(Followed { question, ending }),
            }
        }
        rows.alerts.extend(asked.into_values());
        rows.iterations = iterations.into_values().collect();
        rows
    }
}

fn logged(entry: &Entry) -> EntryRow<'_> {
    let at_nanos = nanoseconds(entry.at);
    EntryRow { entry, at: entry.at.trunc_subsecs(6), at_nanos }
}

fn sent(alert: &Alert, at: Timestamp) -> AlertRow<'_> {
    AlertRow { alert, answers: &alert.answers, at, reminders: 0, ending: Ending::default() }
}

fn says_failed(entry: &Entry) -> bool {
    use EntryName as N;
    matches!(
        entry.name,
        N::SmPlanInvalid
            | N::SmImplementationFailed
            | N::SmGatesFailed
            | N::SmReviewFailed
            | N::SmDeliveryFailed
            | N::SmErrorOccurred
    )
}

/// The decision about a plan that an entry tells of, if it does.
fn decision<'a>(entry: &'a Entry, it: &TaskLoop) -> Option<ApprovalRow<'a>> {
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
    let binding = match &entry.data {
        Fact::Approval { binding, .. } => Some(*binding),
        // What they saw was what was there, or they would have been refused.
        _ => it.binding(),
    };
    let (plan, pin) = binding.map(|Binding { plan, pin }| (plan, pin)).unzip();
    let (base, policy) = pin.map(|Pin { base, policy }| (base, policy)).unzip();
    Some(ApprovalRow {
        sequence: entry.sequence,
        at: entry.at,
        decision,
        decided_by: person,
        reason: entry.reason.as_deref(),
        plan,
        base,
        policy,
        risk: it.risk(),
    })
}

/// What an entry says of an iteration, if it does.
fn work<'a>(iterations: &mut BTreeMap<u16, IterationRow<'a>>, entry: &'a Entry, it: &TaskLoop) {
    // A run that has not finished is not counted yet.
    let number = match entry.on {
        Some(Trigger::RunStarted | Trigger::EngineFailed) => it.iterations + 1,
        _ => it.iterations,
    };
    let at = Some(entry.at);
    match (entry.on, &entry.data) {
        (Some(Trigger::RunStarted), data) => {
            let row = iteration(iterations, number);
            row.tier = Some(it.tier);
            row.plan = it.plan.as_ref().map(|plan| plan.hash);
            row.started_at = at;
            if let Fact::Engine(engine) = data {
                row.engine = Some(engine);
            }
        }
        (Some(Trigger::EngineFailed), _) if entry.from == State::InProgress => {
            iteration(iterations, number).outcome = Some("engine_failed");
        }
        (Some(Trigger::RunFinished), Fact::Commit(commit)) => {
            let row = iteration(iterations, number);
            row.commit = Some(*commit);
            row.finished_at = at;
        }
        (Some(Trigger::GatesFailed), Fact::Gates(gates)) => {
            let row = iteration(iterations, number);
            row.outcome = Some("gates_failed");
            row.fingerprint = Some(json(&gates.fingerprint));
            row.judged_at = at;
        }
        (Some(on @ (Trigger::ReviewPassed | Trigger::ReviewFailed)), data) => {
            let row = iteration(iterations, number);
            let passed = on == Trigger::ReviewPassed;
            row.outcome = Some(if passed { "passed" } else { "review_failed" });
            row.judged_at = at;
            if let Fact::Review(summary) = data {
                row.score = Some(summary.score);
            }
        }
        _ => {}
    }
}

fn iteration<'m, 'a>(
    iterations: &'m mut BTreeMap<u16, IterationRow<'a>>,
    number: u16,
) -> &'m mut IterationRow<'a> {
    let new = || IterationRow { number, ..IterationRow::default() };
    iterations.entry(number).or_insert_with(new)
}

fn usage(used: &Used) -> UsageRow {
    let tamma_core::cost::Usage { tokens, cost } = used.usage;
    UsageRow {
        ticket: used.ticket,
        job: used.job,
        at: used.at,
        tokens_input: signed(tokens.input),
        tokens_cached: signed(tokens.cached),
        tokens_output: signed(tokens.output),
        cost_usd: match cost {
            tamma_core::cost::Cost::Known(usd) => Some(usd),
            tamma_core::cost::Cost::Unknown => None,
        },
    }
}

/// The nanoseconds of a moment that PostgreSQL, which counts microseconds, has no room for.
fn nanoseconds(at: Timestamp) -> u16 {
    // The remainder is under a thousand.
    u16::try_from(at.nanosecond() % 1000).unwrap_or_default()
}
