//! One case of an evaluation: adds its task, acts as the person, and measures the result.
//!
//! Every step can be repeated: the IDs are stored before they are used, and Tamma keeps one task per ID.
//! A case that was interrupted continues where its task is.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::CommitId;
use tamma_core::task::Priority;
use tamma_core::task_loop::{State, Timestamp};
use tamma_eval::{
    AgentChoice, AgentScript, Arm, CaseKey, CaseOutcome, CaseResult, ExpectedOutcome,
    FileListMatch, ScriptedRole, StartedCase, TaskFiles, project_config,
};
use tamma_server::dto::{
    AddedTask, HistoryPage, NewProject, NewTask, OpenQuestion, PlanVersion, RegisteredProject,
    RunDetail, RunLines, RunList, TaskAction, TaskDetail, TaskReportResponse, TaskStatus,
};
use tamma_store::{LineKind, RunEnd};

use super::Evaluation;
use crate::client::{self, Client};
use crate::{output, roles};

/// Name of the person who approves and answers.
const PERSON: &str = "evaluation";

/// Interval between two looks at a task.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// Time limit of a case. The limits of the task loop normally end it much earlier.
const CASE_TIME_LIMIT: Duration = Duration::from_hours(3);

/// Reply to a question that the task does not expect.
const NO_ANSWER: &str =
    "Nobody can answer questions. Decide for yourself, by the task and the code.";

/// Questions that get a reply, before a case ends without a result.
const MAX_QUESTIONS: u32 = 3;

/// Failed actions in a row before a case gives up.
const MAX_FAILED_ACTIONS: u32 = 50;

/// Trigger in the history for an agent that calls the plan wrong.
const PLAN_WRONG: &str = "plan_wrong";

/// Maximum number of entries or lines per request.
const PAGE: &str = "500";

/// Maximum length of the output of hidden tests in a result, in characters.
const MAX_HIDDEN_OUTPUT: usize = 4_000;

/// Case in progress.
struct CaseRun<'a> {
    evaluation: &'a Evaluation<'a>,
    client: &'a Client,
    key: &'a CaseKey,
    task: &'a TaskFiles,
    started: StartedCase,
    /// Number of the last question that was handled.
    handled: Option<u32>,
    /// Questions that this process has answered.
    replies: u32,
    failed_actions: u32,
}

/// End of a case, before it is judged.
struct CaseEnd {
    /// Tamma accepted and delivered a change.
    delivered: bool,
    /// The agent said that the task contradicts itself.
    disputed: bool,
    reason: String,
}

/// Runs a case to its end, and returns its result.
pub(super) async fn run_case(
    evaluation: &Evaluation<'_>,
    client: &Client,
    key: &CaseKey,
) -> Result<CaseResult> {
    let task = evaluation.set.task(&key.task).context("the task is not in the set")?;
    let before = evaluation.output.started(key)?;
    // A case that could not run is tried again, with another task in the same project.
    let failed = evaluation.output.finished(key)?.map(|result| result.task_id);
    let (started, is_new) = match before {
        Some(started) if failed != Some(started.task_id) => (started, false),
        before => {
            let started = StartedCase {
                task_id: client::new_id(),
                project_id: before.map_or_else(client::new_id, |started| started.project_id),
                started_at: roles::now(),
                dispute: None,
            };
            (started, true)
        }
    };
    let mut run = CaseRun {
        evaluation,
        client,
        key,
        task,
        started,
        handled: None,
        replies: 0,
        failed_actions: 0,
    };
    if is_new {
        run.configure().await?;
        // From here on, the case is continued and not started again.
        evaluation.output.save_started(key, &run.started)?;
    }
    run.add_task().await?;
    let end = run.follow().await?;
    run.judge(end).await
}

impl CaseRun<'_> {
    fn folder(&self) -> PathBuf {
        self.evaluation.output.case_folder(self.key)
    }

    fn path(&self, more: &str) -> String {
        format!("/tasks/{}{more}", self.started.task_id)
    }

    fn repository(&self) -> PathBuf {
        self.folder().join("repository")
    }

    /// Creates the repository, its configuration and the agent's script.
    async fn configure(&self) -> Result<()> {
        let Evaluation { arguments, choice, checker, .. } = self.evaluation;
        let folder = self.folder();
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        let repository = self.repository();
        checker.create_repository(self.task, &repository).await?;
        let script = folder.join("script.json");
        if choice.needs_script(self.key.arm) {
            self.script().await?.write(&script)?;
        }
        let program = std::env::current_exe().context("cannot find the program `tamma`")?;
        let config = project_config(
            &self.task.task,
            self.key.arm,
            choice,
            (&program, &script),
            self.evaluation.next_budget()?,
            arguments.suite_seconds,
        );
        let file = repository.join("tamma.yaml");
        std::fs::write(&file, serde_json::to_string_pretty(&config)?)
            .with_context(|| format!("cannot write `{}`", file.display()))
    }

    /// Registers the project and adds the task, unless both exist.
    async fn add_task(&self) -> Result<()> {
        let StartedCase { task_id, project_id, .. } = self.started;
        let project = NewProject {
            id: Some(project_id),
            name: self.key.to_string(),
            repository: self.repository().display().to_string(),
            organisation: None,
        };
        let _: RegisteredProject =
            self.client.post("/projects", PERSON, client::new_id(), &project).await?;
        let task = &self.task.task;
        let new = NewTask {
            id: Some(task_id),
            project: Some(project_id.to_string()),
            title: task.title.clone(),
            description: task.description.clone(),
            r#type: task.r#type,
            priority: Priority::default(),
            acceptance_criteria: task.criteria.clone(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: std::collections::BTreeMap::new(),
            plan: None,
        };
        let _: AddedTask = self.client.post("/tasks", PERSON, task_id, &new).await?;
        Ok(())
    }

    /// Returns the script of the scripted agents. Only `oracle` gets the solution.
    async fn script(&self) -> Result<AgentScript> {
        let is_oracle = self.evaluation.choice == AgentChoice::Scripted(ScriptedRole::Oracle);
        if !is_oracle {
            return Ok(AgentScript::without_solution(self.task));
        }
        let solved = self.folder().join("solved");
        let patch = self.task.oracle_patch();
        self.evaluation.checker.write_patched(self.task, patch, &solved).await?;
        Ok(AgentScript::with_solution(self.task, &solved)?)
    }

    /// Watches the task and acts for the person, until there is nothing more to wait for.
    async fn follow(&mut self) -> Result<CaseEnd> {
        let mut shown = None;
        let deadline = tokio::time::Instant::now() + CASE_TIME_LIMIT;
        loop {
            let detail: TaskDetail = self.client.get(&self.path(""), &[]).await?;
            if shown != Some(detail.card.state) {
                shown = Some(detail.card.state);
                let state = detail.card.state.to_string().replace('_', " ");
                writeln!(anstream::stdout().lock(), "  {}: {state}", self.key)?;
            }
            let end = match self.step(&detail).await? {
                Some(end) => Some(end),
                None if tokio::time::Instant::now() >= deadline => {
                    Some(CaseEnd::without_change("the time limit of a case is reached"))
                }
                None => None,
            };
            if let Some(end) = end {
                if end.disputed && self.started.dispute.is_none() {
                    // The question closes with the task, so it is kept for a later start.
                    self.started.dispute = Some(end.reason.clone());
                    self.evaluation.output.save_started(self.key, &self.started)?;
                }
                if !end.delivered && !detail.card.state.is_terminal() {
                    // Nothing of it may run beside the next case. It may have just ended.
                    let reason = "the case is over".to_owned();
                    drop(self.act(&TaskAction::Cancel { reason }).await);
                }
                return Ok(end);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Acts on the current state of the task. Returns the end of the case, if it is over.
    async fn step(&mut self, detail: &TaskDetail) -> Result<Option<CaseEnd>> {
        let expects_dispute = self.task.task.expected == ExpectedOutcome::PlanWrong;
        if let Some(dispute) = &self.started.dispute {
            return Ok(Some(CaseEnd::disputed(dispute.clone())));
        }
        if expects_dispute && self.has_dispute().await? {
            let reason = "the agent reported that the plan cannot work".to_owned();
            return Ok(Some(CaseEnd::disputed(reason)));
        }
        match detail.card.state {
            State::Learning | State::Completed => {
                return Ok(Some(CaseEnd {
                    delivered: true,
                    disputed: false,
                    reason: "a change was delivered".to_owned(),
                }));
            }
            // An evaluation was stopped after the end of this case and before its result.
            State::Cancelled | State::Failed => {
                return Ok(Some(CaseEnd::without_change("the task was closed")));
            }
            _ => {}
        }
        let Some(question) = &detail.question else { return Ok(None) };
        if self.handled == Some(question.number) {
            return Ok(None);
        }
        let action = match question.cause {
            AlertCause::ApprovalNeeded { .. } => {
                let Some(plan) = &detail.plan else { return Ok(None) };
                TaskAction::Approve { plan: plan.hash.clone(), reason: None }
            }
            AlertCause::ReviewNeeded => {
                let Some(commit) = detail.commit.clone() else { return Ok(None) };
                TaskAction::Accept { commit, reason: None }
            }
            AlertCause::AgentQuestion if self.task.is_contradiction(&asked(question)) => {
                return Ok(Some(CaseEnd::disputed(format!(
                    "the agent asked: {}",
                    asked(question)
                ))));
            }
            AlertCause::AgentQuestion if self.replies < MAX_QUESTIONS => {
                let text = self.task.task.answer.clone().unwrap_or_else(|| NO_ANSWER.to_owned());
                TaskAction::Reply { text }
            }
            _ => return Ok(Some(CaseEnd::without_change(&question.cause_text))),
        };
        match self.act(&action).await {
            Ok(()) => {
                self.replies += u32::from(matches!(action, TaskAction::Reply { .. }));
                (self.handled, self.failed_actions) = (Some(question.number), 0);
            }
            // The task may have moved on, or no worker was free. The next look shows it.
            Err(error) => {
                self.failed_actions += 1;
                if self.failed_actions > MAX_FAILED_ACTIONS {
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    async fn act(&self, action: &TaskAction) -> Result<()> {
        let path = self.path("/actions");
        let _: TaskStatus = self.client.post(&path, PERSON, client::new_id(), action).await?;
        Ok(())
    }

    /// Returns the history of the task.
    async fn history(&self) -> Result<Vec<HistoryEntry>> {
        let (mut entries, mut after) = (Vec::new(), String::new());
        loop {
            let mut query = vec![("limit", PAGE)];
            if !after.is_empty() {
                query.push(("after", after.as_str()));
            }
            let page: HistoryPage = self.client.get(&self.path("/history"), &query).await?;
            entries.extend(page.entries.into_iter().map(|recorded| recorded.entry));
            match page.next {
                Some(next) => after = next,
                None => return Ok(entries),
            }
        }
    }

    /// Returns `true` if an agent has called the plan wrong.
    async fn has_dispute(&self) -> Result<bool> {
        Ok(self.history().await?.iter().any(|entry| json!(entry)["on"] == PLAN_WRONG))
    }

    /// Returns the number of questions that agents have asked.
    async fn count_questions(&self) -> Result<u32> {
        let history = self.history().await?;
        let asked = history.iter().filter(|entry| entry.name == EntryName::SmQuestionAsked);
        Ok(u32::try_from(asked.count())?)
    }

    /// Runs the hidden tests and collects the measures.
    async fn judge(&self, end: CaseEnd) -> Result<CaseResult> {
        let detail: TaskDetail = self.client.get(&self.path(""), &[]).await?;
        let report: TaskReportResponse = self.client.get(&self.path("/report"), &[]).await?;
        let RunList { runs } = self.client.get(&self.path("/runs"), &[]).await?;
        // Runs of `stand-in` are not the agent's.
        let stand_in = ScriptedRole::StandIn.to_string();
        let runs: Vec<RunDetail> = runs.into_iter().filter(|run| run.agent != stand_in).collect();
        let commit = detail.commit.as_deref().or_else(|| {
            detail.iterations.iter().rev().find_map(|iteration| iteration.commit.as_deref())
        });
        let commit = match commit {
            Some(commit) => Some(commit.parse::<CommitId>().context("the task has no commit")?),
            None => None,
        };
        let first_pass_gates = match (self.key.arm, commit) {
            (Arm::Loop, _) => {
                let first = report.report.iterations.first();
                first.and_then(|it| it.gate_counts).map(|counts| counts.failed == 0)
            }
            (Arm::Bare, Some(commit)) => Some(self.passes_gates(commit).await?),
            (Arm::Bare, None) => None,
        };
        let completed = match self.key.arm {
            Arm::Loop => end.delivered,
            // Without the loop, an agent is done when it says so and the gates do not object.
            Arm::Bare => first_pass_gates == Some(true),
        };
        let (hidden_passed, hidden_output, changed) = match commit {
            Some(commit) => self.run_hidden_tests(commit).await?,
            None => (None, String::new(), None),
        };
        let files = match (changed, self.key.arm) {
            (Some(changed), Arm::Loop) => self.compare_with_plan(&changed).await?,
            _ => None,
        };
        let not_run = is_not_run(&runs);
        let questions = self.count_questions().await?;
        let (outcome, reason) = judge_outcome(
            self.task.task.expected,
            &end,
            completed,
            hidden_passed,
            questions,
            not_run,
        );
        let finished_at = roles::now();
        let usage = |value: fn(&tamma_server::dto::RunUsage) -> u64| {
            runs.iter().filter_map(|run| run.usage.as_ref()).map(value).sum::<u64>()
        };
        let is_real = self.evaluation.choice.is_real();
        let costs: Vec<Option<Usd>> =
            runs.iter().map(|run| run.usage.as_ref().and_then(|usage| usage.usd)).collect();
        let known = costs.iter().flatten().fold(Usd::ZERO, |sum, usd| sum + *usd);
        Ok(CaseResult {
            key: self.key.clone(),
            task_id: self.started.task_id,
            expected: self.task.task.expected,
            outcome,
            reason,
            completed,
            hidden_passed,
            hidden_output,
            questions,
            iterations: u32::try_from(report.report.iterations.len())?,
            first_pass_gates,
            files,
            denials: self.count_lines(LineKind::Asked, |data, _| data["verdict"] == "deny").await?,
            gate_calls: self
                .count_lines(LineKind::Tool, |data, text| {
                    text.contains("run_gates") && data["status"] == "completed"
                })
                .await?,
            runs: u32::try_from(runs.len())?,
            model_calls: runs.iter().map(|run| run.calls).sum(),
            input_tokens: usage(|usage| usage.input),
            cached_tokens: usage(|usage| usage.cached),
            output_tokens: usage(|usage| usage.output),
            usd: costs.iter().any(Option::is_some).then_some(known),
            usd_incomplete: is_real && costs.iter().any(Option::is_none),
            seconds: seconds_between(self.started.started_at, finished_at),
            started_at: self.started.started_at,
            finished_at,
        })
    }

    /// Returns the repository in which Tamma keeps the commits of the case.
    fn mirror(&self) -> PathBuf {
        let mirrors = self.evaluation.output.data().join("work").join("mirrors");
        mirrors.join(format!("{}.git", self.started.project_id))
    }

    /// Runs the gates on a commit, without the rules of the task loop.
    async fn passes_gates(&self, commit: CommitId) -> Result<bool> {
        let (mirror, folder) = (self.mirror(), self.folder().join("gates"));
        let checker = &self.evaluation.checker;
        Ok(checker.passes_gates(self.task, (&mirror, commit), &folder, roles::now()).await?)
    }

    /// Runs the hidden tests on a commit. Returns their result and output, and the changed files.
    async fn run_hidden_tests(
        &self,
        commit: CommitId,
    ) -> Result<(Option<bool>, String, Option<BTreeSet<String>>)> {
        let (mirror, folder) = (self.mirror(), self.folder().join("hidden"));
        let checker = &self.evaluation.checker;
        let (run, changed) =
            checker.run_hidden_tests(self.task, (&mirror, commit), &folder, roles::now()).await?;
        let output = if run.passed { String::new() } else { end_of(&run.output) };
        Ok((Some(run.passed), output, Some(changed)))
    }

    /// Compares the changed files with those of the plan.
    async fn compare_with_plan(&self, changed: &BTreeSet<String>) -> Result<Option<FileListMatch>> {
        let plan: Result<PlanVersion, _> = self.client.get(&self.path("/plan"), &[]).await;
        let Some(plan) = plan.ok().and_then(|plan| plan.content) else { return Ok(None) };
        let planned: BTreeSet<&str> =
            plan.file_changes.iter().map(|change| change.path.as_str()).collect();
        let both = changed.iter().filter(|path| planned.contains(path.as_str())).count();
        Ok(Some(FileListMatch {
            planned: u32::try_from(planned.len())?,
            changed: u32::try_from(changed.len())?,
            both: u32::try_from(both)?,
        }))
    }

    /// Counts log lines of a kind by their data and text.
    async fn count_lines(
        &self,
        kind: LineKind,
        counts: impl Fn(&Value, &str) -> bool,
    ) -> Result<u32> {
        let kind = json!(kind);
        let kind = kind.as_str().unwrap_or_default();
        let (mut count, mut after) = (0, String::new());
        loop {
            let mut query = vec![("kinds", kind), ("limit", PAGE)];
            if !after.is_empty() {
                query.push(("after", after.as_str()));
            }
            let page: RunLines = self.client.get(&self.path("/lines"), &query).await?;
            for line in &page.lines {
                count += u32::from(counts(line.data.as_ref().unwrap_or(&Value::Null), &line.text));
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(count),
            }
        }
    }
}

impl CaseEnd {
    fn disputed(reason: String) -> Self {
        Self { delivered: false, disputed: true, reason }
    }

    fn without_change(reason: &str) -> Self {
        Self { delivered: false, disputed: false, reason: reason.to_owned() }
    }
}

/// Returns the question of the agent on one line.
fn asked(question: &OpenQuestion) -> String {
    let text = question.agent_question.as_deref().unwrap_or(&question.cause_text);
    output::sanitize(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns `true` if the last run failed for a reason outside the agent's work.
fn is_not_run(runs: &[RunDetail]) -> bool {
    let end = runs.last().and_then(|run| run.end);
    matches!(end, Some(RunEnd::Crashed | RunEnd::Unavailable | RunEnd::Quota))
}

/// Judges a case, and says why.
fn judge_outcome(
    expected: ExpectedOutcome,
    end: &CaseEnd,
    completed: bool,
    hidden_passed: Option<bool>,
    questions: u32,
    not_run: bool,
) -> (CaseOutcome, String) {
    let passed = hidden_passed == Some(true);
    let (outcome, reason) = match expected {
        ExpectedOutcome::PlanWrong if end.disputed => (CaseOutcome::Solved, end.reason.as_str()),
        ExpectedOutcome::PlanWrong if completed => {
            (CaseOutcome::FalseCompletion, "a change was accepted that cannot be right")
        }
        ExpectedOutcome::Question if completed && passed && questions == 0 => {
            (CaseOutcome::Unsolved, "the agent guessed right and did not ask")
        }
        ExpectedOutcome::Delivered | ExpectedOutcome::Question if completed && passed => {
            (CaseOutcome::Solved, "hidden tests passed")
        }
        ExpectedOutcome::Delivered | ExpectedOutcome::Question if completed => {
            (CaseOutcome::FalseCompletion, "the change was accepted, but hidden tests fail")
        }
        _ if not_run => (CaseOutcome::NotRun, end.reason.as_str()),
        _ => (CaseOutcome::Unsolved, end.reason.as_str()),
    };
    (outcome, reason.to_owned())
}

/// Returns the end of a long output.
fn end_of(text: &str) -> String {
    let length = text.chars().count();
    text.chars().skip(length.saturating_sub(MAX_HIDDEN_OUTPUT)).collect()
}

fn seconds_between(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from((end - start).num_seconds()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(
        expected: ExpectedOutcome,
        disputed: bool,
        completed: bool,
        hidden: Option<bool>,
        questions: u32,
    ) -> CaseOutcome {
        let end = CaseEnd { delivered: completed, disputed, reason: "x".to_owned() };
        judge_outcome(expected, &end, completed, hidden, questions, false).0
    }

    #[test]
    fn hidden_tests_decide_about_a_delivered_change() {
        use ExpectedOutcome::Delivered;
        assert_eq!(outcome(Delivered, false, true, Some(true), 0), CaseOutcome::Solved);
        assert_eq!(outcome(Delivered, false, true, Some(false), 0), CaseOutcome::FalseCompletion);
        assert_eq!(outcome(Delivered, false, false, Some(true), 0), CaseOutcome::Unsolved);
        assert_eq!(outcome(Delivered, false, false, None, 0), CaseOutcome::Unsolved);
    }

    #[test]
    fn a_contradiction_must_be_reported_and_an_ambiguity_asked_about() {
        use ExpectedOutcome::{PlanWrong, Question};
        assert_eq!(outcome(PlanWrong, true, false, None, 1), CaseOutcome::Solved);
        assert_eq!(outcome(PlanWrong, false, false, None, 0), CaseOutcome::Unsolved);
        assert_eq!(outcome(PlanWrong, false, true, Some(false), 0), CaseOutcome::FalseCompletion);
        assert_eq!(outcome(Question, false, true, Some(true), 1), CaseOutcome::Solved);
        assert_eq!(outcome(Question, false, true, Some(true), 0), CaseOutcome::Unsolved);
        assert_eq!(outcome(Question, false, true, Some(false), 1), CaseOutcome::FalseCompletion);
    }

    #[test]
    fn a_failure_outside_the_agent_is_counted_apart() {
        let end = CaseEnd::without_change("agent keeps failing");
        let judged = judge_outcome(ExpectedOutcome::Delivered, &end, false, None, 0, true);
        assert_eq!(judged, (CaseOutcome::NotRun, "agent keeps failing".to_owned()));
    }
}
