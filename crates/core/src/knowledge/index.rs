//! Entries that are ready to be held against plans: many at once, and again and again.
//!
//! Whether a prohibition matches is decided by its conditions alone. Everything else is ranked: by the
//! words that it shares with the plan, of which rare ones say more, and by how many of its conditions
//! hold. An index is made of entries once and used until they change; nothing in it can be changed.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use rust_stemmers::{Algorithm, Stemmer};

use super::mention::Clauses;
use super::{Entry, Findings, Kind, Match, MatchReason, Severity, words};
use crate::ids::KnowledgeId;
use crate::plan::{FileChange, Plan};
use crate::rules::Rules;
use crate::task::Task;

/// Entries, ready to be held against plans.
#[derive(Debug)]
pub struct Index {
    entries: Vec<Ready>,
    by_id: BTreeMap<KnowledgeId, usize>,
    /// For each stem, which entries have it, and how much it weighs there.
    postings: BTreeMap<String, Vec<(usize, f32)>>,
}

/// An entry with what is needed to match it.
#[derive(Debug)]
struct Ready {
    entry: Entry,
    globs: Vec<Result<PathGlob, String>>,
    pattern: Option<Result<Regex, String>>,
    /// The words of each keyword.
    keywords: Vec<Vec<String>>,
}

/// A glob, with what a path must begin with to be under it.
#[derive(Debug)]
struct PathGlob {
    text: String,
    beginning: String,
    matcher: GlobMatcher,
}

impl PathGlob {
    fn new(text: &str) -> Result<Self, String> {
        // A star stays within a folder, as people mean it.
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let matcher = glob.map_err(|_| text.to_owned())?.compile_matcher();
        let beginning =
            text.split(['*', '?', '[', '{', '\\']).next().unwrap_or_default().to_owned();
        Ok(Self { text: text.to_owned(), beginning, matcher })
    }

    fn is_match(&self, path: &str) -> bool {
        path.starts_with(&self.beginning) && self.matcher.is_match(path)
    }
}

/// How many texts of a subject come before those about its files: title, description, summary and
/// approach. Last comes how it is tested.
const BEFORE_FILES: usize = 4;

/// What the entries are held against.
struct Subject<'a> {
    task: &'a Task,
    files: &'a [FileChange],
    texts: Vec<&'a str>,
    clauses: Vec<Clauses>,
    /// How much each stem of the plan weighs.
    stems: BTreeMap<String, f32>,
}

impl<'a> Subject<'a> {
    fn of(task: &'a Task, plan: &'a Plan) -> Self {
        let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
        texts.extend(plan.file_changes.iter().map(|change| &*change.description));
        texts.push(&plan.testing_strategy);
        let mut stems = BTreeMap::new();
        let mut add = |text: &str, weight: f32| {
            for stem in stems_of(text) {
                *stems.entry(stem).or_insert(0.0) += weight;
            }
        };
        add(&task.title, weight::TITLE);
        for text in &texts[1..texts.len() - 1] {
            add(text, 1.0);
        }
        add(&plan.testing_strategy, weight::TESTING);
        for change in &plan.file_changes {
            add(&change.path, weight::PATH);
        }
        // A word that is said ten times is not ten times as important.
        for weight in stems.values_mut() {
            *weight = if *weight > 1.0 { 1.0 + weight.ln() } else { *weight };
        }
        let clauses = texts.iter().map(|text| Clauses::of(text)).collect();
        Self { task, files: &plan.file_changes, texts, clauses, stems }
    }

    fn names(&self, keyword: &[String]) -> bool {
        self.clauses.iter().any(|clauses| clauses.name(keyword))
    }
}

/// What counts how much in the ranking. Found with a labelled set of entries and plans, of which one
/// part was not looked at meanwhile.
mod weight {
    pub(super) const TITLE: f32 = 2.0;
    pub(super) const TESTING: f32 = 0.3;
    pub(super) const PATH: f32 = 1.5;
    /// A keyword of an entry against a word of its text.
    pub(super) const KEYWORD: f32 = 3.0;
    /// A part of a glob of an entry.
    pub(super) const GLOB: f32 = 1.0;
    /// How fast a word that is repeated in an entry stops to count, and how much long ones lose.
    pub(super) const SATURATION: f32 = 0.9;
    pub(super) const LENGTH: f32 = 0.7;
    pub(super) const TYPICAL_LENGTH: f32 = 30.0;
    /// A planned file under a glob of the entry, and none.
    pub(super) const PATH_HOLDS: f32 = 3.2;
    pub(super) const PATH_FAILS: f32 = -7.7;
    /// The task is of a type of the entry, and is of another.
    pub(super) const TYPE_HOLDS: f32 = 11.0;
    pub(super) const TYPE_FAILS: f32 = -7.7;
    /// A keyword that is named; three count.
    pub(super) const NAMED: f32 = 5.4;
    /// The score that is half of what can be had.
    pub(super) const HALF: f32 = 12.0;
}

impl Index {
    /// An index of entries. One id counts once.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut index =
            Self { entries: Vec::new(), by_id: BTreeMap::new(), postings: BTreeMap::new() };
        for entry in entries {
            if index.by_id.contains_key(&entry.id) {
                continue;
            }
            let at = index.entries.len();
            index.by_id.insert(entry.id, at);
            for (stem, weight) in weights(&entry) {
                index.postings.entry(stem).or_default().push((at, weight));
            }
            index.entries.push(Ready {
                globs: entry.globs.iter().map(|glob| PathGlob::new(glob)).collect(),
                pattern: entry
                    .pattern
                    .as_ref()
                    .map(|pattern| Regex::new(pattern).map_err(|_| pattern.clone())),
                keywords: entry.keywords.iter().map(|keyword| words(keyword)).collect(),
                entry,
            });
        }
        index
    }

    /// An entry.
    pub fn entry(&self, id: KnowledgeId) -> Option<&Entry> {
        self.by_id.get(&id).and_then(|at| self.entries.get(*at)).map(|ready| &ready.entry)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|ready| &ready.entry)
    }

    /// The entries that share the most with a text, whatever their status; the best first.
    pub fn search(&self, text: &str, limit: usize) -> Vec<KnowledgeId> {
        let stems = stems_of(text).into_iter().map(|stem| (stem, 1.0)).collect();
        let mut found: Vec<_> = self.shared(&stems).into_iter().collect();
        found.sort_by(|(a, one), (b, other)| other.total_cmp(one).then(a.cmp(b)));
        found.into_iter().take(limit).map(|(at, _)| self.entries[at].entry.id).collect()
    }

    /// Holds a task and its plan against the entries that are in force.
    pub fn check(&self, task: &Task, plan: &Plan, now: DateTime<Utc>, rules: &Rules) -> Findings {
        let subject = Subject::of(task, plan);
        let shared = self.shared(&subject.stems);
        let enough = rules.scrum_master.learning_capture.min_relevance_score;
        let mut findings = Findings::default();
        let in_force = |ready: &&Ready| ready.entry.is_in_force(task.project, now);
        for (at, ready) in self.entries.iter().enumerate().filter(|(_, ready)| in_force(ready)) {
            let entry = &ready.entry;
            if entry.kind == Kind::Prohibition {
                if let Some(reasons) = ready.forbids(&subject) {
                    let list = if entry.severity == Severity::Critical {
                        &mut findings.blockers
                    } else {
                        &mut findings.warnings
                    };
                    list.push(Match { entry: entry.id, reasons, relevance: 100 });
                }
                continue;
            }
            let words = shared.get(&at).copied().unwrap_or_default();
            let (score, reasons) = ready.ranked(&subject, words);
            let relevance = share(score);
            let undecided =
                reasons.iter().any(|reason| matches!(reason, MatchReason::Undecidable { .. }));
            let list = match entry.kind {
                _ if undecided => &mut findings.warnings,
                _ if relevance < enough || (reasons.is_empty() && words <= 0.0) => continue,
                Kind::Recommendation => &mut findings.recommendations,
                Kind::Convention => &mut findings.conventions,
                Kind::Learning | Kind::Prohibition => &mut findings.learnings,
            };
            list.push(Match { entry: entry.id, reasons, relevance });
        }
        findings.sort();
        findings
    }

    /// How much each entry shares with some stems: rare ones count more.
    fn shared(&self, stems: &BTreeMap<String, f32>) -> BTreeMap<usize, f32> {
        let mut shared = BTreeMap::new();
        #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
        let all = self.entries.len() as f32;
        for (stem, said) in stems {
            let Some(list) = self.postings.get(stem) else { continue };
            #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
            let having = list.len() as f32;
            let rare = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            for (at, weight) in list {
                *shared.entry(*at).or_insert(0.0) += rare * said * weight;
            }
        }
        shared
    }
}

impl Ready {
    /// Why a plan does what this prohibition forbids, if it does: every kind of condition must hold.
    fn forbids(&self, subject: &Subject<'_>) -> Option<Vec<MatchReason>> {
        let entry = &self.entry;
        let mut reasons = Vec::new();
        let mut conditions = 0;
        // From the cheapest to the dearest, so that most entries cost next to nothing.
        if !entry.task_types.is_empty() {
            conditions += 1;
            if !entry.task_types.contains(&subject.task.r#type) {
                return None;
            }
            reasons.push(MatchReason::TaskType(subject.task.r#type));
        }
        if !self.globs.is_empty() {
            conditions += 1;
            let found = self.paths(subject);
            if found.is_empty() {
                return None;
            }
            reasons.extend(found);
        }
        if !self.keywords.is_empty() {
            conditions += 1;
            let found = self.named(subject);
            if found.is_empty() {
                return None;
            }
            reasons.extend(found);
        }
        if self.pattern.is_some() {
            conditions += 1;
            let found = self.described(subject);
            if found.is_empty() {
                return None;
            }
            reasons.extend(found);
        }
        (conditions > 0).then_some(reasons)
    }

    /// How much this entry has to say to a plan, and why.
    fn ranked(&self, subject: &Subject<'_>, words: f32) -> (f32, Vec<MatchReason>) {
        let entry = &self.entry;
        let (mut score, mut reasons) = (words, Vec::new());
        if !self.globs.is_empty() {
            let found = self.paths(subject);
            score += if found.is_empty() { weight::PATH_FAILS } else { weight::PATH_HOLDS };
            reasons.extend(found);
        }
        if !entry.task_types.is_empty() {
            let holds = entry.task_types.contains(&subject.task.r#type);
            score += if holds { weight::TYPE_HOLDS } else { weight::TYPE_FAILS };
            reasons.extend(holds.then_some(MatchReason::TaskType(subject.task.r#type)));
        }
        let named = self.named(subject);
        #[expect(clippy::cast_precision_loss, reason = "at most three")]
        let counted = named.len().min(3) as f32;
        score += weight::NAMED * counted;
        reasons.extend(named);
        reasons.extend(self.described(subject));
        (score, reasons)
    }

    fn paths(&self, subject: &Subject<'_>) -> Vec<MatchReason> {
        let mut reasons = Vec::new();
        for glob in &self.globs {
            match glob {
                Ok(glob) => {
                    let under = subject.files.iter().filter(|file| {
                        let actions = &self.entry.actions;
                        (actions.is_empty() || actions.contains(&file.action))
                            && glob.is_match(&file.path)
                    });
                    reasons.extend(under.map(|file| MatchReason::Path {
                        glob: glob.text.clone(),
                        path: file.path.clone(),
                    }));
                }
                Err(text) => reasons.push(MatchReason::Undecidable { condition: text.clone() }),
            }
        }
        reasons
    }

    fn named(&self, subject: &Subject<'_>) -> Vec<MatchReason> {
        self.keywords
            .iter()
            .zip(&self.entry.keywords)
            .filter(|(wanted, _)| subject.names(wanted))
            .map(|(_, keyword)| MatchReason::Keyword(keyword.clone()))
            .collect()
    }

    fn described(&self, subject: &Subject<'_>) -> Vec<MatchReason> {
        let regex = match &self.pattern {
            None => return Vec::new(),
            Some(Err(text)) => {
                return vec![MatchReason::Undecidable { condition: text.clone() }];
            }
            Some(Ok(regex)) => regex,
        };
        let found = |(at, (text, clauses)): (usize, (&&str, &Clauses))| {
            // What will be done to a file is about code; elsewhere only what is written as code is.
            let about_a_file = (BEFORE_FILES..subject.texts.len() - 1).contains(&at);
            let is_code =
                |place: usize| about_a_file || text[..place].matches('`').count() % 2 == 1;
            let mut all = regex.find_iter(text);
            let found = all.find(|it| is_code(it.start()) && !clauses.denies(it.start()))?;
            Some(MatchReason::Pattern {
                pattern: regex.to_string(),
                found: found.as_str().chars().take(80).collect(),
            })
        };
        subject.texts.iter().zip(&subject.clauses).enumerate().filter_map(found).collect()
    }
}

/// A score as a share of what can be had, in percent.
fn share(score: f32) -> u8 {
    if score <= 0.0 {
        return 0;
    }
    let percent = 100.0 * score / (score + weight::HALF);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
    let percent = percent.round() as u8;
    percent.min(100)
}

/// How much each stem of an entry weighs in it.
fn weights(entry: &Entry) -> BTreeMap<String, f32> {
    let mut counts = BTreeMap::new();
    let mut add = |text: &str, weight: f32| {
        for stem in stems_of(text) {
            *counts.entry(stem).or_insert(0.0) += weight;
        }
    };
    add(&entry.text, 1.0);
    for keyword in &entry.keywords {
        add(keyword, weight::KEYWORD);
    }
    for glob in &entry.globs {
        add(glob, weight::GLOB);
    }
    let length: f32 = counts.values().sum();
    let slow = weight::SATURATION
        * (1.0 - weight::LENGTH + weight::LENGTH * length / weight::TYPICAL_LENGTH);
    for count in counts.values_mut() {
        *count = *count * (weight::SATURATION + 1.0) / (*count + slow);
    }
    counts
}

/// The stems of the words that say something.
fn stems_of(text: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    words(&apart(text))
        .iter()
        .flat_map(|word| word.split('_'))
        .filter(|word| word.len() > 1 && !is_common(word))
        .map(|word| stemmer.stem(word).into_owned())
        .collect()
}

/// A text in which the parts of names such as `chargeTwice` stand apart.
fn apart(text: &str) -> String {
    let mut apart = String::with_capacity(text.len() + 8);
    let mut small = false;
    for letter in text.chars() {
        if small && letter.is_uppercase() {
            apart.push(' ');
        }
        small = letter.is_lowercase();
        apart.push(letter);
    }
    apart
}

fn is_common(word: &str) -> bool {
    const COMMON: &str = include_str!("common-words.txt");
    static WORDS: std::sync::LazyLock<BTreeSet<&str>> =
        std::sync::LazyLock::new(|| COMMON.split_whitespace().collect());
    WORDS.contains(word)
}
