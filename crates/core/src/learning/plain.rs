//! The lesson that needs no model: what failed, in our own words. A task that ends badly leaves at
//! least this, also when nobody is there to think about it.

use super::record::cut;
use super::{Lesson, Record, Trouble};
use crate::knowledge::{Kind, Severity};
use crate::state::State;

/// How many words of a fault are kept as keywords.
const KEYWORDS: usize = 6;

/// The lesson that a record teaches by itself. Nothing, where nothing failed.
///
/// How often it failed and what it cost is a note and no part of the text, so that the same failure
/// of another task is known to be the same.
pub fn plain(record: &Record) -> Option<Lesson> {
    let ended_badly = record.ending != State::Completed;
    let (text, evidence, about) = match (record.troubles.first(), &record.last) {
        (Some(trouble), _) => {
            (of_trouble(trouble), trouble.evidence.clone(), trouble.fault.as_str())
        }
        (None, Some((evidence, last))) if ended_badly => {
            let evidence = evidence.reference().into_iter().collect();
            (format!("A task ended {}: {last}.", record.ending), evidence, last.as_str())
        }
        _ => return None,
    };
    Some(Lesson {
        project: record.project,
        occasion: record.occasion(),
        kind: Kind::Learning,
        text,
        keywords: keywords(about),
        globs: record.troubles.first().map(files).unwrap_or_default(),
        actions: Vec::new(),
        pattern: None,
        severity: if ended_badly { Severity::Medium } else { Severity::Low },
        evidence,
        note: record.in_short(),
    })
}

fn of_trouble(trouble: &Trouble) -> String {
    let fault = cut(trouble.fault.trim(), 300);
    let end = if trouble.mended {
        "and was mended in a later attempt: look at it before the first."
    } else {
        "to the end, and was not mended."
    };
    format!("`{fault}` stood against a change {end}")
}

fn files(trouble: &Trouble) -> Vec<String> {
    trouble.files.iter().take(5).map(|file| globset::escape(file)).collect()
}

/// The words of a fault by which a later plan is found: names first.
pub(super) fn keywords(fault: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in fault.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let word = word.to_lowercase();
        if word.chars().count() > 3
            && word.chars().any(char::is_alphabetic)
            && !super::near::is_common(&word)
            && !words.contains(&word)
        {
            words.push(word);
        }
    }
    words.truncate(KEYWORDS);
    words
}

impl Record {
    /// How often it was tried and what that has cost, in a line.
    pub fn in_short(&self) -> String {
        let attempts = match self.attempts {
            0 => "no attempt was judged".to_owned(),
            1 => "one attempt was judged".to_owned(),
            many => format!("{many} attempts were judged"),
        };
        let stubborn = self.troubles.first().filter(|it| it.attempts.len() > 1);
        let again = stubborn.map_or_else(String::new, |it| {
            format!(", {} of them with the same fault", it.attempts.len())
        });
        let about = if self.spend.estimated { "about " } else { "" };
        format!(
            "the task ended {}: {attempts}{again}; it cost {about}{}",
            self.ending, self.spend.usd
        )
    }
}
