//! Scenario that every client goes through.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::plan::FileAction;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::{IMPLEMENTER, PLANNER};
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;
use tamma_testkit::{Cluster, wait_until};

use super::client::McpClient;
use crate::support::scripts::{self, ScriptedAction, ScriptedCase, plan};

/// Time limit of a task.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Tools that a client must find.
const TOOLS: [&str; 8] = [
    "list_tasks",
    "show_task",
    "read_plan",
    "add_task",
    "approve_plan",
    "answer_task",
    "search_knowledge",
    "propose_knowledge",
];

/// Persons that the clients act for: an approver, and a member without the decide permission.
const APPROVER: &str = "Ada";
const MEMBER: &str = "Max";

/// Project, and the tokens of two persons.
pub(crate) struct McpFixture {
    _project: ScriptedProject,
    approver: String,
    member: String,
}

impl McpFixture {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        let repository = Repository::new()?;
        repository.write("greeting.txt", "Hello\n")?;
        repository.write("check.sh", "grep -q world greeting.txt\n")?;
        let greet = ScriptedAction::Shell("echo 'Hello world' > greeting.txt".to_owned(), None);
        let planned = vec![plan("Greet the world", FileAction::Modify, &["greeting.txt"])];
        let script = scripts::agent_script(vec![
            ScriptedCase::new(PLANNER, planned),
            ScriptedCase::new(IMPLEMENTER, vec![greet]),
        ]);
        let rules = format!(
            "scrum_master:\n  task_loop: {{ auto_approve_low_risk: false }}\n\
             people:\n  everybody: viewer\n  named: {{ {APPROVER}: approver, {MEMBER}: member }}\n"
        );
        let configure = |config: ProjectConfig| config.more(&rules);
        let project = cluster.add_project(1, "greeter", repository, &script, configure).await?;
        project.repository.commit("a greeting")?;
        cluster.cli.run(&["access", "import", "--project", "greeter"]).await?;
        let token = async |name: &str| -> Result<String> {
            let output = cluster.cli.run(&["person", "add", name, "--json"]).await?;
            let issued: Value = serde_json::from_str(&output)?;
            Ok(issued["token"].as_str().context("no token")?.to_owned())
        };
        let (approver, member) = (token(APPROVER).await?, token(MEMBER).await?);
        Ok(Self { _project: project, approver, member })
    }
}

/// Runs the scenario with one client and appends each step to `report`.
pub(crate) async fn run(
    cluster: &Cluster,
    fixture: &McpFixture,
    client: &McpClient,
    report: &mut String,
) -> Result<()> {
    let McpFixture { approver, member, .. } = fixture;
    let tools = client.tools(cluster, member).await?;
    for tool in TOOLS {
        ensure!(tools.iter().any(|it| it == tool), "tool {tool} is missing: {tools:?}");
    }
    writeln!(report, "1. list tools: {}", tools.join(", "))?;

    let new = json!({ "title": "Greet the world", "type": "docs" });
    let added = client.call(cluster, member, "add_task", &new).await?.into_json()?;
    let id = added["task"]["id"].as_str().context("no task ID")?.to_owned();
    let task = TaskId(id.parse()?);
    writeln!(report, "2. add a task as {MEMBER}: {id}")?;
    let history = cluster.history(task).await?;
    let by = history.first().map(|entry| entry.actor.clone());
    ensure!(by == Some(Actor::Person(MEMBER.parse()?)), "the task was added by {by:?}");

    cluster.wait_for_task(task, TIMEOUT, awaits_approval).await?;
    let arguments = json!({ "task": id });
    let detail = client.call(cluster, member, "show_task", &arguments).await?.into_json()?;
    let state = detail["state"].as_str().context("no state")?;
    ensure!(state == "awaiting_approval", "the task is {state}");
    let plan = client.call(cluster, member, "read_plan", &arguments).await?.into_json()?;
    let hash = plan["hash"].as_str().context("no hash")?.to_owned();
    writeln!(report, "3. read state and plan: {state}, {}", short(&hash))?;

    let decide = json!({ "task": id, "plan": hash });
    let before = refusals(cluster)?.len();
    let refused = client.call(cluster, member, "approve_plan", &decide).await?;
    ensure!(refused.is_error, "{MEMBER} was allowed to approve: {}", refused.text);
    let reason = format!("{MEMBER} is a member and does not have the decide permission.");
    ensure!(refused.text.contains(&reason), "unexpected refusal: {}", refused.text);
    writeln!(report, "4. approve as {MEMBER}, refused: {}", refused.text)?;
    let line = wait_until("the server's log line", Duration::from_secs(10), async || {
        Ok(refusals(cluster)?.into_iter().nth(before))
    })
    .await?;
    writeln!(report, "   server log: {line}")?;
    let stranger = client.call(cluster, "tamma_unknown-token", "approve_plan", &decide).await;
    let stranger = match stranger {
        Ok(output) if !output.is_error => bail!("an unknown token was accepted: {}", output.text),
        Ok(output) => output.text,
        Err(error) => format!("{error:#}"),
    };
    writeln!(report, "   approve with an unknown token, refused: {}", first_line(&stranger))?;
    let wrong = json!({ "task": id, "plan": "0123456789abcdef" });
    let wrong = client.call(cluster, approver, "approve_plan", &wrong).await?;
    ensure!(wrong.is_error, "an unknown plan was approved");
    writeln!(report, "   approve an unknown plan as {APPROVER}, refused: {}", wrong.text)?;
    let task_loop = cluster.store.task(task).await?.task_loop?;
    ensure!(awaits_approval(&task_loop)?, "the task moved on to {}", task_loop.state);

    client.call(cluster, approver, "approve_plan", &decide).await?.into_json()?;
    let history = cluster.history(task).await?;
    let approval = history.iter().find(|entry| entry.name == EntryName::SmApprovalGranted);
    let approval = approval.context("the history has no approval")?;
    ensure!(approval.actor == Actor::Person(APPROVER.parse()?), "{:?}", approval.actor);
    writeln!(report, "5. approve the plan as {APPROVER}: entry {}", approval.sequence)?;
    let task_loop = cluster.wait_for_task(task, TIMEOUT, is_closed).await?;
    ensure!(task_loop.state == State::Completed, "the task is {}", task_loop.state);
    let detail = client.call(cluster, member, "show_task", &arguments).await?.into_json()?;
    writeln!(report, "6. read state: {}", detail["state"].as_str().unwrap_or_default())?;
    Ok(())
}

/// Revokes a person's token, and checks that no client can use it any more.
pub(crate) async fn revoke(
    cluster: &Cluster,
    fixture: &McpFixture,
    clients: &[McpClient],
    report: &mut String,
) -> Result<()> {
    let output = cluster.cli.run(&["person", "revoke", MEMBER]).await?;
    writeln!(report, "$ tamma person revoke {MEMBER}\n{}", output.trim())?;
    for client in clients {
        let refusal = match client.call(cluster, &fixture.member, "list_tasks", &json!({})).await {
            Ok(output) if !output.is_error => bail!("{client} still has access: {}", output.text),
            Ok(output) => output.text,
            Err(error) => format!("{error:#}"),
        };
        writeln!(report, "{client} is refused: {}", first_line(&refusal))?;
    }
    let output = cluster.cli.run(&["person", "list"]).await?;
    writeln!(report, "$ tamma person list\n{}", output.trim_end())?;
    Ok(())
}

/// Returns the start of a text, on one line.
fn first_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(160).collect()
}

fn awaits_approval(task_loop: &TaskLoop) -> Result<bool> {
    ensure!(!task_loop.state.is_terminal(), "the task is closed: {}", task_loop.state);
    Ok(task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some())
}

fn is_closed(task_loop: &TaskLoop) -> Result<bool> {
    ensure!(
        task_loop.state != State::HumanEscalation,
        "unexpected decision request: {:?}",
        task_loop.open_question
    );
    Ok(task_loop.state.is_terminal())
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// Returns the lines of the server's log about the member's refused decision.
fn refusals(cluster: &Cluster) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(cluster.folder().join("serve.log"))?;
    let parts = ["permission denied", &format!("={MEMBER}"), "=decide"];
    let lines = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    Ok(lines.map(str::to_owned).collect())
}
