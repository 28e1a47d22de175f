//! `just eval-knowledge`: what the knowledge check finds of a labelled set, and how long it takes.
//!
//! The set is in `eval/knowledge`; its README says how it was labelled. Fails if a plan is stopped that
//! breaks nothing, or one that does is not; if too little of what is relevant is among the first five
//! of its kind; or if a check of ten thousand entries takes too long.
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use tamma_bench::figures::{ms, percentile, table};
use tamma_core::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{Entry, Findings, Index, Kind, Match, Scope, Severity, Status};
use tamma_core::plan::{Action, Plan};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use uuid::Uuid;

const PROJECTS: [&str; 3] = ["shop", "silt", "atelier"];

/// The moment at which the plans are checked.
const NOW: &str = "2026-11-15T12:00:00Z";

/// How many of each kind count.
const FIRST: usize = 5;

/// What must be reached.
const RECALL: f64 = 0.9;
const LONGEST: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct EntryFile {
    entries: Vec<Labelled>,
}

/// An entry as the set writes it.
#[derive(Deserialize)]
struct Labelled {
    key: String,
    kind: Kind,
    text: String,
    scope: String,
    #[serde(default)]
    globs: Vec<String>,
    #[serde(default)]
    task_types: Vec<TaskType>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    actions: Vec<Action>,
    pattern: Option<String>,
    severity: Severity,
    status: Status,
    expires_at: Option<DateTime<Utc>>,
    #[serde(default)]
    evidence: Vec<String>,
}

#[derive(Deserialize)]
struct PlanFile {
    plans: Vec<Case>,
}

/// A plan, and what is to be found for it.
#[derive(Deserialize)]
struct Case {
    key: String,
    task: Wanted,
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
struct Wanted {
    r#type: TaskType,
    title: String,
    #[serde(default)]
    description: String,
}

/// How well one project, or one kind of hard case, was done.
#[derive(Default)]
struct Score {
    plans: usize,
    wrongly_stopped: Vec<String>,
    wrongly_passed: Vec<String>,
    recalls: Vec<f64>,
    precisions: Vec<f64>,
    joint: Vec<f64>,
}

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../eval/knowledge");
    let mut keys = BTreeMap::new();
    let mut entries = Vec::new();
    for project in PROJECTS {
        let file: EntryFile = read(&folder.join(project).join("entries.yaml"))?;
        for labelled in file.entries {
            let entry = entry(project, &labelled)?;
            keys.insert(entry.id, labelled.key);
            entries.push(entry);
        }
    }
    let index = Index::new(entries.iter().cloned());
    let (rules, now) = (Rules::default(), NOW.parse()?);
    let (mut scores, mut hard) = (BTreeMap::<&str, Score>::new(), BTreeMap::<String, Score>::new());
    let mut cases = Vec::new();
    for project in PROJECTS {
        let file: PlanFile = read(&folder.join(project).join("plans.yaml"))?;
        for case in file.plans {
            let task = task(project, &case);
            let found = index.check(&task, &case.plan, now, &rules);
            for score in
                [scores.entry(project).or_default(), hard.entry(case.hard.clone()).or_default()]
            {
                score.take(&case, &found, &keys);
            }
            cases.push((task, case.plan));
        }
    }
    println!("{}", shown("project", scores.iter().map(|(name, score)| (*name, score))));
    println!("{}", shown("hard", hard.iter().map(|(name, score)| (name.as_str(), score))));
    let all = |list: fn(&Score) -> &Vec<String>| -> Vec<String> {
        scores.values().flat_map(|score| list(score).clone()).collect()
    };
    let (stopped, passed) = (all(|it| &it.wrongly_stopped), all(|it| &it.wrongly_passed));
    for (what, list) in [("wrongly stopped", &stopped), ("wrongly passed", &passed)] {
        for case in list {
            println!("{what}: {case}");
        }
    }
    let slowest = growth(&entries, &cases, now, &rules);
    let recall = mean(scores.values().flat_map(|score| &score.recalls));
    println!("recall at {FIRST}: {recall:.3}");
    ensure!(stopped.is_empty() && passed.is_empty(), "prohibitions are not decided as labelled");
    ensure!(recall >= RECALL, "recall at {FIRST} is {recall:.3}, under {RECALL}");
    ensure!(slowest < LONGEST, "a check of 10,000 entries takes {slowest:?}");
    Ok(())
}

impl Score {
    fn take(&mut self, case: &Case, found: &Findings, keys: &BTreeMap<KnowledgeId, String>) {
        let named = |list: &[Match]| -> Vec<String> {
            list.iter().filter_map(|found| keys.get(&found.entry).cloned()).collect()
        };
        self.plans += 1;
        for (labelled, list) in
            [(&case.blockers, &found.blockers), (&case.warnings, &found.warnings)]
        {
            let found: BTreeSet<_> = named(list).into_iter().collect();
            let words = |entry: &String| format!("{} by {entry}", case.key);
            self.wrongly_stopped.extend(found.difference(labelled).map(words));
            self.wrongly_passed.extend(labelled.difference(&found).map(words));
        }
        let lists = [&found.recommendations, &found.conventions, &found.learnings];
        let first: Vec<String> =
            lists.iter().flat_map(|list| named(&list[..list.len().min(FIRST)])).collect();
        let mut joint: Vec<&Match> = lists.into_iter().flatten().collect();
        joint.sort_by_key(|found| std::cmp::Reverse(found.relevance));
        let joint: Vec<String> =
            joint.iter().take(FIRST).filter_map(|it| keys.get(&it.entry).cloned()).collect();
        let of = |list: &[String]| case.relevant.iter().filter(|key| list.contains(key)).count();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        if !case.relevant.is_empty() {
            self.recalls.push(share(of(&first), case.relevant.len()));
            self.precisions.push(share(of(&first), first.len()));
            self.joint.push(share(of(&joint), case.relevant.len()));
        }
    }
}

fn shown<'a>(what: &str, scores: impl Iterator<Item = (&'a str, &'a Score)>) -> String {
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

/// How long a check takes with more and more entries of one project, and the 99th percentile with ten
/// thousand.
fn growth(
    entries: &[Entry],
    cases: &[(Task, Plan)],
    now: DateTime<Utc>,
    rules: &Rules,
) -> Duration {
    let mut rows =
        vec![["entries", "made in ms", "p50 in ms", "p99 in ms"].map(str::to_owned).to_vec()];
    let mut at_ten_thousand = Duration::ZERO;
    for count in [1_000, 10_000, 100_000] {
        let project = id_of("shop");
        let many = entries.iter().cycle().take(count).enumerate().map(|(number, entry)| {
            // As many areas as there would be: the same words, in folders of other names.
            let round = number / entries.len();
            let other = |glob: &String| match glob.split_once('/') {
                Some((first, rest)) if round > 0 => format!("{first}-{round}/{rest}"),
                _ => glob.clone(),
            };
            Entry {
                id: KnowledgeId(Uuid::from_u128(number as u128 + 1)),
                scope: Scope::Project(ProjectId(project)),
                globs: entry.globs.iter().map(other).collect(),
                ..entry.clone()
            }
        });
        let begun = Instant::now();
        let index = Index::new(many);
        let made = begun.elapsed();
        let mut times = Vec::new();
        for (task, plan) in cases {
            let begun = Instant::now();
            let found = index.check(task, plan, now, rules);
            times.push(begun.elapsed());
            std::hint::black_box(found);
        }
        let slowest = percentile(&times, 99);
        rows.push(vec![count.to_string(), ms(Some(made)), ms(percentile(&times, 50)), ms(slowest)]);
        if count == 10_000 {
            at_ten_thousand = slowest.unwrap_or_default();
        }
    }
    println!("{}", table(&rows));
    at_ten_thousand
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn id_of(name: &str) -> Uuid {
    let digest = Digest::of(name.as_bytes()).to_string();
    Uuid::parse_str(&digest[..32]).unwrap_or_default()
}

fn entry(project: &str, labelled: &Labelled) -> Result<Entry> {
    let evidence: Result<Vec<Reference>, _> =
        labelled.evidence.iter().map(|it| it.parse()).collect();
    Ok(Entry {
        id: KnowledgeId(id_of(&labelled.key)),
        kind: labelled.kind,
        text: labelled.text.clone(),
        scope: match labelled.scope.as_str() {
            "organisation" => Scope::Organisation,
            _ => Scope::Project(ProjectId(id_of(project))),
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
    })
}

fn task(project: &str, case: &Case) -> Task {
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
        metadata: BTreeMap::new(),
    }
}
