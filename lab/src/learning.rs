//! Runs 60 tasks with all outcomes through the real loop, and counts their lessons.
//!
//! At least 90% must leave a lesson with valid evidence, with or without a model. In addition, 60
//! lessons with 40 near duplicates must end as 20 to 22 entries.

mod runner;
mod tasks;

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::knowledge::{EntryKind, EntrySeverity};
use tamma_core::learning::{Lesson, LessonEvidence, LessonTrigger};
use tamma_testkit::Cluster;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::runner::LessonCount;
use self::tasks::{LearnBehaviour, OutcomeCase};
use crate::support::programs;
use crate::support::verdict::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of tasks
    #[arg(long, default_value_t = 60)]
    tasks: u32,
    /// Number of concurrent tasks
    #[arg(long, default_value_t = 4)]
    at_once: u16,
}

/// Lesson in several wordings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LessonWordings {
    kind: EntryKind,
    /// Texts with the same meaning.
    words: Vec<String>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    globs: Vec<String>,
}

impl LessonWordings {
    /// Returns one wording as the lesson of a task.
    fn lesson(
        &self,
        project: ProjectId,
        wording: &str,
        task: TaskId,
        number: usize,
    ) -> Result<Lesson> {
        let evidence = LessonEvidence::Event(task, u64::try_from(number)? + 1);
        Ok(Lesson {
            project,
            trigger: LessonTrigger::Improvement,
            kind: self.kind,
            title: String::new(),
            text: wording.to_owned(),
            keywords: self.keywords.clone(),
            globs: self.globs.clone(),
            actions: Vec::new(),
            pattern: None,
            severity: EntrySeverity::Medium,
            evidence: vec![evidence.reference().context("the evidence reference is too long")?],
            note: String::new(),
        })
    }
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let start = Instant::now();
    let folder = std::env::temp_dir().join(format!("tamma-learning-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server()
        .workers(1)
        .worker_args(&["--slots", &arguments.at_once.to_string()])
        .start()
        .await?;
    let cases: Vec<OutcomeCase> = OutcomeCase::iter().collect();
    let count = if quick { u32::try_from(cases.len())? } else { arguments.tasks };
    let permits = Semaphore::new(arguments.at_once.into());
    let tasks = (1..=count).zip(cases.iter().copied().cycle());
    let running = tasks.map(async |(number, case)| {
        let round = (number - 1) / u32::try_from(cases.len())?;
        let behaviour = LearnBehaviour::of(round + number);
        let _permit = permits.acquire().await?;
        let lessons = runner::run(&cluster, number, case, behaviour).await;
        Ok::<_, anyhow::Error>((case, behaviour, lessons))
    });
    let results = futures_util::future::join_all(running).await;
    let mut out = std::io::stdout();
    let (mut taught, mut failures) = (0, 0);
    let mut by_case: BTreeMap<String, (u32, u32, usize)> = BTreeMap::new();
    for (number, result) in (1..).zip(results) {
        let (case, behaviour, lessons) = result?;
        let line = by_case.entry(case.to_string()).or_default();
        line.0 += 1;
        match lessons {
            Ok(LessonCount { lessons, evidence }) if lessons > 0 && evidence > 0 => {
                line.1 += 1;
                line.2 += evidence;
                taught += 1;
            }
            Ok(_) => writeln!(out, "task {number:>2} {case} ({behaviour:?}) left no lesson")?,
            Err(error) => {
                failures += 1;
                writeln!(out, "task {number:>2} {case} ({behaviour:?}): FAILED: {error:#}")?;
            }
        }
    }
    writeln!(out, "\n{:<22} {:>5} {:>7} {:>8}", "", "tasks", "lessons", "evidence")?;
    for (case, (tasks, taught, evidence)) in &by_case {
        writeln!(out, "{case:<22} {tasks:>5} {taught:>7} {evidence:>8}")?;
    }
    let (wordings, entries) =
        runner::propose_all(&cluster, &programs::input("learning/lessons.json")).await?;
    cluster.stop().await?;
    let share = taught * 100 / count.max(1);
    let figures = format!(
        "{taught} of {count} tasks left a lesson with evidence that resolves ({share}%), {wordings} \
         lessons with 40 near duplicates are {entries} entries, in {} s",
        start.elapsed().as_secs()
    );
    // Fewer than 20 entries would mean that different lessons were merged.
    let passed = failures == 0 && share >= 90 && (20..=22).contains(&entries);
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "logs: {}", folder.display())?;
    }
    Ok(Verdict::new(passed, figures))
}
