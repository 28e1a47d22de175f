//! What agents of a task have asked people, and what they were told.
//!
//! The log of the task has it all: what was asked and answered are entries that name a text. A later
//! run reads them in its prompt, and what a person has allowed once is not asked again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tamma_core::actor::Actor;
use tamma_core::log::{EntryName, Fact};

use crate::error::Error;
use crate::hands::{Activities, Work};

/// How many entries are read at once.
const PAGE: u32 = 500;

/// What stands before the list of what an agent would do.
const WOULD_DO: &str = "If you allow it, this is allowed for the rest of the task:";

/// A question that has been answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    question: String,
    answer: String,
    /// Who answered. Nobody, where the agent's own default was taken.
    by: Option<String>,
}

impl Answered {
    /// What was allowed with it, as the rules for permissions name it.
    fn allowed(&self) -> impl Iterator<Item = String> {
        let list = self.question.split_once(WOULD_DO).map(|(_, list)| list);
        let list = list.filter(|_| self.is_yes()).unwrap_or_default();
        list.lines().filter_map(|line| Some(line.strip_prefix("- ")?.to_owned()))
    }

    /// Whether the answer is a yes. Everything but a clear one is a no.
    fn is_yes(&self) -> bool {
        let answer = self.answer.trim().to_lowercase();
        let first = answer.split(|letter: char| !letter.is_alphanumeric()).next();
        matches!(first, Some("allow" | "allowed" | "yes" | "y" | "ok"))
    }
}

impl Activities {
    /// What the agents of a task have asked so far and been told, in its order.
    pub(crate) async fn answered(&self, work: &Work) -> Result<Vec<Answered>, Error> {
        // Most tasks ask nothing, and then there is nothing to read.
        if work.memory.questions == 0 {
            return Ok(Vec::new());
        }
        let (mut after, mut question, mut all) = (0, None, Vec::new());
        loop {
            let lines = self.store.history(work.task.id, after, PAGE).await?;
            let Some(last) = lines.last() else { return Ok(all) };
            after = last.entry.sequence;
            for line in lines {
                let Fact::Kept(kept) = &line.entry.data else { continue };
                match line.entry.name {
                    EntryName::SmQuestionAsked => question = Some(self.store.kept(kept).await?),
                    EntryName::SmQuestionAnswered => {
                        let Some(question) = question.take() else { continue };
                        let by = match &line.entry.actor {
                            Actor::Person(name) => Some(name.to_string()),
                            Actor::Tamma | Actor::Council => None,
                        };
                        let answer = self.store.kept(kept).await?;
                        all.push(Answered { question, answer, by });
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A question as people read it. `subjects` is what would be allowed with a yes.
pub(crate) fn asked(question: &str, choices: &[String], subjects: &[String]) -> String {
    let mut text = question.trim().to_owned();
    if !choices.is_empty() {
        let _ = write!(text, "\n\nChoose one: {}", choices.join(" · "));
    }
    if !subjects.is_empty() {
        let _ = write!(text, "\n\n{WOULD_DO}\n- {}", subjects.join("\n- "));
    }
    text
}

/// What people have allowed, as the rules for permissions name it.
pub(crate) fn allowed(answered: &[Answered]) -> BTreeSet<String> {
    answered.iter().flat_map(Answered::allowed).collect()
}

/// Questions and answers as a prompt says them.
pub(crate) fn in_words(answered: &[Answered]) -> String {
    let mut text = String::new();
    if !answered.is_empty() {
        text.push_str("\n\n# What was asked, and answered\n");
    }
    for Answered { question, answer, by } in answered {
        let by = by.as_deref().unwrap_or("nobody in time, so the default holds");
        let _ = write!(text, "\nAsked: {question}\n\nAnswered by {by}: {answer}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(question: String, answer: &str) -> Answered {
        Answered { question, answer: answer.to_owned(), by: None }
    }

    #[test]
    fn only_a_clear_yes_allows_and_only_what_was_asked() {
        let subjects = ["command: git push".to_owned(), "write: ci.yml".to_owned()];
        let question = asked("May I?", &["allow".to_owned(), "deny".to_owned()], &subjects);
        for yes in ["allow", " Yes, go on", "OK."] {
            let allowed = allowed(&[answered(question.clone(), yes)]);
            assert_eq!(allowed.into_iter().collect::<Vec<_>>(), subjects, "{yes}");
        }
        for no in ["deny", "not allowed", "", "yesterday"] {
            assert!(allowed(&[answered(question.clone(), no)]).is_empty(), "{no}");
        }
        let words = asked("Tabs? - or spaces", &[], &[]);
        assert!(allowed(&[answered(words, "yes")]).is_empty());
    }

    #[test]
    fn nobody_is_named_where_the_default_was_taken() {
        let text = in_words(&[answered("Tabs?".to_owned(), "spaces")]);
        assert!(text.contains("Asked: Tabs?") && text.contains("nobody in time"), "{text}");
        assert_eq!(in_words(&[]), "");
    }
}
