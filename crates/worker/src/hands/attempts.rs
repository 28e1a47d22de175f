//! What was tried so far, as the next run, a planner and a council need to know it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tamma_core::escalation::Decision;
use tamma_core::ids::CommitId;
use tamma_core::log::{EntryName, Fact};
use tamma_core::tier::Tier;
use tamma_engine::agent::Mode;
use tamma_store::RunEnd;

use super::{Activities, Told, Work};
use crate::error::Error;

/// How many entries of a task's log are read, which is more than a task writes.
const ENTRIES: u32 = 10_000;

/// How many faults are listed by name.
const LISTED: usize = 40;

/// One attempt that was judged, or is about to be.
pub(super) struct Attempt {
    /// Its number, from 1.
    pub(super) number: u16,
    pub(super) tier: Option<Tier>,
    pub(super) commit: Option<CommitId>,
    /// What came of it, in a word or two.
    pub(super) ending: String,
    /// What stood against it, by names that stay the same from attempt to attempt.
    pub(super) faults: BTreeSet<String>,
    /// What our checks wrote about it.
    pub(super) report: Option<String>,
    /// What was decided after it.
    pub(super) decision: Option<Decision>,
}

impl Activities {
    /// The attempts of a task, in their order.
    pub(super) async fn attempts(&self, work: &Work) -> Result<Vec<Attempt>, Error> {
        let task = work.task.id;
        let mut attempts: BTreeMap<u16, Attempt> = BTreeMap::new();
        for iteration in self.store.iterations(task).await? {
            let number = u16::try_from(iteration.number).unwrap_or(u16::MAX);
            let ending = iteration.ending.map(|ending| ending.to_string().replace('_', " "));
            attempts.insert(
                number,
                Attempt {
                    number,
                    tier: iteration.tier,
                    commit: iteration.commit.and_then(|commit| commit.parse().ok()),
                    ending: ending.unwrap_or_else(|| "not judged".to_owned()),
                    faults: BTreeSet::new(),
                    report: None,
                    decision: None,
                },
            );
        }
        let checks = self.store.checks(task).await?;
        for check in &checks {
            if let Some(attempt) = attempts.get_mut(&check.iteration) {
                attempt.faults.extend(check.record.faults());
            }
        }
        let finished: BTreeSet<u32> = self
            .store
            .runs(task)
            .await?
            .into_iter()
            .filter(|run| run.mode == Mode::Implement.to_string())
            .filter(|run| run.end == Some(RunEnd::Finished))
            .map(|run| run.number.ticket)
            .collect();
        let told: Vec<(u32, Told)> = self.store.answers(task).await?;
        for (ticket, told) in told.into_iter().rev() {
            let Some(report) = told.report else { continue };
            let checked = checks.iter().find(|check| check.ticket == ticket);
            // Where nothing was kept of the check, it was of the run before it.
            let number = checked.map_or_else(
                || u16::try_from(finished.range(..ticket).count()).unwrap_or(u16::MAX),
                |check| check.iteration,
            );
            if let Some(attempt) = attempts.get_mut(&number) {
                attempt.report = Some(report);
            }
        }
        let mut number = 0_u16;
        for line in self.store.history(task, 0, ENTRIES).await? {
            match (line.entry.name, line.entry.data) {
                (EntryName::SmImplementationCompleted, _) => number = number.saturating_add(1),
                (_, Fact::Decision(decision)) => {
                    if let Some(attempt) = attempts.get_mut(&number) {
                        attempt.decision = Some(decision);
                    }
                }
                _ => {}
            }
        }
        Ok(attempts.into_values().collect())
    }
}

/// What failed in the last attempt: what is new, what failed before too, and what no longer does.
/// Nothing where no check named anything.
pub(super) fn compared(attempts: &[Attempt]) -> Option<String> {
    let (last, earlier) = attempts.split_last()?;
    let mut text = String::new();
    let mut list = |title: &str, faults: Vec<String>| {
        if faults.is_empty() {
            return;
        }
        let _ = writeln!(text, "{title}:\n");
        let more = faults.len().saturating_sub(LISTED);
        for fault in faults.into_iter().take(LISTED) {
            let _ = writeln!(text, "- {fault}");
        }
        if more > 0 {
            let _ = writeln!(text, "- and {more} more");
        }
        text.push('\n');
    };
    let before = |fault: &String| -> Vec<String> {
        let had = earlier.iter().filter(|attempt| attempt.faults.contains(fault));
        had.map(|attempt| attempt.number.to_string()).collect()
    };
    let (again, new): (Vec<_>, Vec<_>) =
        last.faults.iter().partition(|fault| !before(fault).is_empty());
    if earlier.is_empty() {
        list("It failed", last.faults.iter().cloned().collect());
    } else {
        list("New in this attempt", new.into_iter().cloned().collect());
        let again = again
            .into_iter()
            .map(|fault| format!("{fault} (attempts {} too)", before(fault).join(", ")));
        list("Failed before, and fails again", again.collect());
        let gone = earlier.last().into_iter().flat_map(|it| it.faults.difference(&last.faults));
        list("Failed in the attempt before, and no longer does", gone.cloned().collect());
    }
    (!text.is_empty()).then_some(text)
}

/// The earlier attempts, a line for each.
pub(super) fn in_short(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        let tier = attempt.tier.map(|tier| format!(" ({tier})")).unwrap_or_default();
        let _ = write!(text, "- attempt {}{tier}: {}", attempt.number, attempt.ending);
        match attempt.faults.len() {
            0 => {}
            1 => text.push_str(", 1 fault"),
            many => {
                let _ = write!(text, ", {many} faults");
            }
        }
        if let Some(decision) = attempt.decision {
            let _ = write!(text, "; then: {decision}");
        }
        text.push('\n');
    }
    text
}

/// A text of at most so many bytes: its beginning and its end, which say the most.
pub(super) fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let half = longest / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let left_out = tail - head;
    format!("{}\n[… {left_out} bytes are left out here …]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u16, faults: &[&str]) -> Attempt {
        Attempt {
            number,
            tier: Some(Tier::Simple),
            commit: None,
            ending: "gates failed".to_owned(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
            report: None,
            decision: None,
        }
    }

    #[test]
    fn what_is_new_is_told_apart_from_what_failed_before() {
        let attempts =
            [attempt(1, &["t: a", "t: b"]), attempt(2, &["t: a"]), attempt(3, &["t: a", "t: c"])];
        assert_eq!(
            compared(&attempts).expect("something"),
            "New in this attempt:\n\n- t: c\n\nFailed before, and fails again:\n\n- t: a (attempts \
             1, 2 too)\n\n"
        );
        let text = compared(&attempts[..2]).expect("something");
        assert!(text.contains("no longer does:\n\n- t: b\n"), "{text}");
        assert_eq!(
            compared(&attempts[..1]).expect("something"),
            "It failed:\n\n- t: a\n- t: b\n\n"
        );
        assert_eq!(compared(&[attempt(1, &[])]), None);
    }

    #[test]
    fn a_long_list_and_a_long_text_are_cut() {
        let many: Vec<String> = (0..50).map(|number| format!("t: {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(compared(&[attempt(1, &many)]).expect("something").contains("- and 10 more\n"));
        assert_eq!(cut("short", 10), "short");
        let text = cut(&"ä".repeat(100), 21);
        assert!(text.starts_with("äääää\n[… 180 bytes") && text.ends_with("äääää"), "{text}");
    }
}
