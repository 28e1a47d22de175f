//! `tamma eval`: measures an agent on a set of tasks.

mod case_run;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tamma_core::cost::Usd;
use tamma_core::rules::{Rules, SandboxMode};
use tamma_engine::sandbox;
use tamma_eval::{
    AgentChoice, AgentScript, Arm, CaseKey, CaseOutcome, CheckEnvironment, Checker, EvalReport,
    OutputFolder, ScriptedRole, TaskSet, render_page,
};
use tamma_worker::{Launcher, toolchains};

use crate::output;
use crate::roles;
use crate::services::ProgramSearch;

/// Variables of the environment that commands and agents of an evaluation get, besides toolchains.
const KEPT_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

/// Setting of the environment that an evaluation heeds; other settings would change what it measures.
const SANDBOX_VARIABLE: &str = "TAMMA_ENGINES_SANDBOX";

/// Budget of one case, in percent of its share of the whole budget.
const CASE_SHARE_PERCENT: u32 = 300;

/// Arguments of `tamma eval`.
#[derive(Debug, clap::Args)]
pub(super) struct EvalArgs {
    /// Set of tasks: starter, or the path of a folder with tasks
    #[arg(long, value_name = "SET", default_value = "starter")]
    set: String,
    /// Built-in agent; or oracle, which applies the known patches, or idle, which does nothing
    #[arg(long, value_name = "NAME", default_value = "claude-code")]
    agent: String,
    #[arg(
        long,
        value_name = "MODEL",
        help = "Model for all tiers [default: the models of the tiers, or the agent's choice]"
    )]
    model: Option<String>,
    /// Arms: loop (the whole task loop) and bare (one session of the same agent)
    #[arg(long, value_name = "ARM", value_delimiter = ',', default_value = "loop")]
    arms: Vec<Arm>,
    /// Number of trials of each task
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Spending limit of the whole evaluation, in US dollars
    #[arg(long, value_name = "DOLLARS", default_value = "40")]
    max_usd: Usd,
    /// Run only these tasks
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    only: Vec<String>,
    #[arg(
        long,
        value_name = "FOLDER",
        help = "Output folder [default: eval-SET-AGENT in the current folder]"
    )]
    output: Option<PathBuf>,
    /// Start without asking for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Check the tasks instead: known patches must pass, wrong ones must be rejected
    #[arg(long)]
    check: bool,
    /// Duration of suites that take long on purpose, in seconds
    #[arg(long, env = "TAMMA_EVAL_SUITE_SECONDS", value_name = "SECONDS", hide = true)]
    suite_seconds: Option<u32>,
    /// Seconds without a heartbeat after which a run counts as lost
    #[arg(long, env = "TAMMA_HEARTBEAT_SECONDS", value_name = "SECONDS", hide = true)]
    heartbeat_seconds: Option<u32>,
}

/// Arguments of `tamma eval-agent`.
#[derive(Debug, clap::Args)]
pub(super) struct EvalAgentArgs {
    /// Behaviour
    role: ScriptedRole,
    /// Script file
    script: PathBuf,
}

/// Runs a scripted agent.
pub(super) fn run_agent(arguments: &EvalAgentArgs) -> Result<ExitCode> {
    let script = AgentScript::read(&arguments.script)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tamma_eval::serve(arguments.role, move |_| script.clone()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(arguments: &EvalArgs) -> Result<ExitCode> {
    roles::block_on(evaluate(arguments))
}

/// Evaluation with everything that its cases share.
struct Evaluation<'a> {
    arguments: &'a EvalArgs,
    choice: AgentChoice,
    set: TaskSet,
    output: OutputFolder,
    checker: Checker,
    /// Cases in the order in which they run.
    cases: Vec<CaseKey>,
}

async fn evaluate(arguments: &EvalArgs) -> Result<ExitCode> {
    let mut set = TaskSet::open(&arguments.set)?;
    if !arguments.only.is_empty() {
        set.keep(&arguments.only)?;
    }
    if arguments.check {
        return check(arguments, &set).await;
    }
    let choice = AgentChoice::new(&arguments.agent, arguments.model.as_deref());
    check_agent(&choice, arguments)?;
    let path = output_path(arguments)?;
    let model = arguments.model.as_deref();
    let output = OutputFolder::open(&path, &arguments.set, &arguments.agent, model)?;
    let checker = Checker::open(&path.join("checks"), check_environment()?).await?;
    let cases = all_cases(&set, &arguments.arms, arguments.trials);
    let evaluation = Evaluation { arguments, choice, set, output, checker, cases };
    let open = evaluation.open_cases()?;
    evaluation.announce(&open)?;
    let mut ran = Ok(());
    if !open.is_empty() {
        if evaluation.choice.is_real() {
            evaluation.check_limit()?;
            if !arguments.yes && !confirm()? {
                writeln!(anstream::stdout().lock(), "Nothing was started.")?;
                return Ok(ExitCode::FAILURE);
            }
        }
        ran = Box::pin(services::run_cases(&evaluation, open)).await;
    }
    // Also after a failure: what has been measured counts.
    let report = evaluation.write_report()?;
    ran?;
    let is_complete = report.arms.iter().all(|arm| arm.not_run == 0);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Refuses an agent that is unknown or not installed, before anything is started.
fn check_agent(choice: &AgentChoice, arguments: &EvalArgs) -> Result<()> {
    let AgentChoice::Real { agent, .. } = choice else {
        if arguments.model.is_some() {
            bail!("the agent `{}` has no model: leave out --model", arguments.agent);
        }
        return Ok(());
    };
    let agents = Rules::default().agents;
    let Some(rules) = agents.get(agent) else {
        let known: Vec<_> = agents.keys().map(String::as_str).collect();
        bail!("unknown agent `{agent}`\n  help: use oracle, idle or one of: {}", known.join(", "));
    };
    if ProgramSearch::from_environment().find_program(&rules.command).is_none() {
        bail!(
            "agent `{agent}` needs `{}`, which is not on PATH\n  help: run `tamma doctor`",
            rules.command
        );
    }
    Ok(())
}

/// Returns the output folder as an absolute path.
fn output_path(arguments: &EvalArgs) -> Result<PathBuf> {
    let default = || {
        // A set can be a path.
        let set = arguments.set.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        PathBuf::from(format!("eval-{set}-{}", arguments.agent))
    };
    let path = arguments.output.clone().unwrap_or_else(default);
    std::path::absolute(&path).with_context(|| format!("cannot find `{}`", path.display()))
}

/// Returns all cases: every task in every arm, trial by trial.
fn all_cases(set: &TaskSet, arms: &[Arm], trials: u32) -> Vec<CaseKey> {
    let arms: BTreeSet<Arm> = arms.iter().copied().collect();
    let mut cases = Vec::new();
    for trial in 1..=trials {
        for task in &set.tasks {
            for arm in &arms {
                cases.push(CaseKey { arm: *arm, task: task.id.clone(), trial });
            }
        }
    }
    cases
}

/// Returns the environment of servers and workers: without settings that would change what is measured.
fn clean_environment() -> BTreeMap<String, String> {
    let mut environment = roles::environment();
    environment.retain(|name, _| !name.starts_with("TAMMA_") || name == SANDBOX_VARIABLE);
    environment
}

/// Returns everything that checks need from this machine.
fn check_environment() -> Result<CheckEnvironment> {
    let environment = clean_environment();
    let kept = environment.iter().filter(|(name, _)| KEPT_VARIABLES.contains(&name.as_str()));
    let mut env: BTreeMap<_, _> = kept.map(|(name, it)| (name.clone(), it.clone())).collect();
    env.extend(toolchains::variables(&environment));
    env.insert("CI".to_owned(), "1".to_owned());
    let mode = match environment.get(SANDBOX_VARIABLE).map(String::as_str) {
        Some("off") => SandboxMode::Off,
        _ => SandboxMode::Auto,
    };
    let program = std::env::current_exe().context("cannot find the program `tamma`")?;
    Ok(CheckEnvironment {
        env,
        readable: toolchains::folders(&environment),
        hidden: toolchains::secrets(&environment),
        sandbox: sandbox::choose(mode)?,
        launcher: Launcher { program, args: vec!["sandbox-launcher".to_owned()] },
    })
}

/// Checks the patches of all tasks, without an agent.
async fn check(arguments: &EvalArgs, set: &TaskSet) -> Result<ExitCode> {
    let folder = match &arguments.output {
        Some(folder) => std::path::absolute(folder)?,
        None => std::env::temp_dir().join(format!("tamma-eval-check-{}", std::process::id())),
    };
    let checker = Checker::open(&folder, check_environment()?).await?;
    let (mut failed, mut patches) = (0, 0);
    for task in &set.tasks {
        let result = checker.check(task, roles::now()).await?;
        let mut out = anstream::stdout().lock();
        if !result.base_fails {
            writeln!(out, "✗ {}: hidden tests pass without a change", task.id)?;
        }
        for patch in &result.patches {
            let mark = if patch.ok { '✓' } else { '✗' };
            let hidden = if patch.hidden_passed { "pass" } else { "fail" };
            let gates = match patch.failed_gates.as_slice() {
                [] => "gates pass".to_owned(),
                failed => format!("gates fail: {}", failed.join(", ")),
            };
            writeln!(out, "{mark} {} {}: {gates}, hidden tests {hidden}", task.id, patch.patch)?;
        }
        patches += result.patches.len();
        failed += usize::from(!result.is_ok());
    }
    if arguments.output.is_none() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    let tasks = set.tasks.len();
    let ok = tasks - failed;
    writeln!(anstream::stdout().lock(), "{ok} of {tasks} tasks ok, {patches} patches")?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks whether to spend money.
fn confirm() -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!(
            "cannot ask for confirmation without a terminal\n  help: pass --yes to start with this \
             limit"
        );
    }
    let mut out = anstream::stdout().lock();
    write!(out, "Start? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

impl Evaluation<'_> {
    /// Returns the cases without a result, and those that could not run. A case whose task is under way
    /// comes first, because its task continues as soon as the services start.
    fn open_cases(&self) -> Result<Vec<CaseKey>> {
        let (mut under_way, mut others) = (Vec::new(), Vec::new());
        for key in &self.cases {
            match self.output.finished(key)? {
                None if self.output.started(key)?.is_some() => under_way.push(key.clone()),
                None => others.push(key.clone()),
                Some(result) if result.outcome == CaseOutcome::NotRun => others.push(key.clone()),
                Some(_) => {}
            }
        }
        under_way.append(&mut others);
        Ok(under_way)
    }

    /// Refuses a limit with which no case could run.
    fn check_limit(&self) -> Result<()> {
        let (max, cases) = (self.arguments.max_usd, u32::try_from(self.cases.len())?);
        let share = max.checked_div(u64::from(cases)).unwrap_or(max).percent(CASE_SHARE_PERCENT);
        let least = typical_run();
        if share < least {
            let needed =
                least.percent(cases.saturating_mul(100)).percent(10_000 / CASE_SHARE_PERCENT + 1);
            bail!(
                "--max-usd {max} leaves {share} for a case, but one run typically costs {least}\n  help: \
                 use at least {needed}, or fewer tasks, arms or trials"
            );
        }
        Ok(())
    }

    /// Prints the extent and the cost before anything is started.
    fn announce(&self, open: &[CaseKey]) -> Result<()> {
        let arguments = self.arguments;
        let mut out = anstream::stdout().lock();
        let arms: BTreeSet<Arm> = arguments.arms.iter().copied().collect();
        let names: Vec<_> = arms.iter().map(ToString::to_string).collect();
        let model = arguments.model.as_ref().map(|it| format!(", model {it}")).unwrap_or_default();
        let (cases, tasks) = (self.cases.len(), output::pluralize(self.set.tasks.len(), "task"));
        let trials = output::pluralize(usize::try_from(arguments.trials)?, "trial");
        writeln!(
            out,
            "{tasks}, {trials}, arms {}: {}, {} done",
            names.join(" and "),
            output::pluralize(cases, "case"),
            cases - open.len()
        )?;
        writeln!(out, "agent {}{model}", output::sanitize(&arguments.agent))?;
        if self.choice.is_real() {
            let (likely, max) = (estimate(open), arguments.max_usd);
            writeln!(out, "estimated cost: {likely}; stops at {max} (--max-usd)")?;
        } else {
            writeln!(out, "cost: none (this agent uses no model)")?;
        }
        writeln!(out, "results in {}", self.output.path().display())?;
        Ok(())
    }

    /// Returns the budget of the next case; `None` without a limit. Fails if nothing is left.
    fn next_budget(&self) -> Result<Option<Usd>> {
        if !self.choice.is_real() {
            return Ok(None);
        }
        let results = self.output.results()?;
        let spent = results.iter().filter_map(|it| it.usd).fold(Usd::ZERO, |sum, usd| sum + usd);
        let left = self.arguments.max_usd.saturating_sub(spent);
        if left < typical_run() {
            bail!(
                "what is left of the limit of {} is not enough for a run; results so far are in {}\n  help: run the command again \
                 with a higher --max-usd to continue",
                self.arguments.max_usd,
                self.output.path().display()
            );
        }
        let cases = u64::try_from(self.cases.len())?;
        let share = self.arguments.max_usd.checked_div(cases).unwrap_or(left);
        Ok(Some(left.min(share.percent(CASE_SHARE_PERCENT))))
    }

    /// Writes `results.json` and `report.html`.
    fn save_report(&self) -> Result<EvalReport> {
        let mut results = self.output.results()?;
        // The folder can contain cases of an earlier call with other arms, tasks or trials.
        results.retain(|result| self.cases.contains(&result.key));
        let EvalArgs { set, agent, model, .. } = self.arguments;
        let version = env!("CARGO_PKG_VERSION");
        let report = EvalReport::new((set, agent, model.as_deref()), version, results);
        let json = serde_json::to_string_pretty(&report)?;
        self.output.save_report("results.json", &json)?;
        self.output.save_report("report.html", &render_page(&report))?;
        Ok(report)
    }

    /// Writes the report and prints a line per arm.
    fn write_report(&self) -> Result<EvalReport> {
        let report = self.save_report()?;
        let mut out = anstream::stdout().lock();
        for arm in &report.arms {
            writeln!(
                out,
                "{}: {} of {} solved, {}, {} unsolved, {} not run",
                arm.arm,
                arm.solved,
                arm.cases,
                output::pluralize(arm.false_completions, "false completion"),
                arm.unsolved,
                arm.not_run
            )?;
        }
        writeln!(out, "report: {}", self.output.path().join("report.html").display())?;
        Ok(report)
    }

    /// Prints the result of a case.
    fn print_result(&self, result: &tamma_eval::CaseResult) -> Result<()> {
        let done = self.cases.len() - self.open_cases()?.len();
        let mark = match result.outcome {
            CaseOutcome::Solved => '✓',
            CaseOutcome::FalseCompletion | CaseOutcome::Unsolved => '✗',
            CaseOutcome::NotRun => '!',
        };
        let cost = result.usd.map(|usd| format!(", {usd}")).unwrap_or_default();
        writeln!(
            anstream::stdout().lock(),
            "{mark} {}: {} in {} s{cost} ({done} of {}): {}",
            result.key,
            result.outcome.to_string().replace('_', " "),
            result.seconds,
            self.cases.len(),
            output::sanitize(&result.reason)
        )?;
        Ok(())
    }
}

/// Returns the typical cost of a run that plans or validates.
fn typical_run() -> Usd {
    Rules::default().tiers.moderate.typical_run_usd
}

/// Returns the likely cost of cases: a plan, one and a half implementations and a validation in the loop,
/// and one session without it.
fn estimate(cases: &[CaseKey]) -> Usd {
    let simple = Rules::default().tiers.simple.typical_run_usd;
    let cost = |case: &CaseKey| match case.arm {
        Arm::Loop => typical_run().percent(200) + simple.percent(150),
        Arm::Bare => typical_run(),
    };
    cases.iter().map(cost).fold(Usd::ZERO, |sum, usd| sum + usd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_every_task_in_every_arm_trial_by_trial() {
        let mut set = TaskSet::open("starter").expect("valid tasks");
        set.keep(&["monorepo".to_owned(), "off-by-one".to_owned()]).expect("known");
        let cases = all_cases(&set, &[Arm::Loop, Arm::Bare], 2);
        let names: Vec<_> = cases.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[..3], ["loop-monorepo-1", "bare-monorepo-1", "loop-off-by-one-1"]);
        assert_eq!(names[7], "bare-off-by-one-2");
    }

    #[test]
    fn the_estimate_grows_with_arms_and_trials() {
        let set = TaskSet::open("starter").expect("valid tasks");
        let cost = |arms: &[Arm], trials| estimate(&all_cases(&set, arms, trials));
        let one = cost(&[Arm::Loop], 1);
        assert!(one > Usd::ZERO);
        assert_eq!(cost(&[Arm::Loop, Arm::Loop], 2), one + one);
        assert!(cost(&[Arm::Loop, Arm::Bare], 1) > one);
    }
}
