//! Report of a task, computed from its history and stored results.

use std::collections::BTreeMap;

use tamma_core::budget::Spend;
use tamma_core::history::HistoryEntry;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::learning::lesson_title;
use tamma_core::report::{self, LessonReport, ReportSources, RunSummary};
use tamma_core::rules::Rules;
use tamma_core::run_result::RunResult;
use tamma_flow::activities::JobResult;
use tamma_store::{KnowledgeFilter, RunEnd};

use super::{App, Error};
use crate::dto::TaskReportResponse;

/// Number of history entries per query.
const BATCH_SIZE: u32 = 1000;

impl App {
    /// Builds the report of a task, or of one iteration.
    pub(crate) async fn report(
        &self,
        id: TaskId,
        iteration: Option<u16>,
    ) -> Result<TaskReportResponse, Error> {
        let stored = self.store.task(id).await?;
        let title = stored.task.title.clone();
        let task_loop = stored.task_loop.map_err(tamma_store::Error::from)?;
        let log = self.full_history(id).await?;
        let mut texts = BTreeMap::new();
        for reference in report::referenced_texts(&log) {
            let text = self.store.text(&reference).await?;
            texts.insert(reference, text);
        }
        let checks = self.store.checks(id).await?;
        let checks: Vec<_> =
            checks.into_iter().map(|check| (check.iteration, check.record)).collect();
        let results: Vec<(u32, JobResult)> = self.store.job_results(id).await?;
        let claims: BTreeMap<u32, RunResult> = results
            .into_iter()
            .filter_map(|(job_number, result)| Some((job_number, result.claims()?.clone())))
            .collect();
        let runs = self.store.runs(id).await?;
        let runs: Vec<_> = runs.into_iter().map(|run| report_run(run, &claims)).collect();
        let spend: Spend = task_loop.spend;
        // Before the task is prepared, it has no iterations to count.
        let stored_rules = match task_loop.pin {
            Some(pin) => self.store.rules(pin.policy).await?,
            None => Rules::default(),
        };
        let lessons = self.task_lessons(task_loop.project, id).await?;
        let sources = ReportSources {
            task: id,
            title: &title,
            state: task_loop.state,
            spend,
            history: &log,
            checks: &checks,
            runs: &runs,
            texts: &texts,
            max_iterations: task_loop.max_iterations(&stored_rules),
            lessons: &lessons,
        };
        let report = report::build(&sources);
        let report = match iteration {
            None => report,
            Some(number) => report
                .for_iteration(number)
                .ok_or_else(|| Error::NotFound { what: "attempt", key: number.to_string() })?,
        };
        Ok(TaskReportResponse { report })
    }

    /// Returns the knowledge entries whose evidence comes from a task.
    async fn task_lessons(
        &self,
        project: ProjectId,
        task: TaskId,
    ) -> Result<Vec<LessonReport>, Error> {
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let id = task.to_string();
        let stored = self.store.list_knowledge(&filter).await?;
        let of_task = stored.into_iter().map(|stored| stored.entry).filter(|entry| {
            entry.evidence.iter().any(|reference| reference.as_str().contains(&id))
        });
        let lessons = of_task.map(|entry| LessonReport {
            title: lesson_title(&entry),
            occasion: entry.origin.map(|origin| origin.occasion),
            kind: entry.kind,
            status: entry.status,
        });
        Ok(lessons.collect())
    }

    pub(super) async fn full_history(&self, id: TaskId) -> Result<Vec<HistoryEntry>, Error> {
        let mut log: Vec<HistoryEntry> = Vec::new();
        loop {
            let after = log.last().map_or(0, |entry| entry.sequence);
            let lines = self.store.history(id, after, BATCH_SIZE).await?;
            let last = lines.len() < BATCH_SIZE as usize;
            log.extend(lines.into_iter().map(|line| line.entry));
            if last {
                return Ok(log);
            }
        }
    }
}

fn report_run(run: tamma_store::RunRecord, claims: &BTreeMap<u32, RunResult>) -> RunSummary {
    RunSummary {
        job_number: run.number.job_number,
        mode: run.mode,
        agent: run.agent,
        model: run.model,
        finished: run.end == Some(RunEnd::Finished),
        tier: run.tier,
        usage: run.usage,
        // A job has one result, which its last attempt has submitted.
        claims: claims.get(&run.number.job_number).cloned(),
    }
}
