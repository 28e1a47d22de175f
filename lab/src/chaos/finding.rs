//! What a trial has shown, and the rules by which it is judged.

use std::collections::BTreeMap;

use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::task_loop::State;

/// What went wrong, by its kind; and what is only worth telling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// What is not there and should be.
    pub(crate) lost: Vec<String>,
    /// What is there more than once.
    pub(crate) doubled: Vec<String>,
    /// What still runs.
    pub(crate) orphaned: Vec<String>,
    /// What a crash may bring.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// Whether nothing went wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.orphaned.is_empty()
    }

    pub(crate) fn lose(&mut self, what: impl Into<String>) {
        self.lost.push(what.into());
    }

    pub(crate) fn double(&mut self, what: impl Into<String>) {
        self.doubled.push(what.into());
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// Judges how often something is there that must be there once.
    pub(crate) fn once(&mut self, what: &str, times: usize) {
        match times {
            0 => self.lose(format!("no {what}")),
            1 => {}
            more => self.double(format!("{what} {more} times")),
        }
    }

    /// Judges the log: numbered without gaps, in the order of time, to the end, with the entries of an undisturbed task in
    /// their order and no others.
    pub(crate) fn log(&mut self, entries: &[HistoryEntry], undisturbed: Option<&[EntryName]>) {
        for (at, entry) in (1..).zip(entries) {
            if entry.sequence != at {
                self.lose(format!("entry {at} of the log: {} is there", entry.sequence));
                break;
            }
        }
        if !entries.is_sorted_by_key(|entry| entry.at) {
            self.lose("the order of time in the log");
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        let end = entries.last().map(|entry| (entry.name, entry.to));
        if end != Some((EntryName::SmTaskCompleted, State::Completed)) {
            self.lose("the end of the log");
        }
        let Some(undisturbed) = undisturbed.filter(|undisturbed| *undisturbed != names) else {
            return;
        };
        let mut counts: BTreeMap<EntryName, (usize, usize)> = BTreeMap::new();
        for name in &names {
            counts.entry(*name).or_default().0 += 1;
        }
        for name in undisturbed {
            counts.entry(*name).or_default().1 += 1;
        }
        let mut same = true;
        for (name, (there, wanted)) in counts {
            if there < wanted {
                self.lose(format!("{name}: {there} instead of {wanted}"));
            }
            if there > wanted {
                self.double(format!("{name}: {there} instead of {wanted}"));
            }
            same &= there == wanted;
        }
        if same {
            self.lose("the order of the log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EntryName as N;

    const WAY: [EntryName; 3] = [N::SmTaskReceived, N::SmTaskAssigned, N::SmTaskCompleted];

    fn entries(lines: &[(u64, EntryName)]) -> Vec<HistoryEntry> {
        let entry = |(sequence, name): &(u64, EntryName)| {
            let json = serde_json::json!({
                "task": "0192a000-0000-7000-8000-000000000001", "sequence": sequence,
                "at": "2026-11-15T00:00:00Z", "name": name, "from": "pending", "to": "completed",
                "actor": "tamma",
            });
            serde_json::from_value(json).expect("an entry")
        };
        lines.iter().map(entry).collect()
    }

    fn judged(lines: &[(u64, EntryName)]) -> Findings {
        let mut findings = Findings::default();
        findings.log(&entries(lines), Some(&WAY));
        findings
    }

    #[test]
    fn a_log_like_the_undisturbed_one_is_clean() {
        let whole = [(1, N::SmTaskReceived), (2, N::SmTaskAssigned), (3, N::SmTaskCompleted)];
        assert_eq!(judged(&whole), Findings::default());
    }

    #[test]
    fn an_entry_that_is_missing_is_lost() {
        let findings = judged(&[(1, N::SmTaskReceived), (2, N::SmTaskCompleted)]);
        assert_eq!(findings.lost, ["SM_TASK_ASSIGNED: 0 instead of 1"]);
        assert!(findings.doubled.is_empty());
        let findings = judged(&[(1, N::SmTaskReceived), (2, N::SmTaskAssigned)]);
        assert_eq!(findings.lost, ["the end of the log", "SM_TASK_COMPLETED: 0 instead of 1"]);
    }

    #[test]
    fn a_number_that_is_missing_is_lost() {
        let gap = [(1, N::SmTaskReceived), (3, N::SmTaskAssigned), (4, N::SmTaskCompleted)];
        assert_eq!(judged(&gap).lost, ["entry 2 of the log: 3 is there"]);
    }

    #[test]
    fn an_entry_that_is_there_twice_is_doubled() {
        let twice = [
            (1, N::SmTaskReceived),
            (2, N::SmTaskAssigned),
            (3, N::SmTaskAssigned),
            (4, N::SmTaskCompleted),
        ];
        assert_eq!(judged(&twice).doubled, ["SM_TASK_ASSIGNED: 2 instead of 1"]);
    }

    #[test]
    fn entries_in_another_order_are_no_undisturbed_log() {
        let turned = [(1, N::SmTaskAssigned), (2, N::SmTaskReceived), (3, N::SmTaskCompleted)];
        assert_eq!(judged(&turned).lost, ["the order of the log"]);
    }

    #[test]
    fn what_must_be_there_once_is_lost_without_and_doubled_with_more() {
        let mut findings = Findings::default();
        for times in 0..3 {
            findings.once("commit", times);
        }
        assert_eq!(findings.lost, ["no commit"]);
        assert_eq!(findings.doubled, ["commit 2 times"]);
        assert!(!findings.is_clean());
    }
}
