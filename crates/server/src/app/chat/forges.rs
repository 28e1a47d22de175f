//! Pull requests and the merge queue in chat.

use tamma_core::forge::CheckResult;
use tamma_core::format::{humanize, pluralize};
use tamma_store::{PullRequestFilter, StoredStatus};

use super::{MAX_LISTED, MAX_SUBJECTS, single_line_reply};
use crate::app::{App, Error};
use crate::dto::{ChatReply, MergeQueueView, PullRequestView, short_id};

impl App {
    /// Lists open pull requests, newest first.
    pub(super) async fn pull_requests_reply(&self) -> Result<ChatReply, Error> {
        let filter = PullRequestFilter { project: None, status: Some(StoredStatus::Open) };
        let views = self.list_pull_requests(&filter, MAX_SUBJECTS).await?;
        if views.is_empty() {
            return Ok(single_line_reply("", "No open pull requests."));
        }
        let lines = views.iter().take(MAX_LISTED).map(describe_pull_request).collect();
        Ok(ChatReply { lines, ..ChatReply::default() })
    }

    /// Lists the open entries of all merge queues, in their order.
    pub(super) async fn merge_queue_reply(&self) -> Result<ChatReply, Error> {
        let queues = self.merge_queues().await?;
        let mut lines: Vec<_> = queues.iter().flat_map(describe_queue).collect();
        if lines.is_empty() {
            return Ok(single_line_reply("", "No merge queues."));
        }
        lines.truncate(MAX_LISTED);
        Ok(ChatReply { lines, ..ChatReply::default() })
    }
}

fn describe_pull_request(it: &PullRequestView) -> String {
    let stage = it.stage.as_ref().map_or_else(|| "open".to_owned(), humanize);
    let failed = it.count_checks(CheckResult::Failed);
    let pending = it.count_checks(CheckResult::Pending);
    let checks = match (it.checks.len(), failed, pending) {
        (0, ..) => "no checks".to_owned(),
        (_, 0, 0) => "checks passed".to_owned(),
        (_, 0, pending) => format!("{} running", pluralize(pending, "check")),
        (_, failed, _) => format!("{} failed", pluralize(failed, "check")),
    };
    let task = short_id(it.task);
    format!("{} #{} (task {task}): {stage}, {checks}.", it.repository, it.number)
}

fn describe_queue(queue: &MergeQueueView) -> Vec<String> {
    let name = format!("{} {}", queue.repository, queue.branch);
    let is_open = |state: &str| matches!(state, "waiting" | "testing");
    let open: Vec<_> = queue.entries.iter().filter(|it| is_open(&it.state)).collect();
    let paused = match &queue.paused {
        Some(reason) => format!(", paused: {reason}"),
        None => String::new(),
    };
    let count = pluralize(open.len(), "change");
    let mut lines = vec![format!("Merge queue of {name}: {count}{paused}.")];
    lines.extend(open.into_iter().map(|it| {
        let title = it.title.clone().unwrap_or_else(|| short_id(it.task));
        format!("“{title}”: {}.", it.state)
    }));
    lines
}
