//! Model calls and tokens of one task with each agent, as the scripted model counts them.
//!
//! A whole cluster plans the task, implements it, repairs it in the same tier after a failed gate,
//! and validates it. The model reads the guide of the project whenever its conversation lacks it,
//! as a real model would. Runs after the task, such as learning, do not count.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_core::cost::Tokens;
use tamma_core::plan::FileAction;
use tamma_testkit::Cluster;
use tamma_testkit::agent::{IMPLEMENTER, PLANNER, VALIDATOR};
use tamma_testkit::model::{ConversationCase, ModelStep, Script, ScriptedModel, SentResponse};
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::wait::wait_until;

use super::contract::{done, run_command, tool};
use super::fixture::Candidate;
use crate::support::scripts::plan_arguments;
use crate::support::{agent_setup, programs};

/// Name of the measurement, for `--scenario`.
pub(crate) const NAME: &str = "tokens of a task with one repair";

/// Smallest share of the input of a same-tier repair that must come from the cache, in percent.
const MIN_CACHED_PERCENT: u64 = 70;

/// Time limit of the task.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Criterion of the task.
const CRITERION: &str = "The greeting is right.";

/// First words of the guide, which tell whether a conversation contains it.
const GUIDE: &str = "Guide of the greeting project";

/// Build of `tamma` that is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TammaBuild<'a> {
    /// Program of this build.
    Current,
    /// Program from before agents submitted results and criteria had IDs.
    Before(&'a Path),
}

/// Calls and tokens of one run, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunTokens {
    calls: u64,
    tokens: Tokens,
}

/// Calls and tokens of the runs of one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskTokens {
    plan: RunTokens,
    implement: RunTokens,
    repair: RunTokens,
    validate: RunTokens,
}

impl RunTokens {
    fn add(&mut self, sent: &SentResponse) {
        self.calls += 1;
        self.tokens = self.tokens + sent.tokens;
    }

    /// Returns all input tokens, cached or not.
    fn input(self) -> u64 {
        self.tokens.input + self.tokens.cached
    }

    /// Returns the share of the input that came from the cache, in percent.
    fn cached_percent(self) -> u64 {
        (self.tokens.cached * 100).checked_div(self.input()).unwrap_or_default()
    }
}

impl TaskTokens {
    fn total(self) -> RunTokens {
        let add = |all: RunTokens, one: RunTokens| RunTokens {
            calls: all.calls + one.calls,
            tokens: all.tokens + one.tokens,
        };
        [self.implement, self.repair, self.validate].into_iter().fold(self.plan, add)
    }

    /// Checks the share of the repair's input that came from the cache.
    pub(crate) fn check(self) -> Result<()> {
        let percent = self.repair.cached_percent();
        ensure!(
            percent >= MIN_CACHED_PERCENT,
            "only {percent} % of the repair's input came from the cache; at least \
             {MIN_CACHED_PERCENT} % are required"
        );
        Ok(())
    }

    /// Appends the rows of a Markdown table.
    pub(crate) fn write_rows(self, text: &mut String, agent: &str, build: &str) {
        let runs = [
            ("plan", self.plan),
            ("implement", self.implement),
            ("repair", self.repair),
            ("validate", self.validate),
            ("all", self.total()),
        ];
        for (name, run) in runs {
            let RunTokens { calls, tokens } = run;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| `{agent}` | {build} | {name} | {calls} | {} | {} | {} | {} % |",
                run.input(),
                tokens.cached,
                tokens.output,
                run.cached_percent(),
            );
        }
    }
}

/// Head of the table that [`TaskTokens::write_rows`] continues.
pub(crate) const TABLE_HEAD: &str = "\
    | Agent | Build | Run | Calls | Input | Of it cached | Output | Cached share |\n\
    | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n";

/// Run that a case of the script belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptedRun {
    Validate,
    Learn,
    Repair,
    Plan,
    Implement,
}

/// Runs the task with an agent, and returns what the model sent.
pub(crate) async fn measure(candidate: &Candidate, build: TammaBuild<'_>) -> Result<TaskTokens> {
    // Not in /tmp, because each sandbox has its own.
    let folder = tempfile::tempdir_in(programs::folder()?)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut cluster = Cluster::builder()
        .folder(folder.path())
        .private_servers()
        .server()
        .workers(1)
        .worker_env("PATH", format!("{}:{path}", candidate.programs().display()))
        .worker_env(&candidate.rules.key, "a-key-that-only-the-gateway-knows");
    if let TammaBuild::Before(program) = build {
        cluster = cluster.program(program);
    }
    let cluster = cluster.start().await?;
    let (runs, cases): (Vec<_>, Vec<_>) = script_cases(build).into_iter().unzip();
    let script = Script { cases, count_tokens: true, ..Script::default() };
    let model = ScriptedModel::start(script).await?;
    let result = run_task(&cluster, candidate, &model).await;
    // A failed measurement keeps its logs.
    if let Err(error) = result {
        let logs = folder.keep();
        return Err(error.context(format!("logs: {}", logs.display())));
    }
    let (mut plan, mut implement, mut repair, mut validate) = Default::default();
    for sent in model.sent() {
        let run: &mut RunTokens = match sent.case.and_then(|case| runs.get(case)) {
            Some(ScriptedRun::Plan) => &mut plan,
            Some(ScriptedRun::Implement) => &mut implement,
            Some(ScriptedRun::Repair) => &mut repair,
            Some(ScriptedRun::Validate) => &mut validate,
            Some(ScriptedRun::Learn) | None => continue,
        };
        run.add(&sent);
    }
    let tokens = TaskTokens { plan, implement, repair, validate };
    let was_used = [plan, implement, repair, validate].iter().all(|run| run.calls > 0);
    ensure!(was_used, "a run called no model: {tokens:?}");
    cluster.stop().await?;
    Ok(tokens)
}

/// Adds the task and waits until it is completed.
async fn run_task(cluster: &Cluster, candidate: &Candidate, model: &ScriptedModel) -> Result<()> {
    let repository = Repository::new()?;
    repository.write("guide.md", &guide())?;
    // The gate passes on the base commit; failures there would not count.
    let gate = "  greets: { command: 'test ! -e greeting.txt || grep -q right greeting.txt', kind: tests }\n";
    let models = agent_setup::models(&candidate.name);
    let config = ProjectConfig::upstream(&candidate.name, &model.url(), models).gates(gate);
    repository.write("tamma.yaml", &config.to_string())?;
    repository.commit("gates")?;
    cluster.register_project(1, "greeter", &repository).await?;
    let options = ["--project", "greeter", "--criterion", CRITERION];
    let task = cluster.add_task(1, "Greet the world", &options).await?;
    let id = task.to_string();
    // With the command line, because an older program has other tables.
    let settled = wait_until("the end of the task", TIMEOUT, async || {
        let shown = cluster.cli.run(&["task", "show", &id, "--json"]).await?;
        let shown: Value = serde_json::from_str(&shown)?;
        let state = shown["state"].as_str().context("the task has no state")?;
        let is_settled = match state {
            "awaiting_approval" => shown["question"].is_object(),
            "human_escalation" | "completed" | "failed" | "cancelled" => true,
            _ => false,
        };
        Ok(is_settled.then(|| state.to_owned()))
    })
    .await?;
    if settled != "completed" {
        let history = cluster.cli.run(&["task", "history", &id]).await?;
        bail!("the task is in state {settled}:\n{history}");
    }
    Ok(())
}

/// Returns a text of about 6,000 tokens.
fn guide() -> String {
    let mut text = format!("# {GUIDE}\n\n");
    for number in 1..=240 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{number}. Rule {number} of greetings: greet everyone by name, and never twice in a row, unless asked."
        );
    }
    text
}

/// Returns the cases of the script with their runs. The first match applies.
fn script_cases(build: TammaBuild<'_>) -> Vec<(ScriptedRun, ConversationCase)> {
    let case = |when: &str, steps: Vec<ModelStep>| ConversationCase {
        when: when.to_owned(),
        unless: None,
        steps: steps.into_iter().chain([ModelStep::say("Done.")]).collect(),
    };
    let read_first = |when: &str| ConversationCase {
        unless: Some(GUIDE.to_owned()),
        ..case(when, vec![run_command("cat guide.md")])
    };
    let write = |word: &str| {
        let mut steps = vec![run_command(format!("echo {word} > greeting.txt"))];
        // Before, no tool took the result of a run.
        if let TammaBuild::Current = build {
            steps.push(done("The greeting is there."));
        }
        steps
    };
    let lessons = tool("submit_lessons", json!({ "lessons": [] }));
    let repair = "This is attempt 2.";
    vec![
        (
            ScriptedRun::Validate,
            case(VALIDATOR, vec![tool("submit_verdict", verdict_arguments(build))]),
        ),
        (ScriptedRun::Learn, case("You look back at a development task", vec![lessons])),
        (ScriptedRun::Repair, read_first(repair)),
        (ScriptedRun::Repair, case(repair, write("right"))),
        (ScriptedRun::Plan, case(PLANNER, vec![tool("submit_plan", plan(build))])),
        (ScriptedRun::Implement, read_first(IMPLEMENTER)),
        (ScriptedRun::Implement, case(IMPLEMENTER, write("wrong"))),
    ]
}

/// Returns the arguments of `submit_plan`.
fn plan(build: TammaBuild<'_>) -> Value {
    let mut plan = plan_arguments("A greeting.", FileAction::Create, &["greeting.txt"]);
    // The task has criteria of its own.
    plan["criteria"] = json!([]);
    if let (TammaBuild::Before(_), Some(fields)) = (build, plan.as_object_mut()) {
        for name in ["criteria", "verification", "assumptions", "questions"] {
            fields.remove(name);
        }
    }
    plan
}

/// Returns the arguments of `submit_verdict`.
fn verdict_arguments(build: TammaBuild<'_>) -> Value {
    let (evidence, file) = ("The gates passed.", "greeting.txt");
    let criteria = match build {
        TammaBuild::Current => {
            json!([{ "id": "C1", "verdict": "met", "evidence": evidence, "file": file }])
        }
        TammaBuild::Before(_) => {
            json!({ CRITERION: { "met": { "evidence": evidence, "file": file } } })
        }
    };
    json!({ "criteria": criteria, "issues": [] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: u64, cached: u64) -> RunTokens {
        RunTokens { calls: 1, tokens: Tokens { input, cached, output: 5, ..Tokens::default() } }
    }

    #[test]
    fn repair_needs_a_cached_share() {
        let with = |repair| TaskTokens {
            plan: run(100, 0),
            implement: run(100, 0),
            repair,
            validate: run(100, 0),
        };
        assert!(with(run(30, 70)).check().is_ok());
        let error = with(run(31, 69)).check().expect_err("too little").to_string();
        assert!(error.starts_with("only 69 %"), "{error}");
        assert!(with(run(0, 0)).check().is_err());
        assert_eq!(with(run(30, 70)).total(), RunTokens { calls: 4, ..sum(330, 70) });
    }

    fn sum(input: u64, cached: u64) -> RunTokens {
        RunTokens { tokens: Tokens { output: 20, ..run(input, cached).tokens }, ..run(0, 0) }
    }
}
