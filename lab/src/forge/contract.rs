//! Rules that the client of every forge keeps. A rule that fails does not end the others.

use anyhow::{Context as _, Result, ensure};
use tamma_connect::forge::{
    ChangeUpdate, CheckReport, CommentTarget, Error, Forge, FoundChange, NewChange, ObservedChange,
};
use tamma_core::forge::{
    CheckResult, ForgeKind, Mergeability, PullRequestFacts, PullRequestStatus,
};
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;
use tamma_core::time::Timestamp;
use tamma_testkit::forge::{ForgeProxy, ProxyFault, RequestPattern};
use tamma_testkit::repository::Repository;
use tamma_testkit::wait_until;

use super::person::Person;

/// Time limit for a forge to notice a push.
const NOTICE: std::time::Duration = std::time::Duration::from_secs(30);

/// Contract over one forge.
pub(crate) struct Contract<'a> {
    pub(crate) forge: &'a Forge,
    pub(crate) repository: &'a str,
    /// Address with a login, for pushes.
    pub(crate) clone_url: String,
    /// Somebody who can push.
    pub(crate) person: Person<'a>,
}

/// Result of a contract.
#[derive(Debug, Default)]
pub(crate) struct ContractResult {
    pub(crate) rules: usize,
    pub(crate) failures: Vec<String>,
    /// Effects that happened more than once.
    pub(crate) doubled: usize,
    /// Effects that did not happen.
    pub(crate) lost: usize,
}

impl ContractResult {
    fn add(&mut self, rule: &str, outcome: Result<()>) {
        self.rules += 1;
        if let Err(error) = outcome {
            self.failures.push(format!("{rule}: {error:#}"));
        }
    }
}

impl Contract<'_> {
    /// Checks all rules.
    pub(crate) async fn run(&self) -> ContractResult {
        let mut result = ContractResult::default();
        result.add("a pull request is found, opened once and found again", self.opens().await);
        result.add("a pull request is updated and closed", self.updates().await);
        result.add("a comment is written once and replaced", self.comments().await);
        result.add("a check is published once and replaced", self.checks().await);
        result.add("only the expected head is merged", self.merges().await);
        result.add("a thread is read, answered once and resolved", self.threads().await);
        result.add("a failed check has a log and runs again", self.logs().await);
        result.add("a branch only advances from the expected commit", self.advances().await);
        result.add("an issue is listed with labels and comments", self.intake().await);
        result.add("a missing pull request is reported", self.missing().await);
        result
    }

    /// Pushes a new branch with one commit, and opens its pull request.
    async fn open(&self, branch: &str) -> Result<(Repository, FoundChange)> {
        let (clone, _) = self.push(branch)?;
        let opened = self.forge.open_change(self.repository, &change(branch)).await?;
        Ok((clone, opened))
    }

    fn push(&self, branch: &str) -> Result<(Repository, CommitId)> {
        let clone = Repository::new()?;
        clone.git(&["fetch", "--quiet", &self.clone_url, "main"])?;
        clone.git(&["checkout", "--quiet", "-b", branch, "FETCH_HEAD"])?;
        let commit = self.push_more(&clone, branch, "one")?;
        Ok((clone, commit))
    }

    fn push_more(&self, clone: &Repository, branch: &str, text: &str) -> Result<CommitId> {
        clone.write(&format!("{}.txt", branch.replace('/', "-")), text)?;
        let commit = clone.commit(text)?;
        clone.git(&["push", "--quiet", &self.clone_url, &format!("HEAD:refs/heads/{branch}")])?;
        Ok(commit.parse()?)
    }

    async fn facts(&self, number: u64) -> Result<PullRequestFacts> {
        let wanted = [ObservedChange { number, cursor: None }];
        let seen = self.forge.observe(self.repository, &wanted).await?;
        let (facts, _) = seen.changes.into_iter().next().context("the pull request is missing")?;
        Ok(facts)
    }

    async fn opens(&self) -> Result<()> {
        let branch = "tamma/opens";
        let (_clone, head) = self.push(branch)?;
        let before = self.forge.find_change(self.repository, branch, "main").await?;
        ensure!(before.is_none(), "it is found before it is opened");
        let opened = self.forge.open_change(self.repository, &change(branch)).await?;
        let found = self.forge.find_change(self.repository, branch, "main").await?;
        ensure!(found.as_ref() == Some(&opened), "found {found:?}, opened {opened:?}");
        ensure!(opened.head == head && opened.open, "{opened:?}");
        let again = self.forge.open_change(self.repository, &change(branch)).await;
        ensure!(matches!(again, Err(Error::Conflict { .. })), "opened twice: {again:?}");
        Ok(())
    }

    async fn updates(&self) -> Result<()> {
        let (_clone, opened) = self.open("tamma/updates").await?;
        let update = ChangeUpdate { body: Some("More.".to_owned()), ..ChangeUpdate::default() };
        for _ in 0..2 {
            self.forge.update_change(self.repository, opened.number, &update).await?;
        }
        let close = ChangeUpdate { close: true, ..ChangeUpdate::default() };
        self.forge.update_change(self.repository, opened.number, &close).await?;
        let facts = self.facts(opened.number).await?;
        ensure!(matches!(facts.status, PullRequestStatus::Closed { .. }), "{:?}", facts.status);
        let merged =
            self.forge.merge(self.repository, opened.number, opened.head, MergeMethod::Merge).await;
        ensure!(merged.is_err(), "a closed pull request was merged");
        Ok(())
    }

    async fn comments(&self) -> Result<()> {
        let (_clone, opened) = self.open("tamma/comments").await?;
        let target = CommentTarget::PullRequest(opened.number);
        let mut ids = Vec::new();
        for text in ["First.", "First.", "Second."] {
            let marker = "tamma/contract/1/comment";
            ids.push(self.forge.upsert_comment(self.repository, &target, marker, text).await?);
        }
        ensure!(ids.windows(2).all(|pair| pair[0] == pair[1]), "several comments: {ids:?}");
        let facts = self.facts(opened.number).await?;
        ensure!(facts.threads.is_empty(), "our own comment is feedback: {:?}", facts.threads);
        Ok(())
    }

    async fn checks(&self) -> Result<()> {
        let (_clone, opened) = self.open("tamma/checks").await?;
        let mut ids = Vec::new();
        for passed in [None, Some(false), Some(true), Some(true)] {
            let report = check(opened.head, passed);
            ids.push(self.forge.publish_check(self.repository, &report).await?);
        }
        ensure!(ids[2] == ids[3], "the same check was published twice: {ids:?}");
        let facts = self.facts(opened.number).await?;
        let has_own = facts.checks.iter().any(|it| it.name == "tamma");
        ensure!(!has_own, "our own check is a fact: {:?}", facts.checks);
        Ok(())
    }

    async fn threads(&self) -> Result<()> {
        const TEXT: &str = "Please greet Eve, too.";
        let branch = "tamma/threads";
        let (_clone, opened) = self.open(branch).await?;
        let number = opened.number;
        let line = ("tamma-threads.txt", 1);
        self.person.add_thread(self.repository, (number, opened.head), line, TEXT).await?;
        let thread = wait_until("the thread", NOTICE, async || {
            Ok(self.facts(number).await?.threads.into_iter().next())
        })
        .await?;
        ensure!(thread.by == "ann" && thread.can_write, "the author cannot push: {thread:?}");
        ensure!(!thread.answered && !thread.resolved, "it is not answered yet: {thread:?}");
        let threads = [thread.id.clone()];
        let read = self.forge.thread_comments(self.repository, number, &threads).await?;
        ensure!(read.len() == 1 && read[0].text.trim() == TEXT, "comments: {read:?}");
        let mut ids = Vec::new();
        for resolve in [false, false, true] {
            let target = CommentTarget::Thread { number, thread: thread.id.clone(), resolve };
            let key = "tamma/contract/1/reply";
            ids.push(self.forge.upsert_comment(self.repository, &target, key, "Done.").await?);
        }
        ensure!(ids.windows(2).all(|pair| pair[0] == pair[1]), "several replies: {ids:?}");
        let answered = self.facts(number).await?.threads;
        // Forges list a resolved thread, or leave it out.
        let is_open = answered.iter().any(|it| !it.answered && !it.resolved);
        ensure!(!is_open, "the answer is not seen: {answered:?}");
        let read = self.forge.thread_comments(self.repository, number, &threads).await?;
        ensure!(read.len() <= 1, "our reply is a comment of a person: {read:?}");
        Ok(())
    }

    async fn logs(&self) -> Result<()> {
        const LOG: &str = "dee is not greeted";
        let (_clone, opened) = self.open("tamma/logs").await?;
        self.person.add_check(self.repository, opened.head, Some(false), LOG).await?;
        let failed = wait_until("the failed check", NOTICE, async || {
            let checks = self.facts(opened.number).await?.checks;
            Ok(checks.into_iter().find(|it| it.result == CheckResult::Failed))
        })
        .await?;
        let log = self.forge.failed_check_log(self.repository, &failed.id).await?;
        ensure!(log.contains(LOG), "log: {log}");
        let listed = self.forge.commit_checks(self.repository, opened.head).await?;
        ensure!(listed.iter().any(|it| it.id == failed.id), "checks of the commit: {listed:?}");
        let again = self.forge.rerun_check(self.repository, &failed.id).await;
        if self.forge.kind() == ForgeKind::Gitea {
            // The person's check is no job.
            ensure!(matches!(again, Err(Error::Refused { .. })), "a status ran again: {again:?}");
            return Ok(());
        }
        again?;
        let checks = self.facts(opened.number).await?.checks;
        let is_pending = checks.iter().any(|it| it.result == CheckResult::Pending);
        ensure!(is_pending, "it does not run again: {checks:?}");
        Ok(())
    }

    async fn advances(&self) -> Result<()> {
        let branch = "tamma/advances";
        let (clone, new) = self.push(branch)?;
        let old: CommitId = clone.git(&["rev-parse", "HEAD~1"])?.parse()?;
        let advance =
            async |old, new| self.forge.advance_branch(self.repository, "main", old, new).await;
        let first = advance(old, new).await;
        if !self.forge.capabilities().ref_cas {
            ensure!(matches!(first, Err(Error::Refused { .. })), "it advanced: {first:?}");
            return Ok(());
        }
        first?;
        advance(old, new).await.context("the same advance again")?;
        let (_clone, other) = self.push("tamma/advances-late")?;
        let late = advance(old, other).await;
        ensure!(matches!(late, Err(Error::Conflict { .. })), "an old commit: {late:?}");
        Ok(())
    }

    async fn intake(&self) -> Result<()> {
        const LABEL: &str = "tamma";
        let number = self.person.add_issue(self.repository, "Greet Eve", LABEL).await?;
        self.person.add_comment(self.repository, number, "And Dee.").await?;
        for _ in 0..2 {
            let target = CommentTarget::Issue(number);
            self.forge.upsert_comment(self.repository, &target, "k", "Progress.").await?;
        }
        let listed = self.forge.list_intake(self.repository, Timestamp::UNIX_EPOCH).await?;
        let own: Vec<_> = listed.iter().filter(|it| it.number == number).collect();
        let [issue] = own.as_slice() else { anyhow::bail!("listed {} times", own.len()) };
        ensure!(issue.open && issue.can_write && issue.by == "ann", "{issue:?}");
        ensure!(issue.labels == [LABEL], "labels: {:?}", issue.labels);
        let texts: Vec<&str> = issue.comments.iter().map(|it| it.text.trim()).collect();
        ensure!(texts == ["And Dee."], "comments: {texts:?}");
        let writer = self.forge.label_writer(self.repository, number, LABEL).await?;
        ensure!(writer.as_deref() == Some("ann"), "the label is of {writer:?}");
        Ok(())
    }

    async fn merges(&self) -> Result<()> {
        let branch = "tamma/merges";
        let (clone, opened) = self.open(branch).await?;
        let newer = self.push_more(&clone, branch, "two")?;
        self.wait_until_clean(opened.number, newer).await?;
        let stale =
            self.forge.merge(self.repository, opened.number, opened.head, MergeMethod::Merge).await;
        ensure!(matches!(stale, Err(Error::Conflict { .. })), "an old head: {stale:?}");
        // Gitea checks the pull request again after a refused merge.
        self.wait_until_clean(opened.number, newer).await?;
        self.forge.merge(self.repository, opened.number, newer, MergeMethod::Merge).await?;
        let facts = self.facts(opened.number).await?;
        ensure!(matches!(facts.status, PullRequestStatus::Merged { .. }), "{:?}", facts.status);
        Ok(())
    }

    /// Waits until the forge knows that a head can be merged.
    async fn wait_until_clean(&self, number: u64, head: CommitId) -> Result<()> {
        wait_until("the pushed head", NOTICE, async || {
            let facts = self.facts(number).await?;
            let is_clean = facts.mergeability == Mergeability::Clean;
            Ok((facts.head == head && is_clean).then_some(()))
        })
        .await
    }

    async fn missing(&self) -> Result<()> {
        let update = ChangeUpdate { body: Some(String::new()), ..ChangeUpdate::default() };
        let updated = self.forge.update_change(self.repository, 9_999, &update).await;
        ensure!(matches!(updated, Err(Error::NotFound { .. })), "{updated:?}");
        Ok(())
    }

    /// Loses requests and responses of effects on their way through a proxy, looks the effects up, and
    /// counts what is there. `through` is a client behind the proxy.
    pub(crate) async fn lost_answers(
        &self,
        through: &Forge,
        proxy: &ForgeProxy,
        result: &mut ContractResult,
    ) {
        for fault in [ProxyFault::LoseAnswer, ProxyFault::LoseRequest] {
            let outcome = self.lost_answer(through, proxy, fault, result).await;
            result.add(&format!("an effect survives {fault:?}"), outcome);
            proxy.clear();
        }
        // Last, because a client remembers it.
        result.add("a request to slow down is reported", self.slows_down(through, proxy).await);
    }

    async fn lost_answer(
        &self,
        through: &Forge,
        proxy: &ForgeProxy,
        fault: ProxyFault,
        result: &mut ContractResult,
    ) -> Result<()> {
        let branch = format!("tamma/{fault:?}").to_lowercase();
        let (_clone, head) = self.push(&branch)?;
        let before = self.person.effects(self.repository, head).await?;
        proxy.inject(self.pattern("/pulls", "/merge_requests"), fault);
        let lost = through.open_change(self.repository, &change(&branch)).await;
        ensure!(lost.is_err(), "the fault did not happen");
        let opened = match through.find_change(self.repository, &branch, "main").await? {
            Some(found) => found,
            None => through.open_change(self.repository, &change(&branch)).await?,
        };
        let target = CommentTarget::PullRequest(opened.number);
        proxy.inject(self.pattern("/issues/*/comments", "/merge_requests/*/notes"), fault);
        let comment = async || through.upsert_comment(self.repository, &target, "k", "Text.").await;
        ensure!(comment().await.is_err(), "the fault did not happen");
        comment().await?;
        proxy.inject(self.pattern("/statuses/*", "/statuses/*"), fault);
        let report = check(head, Some(true));
        let publish = async || through.publish_check(self.repository, &report).await;
        ensure!(publish().await.is_err(), "the fault did not happen");
        publish().await?;
        let after = self.person.effects(self.repository, head).await?;
        let added: Vec<usize> =
            after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
        result.doubled += added.iter().map(|count| count.saturating_sub(1)).sum::<usize>();
        result.lost += added.iter().filter(|count| **count == 0).count();
        ensure!(added == [1, 1, 1], "effects: {added:?}");
        Ok(())
    }

    async fn slows_down(&self, through: &Forge, proxy: &ForgeProxy) -> Result<()> {
        let (_clone, head) = self.push("tamma/slow")?;
        proxy.inject(self.pattern("/statuses/*", "/statuses/*"), ProxyFault::SlowDown);
        let refused = through.publish_check(self.repository, &check(head, Some(true))).await;
        ensure!(matches!(refused, Err(Error::RateLimited { .. })), "{refused:?}");
        Ok(())
    }

    /// Returns the pattern of an effect, which has another path on GitLab.
    fn pattern(&self, path: &'static str, gitlab: &'static str) -> RequestPattern {
        let path = if self.forge.kind() == ForgeKind::Gitlab { gitlab } else { path };
        RequestPattern { method: "POST", path, text: "shop".to_owned() }
    }
}

/// Returns a pull request of a branch.
pub(crate) fn change(branch: &str) -> NewChange {
    NewChange {
        branch: branch.to_owned(),
        base: "main".to_owned(),
        title: "Greet Cy".to_owned(),
        body: "Cy should be greeted.".to_owned(),
        labels: Vec::new(),
        reviewers: Vec::new(),
    }
}

fn check(commit: CommitId, passed: Option<bool>) -> CheckReport {
    CheckReport {
        name: "tamma".to_owned(),
        commit,
        passed,
        title: "Review".to_owned(),
        summary: "All criteria are met.".to_owned(),
        details_url: None,
        annotations: Vec::new(),
    }
}
