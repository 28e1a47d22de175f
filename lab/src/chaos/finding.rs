//! Findings of a trial, and the rules that judge it.

use std::collections::BTreeMap;

use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::task_loop::State;

/// Findings of a trial, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Expected things that are missing.
    pub(crate) lost: Vec<String>,
    /// Things that exist more than once.
    pub(crate) duplicated: Vec<String>,
    /// Processes that still run.
    pub(crate) orphaned: Vec<String>,
    /// Gates and reviews that did not run before a delivery.
    pub(crate) skipped: Vec<String>,
    /// Runs that nobody had approved.
    pub(crate) unapproved: Vec<String>,
    /// Remarks that are not failures, such as reruns.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// Returns `true` without failures.
    pub(crate) fn is_clean(&self) -> bool {
        self.failures().is_empty()
    }

    /// Returns all failures, with their kinds.
    pub(crate) fn failures(&self) -> Vec<String> {
        let kinds = [
            ("lost", &self.lost),
            ("duplicated", &self.duplicated),
            ("orphaned", &self.orphaned),
            ("skipped", &self.skipped),
            ("unapproved", &self.unapproved),
        ];
        let of = |(kind, items): (&str, &Vec<String>)| {
            items.iter().map(|item| format!("{kind}: {item}")).collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(of).collect()
    }

    /// Adds the findings of another check.
    pub(crate) fn extend(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.duplicated.extend(other.duplicated);
        self.orphaned.extend(other.orphaned);
        self.skipped.extend(other.skipped);
        self.unapproved.extend(other.unapproved);
        self.notes.extend(other.notes);
    }

    pub(crate) fn add_lost(&mut self, what: impl Into<String>) {
        self.lost.push(what.into());
    }

    pub(crate) fn add_duplicate(&mut self, what: impl Into<String>) {
        self.duplicated.push(what.into());
    }

    pub(crate) fn add_skipped(&mut self, what: impl Into<String>) {
        self.skipped.push(what.into());
    }

    pub(crate) fn add_unapproved(&mut self, what: impl Into<String>) {
        self.unapproved.push(what.into());
    }

    pub(crate) fn add_note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// Checks that something exists exactly once.
    pub(crate) fn expect_once(&mut self, what: &str, times: usize) {
        match times {
            0 => self.add_lost(format!("no {what}")),
            1 => {}
            more => self.add_duplicate(format!("{what} {more} times")),
        }
    }

    /// Checks the history: numbers without gaps, ascending times, the final entry, and the same entries
    /// in the same order as the baseline.
    pub(crate) fn check_history(
        &mut self,
        entries: &[HistoryEntry],
        baseline: Option<&[EntryName]>,
    ) {
        for (at, entry) in (1..).zip(entries) {
            if entry.sequence != at {
                self.add_lost(format!("history entry {at}: found {}", entry.sequence));
                break;
            }
        }
        if !entries.is_sorted_by_key(|entry| entry.at) {
            self.add_lost("ascending times in the history");
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        let end = entries.last().map(|entry| (entry.name, entry.to));
        if end != Some((EntryName::SmTaskCompleted, State::Completed)) {
            self.add_lost("the end of the history");
        }
        let Some(baseline) = baseline.filter(|baseline| *baseline != names) else {
            return;
        };
        let mut counts: BTreeMap<EntryName, (usize, usize)> = BTreeMap::new();
        for name in &names {
            counts.entry(*name).or_default().0 += 1;
        }
        for name in baseline {
            counts.entry(*name).or_default().1 += 1;
        }
        let mut same = true;
        for (name, (actual, expected)) in counts {
            if actual < expected {
                self.add_lost(format!("{name}: {actual} instead of {expected}"));
            }
            if actual > expected {
                let repeated = entries.iter().filter(|entry| entry.name == name);
                let reasons: Vec<_> = repeated.filter_map(|it| it.reason.as_deref()).collect();
                let why = if reasons.is_empty() { "" } else { ", with the reasons: " };
                let reasons = reasons.join("; ");
                self.add_duplicate(format!("{name}: {actual} instead of {expected}{why}{reasons}"));
            }
            same &= actual == expected;
        }
        if same {
            self.add_lost("the order of the history");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EntryName as N;

    const BASELINE: [EntryName; 3] = [N::SmTaskReceived, N::SmTaskAssigned, N::SmTaskCompleted];

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

    fn judge(lines: &[(u64, EntryName)]) -> Findings {
        let mut findings = Findings::default();
        findings.check_history(&entries(lines), Some(&BASELINE));
        findings
    }

    #[test]
    fn a_history_equal_to_the_baseline_is_clean() {
        let complete = [(1, N::SmTaskReceived), (2, N::SmTaskAssigned), (3, N::SmTaskCompleted)];
        assert_eq!(judge(&complete), Findings::default());
    }

    #[test]
    fn a_missing_entry_is_lost() {
        let findings = judge(&[(1, N::SmTaskReceived), (2, N::SmTaskCompleted)]);
        assert_eq!(findings.lost, ["SM_TASK_ASSIGNED: 0 instead of 1"]);
        assert!(findings.duplicated.is_empty());
        let findings = judge(&[(1, N::SmTaskReceived), (2, N::SmTaskAssigned)]);
        assert_eq!(findings.lost, ["the end of the history", "SM_TASK_COMPLETED: 0 instead of 1"]);
    }

    #[test]
    fn a_missing_number_is_lost() {
        let gap = [(1, N::SmTaskReceived), (3, N::SmTaskAssigned), (4, N::SmTaskCompleted)];
        assert_eq!(judge(&gap).lost, ["history entry 2: found 3"]);
    }

    #[test]
    fn a_repeated_entry_is_a_duplicate() {
        let twice = [
            (1, N::SmTaskReceived),
            (2, N::SmTaskAssigned),
            (3, N::SmTaskAssigned),
            (4, N::SmTaskCompleted),
        ];
        assert_eq!(judge(&twice).duplicated, ["SM_TASK_ASSIGNED: 2 instead of 1"]);
    }

    #[test]
    fn entries_in_another_order_are_reported() {
        let swapped = [(1, N::SmTaskAssigned), (2, N::SmTaskReceived), (3, N::SmTaskCompleted)];
        assert_eq!(judge(&swapped).lost, ["the order of the history"]);
    }

    #[test]
    fn zero_counts_as_lost_and_two_as_a_duplicate() {
        let mut findings = Findings::default();
        for times in 0..3 {
            findings.expect_once("commit", times);
        }
        assert_eq!(findings.lost, ["no commit"]);
        assert_eq!(findings.duplicated, ["commit 2 times"]);
        assert!(!findings.is_clean());
    }
}
