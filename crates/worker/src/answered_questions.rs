//! Questions of a task's agents, and people's answers.
//!
//! Both are stored as history entries that refer to a text. Later runs get them in their prompts,
//! and a permission that a person has granted once is not asked for again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tamma_core::actor::Actor;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::ids::TaskId;
use tamma_core::requested_permissions::{append_permissions, requested_permissions};
use tamma_store::Store;

use crate::error::Error;
use crate::job_context::JobContext;

/// Page size when reading the history.
const PAGE_SIZE: u32 = 500;

/// Answered question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredQuestion {
    question: String,
    answer: String,
    /// Person who answered; `None` if the agent's default was used.
    answered_by: Option<String>,
}

impl AnsweredQuestion {
    /// Returns the permissions granted by this answer. Only a person can grant any.
    fn approved_subjects(&self) -> Vec<String> {
        if self.answered_by.is_none() || !self.is_yes() {
            return Vec::new();
        }
        requested_permissions(&self.question)
    }

    /// Returns whether the answer is a clear yes.
    fn is_yes(&self) -> bool {
        let answer = self.answer.trim().to_lowercase();
        let first = answer.split(|letter: char| !letter.is_alphanumeric()).next();
        matches!(first, Some("allow" | "allowed" | "yes" | "y" | "ok"))
    }
}

/// Loads the answered questions of a task, oldest first.
pub(crate) async fn load(store: &Store, ctx: &JobContext) -> Result<Vec<AnsweredQuestion>, Error> {
    // Most tasks have no questions. An earlier attempt of this job may have asked one.
    if ctx.task_loop.question_count == 0 && ctx.attempt == 1 {
        return Ok(Vec::new());
    }
    load_all(store, ctx.task.id).await
}

/// Returns the latest answer to a question, with the person who gave it, as text for the agent.
pub(crate) async fn find_answer(
    store: &Store,
    task: TaskId,
    question: &str,
) -> Result<Option<String>, Error> {
    let answered = load_all(store, task).await?.into_iter().rfind(|it| it.question == question);
    Ok(answered.map(|AnsweredQuestion { answer, answered_by, .. }| match answered_by {
        Some(person) => format!("{person} answered: {answer}"),
        None => format!("Nobody answered in time. Your default applies: {answer}"),
    }))
}

async fn load_all(store: &Store, task: TaskId) -> Result<Vec<AnsweredQuestion>, Error> {
    let (mut after, mut question, mut all) = (0, None, Vec::new());
    loop {
        let lines = store.history(task, after, PAGE_SIZE).await?;
        let Some(last) = lines.last() else { return Ok(all) };
        after = last.entry.sequence;
        for line in lines {
            let EntryData::Stored(reference) = &line.entry.data else { continue };
            match line.entry.name {
                EntryName::SmQuestionAsked => question = Some(store.text(reference).await?),
                EntryName::SmQuestionAnswered => {
                    let Some(question) = question.take() else { continue };
                    let answered_by = match &line.entry.actor {
                        Actor::Person(name) => Some(name.to_string()),
                        Actor::Tamma | Actor::Council => None,
                    };
                    let answer = store.text(reference).await?;
                    all.push(AnsweredQuestion { question, answer, answered_by });
                }
                _ => {}
            }
        }
    }
}

/// Formats a question for people. `subjects` are the permissions that a yes would grant.
pub(crate) fn format_question(question: &str, choices: &[String], subjects: &[String]) -> String {
    let mut text = question.trim().to_owned();
    if !choices.is_empty() {
        let _ = write!(text, "\n\nChoose one: {}", choices.join(" · "));
    }
    append_permissions(&text, subjects)
}

/// Returns all permissions that people have granted.
pub(crate) fn allowed_subjects(answers: &[AnsweredQuestion]) -> BTreeSet<String> {
    answers.iter().flat_map(AnsweredQuestion::approved_subjects).collect()
}

/// Formats questions and answers for a prompt.
pub(crate) fn format_answers(answers: &[AnsweredQuestion]) -> String {
    let mut text = String::new();
    if !answers.is_empty() {
        text.push_str("\n\n# Questions and answers\n");
    }
    for AnsweredQuestion { question, answer, answered_by } in answers {
        let answered_by = answered_by.as_deref().unwrap_or("nobody in time; the default applies");
        let _ = write!(text, "\nAsked: {question}\n\nAnswered by {answered_by}: {answer}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(question: String, answer: &str) -> AnsweredQuestion {
        let answered_by = Some("Bo".to_owned());
        AnsweredQuestion { question, answer: answer.to_owned(), answered_by }
    }

    #[test]
    fn only_a_clear_yes_grants_the_requested_permissions() {
        let subjects = ["command: git push".to_owned(), "write: ci.yml".to_owned()];
        let question =
            format_question("May I?", &["allow".to_owned(), "deny".to_owned()], &subjects);
        for yes in ["allow", " Yes, go on", "OK."] {
            let allowed = allowed_subjects(&[answered(question.clone(), yes)]);
            assert_eq!(allowed.into_iter().collect::<Vec<_>>(), subjects, "{yes}");
        }
        for no in ["deny", "not allowed", "", "yesterday"] {
            assert!(allowed_subjects(&[answered(question.clone(), no)]).is_empty(), "{no}");
        }
        let by_nobody = AnsweredQuestion { answered_by: None, ..answered(question, "yes") };
        assert!(allowed_subjects(&[by_nobody]).is_empty());
        let forged = format_question("May I?", &[], &subjects);
        let question = format_question(&forged, &[], &[]);
        assert!(allowed_subjects(&[answered(question, "yes")]).is_empty());
        let question = format_question("Tabs?", &["yes".to_owned(), forged], &[]);
        assert!(allowed_subjects(&[answered(question, "yes")]).is_empty());
        let question = format_question("Tabs? - or spaces", &[], &[]);
        assert!(allowed_subjects(&[answered(question, "yes")]).is_empty());
    }

    #[test]
    fn an_applied_default_names_no_person() {
        let default = answered("Tabs?".to_owned(), "spaces");
        let text = format_answers(&[AnsweredQuestion { answered_by: None, ..default }]);
        assert!(text.contains("Asked: Tabs?") && text.contains("nobody in time"), "{text}");
        assert_eq!(format_answers(&[]), "");
    }
}
