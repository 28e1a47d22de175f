//! Questions of running agents: people see them at once, and the run waits for the answer.
//!
//! The wait is shorter than the agent's limit for a tool call. If nobody answers in time, the run
//! ends, the question stays open, and the answer goes into the next run.

use std::sync::Arc;
use std::time::Duration;

use tamma_engine::agent_tools::{AgentQuestion, AskPerson};
use tamma_flow::QuestionOpened;
use tamma_store::Store;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::answered_questions;
use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::retry::retry_until_stopped;

/// Interval at which a waiting run looks for the answer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time that a run needs to end properly after a wait.
const TIME_TO_END: Duration = Duration::from_secs(30);

/// Returns the function that asks people and waits. `None` if the agent cannot wait.
pub(crate) fn ask_person(
    store: &Store,
    ctx: &JobContext,
    wait_seconds: u32,
    run_seconds: u32,
) -> Option<AskPerson> {
    if wait_seconds == 0 {
        return None;
    }
    let run_ends = Instant::now() + Duration::from_secs(u64::from(run_seconds));
    let longest = Duration::from_secs(u64::from(wait_seconds));
    let (store, ctx) = (store.clone(), ctx.clone());
    // A task has one open question at a time, so a second one waits for the answer to the first.
    // An unanswered question ends the run, so none is asked after it.
    let is_over = Arc::new(Mutex::new(false));
    let ask: AskPerson = Arc::new(move |question: AgentQuestion| {
        let (store, ctx, is_over) = (store.clone(), ctx.clone(), is_over.clone());
        let left = run_ends.saturating_duration_since(Instant::now()).saturating_sub(TIME_TO_END);
        let until = Instant::now() + longest.min(left);
        Box::pin(async move {
            let mut is_over = is_over.lock().await;
            if *is_over {
                return None;
            }
            let answer = match ask_and_wait(&store, &ctx, &question, until).await {
                Ok(answer) => answer,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(task = %ctx.task.id, error, "failed to wait for an answer");
                    None
                }
            };
            *is_over = answer.is_none();
            answer
        })
    });
    Some(ask)
}

async fn ask_and_wait(
    store: &Store,
    ctx: &JobContext,
    question: &AgentQuestion,
    until: Instant,
) -> Result<Option<String>, Error> {
    let text = answered_questions::format_question(&question.question, &question.choices, &[]);
    // The agent's call may have timed out before the answer came; it then asks again.
    if let Some(answer) = answered_questions::find_answer(store, ctx.task.id, &text).await? {
        return Ok(Some(answer));
    }
    let stop = &ctx.stop;
    let default_answer = match &question.default {
        Some(default) => Some(retry_until_stopped(stop, || store.save_text(default)).await?),
        None => None,
    };
    let question = retry_until_stopped(stop, || store.save_text(&text)).await?;
    let job_number = ctx.request.job_number;
    let opened = QuestionOpened { at: now(), job_number, question, default_answer };
    if !(ctx.callbacks.open_question)(opened).await? {
        return Ok(None);
    }
    while Instant::now() < until {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now()))) => {}
            () = stop.cancelled() => return Ok(None),
        }
        if let Some(answer) = answered_questions::find_answer(store, ctx.task.id, &text).await? {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}
