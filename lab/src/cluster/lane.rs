//! Lanes: each holds a task in flight, from its first job to its end, and then the next task.
//!
//! Every job of a task waits at a hold, so that a task moves on by one job between two strikes.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use tamma_core::task_loop::State;
use tamma_flow::activities::names;
use tamma_testkit::Cluster;
use tamma_testkit::sample::task_id;
use tamma_testkit::tamma_process::TammaCli;
use tamma_testkit::wait::wait_until;

use super::strike::Strike;
use crate::chaos::examination::{RunRule, TaskCase, approve_arguments};
use crate::chaos::fixture::Fixture;
use crate::support::components::output_text;

/// Time limit of requests, which are repeated until a server responds.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Number of files of a plan that is approved automatically, and of a medium-risk plan.
const FILES: (usize, usize) = (1, 7);

/// Configuration of the projects: a failed run starts again soon, and the model has an invented price.
const SETTINGS: &str = "scrum_master: { task_loop: { backoff_seconds: 1 } }\n\
                        prices:\n  scripted: { input: 3.0, cached: 0.3, output: 15.0 }\n";

/// Point at which a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Plan,
    Approval,
    Implement,
    Test,
    Review,
    Deliver,
    /// The task does not wait any more, and completes.
    End,
}

impl Stage {
    /// Stages of a task with approval by a person, in order.
    const ALL: [Self; 7] = [
        Self::Plan,
        Self::Approval,
        Self::Implement,
        Self::Test,
        Self::Review,
        Self::Deliver,
        Self::End,
    ];

    /// Returns the job that is held.
    fn job(self) -> Option<&'static str> {
        match self {
            Self::Plan => Some(names::PLAN),
            Self::Implement => Some(names::IMPLEMENT),
            Self::Test => Some(names::TEST),
            Self::Review => Some(names::REVIEW),
            Self::Deliver => Some(names::DELIVER),
            Self::Approval | Self::End => None,
        }
    }

    /// Returns the next stage.
    fn next(self, needs_person: bool) -> Self {
        let later = Self::ALL.into_iter().skip_while(|stage| *stage != self).skip(1);
        let mut later = later.filter(|stage| needs_person || *stage != Self::Approval);
        later.next().unwrap_or(Self::End)
    }
}

/// Task in flight.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) case: TaskCase,
    pub(crate) stage: Stage,
    /// What may have happened more than once to the task.
    pub(crate) rule: RunRule,
}

impl Lane {
    /// Creates a task with a number and adds it. It waits at its first job, or after `passed` jobs. If
    /// there is a model at `upstream` on its host, its agent calls it.
    pub(crate) async fn add(
        cluster: &Cluster,
        upstream: Option<&str>,
        number: u32,
        needs_person: bool,
        passed: usize,
    ) -> Result<Self> {
        let files = if needs_person { FILES.1 } else { FILES.0 };
        let fixture = Fixture::configured(cluster, number, files, SETTINGS, upstream).await?;
        let case = TaskCase { task: task_id(number), fixture, needs_person };
        let mut stage = Stage::Plan;
        for _ in 0..passed {
            stage = stage.next(needs_person);
        }
        let held = Stage::ALL.into_iter().skip_while(|it| *it != stage).filter_map(Stage::job);
        for job in held {
            case.fixture.hold(job)?;
        }
        send(cluster, &case.add_arguments()).await?;
        Ok(Self { case, stage, rule: RunRule::Once })
    }

    /// Notes that the task was in flight during a strike.
    pub(crate) fn note(&mut self, strike: Strike) {
        self.rule = self.rule.max(strike.run_rule());
    }

    /// Lets the task move on to its next stage.
    pub(crate) async fn release(&mut self, cluster: &Cluster) -> Result<()> {
        if let Some(job) = self.stage.job() {
            self.case.fixture.release(job)?;
        } else if self.stage == Stage::Approval {
            self.approve(cluster).await?;
        }
        self.stage = self.stage.next(self.case.needs_person);
        Ok(())
    }

    /// Approves the plan. A request whose response was lost is not repeated.
    pub(crate) async fn approve(&self, cluster: &Cluster) -> Result<()> {
        let task = self.case.task;
        wait_until("the approval", REQUEST_TIMEOUT, async || {
            if !cluster.store.decisions(task).await?.is_empty() {
                return Ok(Some(()));
            }
            let arguments = approve_arguments(cluster, task).await?;
            for person in cluster.clis() {
                if request(&person, &arguments).await.is_ok() {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Returns `true` if the task waits at the job of its stage.
    pub(crate) fn is_at_job(&self) -> bool {
        self.stage.job().is_some_and(|job| self.case.fixture.started(job) > 0)
    }

    /// Returns `true` if a task in this state waits at its stage, or is completed after the last one, and
    /// `None` if it never will. Whether it waits at a job does not show in its state.
    pub(crate) fn is_settled_in(&self, state: State) -> Option<bool> {
        let wanted = match self.stage {
            Stage::Approval => State::AwaitingApproval,
            _ => State::Completed,
        };
        if state == wanted && self.stage.job().is_none() {
            return Some(true);
        }
        if state.is_terminal() || state == State::HumanEscalation { None } else { Some(false) }
    }

    /// Returns `true` if the task waits at its stage, or is completed after the last one. Fails if it
    /// never will.
    pub(crate) async fn is_settled(&self, cluster: &Cluster) -> Result<Result<bool>> {
        if self.is_at_job() {
            return Ok(Ok(true));
        }
        let state = cluster.store.task(self.case.task).await?.task_loop?.state;
        match self.is_settled_in(state) {
            Some(is_settled) => Ok(Ok(is_settled)),
            None => Ok(Err(anyhow!("{}", self.describe(cluster).await?))),
        }
    }

    /// Returns where the task stands, with the last reason in its history.
    pub(crate) async fn describe(&self, cluster: &Cluster) -> Result<String> {
        let Self { case: TaskCase { task, .. }, stage, .. } = self;
        let entries = cluster.history(*task).await?;
        let state = entries.last().map_or(State::Pending, |entry| entry.to);
        let reason = entries.iter().rev().find_map(|entry| entry.reason.as_ref());
        let reason = reason.map_or("no reason".to_owned(), ToString::to_string);
        Ok(format!("task {task} is {state} before {stage:?} ({reason})"))
    }

    /// Returns `true` if a person has approved the plan.
    pub(crate) fn is_approved(&self) -> bool {
        self.case.needs_person && !matches!(self.stage, Stage::Plan | Stage::Approval)
    }

    /// Returns `true` if the task waits for a person, and an agent implements it all the same.
    pub(crate) fn runs_unapproved(&self) -> bool {
        self.stage == Stage::Approval && self.case.fixture.started(names::IMPLEMENT) > 0
    }
}

/// Sends a request to one server after another until one has accepted it.
async fn send(cluster: &Cluster, arguments: &[String]) -> Result<()> {
    let people = cluster.clis();
    wait_until("the server", REQUEST_TIMEOUT, async || {
        let mut last = None;
        for person in &people {
            match request(person, arguments).await {
                Ok(()) => return Ok(Some(())),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    })
    .await
}

async fn request(person: &TammaCli, arguments: &[String]) -> Result<()> {
    let output = person.command(arguments).output().await?;
    ensure!(output.status.success(), "{}", output_text(&output));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_task_that_needs_a_person_waits_for_approval() {
        let stages = |needs_person| {
            let mut stages = vec![Stage::Plan];
            while let Some(last) = stages.last().copied().filter(|stage| *stage != Stage::End) {
                stages.push(last.next(needs_person));
            }
            stages
        };
        assert_eq!(stages(true), Stage::ALL);
        let alone: Vec<_> = Stage::ALL.into_iter().filter(|it| *it != Stage::Approval).collect();
        assert_eq!(stages(false), alone);
        assert_eq!(Stage::End.next(false), Stage::End);
    }
}
