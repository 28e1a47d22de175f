//! What every client does, told as it happens.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::repository::Repository;

use super::client::Client;
use crate::support::programs::beside;
use crate::support::scene::{self, Act, Scene, plan};
use crate::support::stage::{Stage, wait};

/// How long a task may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// What a client has to find, whatever else there is.
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

/// Whom the clients work for: one who may decide, and one who may only add and steer tasks.
const APPROVER: &str = "Ada";
const MEMBER: &str = "Max";

/// A repository, and people with tokens of their own.
pub(crate) struct Ground {
    _repository: Repository,
    approver: String,
    member: String,
}

impl Ground {
    pub(crate) async fn prepare(stage: &Stage) -> Result<Self> {
        let repository = Repository::new()?;
        repository.write("greeting.txt", "Hello\n")?;
        repository.write("check.sh", "grep -q world greeting.txt\n")?;
        let script = stage.folder.join("script.json");
        let greets = Act::Shell("echo 'Hello world' > greeting.txt".to_owned(), None);
        scene::agent(vec![
            Scene::new("You are the planner", vec![plan("Greet the world", &["greeting.txt"])]),
            Scene::new("You are implementing", vec![greets]),
        ])
        .write(&script)?;
        let tier = "{ agent: scripted }";
        let configuration = format!(
            "agents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\ntiers:\n  \
             simple: {tier}\n  moderate: {tier}\n  complex: {tier}\n\
             gates:\n  greets: {{ command: sh check.sh, kind: tests }}\n\
             engines: {{ sandbox: off }}\n\
             scrum_master:\n  task_loop: {{ auto_approve_low_risk: false }}\n\
             people:\n  everybody: viewer\n  named: {{ {APPROVER}: approver, {MEMBER}: member }}\n",
            beside("scripted-agent")?.display(),
            script.display(),
        );
        repository.write("tamma.yaml", &configuration)?;
        repository.commit("a greeting")?;
        stage.register(1, "greeter", &repository).await?;
        let token = async |name: &str| -> Result<String> {
            let said = stage.tamma(&["person", "add", name, "--json"]).await?;
            let welcome: Value = serde_json::from_str(&said)?;
            Ok(welcome["token"].as_str().context("no token")?.to_owned())
        };
        let (approver, member) = (token(APPROVER).await?, token(MEMBER).await?);
        Ok(Self { _repository: repository, approver, member })
    }
}

/// Lets a client do what it should, and tells of it. An error says what is not as it should be.
pub(crate) async fn tell(
    stage: &Stage,
    ground: &Ground,
    client: &Client,
    told: &mut String,
) -> Result<()> {
    let Ground { approver, member, .. } = ground;
    let tools = client.tools(stage, member).await?;
    for tool in TOOLS {
        ensure!(tools.iter().any(|it| it == tool), "there is no {tool} among {tools:?}");
    }
    writeln!(told, "1. lists the tools: {}", tools.join(", "))?;

    let new = json!({ "title": "Greet the world", "type": "docs" });
    let added = client.call(stage, member, "add_task", &new).await?.well()?;
    let id = added["task"]["id"].as_str().context("no id")?.to_owned();
    let task = TaskId(id.parse()?);
    writeln!(told, "2. adds a task for {MEMBER}: {id}")?;
    let log = stage.log(task).await?;
    let by = log.first().map(|entry| entry.actor.clone());
    ensure!(by == Some(Actor::Person(MEMBER.parse()?)), "it was added by {by:?}");

    stage.until(task, PATIENCE, waits).await?;
    let one = json!({ "task": id });
    let shown = client.call(stage, member, "show_task", &one).await?.well()?;
    let state = shown["state"].as_str().context("no state")?;
    ensure!(state == "awaiting_approval", "it is {state}");
    let read = client.call(stage, member, "read_plan", &one).await?.well()?;
    let hash = read["hash"].as_str().context("no hash")?.to_owned();
    writeln!(told, "3. reads how it stands: {state}, and its plan {}", short(&hash))?;

    let decide = json!({ "task": id, "plan": hash });
    let before = refusals(stage)?.len();
    let refused = client.call(stage, member, "approve_plan", &decide).await?;
    ensure!(refused.is_error, "{MEMBER} approved it: {}", refused.text);
    let why = format!("{MEMBER} is a member and does not have the decide permission.");
    ensure!(refused.text.contains(&why), "it was refused with: {}", refused.text);
    writeln!(told, "4. approves for {MEMBER}, and is refused: {}", refused.text)?;
    let seen = wait("a line of the server's log", Duration::from_secs(10), async || {
        Ok(refusals(stage)?.into_iter().nth(before))
    })
    .await?;
    writeln!(told, "   the server's log: {seen}")?;
    let stranger = client.call(stage, "tamma_of-nobody", "approve_plan", &decide).await;
    let stranger = match stranger {
        Ok(said) if !said.is_error => bail!("nobody approved it: {}", said.text),
        Ok(said) => said.text,
        Err(error) => format!("{error:#}"),
    };
    writeln!(told, "   approves for nobody who is known, and is refused: {}", line(&stranger))?;
    let wrong = json!({ "task": id, "plan": "0123456789abcdef" });
    let wrong = client.call(stage, approver, "approve_plan", &wrong).await?;
    ensure!(wrong.is_error, "a plan was approved that nobody has seen");
    writeln!(told, "   approves another plan for {APPROVER}, and is refused: {}", wrong.text)?;
    let machine = stage.store.task(task).await?.task_loop?;
    ensure!(waits(&machine)?, "it has gone on to {}", machine.state);

    client.call(stage, approver, "approve_plan", &decide).await?.well()?;
    let log = stage.log(task).await?;
    let approval = log.iter().find(|entry| entry.name == EntryName::SmApprovalGranted);
    let approval = approval.context("no approval is in the log")?;
    ensure!(approval.actor == Actor::Person(APPROVER.parse()?), "{:?}", approval.actor);
    writeln!(told, "5. approves the plan for {APPROVER}: event {}", approval.sequence)?;
    let machine = stage.until(task, PATIENCE, is_over).await?;
    ensure!(machine.state == State::Completed, "it is {}", machine.state);
    let shown = client.call(stage, member, "show_task", &one).await?.well()?;
    writeln!(told, "6. reads how it stands: {}", shown["state"].as_str().unwrap_or_default())?;
    Ok(())
}

/// Takes a person's token away, and looks that no client can do anything with it any more.
pub(crate) async fn revoke(
    stage: &Stage,
    ground: &Ground,
    clients: &[Client],
    told: &mut String,
) -> Result<()> {
    let said = stage.tamma(&["person", "revoke", MEMBER]).await?;
    writeln!(told, "$ tamma person revoke {MEMBER}\n{}", said.trim())?;
    for client in clients {
        let why = match client.call(stage, &ground.member, "list_tasks", &json!({})).await {
            Ok(said) if !said.is_error => bail!("{client} still gets: {}", said.text),
            Ok(said) => said.text,
            Err(error) => format!("{error:#}"),
        };
        writeln!(told, "{client} gets nothing: {}", line(&why))?;
    }
    let said = stage.tamma(&["person", "list"]).await?;
    writeln!(told, "$ tamma person list\n{}", said.trim_end())?;
    Ok(())
}

/// The beginning of what was said, on one line.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(160).collect()
}

fn waits(machine: &TaskLoop) -> Result<bool> {
    ensure!(!machine.state.is_terminal(), "it has ended: {}", machine.state);
    Ok(machine.state == State::AwaitingApproval && machine.open_question.is_some())
}

fn is_over(machine: &TaskLoop) -> Result<bool> {
    ensure!(
        machine.state != State::HumanEscalation,
        "a person is asked: {:?}",
        machine.open_question
    );
    Ok(machine.state.is_terminal())
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// The lines of the server's log that say that the member was refused to decide.
fn refusals(stage: &Stage) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(stage.folder.join("serve.log"))?;
    let words = ["permission denied", &format!("by={MEMBER}"), "known=own_token", "right=decide"];
    let lines = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    Ok(lines.map(str::to_owned).collect())
}
