//! Counts of the effects of one story, from the forge's own state.

use std::collections::BTreeMap;

/// State of a repository after a story with one issue.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Branches of Tamma's pull requests, with `true` for merged ones.
    pub(crate) pulls: Vec<(String, bool)>,
    /// Texts of Tamma's comments.
    pub(crate) comments: Vec<String>,
    /// States of Tamma's statuses of the last head, oldest first.
    pub(crate) statuses: Vec<String>,
    /// Commits on the base branch since the start, of the first parent.
    pub(crate) landed: usize,
    /// The work is on the base branch.
    pub(crate) has_work: bool,
    pub(crate) is_issue_open: bool,
    /// Tasks of the project.
    pub(crate) tasks: usize,
}

/// Findings of a story.
#[derive(Debug, Default)]
pub(crate) struct FaultFindings {
    pub(crate) doubled: Vec<String>,
    pub(crate) lost: Vec<String>,
}

impl Census {
    /// Compares the state with that of a story without faults.
    pub(crate) fn judge(&self) -> FaultFindings {
        let mut found = FaultFindings::default();
        let merged = self.pulls.iter().filter(|(_, merged)| *merged).count();
        let counts = [
            ("task", self.tasks),
            ("pull request", self.pulls.len()),
            ("merged pull request", merged),
            ("commit on the base branch", self.landed),
        ];
        for (what, count) in counts {
            found.doubled.extend((1..count).map(|_| what.to_owned()));
            found.lost.extend((count == 0).then(|| what.to_owned()));
        }
        let mut markers: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &self.comments {
            let marker = text.trim_end().lines().next_back().unwrap_or_default();
            *markers.entry(marker).or_default() += 1;
        }
        for (marker, count) in markers {
            found.doubled.extend((1..count).map(|_| format!("comment {marker}")));
        }
        found.lost.extend(self.comments.is_empty().then(|| "progress comment".to_owned()));
        let repeated = self.statuses.windows(2).filter(|pair| pair[0] == pair[1]).count();
        found.doubled.extend((0..repeated).map(|_| "check".to_owned()));
        let has_verdict = self.statuses.last().is_some_and(|it| it == "success");
        found.lost.extend((!has_verdict).then(|| "check".to_owned()));
        found.lost.extend((!self.has_work).then(|| "work on the base branch".to_owned()));
        found.lost.extend(self.is_issue_open.then(|| "end of the issue".to_owned()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Census {
        Census {
            pulls: vec![("tamma/1".to_owned(), true)],
            comments: vec!["Done.\n<!-- tamma:1 -->".to_owned()],
            statuses: vec!["pending".to_owned(), "success".to_owned()],
            landed: 1,
            has_work: true,
            is_issue_open: false,
            tasks: 1,
        }
    }

    #[test]
    fn a_complete_story_has_no_findings() {
        let found = complete().judge();
        assert!(found.doubled.is_empty() && found.lost.is_empty(), "{found:?}");
    }

    #[test]
    fn repeated_and_missing_effects_are_found() {
        let mut census = complete();
        census.comments.push("Again.\n<!-- tamma:1 -->".to_owned());
        census.pulls.push(("tamma/1".to_owned(), false));
        census.statuses.push("success".to_owned());
        assert_eq!(census.judge().doubled.len(), 3);
        assert_eq!(Census { is_issue_open: true, ..Census::default() }.judge().lost.len(), 8);
    }
}
