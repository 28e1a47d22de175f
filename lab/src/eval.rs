//! Evaluates the scripted agents on the starter set: the one that knows the solutions must solve every
//! task, the one that does nothing must solve none, every wrong patch must be rejected, and an
//! evaluation that is killed must continue without running a case twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tamma_testkit::programs::find_program;
use tamma_testkit::wait::wait_until_true;
use tokio::process::{Child, Command};

use crate::support::verdict::Verdict;

/// Tasks of the quick slice: one of each expected outcome.
const QUICK: [&str; 3] = ["contradictory-criteria", "ambiguous-request", "off-by-one"];

/// Time limit until the evaluation is in the middle of a case.
const TIMEOUT: Duration = Duration::from_mins(5);

/// `tamma eval` with an output folder of its own.
struct EvalProcess {
    program: PathBuf,
    output: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
}

impl EvalProcess {
    fn new(folder: &Path, agent: &str, more: &[&str], quick: bool) -> Result<Self> {
        let mut arguments = vec!["eval".to_owned()];
        if quick {
            arguments.push(format!("--only={}", QUICK.join(",")));
        }
        if !agent.is_empty() {
            arguments.push(format!("--agent={agent}"));
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let name = if agent.is_empty() { "check" } else { agent };
        let output = folder.join(name);
        arguments.push(format!("--output={}", output.display()));
        let log = folder.join(format!("{name}.log"));
        Ok(Self { program: find_program("tamma")?, output, arguments, log })
    }

    fn spawn(&self) -> Result<Child> {
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TAMMA_") {
                command.env_remove(name);
            }
        }
        command
            .args(&self.arguments)
            // A lost worker is noticed soon.
            .env("TAMMA_HEARTBEAT_SECONDS", "3")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `tamma eval`")
    }

    /// Runs it to its end.
    async fn run(&self) -> Result<()> {
        let status = self.spawn()?.wait().await?;
        ensure!(status.success(), "`tamma {}` failed ({status})", self.arguments.join(" "));
        Ok(())
    }

    /// Returns `results.json`.
    fn results(&self) -> Result<Value> {
        let path = self.output.join("results.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns the files of the cases, with their contents.
    fn case_files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.output.join("cases")).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path()).ok()?;
            name.strip_suffix(".partial").is_none().then_some((name, text))
        };
        entries.filter_map(read).collect()
    }

    /// Returns `true` while one case is finished and the next one is in the middle of its work.
    fn is_in_second_case(&self) -> bool {
        let files = self.case_files();
        let is_finished = |name: &str| {
            let case = name.strip_suffix(".json");
            case.is_some_and(|case| case.strip_suffix(".started").is_none())
        };
        let worktrees = self.output.join("data/work/worktrees");
        files.keys().any(|name| is_finished(name))
            && files.iter().any(|(name, text)| {
                let Some(case) = name.strip_suffix(".started.json") else { return false };
                let started: Value = serde_json::from_str(text).unwrap_or_default();
                let task = started["task_id"].as_str().unwrap_or_default();
                !files.contains_key(&format!("{case}.json")) && worktrees.join(task).exists()
            })
    }
}

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = std::env::temp_dir().join(format!("tamma-eval-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    // For root, PostgreSQL runs as another user, who must be able to reach its data.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
    let logs = || format!("logs: {}", folder.display());
    let verdict = measure(&folder, quick).await.with_context(logs)?;
    if verdict.passed {
        fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(verdict)
}

async fn measure(folder: &Path, quick: bool) -> Result<Verdict> {
    let mut out = std::io::stdout();
    let checked = check_patches(folder, quick).await?;
    writeln!(out, "patches  {checked}")?;
    let oracle = EvalProcess::new(folder, "oracle", &["--arms=loop,bare"], quick)?;
    let repeated = kill_and_continue(&oracle).await?;
    let solved = oracle.results()?;
    let idle = EvalProcess::new(folder, "idle", &[], quick)?;
    idle.run().await?;
    let unsolved = idle.results()?;
    let count = |results: &Value, arm: &str, measure: &str| {
        let arms = results["arms"].as_array().into_iter().flatten();
        arms.filter(|it| it["arm"] == arm).filter_map(|it| it[measure].as_u64()).sum::<u64>()
    };
    for (agent, results) in [("oracle", &solved), ("idle", &unsolved)] {
        for case in results["cases"].as_array().into_iter().flatten() {
            let text = |key: &str| case[key].as_str().unwrap_or_default();
            let (arm, task) = (text("arm"), text("task"));
            writeln!(
                out,
                "{agent:<7}  {arm:<5} {task:<24} {}: {}",
                text("outcome"),
                text("reason")
            )?;
        }
    }
    let all = count(&solved, "loop", "cases");
    let expected = if quick { 3 } else { 13 };
    let (in_loop, bare) = (count(&solved, "loop", "solved"), count(&solved, "bare", "solved"));
    let by_idle = count(&unsolved, "loop", "solved");
    let false_completions = count(&unsolved, "loop", "false_completions");
    let passed = all == expected
        && in_loop == all
        && bare == all
        && (by_idle, false_completions) == (0, 0)
        && count(&unsolved, "loop", "cases") == all
        && repeated == 0;
    let figures = format!(
        "oracle {in_loop} of {all} (bare {bare} of {all}), idle {by_idle} of {all}, {checked}, killed \
         once and {repeated} cases run twice"
    );
    Ok(Verdict::new(passed, figures))
}

/// Checks known and wrong patches, and returns the summary.
async fn check_patches(folder: &Path, quick: bool) -> Result<String> {
    let check = EvalProcess::new(folder, "", &["--check"], quick)?;
    let result = check.run().await;
    let text = fs::read_to_string(&check.log)?;
    if result.is_err() {
        write!(std::io::stdout(), "{text}")?;
    }
    result?;
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

/// Kills an evaluation in the middle of its second case and runs it to its end. Returns the number of
/// cases that ran twice.
async fn kill_and_continue(eval: &EvalProcess) -> Result<usize> {
    let mut first = eval.spawn()?;
    wait_until_true("the second case", TIMEOUT, || eval.is_in_second_case()).await?;
    first.kill().await?;
    let before = eval.case_files();
    eval.run().await?;
    let after = eval.case_files();
    // Neither a result nor the ID of a task may change, and each task belongs to one case.
    let changed = before.iter().filter(|(name, text)| after.get(*name) != Some(text)).count();
    let results = eval.results()?;
    let cases = results["cases"].as_array().cloned().unwrap_or_default();
    let tasks: BTreeSet<_> = cases.iter().map(|case| case["task_id"].to_string()).collect();
    Ok(changed + cases.len() - tasks.len())
}
