//! Stories with faults: an issue becomes a merged pull request while processes are killed, requests and
//! responses are lost, and webhooks are lost, doubled, reordered or late.
//!
//! A proxy in front of the forge holds the request of an operation before or after the forge has seen it.
//! Then worker, server or forge is killed and started again. Each story has one fault at every
//! operation. What is doubled or lost is counted from the forge's own state.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tamma_core::forge::{CheckResult, ForgeKind};
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::state::State;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::forge::{HoldEnd, RequestPattern, WebhookFault};
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::wait_until;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::census::{Census, FaultFindings};
use super::operation::{FaultCase, Strike, every_story, quick_story};
use super::site::{FORGE, SECRET, Site, SiteRepository};
use super::story::script_cases;
use crate::support::components::{Components, Victim, output_text};
use crate::support::programs;
use crate::support::scripts::agent_script;

/// Time limit from one event of a story to the next. An effect whose worker died waits for its retry.
const STEP: Duration = Duration::from_mins(5);

/// Time limit for the last effects after a task is completed: two rounds of the poller.
const SETTLED: Duration = Duration::from_mins(1);

/// Label of issues that become tasks.
const LABEL: &str = "tamma";

/// Sections of `tamma.yaml` besides those of the agent.
const RULES: &str = "\
delivery:
  mode: merge
  pull_requests: { required_checks: [ci] }
  intake: { label: tamma }
";

/// Log of the failed check, which the agent fixes.
const LOG: &str = "dee is not greeted";

/// Results of all stories.
#[derive(Debug)]
pub(crate) struct FaultTotals {
    pub(crate) passed: bool,
    pub(crate) cases: usize,
    pub(crate) doubled: usize,
    pub(crate) lost: usize,
}

/// Story to play.
#[derive(Debug)]
struct StoryPlan {
    cases: Vec<FaultCase>,
    with_queue: bool,
    webhooks: WebhookFault,
}

/// Story that is played.
#[derive(Debug)]
struct FaultStory {
    repository: SiteRepository,
    issue: u64,
    task: Option<TaskId>,
    /// Head whose check fails.
    first: Option<CommitId>,
    /// Head that has a check.
    checked: Option<CommitId>,
    /// The failed check ran again.
    has_rerun: bool,
}

/// Next event of a story.
#[derive(Debug)]
enum StoryEvent {
    /// A request is held.
    Held(RequestPattern),
    Completed,
    /// The task needs a person, or ended otherwise.
    Stuck(State),
}

/// Plays all stories, or the quick one on the fake.
pub(crate) async fn run(quick: bool) -> Result<FaultTotals> {
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("forge-faults-{}", std::process::id()));
    let mut totals = FaultTotals { passed: true, cases: 0, doubled: 0, lost: 0 };
    let kinds = [ForgeKind::Github, ForgeKind::Gitea];
    for kind in kinds.into_iter().take(if quick { 1 } else { 2 }) {
        let site = Site::start(kind).await?;
        let own = folder.join(site.kind_name());
        std::fs::create_dir_all(&own)?;
        let mut runner = Box::pin(FaultRunner::start(&own, site)).await?;
        for (number, plan) in plans(quick).into_iter().enumerate() {
            Box::pin(runner.play(number + 1, &plan, &mut totals)).await?;
        }
    }
    if totals.passed && totals.doubled == 0 && totals.lost == 0 {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stdout(), "logs: {}", folder.display())?;
    }
    Ok(totals)
}

fn plans(quick: bool) -> Vec<StoryPlan> {
    let plan = |cases, with_queue, webhooks| StoryPlan { cases, with_queue, webhooks };
    if quick {
        return vec![plan(quick_story(), false, WebhookFault::Double)];
    }
    let mut plans = Vec::new();
    for with_queue in [false, true] {
        let stories = every_story(with_queue).into_iter();
        plans.extend(stories.map(|cases| plan(cases, with_queue, WebhookFault::None)));
    }
    for webhooks in
        [WebhookFault::Lose, WebhookFault::Double, WebhookFault::Reorder, WebhookFault::Delay]
    {
        plans.push(plan(Vec::new(), false, webhooks));
    }
    plans
}

/// Tamma with one forge.
pub(crate) struct FaultRunner {
    pub(crate) components: Components,
    pub(crate) site: Site,
}

impl FaultRunner {
    /// Starts Tamma with logs in a folder, and adds the forge to the server and to the worker, which
    /// have their own data folders here.
    pub(crate) async fn start(folder: &Path, site: Site) -> Result<Self> {
        let components = Components::start(folder, |worker| worker).await?;
        agent_script(script_cases()).write(&folder.join("script.json"))?;
        let token = folder.join("token");
        std::fs::write(&token, site.token())?;
        for data in ["serve", "work"] {
            let mut add = Command::new(&components.cluster.cli.program);
            add.args(["forge", "add", FORGE, "--kind", site.kind_name()]);
            add.args(["--url", site.proxy.url(), "--webhook-secret-stdin"]);
            add.arg("--token-file").arg(&token).arg("--data").arg(folder.join(data));
            add.stdin(std::process::Stdio::piped());
            add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            let mut child = add.kill_on_drop(true).spawn()?;
            let mut input = child.stdin.take().context("standard input is not piped")?;
            input.write_all(SECRET.as_bytes()).await?;
            drop(input);
            let output = child.wait_with_output().await?;
            ensure!(output.status.success(), "`tamma forge add`: {}", output_text(&output));
        }
        std::fs::remove_file(&token)?;
        Ok(Self { components, site })
    }

    /// Creates a repository with its project.
    pub(crate) async fn add_project(&self, name: &str, rules: &str) -> Result<SiteRepository> {
        let cluster = &self.components.cluster;
        let path = cluster.folder().join("script.json");
        let configuration = ProjectConfig::scripted(&path)?.more(rules).to_string();
        let repository = self.site.create_repository(name, &configuration).await?;
        let address = format!("{}/{}.git", self.site.proxy.url(), repository.path);
        let data = cluster.folder().join("serve").display().to_string();
        cluster.cli.run(&["project", "add", &address, "--data", &data]).await?;
        Ok(repository)
    }

    /// Plays a story, and adds its findings.
    async fn play(
        &mut self,
        number: usize,
        plan: &StoryPlan,
        totals: &mut FaultTotals,
    ) -> Result<()> {
        let queue = if plan.with_queue { "  queue: { mode: tamma }\n" } else { "" };
        let name = format!("shop-{number}");
        self.site.renew_quota();
        let repository = self.add_project(&name, &format!("{RULES}{queue}")).await?;
        let kind = self.site.kind();
        for case in &plan.cases {
            let pattern = case.operation.pattern(kind, &repository.path);
            self.site.proxy.inject(pattern, case.fault());
        }
        self.site.proxy.pass_webhooks(self.components.cluster.url(), plan.webhooks);
        let issue = self.site.person().add_issue(&repository.path, "Greet Cy", LABEL).await?;
        let payload = json!({
            "action": "labeled", "issue": { "number": issue },
            "repository": { "full_name": repository.path },
        });
        self.site.send_webhook("issues", payload).await?;
        let mut story = FaultStory {
            repository,
            issue,
            task: None,
            first: None,
            checked: None,
            has_rerun: false,
        };
        let played = Box::pin(self.play_events(plan, &mut story)).await;
        // An end of the story must not leave the next one held.
        self.site.proxy.release(HoldEnd::Break);
        let left = self.site.proxy.clear();
        let webhooks = self.site.proxy.flush_webhooks().await;
        let is_webhook_story = plan.webhooks != WebhookFault::None;
        let cases = plan.cases.len() - left.len() + if is_webhook_story { webhooks } else { 0 };
        let mut findings = Box::pin(self.settle(&story)).await;
        if let Err(error) = &played {
            findings.lost.push(format!("{error:#}"));
        }
        totals.cases += cases;
        totals.doubled += findings.doubled.len();
        totals.lost += findings.lost.len();
        totals.passed &= left.is_empty();
        let mut out = std::io::stdout();
        let first = plan
            .cases
            .first()
            .map_or_else(|| "webhooks".to_owned(), |it| format!("{} {}", it.strike, it.side));
        let site = self.site.kind_name();
        writeln!(
            out,
            "{site} {name} {first} {:?}: {cases} cases, doubled {:?}, lost {:?}, not reached {:?}",
            plan.webhooks,
            findings.doubled,
            findings.lost,
            left.iter().map(|it| it.path).collect::<Vec<_>>(),
        )?;
        for exited in self.components.restart_exited().await? {
            writeln!(out, "{site} {name}: {exited} exited")?;
            totals.passed = false;
        }
        Ok(out.flush()?)
    }

    /// Plays a story to its end, with a strike at each held request.
    async fn play_events(&mut self, plan: &StoryPlan, story: &mut FaultStory) -> Result<()> {
        loop {
            match self.next_event(story).await? {
                StoryEvent::Completed => {
                    let Some(pattern) = self.last_hold().await else { return Ok(()) };
                    self.strike_held(plan, story, &pattern).await?;
                }
                StoryEvent::Stuck(state) => anyhow::bail!("the task is in {state}"),
                StoryEvent::Held(pattern) => self.strike_held(plan, story, &pattern).await?,
            }
        }
    }

    /// Returns a request that is held after the task is completed: the last comment may still follow.
    async fn last_hold(&self) -> Option<RequestPattern> {
        let proxy = &self.site.proxy;
        let found = wait_until("the last operations", SETTLED, async || {
            let held = proxy.held();
            Ok((held.is_some() || !proxy.has_faults()).then_some(held))
        })
        .await;
        found.ok().flatten()
    }

    async fn strike_held(
        &mut self,
        plan: &StoryPlan,
        story: &FaultStory,
        pattern: &RequestPattern,
    ) -> Result<()> {
        let (kind, path) = (self.site.kind(), &story.repository.path);
        let is_held = |it: &&FaultCase| it.operation.pattern(kind, path) == *pattern;
        let case = plan.cases.iter().find(is_held).context("an unknown hold")?;
        self.strike(*case).await.with_context(|| format!("at {case}"))
    }

    /// Kills a process at a held request, starts it again, and ends the hold.
    async fn strike(&mut self, case: FaultCase) -> Result<()> {
        match case.strike {
            Strike::KillWorker => {
                self.components.kill(Victim::Worker).await?;
                self.components.restart(Victim::Worker).await?;
                self.site.proxy.release(HoldEnd::Pass);
            }
            Strike::KillServer => {
                self.components.kill(Victim::Server).await?;
                // The poller of a dead server would keep its lease for minutes.
                let sql = "DELETE FROM leases WHERE holder LIKE 'forge poller %'";
                self.components.cluster.postgres()?.query(DATABASE, sql).await?;
                self.components.restart(Victim::Server).await?;
                self.site.proxy.release(HoldEnd::Pass);
            }
            Strike::KillForge => {
                self.site.kill();
                self.site.proxy.release(HoldEnd::Break);
                self.site.restart().await?;
            }
            Strike::Lose => self.site.proxy.release(HoldEnd::Break),
        }
        Ok(())
    }

    async fn next_event(&self, story: &mut FaultStory) -> Result<StoryEvent> {
        wait_until("the next event", STEP, async || {
            if let Some(pattern) = self.site.proxy.held() {
                return Ok(Some(StoryEvent::Held(pattern)));
            }
            self.act_as_person(story).await
        })
        .await
    }

    /// Does what people and CI do: approves the plan, lets the first head fail, and all others pass.
    async fn act_as_person(&self, story: &mut FaultStory) -> Result<Option<StoryEvent>> {
        let cluster = &self.components.cluster;
        let (store, path) = (&cluster.store, &story.repository.path);
        let Some(claimed) = store.issue_task(FORGE, path, story.issue).await? else {
            return Ok(None);
        };
        let task = claimed.task;
        if !store.is_task_id_used(task).await? {
            return Ok(None);
        }
        story.task = Some(task);
        let task_loop = store.task(task).await?.task_loop?;
        match task_loop.state {
            State::Completed => return Ok(Some(StoryEvent::Completed)),
            State::HumanEscalation | State::CtoIntervention | State::Cancelled | State::Failed => {
                return Ok(Some(StoryEvent::Stuck(task_loop.state)));
            }
            State::AwaitingApproval if task_loop.open_question.is_some() => {
                if let Some(plan) = task_loop.plan {
                    let (id, hash) = (task.to_string(), plan.hash.to_string());
                    cluster.cli.run(&["approve", &id, "--plan", &hash, "--json"]).await?;
                }
                return Ok(None);
            }
            State::AwaitingMerge => {}
            _ => return Ok(None),
        }
        let Some(head) = task_loop.pull_request.map(|it| it.pushed) else { return Ok(None) };
        let first = *story.first.get_or_insert(head);
        let stored = store.pull_request(task).await?.and_then(|it| it.facts);
        let runs_again = stored.filter(|it| it.head == head).is_some_and(|it| {
            it.checks.iter().any(|it| it.name == "ci" && it.result == CheckResult::Pending)
        });
        let is_new = story.checked != Some(head);
        if is_new || (head == first && runs_again && !story.has_rerun) {
            let passed = Some(head != first);
            self.site.person().add_check(path, head, passed, LOG).await?;
            story.has_rerun |= !is_new;
            story.checked = Some(head);
            let payload = json!({
                "action": "completed", "check_run": { "head_sha": head.to_string() },
                "repository": { "full_name": path },
            });
            self.site.send_webhook("check_run", payload).await?;
        }
        Ok(None)
    }

    /// Waits until nothing is lost any more, and returns what the forge has.
    async fn settle(&self, story: &FaultStory) -> FaultFindings {
        let complete = wait_until("the last effects", SETTLED, async || {
            let found = self.census(story).await?.judge();
            Ok(found.lost.is_empty().then_some(found))
        })
        .await;
        match complete {
            Ok(found) => found,
            Err(_) => match self.census(story).await {
                Ok(census) => census.judge(),
                Err(error) => {
                    FaultFindings { lost: vec![format!("{error:#}")], ..FaultFindings::default() }
                }
            },
        }
    }

    async fn census(&self, story: &FaultStory) -> Result<Census> {
        let head = story.checked.context("no head was checked")?;
        let mut census = self.site.census(&story.repository, story.issue, head).await?;
        let task = story.task.context("the issue has no task")?;
        let sql = format!(
            "SELECT count(*) FROM tasks WHERE project = (SELECT project FROM tasks WHERE id = '{task}')"
        );
        let postgres = self.components.cluster.postgres()?;
        census.tasks = postgres.query(DATABASE, &sql).await?.trim().parse()?;
        Ok(census)
    }
}
