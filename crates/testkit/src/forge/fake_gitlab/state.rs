//! Objects of the fake.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::fake_github::now;
use super::BOT;

/// Everything that the fake knows.
#[derive(Debug)]
pub(super) struct GitlabState {
    pub(super) repositories: BTreeSet<String>,
    /// Accounts; the ID of an account is its place, from 1.
    users: Vec<String>,
    /// IDs of accounts that can push.
    pub(super) developers: BTreeSet<u64>,
    pub(super) changes: BTreeMap<u64, MergeRequest>,
    pub(super) issues: BTreeMap<u64, IssueRecord>,
    pub(super) jobs: Vec<JobRecord>,
    next: u64,
}

impl Default for GitlabState {
    fn default() -> Self {
        Self {
            repositories: BTreeSet::new(),
            users: vec![BOT.to_owned()],
            developers: BTreeSet::from([1]),
            changes: BTreeMap::new(),
            issues: BTreeMap::new(),
            jobs: Vec::new(),
            next: 0,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct MergeRequest {
    pub(super) iid: u64,
    pub(super) repository: String,
    pub(super) title: String,
    pub(super) description: String,
    pub(super) branch: String,
    pub(super) base: String,
    pub(super) by: String,
    pub(super) labels: Vec<String>,
    /// `opened`, `closed` or `merged`.
    pub(super) state: String,
    /// Head when it was merged or closed; that of its branch while it is open.
    pub(super) last_head: String,
    pub(super) merge_commit: Option<String>,
    /// Account that merged or closed it.
    pub(super) ended_by: Option<String>,
    pub(super) discussions: Vec<DiscussionRecord>,
    pub(super) created: String,
    pub(super) updated: String,
}

#[derive(Debug, Clone)]
pub(super) struct DiscussionRecord {
    pub(super) id: String,
    /// Notes of a thread can be resolved; a single note cannot.
    pub(super) resolvable: bool,
    pub(super) resolved: bool,
    pub(super) notes: Vec<NoteRecord>,
}

#[derive(Debug, Clone)]
pub(super) struct NoteRecord {
    pub(super) id: u64,
    pub(super) by: String,
    pub(super) body: String,
    pub(super) position: Option<Value>,
    pub(super) created: String,
}

#[derive(Debug, Clone)]
pub(super) struct IssueRecord {
    pub(super) title: String,
    pub(super) body: String,
    pub(super) by: String,
    pub(super) labels: Vec<String>,
    pub(super) open: bool,
    pub(super) notes: Vec<NoteRecord>,
    pub(super) created: String,
    pub(super) updated: String,
}

/// Job, or commit status of another program.
#[derive(Debug, Clone)]
pub(super) struct JobRecord {
    pub(super) id: u64,
    pub(super) commit: String,
    pub(super) name: String,
    pub(super) status: String,
    pub(super) description: String,
    pub(super) target_url: Option<String>,
    /// Log; statuses have none.
    pub(super) trace: Option<String>,
    pub(super) by: String,
    /// Run again, so that a newer one counts.
    pub(super) replaced: bool,
}

impl GitlabState {
    /// Returns a new ID.
    pub(super) fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the ID of an account, which is created if it is new.
    pub(super) fn user_id(&mut self, account: &str) -> u64 {
        let known = self.users.iter().position(|it| it == account);
        let place = known.unwrap_or_else(|| {
            self.users.push(account.to_owned());
            self.users.len() - 1
        });
        u64::try_from(place).unwrap_or_default() + 1
    }

    pub(super) fn user(&mut self, account: &str) -> Value {
        let id = self.user_id(account);
        json!({
            "id": id, "username": account, "name": account, "state": "active", "locked": false,
            "bot": account.contains("_bot_"),
        })
    }

    pub(super) fn new_note(&mut self, by: &str, body: &str, position: Option<Value>) -> NoteRecord {
        let (by, body, id) = (by.to_owned(), body.to_owned(), self.new_id());
        NoteRecord { id, by, body, position, created: now() }
    }

    /// Adds a thread to a merge request, or a single note without a position.
    pub(super) fn add_discussion(
        &mut self,
        number: u64,
        by: &str,
        body: &str,
        position: Option<Value>,
    ) -> Option<NoteRecord> {
        let resolvable = position.is_some();
        let note = self.new_note(by, body, position);
        let change = self.changes.get_mut(&number)?;
        let id = format!("{:040x}", note.id);
        let notes = vec![note.clone()];
        change.discussions.push(DiscussionRecord { id, resolvable, resolved: false, notes });
        change.updated = now();
        Some(note)
    }

    pub(super) fn add_issue(&mut self, by: &str, title: &str, body: &str, labels: &[&str]) -> u64 {
        let number = self.issues.keys().next_back().map_or(1, |last| last + 1);
        let issue = IssueRecord {
            title: title.to_owned(),
            body: body.to_owned(),
            by: by.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            open: true,
            notes: Vec::new(),
            created: now(),
            updated: now(),
        };
        self.issues.insert(number, issue);
        number
    }

    pub(super) fn add_issue_note(
        &mut self,
        number: u64,
        by: &str,
        body: &str,
    ) -> Option<NoteRecord> {
        let note = self.new_note(by, body, None);
        let issue = self.issues.get_mut(&number)?;
        issue.notes.push(note.clone());
        issue.updated = now();
        Some(note)
    }

    pub(super) fn effects(&self, account: &str) -> [usize; 3] {
        let threads = self.changes.values().flat_map(|it| &it.discussions);
        let notes = threads.flat_map(|it| &it.notes);
        let notes = notes.chain(self.issues.values().flat_map(|it| &it.notes));
        [
            self.changes.values().filter(|it| it.by == account).count(),
            notes.filter(|it| it.by == account).count(),
            self.jobs.iter().filter(|it| it.by == account).count(),
        ]
    }
}
