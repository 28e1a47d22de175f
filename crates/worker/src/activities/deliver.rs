//! `deliver` activity: pushes a change as a branch to the project's repository, and opens or updates
//! its pull request.

use std::collections::BTreeSet;

use tamma_connect::forge::{Annotation, ChangeUpdate, CheckReport, CommentTarget, NewChange};
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::{CommitId, Reason, TaskId};
use tamma_core::pull_request::{Feedback, OpenedPullRequest, PullRequestState};
use tamma_core::review::record::{CheckRecord, GatesCheck, ReviewCheck};
use tamma_core::rules::DeliveryMode;
use tamma_core::run_result::RunResult;
use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;
use tamma_engine::mirror::Mirror;
use tamma_flow::activities::JobResult;

use super::plan::current_plan;
use crate::error::Error;
use crate::forge_context::{ForgeContext, ForgeFailure};
use crate::job_context::JobContext;
use crate::pull_request_text::{self, DescribedChange};
use crate::services::Services;

/// Name of our check.
const CHECK_NAME: &str = "tamma";

/// Maximum number of annotations of our check.
const MAX_ANNOTATIONS: usize = 50;

pub(super) async fn deliver(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
) -> Result<JobResult, Error> {
    let is_branch = ctx.task_loop.delivery_mode(&ctx.rules) == DeliveryMode::Branch;
    // A story delivers the changes of its tasks.
    if is_branch || services.repositories.story_branch(ctx).await?.is_some() {
        return deliver_branch(services, ctx, commit).await;
    }
    match deliver_pull_request(services, ctx, commit).await {
        Ok(outcome) => Ok(JobResult::finished(outcome)),
        Err(ForgeFailure::Later(seconds)) => Ok(JobResult::RetryAfter { seconds }),
        // The state machine tries again a few times, and then asks a person.
        Err(ForgeFailure::Refused(reason) | ForgeFailure::Stale(reason)) => {
            Ok(JobResult::finished(failed_outcome(&reason)?))
        }
        Err(ForgeFailure::Failed(error)) => Err(error),
    }
}

/// Returns the outcome of a job that a person has to make possible.
fn failed_outcome(reason: &str) -> Result<Outcome, Error> {
    let reason: String = reason.chars().take(Reason::MAX).collect();
    let reason = reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
    Ok(Outcome::Failed(JobFailure { kind: FailureKind::Unavailable, reason }))
}

async fn deliver_branch(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    let mirror = services.repositories.mirror(&project).await?;
    let branch = services.store.task_branch(ctx.task.id).await?;
    let delivered = delivery::push_task_branch(&mirror, (ctx.task.id, &branch), commit).await;
    ctx.fault_point("handed over")?;
    match delivered {
        Ok(_) => Ok(JobResult::finished(Outcome::Delivered(commit))),
        Err(error @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
            Ok(JobResult::finished(Outcome::DeliveryRejected(
                services.store.save_text(&error.to_string()).await?,
            )))
        }
        Err(error) => Err(error.into()),
    }
}

async fn deliver_pull_request(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
) -> Result<Outcome, ForgeFailure> {
    let project = services.repositories.project(ctx).await?;
    let ids = (ctx.project(), ctx.task.id);
    let address = &project.project.repository;
    let forge = ForgeContext::open(&services.store, &services.forges, address, ids)?;
    let mirror = services.repositories.mirror(&project).await?;
    let base_branch = base_branch(ctx, &mirror).await?;
    let branch = services.store.task_branch(ctx.task.id).await?;
    let known = ctx.task_loop.pull_request.as_deref();
    let opened = |number, url| {
        let base = ctx.base()?;
        Ok::<_, Error>(Outcome::PullRequestOpened(OpenedPullRequest {
            number,
            url,
            head: commit,
            base,
        }))
    };
    // Somebody may have given it another base.
    let mut existing = match known {
        Some(known) => forge.known_change(known).await?,
        None => None,
    };
    if existing.is_none() {
        existing = forge.find(&branch, &base_branch).await?;
    }
    if let Some(ended) = existing.as_ref().filter(|found| !found.open) {
        // Somebody merged or closed it. It gets no more commits, and the next observation ends the
        // task.
        forge.save(ended, (&branch, &base_branch)).await?;
        return Ok(opened(ended.number, ended.url.clone())?);
    }
    if let Some(rejection) = push(&mirror, (ctx.task.id, &branch), known, commit).await? {
        return Ok(Outcome::DeliveryRejected(services.store.save_text(&rejection).await?));
    }
    ctx.fault_point("handed over")?;
    let facts = ChangeFacts::load(services, ctx, commit, &forge).await?;
    let described = facts.describe(ctx);
    let (title, key) = (pull_request_text::title(&ctx.task), forge.key(commit, "open"));
    let body = pull_request_text::description(&described, &key);
    let is_new = existing.is_none();
    let found = if let Some(found) = existing {
        found
    } else {
        let rules = &ctx.rules.delivery.pull_requests;
        let change = NewChange {
            branch: branch.clone(),
            base: base_branch.clone(),
            title: title.clone(),
            body: body.clone(),
            labels: rules.labels.clone(),
            reviewers: rules.reviewers.clone(),
        };
        forge.open_change(commit, &change).await?
    };
    ctx.fault_point("pull request opened")?;
    forge.save(&found, (&branch, &base_branch)).await?;
    let job_number = ctx.request.job_number;
    if !is_new {
        let update = ChangeUpdate { title: Some(title), body: Some(body), close: false };
        forge.update_change((commit, job_number), found.number, &update).await?;
    }
    let report = check_report(&described, commit);
    forge.publish_check(job_number, &report).await?;
    ctx.fault_point("check published")?;
    if let Some(known) = known {
        reply_to_threads(&forge, known, facts.claims.as_ref(), commit).await?;
    }
    Ok(opened(found.number, found.url)?)
}

/// Returns the branch that the pull request goes to.
async fn base_branch(ctx: &JobContext, mirror: &Mirror) -> Result<String, ForgeFailure> {
    match &ctx.rules.delivery.base {
        Some(branch) => Ok(branch.clone()),
        None => Ok(mirror.default_branch().await?),
    }
}

/// Pushes the commit. Returns the reason if the repository rejects it.
async fn push(
    mirror: &Mirror,
    task: (TaskId, &str),
    known: Option<&PullRequestState>,
    commit: CommitId,
) -> Result<Option<String>, ForgeFailure> {
    let mut pushed = delivery::push_task_branch(mirror, task, commit).await;
    // A rebased branch replaces exactly the commit that we pushed last.
    if let (Err(delivery::Error::Conflict { .. }), Some(known)) = (&pushed, known) {
        pushed = delivery::replace_task_branch(mirror, task, known.pushed, commit).await;
    }
    match pushed {
        Ok(_) => Ok(None),
        Err(error @ delivery::Error::Rejected { .. }) => Ok(Some(error.to_string())),
        Err(error @ (delivery::Error::Conflict { .. } | delivery::Error::Moved { .. })) => {
            Err(ForgeFailure::Refused(format!(
                "{error}. Somebody else pushed to the branch of the pull request; nothing was \
                 overwritten. Merge or remove their commits, then retry"
            )))
        }
        Err(error) => Err(ForgeFailure::Failed(error.into())),
    }
}

/// Stored facts about a change.
struct ChangeFacts {
    plan: tamma_core::plan::Plan,
    gates: Option<GatesCheck>,
    review: Option<ReviewCheck>,
    claims: Option<RunResult>,
    models: Vec<String>,
    closes: Option<u64>,
    task_url: Option<String>,
}

impl ChangeFacts {
    async fn load(
        services: &Services,
        ctx: &JobContext,
        commit: CommitId,
        forge: &ForgeContext,
    ) -> Result<Self, ForgeFailure> {
        let (store, task) = (&services.store, ctx.task.id);
        let (mut gates, mut review) = (None, None);
        for check in store.checks(task).await? {
            match check.record {
                CheckRecord::Gates(it) if it.commit == commit => gates = Some(it),
                CheckRecord::Review(it) if it.commit == commit => review = Some(it),
                CheckRecord::Gates(_) | CheckRecord::Review(_) => {}
            }
        }
        // Newest first.
        let results: Vec<(u32, JobResult)> = store.job_results(task).await?;
        let claims = results.iter().find_map(|(_, result)| result.claims().cloned());
        let models: BTreeSet<String> = store
            .runs(task)
            .await?
            .into_iter()
            .map(|run| match run.model {
                Some(model) => format!("{} ({model})", run.agent),
                None => run.agent,
            })
            .collect();
        let issue = store.issue_of_task(task).await?.filter(|issue| {
            issue.forge == forge.forge.name()
                && issue.repository.eq_ignore_ascii_case(&forge.repository)
        });
        let public_url = services.config.public_url.as_deref();
        Ok(Self {
            plan: current_plan(services, ctx).await?,
            gates,
            review,
            claims,
            models: models.into_iter().collect(),
            closes: issue.map(|issue| issue.number),
            task_url: pull_request_text::task_url(public_url, task),
        })
    }

    fn describe<'a>(&'a self, ctx: &'a JobContext) -> DescribedChange<'a> {
        DescribedChange {
            task: &ctx.task,
            plan: &self.plan,
            gates: self.gates.as_ref(),
            review: self.review.as_ref(),
            risk: ctx.task_loop.plan_assessment.as_ref().map(|it| &it.risk),
            claims: self.claims.as_ref(),
            spend: ctx.task_loop.spend,
            iterations: ctx.task_loop.iterations,
            models: &self.models,
            closes: self.closes,
            task_url: self.task_url.as_deref(),
        }
    }
}

/// Returns our verdict about a commit that is delivered, with its findings on lines.
fn check_report(change: &DescribedChange<'_>, commit: CommitId) -> CheckReport {
    let (title, summary) = pull_request_text::check_text(change);
    let issues = change.review.map(|review| review.verdict.inputs.issues.as_slice());
    let annotations = issues.unwrap_or_default().iter().filter_map(|issue| {
        Some(Annotation {
            path: issue.file.clone()?,
            line: issue.line?,
            failure: issue.is_blocking(),
            message: pull_request_text::safe_line(&issue.message),
        })
    });
    CheckReport {
        name: CHECK_NAME.to_owned(),
        commit,
        passed: Some(true),
        title,
        summary,
        details_url: change.task_url.map(str::to_owned),
        annotations: annotations.take(MAX_ANNOTATIONS).collect(),
    }
}

/// Replies once to each thread whose comments went back to the agent. A thread is resolved if the
/// agent says that it changed what was asked for.
async fn reply_to_threads(
    forge: &ForgeContext,
    known: &PullRequestState,
    claims: Option<&RunResult>,
    commit: CommitId,
) -> Result<(), ForgeFailure> {
    let threads = known.facts.iter().flat_map(|facts| &facts.threads);
    for fact in threads {
        let feedback =
            Feedback::Thread { thread: fact.id.clone(), last_comment: fact.last_comment.clone() };
        let key = feedback.key();
        if !known.handled.contains(&key) {
            continue;
        }
        let answer = claims.and_then(|it| it.answers.iter().find(|it| it.thread == fact.id));
        let text = match (answer, claims) {
            (Some(answer), _) => answer.answer.as_str(),
            (None, Some(claims)) => claims.summary.as_str(),
            (None, None) => "The change was revised.",
        };
        let target = CommentTarget::Thread {
            number: known.number,
            thread: fact.id.clone(),
            resolve: answer.is_some_and(|it| it.fixed),
        };
        let body = pull_request_text::reply(text, &commit.to_string());
        match forge.reply(commit, &target, &key, &body).await {
            // The thread was deleted, or accepts no replies. The change itself is delivered.
            Err(ForgeFailure::Refused(reason) | ForgeFailure::Stale(reason)) => {
                tracing::warn!(task = %forge.task, reason, "failed to reply to a review thread");
            }
            replied => replied?,
        }
    }
    Ok(())
}
