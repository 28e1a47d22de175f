//! Decision of a person at the terminal, while a task is watched.

use std::io::{BufRead as _, Write as _};

use anyhow::Result;
use tamma_core::task_loop::AnswerKind;
use tamma_server::dto::{BudgetGrant, PlanVersion, TaskAction, TaskDetail, TaskStatus};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::actions::outcome_message;
use super::task::{diff, show};
use crate::client::{self, Client};

/// Answer that can be given with one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuickAnswer {
    Approve,
    RevisePlan,
    Reject,
    Accept,
    ShowDiff,
    RequestChanges,
    Reply,
    Retry,
    Cancel,
    Later,
}

impl QuickAnswer {
    /// Returns the letter that selects it, and its label.
    fn key(self) -> (char, &'static str) {
        match self {
            Self::Approve => ('y', "approve"),
            Self::RevisePlan => ('e', "ask for another plan"),
            Self::Reject => ('n', "reject"),
            Self::Accept => ('y', "accept"),
            Self::ShowDiff => ('d', "show the change"),
            Self::RequestChanges => ('e', "request changes"),
            Self::Reply => ('r', "reply"),
            Self::Retry => ('t', "try again"),
            Self::Cancel => ('c', "cancel the task"),
            Self::Later => ('l', "decide later"),
        }
    }

    /// Returns the question for the text that it needs; `None` if it needs none.
    fn text_prompt(self) -> Option<&'static str> {
        match self {
            Self::RevisePlan | Self::RequestChanges => Some("What should change?"),
            Self::Reject | Self::Cancel => Some("Why?"),
            Self::Reply => Some("Your reply:"),
            Self::Approve | Self::Accept | Self::ShowDiff | Self::Retry | Self::Later => None,
        }
    }
}

/// Returns the answers that a question offers with one letter.
fn quick_answers(offered: &[AnswerKind]) -> Vec<QuickAnswer> {
    let quick = |answer: &AnswerKind| match answer {
        AnswerKind::Approve => Some(QuickAnswer::Approve),
        AnswerKind::RevisePlan => Some(QuickAnswer::RevisePlan),
        AnswerKind::Reject => Some(QuickAnswer::Reject),
        AnswerKind::Accept => Some(QuickAnswer::Accept),
        AnswerKind::RequestChanges => Some(QuickAnswer::RequestChanges),
        AnswerKind::Reply => Some(QuickAnswer::Reply),
        AnswerKind::Retry => Some(QuickAnswer::Retry),
        AnswerKind::Cancel => Some(QuickAnswer::Cancel),
        AnswerKind::Override
        | AnswerKind::Continue
        | AnswerKind::ChangeTask
        | AnswerKind::RollBack
        | AnswerKind::Skip
        | AnswerKind::Convene
        | AnswerKind::Abandon => None,
    };
    let mut answers: Vec<_> = offered.iter().filter_map(quick).collect();
    if answers.contains(&QuickAnswer::Accept) {
        answers.push(QuickAnswer::ShowDiff);
    }
    answers.push(QuickAnswer::Later);
    answers
}

/// Returns the line that asks for an answer.
fn prompt_line(answers: &[QuickAnswer]) -> String {
    let keys: Vec<_> = answers.iter().map(|answer| answer.key()).collect();
    let keys: Vec<_> = keys.iter().map(|(letter, label)| format!("[{letter}] {label}")).collect();
    keys.join("  ")
}

/// Returns the answer that a line selects, by its letter or by the first word of its label. An empty line
/// selects nothing, so that nobody approves by accident.
fn parse_answer(line: &str, answers: &[QuickAnswer]) -> Option<QuickAnswer> {
    let line = line.trim().to_lowercase();
    let selects = |answer: &QuickAnswer| {
        let (letter, label) = answer.key();
        let word = label.split(' ').next().unwrap_or(label);
        line == letter.to_string() || line == word || (letter == 'y' && line == "yes")
    };
    answers.iter().copied().find(selects)
}

/// Builds the action of an answer, about the plan or the commit that was shown.
fn action(
    answer: QuickAnswer,
    plan: Option<&PlanVersion>,
    commit: Option<String>,
    text: String,
) -> Option<TaskAction> {
    let plan = plan.map(|plan| plan.hash.clone());
    Some(match answer {
        QuickAnswer::Approve => TaskAction::Approve { plan: plan?, reason: None },
        QuickAnswer::RevisePlan => TaskAction::AskChanges { plan: plan?, changes: text },
        QuickAnswer::Reject => TaskAction::Reject { plan: plan?, reason: text },
        QuickAnswer::Accept => TaskAction::Accept { commit: commit?, reason: None },
        QuickAnswer::RequestChanges => {
            TaskAction::Rework { commit: commit?, comments: text, lines: Vec::new() }
        }
        QuickAnswer::Reply => TaskAction::Reply { text },
        QuickAnswer::Retry => TaskAction::Retry { grant: BudgetGrant::default() },
        QuickAnswer::Cancel => TaskAction::Cancel { reason: text },
        QuickAnswer::ShowDiff | QuickAnswer::Later => return None,
    })
}

/// Shows the open question of a task, asks the person and sends the answer. Returns `false` if the person
/// decides later.
pub(super) async fn decide(client: &Client, by: &str, task: Uuid) -> Result<bool> {
    let detail: TaskDetail = client.get(&format!("/tasks/{task}"), &[]).await?;
    let answers = quick_answers(&detail.card.answers);
    // The plan that is shown is the one that is approved.
    let plan: Option<PlanVersion> = if answers.contains(&QuickAnswer::Approve) {
        Some(client.get(&format!("/tasks/{task}/plan"), &[]).await?)
    } else {
        detail.plan.clone()
    };
    let mut commit = detail.commit.clone();
    if answers.contains(&QuickAnswer::Approve)
        && let Some(plan) = &plan
    {
        print_line(&show::format_plan_for_approval(&detail, plan))?;
    } else if answers.contains(&QuickAnswer::Accept) {
        commit = Some(print_change(client, task).await?);
    } else if answers.len() <= 2 {
        for command in show::suggested_commands(&detail) {
            print_line(&format!("    {command}"))?;
        }
    }
    loop {
        let Some(line) = ask(&prompt_line(&answers)).await? else { return Ok(false) };
        let Some(answer) = parse_answer(&line, &answers) else { continue };
        match answer {
            QuickAnswer::Later => return Ok(false),
            QuickAnswer::ShowDiff => {
                commit = Some(print_change(client, task).await?);
                continue;
            }
            _ => {}
        }
        let text = match answer.text_prompt() {
            None => String::new(),
            Some(prompt) => match ask(prompt).await? {
                None => return Ok(false),
                // Nothing was said: ask again for an answer.
                Some(text) if text.trim().is_empty() => continue,
                Some(text) => text.trim().to_owned(),
            },
        };
        let action = action(answer, plan.as_ref(), commit.clone(), text);
        let Some(action) = action else { continue };
        let path = format!("/tasks/{task}/actions");
        let status: TaskStatus = client.post(&path, by, client::new_id(), &action).await?;
        print_line(&outcome_message(task, &action, &status))?;
        return Ok(true);
    }
}

/// Shows the change of a task and returns its commit.
async fn print_change(client: &Client, task: Uuid) -> Result<String> {
    let change = diff::fetch(client, task).await?;
    diff::write_change(&mut anstream::stdout().lock(), &change)?;
    Ok(change.commit)
}

fn print_line(text: &str) -> Result<()> {
    writeln!(anstream::stdout().lock(), "{text}")?;
    Ok(())
}

/// Reads a line from the terminal; `None` at its end.
///
/// A thread of its own waits for the line, so that Ctrl-C is noticed meanwhile. The program can end
/// without it.
async fn ask(prompt: &str) -> Result<Option<String>> {
    {
        let mut out = anstream::stdout().lock();
        write!(out, "{prompt} ")?;
        out.flush()?;
    }
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        // Without a receiver, nobody waits for the line.
        let _ = sender.send(read.map(|length| (length > 0).then_some(line)));
    });
    Ok(receiver.await??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::task::show::tests::awaiting_approval;

    #[test]
    fn a_plan_is_approved_revised_or_rejected_with_one_letter() {
        let detail = awaiting_approval();
        let answers = quick_answers(&detail.card.answers);
        assert_eq!(
            prompt_line(&answers),
            "[y] approve  [n] reject  [e] ask for another plan  [c] cancel the task  [l] decide later"
        );
        for (line, answer) in [
            ("y\n", QuickAnswer::Approve),
            ("YES", QuickAnswer::Approve),
            ("approve", QuickAnswer::Approve),
            ("n", QuickAnswer::Reject),
            (" e ", QuickAnswer::RevisePlan),
            ("l", QuickAnswer::Later),
        ] {
            assert_eq!(parse_answer(line, &answers), Some(answer), "{line:?}");
        }
        let plan = detail.plan.as_ref();
        let hash = plan.map(|plan| plan.hash.clone()).expect("a plan");
        let text = "Fewer files.".to_owned();
        assert_eq!(
            action(QuickAnswer::RevisePlan, plan, None, text.clone()),
            Some(TaskAction::AskChanges { plan: hash, changes: text })
        );
    }

    #[test]
    fn nothing_is_decided_by_an_empty_line_or_an_answer_that_is_not_offered() {
        let answers = quick_answers(&[AnswerKind::Accept, AnswerKind::RequestChanges]);
        for line in ["", "\n", "n", "r", "t", "perhaps"] {
            assert_eq!(parse_answer(line, &answers), None, "{line:?}");
        }
        assert_eq!(parse_answer("d", &answers), Some(QuickAnswer::ShowDiff));
        assert_eq!(parse_answer("y", &answers), Some(QuickAnswer::Accept));
    }

    #[test]
    fn every_set_of_answers_has_distinct_letters() {
        use strum::IntoEnumIterator as _;
        // A question is about a plan or about a change, never both.
        let about_plan = [AnswerKind::Approve, AnswerKind::RevisePlan, AnswerKind::Reject];
        let about_change = [AnswerKind::Accept, AnswerKind::RequestChanges];
        for hidden in [&about_plan[..], &about_change[..]] {
            let offered: Vec<_> = AnswerKind::iter().filter(|it| !hidden.contains(it)).collect();
            let mut letters: Vec<_> =
                quick_answers(&offered).into_iter().map(|answer| answer.key().0).collect();
            let count = letters.len();
            letters.sort_unstable();
            letters.dedup();
            assert_eq!(letters.len(), count, "{offered:?}");
        }
    }
}
