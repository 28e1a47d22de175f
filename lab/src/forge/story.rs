//! Story of one issue through the whole product on a real Gitea, from its label to the merge.
//!
//! Server, worker, git, forge and CI are real, and so is the agent in a full run; its model is scripted.
//! Gitea's runner checks something that the first commit lacks and our own gates do not know, so the
//! first round of feedback is a red check, and the second one is a comment of a person. The change lands
//! through the merge queue.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::forge::CheckResult;
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::plan::FileAction;
use tamma_core::pull_request::OUR_CHECK;
use tamma_core::state::State;
use tamma_core::task_loop::TaskLoop;
use tamma_store::{QueueEntry, QueueEntryFilter, QueueEntryState};
use tamma_testkit::agent::{IMPLEMENTER, PLANNER};
use tamma_testkit::forge::{
    BUILD_COMMAND, GiteaServer, PAGES_COMMAND, gitea_folder, gitea_runner, has_gitea_pages,
};
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::repository::Repository;
use tamma_testkit::{Cluster, wait_until};
use tokio::process::Command;
use tokio::time::Instant;

use super::screenshots::{PageSite, Screenshots};
use super::transcript::{DeliveredIssue, StoryStep, StoryTranscript};
use crate::support::agent_setup::AgentSetup;
use crate::support::components::output_text;
use crate::support::programs;
use crate::support::scripts::{PRICES, ScriptedAction, ScriptedCase, plan_arguments};
use crate::support::verdict::Verdict;

/// Time limit of a step. The poller looks every 12 s, and a failed check runs twice before it counts.
const STEP: Duration = Duration::from_mins(4);

/// Name of the forge.
const FORGE: &str = "code";

/// Account of a person who can push.
const PERSON: &str = "ann";

/// Sections of `tamma.yaml` besides those of the agent.
const RULES: &str = "\
scrum_master:
  task_loop: { auto_approve_low_risk: false }
delivery:
  mode: merge
  pull_requests: { approvals: 1 }
  queue: { mode: tamma }
  intake: { label: tamma }
";

/// CI of the repository. Actions of others would need the internet, so it fetches the commit itself.
const WORKFLOW: &str = r#"name: ci
on: [pull_request]
jobs:
  test:
    runs-on: linux
    steps:
      - run: |
          git init --quiet checkout && cd checkout
          git fetch --quiet "${GITHUB_SERVER_URL%/}/$GITHUB_REPOSITORY" "$GITHUB_REF"
          git checkout --quiet FETCH_HEAD
          grep -x dee names.txt || { echo "dee is not greeted"; exit 1; }
"#;

/// Summary of the third run, which becomes the reply to the person.
const REPLY: &str = "Eve is greeted too.";

/// Content of `names.txt` at the end.
const NAMES: &str = "ann\nbo\ncy\ndee\neve";

/// Story that is played.
struct Story<'a> {
    cluster: &'a Cluster,
    gitea: &'a GiteaServer,
    agent: &'a AgentSetup,
    /// Model of a real agent, which ends when dropped.
    model: Option<ScriptedModel>,
    screenshots: Option<Screenshots>,
    /// Path of the repository in the forge.
    repository: String,
    /// Token of the person.
    person: String,
    task: Option<TaskId>,
    began: Instant,
    /// End of the last step.
    last: Instant,
    steps: Vec<StoryStep>,
}

/// Plays the story, and writes it to the documents if `write` is set. Its logs are kept if it fails.
pub(crate) async fn run(agent: &AgentSetup, write: bool) -> Result<Verdict> {
    ensure!(
        gitea_folder().is_some() && gitea_runner().is_some(),
        "Gitea or its runner is not built; run `{BUILD_COMMAND}`"
    );
    ensure!(
        !write || has_gitea_pages(),
        "the pages of Gitea have no style sheets; run `{PAGES_COMMAND}`"
    );
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("forge-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut gitea = GiteaServer::start().await?;
    gitea.start_runner()?;
    let person = gitea.add_person(PERSON)?;
    let repository = gitea.create_repository("shop", &[PERSON]).await?;
    // The merge queue pushes to the branch, and then marks the pull request as merged.
    let settings = json!({ "allow_manual_merge": true });
    gitea.expect(200, Method::PATCH, &format!("/repos/{repository}"), Some(&settings)).await?;
    let cluster = Cluster::builder().folder(&folder).private_servers().server().workers(1);
    let cluster = agent.add_to(cluster).start().await;
    let cluster = cluster.with_context(|| format!("logs: {}", folder.display()))?;
    let screenshots = if write { Some(open_browser(&gitea, &cluster).await?) } else { None };
    let now = Instant::now();
    let mut story = Story {
        cluster: &cluster,
        gitea: &gitea,
        agent,
        model: None,
        screenshots,
        repository,
        person,
        task: None,
        began: now,
        last: now,
        steps: Vec::new(),
    };
    let played = Box::pin(story.play()).await;
    let (steps, seconds) = (story.steps.len(), story.began.elapsed().as_secs());
    let requests = story.model.as_ref().map(|it| format!(" ({} requests)", it.requests().len()));
    let by = format!("{}{}", agent.describe(), requests.unwrap_or_default());
    match &played {
        Ok(delivered) if write => Box::pin(story.write_transcript(delivered)).await?,
        Ok(_) => {}
        Err(error) => {
            writeln!(std::io::stdout(), "story: {error:#}")?;
            Box::pin(story.explain(&folder)).await?;
        }
    }
    if let Some(screenshots) = story.screenshots.take() {
        screenshots.close().await?;
    }
    cluster.stop().await?;
    if played.is_err() {
        let logs = folder.display();
        let figures = format!("story with {by} FAILED after {steps} steps, logs in {logs}");
        return Ok(Verdict::new(false, figures));
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(Verdict::new(true, format!("story on Gitea with {by}: {steps} steps in {seconds} s")))
}

/// Opens a browser that is signed in to Gitea as the person, and to Tamma.
async fn open_browser(gitea: &GiteaServer, cluster: &Cluster) -> Result<Screenshots> {
    let folder = programs::documents().join("pictures");
    let link = cluster.cli.run(&["sign-in"]).await?;
    let login = (PERSON, gitea.password());
    Screenshots::start(&folder, &gitea.url(), login, link.trim()).await
}

impl Story<'_> {
    async fn play(&mut self) -> Result<DeliveredIssue> {
        self.push_project().await?;
        self.add_forge_and_project().await?;
        self.done("the operator added the forge and the project")?;
        let issue = self.open_issue().await?;
        self.done(&format!("{PERSON} opened issue {issue} with the label"))?;
        let (pull_request, first) = self.open_pull_request(issue).await?;
        let second = self.fix_check(pull_request, first).await?;
        let third = self.answer_comment(pull_request, second).await?;
        self.take_pictures(pull_request).await?;
        self.land(pull_request, third).await?;
        self.close_issue(issue).await?;
        Ok(DeliveredIssue { issue, pull_request, heads: [first, second, third] })
    }

    /// Follows the issue until its pull request is open, and returns its number and its commit.
    async fn open_pull_request(&mut self, issue: u64) -> Result<(u64, CommitId)> {
        let task = self.task_of(issue).await?;
        self.task = Some(task);
        self.done("the issue became a task")?;
        let plan = self
            .wait("a plan", async |task_loop: TaskLoop| {
                let is_ready =
                    task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some();
                Ok(task_loop.plan.filter(|_| is_ready).map(|plan| plan.hash.to_string()))
            })
            .await?;
        self.done("the plan waits for approval")?;
        self.cluster.cli.run(&["approve", &task.to_string(), "--plan", &plan, "--json"]).await?;
        let (number, first) = self.head_after(None).await?;
        self.done(&format!("pull request {number} is open"))?;
        Ok((number, first))
    }

    /// Lets the agent fix the failed check, and returns the second commit.
    async fn fix_check(&mut self, number: u64, first: CommitId) -> Result<CommitId> {
        self.check_is(first, CheckResult::Failed).await?;
        self.done("CI is red")?;
        self.round(1).await?;
        self.done("the failed check went back to the agent")?;
        let page = self.pull_request_page(number);
        self.picture("story-red-check", PageSite::Forge, &page).await?;
        let (_, second) = self.head_after(Some(first)).await?;
        self.done("the second run is pushed")?;
        self.check_is(second, CheckResult::Passed).await?;
        self.done("CI is green")?;
        Ok(second)
    }

    /// Lets the agent answer a comment, and returns the third commit.
    async fn answer_comment(&mut self, number: u64, second: CommitId) -> Result<CommitId> {
        let comment = json!({
            "path": "names.txt", "body": "Please greet Eve too.", "new_position": 3,
        });
        let review =
            json!({ "event": "COMMENT", "commit_id": second.to_string(), "comments": [comment] });
        self.review(number, &review).await?;
        self.round(2).await?;
        self.done(&format!("a comment of {PERSON} went back to the agent"))?;
        let (_, third) = self.head_after(Some(second)).await?;
        self.done("the third run is pushed")?;
        self.wait("the reply", async |_| Ok(self.is_answered(number).await?.then_some(()))).await?;
        self.done("the comment is answered")?;
        self.check_is(third, CheckResult::Passed).await?;
        self.done("CI is green again")?;
        Ok(third)
    }

    /// Takes pictures of the pull request before its approval, and of Tamma's pages about it.
    async fn take_pictures(&mut self, number: u64) -> Result<()> {
        let task = self.task.context("there is no task")?;
        let (page, tamma) = (self.pull_request_page(number), self.cluster.url());
        let pages = [
            ("story-pull-request", PageSite::Forge, page.clone()),
            ("story-files", PageSite::Forge, format!("{page}/files")),
            ("story-task", PageSite::Tamma, format!("{tamma}/tasks/{task}")),
            ("story-board", PageSite::Tamma, format!("{tamma}/")),
            ("story-pull-requests", PageSite::Tamma, format!("{tamma}/pull-requests")),
        ];
        for (name, site, url) in pages {
            self.picture(name, site, &url).await?;
        }
        Ok(())
    }

    /// Approves the pull request, and follows it through the merge queue.
    async fn land(&mut self, number: u64, third: CommitId) -> Result<()> {
        let approval = json!({ "event": "APPROVED", "body": "", "commit_id": third.to_string() });
        self.review(number, &approval).await?;
        self.done(&format!("{PERSON} approved"))?;
        self.wait("the merge queue", async |_| Ok(self.queue_entry().await?.map(|_| ()))).await?;
        self.done("the change is in the merge queue")?;
        self.wait("the landing", async |_| {
            let entry = self.queue_entry().await?;
            Ok(entry.filter(|it| it.state == QueueEntryState::Landed).map(|_| ()))
        })
        .await?;
        self.done("the queue tested and landed it")?;
        let queues = format!("{}/merge-queues", self.cluster.url());
        self.picture("story-queue", PageSite::Tamma, &queues).await?;
        let pull = format!("/repos/{}/pulls/{number}", self.repository);
        self.wait("the merge", async |_| {
            let pull = self.gitea.expect(200, Method::GET, &pull, None).await?;
            Ok((pull["merged"] == true).then_some(()))
        })
        .await?;
        let merged = self.gitea.expect(200, Method::GET, &pull, None).await?;
        let by = &merged["merged_by"]["login"];
        ensure!(*by == self.gitea.account(), "merged by {by}");
        self.done("the pull request is merged")?;
        let page = self.pull_request_page(number);
        self.picture("story-merged", PageSite::Forge, &page).await?;
        let clone = Repository::new()?;
        clone.git(&["fetch", "--quiet", &self.gitea.clone_url(&self.repository), "main"])?;
        let names = clone.git(&["show", "FETCH_HEAD:names.txt"])?;
        ensure!(names.trim_end() == NAMES, "`names.txt` on main is `{names}`");
        Ok(())
    }

    /// Waits for the ends of the issue and of the task.
    async fn close_issue(&mut self, number: u64) -> Result<()> {
        let issue = format!("/repos/{}/issues/{number}", self.repository);
        self.wait("the end of the issue", async |_| {
            let issue = self.gitea.expect(200, Method::GET, &issue, None).await?;
            Ok((issue["state"] == "closed").then_some(()))
        })
        .await?;
        self.done("the issue is closed")?;
        self.wait("the end of the task", async |task_loop: TaskLoop| {
            Ok((task_loop.state == State::Completed).then_some(()))
        })
        .await?;
        self.done("the task is completed")?;
        let page = format!("{}/{}/issues/{number}", self.gitea.url(), self.repository);
        self.picture("story-issue", PageSite::Forge, &page).await
    }

    /// Returns the newest entry of the task in the merge queue.
    async fn queue_entry(&self) -> Result<Option<QueueEntry>> {
        let filter = QueueEntryFilter { task: self.task, ..QueueEntryFilter::default() };
        Ok(self.cluster.store.merge_queue_entries(&filter, 1).await?.pop())
    }

    /// Returns the address of the pull request's page.
    fn pull_request_page(&self, number: u64) -> String {
        format!("{}/{}/pulls/{number}", self.gitea.url(), self.repository)
    }

    /// Takes a screenshot of a page, if the story is written. Its time does not count.
    async fn picture(&mut self, name: &str, site: PageSite, url: &str) -> Result<()> {
        let Some(screenshots) = &mut self.screenshots else { return Ok(()) };
        let start = Instant::now();
        screenshots.take(name, site, url).await?;
        let took = start.elapsed();
        self.began += took;
        self.last += took;
        Ok(())
    }

    /// Writes the document about the story.
    async fn write_transcript(&self, delivered: &DeliveredIssue) -> Result<()> {
        let task = self.task.context("there is no task")?;
        let state = self.cluster.store.task(task).await?.task_loop?.state.to_string();
        let entry = self.queue_entry().await?.context("the merge queue has no entry")?;
        let transcript = StoryTranscript {
            gitea: self.gitea,
            repository: &self.repository,
            tamma: self.cluster.url(),
            agent: self.agent.describe(),
            steps: &self.steps,
            delivered,
            states: [state, entry.state.to_string()],
        };
        let text = transcript.to_markdown().await?;
        std::fs::write(programs::documents().join("delivery-story.md"), text)?;
        Ok(())
    }

    /// Prints a step with the seconds since the last one and since the start.
    fn done(&mut self, what: &str) -> Result<()> {
        let (took, total) = (self.last.elapsed().as_secs_f64(), self.began.elapsed().as_secs_f64());
        self.last = Instant::now();
        self.steps.push(StoryStep { what: what.to_owned(), took, total });
        let (number, mut out) = (self.steps.len(), std::io::stdout());
        writeln!(out, "{number:>3}. {took:>6.1} s {total:>7.1} s  {what}")?;
        Ok(out.flush()?)
    }

    /// Starts the model of a real agent or writes the script of a scripted one, and pushes the project
    /// with its configuration and its CI.
    async fn push_project(&mut self) -> Result<()> {
        let path = self.cluster.folder().join("script.json");
        let (config, model) = self.agent.configure(&path, script_cases()).await?;
        self.model = model;
        let project = Repository::new()?;
        project.write("tamma.yaml", &config.more(RULES).more(PRICES).to_string())?;
        project.write(".gitea/workflows/ci.yaml", WORKFLOW)?;
        project.commit("CI")?;
        let address = self.gitea.clone_url(&self.repository);
        project.git(&["push", "--quiet", "--force", &address, "HEAD:refs/heads/main"])?;
        Ok(())
    }

    /// Adds the forge to the server and to the worker, which have their own data folders here, and then
    /// the project.
    async fn add_forge_and_project(&self) -> Result<()> {
        let folder = self.cluster.folder();
        let token = folder.join("token");
        std::fs::write(&token, self.gitea.token())?;
        for data in ["serve", "work"] {
            let mut add = Command::new(&self.cluster.cli.program);
            add.args(["forge", "add", FORGE, "--kind", "gitea", "--url", &self.gitea.url()]);
            add.arg("--token-file").arg(&token).arg("--data").arg(folder.join(data));
            let output = add.output().await?;
            ensure!(output.status.success(), "`tamma forge add`: {}", output_text(&output));
        }
        std::fs::remove_file(&token)?;
        let address = format!("{}/{}", self.gitea.url(), self.repository);
        let data = folder.join("serve").display().to_string();
        self.cluster.cli.run(&["project", "add", &address, "--data", &data]).await?;
        Ok(())
    }

    /// Opens an issue with the label as the person, and returns its number.
    async fn open_issue(&self) -> Result<u64> {
        let repository = format!("/repos/{}", self.repository);
        let label = json!({ "name": "tamma", "color": "#00aabb" });
        let labels = format!("{repository}/labels");
        let label = self.gitea.expect(201, Method::POST, &labels, Some(&label)).await?;
        let issue = json!({
            "title": "Greet Cy", "body": "Cy should be greeted too.", "labels": [label["id"]],
        });
        let path = format!("{repository}/issues");
        let opened = self.gitea.request(&self.person, Method::POST, &path, Some(&issue)).await?;
        let (status, issue) = opened;
        ensure!(status == 201, "the issue was not opened: {status} {issue}");
        issue["number"].as_u64().context("the issue has no number")
    }

    /// Waits for the task of an issue.
    async fn task_of(&self, issue: u64) -> Result<TaskId> {
        let store = &self.cluster.store;
        wait_until("the task of the issue", STEP, async || {
            let Some(claimed) = store.issue_task(FORGE, &self.repository, issue).await? else {
                return Ok(None);
            };
            Ok(store.is_task_id_used(claimed.task).await?.then_some(claimed.task))
        })
        .await
    }

    /// Waits for a value. A task that needs a person, or that ended otherwise, is an error at once.
    async fn wait<T>(
        &self,
        what: &str,
        mut poll: impl AsyncFnMut(TaskLoop) -> Result<Option<T>>,
    ) -> Result<T> {
        let task = self.task.context("there is no task")?;
        wait_until(what, STEP, async || {
            let task_loop = self.cluster.store.task(task).await?.task_loop?;
            let state = task_loop.state;
            if let Some(value) = poll(task_loop).await? {
                return Ok(Some(Ok(value)));
            }
            let is_stuck = matches!(
                state,
                State::HumanEscalation | State::CtoIntervention | State::Cancelled | State::Failed
            );
            Ok(is_stuck.then(|| Err(anyhow!("{state} instead of {what}"))))
        })
        .await?
    }

    /// Waits for a pushed head that differs from an older one. Returns it with the number of the pull
    /// request.
    async fn head_after(&self, old: Option<CommitId>) -> Result<(u64, CommitId)> {
        self.wait("a pushed commit", async |task_loop: TaskLoop| {
            let is_open = task_loop.state == State::AwaitingMerge;
            let known = task_loop.pull_request.filter(|it| is_open && Some(it.pushed) != old);
            Ok(known.map(|it| (it.number, it.pushed)))
        })
        .await
    }

    /// Waits until the server has observed a result of CI.
    async fn check_is(&self, head: CommitId, result: CheckResult) -> Result<()> {
        let task = self.task.context("there is no task")?;
        self.wait(&format!("a {result} check"), async |_| {
            let stored = self.cluster.store.pull_request(task).await?;
            let facts = stored.and_then(|it| it.facts).filter(|it| it.head == head);
            let is_seen = facts.is_some_and(|it| {
                it.checks.iter().any(|check| check.name != OUR_CHECK && check.result == result)
            });
            Ok(is_seen.then_some(()))
        })
        .await
    }

    /// Waits until this many rounds of feedback have gone back to the agent.
    async fn round(&self, number: u8) -> Result<()> {
        self.wait("feedback", async |task_loop: TaskLoop| {
            let rounds = task_loop.pull_request.map_or(0, |it| it.rounds);
            Ok((rounds >= number).then_some(()))
        })
        .await
    }

    /// Reviews the pull request as the person.
    async fn review(&self, number: u64, review: &Value) -> Result<()> {
        let path = format!("/repos/{}/pulls/{number}/reviews", self.repository);
        let sent = self.gitea.request(&self.person, Method::POST, &path, Some(review)).await?;
        let (status, response) = sent;
        ensure!(status == 200, "the review was refused: {status} {response}");
        Ok(())
    }

    /// Returns `true` if the pull request has our reply, in the thread or below it.
    async fn is_answered(&self, number: u64) -> Result<bool> {
        let repository = format!("/repos/{}", self.repository);
        let reviews = format!("{repository}/pulls/{number}/reviews");
        let mut paths = vec![format!("{repository}/issues/{number}/comments")];
        let listed = self.gitea.expect(200, Method::GET, &reviews, None).await?;
        for review in listed.as_array().into_iter().flatten() {
            paths.push(format!("{reviews}/{}/comments", review["id"]));
        }
        let account = self.gitea.account();
        for path in paths {
            let comments = self.gitea.expect(200, Method::GET, &path, None).await?;
            let is_reply = |comment: &Value| {
                let text = comment["body"].as_str().unwrap_or_default();
                comment["user"]["login"] == account && text.contains(REPLY)
            };
            if comments.as_array().into_iter().flatten().any(is_reply) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prints the last facts and the history, and keeps the logs.
    async fn explain(&self, folder: &Path) -> Result<()> {
        let mut out = std::io::stdout();
        self.gitea.copy_logs(folder)?;
        if let Some(task) = self.task {
            let stored = self.cluster.store.pull_request(task).await?;
            writeln!(out, "facts: {:#?}", stored.and_then(|it| it.facts))?;
            for entry in self.cluster.history(task).await? {
                let reason = entry.reason.as_deref().unwrap_or_default();
                let (number, from, to) = (entry.sequence, entry.from, entry.to);
                writeln!(out, "{number:>4} {} {from} -> {to} {reason}", entry.name)?;
            }
        }
        writeln!(out, "logs: {}", folder.display())?;
        Ok(())
    }
}

/// Returns the script of the agent or its model: the plan, the work, the fix of CI and the answer to the
/// person.
pub(crate) fn script_cases() -> Vec<ScriptedCase> {
    let mut plan = plan_arguments("Cy is greeted", FileAction::Modify, &["names.txt"]);
    plan["approach"] = json!("Add the name to the list.");
    plan["testing_strategy"] = json!("The check counts the greetings.");
    plan["criteria"] = json!(["Every listed name is greeted."]);
    plan["verification"] = json!([{ "criterion": "C1", "test": "check.sh" }]);
    let work = |names: &str, summary: &str| {
        let result = json!({ "status": "done", "summary": summary });
        vec![
            ScriptedAction::Shell(format!("printf '%s\\n' {names} > names.txt"), None),
            ScriptedAction::Tool("submit_result", result),
        ]
    };
    let lessons = ScriptedAction::Tool("submit_lessons", json!({ "lessons": [] }));
    // The first case that fits is played, so that the last round comes first.
    vec![
        ScriptedCase::new("You look back at a development task", vec![lessons]),
        ScriptedCase::new(PLANNER, vec![ScriptedAction::Tool("submit_plan", plan)]),
        ScriptedCase::new("## Comments to answer", work("ann bo cy dee eve", REPLY)),
        ScriptedCase::new("dee is not greeted", work("ann bo cy dee", "Dee is greeted.")),
        ScriptedCase::new(IMPLEMENTER, work("ann bo cy", "Cy is greeted.")),
    ]
}
