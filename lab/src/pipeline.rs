//! Takes stories through pipelines, kills each component in each phase, and checks that nothing is lost
//! or repeated (docs/pipelines.md).
//!
//! `stories` has scenarios with a scripted agent, `real_story` one with Claude Code and a scripted
//! model, and `task_story` splits a story into tasks. `point` lists the kills, `kill_fixture` holds a
//! story at a point, `trial` makes one kill and `finding` judges it; `split_trial` kills in a phase with
//! tasks. `project` counts the processes of
//! agents, `story_files` checks the files beside a story, and `table` prints the results.

mod client;
mod finding;
mod kill_fixture;
mod point;
mod project;
mod real_story;
mod split_trial;
mod stories;
mod story_files;
mod table;
mod task_story;
mod trial;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use self::point::{LAST, PhaseMoment, PhasePoint, every_kill, quick_kills};
use self::split_trial::SplitMoment;
use self::stories::Stories;
use self::table::StoryTable;
use crate::support::components::{Components, Victim};
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Number of agents that the worker runs at once.
const SLOTS: &str = "4";

/// Numbers of the projects of stories; kills have the following ones.
const PROJECTS: [u32; 3] = [1, 2, 3];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only one part: `stories`, `kills` or `task_kills`
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Kill only in this phase
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(LAST)))]
    phase: Option<u8>,
    /// Kill only at this moment: asks, works, saves-work, saves-result, records or delivers
    #[arg(long, value_name = "MOMENT")]
    moment: Option<PhaseMoment>,
    /// Kill only this component: worker, server, temporal or postgres
    #[arg(long, value_name = "NAME")]
    victim: Option<Victim>,
    /// List the kills without making them
    #[arg(long)]
    list: bool,
}

/// Part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum Part {
    Stories,
    /// In phases with agents.
    Kills,
    /// In a phase with tasks.
    TaskKills,
}

/// Kills that the options select.
#[derive(Debug)]
struct KillList {
    phases: Vec<(PhasePoint, Victim)>,
    tasks: Vec<(SplitMoment, Victim)>,
}

impl KillList {
    fn new(arguments: &Args, quick: bool) -> Self {
        let is_part = |part| arguments.only.is_none_or(|only| only == part);
        let is_victim = |name: Victim| arguments.victim.is_none_or(|only| only == name);
        let mut phases = if quick { quick_kills() } else { every_kill() };
        phases.retain(|(point, victim)| {
            arguments.phase.is_none_or(|phase| phase == point.phase)
                && arguments.moment.is_none_or(|moment| moment == point.moment)
                && is_victim(*victim)
                && is_part(Part::Kills)
        });
        let mut tasks = if quick { split_trial::quick_kills() } else { split_trial::every_kill() };
        let has_phase = arguments.phase.is_some() || arguments.moment.is_some();
        tasks.retain(|(_, victim)| !has_phase && is_victim(*victim) && is_part(Part::TaskKills));
        Self { phases, tasks }
    }

    fn len(&self) -> usize {
        self.phases.len() + self.tasks.len()
    }

    fn print(&self) -> Result<()> {
        let mut out = std::io::stdout();
        for (point, victim) in &self.phases {
            writeln!(out, "{victim:<8}  {point}")?;
        }
        for (moment, victim) in &self.tasks {
            writeln!(out, "{victim:<8}  tasks: {moment}")?;
        }
        Ok(())
    }
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let kills = KillList::new(arguments, quick);
    let with_stories = arguments.only.is_none_or(|only| only == Part::Stories);
    if kills.len() == 0 && !with_stories {
        bail!("no kill matches the options: `--list` shows all kills");
    }
    if arguments.list {
        kills.print()?;
        return Ok(Verdict::new(true, format!("{} kills listed", kills.len())));
    }
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("pipeline-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let mut components = start(&folder, with_stories && !quick).await.with_context(logs)?;
    let mut table = StoryTable::default();
    if with_stories {
        Box::pin(run_stories(&components, quick, &mut table)).await.with_context(logs)?;
    }
    if kills.len() > 0 {
        StoryTable::begin_kills()?;
    }
    let mut number = *PROJECTS.iter().max().unwrap_or(&0);
    for (point, victim) in kills.phases {
        number += 1;
        table.add_kill(&trial::run(&mut components, number, point, victim).await)?;
    }
    for (moment, victim) in kills.tasks {
        number += 1;
        table.add_kill(&split_trial::run(&mut components, number, moment, victim).await)?;
    }
    let clean = table.is_clean();
    if !clean {
        std::fs::write(folder.join("postgres.log"), components.cluster.postgres()?.log()?)?;
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    drop(components);
    if clean {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(Verdict::new(clean, table.end()?))
}

/// Starts all components. The worker can start Claude Code if the real agent is needed.
async fn start(folder: &Path, with_real: bool) -> Result<Components> {
    let programs = if with_real { Some(real_story::install().await?) } else { None };
    Components::start(folder, |worker| {
        let worker = worker.with_args(&["--slots", SLOTS]);
        match &programs {
            Some(programs) => real_story::with_agent(worker, programs),
            None => worker,
        }
    })
    .await
}

/// Runs the scenarios at the same time, and the story of the real agent in the full experiment.
async fn run_stories(components: &Components, quick: bool, table: &mut StoryTable) -> Result<()> {
    let cluster = &components.cluster;
    let [stories, tasks, real] = PROJECTS;
    let stories = Stories::new(cluster, stories, quick).await?;
    let (whole, range, signals, gates, limit, known, tasks) = tokio::join!(
        stories.whole(cluster),
        stories.range(cluster),
        stories.signals(cluster),
        stories.gates(cluster),
        stories.limit(cluster),
        stories.known(cluster),
        task_story::run(cluster, tasks, quick),
    );
    table.add_scenario("all phases, scripted agent", &whole)?;
    table.add_scenario("--from and --to", &range)?;
    table.add_scenario("signals, and resume after BLOCKED", &signals)?;
    table.add_scenario("approval gates", &gates)?;
    table.add_scenario("time limit of a phase", &limit)?;
    table.add_scenario("files of earlier runs", &known)?;
    table.add_scenario("a story split into tasks", &tasks)?;
    if !quick {
        table.add_scenario("all phases, Claude Code", &real_story::run(cluster, real).await)?;
    }
    Ok(())
}
