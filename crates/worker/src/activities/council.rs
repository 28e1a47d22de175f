//! `convene` activity: asks one council member, or the chair, about a stuck task.
//!
//! A member gets the earlier attempts but no opinion of other members, and a home directory of its
//! own. The chair gets all opinions. Submissions are validated like plans.

use std::fmt::Write as _;

use serde_json::json;
use tamma_core::council::{
    CouncilConclusion, CouncilOpinion, CouncilSeat, MemberOpinion, OpinionRecord, render_minutes,
    render_opinions,
};
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::rules::AgentSelection;
use tamma_core::task_loop::Outcome;
use tamma_core::tier::Tier;
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::Submission;
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::JobResult;

use super::attempts::{JudgedAttempt, load_attempts, truncate_middle};
use super::plan::{current_plan, plan_text};
use crate::error::Error;
use crate::job_context::JobContext;
use crate::prompts::{Prompt, criteria_data, task_facts};
use crate::retry::retry_until_stopped;
use crate::runs::{AgentRun, AgentSlot, UncommittedAssignment};
use crate::services::Services;

/// Maximum length of the diff and of the report of one attempt, in bytes.
const MAX_ATTEMPT_BYTES: usize = 8_000;

/// Maximum length of all attempts together, in bytes. The newest are kept.
const MAX_TOTAL_BYTES: usize = 80_000;

pub(super) async fn convene(
    services: &Services,
    ctx: &JobContext,
    council: u8,
    seat: Option<CouncilSeat>,
    opinions: &[OpinionRecord],
) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let (plan, criteria) = if let Some(plan) = &ctx.task_loop.plan {
        let current = current_plan(services, ctx).await?;
        let text = plan_text(services, ctx, &plan.stored_at).await?;
        (text, criteria_data(current.criteria_of(&ctx.task)))
    } else {
        let criteria = criteria_data(&ctx.task.acceptance_criteria);
        let text = match &ctx.task_loop.submitted_plan {
            Some(submitted) => services.store.text(submitted).await?,
            None => "There is no plan yet.".to_owned(),
        };
        (text, criteria)
    };
    let question = ctx.task_loop.council.as_ref().and_then(|call| call.question.as_ref());
    let question = match question {
        Some(question) => Some(services.store.text(question).await?),
        None => None,
    };
    let attempts = load_attempts(services, ctx).await?;
    let reason = ctx.task_loop.decision.map(|decision| decision.to_string());
    // Plan errors or output of a hook: failures outside of attempts.
    let note = match &ctx.task_loop.note {
        Some(note) => Some(truncate_middle(&services.store.text(note).await?, MAX_ATTEMPT_BYTES)),
        None => None,
    };
    let tried = describe_attempts(ctx, &worktree, &attempts).await?;
    let prompts = services.prompts(ctx).await?;
    let render = |prompt: Prompt, opinions: &str| {
        let values = json!({
            "criteria": criteria, "plan": plan, "why": reason, "attempts": tried,
            "note": note, "opinions": opinions, "question": question,
            "reviews_plan": ctx.task_loop.council_reviews_plan(),
        });
        prompts.render(prompt, task_facts(ctx, None, values))
    };
    let judge = |slot, mode, prompt| {
        let assignment = UncommittedAssignment { slot, mode, prompt, brief: None };
        services.agents.run_uncommitted(ctx, &project, &worktree, assignment)
    };
    let rules = &ctx.rules.council;
    match seat {
        Some(seat @ CouncilSeat::Member(number)) => {
            let slot = AgentSlot {
                selection: seat.member(rules).clone(),
                home: Some(member_home(council, number)),
            };
            let prompt = render(Prompt::Advise, "")?;
            let run = judge(slot, RunMode::Advise, prompt).await?;
            ctx.fault_point("agent ended")?;
            match &run.report.end {
                RunEnd::Finished { submission: Submission::Opinion(opinion), .. } => {
                    let text = serde_json::to_string_pretty(opinion).unwrap_or_default();
                    let reference =
                        retry_until_stopped(&ctx.stop, || services.store.save_text(&text)).await?;
                    Ok(finished_result(&run, Outcome::OpinionGiven(reference)))
                }
                _ => unusable_submission(services, ctx, run).await,
            }
        }
        Some(CouncilSeat::Chair) => {
            let members = member_opinions(services, ctx, opinions).await?;
            let home = Some(format!("council-{council}-chair"));
            let slot = AgentSlot { selection: rules.chair.clone(), home };
            let prompt = render(Prompt::Conclude, &render_opinions(&members))?;
            let run = judge(slot, RunMode::Conclude, prompt).await?;
            ctx.fault_point("agent ended")?;
            match &run.report.end {
                RunEnd::Finished { submission: Submission::Conclusion(conclusion), .. } => {
                    let text = render_minutes(conclusion, &rules.chair, &members);
                    let reference =
                        retry_until_stopped(&ctx.stop, || services.store.save_text(&text)).await?;
                    Ok(finished_result(&run, Outcome::CouncilConcluded(reference)))
                }
                _ => unusable_submission(services, ctx, run).await,
            }
        }
        // Older editions have no seats: one model gives the conclusion.
        None => {
            let seat = AgentSelection::from(Tier::TOP);
            let prompt = render(Prompt::Advise, "")?;
            let run = judge(seat.clone().into(), RunMode::Advise, prompt).await?;
            ctx.fault_point("agent ended")?;
            match &run.report.end {
                RunEnd::Finished { submission: Submission::Opinion(opinion), .. } => {
                    let CouncilOpinion { root_cause, fix, against, architectural_insights, .. } =
                        opinion.clone();
                    let dissent = vec![against];
                    let conclusion =
                        CouncilConclusion { root_cause, fix, dissent, architectural_insights };
                    let text = render_minutes(&conclusion, &seat, &[]);
                    let reference =
                        retry_until_stopped(&ctx.stop, || services.store.save_text(&text)).await?;
                    Ok(finished_result(&run, Outcome::CouncilConcluded(reference)))
                }
                _ => unusable_submission(services, ctx, run).await,
            }
        }
    }
}

/// Builds the result for a council seat without a usable submission.
async fn unusable_submission(
    services: &Services,
    ctx: &JobContext,
    run: AgentRun,
) -> Result<JobResult, Error> {
    let RunEnd::Finished { submission, .. } = &run.report.end else {
        return services.agents.handle_unfinished(ctx, run).await;
    };
    let errors = match submission {
        Submission::Invalid { errors, .. } => errors.join("; "),
        _ => "nothing was submitted".to_owned(),
    };
    let reason: String = format!("invalid submission: {errors}")
        .chars()
        .take(tamma_core::ids::Reason::MAX)
        .collect();
    let reason = reason.parse().map_err(|_| Error::Internal("a reason is empty".to_owned()))?;
    Ok(finished_result(&run, Outcome::Failed(JobFailure { kind: FailureKind::Crashed, reason })))
}

/// Loads the stored opinions of the members.
async fn member_opinions(
    services: &Services,
    ctx: &JobContext,
    opinions: &[OpinionRecord],
) -> Result<Vec<MemberOpinion>, Error> {
    let mut spoken = Vec::new();
    for (seat, opinion) in ctx.rules.council.members.iter().zip(opinions) {
        let view = match opinion {
            OpinionRecord::Absent => None,
            OpinionRecord::Stored(kept) => {
                let text = services.store.text(kept).await?;
                let odd = |error| Error::Internal(format!("cannot read a stored opinion: {error}"));
                Some(serde_json::from_str(&text).map_err(odd)?)
            }
        };
        spoken.push(MemberOpinion { member: seat.clone(), opinion: view });
    }
    Ok(spoken)
}

/// Describes the attempts with their errors, diffs and decisions. The oldest are omitted if the
/// text would be too long.
async fn describe_attempts(
    ctx: &JobContext,
    worktree: &Worktree,
    attempts: &[JudgedAttempt],
) -> Result<String, Error> {
    let (base, mut texts, mut length) = (ctx.base()?, Vec::new(), 0);
    for attempt in attempts.iter().rev() {
        let tier = attempt.tier.map(|tier| format!(", {tier} tier")).unwrap_or_default();
        let mut text = format!("## Attempt {}{tier}: {}\n", attempt.number, attempt.outcome);
        if let Some(decision) = attempt.decision {
            let _ = writeln!(text, "\nTamma then decided to {decision}.");
        }
        if let Some(report) = &attempt.report {
            let _ = writeln!(text, "\n{}", truncate_middle(report.trim(), MAX_ATTEMPT_BYTES));
        }
        if let Some(commit) = attempt.commit {
            let diff = worktree.diff(base, commit).await?;
            let diff = truncate_middle(diff.text.trim(), MAX_ATTEMPT_BYTES);
            let _ = writeln!(text, "\nDiff against the base commit:\n\n````diff\n{diff}\n````");
        }
        length += text.len();
        if length > MAX_TOTAL_BYTES && !texts.is_empty() {
            texts.push("Earlier attempts are omitted.\n".to_owned());
            break;
        }
        texts.push(text);
    }
    texts.reverse();
    Ok(if texts.is_empty() { "There are no attempts yet.".to_owned() } else { texts.join("\n") })
}

/// Returns the home directory of a member. Separate homes keep opinions independent.
fn member_home(council: u8, member: u8) -> String {
    format!("council-{council}-member-{member}")
}

fn finished_result(run: &AgentRun, outcome: Outcome) -> JobResult {
    JobResult::finished(outcome).with_usage(run.report.usage)
}
