//! The report of a task: from what is written down, at any time.

use std::collections::BTreeMap;

use tamma_core::budget::Spend;
use tamma_core::ids::TaskId;
use tamma_core::log::Entry;
use tamma_core::report::{self, Run, Sources};
use tamma_store::RunEnd;

use super::{App, Error};
use crate::shape::TaskReport;

/// How many entries are read at once.
const BATCH: u32 = 1000;

impl App {
    /// The report of a task, or of one of its iterations.
    pub(crate) async fn report(
        &self,
        id: TaskId,
        iteration: Option<u16>,
    ) -> Result<TaskReport, Error> {
        let whole = self.store.task(id).await?;
        let title = whole.task.title.clone();
        let machine = whole.machine.map_err(tamma_store::Error::from)?;
        let log = self.whole_log(id).await?;
        let mut texts = BTreeMap::new();
        for kept in report::wanted(&log) {
            let text = self.store.kept(&kept).await?;
            texts.insert(kept, text);
        }
        let checks = self.store.checks(id).await?;
        let checks: Vec<_> =
            checks.into_iter().map(|check| (check.iteration, check.record)).collect();
        let runs: Vec<_> = self.store.runs(id).await?.into_iter().map(known).collect();
        let spend: Spend = machine.spend;
        let sources = Sources {
            task: id,
            title: &title,
            state: machine.state,
            spend,
            log: &log,
            checks: &checks,
            runs: &runs,
            texts: &texts,
        };
        let report = report::of(&sources);
        let report = match iteration {
            None => report,
            Some(number) => report.only(number).ok_or_else(|| Error::NotFound {
                what: "iteration of this task with the number",
                key: number.to_string(),
            })?,
        };
        Ok(TaskReport { report })
    }

    pub(super) async fn whole_log(&self, id: TaskId) -> Result<Vec<Entry>, Error> {
        let mut log: Vec<Entry> = Vec::new();
        loop {
            let after = log.last().map_or(0, |entry| entry.sequence);
            let lines = self.store.history(id, after, BATCH).await?;
            let last = lines.len() < BATCH as usize;
            log.extend(lines.into_iter().map(|line| line.entry));
            if last {
                return Ok(log);
            }
        }
    }
}

fn known(run: tamma_store::Run) -> Run {
    Run {
        ticket: run.number.ticket,
        mode: run.mode,
        finished: run.end == Some(RunEnd::Finished),
        tier: run.tier,
        usage: run.usage,
    }
}
