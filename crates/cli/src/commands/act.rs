//! Steering a task: approvals, answers, pauses.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use tamma_core::cost::Usd;
use tamma_core::task_loop::{self, State};
use tamma_server::shape::{Action, Grant, LineComment, PlanVersion, Standing, Whole, short};
use uuid::Uuid;

use super::task::show;
use crate::client::{self, Asker, Client, Target};
use crate::{look, output};

/// A task, and who asks.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

/// `tamma approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    one: One,
    /// The plan you have seen: the first digits of its hash, at least eight. Without it, the plan is
    /// shown and you are asked.
    #[arg(long, value_name = "HASH")]
    plan: Option<String>,
    /// Why, for the log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// `tamma reject`.
#[derive(Debug, Args)]
pub(crate) struct Reject {
    #[command(flatten)]
    one: One,
    /// Why, for the log and for the next plan.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The plan you have seen. By default the one that is there now.
    #[arg(long, value_name = "HASH")]
    plan: Option<String>,
}

/// `tamma modify`.
#[derive(Debug, Args)]
pub(crate) struct Modify {
    #[command(flatten)]
    one: One,
    /// What is to be different.
    text: String,
}

/// `tamma cancel`.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    one: One,
    /// Why, for the log.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// What a task may use beyond its limits.
#[derive(Debug, Clone, Args)]
pub(crate) struct More {
    /// US dollars it may spend beyond its limit.
    #[arg(long = "grant-usd", value_name = "DOLLARS", default_value = "0")]
    usd: Usd,
    /// Runs it may have beyond its limit.
    #[arg(long = "grant-runs", value_name = "NUMBER", default_value_t = 0)]
    runs: u16,
    /// Tokens it may use beyond its limit.
    #[arg(long = "grant-tokens", value_name = "NUMBER", default_value_t = 0)]
    tokens: u64,
}

/// `tamma retry`.
#[derive(Debug, Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    more: More,
}

/// `tamma reply`.
#[derive(Debug, Args)]
pub(crate) struct Reply {
    #[command(flatten)]
    one: One,
    /// What the agent is told.
    text: String,
}

/// `tamma answer`.
#[derive(Debug, Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    one: One,
    /// The answer: one of those that the task names.
    #[arg(value_enum, value_name = "ANSWER")]
    word: Word,
    /// Why, or what is to be different.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Where to roll back to.
    #[arg(long, value_name = "STATE")]
    to: Option<State>,
    /// The plan you have seen, for `approve`, `reject`, `ask-changes` and `override`.
    #[arg(long, value_name = "HASH")]
    plan: Option<String>,
    /// The commit you have reviewed, for `accept` and `rework`.
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
    /// What is to be different on a line of the change, for `rework`; may be given several times.
    /// `tamma task diff` shows the numbers.
    #[arg(long = "comment", value_name = "FILE:LINE:TEXT", value_parser = line_comment)]
    comments: Vec<LineComment>,
    #[command(flatten)]
    more: More,
}

/// A comment on a line, as it is written.
fn line_comment(text: &str) -> Result<LineComment, String> {
    let wrong = || format!("`{text}` is not FILE:LINE:TEXT, such as `src/a.rs:12:name it`");
    let mut parts = text.splitn(3, ':').map(str::trim);
    let (Some(file), Some(line), Some(said)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let line = line.parse().ok().filter(|line| *line > 0).ok_or_else(wrong)?;
    if file.is_empty() || said.is_empty() {
        return Err(wrong());
    }
    Ok(LineComment { file: file.to_owned(), line, text: said.to_owned() })
}

/// What can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Word {
    Approve,
    Reject,
    AskChanges,
    Override,
    Accept,
    Rework,
    Reply,
    Continue,
    Modify,
    Retry,
    RollBack,
    Skip,
    Cancel,
    Abandon,
    Acknowledge,
}

impl From<More> for Grant {
    fn from(more: More) -> Self {
        Self { iterations: more.runs, usd: more.usd, tokens: more.tokens }
    }
}

impl One {
    /// Finds the task, makes of it what is asked, and asks.
    fn ask(
        &self,
        action: impl AsyncFnOnce(&Client, &Whole) -> Result<Option<Action>>,
    ) -> Result<ExitCode> {
        client::run(&self.target, async {
            let client = Client::new(&self.target)?;
            let by = self.asker.name()?;
            let id = client.which(&self.id).await?;
            let whole: Whole = client.get(&format!("/tasks/{id}"), &[]).await?;
            let Some(action) = action(&client, &whole).await? else {
                return Ok(ExitCode::FAILURE);
            };
            let standing: Standing = client
                .post(&format!("/tasks/{id}/actions"), &by, client::new_id(), &action)
                .await?;
            if self.target.json {
                output::json(&standing)?;
            } else {
                let said = told(id, &action, &standing);
                let mut out = anstream::stdout().lock();
                writeln!(out, "{said}")?;
                if matches!(action, Action::Approve { .. }) {
                    writeln!(out, "Follow it with `tamma task watch {}`.", whole.card.short)?;
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// What came of it, in words.
fn told(id: Uuid, action: &Action, standing: &Standing) -> String {
    let done = match action {
        Action::Approve { .. } => "approved",
        Action::Reject { .. } => "rejected",
        Action::AskChanges { .. } => "sent back for changes of its plan",
        Action::Override { .. } => "freed from the prohibition",
        Action::Accept { .. } => "accepted",
        Action::Rework { .. } => "sent back for rework",
        Action::Pause {} => "paused",
        Action::Resume {} => "resumed",
        Action::Cancel { .. } => "cancelled",
        Action::Modify { .. } => "modified",
        Action::Retry { .. } => "tried again",
        Action::Reply { .. } => "answered",
        Action::Continue { .. } => "continued",
        Action::RollBack { .. } => "rolled back",
        Action::Skip { .. } => "skipped ahead",
        Action::Abandon { .. } => "abandoned",
        Action::Acknowledge {} => "seen",
    };
    let (by, state) = (output::plain(&standing.by), look::words(&standing.state));
    let state = look::paint(&state, look::of_state(standing.state));
    let paused = if standing.paused { ", paused" } else { "" };
    format!("{} {done} by {by}: it is {state}{paused}", short(id))
}

/// The hash of the plan that is there.
fn current(whole: &Whole) -> Result<&PlanVersion> {
    match &whole.plan {
        Some(plan) => Ok(plan),
        None => bail!(
            "task {} has no plan yet: it is {}",
            whole.card.short,
            look::words(&whole.card.state)
        ),
    }
}

/// Approves a plan that the person has seen.
pub(super) fn approve(approve: &Approve) -> Result<ExitCode> {
    let Approve { one, plan, reason } = approve;
    one.ask(async |client, whole| {
        let plan = match plan {
            Some(plan) => plan.clone(),
            None => match shown(client, whole, one.target.json).await? {
                Some(hash) => hash,
                None => return Ok(None),
            },
        };
        Ok(Some(Action::Approve { plan, reason: reason.clone() }))
    })
}

/// Shows the plan and asks. Returns its hash, if the person says yes.
async fn shown(client: &Client, whole: &Whole, json: bool) -> Result<Option<String>> {
    let plan: PlanVersion = client.get(&format!("/tasks/{}/plan", whole.card.id), &[]).await?;
    if json || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let hash = plan.hash.get(..12).unwrap_or(&plan.hash);
        bail!(
            "nobody is here to look at the plan. Look at it with `tamma task show {id}`, and then \
             say which one you have seen: `tamma approve {id} --plan {hash}`",
            id = whole.card.short,
        );
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", show::plan(whole, &plan))?;
    write!(out, "Approve this plan? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(Some(plan.hash));
    }
    writeln!(out, "Nothing was done. `tamma reject` or `tamma modify` says what is wrong.")?;
    Ok(None)
}

/// Rejects a plan.
pub(super) fn reject(reject: &Reject) -> Result<ExitCode> {
    let Reject { one, reason, plan } = reject;
    one.ask(async |_, whole| {
        let plan = plan.clone().map_or_else(|| current(whole).map(|it| it.hash.clone()), Ok)?;
        Ok(Some(Action::Reject { plan, reason: reason.clone() }))
    })
}

/// Asks for changes of a plan that waits, or changes what is wanted.
pub(super) fn modify(modify: &Modify) -> Result<ExitCode> {
    let Modify { one, text } = modify;
    one.ask(async |_, whole| {
        let waits = whole.card.answers.contains(&task_loop::Answer::AskChanges);
        Ok(Some(match &whole.plan {
            Some(plan) if waits => {
                Action::AskChanges { plan: plan.hash.clone(), changes: text.clone() }
            }
            _ => Action::Modify { note: text.clone() },
        }))
    })
}

/// Stops a task for now.
pub(super) fn pause(one: &One) -> Result<ExitCode> {
    one.ask(async |_, _| Ok(Some(Action::Pause {})))
}

/// Lets a task go on.
pub(super) fn resume(one: &One) -> Result<ExitCode> {
    one.ask(async |_, _| Ok(Some(Action::Resume {})))
}

/// Ends a task.
pub(super) fn cancel(cancel: &Cancel) -> Result<ExitCode> {
    let reason = cancel.reason.clone();
    cancel.one.ask(async |_, _| Ok(Some(Action::Cancel { reason })))
}

/// Tries again.
pub(super) fn retry(retry: &Retry) -> Result<ExitCode> {
    let grant = retry.more.clone().into();
    retry.one.ask(async |_, _| Ok(Some(Action::Retry { grant })))
}

/// Tells an agent what it wanted to know.
pub(super) fn reply(reply: &Reply) -> Result<ExitCode> {
    let text = reply.text.clone();
    reply.one.ask(async |_, _| Ok(Some(Action::Reply { text })))
}

/// Answers a task's question.
pub(super) fn answer(answer: &Answer) -> Result<ExitCode> {
    answer.one.ask(async |_, whole| action(answer, whole).map(Some))
}

/// The action that an answer is.
fn action(answer: &Answer, whole: &Whole) -> Result<Action> {
    if !answer.comments.is_empty() && answer.word != Word::Rework {
        bail!("`--comment` is for `rework`, which sends a change back");
    }
    let reason = || match &answer.reason {
        Some(reason) => Ok(reason.clone()),
        None => bail!("say why, or what is to be different, with `--reason`"),
    };
    let grant = || answer.more.clone().into();
    Ok(match answer.word {
        Word::Approve => {
            Action::Approve { plan: seen(answer, whole)?, reason: answer.reason.clone() }
        }
        Word::Reject => Action::Reject { plan: seen(answer, whole)?, reason: reason()? },
        Word::AskChanges => Action::AskChanges { plan: seen(answer, whole)?, changes: reason()? },
        Word::Override => Action::Override { plan: seen(answer, whole)?, reason: reason()? },
        Word::Accept => {
            Action::Accept { commit: reviewed(answer, whole)?, reason: answer.reason.clone() }
        }
        Word::Rework => Action::Rework {
            commit: reviewed(answer, whole)?,
            comments: match &answer.reason {
                None if answer.comments.is_empty() => {
                    bail!("say what is to be different, with `--reason` or with `--comment`")
                }
                reason => reason.clone().unwrap_or_default(),
            },
            lines: answer.comments.clone(),
        },
        Word::Reply => Action::Reply { text: reason()? },
        Word::Continue => Action::Continue { grant: grant() },
        Word::Modify => Action::Modify { note: reason()? },
        Word::Retry => Action::Retry { grant: grant() },
        Word::RollBack => match answer.to {
            Some(to) => Action::RollBack { to, reason: reason()? },
            None => bail!("say where to roll back to with `--to`, such as `--to planning`"),
        },
        Word::Skip => Action::Skip { reason: reason()? },
        Word::Cancel => Action::Cancel { reason: reason()? },
        Word::Abandon => Action::Abandon { reason: reason()? },
        Word::Acknowledge => Action::Acknowledge {},
    })
}

/// The plan that the person has seen. Nobody decides about one unseen.
fn seen(answer: &Answer, whole: &Whole) -> Result<String> {
    let hash = &current(whole)?.hash;
    match &answer.plan {
        Some(plan) => Ok(plan.clone()),
        None => bail!(
            "say which plan you have seen; the one that is there now is `--plan {}`",
            hash.get(..12).unwrap_or(hash)
        ),
    }
}

/// The commit that the person has reviewed.
fn reviewed(answer: &Answer, whole: &Whole) -> Result<String> {
    match (&answer.commit, &whole.commit) {
        (Some(commit), _) => Ok(commit.clone()),
        (None, Some(now)) => bail!(
            "say which commit you have reviewed; the one that is there now is `--commit {}`",
            now.get(..12).unwrap_or(now)
        ),
        (None, None) => bail!("task {} has no change to review yet", whole.card.short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_a_file_a_line_and_what_is_to_be_different() {
        let comment = line_comment("src/a.rs:12: use a: type").expect("a comment");
        assert_eq!(
            (comment.file.as_str(), comment.line, comment.text.as_str()),
            ("src/a.rs", 12, "use a: type")
        );
        for wrong in ["src/a.rs", "src/a.rs:12", "src/a.rs:0:no", "src/a.rs:x:no", ":1:no", "a:1: "]
        {
            assert!(line_comment(wrong).is_err(), "{wrong}");
        }
    }
}
