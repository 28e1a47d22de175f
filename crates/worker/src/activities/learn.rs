//! `learn` activity: captures lessons from an ended task.
//!
//! An agent reads the task's record in an empty directory and submits lessons with evidence.
//! Lessons are only proposals; a person decides. The run has a short limit of its own and waits for
//! no quota. If it produces nothing, lessons are derived from the recorded failures.

mod closing_reason;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tamma_core::budget;
use tamma_core::cost::{Cost, Usage, Usd};
use tamma_core::history::{EntryData, HistoryEntry};
use tamma_core::ids::{KnowledgeId, Reference};
use tamma_core::learning::{
    Lesson, MIN_TASKS, RecordSource, TaskRecord, fallback_lesson, lesson_triggers,
    recurring_failure_lesson,
};
use tamma_core::rules::AgentSelection;
use tamma_core::task_loop::{Outcome, State};
use tamma_core::tier::Tier;
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::{EvidenceCheck, Submission, SubmissionFacts};
use tamma_flow::activities::JobResult;
use tokio_util::sync::CancellationToken;

use self::closing_reason::closing_lesson;
use super::attempts::truncate_middle;
use super::plan::current_plan;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::prompts::{Prompt, criteria_data, task_facts};
use crate::retry::retry_until_stopped;
use crate::runs::{AgentRun, AgentSlot, Assignment, WorkingFolder};
use crate::services::Services;

/// Time limit of the run, in seconds.
const TIME_LIMIT_SECONDS: u32 = 300;

/// Additional time to wait for a free slot.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(30);

/// Maximum number of history entries to read; more than a task writes.
const MAX_ENTRIES: u32 = 10_000;

/// Maximum number of plans to read, newest first.
const MAX_PLANS: u32 = 20;

/// Maximum length of a history text, in bytes.
const MAX_TEXT_BYTES: usize = 4_000;

/// Maximum number of problems listed in the prompt.
const MAX_LISTED: usize = 20;

pub(super) async fn learn(
    services: &Services,
    ctx: &JobContext,
    ending: State,
    model: bool,
) -> Result<JobResult, Error> {
    let record = learning_record(services, ctx, ending).await?;
    let retries = record.attempts.saturating_sub(1);
    let closing = closing_lesson(services, ctx, &record).await;
    let triggers = lesson_triggers(ending == State::Completed, retries, &ctx.rules);
    if triggers.is_empty() && closing.is_none() {
        return Ok(learned_result(0, None));
    }
    let (mut lessons, usage) = if model && !triggers.is_empty() {
        match propose_lessons(services, ctx, &record).await {
            Ok((lessons, usage)) => (lessons, usage),
            Err(Error::Stopped) if ctx.stop.is_cancelled() => {
                return Err(Error::Stopped);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(task = %record.task, error, "learning run failed");
                (Vec::new(), None)
            }
        }
    } else {
        (Vec::new(), None)
    };
    ctx.fault_point("agent ended")?;
    if lessons.is_empty() && !triggers.is_empty() {
        lessons.extend(fallback_lesson(&record));
    }
    lessons.extend(closing);
    let key = (record.project, record.task);
    let mut proposals: Vec<(KnowledgeId, Lesson)> =
        lessons.into_iter().map(|lesson| (lesson.id(record.task), lesson)).collect();
    let record_failures = || services.store.record_faults(key, &record.faults, MIN_TASKS);
    for recurring in retry_until_stopped(&ctx.stop, record_failures).await? {
        proposals.extend(recurring_failure_lesson(
            record.project,
            &recurring.fault,
            recurring.in_code,
            &recurring.sightings,
        ));
    }
    let propose = || services.store.propose_lessons(record.project, proposals.clone());
    let mut entries: Vec<KnowledgeId> =
        retry_until_stopped(&ctx.stop, propose).await?.iter().map(|it| it.entry).collect();
    entries.sort_unstable();
    entries.dedup();
    Ok(learned_result(entries.len(), usage))
}

/// Collects the record of the task.
async fn learning_record(
    services: &Services,
    ctx: &JobContext,
    ending: State,
) -> Result<TaskRecord, Error> {
    let task = ctx.task.id;
    let lines = services.store.history(task, 0, MAX_ENTRIES).await?;
    let log: Vec<HistoryEntry> = lines.into_iter().map(|line| line.entry).collect();
    let mut texts: BTreeMap<Reference, String> = BTreeMap::new();
    for entry in &log {
        if let EntryData::Stored(reference) = &entry.data
            && !texts.contains_key(reference)
            && let Ok(text) = services.store.text(reference).await
        {
            texts.insert(reference.clone(), truncate_middle(&text, MAX_TEXT_BYTES));
        }
    }
    let newest = ctx.task_loop.plan.as_ref().map_or(0, |plan| plan.version);
    let mut plans = Vec::new();
    for version in newest.saturating_sub(MAX_PLANS) + 1..=newest {
        let current = ctx.task_loop.plan.as_ref().filter(|plan| plan.version == version);
        let plan = match current {
            Some(plan) => services.contents.plan(task, plan.hash).await,
            None => services.store.plan(task, version).await.map_err(Error::from),
        };
        match plan {
            Ok(plan) => plans.push((version, plan)),
            Err(Error::Store(tamma_store::Error::NotFound { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    let checks = services.store.checks(task).await?;
    let checks: Vec<_> =
        checks.into_iter().map(|it| (it.job_number, it.iteration, it.record)).collect();
    Ok(TaskRecord::from_source(&RecordSource {
        task,
        project: ctx.project(),
        ending,
        history: &log,
        texts: &texts,
        plans: &plans,
        checks: &checks,
        spend: ctx.task_loop.spend,
    }))
}

/// Asks an agent for lessons; returns none if its run did not finish.
async fn propose_lessons(
    services: &Services,
    ctx: &JobContext,
    record: &TaskRecord,
) -> Result<(Vec<Lesson>, Option<Usage>), Error> {
    let stop = ctx.stop.child_token();
    let mut running = Box::pin(run_learning_agent(services, ctx, record, stop.clone()));
    let longest = MAX_SLOT_WAIT + Duration::from_secs(TIME_LIMIT_SECONDS.into());
    let run = tokio::select! {
        run = &mut running => run,
        () = tokio::time::sleep(longest) => {
            stop.cancel();
            running.await
        }
    }?;
    let usage = run.report.usage;
    match run.report.end {
        RunEnd::Finished { submission: Submission::Lessons(taught), .. } => {
            Ok((taught.into_lessons(record), usage))
        }
        end => {
            tracing::info!(task = %record.task, ?end, "learning run submitted no lessons");
            Ok((Vec::new(), usage))
        }
    }
}

async fn run_learning_agent(
    services: &Services,
    ctx: &JobContext,
    record: &TaskRecord,
    stop: CancellationToken,
) -> Result<AgentRun, Error> {
    let _slot = services.agents.read_only_slot(ctx, &stop).await?;
    let project = services.repositories.project(ctx).await?;
    let ctx = JobContext { stop, ..ctx.clone() };
    let troubles = record.faults.iter().take(MAX_LISTED).map(|it| it.fault.as_str());
    let criteria = match &ctx.task_loop.plan {
        Some(_) => criteria_data(current_plan(services, &ctx).await?.criteria_of(&ctx.task)),
        None => criteria_data(&ctx.task.acceptance_criteria),
    };
    let values = task_facts(
        &ctx,
        None,
        json!({
            "criteria": criteria,
            "ending": record.ending.to_string(),
            "short": record.summary(),
            "troubles": troubles.collect::<Vec<_>>(),
            "record": record.to_prompt(),
            "known": services.knowledge.for_task(&ctx).await?,
        }),
    );
    let prompt = services.prompts(&ctx).await?.render(Prompt::Learn, values)?;
    let labels = record.clone();
    let evidence: EvidenceCheck = Arc::new(move |label| labels.find_evidence(label).is_some());
    let limit = budget::task_limit(ctx.task_loop.risk_level(), &ctx.task_loop.granted, &ctx.rules);
    let assignment = Assignment {
        slot: AgentSlot {
            selection: AgentSelection::from(Tier::Simple),
            home: Some("learning".to_owned()),
        },
        mode: RunMode::Learn,
        prompt,
        continuation: None,
        seconds: TIME_LIMIT_SECONDS,
        allowance: budget::remaining(&ctx.task_loop.spend, &limit),
        facts: SubmissionFacts { evidence_exists: evidence, ..SubmissionFacts::default() },
        brief: None,
        gates: None,
        keep_end: None,
    };
    // One directory per attempt, because its content is useless to another.
    let empty =
        services.config.data_dir.join("rooms").join(format!("{}", ctx.run_id()).replace('/', "-"));
    let odd = |error: std::io::Error| Error::Internal(format!("{}: {error}", empty.display()));
    tokio::fs::create_dir_all(&empty).await.map_err(odd)?;
    let run = services.agents.run(&ctx, &project, WorkingFolder::Empty(&empty), assignment).await;
    if let Err(error) = tokio::fs::remove_dir_all(&empty).await {
        tracing::warn!(%error, "failed to remove the directory of a run");
    }
    run
}

/// Builds the job result. Without a model run, the cost is zero and any reservation is released.
fn learned_result(lessons: usize, usage: Option<Usage>) -> JobResult {
    let nothing = Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() };
    let outcome = Outcome::Learned(u16::try_from(lessons).unwrap_or(u16::MAX));
    JobResult::finished(outcome).with_usage(Some(usage.unwrap_or(nothing)))
}
