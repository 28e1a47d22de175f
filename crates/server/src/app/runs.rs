//! Queries for runs, their log lines and their transcripts.

use std::io;

use futures_util::Stream;
use tamma_core::ids::TaskId;
use tamma_store::{LineFilter, LineKind, LinePosition, RunNumber};

use super::{App, Error};
use crate::dto::{CurrentRun, RunDetail, RunLine, RunLines, RunList};

/// Length of the text of a UUID.
const UUID_LENGTH: usize = 36;

/// Kinds of lines that show the agent's current activity.
const ACTIVITY_KINDS: [LineKind; 7] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Document,
    LineKind::Refused,
];

/// Cursor value for the end of the log.
const LATEST: &str = "end";

impl App {
    /// Lists the runs of a task, oldest first.
    pub(crate) async fn runs(&self, id: TaskId) -> Result<RunList, Error> {
        // A task that the caller cannot read is missing.
        self.store.task_project(id).await?;
        let runs = self.store.runs(id).await?;
        Ok(RunList { runs: runs.into_iter().map(RunDetail::from).collect() })
    }

    /// Returns the current run of a task.
    pub(crate) async fn current_run(&self, id: TaskId) -> Result<Option<CurrentRun>, Error> {
        let latest = self.store.latest_run(id).await?;
        let Some(run) = latest.filter(|run| run.ended_at.is_none()) else { return Ok(None) };
        let current_line = match run.running.iter().max_by_key(|call| call.since) {
            // A call has no line until it ends.
            Some(call) => Some(RunLine {
                position: LinePosition { run: run.number, sequence: run.lines }.to_string(),
                run: run.number.to_string(),
                at: call.since,
                kind: LineKind::Tool,
                text: call.title.clone(),
                data: None,
            }),
            None => self.store.last_line(id, run.number, &ACTIVITY_KINDS).await?.map(RunLine::from),
        };
        Ok(Some(CurrentRun { run: run.into(), current_line }))
    }

    /// Returns one run of a task.
    pub(crate) async fn run(&self, id: TaskId, number: RunNumber) -> Result<RunDetail, Error> {
        let mut runs = self.runs(id).await?.runs.into_iter();
        let number = number.to_string();
        let run = runs.find(|run| run.run == number);
        run.ok_or_else(|| Error::NotFound { what: "run", key: number })
    }

    /// Resolves a client's position in the log of a task.
    pub(crate) async fn resolve_line_position(
        &self,
        id: TaskId,
        text: Option<&str>,
    ) -> Result<LinePosition, Error> {
        match text {
            None => Ok(LinePosition::START),
            Some(LATEST) => {
                let run = self.store.latest_run(id).await?;
                let position = |run: tamma_store::RunRecord| LinePosition {
                    run: run.number,
                    sequence: run.lines,
                };
                Ok(run.map_or(LinePosition::START, position))
            }
            Some(text) => parse_position(text),
        }
    }

    /// Returns log lines of a task after a position.
    pub(crate) async fn run_lines(
        &self,
        id: TaskId,
        filter: &LineFilter,
        after: LinePosition,
        limit: u32,
    ) -> Result<RunLines, Error> {
        self.store.task_project(id).await?;
        let lines = self.store.lines(id, filter, after, limit).await?;
        let full = lines.len() as u64 >= u64::from(limit);
        let next = lines.last().filter(|_| full).map(|line| line.position.to_string());
        Ok(RunLines { lines: lines.into_iter().map(RunLine::from).collect(), next, previous: None })
    }

    /// Returns the last log lines of a task before a position.
    pub(crate) async fn run_lines_before(
        &self,
        id: TaskId,
        filter: &LineFilter,
        before: LinePosition,
        limit: u32,
    ) -> Result<RunLines, Error> {
        self.store.task_project(id).await?;
        // One more, to know whether there is an earlier page.
        let mut lines =
            self.store.lines_before(id, filter, before, limit.saturating_add(1)).await?;
        let has_earlier = lines.len() as u64 > u64::from(limit);
        if has_earlier {
            lines.remove(0);
        }
        let first = lines.first().filter(|_| has_earlier);
        let previous = first.map(|line| line.position.to_string());
        Ok(RunLines { lines: lines.into_iter().map(RunLine::from).collect(), next: None, previous })
    }

    /// Parses a client's position before which lines are read: a position, or `end`.
    pub(crate) fn parse_end_position(text: &str) -> Result<LinePosition, Error> {
        if text == LATEST { Ok(LinePosition::END) } else { parse_position(text) }
    }

    /// Opens the transcript of a run. Without an attempt number, the latest attempt is used.
    pub(crate) async fn transcript(
        &self,
        id: TaskId,
        text: &str,
    ) -> Result<(u64, impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>), Error> {
        let (job_number, attempt) = parse_run_number(text)?;
        self.store.task_project(id).await?;
        let runs = self.store.runs(id).await?;
        let is_match = |number: RunNumber| {
            number.job_number == job_number
                && attempt.is_none_or(|attempt| attempt == number.attempt)
        };
        let run = runs.into_iter().rfind(|run| is_match(run.number));
        let run = run.ok_or_else(|| Error::NotFound { what: "run", key: text.to_owned() })?;
        let Some(key) = run.transcript else {
            let key = run.number.to_string();
            return Err(Error::NotFound { what: "transcript for run", key });
        };
        Ok(self.objects.read(&key).await?)
    }
}

fn parse_position(text: &str) -> Result<LinePosition, Error> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(40).collect();
        Error::invalid(
            format!("`{text}` is not a position in the log of a task."),
            "Pass the `place` of a line you have, or `end` for the end of the log.",
        )
    })
}

/// Parses the ID of a run in a page's address: the task's ID, a hyphen and the run number.
pub(crate) fn parse_run_id(text: &str) -> Option<(TaskId, RunNumber)> {
    let (task, run) = text.split_at_checked(UUID_LENGTH)?;
    Some((TaskId(task.parse().ok()?), run.strip_prefix('-')?.parse().ok()?))
}

/// Parses a run number: a job number, and optionally an attempt.
pub(crate) fn parse_run_number(text: &str) -> Result<(u32, Option<u32>), Error> {
    let number: RunNumber = text.parse().map_err(|error: tamma_store::InvalidRunNumber| {
        Error::invalid(format!("{error}."), "`GET /tasks/{id}/runs` lists the run numbers.")
    })?;
    Ok((number.job_number, text.contains('.').then_some(number.attempt)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_run_has_its_task_and_its_number() {
        let task = "01a1ddd5-30d2-75dd-a58d-c015c8605aad";
        let id = TaskId(task.parse().expect("an ID"));
        for (run, number) in [("4", (4, 1)), ("4.2", (4, 2))] {
            let (job_number, attempt) = number;
            let expected = Some((id, RunNumber { job_number, attempt }));
            assert_eq!(parse_run_id(&format!("{task}-{run}")), expected);
        }
        for wrong in ["", task, "4", &format!("{task}-x"), &format!("{task}4"), &"é".repeat(40)] {
            assert_eq!(parse_run_id(wrong), None, "{wrong}");
        }
    }
}
