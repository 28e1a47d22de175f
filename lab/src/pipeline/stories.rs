//! Stories with a scripted agent: range, signals, gates, limits, and files of earlier runs.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::{
    PhaseStatus, PipelineDefinition, PipelineRun, PipelineState, PipelineVerdict,
};
use tamma_server::dto::PipelineAction;
use tamma_testkit::Cluster;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::cluster::PERSON;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;

use super::client::{FinishedRun, StoryClient};
use super::project::{
    AgentLog, FEATURE, StoryProject, phase_case, report, success, success_signal,
};
use super::story_files;

/// Story that goes through all phases.
pub(crate) const WHOLE: &str = "WISH-001";

/// Stories of the other scenarios.
const RANGE: &str = "RANGE-01";
const GATED: &str = "GATED-01";
const SLOW: &str = "SLOW-01";
/// Stories with files of an earlier run, whole and damaged.
const KNOWN: [&str; 2] = ["KNOWN-01", "KNOWN-02"];

/// Instructions in the repository, which replace the built-in ones of phase 5.
const COMMAND: (&str, &str) = (
    ".claude/commands/qa-verify-story.md",
    "Count the greetings, and compare them with the names.",
);

/// File that a person adds to unblock a story.
const FIX: &str = "designs.md";

/// Pipeline with a time limit, which its agent exceeds.
const LIMITED: &str = "\
pipelines:
  limited:
    phases:
      - { id: slow, prompt: Take your time., timeout_seconds: 5 }
";

/// Story whose second phase ends in a certain way.
struct SignalCase {
    story: &'static str,
    steps: Vec<AgentStep>,
    status: PhaseStatus,
    /// Start of the recorded reason.
    reason: &'static str,
    /// Text that the stored output contains.
    output: &'static str,
}

/// Project of all scenarios.
pub(crate) struct Stories {
    project: StoryProject,
    signals: Vec<SignalCase>,
}

impl Stories {
    /// Registers the project.
    pub(crate) async fn new(cluster: &Cluster, number: u32, quick: bool) -> Result<Self> {
        let repository = Repository::new()?;
        let state = format!(
            "---\nfeature_dir: {FEATURE}\nstory_id: {}\nstatus: blocked\nphases:\n  1_pm_generate:\n    \
             status: complete\n    signal: PM COMPLETE\n    completed_at: 2026-01-25T10:00:00Z\n    \
             tokens_used: 1200\ncurrent_phase: 2\n---\n",
            KNOWN[0]
        );
        for (story, state) in KNOWN.iter().zip([state.as_str(), "---\nphases: [half a li"]) {
            let folder = format!("{FEATURE}/ready/{story}/_workflow");
            repository.write(&format!("{folder}/STATE.md"), state)?;
            let output = format!("A story.\n\n{}\n", success_signal(1));
            repository.write(&format!("{folder}/PHASE-1-OUTPUT.md"), &output)?;
        }
        repository.write(COMMAND.0, COMMAND.1)?;
        repository.commit("a command, and stories of earlier runs")?;
        let signals = signal_cases(quick);
        let script = |_: &AgentLog| script(&signals);
        let configure = |config: ProjectConfig| config.more(LIMITED);
        let project =
            StoryProject::new(cluster, number, "wishlist", repository, script, configure).await?;
        Ok(Self { project, signals })
    }

    fn client<'a>(&'a self, cluster: &'a Cluster) -> StoryClient<'a> {
        StoryClient { cluster, project: &self.project.project.name }
    }

    /// Checks the files of a run, and how many processes each of its jobs started.
    fn check(&self, finished: &FinishedRun, processes: &[usize]) -> Result<()> {
        let problems = story_files::problems(&self.project.project.repository, finished)?;
        ensure!(problems.is_empty(), "{}", problems.join("; "));
        self.check_processes(finished.story.id, processes)
    }

    /// Checks how many processes each job has started, by job number.
    fn check_processes(&self, id: PipelineId, expected: &[usize]) -> Result<()> {
        let starts = self.project.log.starts(id.as_task())?;
        for (job, expected) in (1..).zip(expected) {
            let count = starts.iter().filter(|start| start.job_number == job).count();
            ensure!(count == *expected, "job {job} has started {count} agents, not {expected}");
        }
        let all: usize = expected.iter().sum();
        ensure!(starts.len() == all, "{} agents were started instead of {all}", starts.len());
        Ok(())
    }

    /// Takes a story through all six phases.
    pub(crate) async fn whole(&self, cluster: &Cluster) -> Result<String> {
        let client = self.client(cluster);
        let id = client.start(WHOLE, &[]).await?;
        let finished = client.finished(id, 1).await?;
        self.check(&finished, &[1, 1, 1, 1, 1])?;
        let tokens = 5 * super::project::tokens().total();
        check_whole(&client, &self.project.project.repository, &finished, Some(tokens)).await?;
        Ok("6 phases, 5 agents".to_owned())
    }

    /// Runs only a range of phases.
    pub(crate) async fn range(&self, cluster: &Cluster) -> Result<String> {
        let client = self.client(cluster);
        let id = client.start(RANGE, &["--from", "2", "--to", "4"]).await?;
        let finished = client.finished(id, 1).await?;
        let run = &finished.run;
        ensure!(run.state == PipelineState::Complete, "the run is {}", run.describe_state());
        let statuses: Vec<_> =
            run.records.iter().map(|(number, it)| (*number, it.status)).collect();
        let expected = [
            (1, PhaseStatus::Skipped),
            (2, PhaseStatus::Complete),
            (3, PhaseStatus::Complete),
            (4, PhaseStatus::Complete),
        ];
        ensure!(statuses == expected, "the phases are {statuses:?}");
        self.check(&finished, &[1, 1, 1])?;
        let refused = client.start("RANGE-02", &["--from", "4", "--to", "2"]).await;
        ensure!(refused.is_err(), "a range that ends before it starts was accepted");
        Ok("phases 2 to 4, phase 1 skipped".to_owned())
    }

    /// Ends a phase with each kind of signal. Only success continues, and nothing is retried.
    pub(crate) async fn signals(&self, cluster: &Cluster) -> Result<String> {
        let running = self.signals.iter().map(|case| async move {
            self.signal(cluster, case).await.with_context(|| case.story)
        });
        for result in futures_util::future::join_all(running).await {
            result?;
        }
        Ok(format!("{} endings of a phase", self.signals.len()))
    }

    async fn signal(&self, cluster: &Cluster, case: &SignalCase) -> Result<()> {
        let client = self.client(cluster);
        let id = client.start(case.story, &["--from", "2", "--to", "3"]).await?;
        let finished = client.finished(id, 1).await?;
        let record = finished.run.records.get(&2).context("phase 2 is not recorded")?;
        let reason = record.reason.clone().unwrap_or_default();
        let is_expected = record.status == case.status && reason.starts_with(case.reason);
        ensure!(is_expected, "phase 2 is {}: {reason}", record.status);
        let name = format!("{FEATURE}/stories/{}/_workflow/PHASE-2-OUTPUT.md", case.story);
        let object = format!("{}:{name}", finished.branch);
        let output = self.project.project.repository.git(&["show", &object])?;
        ensure!(output.contains(case.output), "the output is `{output}`");
        let verdict = match case.status {
            PhaseStatus::Complete => PipelineVerdict::Complete,
            PhaseStatus::Blocked => PipelineVerdict::Blocked,
            PhaseStatus::Failed | PhaseStatus::Skipped => PipelineVerdict::Failed,
        };
        let signal = client.act(&["show", case.story]).await?.signal.unwrap_or_default();
        let expected = match verdict {
            PipelineVerdict::Complete => format!("WORKFLOW {verdict}"),
            _ => format!("WORKFLOW {verdict}: {reason}"),
        };
        ensure!(signal == expected, "the run reports `{signal}` instead of `{expected}`");
        if verdict != PipelineVerdict::Complete {
            let report = client.cluster.cli.run(&["pipeline", "show", case.story]).await?;
            let lines = [
                format!("**Status**: {verdict} at phase 2"),
                format!("**Reason**: {reason}"),
                format!("`tamma pipeline run {FEATURE} {} --from 2`", case.story),
            ];
            for line in lines {
                ensure!(report.contains(&line), "the report lacks `{line}`: {report}");
            }
        }
        let third = usize::from(verdict == PipelineVerdict::Complete);
        self.check(&finished, &[1, third])?;
        if case.status == PhaseStatus::Blocked {
            self.unblock(&client, case.story, &finished).await?;
        }
        Ok(())
    }

    /// Adds a commit to the branch of a blocked story, and resumes it.
    async fn unblock(
        &self,
        client: &StoryClient<'_>,
        story: &str,
        blocked: &FinishedRun,
    ) -> Result<()> {
        let repository = &self.project.project.repository;
        let folder = tempfile::tempdir()?;
        let checkout = folder.path().join("checkout").display().to_string();
        repository.git(&["worktree", "add", "--quiet", &checkout, &blocked.branch])?;
        std::fs::write(format!("{checkout}/{FIX}"), "Two colours.\n")?;
        repository.git(&["-C", &checkout, "add", "--all"])?;
        repository.git(&["-C", &checkout, "commit", "--quiet", "--message", "Add the designs"])?;
        repository.git(&["worktree", "remove", "--force", &checkout])?;
        client.act(&["resume", story]).await?;
        let finished = client.finished(blocked.story.id, 2).await?;
        let run = &finished.run;
        ensure!(
            run.state == PipelineState::Complete,
            "the resumed run is {}",
            run.describe_state()
        );
        let fix = repository.git(&["show", &format!("{}:{FIX}", finished.branch)])?;
        ensure!(fix == "Two colours.", "the person's commit is lost");
        let view = client.act(&["show", story]).await?;
        let is_blocked = view
            .earlier_phases
            .iter()
            .any(|it| (it.run, it.phase, it.status.as_str()) == (1, 2, "blocked"));
        ensure!(is_blocked, "the first run is not recorded: {:?}", view.earlier_phases);
        // Job 2 ended the first run; jobs 3 and 4 are the phases of the second one.
        self.check(&finished, &[1, 0, 1, 1])
    }

    /// Answers at three gates: continue, skip and stop.
    pub(crate) async fn gates(&self, cluster: &Cluster) -> Result<String> {
        let client = self.client(cluster);
        let id = client.start(GATED, &["--to", "3", "--approve", "1,2,3"]).await?;
        for (phase, answer) in [(1, "continue"), (2, "skip"), (3, "stop")] {
            client.until(id, |run| run.state == PipelineState::AtGate(phase)).await?;
            let view = client.act(&["show", GATED]).await?;
            let question = view.question.unwrap_or_default();
            let phases = PipelineDefinition::built_in();
            let definition = phases.phase(phase).context("no such phase")?;
            let title = format!("Approval Gate: Phase {phase} ({})", definition.title());
            let command = definition.command.as_deref().unwrap_or_default();
            let ready = format!("Ready to execute: {command} {FEATURE} {GATED}");
            ensure!(question.contains(&title) && question.contains(&ready), "asked: {question}");
            for action in [PipelineAction::Continue, PipelineAction::Skip, PipelineAction::Stop] {
                ensure!(view.actions.contains(&action), "{action} is not offered");
            }
            let expected: &[usize] = if phase == 1 { &[] } else { &[1] };
            self.check_processes(id, expected).context("an agent started before its gate")?;
            client.act(&["answer", GATED, answer]).await?;
        }
        let finished = client.finished(id, 1).await?;
        let run = &finished.run;
        let expected = format!("stopped by {PERSON}");
        let is_stopped = matches!(&run.state, PipelineState::Stopped { phase: 3, verdict, reason, .. }
            if *verdict == PipelineVerdict::Blocked && *reason == expected);
        ensure!(is_stopped, "the run is {:?}", run.state);
        let status = |phase: u8| run.records.get(&phase).map(|record| record.status);
        ensure!(status(1) == Some(PhaseStatus::Complete), "phase 1 did not run");
        ensure!(status(2) == Some(PhaseStatus::Skipped), "phase 2 was not skipped");
        self.check(&finished, &[1])?;
        Ok("continue, skip, stop".to_owned())
    }

    /// Stops a phase at its time limit, and keeps its partial output.
    pub(crate) async fn limit(&self, cluster: &Cluster) -> Result<String> {
        let client = self.client(cluster);
        let id = client.start(SLOW, &["--pipeline", "limited"]).await?;
        let finished = client.finished(id, 1).await?;
        let record = finished.run.records.get(&1).context("phase 1 is not recorded")?;
        let reason = record.reason.as_deref();
        ensure!(reason == Some("timed out"), "phase 1 is {}: {reason:?}", record.status);
        let output = client.cluster.cli.run(&["pipeline", "show", SLOW, "--output", "1"]).await?;
        ensure!(output.contains("Half of it."), "the output is `{output}`");
        self.check(&finished, &[1])?;
        Ok("1 phase timed out".to_owned())
    }

    /// Continues stories of which only files are known.
    pub(crate) async fn known(&self, cluster: &Cluster) -> Result<String> {
        let client = self.client(cluster);
        for story in KNOWN {
            let id = client.start(story, &["--from", "2", "--to", "2"]).await?;
            let FinishedRun { run, story: stored, .. } = client.finished(id, 1).await?;
            let path = stored.story_path.unwrap_or_default();
            ensure!(path == format!("{FEATURE}/ready/{story}"), "the story is in {path}");
            ensure!(run.state == PipelineState::Complete, "{story} is {}", run.describe_state());
            let first = run.records.get(&1).context("phase 1 is not recorded")?;
            let found = (first.status, first.signal.clone());
            let expected = (PhaseStatus::Complete, Some(success_signal(1)));
            ensure!(found == expected, "phase 1 of {story} is {found:?}");
            self.check_processes(id, &[1])?;
        }
        Ok("read and rebuilt from files".to_owned())
    }
}

/// Checks a story that went through all phases: its records, its report and its status.
pub(crate) async fn check_whole(
    client: &StoryClient<'_>,
    repository: &Repository,
    finished: &FinishedRun,
    tokens: Option<u64>,
) -> Result<()> {
    let FinishedRun { story, run, branch } = finished;
    ensure!(run.state == PipelineState::Complete, "the run is {}", describe(run));
    let signals: Vec<_> = run.records.values().filter_map(|it| it.signal.clone()).collect();
    let expected: Vec<_> = (1..=6).map(success_signal).collect();
    ensure!(signals == expected, "the signals are {signals:?}");
    let path = format!("{FEATURE}/stories/{0}/{0}.md", story.story_id);
    let text = repository.git(&["show", &format!("{branch}:{path}")])?;
    ensure!(text.contains("\nstatus: done\n"), "the story is `{text}`");
    let yaml = client.cluster.cli.run(&["pipeline", "show", &story.story_id, "--yaml"]).await?;
    let report: Value = serde_saphyr::from_str(&yaml).map_err(|it| anyhow::anyhow!("{it}"))?;
    let expected = json!({
        "phase": "loop", "verdict": "COMPLETE", "feature_dir": FEATURE, "story_id": story.story_id,
        "phases_executed": 6, "phases_skipped": 0, "last_phase": 6,
        "last_signal": success_signal(6),
    });
    for (key, value) in expected.as_object().into_iter().flatten() {
        ensure!(report[key] == *value, "the report has `{key}: {}`", report[key]);
    }
    ensure!(report.get("reason").is_none(), "a complete run has a reason: {}", report["reason"]);
    let total = report["total_tokens"].as_u64().context("the report has no tokens")?;
    ensure!(tokens.is_none_or(|tokens| tokens == total), "the report has {total} tokens");
    let table = client.cluster.cli.run(&["pipeline", "show", &story.story_id]).await?;
    for (number, record) in &run.records {
        let title = run.request.phase(*number).map(|it| it.title().to_owned()).unwrap_or_default();
        let (signal, tokens) = (success_signal(*number), record.work.tokens());
        let row = format!("| {number}. {title} | complete | {signal} | {tokens} |");
        ensure!(table.contains(&row), "the table lacks `{row}`: {table}");
    }
    ensure!(table.contains(&format!("**Total tokens**: {total} ")), "no total in {table}");
    Ok(())
}

fn describe(run: &PipelineRun) -> String {
    format!("{} ({:?})", run.describe_state(), run.state)
}

/// Returns the steps of the whole story's phases.
fn whole_cases() -> Vec<PromptCase> {
    let path = format!("{FEATURE}/stories/{WHOLE}/{WHOLE}.md");
    let story = format!("---\nid: {WHOLE}\ntitle: Greet Cy\nstatus: draft\n---\n\nGreet Cy too.\n");
    let write = |path: &str, content: &str| AgentStep::Write {
        path: path.into(),
        content: content.to_owned(),
    };
    let with = |step: AgentStep, phase: u8| {
        let steps = std::iter::once(step).chain(success(phase)).collect();
        phase_case(phase, WHOLE, steps)
    };
    let submit = submit_signal("success", "");
    let reviewed = [vec![submit], report("Read the change. It is right.")].concat();
    vec![
        with(write(&path, &story), 1),
        phase_case(2, WHOLE, success(2)),
        with(write("names.txt", "ann\nbo\ncy\n"), 3),
        phase_case(4, WHOLE, reviewed),
        // Only a prompt with the repository's own instructions has this text.
        PromptCase::new(COMMAND.1, success(5)),
    ]
}

fn submit_signal(result: &str, reason: &str) -> AgentStep {
    let args = json!({ "result": result, "reason": reason });
    AgentStep::Tool { name: "submit_signal".to_owned(), args }
}

/// Returns the endings of a phase: four in the quick slice.
fn signal_cases(quick: bool) -> Vec<SignalCase> {
    use PhaseStatus::{Blocked, Complete, Failed};
    let case =
        |story, steps, status, reason, output| SignalCase { story, steps, status, reason, output };
    let unclear = "no clear signal";
    let tool = |result, reason| [vec![submit_signal(result, reason)], report("Read it.")].concat();
    let mut cases = vec![
        case("TOOL-01", tool("success", ""), Complete, "", "ELAB PASS"),
        case(
            "BLOCKED-01",
            report("Not yet.\n\nELABORATION BLOCKED: the designs are missing"),
            Blocked,
            "the designs are missing",
            "Not yet.",
        ),
        case("FAILED-01", tool("failed", "it has no user"), Failed, "it has no user", "Read it."),
        case("LATE-01", report("ELAB PASS\nAll good, I think!"), Failed, unclear, "I think!"),
    ];
    if !quick {
        // The request is answered, so the message before it has arrived.
        let ask = AgentStep::Ask { title: "Go on?".to_owned() };
        let crash = vec![AgentStep::Say("Half of it.".to_owned()), ask, AgentStep::Exit(3)];
        let failed = "ELABORATION FAILED: no time";
        cases.extend([
            case("LINE-01", success(2), Complete, "", "Did the work of phase 2."),
            case("QUOTED-01", report("I say \"ELAB PASS\""), Failed, unclear, "I say"),
            case("FAILED-02", report(failed), Failed, "no time", failed),
            case("BLOCKED-02", tool("blocked", "ask Bo"), Blocked, "ask Bo", "Read it."),
            case("SILENT-01", report(""), Failed, unclear, ""),
            case("CRASH-01", crash, Failed, "crashed: ", "Half of it."),
        ]);
    }
    cases
}

/// Returns the script of the agent for all stories.
fn script(signals: &[SignalCase]) -> Script {
    let mut cases = whole_cases();
    for (story, phases) in [(RANGE, 2..=4), (GATED, 1..=3), (KNOWN[0], 2..=2), (KNOWN[1], 2..=2)] {
        cases.extend(phases.map(|phase| phase_case(phase, story, success(phase))));
    }
    for signal in signals {
        let first = phase_case(2, signal.story, signal.steps.clone());
        let unless = (signal.status == PhaseStatus::Blocked).then(|| FIX.into());
        cases.push(PromptCase { unless, ..first });
        cases.extend([2, 3].map(|phase| phase_case(phase, signal.story, success(phase))));
    }
    let slow = vec![AgentStep::Say("Half of it.".to_owned()), AgentStep::Hang];
    cases.push(PromptCase::new(format!("- Story ID: {SLOW}"), slow));
    Script::from_cases(cases)
}
