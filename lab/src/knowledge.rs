//! Accuracy and duration of the knowledge check on a labelled set.
//!
//! The set is in `lab/inputs/knowledge`; its README explains the labels. The experiment fails if a plan
//! is wrongly stopped or passed, if recall among the first five of each kind is too low, or if a check
//! of 10,000 entries takes too long.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use tamma_connect::model::{Embedder, MAX_BATCH};
use tamma_core::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{
    EntryKind, EntryMatch, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry,
    KnowledgeFindings, KnowledgeIndex, embeddings,
};
use tamma_core::plan::{FileAction, Plan};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

const PROJECTS: [&str; 3] = ["shop", "silt", "atelier"];

/// Time of the checks.
const NOW: &str = "2026-11-15T12:00:00Z";

/// Number of entries of each kind that count.
const FIRST: usize = 5;

/// Target recall, and the limit of the p99 duration.
const RECALL: f64 = 0.9;
const LONGEST: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct EntryFile {
    entries: Vec<LabelledEntry>,
}

/// Entry of the labelled set.
#[derive(Deserialize)]
struct LabelledEntry {
    key: String,
    kind: EntryKind,
    text: String,
    scope: String,
    #[serde(default)]
    globs: Vec<String>,
    #[serde(default)]
    task_types: Vec<TaskType>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    actions: Vec<FileAction>,
    pattern: Option<String>,
    severity: EntrySeverity,
    status: EntryStatus,
    expires_at: Option<DateTime<Utc>>,
    #[serde(default)]
    evidence: Vec<String>,
}

#[derive(Deserialize)]
struct PlanFile {
    plans: Vec<LabelledPlan>,
}

/// Plan with the entries to find.
#[derive(Deserialize)]
struct LabelledPlan {
    key: String,
    task: LabelledTask,
    plan: Plan,
    #[serde(default)]
    blockers: BTreeSet<String>,
    #[serde(default)]
    warnings: BTreeSet<String>,
    #[serde(default)]
    relevant: Vec<String>,
    hard: String,
}

#[derive(Deserialize)]
struct LabelledTask {
    r#type: TaskType,
    title: String,
    #[serde(default)]
    description: String,
}

/// Score of a project or of a kind of hard case.
#[derive(Default)]
struct CheckScore {
    plans: usize,
    wrongly_stopped: Vec<String>,
    wrongly_passed: Vec<String>,
    recalls: Vec<f64>,
    precisions: Vec<f64>,
    joint: Vec<f64>,
}

/// Labelled set of all projects.
struct LabelledSet {
    entries: Vec<KnowledgeEntry>,
    keys: BTreeMap<KnowledgeId, String>,
    cases: Vec<(&'static str, Task, LabelledPlan)>,
}

impl LabelledSet {
    fn read() -> Result<Self> {
        let folder = programs::input("knowledge");
        let mut set = Self { entries: Vec::new(), keys: BTreeMap::new(), cases: Vec::new() };
        for project in PROJECTS {
            let file: EntryFile = read(&folder.join(project).join("entries.yaml"))?;
            for labelled in file.entries {
                let entry = entry(project, &labelled)?;
                set.keys.insert(entry.id, labelled.key);
                set.entries.push(entry);
            }
            let file: PlanFile = read(&folder.join(project).join("plans.yaml"))?;
            set.cases.extend(file.plans.into_iter().map(|it| (project, task(project, &it), it)));
        }
        Ok(set)
    }

    /// Checks every plan, prints the scores, and returns recall and the number of wrong decisions.
    ///
    /// `near` has the nearest entries of each plan by embeddings; it can be empty.
    fn judge(&self, index: &KnowledgeIndex, near: &[Vec<KnowledgeId>]) -> Result<(f64, usize)> {
        let (rules, now) = (Rules::default(), NOW.parse()?);
        let mut projects = BTreeMap::<&str, CheckScore>::new();
        let mut hard = BTreeMap::<&str, CheckScore>::new();
        let mut all = CheckScore::default();
        for (number, (project, task, case)) in self.cases.iter().enumerate() {
            let near = near.get(number).map(Vec::as_slice).unwrap_or_default();
            let findings = index.check_with_nearest(task, &case.plan, now, &rules, near);
            for score in [
                projects.entry(*project).or_default(),
                hard.entry(case.hard.as_str()).or_default(),
                &mut all,
            ] {
                score.take(case, &findings, &self.keys);
            }
        }
        let rows = projects.iter().map(|(name, score)| (*name, score)).chain([("all", &all)]);
        println!("{}", format_scores("project", rows));
        println!("{}", format_scores("hard", hard.iter().map(|(name, score)| (*name, score))));
        for (what, list) in
            [("wrongly stopped", &all.wrongly_stopped), ("wrongly passed", &all.wrongly_passed)]
        {
            for case in list {
                println!("{what}: {case}");
            }
        }
        Ok((mean(&all.recalls), all.wrongly_stopped.len() + all.wrongly_passed.len()))
    }

    /// Returns the nearest entries of each plan by embeddings.
    async fn near(&self, url: &str) -> Result<Vec<Vec<KnowledgeId>>> {
        let embedder = Embedder::new(url, "eval", None)?;
        let texts: Vec<(KnowledgeId, String)> = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.id, embeddings::entry_text(entry)?)))
            .collect();
        let mut vectors = Vec::new();
        for batch in texts.chunks(MAX_BATCH) {
            let input: Vec<String> = batch.iter().map(|(_, text)| text.clone()).collect();
            let embedded = embedder.embed(&input).await?;
            vectors.extend(batch.iter().map(|(id, _)| *id).zip(embedded));
        }
        let mut near = Vec::new();
        for (_, task, case) in &self.cases {
            let of_plan = embedder.embed(&[embeddings::plan_text(task, &case.plan)]).await?;
            let of_plan = of_plan.first().context("the model returned no vector for a plan")?;
            let vectors = vectors.iter().map(|(id, vector)| (*id, vector.as_slice()));
            near.push(embeddings::nearest_entries(of_plan, vectors));
        }
        Ok(near)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also measure with a local model of word vectors (docs/decisions/0009)
    #[arg(long)]
    embeddings: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let set = LabelledSet::read()?;
    println!("{} entries, {} plans\n", set.entries.len(), set.cases.len());
    let index = KnowledgeIndex::new(set.entries.iter().cloned());
    println!("words and conditions\n");
    let (recall, wrong) = set.judge(&index, &[])?;
    println!("recall at {FIRST}: {recall:.3}\n");
    let mut passed = wrong == 0 && recall >= RECALL;
    let mut figures = vec![format!("recall at {FIRST} {recall:.3}, {wrong} wrong decisions")];
    if arguments.embeddings {
        println!("with embeddings, fused by rank\n");
        let model = EmbeddingServer::start().await?;
        let near = set.near(&model.url).await?;
        let (recall, wrong) = set.judge(&index, &near)?;
        passed &= wrong == 0 && recall >= RECALL;
        figures.push(format!("with embeddings {recall:.3} and {wrong}"));
    }
    let slowest = measure_growth(&set)?;
    passed &= slowest < LONGEST;
    figures.push(format!("a check of 10,000 entries takes {} ms at p99", ms(Some(slowest))));
    Ok(Verdict::new(passed, figures.join(", ")))
}

/// Local model of word vectors. Dropping it ends its process.
struct EmbeddingServer {
    _server: Child,
    url: String,
}

impl EmbeddingServer {
    async fn start() -> Result<Self> {
        let folder = programs::input("knowledge/embeddings");
        tools::npm_install(&folder).await?;
        let mut server = Command::new("node")
            .arg(folder.join("server.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `node`")?;
        let output = server.stdout.take().context("the model has no standard output")?;
        let url = BufReader::new(output).lines().next_line().await?;
        Ok(Self { _server: server, url: url.context("the model ended before it had a URL")? })
    }
}

impl CheckScore {
    fn take(
        &mut self,
        case: &LabelledPlan,
        findings: &KnowledgeFindings,
        keys: &BTreeMap<KnowledgeId, String>,
    ) {
        let named = |list: &[EntryMatch]| -> Vec<String> {
            list.iter().filter_map(|it| keys.get(&it.entry).cloned()).collect()
        };
        self.plans += 1;
        for (labelled, list) in
            [(&case.blockers, &findings.blockers), (&case.warnings, &findings.warnings)]
        {
            let matched: BTreeSet<_> = named(list).into_iter().collect();
            let describe = |entry: &String| format!("{} by {entry}", case.key);
            self.wrongly_stopped.extend(matched.difference(labelled).map(describe));
            self.wrongly_passed.extend(labelled.difference(&matched).map(describe));
        }
        let lists = [&findings.recommendations, &findings.conventions, &findings.learnings];
        let first: Vec<String> =
            lists.iter().flat_map(|list| named(&list[..list.len().min(FIRST)])).collect();
        let mut joint: Vec<&EntryMatch> = lists.into_iter().flatten().collect();
        joint.sort_by_key(|entry| std::cmp::Reverse(entry.relevance));
        let joint: Vec<String> =
            joint.iter().take(FIRST).filter_map(|it| keys.get(&it.entry).cloned()).collect();
        let of = |list: &[String]| case.relevant.iter().filter(|key| list.contains(key)).count();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = |part: usize, total: usize| part as f64 / total.max(1) as f64;
        if !case.relevant.is_empty() {
            self.recalls.push(share(of(&first), case.relevant.len()));
            self.precisions.push(share(of(&first), first.len()));
            self.joint.push(share(of(&joint), case.relevant.len()));
        }
    }
}

fn format_scores<'a>(
    what: &str,
    scores: impl Iterator<Item = (&'a str, &'a CheckScore)>,
) -> String {
    let heads = ["plans", "wrongly stopped", "wrongly passed", "recall at 5", "precision", "joint"];
    let mut rows = vec![std::iter::once(what).chain(heads).map(str::to_owned).collect::<Vec<_>>()];
    for (name, score) in scores {
        rows.push(vec![
            name.to_owned(),
            score.plans.to_string(),
            score.wrongly_stopped.len().to_string(),
            score.wrongly_passed.len().to_string(),
            format!("{:.3}", mean(&score.recalls)),
            format!("{:.3}", mean(&score.precisions)),
            format!("{:.3}", mean(&score.joint)),
        ]);
    }
    table(&rows)
}

fn mean<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().copied().collect();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let count = values.len().max(1) as f64;
    values.iter().sum::<f64>() / count
}

/// Measures checks with a growing number of entries. Returns the p99 with 10,000 entries.
///
/// All plans are checked twice. The first pass compiles globs and regular expressions.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn measure_growth(set: &LabelledSet) -> Result<Duration> {
    let (entries, rules, now) = (&set.entries, Rules::default(), NOW.parse()?);
    let mut rows = vec![
        ["entries", "build, ms", "p50, ms", "p99, ms", "p99 first pass, ms"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut at_ten_thousand = Duration::ZERO;
    for count in [1_000, 10_000, 100_000] {
        let project = id_of("shop");
        let many = entries.iter().cycle().take(count).enumerate().map(|(number, entry)| {
            // The same words in folders with other names, so that word lists grow too.
            let round = number / entries.len();
            let other = |glob: &String| match glob.split_once('/') {
                Some((first, rest)) if round > 0 => format!("{first}-{round}/{rest}"),
                _ => glob.clone(),
            };
            KnowledgeEntry {
                id: KnowledgeId(Uuid::from_u128(number as u128 + 1)),
                scope: EntryScope::Project(ProjectId(project)),
                globs: entry.globs.iter().map(other).collect(),
                ..entry.clone()
            }
        });
        let start = Instant::now();
        let index = KnowledgeIndex::new(many);
        let build = start.elapsed();
        // An index is kept until an entry changes, so the limit applies to the second pass.
        let pass = || -> Vec<Duration> {
            let check = |(_, task, case): &(&str, Task, LabelledPlan)| {
                let task = Task { project: ProjectId(project), ..task.clone() };
                let start = Instant::now();
                std::hint::black_box(index.check(&task, &case.plan, now, &rules));
                start.elapsed()
            };
            set.cases.iter().map(check).collect()
        };
        let (firsts, times) = (pass(), pass());
        let slowest = percentile(&times, 99);
        rows.push(vec![
            count.to_string(),
            ms(Some(build)),
            ms(percentile(&times, 50)),
            ms(slowest),
            ms(percentile(&firsts, 99)),
        ]);
        if count == 10_000 {
            at_ten_thousand = slowest.unwrap_or_default();
        }
    }
    println!("{}", table(&rows));
    Ok(at_ten_thousand)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn id_of(name: &str) -> Uuid {
    let digest = Digest::of(name.as_bytes()).to_string();
    Uuid::parse_str(&digest[..32]).unwrap_or_default()
}

fn entry(project: &str, labelled: &LabelledEntry) -> Result<KnowledgeEntry> {
    let evidence: Result<Vec<Reference>, _> =
        labelled.evidence.iter().map(|it| it.parse()).collect();
    Ok(KnowledgeEntry {
        id: KnowledgeId(id_of(&labelled.key)),
        kind: labelled.kind,
        text: labelled.text.clone(),
        scope: match labelled.scope.as_str() {
            "organisation" => EntryScope::Organisation,
            _ => EntryScope::Project(ProjectId(id_of(project))),
        },
        globs: labelled.globs.clone(),
        task_types: labelled.task_types.clone(),
        keywords: labelled.keywords.clone(),
        actions: labelled.actions.clone(),
        pattern: labelled.pattern.clone(),
        severity: labelled.severity,
        owner: None,
        evidence: evidence?,
        status: labelled.status,
        expires_at: labelled.expires_at,
        origin: None,
    })
}

fn task(project: &str, case: &LabelledPlan) -> Task {
    Task {
        id: TaskId(id_of(&case.key)),
        project: ProjectId(id_of(project)),
        title: case.task.title.clone(),
        description: case.task.description.clone(),
        r#type: case.task.r#type,
        priority: Priority::default(),
        acceptance_criteria: Vec::new(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        issue_number: None,
        metadata: BTreeMap::new(),
    }
}
