//! Story of one issue through the whole product on a real Gitea, from its label to the merge.
//!
//! The agent is scripted; server, worker, git, forge and CI are real. Gitea's runner checks something
//! that the first commit lacks and our own gates do not know, so the first round of feedback is a red
//! check, and the second one is a comment of a person.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::forge::CheckResult;
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::pull_request::OUR_CHECK;
use tamma_core::state::State;
use tamma_core::task_loop::TaskLoop;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::forge::{BUILD_COMMAND, GiteaServer, gitea_folder, gitea_runner};
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::{Cluster, sample_plan, wait_until};
use tokio::process::Command;
use tokio::time::Instant;

use crate::support::components::output_text;
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Time limit of a step. The poller looks every 14 s, and a failed check runs twice before it counts.
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

/// Story that is played.
struct Story<'a> {
    cluster: &'a Cluster,
    gitea: &'a GiteaServer,
    /// Path of the repository in the forge.
    repository: String,
    /// Token of the person.
    person: String,
    task: Option<TaskId>,
    began: Instant,
    /// End of the last step.
    last: Instant,
    steps: usize,
}

/// Plays the story. Its logs are kept if it fails.
pub(crate) async fn run() -> Result<Verdict> {
    ensure!(
        gitea_folder().is_some() && gitea_runner().is_some(),
        "Gitea or its runner is not built; run `{BUILD_COMMAND}`"
    );
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("forge-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut gitea = GiteaServer::start().await?;
    gitea.start_runner()?;
    let person = gitea.add_person(PERSON)?;
    let repository = gitea.create_repository("shop", &[PERSON]).await?;
    let cluster = Cluster::builder().folder(&folder).private_servers().server().workers(1);
    let cluster = cluster.start().await.with_context(|| format!("logs: {}", folder.display()))?;
    let now = Instant::now();
    let mut story = Story {
        cluster: &cluster,
        gitea: &gitea,
        repository,
        person,
        task: None,
        began: now,
        last: now,
        steps: 0,
    };
    let played = Box::pin(story.play()).await;
    let (steps, seconds) = (story.steps, story.began.elapsed().as_secs());
    if let Err(error) = &played {
        writeln!(std::io::stdout(), "story: {error:#}")?;
        Box::pin(story.explain(&folder)).await?;
    }
    cluster.stop().await?;
    if played.is_err() {
        let figures = format!("story FAILED after {steps} steps, logs in {}", folder.display());
        return Ok(Verdict::new(false, figures));
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(Verdict::new(true, format!("story on Gitea {steps} steps in {seconds} s")))
}

impl Story<'_> {
    async fn play(&mut self) -> Result<()> {
        self.push_project()?;
        self.add_forge_and_project().await?;
        self.done("the operator added the forge and the project")?;
        let issue = self.open_issue().await?;
        self.done(&format!("{PERSON} opened issue {issue} with the label"))?;
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
        self.check_is(first, CheckResult::Failed).await?;
        self.done("CI is red")?;
        self.round(1).await?;
        self.done("the failed check went back to the agent")?;
        let (_, second) = self.head_after(Some(first)).await?;
        self.done("the second run is pushed")?;
        self.check_is(second, CheckResult::Passed).await?;
        self.done("CI is green")?;
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
        let approval = json!({ "event": "APPROVED", "body": "", "commit_id": third.to_string() });
        self.review(number, &approval).await?;
        self.done(&format!("{PERSON} approved"))?;
        let pull = format!("/repos/{}/pulls/{number}", self.repository);
        self.wait("the merge", async |_| {
            let pull = self.gitea.expect(200, Method::GET, &pull, None).await?;
            Ok((pull["merged"] == true).then_some(()))
        })
        .await?;
        let merged = self.gitea.expect(200, Method::GET, &pull, None).await?;
        let by = &merged["merged_by"]["login"];
        ensure!(*by == self.gitea.account(), "merged by {by}");
        self.done("Tamma merged it")?;
        let issue = format!("/repos/{}/issues/{issue}", self.repository);
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
        self.done("the task is completed")
    }

    /// Prints a step with the seconds since the last one and since the start.
    fn done(&mut self, what: &str) -> Result<()> {
        self.steps += 1;
        let (took, total) = (self.last.elapsed().as_secs_f64(), self.began.elapsed().as_secs_f64());
        self.last = Instant::now();
        let mut out = std::io::stdout();
        writeln!(out, "{:>3}. {took:>6.1} s {total:>7.1} s  {what}", self.steps)?;
        Ok(out.flush()?)
    }

    /// Pushes the project with its configuration and its CI, and writes the script of its agent.
    fn push_project(&self) -> Result<()> {
        let path = self.cluster.folder().join("script.json");
        script().write(&path)?;
        let project = Repository::new()?;
        let configuration = ProjectConfig::scripted(&path)?.more(RULES).to_string();
        project.write("tamma.yaml", &configuration)?;
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

/// Returns the script of the agent: the plan, the work, the fix of CI and the answer to the person.
pub(crate) fn script() -> Script {
    let work = |names: &str, summary: &str| {
        let result = json!({ "status": "done", "summary": summary });
        [
            AgentStep::Write { path: "names.txt".into(), content: names.to_owned() },
            AgentStep::Tool { name: "submit_result".to_owned(), args: result },
        ]
    };
    // The first case that fits is played, so that the last round comes first.
    Script::from_cases([
        PromptCase::new(PLANNER, [AgentStep::Plan(Box::new(sample_plan(1)))]),
        PromptCase::new("## Comments to answer", work("ann\nbo\ncy\ndee\neve\n", REPLY)),
        PromptCase::new("dee is not greeted", work("ann\nbo\ncy\ndee\n", "Dee is greeted.")),
        PromptCase::new(IMPLEMENTER, work("ann\nbo\ncy\n", "Cy is greeted.")),
    ])
}
