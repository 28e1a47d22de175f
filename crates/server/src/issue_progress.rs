//! Progress of tasks, as one comment on the issue of each.
//!
//! The comment is written once and then updated in place, when something that it shows has changed:
//! at most once a minute per issue, and within the limits of forges for new content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tamma_connect::forge::{self, CommentTarget};
use tamma_core::forge::CheckResult;
use tamma_core::format::{capitalize, humanize};
use tamma_core::ids::{Digest, TaskId};
use tamma_core::time::Timestamp;
use tamma_store::{Effect, EffectError, EffectKind, IssueTask, ListedTask, TaskFilter};

use crate::app::{App, Error};
use crate::clock;
use crate::dto::{PullRequestView, TaskCard};
use crate::forge_poller::{PollError, PolledRepository};
use crate::live::{AllTasksSubscriber, LiveEvent};

/// Shortest time between two updates of a comment.
const UPDATE_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// Number of comments per round, and per hour. GitHub allows 80 a minute and 500 an hour, for
/// everything that one account writes.
const MAX_PER_ROUND: usize = 8;
const MAX_PER_HOUR: usize = 250;

/// Number of the newest tasks that are looked at after a start.
const MAX_TASKS: u32 = 500;

/// Age of the last change of an ended task whose comment is updated after a start.
const RECENT: TimeDelta = TimeDelta::hours(1);

/// Comments on issues.
pub(crate) struct IssueProgress {
    changes: AllTasksSubscriber,
    /// Changes were missed, so all recent tasks are looked at.
    must_scan: bool,
    /// Tasks whose comment may be old.
    pending: BTreeSet<TaskId>,
    /// Last comment of each task that this server wrote. Those of ended tasks are forgotten after an
    /// hour.
    written: BTreeMap<TaskId, WrittenComment>,
    /// Times at which this server wrote a comment in the last hour, oldest first.
    writes: VecDeque<Timestamp>,
    /// Tasks that are too far for the newest change of their issue.
    unheard: BTreeSet<TaskId>,
}

/// Comment that this server wrote.
struct WrittenComment {
    hash: Digest,
    at: Timestamp,
    is_last: bool,
}

impl IssueProgress {
    pub(crate) fn new(app: &App) -> Self {
        Self {
            changes: app.live.subscribe_all(),
            must_scan: true,
            pending: BTreeSet::new(),
            written: BTreeMap::new(),
            writes: VecDeque::new(),
            unheard: BTreeSet::new(),
        }
    }

    /// Notes tasks that are too far for the newest change of their issue.
    pub(crate) fn note_unheard(&mut self, tasks: Vec<TaskId>) {
        self.pending.extend(&tasks);
        self.unheard.extend(tasks);
    }

    /// Writes the comments that are due in these repositories.
    pub(crate) async fn write(
        &mut self,
        app: &App,
        repositories: &[&PolledRepository],
    ) -> Result<(), PollError> {
        self.collect_changes();
        if repositories.is_empty() {
            // Another server writes the comments, or there is no forge. What it wrote is unknown.
            self.pending.clear();
            self.written.clear();
            self.must_scan = true;
            return Ok(());
        }
        if self.must_scan {
            self.scan(app).await?;
            self.must_scan = false;
        }
        let now = clock::now();
        let is_old = |at: &Timestamp| now - *at >= TimeDelta::hours(1);
        while self.writes.front().is_some_and(is_old) {
            self.writes.pop_front();
        }
        self.written.retain(|_, it| !it.is_last || !is_old(&it.at));
        let mut this_round = 0;
        for task in self.pending.clone() {
            if this_round >= MAX_PER_ROUND || self.writes.len() >= MAX_PER_HOUR {
                break;
            }
            if self.written.get(&task).is_some_and(|it| now - it.at < UPDATE_INTERVAL) {
                continue;
            }
            self.pending.remove(&task);
            let Some(issue) = app.store.issue_of_task(task).await? else { continue };
            let is_it = |it: &&&PolledRepository| {
                it.forge.name() == issue.forge && it.path.eq_ignore_ascii_case(&issue.repository)
            };
            let Some(repository) = repositories.iter().find(is_it) else { continue };
            match self.update(app, repository, &issue).await {
                Ok(false) => {}
                Ok(true) => {
                    this_round += 1;
                    self.writes.push_back(now);
                }
                Err(PollError::Forge(error)) if !is_temporary(&error) => {
                    // Such as a locked issue. The next change of the task tries again.
                    tracing::warn!(%task, %error, "progress not written");
                }
                Err(error) => {
                    self.pending.insert(task);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes the changes since the last round, without waiting.
    fn collect_changes(&mut self) {
        while let Some(Some(event)) = self.changes.next().now_or_never() {
            match event {
                LiveEvent::Change(change) => drop(self.pending.insert(change.task)),
                LiveEvent::Missed => self.must_scan = true,
            }
        }
    }

    async fn scan(&mut self, app: &App) -> Result<(), PollError> {
        let recent = clock::now() - RECENT;
        for listed in app.store.tasks(&TaskFilter::default(), None, MAX_TASKS).await?.tasks {
            if let ListedTask::Card(card) = listed
                && (!card.state.is_terminal() || card.updated_at > recent)
            {
                self.pending.insert(card.task);
            }
        }
        Ok(())
    }

    /// Writes the comment of one issue, unless it is up to date. Returns `true` if it was written.
    async fn update(
        &mut self,
        app: &App,
        repository: &PolledRepository,
        issue: &IssueTask,
    ) -> Result<bool, PollError> {
        let card = match app.task_card(issue.task).await {
            Ok(card) => card,
            // A claim whose task is not added yet.
            Err(Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let pull_request = app.task_pull_request(issue.task, None).await?;
        let is_unheard = self.unheard.contains(&issue.task);
        let link = app.public_url.as_ref().map(|url| format!("{url}/tasks/{}", card.id));
        let text = progress_text(&card, pull_request.as_ref(), link.as_deref(), is_unheard);
        let hash = Digest::of(text.as_bytes());
        if self.written.get(&issue.task).is_some_and(|it| it.hash == hash) {
            return Ok(false);
        }
        write_comment(app, repository, issue, &text).await?;
        let is_last = card.state.is_terminal();
        if is_last {
            self.unheard.remove(&issue.task);
        }
        self.written.insert(issue.task, WrittenComment { hash, at: clock::now(), is_last });
        Ok(true)
    }
}

/// Returns `true` if the same request can succeed later.
fn is_temporary(error: &forge::Error) -> bool {
    match error {
        forge::Error::Unreachable { .. } | forge::Error::RateLimited { .. } => true,
        forge::Error::Forbidden { .. }
        | forge::Error::NotFound { .. }
        | forge::Error::Conflict { .. }
        | forge::Error::Refused { .. }
        | forge::Error::Unreadable { .. } => false,
    }
}

/// Writes the first comment as an effect that happens once, and updates it later.
async fn write_comment(
    app: &App,
    repository: &PolledRepository,
    issue: &IssueTask,
    text: &str,
) -> Result<(), PollError> {
    let (forge, path) = (&repository.forge, repository.path.as_str());
    let target = CommentTarget::Issue(issue.number);
    let marker = format!("{}/progress", issue.task);
    let effect = Effect {
        key: format!("tamma/{}/progress", issue.task),
        kind: EffectKind::Comment,
        project: issue.project,
        task: Some(issue.task),
        precondition: None,
    };
    let is_first = AtomicBool::new(false);
    // The client finds a comment by its marker and replaces it, so looking first is not needed.
    let find = || async { Ok::<Option<String>, forge::Error>(None) };
    let act = || async {
        is_first.store(true, Ordering::Relaxed);
        forge.upsert_comment(path, &target, &marker, text).await
    };
    match app.store.perform(&effect, find, act).await {
        Ok(_) => {}
        Err(EffectError::Failed(error)) => return Err(error.into()),
        Err(EffectError::Store(error)) => return Err(error.into()),
        Err(error @ EffectError::InProgress { .. }) => {
            return Err(Error::Refused(error.to_string()).into());
        }
    }
    if !is_first.load(Ordering::Relaxed) {
        forge.upsert_comment(path, &target, &marker, text).await?;
    }
    Ok(())
}

/// Formats a comment. It has no time, so that an unchanged one is not written again.
fn progress_text(
    card: &TaskCard,
    pull_request: Option<&PullRequestView>,
    link: Option<&str>,
    is_unheard: bool,
) -> String {
    let task = match link {
        Some(link) => format!("[task {}]({link})", card.short),
        None => format!("task {}", card.short),
    };
    let mut text = if card.state.is_terminal() {
        format!("Tamma has ended the {task} for this issue.\n\n")
    } else {
        format!("Tamma works on this issue: {task}.\n\n")
    };
    let paused = if card.paused { ", paused" } else { "" };
    let status = capitalize(&humanize(&card.state));
    text.push_str("| | |\n| --- | --- |\n");
    let _ = writeln!(text, "| Status | {status}{paused} |");
    if card.waits_for_person {
        text.push_str("| Waiting on | a person, in Tamma |\n");
    }
    if let Some(it) = pull_request {
        let status = if it.draft { "draft" } else { it.status.as_str() };
        let _ = writeln!(text, "| Pull request | [#{}]({}), {status} |", it.number, it.url);
        if !it.checks.is_empty() {
            let count = |result| it.count_checks(result);
            let (passed, failed) = (count(CheckResult::Passed), count(CheckResult::Failed));
            let pending = count(CheckResult::Pending);
            let _ =
                writeln!(text, "| Checks | {passed} passed, {failed} failed, {pending} pending |");
        }
    }
    if is_unheard && !card.state.is_terminal() {
        text.push_str(
            "\nThe newest edit or comment of this issue does not change the task: its work is too \
             far. Comment on the pull request, or add another task.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(state: &str) -> TaskCard {
        serde_json::from_value(json!({
            "id": "01920000-0000-7000-8000-0000abcdef01", "short": "abcdef01",
            "project": "01920000-0000-7000-8000-000000000002", "title": "Greet @everybody",
            "type": "feature", "priority": "medium", "created_at": "2026-11-17T09:00:00Z",
            "state": state, "phase": "plan", "paused": false, "since": "2026-11-17T09:00:00Z",
            "risk": null, "iterations": 0, "retries": 0, "councils": 0, "failures": 0,
            "spend": { "usd": "0.42", "tokens": 7, "estimated": false },
            "waits_for_person": true, "answers": [], "next": null, "next_in_words": null,
            "due_at": null, "entries": 1, "updated_at": "2026-11-17T09:00:00Z",
        }))
        .expect("card")
    }

    #[test]
    fn a_comment_shows_the_state_and_mentions_nobody() {
        let text = progress_text(&card("planning"), None, Some("https://t.example/tasks/1"), true);
        assert_eq!(
            text,
            "Tamma works on this issue: [task abcdef01](https://t.example/tasks/1).\n\n\
             | | |\n| --- | --- |\n| Status | Planning |\n| Waiting on | a person, in Tamma |\n\n\
             The newest edit or comment of this issue does not change the task: its work is too \
             far. Comment on the pull request, or add another task.\n"
        );
        let ended = progress_text(&card("completed"), None, None, true);
        assert!(ended.starts_with("Tamma has ended the task abcdef01 for this issue."), "{ended}");
        assert!(!ended.contains("newest edit"), "{ended}");
    }
}
