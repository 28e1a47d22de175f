//! Looking at runs: how they stand, what they say and do, and their transcripts.

use std::io;

use futures_util::Stream;
use tamma_core::ids::TaskId;
use tamma_store::{LineKind, LinePlace, RunNumber, Wanted};

use super::{App, Error};
use crate::shape::{Present, Run, RunLine, RunLines, Runs};

/// The lines that say what an agent does at the moment.
const DOING: [LineKind; 6] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Refused,
];

/// What stands for the last line that is there.
const LATEST: &str = "end";

impl App {
    /// The runs of a task, in their order.
    pub(crate) async fn runs(&self, id: TaskId) -> Result<Runs, Error> {
        let runs = self.store.runs(id).await?;
        if runs.is_empty() {
            // None yet, or no such task: that is not the same.
            self.store.position(id).await?;
        }
        Ok(Runs { runs: runs.into_iter().map(Run::from).collect() })
    }

    /// The run of a task that is under way, if one is.
    pub(crate) async fn present(&self, id: TaskId) -> Result<Option<Present>, Error> {
        let latest = self.store.latest_run(id).await?;
        let Some(run) = latest.filter(|run| run.ended_at.is_none()) else { return Ok(None) };
        let doing = self.store.last_line(id, run.number, &DOING).await?.map(RunLine::from);
        Ok(Some(Present { run: run.into(), doing }))
    }

    /// A place among the lines of a task, as clients carry it.
    pub(crate) async fn place(&self, id: TaskId, text: Option<&str>) -> Result<LinePlace, Error> {
        match text {
            None => Ok(LinePlace::START),
            Some(LATEST) => {
                let run = self.store.latest_run(id).await?;
                let place =
                    |run: tamma_store::Run| LinePlace { run: run.number, sequence: run.lines };
                Ok(run.map_or(LinePlace::START, place))
            }
            Some(text) => text.parse().map_err(|_| {
                let text: String = text.chars().take(40).collect();
                Error::invalid(
                    format!("`{text}` is no place among the lines of a task."),
                    "Pass the `place` of the last line that is known, or `end` for what comes \
                     from now on.",
                )
            }),
        }
    }

    /// Lines of a task after a place.
    pub(crate) async fn lines(
        &self,
        id: TaskId,
        wanted: &Wanted,
        after: LinePlace,
        limit: u32,
    ) -> Result<RunLines, Error> {
        let lines = self.store.lines(id, wanted, after, limit).await?;
        if lines.is_empty() {
            self.store.position(id).await?;
        }
        let full = lines.len() as u64 >= u64::from(limit);
        let next = lines.last().filter(|_| full).map(|line| line.place.to_string());
        Ok(RunLines { lines: lines.into_iter().map(RunLine::from).collect(), next })
    }

    /// The transcript of a run, piece by piece: of the latest attempt, where none is named.
    pub(crate) async fn transcript(
        &self,
        id: TaskId,
        said: &str,
    ) -> Result<(u64, impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>), Error> {
        let (ticket, attempt) = which(said)?;
        let runs = self.store.runs(id).await?;
        let meant = |number: RunNumber| {
            number.ticket == ticket && attempt.is_none_or(|attempt| attempt == number.attempt)
        };
        let run = runs.into_iter().rfind(|run| meant(run.number));
        let Some(run) = run else {
            self.store.position(id).await?;
            return Err(Error::NotFound { what: "run", key: said.to_owned() });
        };
        let Some(key) = run.transcript else {
            let key = run.number.to_string();
            return Err(Error::NotFound { what: "transcript yet of run", key });
        };
        Ok(self.objects.read(&key).await?)
    }
}

/// The run that is meant: a ticket, and an attempt if one is named.
pub(crate) fn which(said: &str) -> Result<(u32, Option<u32>), Error> {
    let number: RunNumber = said.parse().map_err(|error: tamma_store::NoRunNumber| {
        Error::invalid(format!("{error}."), "`GET /tasks/{id}/runs` tells the numbers.")
    })?;
    Ok((number.ticket, said.contains('.').then_some(number.attempt)))
}
