//! Asking a task for something: an approval, an answer, a pause.
//!
//! The machine in the task's workflow decides. Here the person's words are turned into an action,
//! and what they have seen is compared with what is there, so that nobody decides about something
//! that has changed meanwhile. The workflow compares again.

use tamma_core::approval::Binding;
use tamma_core::ids::{CommitId, Reason, TaskId};
use tamma_core::rules::Right;
use tamma_core::task_loop::{self, Refusal, TaskLoop};
use tamma_flow::{Ask, TaskFlow, workflow_id};
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_client::errors::WorkflowUpdateError;

use super::{App, By, Error, PATIENCE};
use crate::clock;
use crate::shape::{Action, Standing};

/// How many digits of a hash say which one is meant.
const DIGITS: usize = 8;

impl App {
    /// Asks a task for something. The same key is the same request.
    pub(crate) async fn ask(
        &self,
        task: TaskId,
        by: By,
        action: Action,
        key: Option<String>,
    ) -> Result<Standing, Error> {
        let machine = self.machine(task).await?;
        if machine.state.is_terminal() {
            return Err(Error::Refused(Refusal::Ended(machine.state).to_string()));
        }
        let action = self.understood(&machine, action).await?;
        match self.permit(&by, Right::from(&action), machine.project).await {
            // A mistake in a file does not keep those who run the server from stopping what runs.
            Err(Error::Unruled { why, .. }) if stops(&action) && by.known.is_operator() => {
                tracing::warn!(%by, known = %by.known, why, "is permitted to stop a task");
            }
            permitted => permitted?,
        }
        let ask = Ask { at: clock::now(), by: by.name.clone(), action };
        let key = key.unwrap_or_else(|| clock::new_id().to_string());
        let options = WorkflowExecuteUpdateOptions::builder().update_id(key).build();
        let handle = self.temporal.get_workflow_handle::<TaskFlow>(workflow_id(task));
        let asked = handle.execute_update(TaskFlow::ask, ask, options);
        let standing = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Ok(standing))) => standing,
            Ok(Ok(Err(refusal))) => return Err(Error::Refused(refusal)),
            Ok(Err(error)) => return Err(self.why_not(task, error).await),
            Err(_) => return Err(Error::NoAnswer),
        };
        Ok(Standing {
            state: standing.state,
            paused: standing.paused,
            step: standing.step,
            plan: standing.plan.map(|plan| plan.to_string()),
            by: by.to_string(),
        })
    }

    /// What a failed update means to the person.
    async fn why_not(&self, task: TaskId, error: WorkflowUpdateError) -> Error {
        match error {
            WorkflowUpdateError::Failed(failure) => Error::Refused(failure.message.clone()),
            // Its workflow has ended: in the meantime, or as long ago as its history is kept.
            WorkflowUpdateError::NotFound(status) => match self.machine(task).await {
                Ok(machine) if machine.state.is_terminal() => {
                    Error::Refused(Refusal::Ended(machine.state).to_string())
                }
                Ok(_) => Error::Fault(status.into()),
                Err(error) => error,
            },
            error @ WorkflowUpdateError::PayloadConversion(_) => Error::Fault(error.into()),
            error => Error::Unavailable { what: "The durable engine", source: error.into() },
        }
    }

    /// The action that the machine knows. Long texts are kept, and referred to.
    async fn understood(
        &self,
        machine: &TaskLoop,
        action: Action,
    ) -> Result<task_loop::Action, Error> {
        use task_loop::Action as A;
        Ok(match action {
            Action::Approve { plan, reason: why } => A::Approve {
                binding: seen(machine, &plan, "approve")?,
                reason: why.map(reason).transpose()?,
            },
            Action::Reject { plan, reason: why } => {
                A::Reject { binding: seen(machine, &plan, "reject")?, reason: reason(why)? }
            }
            Action::AskChanges { plan, changes } => A::AskChanges {
                binding: seen(machine, &plan, "ask_changes")?,
                changes: self.store.keep(&said(&changes)?).await?,
            },
            Action::Override { plan, reason: why } => {
                A::Override { binding: seen(machine, &plan, "override")?, reason: reason(why)? }
            }
            Action::Accept { commit, reason: why } => A::Accept {
                commit: reviewed(machine, &commit, "accept")?,
                reason: why.map(reason).transpose()?,
            },
            Action::Rework { commit, comments, lines } => {
                let commit = reviewed(machine, &commit, "rework")?;
                let text = self.commented(machine.task, commit, &comments, &lines).await?;
                A::Rework { commit, comments: self.store.keep(&text).await? }
            }
            Action::Pause {} => A::Pause,
            Action::Resume {} => A::Resume,
            Action::Cancel { reason: why } => A::Cancel { reason: reason(why)? },
            Action::Modify { note } => A::Modify { note: self.store.keep(&said(&note)?).await? },
            Action::Retry { grant } => A::Retry { grant: grant.into() },
            Action::Continue { grant } => A::Continue { grant: grant.into() },
            Action::Reply { text } => A::Reply { reply: self.store.keep(&said(&text)?).await? },
            Action::RollBack { to, reason: why } => A::RollBack { to, reason: reason(why)? },
            Action::Skip { reason: why } => A::Skip { reason: reason(why)? },
            Action::Abandon { reason: why } => A::Abandon { reason: reason(why)? },
            Action::Acknowledge {} => A::Acknowledge,
        })
    }
}

/// Whether an action only stops what runs.
fn stops(action: &task_loop::Action) -> bool {
    matches!(action, task_loop::Action::Pause | task_loop::Action::Cancel { .. })
}

/// What an approval is bound to, if the person has seen the plan that is there.
fn seen(machine: &TaskLoop, plan: &str, action: &str) -> Result<Binding, Error> {
    let binding = machine.binding().ok_or_else(|| not_now(machine, action))?;
    same("plan", plan, &binding.plan.to_string())?;
    Ok(binding)
}

/// The commit under review, if it is the one that the person has seen.
fn reviewed(machine: &TaskLoop, commit: &str, action: &str) -> Result<CommitId, Error> {
    let now = machine.commit.ok_or_else(|| not_now(machine, action))?;
    same("commit", commit, &now.to_string())?;
    Ok(now)
}

fn not_now(machine: &TaskLoop, action: &str) -> Error {
    let (state, action) = (machine.state, action.to_owned());
    Error::Refused(Refusal::NotNow { state, action }.to_string())
}

/// Whether digits are the first ones of a hash.
fn same(what: &'static str, seen: &str, now: &str) -> Result<(), Error> {
    let seen = seen.trim().to_ascii_lowercase();
    if seen.len() < DIGITS || !seen.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(Error::invalid(
            format!("`{seen}` does not say which {what} you have seen."),
            format!("Give at least the first {DIGITS} digits of the {what}'s hash."),
        ));
    }
    if now.starts_with(&seen) {
        return Ok(());
    }
    let first = |hash: &str| hash.chars().take(12).collect();
    Err(Error::Changed { what, seen: first(&seen), now: first(now) })
}

fn reason(text: impl AsRef<str>) -> Result<Reason, Error> {
    said(text.as_ref())?.parse().map_err(|_| {
        Error::invalid(
            format!("A reason has at most {} characters.", Reason::MAX),
            "Say it in fewer words.",
        )
    })
}

fn said(text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::invalid("The text is empty.", "Say why, or what is to be different."));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn the_first_eight_digits_of_a_hash_are_enough_and_seven_are_not() {
        assert!(same("plan", "01234567", HASH).is_ok());
        assert!(same("plan", " 0123456789ABCDEF ", HASH).is_ok());
        assert!(matches!(same("plan", "0123456", HASH), Err(Error::Invalid { .. })));
        assert!(matches!(same("plan", "", HASH), Err(Error::Invalid { .. })));
    }

    #[test]
    fn another_hash_is_told_with_both() {
        let error = same("plan", "fedcba9876543210", HASH).expect_err("another");
        let text = "The plan is now 0123456789ab, not fedcba987654: it has changed since you saw \
                    it.";
        assert_eq!(error.to_string(), text);
    }
}
