//! One trial: a task is brought to a point and held there, a part is killed and started again, the
//! task is let go and has to finish.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tamma_core::history::EntryName;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::State;
use tamma_store::{PlanVerdict, RegisteredProject};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::PERSON;
use super::finding::Findings;
use super::fixture::{AGENTS, CONTENT, CRITERION, Fixture};
use super::hold::{self, Hold};
use super::leftover;
use super::parts::{Parts, said};
use super::point::{Moment, Point, Victim};

/// How long a task may take to come to its point, and to its end.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long what a task has started may take to be gone when the task has ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// How often it is looked whether something has happened that nobody tells us.
const LOOK: Duration = Duration::from_millis(50);

/// How many files a plan changes that no person has to see, and one of medium risk.
const FILES: (usize, usize) = (1, 7);

/// The entries of tasks that nobody disturbed.
#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    alone: Option<Vec<EntryName>>,
    approved: Option<Vec<EntryName>>,
}

/// What came of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) point: Point,
    pub(crate) victim: Victim,
    /// From the kill to the end of the task.
    pub(crate) took: Duration,
    /// What was found; or why the task did not come to its end.
    pub(crate) result: Result<Findings>,
}

/// Where trials are made.
pub(crate) struct Ground {
    pub(crate) parts: Parts,
    agent: PathBuf,
    folder: PathBuf,
    undisturbed: Undisturbed,
    /// How many tasks there have been.
    tasks: u32,
}

/// A task with everything around it.
struct Case {
    task: TaskId,
    fixture: Fixture,
    folder: PathBuf,
    project: String,
    needs_person: bool,
}

impl Ground {
    /// Starts everything, and lets two tasks go their way undisturbed: what they write down is what
    /// every other must write down.
    pub(crate) async fn prepare(tamma: &Path, agent: &Path, folder: &Path) -> Result<Self> {
        let parts = Parts::start(tamma, folder).await?;
        let mut ground = Self {
            parts,
            agent: agent.to_owned(),
            folder: folder.to_owned(),
            undisturbed: Undisturbed::default(),
            tasks: 0,
        };
        for needs_person in [false, true] {
            let case = ground.case(needs_person).await?;
            ground.add(&case, None).await??;
            if needs_person {
                ground.until(case.task, State::AwaitingApproval).await?;
                ground.approve(case.task).await?;
            }
            ground.until(case.task, State::Completed).await?;
            let findings = ground.examine(&case).await?;
            ensure!(findings.is_clean(), "an undisturbed task is not clean: {findings:?}");
            let names = Some(ground.names(case.task).await?);
            let place = &mut ground.undisturbed;
            *(if needs_person { &mut place.approved } else { &mut place.alone }) = names;
        }
        Ok(ground)
    }

    /// Kills a part at a point, and judges what comes of it.
    #[expect(clippy::disallowed_methods, reason = "this measures how long it takes")]
    pub(crate) async fn trial(&mut self, point: Point, victim: Victim) -> Trial {
        let mut killed = Instant::now();
        let mut result = self.attempt(point, victim, &mut killed).await;
        let took = killed.elapsed();
        match (self.parts.fallen().await, &mut result) {
            (Ok(fallen), Ok(findings)) => {
                for name in fallen {
                    findings.lose(format!("{name}, which ended by itself"));
                }
            }
            (Err(error), result @ Ok(_)) => *result = Err(error),
            (_, Err(_)) => {}
        }
        Trial { point, victim, took, result }
    }

    #[expect(clippy::disallowed_methods, reason = "this measures how long it takes")]
    async fn attempt(
        &mut self,
        point: Point,
        victim: Victim,
        killed: &mut Instant,
    ) -> Result<Findings> {
        let other = match point.moment {
            Moment::WaitsForTask => {
                let other = self.case(true).await?;
                self.add(&other, None).await??;
                self.until(other.task, State::AwaitingApproval).await?;
                Some(other)
            }
            _ => None,
        };
        let case = self.case(point.needs_person()).await?;
        let mut hold = None;
        if let Some(name) = point.in_database() {
            hold = Some(Hold::at(&self.parts.postgres, &name).await?);
        } else if point.moment == Moment::Works {
            case.fixture.hold(point.activity)?;
        }
        let adding = self.add(&case, other.as_ref().map(|other| other.task));
        let mut asking = None;
        if point.moment == Moment::Answers {
            self.until(case.task, State::AwaitingApproval).await?;
            asking = Some(self.ask(case.task).await?);
        }
        self.reach(&case, point).await.with_context(|| format!("it does not come to {point}"))?;
        let plan =
            self.parts.store.task(case.task).await.ok().and_then(|it| it.task_loop.ok()?.plan);
        let running = self.leftovers(&case);

        *killed = Instant::now();
        self.parts.kill(victim).await?;
        if victim == Victim::Worker && point.moment == Moment::Keeps {
            // What a dead worker has sent is written when it is let go, which is the harder case for
            // a step, and the easier one for an answer: there, nothing has been sent yet.
            hold::take_back(&self.parts.postgres, "worker").await?;
        }
        self.parts.restart(victim).await?;

        let mut findings = Findings::default();
        if victim == Victim::Worker {
            // Whoever works on after the death of the worker would finish a run that is begun again.
            let gone = async || {
                let left = self.leftovers(&case);
                let lives = |it: &&leftover::Process| {
                    it.is_run_of(&case.task.to_string()) && running.contains(it)
                };
                left.iter().find(lives).map_or(Ok(Some(())), |_| Ok(None))
            };
            if wait(FAREWELL, gone).await.is_err() {
                findings.orphaned.push("a run of the dead worker".to_owned());
            }
        }
        if point.moment == Moment::WaitsForPerson {
            self.is_open(&case, plan.map(|plan| plan.hash.to_string()), &mut findings).await?;
        }
        if let Some(hold) = hold {
            hold.release(&self.parts.postgres).await?;
        } else if point.moment == Moment::Works {
            case.fixture.release(point.activity)?;
        }
        adding.await?.context("the task cannot be added")?;
        if let Some(asking) = asking {
            // Whether the person got an answer is not decided: who got none asks again.
            drop(asking.await?);
        }
        if let Some(other) = &other {
            self.approve(other.task).await?;
            self.until(other.task, State::Completed).await?;
            self.judge(other, &mut findings).await?;
        }
        if case.needs_person {
            self.approve(case.task).await?;
        }
        self.until(case.task, State::Completed).await?;
        self.judge(&case, &mut findings).await?;
        Ok(findings)
    }

    /// Makes everything that a new task is about.
    async fn case(&mut self, needs_person: bool) -> Result<Case> {
        self.tasks += 1;
        let number = self.tasks;
        let folder = self.folder.join(format!("task-{number}"));
        let files = if needs_person { FILES.1 } else { FILES.0 };
        let fixture = Fixture::new(folder.clone(), &self.agent, files)?;
        let id = |kind: u128| {
            Uuid::from_u128(
                0x0192_a000_0000_7000_8000_0000_0000_0000 + (kind << 32) + u128::from(number),
            )
        };
        let repository = fixture.repository.path().display().to_string();
        let project = RegisteredProject {
            id: ProjectId(id(1)),
            name: format!("greeter-{number}"),
            repository,
        };
        self.parts.store.register_project(&project).await?;
        Ok(Case { task: TaskId(id(2)), fixture, folder, project: project.name, needs_person })
    }

    /// Adds a task, as a person would who asks again when nobody answers.
    fn add(&self, case: &Case, after: Option<TaskId>) -> JoinHandle<Result<()>> {
        let mut arguments: Vec<_> =
            ["task", "add", "Greet Cy", "--criterion", CRITERION].map(str::to_owned).into();
        arguments.extend(["--project".to_owned(), case.project.clone()]);
        arguments.extend(["--id".to_owned(), case.task.to_string()]);
        if let Some(after) = after {
            arguments.extend(["--depends-on".to_owned(), after.to_string()]);
        }
        let person = self.parts.person.clone();
        tokio::spawn(wait(PATIENCE, async move || {
            let output = person.types(&arguments).output().await?;
            ensure!(output.status.success(), "{}", said(&output));
            Ok(Some(()))
        }))
    }

    /// Asks a task to take its plan, in the name of a person.
    async fn ask(&self, task: TaskId) -> Result<JoinHandle<Result<std::process::Output>>> {
        let machine = self.parts.store.task(task).await?.task_loop?;
        let plan = machine.plan.context("there is no plan")?.hash.to_string();
        let id = task.to_string();
        let mut command = self.parts.person.types(&["approve", &id, "--plan", &plan]);
        Ok(tokio::spawn(async move { Ok(command.output().await?) }))
    }

    /// Has a person approve a task's plan, who asks again when nobody answers.
    async fn approve(&self, task: TaskId) -> Result<()> {
        wait(PATIENCE, async || {
            if !self.parts.store.decisions(task).await?.is_empty() {
                return Ok(Some(()));
            }
            let output = self.ask(task).await?.await??;
            if !output.status.success() {
                bail!("{}", said(&output));
            }
            Ok(Some(()))
        })
        .await
        .context("nobody can approve it")
    }

    /// Waits until a task is at a point.
    async fn reach(&self, case: &Case, point: Point) -> Result<()> {
        let Parts { postgres, store, .. } = &self.parts;
        wait(PATIENCE, async || {
            let there = match point.moment {
                Moment::Writes(State::Pending) => {
                    let both = ["server", "worker"].map(str::to_owned);
                    return Ok((hold::held(postgres).await? == both.into()).then_some(()));
                }
                Moment::Writes(_) | Moment::Keeps | Moment::Answers => {
                    hold::held(postgres).await?.contains("worker")
                }
                Moment::Works => case.fixture.begun(point.activity) > 0,
                Moment::WaitsForTask => {
                    let history = self.parts.workflow("show", case.task).await?;
                    is_in(&history, "EVENT_TYPE_TIMER_STARTED")
                }
                Moment::WaitsForPerson => true,
            };
            let state = store.task(case.task).await?.task_loop?.state;
            Ok((there && state == point.state).then_some(()))
        })
        .await
    }

    /// Waits until a task is in a state. A task that has ended otherwise never will be.
    async fn until(&self, task: TaskId, state: State) -> Result<()> {
        let mut last = None;
        let arrived = wait(PATIENCE, async || {
            let machine = self.parts.store.task(task).await?.task_loop?;
            last = Some(machine.state);
            if machine.state == state {
                return Ok(Some(Ok(())));
            }
            let stuck = machine.state.is_terminal() || machine.state == State::HumanEscalation;
            Ok(stuck.then(|| Err(anyhow::anyhow!("task {task} is {}", machine.state))))
        })
        .await;
        match arrived {
            Ok(arrived) => arrived,
            Err(error) => {
                let last = last.map_or("nowhere".to_owned(), |state: State| state.to_string());
                Err(error.context(format!("task {task} is {last} and not {state}")))
            }
        }
    }

    /// Judges whether a task still waits for its person, with the same plan, and nothing has begun.
    async fn is_open(
        &self,
        case: &Case,
        plan: Option<String>,
        findings: &mut Findings,
    ) -> Result<()> {
        let id = case.task.to_string();
        let inbox = wait(PATIENCE, async || {
            let output = self.parts.person.types(&["inbox"]).output().await?;
            ensure!(output.status.success(), "{}", said(&output));
            Ok(Some(said(&output)))
        })
        .await?;
        let machine = self.parts.store.task(case.task).await?.task_loop?;
        let same = plan.is_some() && machine.plan.map(|plan| plan.hash.to_string()) == plan;
        if machine.state != State::AwaitingApproval || !inbox.contains(&id) || !same {
            findings.lose("the question to a person");
        }
        if case.fixture.begun(tamma_flow::activities::names::IMPLEMENT) > 0 {
            findings.double("a run before the approval");
        }
        Ok(())
    }

    async fn judge(&self, case: &Case, findings: &mut Findings) -> Result<()> {
        let found = self.examine(case).await?;
        findings.lost.extend(found.lost);
        findings.doubled.extend(found.doubled);
        findings.orphaned.extend(found.orphaned);
        findings.notes.extend(found.notes);
        Ok(())
    }

    /// Examines a task that is completed, from outside.
    async fn examine(&self, case: &Case) -> Result<Findings> {
        let mut findings = Findings::default();
        let entries: Vec<_> = self.parts.store.history(case.task, 0, 10_000).await?;
        let entries: Vec<_> = entries.into_iter().map(|line| line.entry).collect();
        let Undisturbed { alone, approved } = &self.undisturbed;
        let undisturbed = if case.needs_person { approved } else { alone };
        findings.log(&entries, undisturbed.as_deref());
        self.examine_machine(case, entries.len(), &mut findings).await?;
        self.examine_approval(case, &mut findings).await?;
        examine_branch(case, &mut findings)?;
        for job in AGENTS {
            findings.once(&format!("finished run of `{job}`"), case.fixture.ended(job));
            let begun = case.fixture.begun(job);
            if begun > 1 {
                findings.note(format!("rerun of `{job}`: begun {begun} times"));
            }
        }
        let gone = async || Ok(self.leftovers(case).is_empty().then_some(()));
        if wait(FAREWELL, gone).await.is_err() {
            let left = self.leftovers(case);
            findings.orphaned.extend(left.into_iter().map(|it| format!("{} {}", it.pid, it.line)));
        }
        Ok(findings)
    }

    /// Compares the stored machine with its log, and with where its workflow has ended.
    async fn examine_machine(
        &self,
        case: &Case,
        entries: usize,
        findings: &mut Findings,
    ) -> Result<()> {
        let stored = self.parts.store.task(case.task).await?;
        let machine = stored.task_loop?;
        if machine.entry_count != entries as u64 {
            findings.lose(format!("entries: {entries} of {}", machine.entry_count));
        }
        // The row is written before the workflow ends.
        let ended = async || self.parts.workflow("result", case.task).await.map(Some);
        let Ok(ended) = wait(PATIENCE, ended).await else {
            findings.lose("the end of the workflow");
            return Ok(());
        };
        let standing = &ended["result"];
        let wanted = serde_json::json!({
            "state": machine.state,
            "paused": machine.paused.is_some(),
            "step": stored.step,
            "plan": machine.plan.map(|plan| plan.hash),
        });
        if *standing != wanted {
            findings.lose(format!("a step: the workflow is at {standing}, the row at {wanted}"));
        }
        Ok(())
    }

    async fn examine_approval(&self, case: &Case, findings: &mut Findings) -> Result<()> {
        let decisions = self.parts.store.decisions(case.task).await?;
        findings.once("decision about the plan", decisions.len());
        let wanted = if case.needs_person {
            (PlanVerdict::Approve, Some(PERSON.to_owned()))
        } else {
            (PlanVerdict::Auto, None)
        };
        for decision in decisions {
            if (decision.verdict, &decision.by) != (wanted.0, &wanted.1) {
                let by = decision.by.unwrap_or_default();
                findings.lose(format!("who decided: {} by `{by}`", decision.verdict));
            }
        }
        Ok(())
    }

    /// What still runs for a task.
    fn leftovers(&self, case: &Case) -> Vec<leftover::Process> {
        let roles = [self.parts.server.pid(), self.parts.worker.pid()];
        let known: BTreeSet<_> = roles.into_iter().flatten().chain([std::process::id()]).collect();
        leftover::find(&case.task.to_string(), &case.folder, &known)
    }

    async fn names(&self, task: TaskId) -> Result<Vec<EntryName>> {
        let lines = self.parts.store.history(task, 0, 10_000).await?;
        Ok(lines.into_iter().map(|line| line.entry.name).collect())
    }
}

/// Judges the branch that a task has left: one commit, with what was planned and nothing else.
fn examine_branch(case: &Case, findings: &mut Findings) -> Result<()> {
    let repository = &case.fixture.repository;
    let branch = format!("tamma/{}", case.task);
    let range = format!("main..{branch}");
    let Ok(commits) = repository.git(&["rev-list", &range]) else {
        findings.lose("the branch");
        return Ok(());
    };
    findings.once("commit", commits.lines().count());
    let changed = repository.git(&["diff", "--name-only", "main", &branch])?;
    let changed: BTreeSet<_> = changed.lines().map(str::to_owned).collect();
    if changed != case.fixture.paths.iter().cloned().collect() {
        findings.lose(format!("the files of the change: {changed:?}"));
    }
    for path in &case.fixture.paths {
        let content = repository.git(&["show", &format!("{branch}:{path}")]).unwrap_or_default();
        if content != CONTENT.trim() {
            findings.lose(format!("what `{path}` should have"));
        }
    }
    Ok(())
}

/// Whether a workflow's history has an event of a type.
fn is_in(history: &Value, kind: &str) -> bool {
    let events = history["events"].as_array();
    events.is_some_and(|events| events.iter().any(|event| event["eventType"] == kind))
}

/// Waits until there is something that tells nobody when it comes. An error on the way is told only
/// when the time is over: parts are being started again.
async fn wait<T>(limit: Duration, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let mut last = None;
    let looking = async {
        loop {
            match look().await {
                Ok(Some(found)) => return found,
                Ok(None) => last = None,
                Err(error) => last = Some(error),
            }
            sleep(LOOK).await;
        }
    };
    let found = timeout(limit, looking).await;
    match (found, last) {
        (Ok(found), _) => Ok(found),
        (Err(_), Some(error)) => Err(error),
        (Err(_), None) => bail!("it has not come within {} seconds", limit.as_secs()),
    }
}
