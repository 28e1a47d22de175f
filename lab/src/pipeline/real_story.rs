//! Story with Claude Code and a scripted model, through all six phases.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::json;
use tamma_core::pipeline::PipelineState;
use tamma_testkit::Cluster;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::tamma_process::TammaProcess;

use super::client::StoryClient;
use super::project::{FEATURE, prompt_line};
use super::stories::check_whole;
use super::story_files;
use crate::support::scripts::{self, PRICES, ScriptedAction, ScriptedCase};
use crate::support::{programs, tools};

/// Story of the real agent.
const STORY: &str = "REAL-001";

/// Name of the project.
const PROJECT: &str = "real-agent";

/// Number of phases that an agent runs.
const AGENT_PHASES: u8 = 5;

/// Installs Claude Code, and returns the folder of its programs.
pub(crate) async fn install() -> Result<PathBuf> {
    Ok(tools::npm_install(&programs::input("agents/claude-code")).await?.join(".bin"))
}

/// Lets a worker start Claude Code.
pub(crate) fn with_agent(worker: TammaProcess, programs: &Path) -> TammaProcess {
    let path = std::env::var("PATH").unwrap_or_default();
    worker
        .with_env("PATH", format!("{}:{path}", programs.display()))
        .with_env("ANTHROPIC_API_KEY", "a-key-that-only-the-gateway-knows")
}

/// Takes the story through its phases, with a gate in between.
pub(crate) async fn run(cluster: &Cluster, number: u32) -> Result<String> {
    let repository = Repository::new()?;
    // Dropping the model stops it.
    let model = ScriptedModel::start(scripts::model_script(cases())).await?;
    let models = ["haiku", "sonnet", "opus"];
    let config = ProjectConfig::upstream("claude-code", &model.url(), models).more(PRICES);
    repository.write("tamma.yaml", &config.to_string())?;
    repository.commit("configuration")?;
    cluster.register_project(number, PROJECT, &repository).await?;
    let client = StoryClient { cluster, project: PROJECT };
    let id = client.start(STORY, &["--approve", "3"]).await?;
    client.until(id, |run| run.state == PipelineState::AtGate(3)).await?;
    client.act(&["answer", STORY, "continue"]).await?;
    let finished = client.finished(id, 1).await?;
    check_whole(&client, &repository, &finished, None).await?;
    let problems = story_files::problems(&repository, &finished)?;
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    let change = repository.git(&["show", &format!("{}:names.txt", finished.branch)])?;
    ensure!(change == "ann\nbo\ncy", "the change of phase 3 is `{change}`");

    // On the wire: each phase has begun one conversation, and its tokens are what the model sent.
    let (requests, sent) = (model.requests(), model.sent());
    for (phase, case) in (1..=AGENT_PHASES).zip(0..) {
        let first =
            requests.iter().filter(|it| it.case == Some(case) && it.step == Some(0)).count();
        ensure!(first == 1, "phase {phase} began {first} conversations with the model");
        let record = finished.run.records.get(&phase);
        let tokens = record.map(|record| record.work.tokens()).unwrap_or_default();
        let most: u64 = sent.iter().map(|response| response.tokens.total()).sum();
        ensure!(tokens > 0 && tokens <= most, "phase {phase} has {tokens} of {most} tokens");
    }
    Ok(format!("6 phases, {} requests to the model", requests.len()))
}

/// Returns the model's part in each phase.
fn cases() -> Vec<ScriptedCase> {
    let shell = |line: String| ScriptedAction::Shell(line, None);
    let folder = format!("{FEATURE}/stories/{STORY}");
    let story = format!(
        "mkdir -p {folder} && printf -- '---\\nid: {STORY}\\ntitle: Greet Cy\\nstatus: draft\\n---\\n' \
         > {folder}/{STORY}.md"
    );
    let read = |number: u8| shell(format!("cat {folder}/_workflow/PHASE-{number}-OUTPUT.md"));
    let work = [
        shell(story),
        read(1),
        shell("echo cy >> names.txt".to_owned()),
        shell("sh check.sh".to_owned()),
        read(4),
    ];
    let signal = || ScriptedAction::Tool("submit_signal", json!({ "result": "success" }));
    (1..=AGENT_PHASES)
        .zip(work)
        .map(|(phase, work)| ScriptedCase::new(prompt_line(phase, STORY), vec![work, signal()]))
        .collect()
}
