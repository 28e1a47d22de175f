//! Lesson written without a model: the failure in our own words. Every task that ends badly leaves
//! at least this one.

use super::task_record::truncate;
use super::{Lesson, RecordedFault, TaskRecord};
use crate::knowledge::{EntryKind, EntrySeverity};
use crate::state::State;

/// Most words of a fault that become keywords.
const MAX_KEYWORDS: usize = 6;

/// Returns the lesson of a record, or `None` if nothing failed.
///
/// The number of failures and their cost go into the note, so that the same failure of another task
/// gives the same text.
pub fn fallback_lesson(record: &TaskRecord) -> Option<Lesson> {
    let ended_badly = record.ending != State::Completed;
    let (text, evidence, subject) = match (record.faults.first(), &record.final_failure) {
        (Some(recorded), _) => {
            (fault_text(recorded), recorded.evidence.clone(), recorded.fault.as_str())
        }
        (None, Some((evidence, message))) if ended_badly => {
            let evidence = evidence.reference().into_iter().collect();
            (
                format!("A task ended with status {}: {message}.", record.ending),
                evidence,
                message.as_str(),
            )
        }
        _ => return None,
    };
    Some(Lesson {
        project: record.project,
        trigger: record.lesson_trigger(),
        kind: EntryKind::Learning,
        title: String::new(),
        text,
        keywords: extract_keywords(subject),
        globs: record.faults.first().map(file_globs).unwrap_or_default(),
        actions: Vec::new(),
        pattern: None,
        severity: if ended_badly { EntrySeverity::Medium } else { EntrySeverity::Low },
        evidence,
        note: record.summary(),
    })
}

fn fault_text(recorded: &RecordedFault) -> String {
    let fault = truncate(recorded.fault.trim(), 300);
    let result = if recorded.fixed {
        "was reported in review and fixed in a later attempt: check it before the first."
    } else {
        "was reported in review up to the last attempt, and was not fixed."
    };
    format!("`{fault}` {result}")
}

fn file_globs(recorded: &RecordedFault) -> Vec<String> {
    recorded.files.iter().take(5).map(|file| globset::escape(file)).collect()
}

/// Extracts the words of a fault that later plans are matched by, identifiers first.
pub(super) fn extract_keywords(fault: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in fault.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let word = word.to_lowercase();
        if word.chars().count() > 3
            && word.chars().any(char::is_alphabetic)
            && !super::similarity::is_stop_word(&word)
            && !words.contains(&word)
        {
            words.push(word);
        }
    }
    words.truncate(MAX_KEYWORDS);
    words
}

impl TaskRecord {
    /// Summarises the attempts and their cost on one line.
    pub fn summary(&self) -> String {
        let attempts = match self.attempts {
            0 => "no attempts reviewed".to_owned(),
            1 => "1 attempt reviewed".to_owned(),
            count => format!("{count} attempts reviewed"),
        };
        let repeated = self.faults.first().filter(|fault| fault.attempts.len() > 1);
        let repetition = repeated.map_or_else(String::new, |fault| {
            format!(", {} with the same failure", fault.attempts.len())
        });
        let about = if self.spend.estimated { "about " } else { "" };
        format!("task {}: {attempts}{repetition}; cost {about}{}", self.ending, self.spend.usd)
    }
}
