//! Objects of the fake.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tamma_core::time::Timestamp;

/// Everything that the fake knows.
#[derive(Debug, Default)]
pub(super) struct GithubState {
    pub(super) repositories: BTreeSet<String>,
    /// Accounts that can push, besides Tamma's.
    pub(super) writers: BTreeSet<String>,
    pub(super) pulls: BTreeMap<u64, Pull>,
    pub(super) issues: BTreeMap<u64, Issue>,
    pub(super) comments: Vec<Comment>,
    pub(super) threads: Vec<Thread>,
    pub(super) reviews: Vec<Review>,
    pub(super) statuses: Vec<CommitStatus>,
    pub(super) checks: Vec<CheckRun>,
    next: u64,
    next_number: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Pull {
    pub(super) number: u64,
    pub(super) repository: String,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) branch: String,
    pub(super) base: String,
    pub(super) by: String,
    pub(super) draft: bool,
    /// Head when it was merged or closed; that of its branch while it is open.
    pub(super) last_head: String,
    /// Commit on the base, and the account that merged it.
    pub(super) merged: Option<(String, String)>,
    pub(super) closed_by: Option<String>,
    pub(super) updated: String,
}

#[derive(Debug, Clone)]
pub(super) struct Issue {
    pub(super) repository: String,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) by: String,
    pub(super) labels: Vec<String>,
    pub(super) open: bool,
    pub(super) updated: String,
}

#[derive(Debug, Clone)]
pub(super) struct Comment {
    pub(super) id: u64,
    /// Number of the issue or pull request.
    pub(super) number: u64,
    pub(super) by: String,
    pub(super) body: String,
    pub(super) updated: String,
}

#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) line: u32,
    pub(super) resolved: bool,
    pub(super) comments: Vec<Comment>,
}

#[derive(Debug, Clone)]
pub(super) struct Review {
    pub(super) id: u64,
    pub(super) number: u64,
    pub(super) by: String,
    pub(super) verdict: String,
    pub(super) commit: String,
}

#[derive(Debug, Clone)]
pub(super) struct CommitStatus {
    pub(super) id: u64,
    pub(super) commit: String,
    pub(super) content: Value,
    pub(super) by: String,
    pub(super) created: String,
}

#[derive(Debug, Clone)]
pub(super) struct CheckRun {
    pub(super) id: u64,
    pub(super) commit: String,
    pub(super) name: String,
    pub(super) app: String,
    /// `None` while it runs.
    pub(super) passed: Option<bool>,
    pub(super) log: Option<String>,
    pub(super) reruns: u32,
}

/// Check run to add.
pub(super) struct NewCheck<'a> {
    pub(super) commit: &'a str,
    pub(super) name: &'a str,
    pub(super) app: &'a str,
    pub(super) log: Option<&'a str>,
}

/// Returns the time in the form of the API.
#[expect(clippy::disallowed_methods, reason = "a forge has a clock")]
pub(in crate::forge) fn now() -> String {
    let now = Timestamp::from(std::time::SystemTime::now());
    now.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl GithubState {
    /// Returns a new ID.
    pub(super) fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the number of the next issue or pull request.
    pub(super) fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn touch(&mut self, number: u64) {
        if let Some(pull) = self.pulls.get_mut(&number) {
            pull.updated = now();
        }
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.updated = now();
        }
    }

    pub(super) fn add_check(&mut self, check: &NewCheck<'_>, passed: Option<bool>) -> u64 {
        let id = self.new_id();
        self.checks.push(CheckRun {
            id,
            commit: check.commit.to_owned(),
            name: check.name.to_owned(),
            app: check.app.to_owned(),
            passed,
            log: check.log.map(str::to_owned),
            reruns: 0,
        });
        id
    }

    pub(super) fn add_thread(
        &mut self,
        number: u64,
        by: &str,
        path: &str,
        line: u32,
        text: &str,
    ) -> String {
        let comment = self.new_comment(number, by, text);
        let id = format!("PRRT_{}", comment.id);
        let (path, comments) = (path.to_owned(), vec![comment]);
        self.threads.push(Thread { id: id.clone(), path, line, resolved: false, comments });
        self.touch(number);
        id
    }

    pub(super) fn add_review(&mut self, number: u64, by: &str, verdict: &str, commit: &str) {
        let id = self.new_id();
        let (by, verdict, commit) = (by.to_owned(), verdict.to_owned(), commit.to_owned());
        self.reviews.push(Review { id, number, by, verdict, commit });
        self.touch(number);
    }

    pub(super) fn add_issue(
        &mut self,
        (repository, by): (&str, &str),
        title: &str,
        body: &str,
        labels: &[&str],
    ) -> u64 {
        let number = self.new_number();
        let issue = Issue {
            repository: repository.to_owned(),
            title: title.to_owned(),
            body: body.to_owned(),
            by: by.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            open: true,
            updated: now(),
        };
        self.issues.insert(number, issue);
        number
    }

    fn new_comment(&mut self, number: u64, by: &str, body: &str) -> Comment {
        let (by, body) = (by.to_owned(), body.to_owned());
        Comment { id: self.new_id(), number, by, body, updated: now() }
    }

    pub(super) fn add_comment(&mut self, number: u64, by: &str, body: &str) -> u64 {
        let comment = self.new_comment(number, by, body);
        let id = comment.id;
        self.comments.push(comment);
        self.touch(number);
        id
    }

    /// Adds a reply to the thread that starts with a comment.
    pub(super) fn reply(&mut self, first: u64, by: &str, body: &str) -> Option<Comment> {
        let position = self.threads.iter().position(|it| it.comments[0].id == first)?;
        let number = self.threads[position].comments[0].number;
        let comment = self.new_comment(number, by, body);
        self.threads[position].comments.push(comment.clone());
        self.touch(number);
        Some(comment)
    }

    /// Closes the issues that the text of a merged pull request names.
    pub(super) fn close_issues(&mut self, text: &str) {
        for (number, issue) in &mut self.issues {
            let words = format!("Closes #{number}");
            if text.lines().any(|line| line.trim() == words) {
                issue.open = false;
                issue.updated = now();
            }
        }
    }

    pub(super) fn can_write(&self, account: &str) -> bool {
        account == super::BOT || self.writers.contains(account)
    }

    pub(super) fn effects(&self, account: &str) -> [usize; 3] {
        let own_replies = self.threads.iter().flat_map(|it| &it.comments);
        let own = self.comments.iter().chain(own_replies).filter(|it| it.by == account);
        [
            self.pulls.values().filter(|it| it.by == account).count(),
            own.count(),
            self.statuses.iter().filter(|it| it.by == account).count(),
        ]
    }
}
