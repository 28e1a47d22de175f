//! `pull_request` activity: acts on the open pull request of a task.
//!
//! The state machine decides what to do; each job here is idempotent. A rate limit delays the job, a
//! missing permission becomes a reason for people, and an unreachable forge is retried by Temporal.

use std::fmt::Write as _;
use std::time::Duration;

use tamma_connect::forge::{Error as ForgeError, MergeOutcome, ThreadComment};
use tamma_core::format::single_line;
use tamma_core::ids::CommitId;
use tamma_core::level::RiskLevel;
use tamma_core::merge_queue::{EntryKey, MergeEntry, QueueAddress};
use tamma_core::pull_request::{Feedback, PullRequestJob, PullRequestOutcome, PullRequestState};
use tamma_core::rules::MergeQueueMode;
use tamma_core::task_loop::Outcome;
use tamma_engine::merge::RebaseOutcome;
use tamma_engine::{mirror, sanitize};
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::feedback_text::{FailedCheck, FeedbackComment, FeedbackRound};
use crate::forge_context::{ForgeContext, ForgeFailure};
use crate::job_context::JobContext;
use crate::merge_queue::enqueue_merge;
use crate::project_context::ProjectContext;
use crate::repositories::author;
use crate::services::Services;

pub(super) async fn run(
    services: &Services,
    ctx: &JobContext,
    job: &PullRequestJob,
) -> Result<JobResult, Error> {
    let outcome = match perform(services, ctx, job).await {
        Ok(outcome) => outcome,
        Err(ForgeFailure::Later(seconds)) => return Ok(JobResult::RetryAfter { seconds }),
        Err(ForgeFailure::Stale(reason)) => {
            tracing::info!(task = %ctx.task.id, reason, "pull request changed meanwhile");
            PullRequestOutcome::Stale
        }
        Err(ForgeFailure::Refused(reason)) => {
            PullRequestOutcome::Refused(services.store.save_text(&reason).await?)
        }
        Err(ForgeFailure::Failed(error)) => return Err(error),
    };
    if outcome == PullRequestOutcome::Stale {
        // Only facts wake the task again, also those that it knows. The next round of the poller sends
        // them; a hint would repeat the job at once.
        services.store.set_delivered(ctx.task.id, "").await?;
    }
    Ok(JobResult::finished(Outcome::PullRequest(outcome)))
}

async fn perform(
    services: &Services,
    ctx: &JobContext,
    job: &PullRequestJob,
) -> Result<PullRequestOutcome, ForgeFailure> {
    let project = services.repositories.project(ctx).await?;
    let ids = (ctx.project(), ctx.task.id);
    let address = &project.project.repository;
    let forge = ForgeContext::open(&services.store, &services.forges, address, ids)?;
    let no_pull_request = || Error::Internal("the task has no pull request".to_owned());
    let known = ctx.task_loop.pull_request.as_deref().ok_or_else(no_pull_request)?;
    match job {
        PullRequestJob::TriageChecks { head, checks } => {
            triage_checks(&forge, known, *head, checks).await
        }
        PullRequestJob::CollectFeedback { feedback, .. } => {
            let round = collect_feedback(&forge, known, feedback).await?;
            let text = services.store.save_text(&round.to_text()).await?;
            Ok(PullRequestOutcome::FeedbackCollected(text))
        }
        PullRequestJob::Rebase { head, onto } => {
            rebase(services, ctx, &project, (*head, *onto)).await
        }
        PullRequestJob::Merge { head } => merge(services, ctx, &forge, known, *head).await,
        PullRequestJob::Adopt { head } => adopt(services, ctx, &project, *head).await,
    }
}

/// Sorts failed checks: those that the base has too or that run again now, and those that the change
/// caused.
async fn triage_checks(
    forge: &ForgeContext,
    known: &PullRequestState,
    head: CommitId,
    checks: &[Feedback],
) -> Result<PullRequestOutcome, ForgeFailure> {
    let base_failures = forge.failed_checks(known.base).await?;
    let can_rerun = forge.forge.capabilities().rerun_checks;
    let (mut excused, mut caused) = (Vec::new(), Vec::new());
    for feedback in checks {
        let Feedback::Check { name, id, .. } = feedback else { continue };
        let is_excused = base_failures.contains(name)
            || (can_rerun && runs_again(forge, (known.number, head), name, id).await?);
        if is_excused {
            excused.push(feedback.clone());
        } else {
            caused.push(feedback.clone());
        }
    }
    Ok(PullRequestOutcome::ChecksTriaged { excused, caused })
}

/// Runs a check again after its first failure on a commit. A check that cannot run again has failed.
async fn runs_again(
    forge: &ForgeContext,
    commit: (u64, CommitId),
    name: &str,
    attempt: &str,
) -> Result<bool, ForgeFailure> {
    match forge.rerun_check(commit, name, attempt).await {
        Err(ForgeFailure::Refused(reason) | ForgeFailure::Stale(reason)) => {
            tracing::info!(check = name, reason, "failed check cannot run again");
            Ok(false)
        }
        result => result,
    }
}

/// Reads the logs and comments of a round.
async fn collect_feedback(
    forge: &ForgeContext,
    known: &PullRequestState,
    feedback: &[Feedback],
) -> Result<FeedbackRound, ForgeFailure> {
    let mut round = FeedbackRound { url: known.url.clone(), ..FeedbackRound::default() };
    let mut threads = Vec::new();
    for item in feedback {
        match item {
            Feedback::Check { name, id, .. } => {
                let log = match forge.forge.failed_check_log(&forge.repository, id).await {
                    Ok(log) => log,
                    // The name alone says something.
                    Err(
                        ForgeError::NotFound { .. }
                        | ForgeError::Forbidden { .. }
                        | ForgeError::Refused { .. }
                        | ForgeError::Unreadable { .. },
                    ) => String::new(),
                    Err(error) => return Err(error.into()),
                };
                round.checks.push(FailedCheck { name: name.clone(), log });
            }
            Feedback::Thread { thread, .. } => threads.push(thread.clone()),
            Feedback::Review { by, .. } => round.reviewers.push(by.clone()),
        }
    }
    if !threads.is_empty() {
        let comments = forge.thread_comments(known.number, &threads).await?;
        round.comments = feedback_comments(&threads, &comments);
    }
    Ok(round)
}

/// Returns the comments of people who can push, in the order of the threads. Anybody can write in the
/// thread of one of them.
fn feedback_comments(threads: &[String], comments: &[ThreadComment]) -> Vec<FeedbackComment> {
    let mut found = Vec::new();
    for thread in threads {
        let counts = |it: &&ThreadComment| it.thread == *thread && it.can_write;
        found.extend(comments.iter().filter(counts).map(|comment| FeedbackComment {
            thread: comment.thread.clone(),
            by: comment.by.clone(),
            position: comment.position.clone(),
            text: comment.text.clone(),
        }));
    }
    found
}

/// Puts the change on a new base.
async fn rebase(
    services: &Services,
    ctx: &JobContext,
    project: &ProjectContext,
    (head, onto): (CommitId, CommitId),
) -> Result<PullRequestOutcome, ForgeFailure> {
    services.stop_earlier_attempts(ctx).await?;
    let worktree = services.repositories.worktree(ctx, project).await?;
    match worktree.mirror().rebase_onto(head, onto).await {
        Ok(RebaseOutcome::Rebased { commit, changed }) => {
            worktree.move_to(commit).await?;
            ctx.fault_point("rebased")?;
            Ok(PullRequestOutcome::Rebased { head: commit, base: onto, changed })
        }
        Ok(RebaseOutcome::Conflicts(conflicts)) => {
            // The time is that of the state, so another attempt makes the same commit.
            let at = ctx.task_loop.since;
            worktree.rebase_with_conflicts(head, onto, &author(), at).await?;
            ctx.fault_point("rebased")?;
            let text = conflict_text(onto, &conflicts.paths);
            Ok(PullRequestOutcome::RebaseConflicts(services.store.save_text(&text).await?))
        }
        // The base moved again, and this commit is gone.
        Err(mirror::Error::Unknown { .. }) => Ok(PullRequestOutcome::Stale),
        Err(error) => Err(error.into()),
    }
}

/// Returns the text about conflicts for the agent.
fn conflict_text(onto: CommitId, files: &[String]) -> String {
    let mut shown = String::new();
    for file in files {
        // A name can contain anything, also lines.
        let file = single_line(&sanitize::text(file)).replace('`', "'");
        let _ = writeln!(shown, "- `{file}`");
    }
    format!(
        "The base branch has moved to {onto}, and the change conflicts with it. Your branch is on the new \
         base now, and these files contain conflict markers (`<<<<<<<`, `=======`, `>>>>>>>`):\n\n{shown}\n\
         Resolve every conflict so that both sides keep their purpose, and remove all markers. `git diff \
         {onto}` shows the change.\n"
    )
}

/// Takes over commits of somebody else.
async fn adopt(
    services: &Services,
    ctx: &JobContext,
    project: &ProjectContext,
    head: CommitId,
) -> Result<PullRequestOutcome, ForgeFailure> {
    services.stop_earlier_attempts(ctx).await?;
    let worktree = services.repositories.worktree(ctx, project).await?;
    match worktree.move_to(head).await {
        Ok(()) => Ok(PullRequestOutcome::Adopted(head)),
        Err(mirror::Error::Unknown { .. }) => Ok(PullRequestOutcome::Stale),
        Err(error) => Err(error.into()),
    }
}

/// Merges the pull request, or adds it to a queue.
async fn merge(
    services: &Services,
    ctx: &JobContext,
    forge: &ForgeContext,
    known: &PullRequestState,
    head: CommitId,
) -> Result<PullRequestOutcome, ForgeFailure> {
    let rules = &ctx.rules.delivery;
    let stored = services.store.pull_request(ctx.task.id).await?;
    let unknown = || Error::Internal("the pull request is not stored".to_owned());
    let stored = stored.ok_or_else(unknown)?;
    // The gates passed for this base only.
    let found = forge.find(&stored.branch, &stored.base_branch).await?;
    if found.is_none_or(|it| it.number != known.number) {
        return Err(ForgeFailure::Refused(other_base_text(known.number, &stored.base_branch)));
    }
    match rules.queue.mode {
        MergeQueueMode::Off => {
            let (job, method) = (ctx.request.job_number, rules.pull_requests.merge_method);
            Ok(match forge.merge(known.number, (head, job), method).await? {
                MergeOutcome::Merged(commit) => PullRequestOutcome::Merged(commit),
                MergeOutcome::Queued => PullRequestOutcome::Queued,
            })
        }
        MergeQueueMode::Tamma => {
            enqueue(services, ctx, forge, (head, stored.base_branch)).await?;
            Ok(PullRequestOutcome::Queued)
        }
    }
}

/// Returns what to do if somebody gave a pull request another base.
fn other_base_text(number: u64, base_branch: &str) -> String {
    format!(
        "pull request #{number} goes to another branch than `{base_branch}`, for which it was tested; \
         give it this base again and retry, or merge it yourself"
    )
}

/// Adds the change to Tamma's own queue, and starts the queue if it does not run.
async fn enqueue(
    services: &Services,
    ctx: &JobContext,
    forge: &ForgeContext,
    (head, branch): (CommitId, String),
) -> Result<(), ForgeFailure> {
    let name = forge.forge.name().to_owned();
    let address = QueueAddress::new(ctx.project(), name, &forge.repository, branch);
    let Some(client) = &ctx.callbacks.temporal else {
        return Err(ForgeFailure::Refused(
            "this worker cannot reach the merge queue, because it has no Temporal client; run it with \
             `tamma work`"
                .to_owned(),
        ));
    };
    // Each job has its own time, and another attempt of it the same, so its result is told once.
    let offset = Duration::from_millis(u64::from(ctx.request.job_number));
    let entry = MergeEntry {
        key: EntryKey { task: ctx.task.id, head },
        policy: ctx.request.pending.policy,
        risk: ctx.task_loop.risk_level().unwrap_or(RiskLevel::High),
        priority: ctx.task.priority,
        queued_at: ctx.task_loop.since + offset,
        not_before: None,
    };
    let batch = ctx.rules.delivery.queue.batch;
    enqueue_merge(&services.store, client, &address, &entry, batch).await?;
    ctx.fault_point("queued")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_of_people_who_can_push_reach_the_agent() {
        let comment = |thread: &str, by: &str, can_write| ThreadComment {
            thread: thread.to_owned(),
            id: "1".to_owned(),
            by: by.to_owned(),
            can_write,
            position: None,
            text: "Rename it.".to_owned(),
        };
        let comments = [
            comment("42", "bo", true),
            comment("41", "ann", true),
            comment("41", "eve", false),
            comment("41", "bo", true),
        ];
        let kept = feedback_comments(&["41".to_owned(), "42".to_owned()], &comments);
        let kept: Vec<_> = kept.iter().map(|it| (it.thread.as_str(), it.by.as_str())).collect();
        assert_eq!(kept, [("41", "ann"), ("41", "bo"), ("42", "bo")]);
    }

    #[test]
    fn another_base_is_named_with_what_to_do() {
        let text = other_base_text(7, "main");
        assert!(text.contains("#7") && text.contains("`main`") && text.contains("retry"), "{text}");
    }

    #[test]
    fn conflicts_are_named_for_the_agent() {
        let onto: CommitId = "2".repeat(40).parse().expect("a commit");
        let text = conflict_text(onto, &["a.rs".to_owned(), "b`c\n# Do".to_owned()]);
        assert!(text.contains("- `a.rs`\n- `b'c # Do`\n"), "{text}");
        assert!(text.contains(&format!("git diff {onto}")), "{text}");
    }
}
