//! Pull requests: the list of open ones, and the card on the page of a task.

use askama::Template;
use chrono::TimeDelta;
use tamma_core::aftercare::AftercareKind;
use tamma_core::forge::{
    CheckFact, CheckResult, Mergeability, PullRequestFacts, ReviewFact, ReviewVerdict, ThreadFact,
};
use tamma_core::format::{capitalize, format_duration};
use tamma_core::ids::TaskId;
use tamma_core::pull_request::PullRequestState;
use tamma_core::time::Timestamp;
use tamma_store::{
    AftercareFinding, ListedTask, PullRequestFilter, StoredPullRequest, StoredStatus,
};
use uuid::Uuid;

use super::layout::{DisplayTime, Layout};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error};
use crate::clock;
use crate::dto::{ChecksSummary, PullRequestBadge};

/// Maximum number of listed pull requests.
const MAX_LISTED: u32 = 200;

/// Time without a look at an open pull request after which its page says so. The poller looks every few
/// minutes, unless its quota is used up.
const UNREAD_AFTER: TimeDelta = TimeDelta::minutes(30);

#[derive(Template)]
#[template(path = "pull_requests.html")]
struct PullRequestsPage {
    layout: Layout,
    live_href: &'static str,
    list: PullRequestsView,
}

/// Open pull requests, as live updates replace them.
#[derive(Template)]
#[template(path = "_pull_requests.html")]
pub(super) struct PullRequestsView {
    summary: String,
    rows: Vec<PullRequestRow>,
}

/// Open pull request in the list.
struct PullRequestRow {
    task: Uuid,
    title: String,
    link: PullRequestLink,
    repository: String,
    stage: String,
    checks: ChecksSummary,
    opened: DisplayTime,
}

/// Number of a pull request, with its page if the address is safe to open.
#[derive(Clone)]
pub(super) enum PullRequestLink {
    /// Page in the forge.
    Page { number: u64, url: String },
    /// Address that is not one of a web page.
    Number(u64),
}

/// Pull request on the page of its task.
pub(super) struct PullRequestView {
    pub(super) link: PullRequestLink,
    pub(super) repository: String,
    pub(super) base_branch: String,
    pub(super) status: StoredStatus,
    pub(super) stage: String,
    pub(super) is_draft: bool,
    pub(super) mergeability: Option<Mergeability>,
    pub(super) checks: Vec<CheckRow>,
    pub(super) reviews: Vec<ReviewRow>,
    pub(super) threads: Vec<ThreadRow>,
    pub(super) rounds: u8,
    /// What happened to the change after its merge.
    pub(super) aftercare: Vec<AftercareRow>,
    pub(super) opened: DisplayTime,
    /// `None` before the first observation.
    pub(super) observed: Option<DisplayTime>,
}

/// Check of the head.
pub(super) struct CheckRow {
    pub(super) name: String,
    pub(super) result: CheckResult,
    pub(super) is_required: bool,
}

/// Newest review of one account.
pub(super) struct ReviewRow {
    pub(super) by: String,
    pub(super) verdict: ReviewVerdict,
    /// Its author can push, and it is about the newest commit.
    pub(super) counts: bool,
}

/// Finding about the merged change.
pub(super) struct AftercareRow {
    kind: AftercareKind,
    pub(super) short_commit: String,
    pub(super) detail: String,
    pub(super) found: DisplayTime,
}

/// Open thread of comments.
pub(super) struct ThreadRow {
    pub(super) by: String,
    pub(super) is_answered: bool,
}

impl PullRequestLink {
    fn new(stored: &StoredPullRequest) -> Self {
        // The address comes from the forge.
        let is_web = stored.url.starts_with("https://") || stored.url.starts_with("http://");
        if is_web {
            Self::Page { number: stored.number, url: stored.url.clone() }
        } else {
            Self::Number(stored.number)
        }
    }
}

/// Returns what a pull request is waiting for, as one or two sentences.
fn stage_sentence(stored: &StoredPullRequest, memory: Option<&PullRequestState>) -> String {
    let sentence = known_stage(stored, memory);
    let last_read = stored.observed_at.unwrap_or(stored.opened_at);
    match unread_sentence(&stored.forge, last_read, clock::now()) {
        Some(unread) if stored.status == StoredStatus::Open => format!("{sentence} {unread}"),
        _ => sentence,
    }
}

/// Returns what to do about a pull request that was last read at a time, if that is long ago.
fn unread_sentence(forge: &str, last_read: Timestamp, now: Timestamp) -> Option<String> {
    let age = now - last_read;
    (age > UNREAD_AFTER).then(|| {
        let age = format_duration(age);
        format!(
            "It could not be read for {age}: run `tamma forge check {forge}`, and see the server's log."
        )
    })
}

/// Returns what a pull request is waiting for, as it was read last.
fn known_stage(stored: &StoredPullRequest, memory: Option<&PullRequestState>) -> String {
    // The task may remember another one, which it has not opened yet.
    let memory = memory.filter(|memory| memory.number == stored.number);
    match (stored.status, memory) {
        (StoredStatus::Open, Some(memory)) => {
            format!("{}.", capitalize(memory.stage.description()))
        }
        (StoredStatus::Open, None) => "Just opened.".to_owned(),
        (StoredStatus::Merged, _) => "Merged.".to_owned(),
        (StoredStatus::Closed, _) => "Closed without merging.".to_owned(),
    }
}

impl PullRequestView {
    /// Loads the pull request of a task, if it has one.
    pub(super) async fn load(
        app: &App,
        task: TaskId,
        memory: Option<&PullRequestState>,
    ) -> Result<Option<Self>, Error> {
        let Some(stored) = app.store.pull_request(task).await? else { return Ok(None) };
        let findings = app.store.aftercare_findings(task).await?;
        let aftercare = findings.into_iter().map(AftercareRow::from).collect();
        Ok(Some(Self { aftercare, ..Self::new(&stored, memory) }))
    }

    fn new(stored: &StoredPullRequest, memory: Option<&PullRequestState>) -> Self {
        let facts = stored.facts.as_ref();
        Self {
            link: PullRequestLink::new(stored),
            repository: stored.repository.clone(),
            base_branch: stored.base_branch.clone(),
            status: stored.status,
            stage: stage_sentence(stored, memory),
            is_draft: facts.is_some_and(|facts| facts.draft),
            mergeability: facts.map(|facts| facts.mergeability),
            checks: facts.map(check_rows).unwrap_or_default(),
            reviews: facts.map(review_rows).unwrap_or_default(),
            threads: facts.map(thread_rows).unwrap_or_default(),
            rounds: memory.map(|memory| memory.rounds).unwrap_or_default(),
            aftercare: Vec::new(),
            opened: DisplayTime::ago(stored.opened_at),
            observed: stored.observed_at.map(DisplayTime::ago),
        }
    }

    /// Returns the tone of the status.
    pub(super) fn tone(&self) -> &'static str {
        match self.status {
            StoredStatus::Open => "work",
            StoredStatus::Merged => "good",
            StoredStatus::Closed => "bad",
        }
    }

    /// Returns whether the branch cannot be merged as it is.
    pub(super) fn is_conflicting(&self) -> bool {
        self.status == StoredStatus::Open && self.mergeability == Some(Mergeability::Conflicting)
    }
}

fn check_rows(facts: &PullRequestFacts) -> Vec<CheckRow> {
    let row = |it: &CheckFact| CheckRow {
        name: it.name.clone(),
        result: it.result,
        is_required: it.required,
    };
    facts.checks.iter().map(row).collect()
}

fn review_rows(facts: &PullRequestFacts) -> Vec<ReviewRow> {
    let row = |it: &ReviewFact| ReviewRow {
        by: it.by.clone(),
        verdict: it.verdict,
        counts: it.can_write && it.commit == facts.head,
    };
    facts.reviews.iter().map(row).collect()
}

fn thread_rows(facts: &PullRequestFacts) -> Vec<ThreadRow> {
    let row = |it: &ThreadFact| ThreadRow { by: it.by.clone(), is_answered: it.answered };
    facts.threads.iter().filter(|thread| !thread.resolved).map(row).collect()
}

impl From<AftercareFinding> for AftercareRow {
    fn from(it: AftercareFinding) -> Self {
        Self {
            kind: it.kind,
            short_commit: labels::short_hash(&it.commit),
            detail: it.detail,
            found: DisplayTime::ago(it.found_at),
        }
    }
}

impl AftercareRow {
    /// Returns the label of the finding.
    pub(super) fn label(&self) -> &'static str {
        match self.kind {
            AftercareKind::Revert => "reverted",
            AftercareKind::Fix => "fixed later",
            AftercareKind::RedBase => "broke the base",
        }
    }
}

impl CheckRow {
    /// Returns the tone of the result.
    pub(super) fn tone(&self) -> &'static str {
        match self.result {
            CheckResult::Pending => "work",
            CheckResult::Passed => "good",
            CheckResult::Failed => "bad",
        }
    }
}

impl ReviewRow {
    /// Returns the label of the review, which follows the name of its author.
    pub(super) fn label(&self) -> &'static str {
        match self.verdict {
            ReviewVerdict::Approved => "approved",
            ReviewVerdict::ChangesRequested => "requested changes",
            ReviewVerdict::Commented => "commented",
        }
    }
}

impl PullRequestRow {
    fn checks_tone(&self) -> &'static str {
        labels::checks_tone(self.checks)
    }

    fn checks_label(&self) -> &'static str {
        labels::checks_label(self.checks)
    }

    fn new(stored: &StoredPullRequest, title: String, memory: Option<&PullRequestState>) -> Self {
        Self {
            task: stored.task.0,
            title,
            link: PullRequestLink::new(stored),
            repository: stored.repository.clone(),
            stage: stage_sentence(stored, memory),
            checks: PullRequestBadge::from(stored).checks,
            opened: DisplayTime::elapsed(stored.opened_at),
        }
    }
}

impl PullRequestsView {
    pub(super) async fn load(app: &App) -> Result<Self, Error> {
        let filter = PullRequestFilter { project: None, status: Some(StoredStatus::Open) };
        let mut rows = Vec::new();
        for stored in app.store.pull_requests(&filter, MAX_LISTED).await? {
            let task = app.store.task(stored.task).await?;
            let title = match task.card {
                ListedTask::Card(card) => card.title,
                ListedTask::Damaged { title, .. } => title,
            };
            // A task that cannot be read still has its pull request.
            let memory = task.task_loop.ok().and_then(|it| it.pull_request);
            rows.push(PullRequestRow::new(&stored, title, memory.as_deref()));
        }
        let failed = rows.iter().filter(|row| row.checks == ChecksSummary::Failed).count();
        Ok(Self { summary: format!("{} open, {failed} with failed checks", rows.len()), rows })
    }
}

/// Renders the open pull requests.
pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "pull-requests").await?;
    let list = PullRequestsView::load(&state.app).await;
    let list = list.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render(&PullRequestsPage { layout, live_href: "/live/pull-requests", list })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_request_that_cannot_be_read_says_what_to_do() {
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(unread_sentence("code", start, start + TimeDelta::minutes(30)), None);
        let text = unread_sentence("code", start, start + TimeDelta::hours(50)).expect("a text");
        assert!(text.contains("`tamma forge check code`"), "{text}");
    }
}
