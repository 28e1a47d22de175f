//! Entries that are ready to be held against plans: many at once, and again and again.
//!
//! Whether a prohibition matches is decided by its conditions alone. Everything else is ranked: by the
//! words that it shares with the plan, of which rare ones say more, and by how many of its conditions
//! hold. An index is made of entries once and used until they change; nothing in it can be changed.
//!
//! A check begins with the plan: its words, paths and names lead to the entries that have to do with
//! it, so that what has nothing to do with it costs next to nothing.

mod conditions;
mod subject;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

pub(super) use self::conditions::glob;
use self::conditions::{Globs, Keywords, Patterns};
use self::subject::{Said, Subject};
use super::stems::Stems;
use super::{Entry, Findings, Kind, Match, MatchReason, Severity, meaning};
use crate::ids::KnowledgeId;
use crate::plan::{FileChange, Plan};
use crate::rules::Rules;
use crate::task::Task;

/// How many entries of a kind a check lists at most. A longer list is read by nobody.
const LISTED: usize = 20;

/// Entries, ready to be held against plans.
#[derive(Debug, Default)]
pub struct Index {
    entries: Vec<Ready>,
    by_id: BTreeMap<KnowledgeId, u32>,
    stems: Stems,
    /// For each stem, how much it says, and which entries have it in their text or in their globs.
    postings: Vec<Posting>,
    globs: Globs,
    /// The keywords of prohibitions, which must be named to the letter.
    keywords: Keywords,
    /// The keywords of the others, by the first of their stems.
    ranked_keywords: BTreeMap<u32, Vec<RankedKeyword>>,
    patterns: Patterns,
    /// Prohibitions that neither paths nor words narrow, and other entries that have a pattern: they
    /// are asked each time.
    always: Vec<u32>,
}

/// An entry with what is needed to match it.
#[derive(Debug)]
struct Ready {
    entry: Entry,
    pattern: Option<u32>,
    is_always: bool,
    is_ranked: bool,
}

#[derive(Debug, Default)]
struct Posting {
    /// How rare it is, 0 to 1.
    rare: f32,
    /// How many entries have it anywhere.
    having: u32,
    texts: Vec<u32>,
    globs: Vec<u32>,
}

#[derive(Debug)]
struct RankedKeyword {
    stems: Vec<u32>,
    /// The entries, and which of their keywords it is.
    entries: Vec<(u32, u16)>,
}

/// What is known of an entry and a plan while it is ranked.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Words of its text that the plan says, and that only the plan's paths say.
    said: f32,
    in_paths: f32,
    /// Words of its globs that the plan says.
    folders: f32,
    /// How many of its keywords the plan says, and how much the best of them says.
    keywords: u8,
    best_keyword: f32,
    /// How many are only said together with the plan's paths.
    keywords_in_paths: u8,
    /// How precise the best glob is that a planned file is under.
    precision: f32,
    /// How many planned files are under its globs, at most.
    files: u8,
}

/// What counts how much in the ranking. Found with the whole labelled set in `eval/knowledge`:
/// decision 0009.
mod weight {
    pub(super) const SAID: f32 = 0.8;
    pub(super) const IN_PATHS: f32 = 0.8;
    pub(super) const FOLDERS: f32 = 1.1;
    pub(super) const KEYWORD: f32 = 1.5;
    pub(super) const BEST_KEYWORD: f32 = 2.6;
    pub(super) const KEYWORD_IN_PATHS: f32 = 2.5;
    pub(super) const PATH_HOLDS: f32 = 1.8;
    pub(super) const PATH_FAILS: f32 = -0.62;
    pub(super) const PRECISION: f32 = 0.47;
    pub(super) const FILES: f32 = 0.75;
    pub(super) const TYPE_HOLDS: f32 = 2.39;
    pub(super) const TYPE_FAILS: f32 = -0.79;
    /// How much of the best entry's score the others are measured against.
    pub(super) const BEST: f32 = 0.22;
    /// The score that is half of what can be had.
    pub(super) const HALF: f32 = 0.5;
}

impl Index {
    /// An index of entries. One id counts once.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut index = Self::default();
        // In one order, so that the same entries give the same figures to the last digit.
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        for entry in entries {
            index.add(entry);
        }
        index.weigh();
        index
    }

    fn add(&mut self, entry: Entry) {
        let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.by_id.insert(entry.id, at);
        for glob in &entry.globs {
            self.globs.add(glob, at);
        }
        let pattern = entry.pattern.as_ref().map(|pattern| self.patterns.add(pattern));
        let forbids = entry.kind == Kind::Prohibition;
        let is_narrow = !entry.globs.is_empty() || !entry.keywords.is_empty();
        let has_condition = pattern.is_some() || !entry.task_types.is_empty();
        let is_always = if forbids { has_condition && !is_narrow } else { pattern.is_some() };
        if is_always {
            self.always.push(at);
            // Whoever makes the index waits for what every check needs, and no check does.
            pattern.inspect(|pattern| self.patterns.prepare(*pattern));
        }
        self.post(&entry, at);
        self.entries.push(Ready { is_ranked: !forbids, entry, pattern, is_always });
    }

    fn post(&mut self, entry: &Entry, at: u32) {
        let text: BTreeSet<u32> = self.stems.numbers_of(&entry.text).into_iter().collect();
        let in_globs = entry.globs.iter().flat_map(|glob| self.stems.numbers_of(glob));
        let in_globs: BTreeSet<u32> = in_globs.collect();
        let mut having: BTreeSet<u32> = text.union(&in_globs).copied().collect();
        for (number, keyword) in entry.keywords.iter().enumerate() {
            let stems = self.stems.numbers_of(keyword);
            having.extend(&stems);
            if entry.kind == Kind::Prohibition {
                self.keywords.add(keyword, at);
            } else if let Some(first) = stems.first() {
                let same = self.ranked_keywords.entry(*first).or_default();
                let holder = (at, u16::try_from(number).unwrap_or(u16::MAX));
                match same.iter_mut().find(|it| it.stems == stems) {
                    Some(it) => it.entries.push(holder),
                    None => same.push(RankedKeyword { stems, entries: vec![holder] }),
                }
            }
        }
        self.postings.resize_with(self.stems.len(), Posting::default);
        for stem in having {
            self.postings[stem as usize].having += 1;
        }
        for stem in text {
            self.postings[stem as usize].texts.push(at);
        }
        for stem in in_globs {
            self.postings[stem as usize].globs.push(at);
        }
    }

    /// Finds out how rare each stem is. It is a share of the rarest there can be, so that the same
    /// score means the same among ten entries and among ten thousand.
    fn weigh(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
        let all = self.entries.len() as f32;
        for posting in &mut self.postings {
            #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
            let having = posting.having as f32;
            let rare = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            posting.rare = (rare / (1.0 + all).ln()).min(1.0);
        }
    }

    /// An entry.
    pub fn entry(&self, id: KnowledgeId) -> Option<&Entry> {
        self.by_id.get(&id).and_then(|at| self.entries.get(*at as usize)).map(|it| &it.entry)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|ready| &ready.entry)
    }

    /// The entries that share the most with a text, whatever their status; the best first.
    pub fn search(&self, text: &str, limit: usize) -> Vec<KnowledgeId> {
        let words = self.stems.known_in(text).into_iter().map(|stem| (stem, 1.0)).collect();
        let said = Said { words, only_in_paths: Vec::new() };
        let mut found: Vec<_> = self.tallies(&said).into_iter().enumerate().collect();
        found.retain(|(_, tally)| tally.shared() > 0.0);
        found
            .sort_by(|(a, one), (b, other)| other.shared().total_cmp(&one.shared()).then(a.cmp(b)));
        let found = found.into_iter().take(limit);
        found.filter_map(|(at, _)| self.entries.get(at)).map(|ready| ready.entry.id).collect()
    }

    /// Holds a task and its plan against the entries that are in force.
    pub fn check(&self, task: &Task, plan: &Plan, now: DateTime<Utc>, rules: &Rules) -> Findings {
        self.check_with(task, plan, now, rules, &[])
    }

    /// The same, where a model has also told which entries mean the most like the plan
    /// ([`meaning::nearest`]); the nearest first, and nothing where there is no model.
    pub fn check_with(
        &self,
        task: &Task,
        plan: &Plan,
        now: DateTime<Utc>,
        rules: &Rules,
        near: &[KnowledgeId],
    ) -> Findings {
        let check = Check::new(self, Subject::of(task, plan), now);
        let mut findings = Findings::default();
        check.prohibitions(&mut findings);
        let enough = rules.scrum_master.learning_capture.min_relevance_score;
        check.rank(enough, near, &mut findings);
        findings
    }

    /// What each entry shares with what is said, by its words alone.
    fn tallies(&self, said: &Said) -> Vec<Tally> {
        let mut tallies = vec![Tally::default(); self.entries.len()];
        for (stem, weight) in &said.words {
            let Some(posting) = self.postings.get(*stem as usize) else { continue };
            for at in &posting.texts {
                tallies[*at as usize].said += posting.rare * weight;
            }
            for at in &posting.globs {
                tallies[*at as usize].folders += posting.rare;
            }
        }
        for stem in &said.only_in_paths {
            let Some(posting) = self.postings.get(*stem as usize) else { continue };
            for at in &posting.texts {
                tallies[*at as usize].in_paths += posting.rare;
            }
        }
        let firsts = said.words.keys().chain(&said.only_in_paths);
        for keyword in firsts.filter_map(|stem| self.ranked_keywords.get(stem)).flatten() {
            if said.has_all(&keyword.stems) {
                let rare =
                    keyword.stems.iter().map(|stem| self.postings[*stem as usize].rare).sum();
                for (at, _) in &keyword.entries {
                    let tally = &mut tallies[*at as usize];
                    tally.keywords = tally.keywords.saturating_add(1).min(3);
                    tally.best_keyword = tally.best_keyword.max(rare);
                }
            } else if said.has_all_with_paths(&keyword.stems) {
                for (at, _) in &keyword.entries {
                    let tally = &mut tallies[*at as usize];
                    tally.keywords_in_paths = tally.keywords_in_paths.saturating_add(1).min(3);
                }
            }
        }
        tallies
    }
}

/// One plan, held against an index.
struct Check<'a> {
    index: &'a Index,
    subject: Subject<'a>,
    said: Said,
    now: DateTime<Utc>,
    /// For each entry with a glob that a planned file is under, why; also where a glob is none.
    paths: BTreeMap<u32, Vec<MatchReason>>,
    tallies: Vec<Tally>,
}

impl<'a> Check<'a> {
    fn new(index: &'a Index, subject: Subject<'a>, now: DateTime<Utc>) -> Self {
        let said = subject.said(&index.stems);
        let mut tallies = index.tallies(&said);
        let mut paths: BTreeMap<u32, Vec<MatchReason>> = BTreeMap::new();
        for (glob, files) in index.globs.over(subject.files) {
            for at in &glob.entries {
                let Some(ready) = index.entries.get(*at as usize) else { continue };
                let actions = &ready.entry.actions;
                let concerned =
                    |it: &&&FileChange| actions.is_empty() || actions.contains(&it.action);
                let under: Vec<_> = files.iter().filter(concerned).collect();
                if under.is_empty() && glob.is_readable() {
                    continue;
                }
                let tally = &mut tallies[*at as usize];
                tally.precision = tally.precision.max(glob.precision);
                tally.files = tally.files.max(u8::try_from(under.len()).unwrap_or(u8::MAX));
                let reasons = paths.entry(*at).or_default();
                if !glob.is_readable() {
                    reasons.push(MatchReason::Undecidable { condition: glob.text.clone() });
                }
                reasons.extend(under.into_iter().map(|file| MatchReason::Path {
                    glob: glob.text.clone(),
                    path: file.path.clone(),
                }));
            }
        }
        Self { index, subject, said, now, paths, tallies }
    }

    fn in_force(&self, entry: &Entry) -> bool {
        entry.is_in_force(self.subject.task.project, self.now)
    }

    /// Which prohibitions the plan breaks.
    fn prohibitions(&self, findings: &mut Findings) {
        let mut named: BTreeMap<u32, Vec<MatchReason>> = BTreeMap::new();
        for keyword in self.index.keywords.named_by(&self.subject) {
            for at in &keyword.entries {
                let reason = MatchReason::Keyword(keyword.text.clone());
                named.entry(*at).or_default().push(reason);
            }
        }
        let candidates: BTreeSet<u32> =
            self.paths.keys().chain(named.keys()).chain(&self.index.always).copied().collect();
        for at in candidates {
            let Some(ready) = self.index.entries.get(at as usize) else { continue };
            let entry = &ready.entry;
            if entry.kind != Kind::Prohibition || !self.in_force(entry) {
                continue;
            }
            let Some(reasons) = self.forbidden(at, ready, named.get(&at)) else { continue };
            let found = Match { entry: entry.id, reasons, relevance: 100 };
            match entry.severity {
                Severity::Critical => findings.blockers.push(found),
                Severity::Low | Severity::Medium | Severity::High => findings.warnings.push(found),
            }
        }
        findings.blockers.sort_by_key(|found| found.entry);
        findings.warnings.sort_by_key(|found| found.entry);
    }

    /// Why the plan does what a prohibition forbids, if it does: every kind of condition must hold.
    fn forbidden(
        &self,
        at: u32,
        ready: &Ready,
        named: Option<&Vec<MatchReason>>,
    ) -> Option<Vec<MatchReason>> {
        let entry = &ready.entry;
        let mut reasons = Vec::new();
        if !entry.globs.is_empty() {
            reasons.extend(self.paths.get(&at)?.iter().cloned());
        }
        let r#type = self.subject.task.r#type;
        if !entry.task_types.is_empty() {
            reasons
                .push(entry.task_types.contains(&r#type).then_some(MatchReason::TaskType(r#type))?);
        }
        if !entry.keywords.is_empty() {
            reasons.extend(named?.iter().cloned());
        }
        if let Some(pattern) = ready.pattern {
            let found = self.index.patterns.described_by(pattern, &self.subject);
            if found.is_empty() {
                return None;
            }
            reasons.extend(found);
        }
        Some(reasons)
    }

    /// The other entries, the most relevant first.
    fn rank(&self, enough: u8, near: &[KnowledgeId], findings: &mut Findings) {
        // Where the order may still change, what is not relevant by its words stays in.
        let least = if near.is_empty() { enough.max(1) } else { 1 };
        let mut scored: Vec<(f32, u32)> = Vec::new();
        let mut best = 0.0;
        for (at, ready) in (0..).zip(&self.index.entries) {
            if !ready.is_ranked {
                continue;
            }
            let found = if ready.is_always { self.described(ready) } else { Vec::new() };
            if self.is_undecided(at) || found.iter().any(is_undecidable) {
                self.warn(at, ready, findings);
                continue;
            }
            let score = self.score(at, ready, !found.is_empty());
            // Whether it is in force is asked last: of many entries, few get so far.
            if share(score - weight::BEST * best) >= least && self.in_force(&ready.entry) {
                best = score.max(best);
                scored.push((score, at));
            }
        }
        scored.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        let mut relevant: BTreeMap<Kind, Vec<(u8, u32)>> = BTreeMap::new();
        for (score, at) in scored {
            let Some(ready) = self.index.entries.get(at as usize) else { continue };
            let relevance = share(score - weight::BEST * best);
            relevant.entry(ready.entry.kind).or_default().push((relevance, at));
        }
        for (kind, list) in [
            (Kind::Recommendation, &mut findings.recommendations),
            (Kind::Convention, &mut findings.conventions),
            (Kind::Learning, &mut findings.learnings),
        ] {
            let mut ranked = relevant.remove(&kind).unwrap_or_default();
            if !near.is_empty() {
                ranked = meaning::fused(&ranked, &self.near_of(kind, near));
            }
            let listed = ranked.into_iter().filter(|(it, _)| *it >= enough.max(1)).take(LISTED);
            list.extend(listed.filter_map(|(relevance, at)| {
                let ready = self.index.entries.get(at as usize)?;
                let reasons = self.reasons(at, ready);
                Some(Match { entry: ready.entry.id, reasons, relevance })
            }));
        }
    }

    /// An entry that nobody can decide is shown as a warning, whatever it is.
    fn warn(&self, at: u32, ready: &Ready, findings: &mut Findings) {
        if self.in_force(&ready.entry) {
            let reasons = self.reasons(at, ready);
            findings.warnings.push(Match { entry: ready.entry.id, reasons, relevance: 0 });
        }
    }

    /// The entries of a kind that are in force, of those that mean the most like the plan.
    fn near_of(&self, kind: Kind, near: &[KnowledgeId]) -> Vec<u32> {
        let places = near.iter().filter_map(|id| self.index.by_id.get(id).copied());
        let of_kind = places.filter(|at| {
            let ready = self.index.entries.get(*at as usize);
            ready.is_some_and(|it| it.entry.kind == kind && self.in_force(&it.entry))
        });
        of_kind.take(LISTED).collect()
    }

    /// Whether a glob of an entry cannot be read.
    fn is_undecided(&self, at: u32) -> bool {
        self.paths.get(&at).is_some_and(|reasons| reasons.iter().any(is_undecidable))
    }

    fn described(&self, ready: &Ready) -> Vec<MatchReason> {
        let found = |pattern| self.index.patterns.described_by(pattern, &self.subject);
        ready.pattern.map(found).unwrap_or_default()
    }

    /// How much an entry has to say to the plan.
    fn score(&self, at: u32, ready: &Ready, described: bool) -> f32 {
        let entry = &ready.entry;
        let tally = &self.tallies[at as usize];
        let mut score = tally.shared();
        if !entry.globs.is_empty() {
            score += if tally.files == 0 {
                weight::PATH_FAILS
            } else {
                #[expect(clippy::cast_precision_loss, reason = "a count of files")]
                let files = f32::from(tally.files) / self.subject.files.len().max(1) as f32;
                weight::PATH_HOLDS
                    + weight::PRECISION * tally.precision
                    + weight::FILES * files.min(1.0)
            };
        }
        if !entry.task_types.is_empty() {
            let holds = entry.task_types.contains(&self.subject.task.r#type);
            score += if holds { weight::TYPE_HOLDS } else { weight::TYPE_FAILS };
        }
        if described { score + weight::PATH_HOLDS } else { score }
    }

    fn reasons(&self, at: u32, ready: &Ready) -> Vec<MatchReason> {
        let entry = &ready.entry;
        let mut reasons = self.paths.get(&at).cloned().unwrap_or_default();
        let r#type = self.subject.task.r#type;
        reasons.extend(entry.task_types.contains(&r#type).then_some(MatchReason::TaskType(r#type)));
        let named = entry.keywords.iter().filter(|keyword| {
            let stems = self.index.stems.known_in(keyword);
            !stems.is_empty() && self.said.has_all_with_paths(&stems)
        });
        reasons.extend(named.map(|keyword| MatchReason::Keyword(keyword.clone())));
        reasons.extend(self.described(ready));
        if reasons.is_empty() {
            // Where it shares no word either, a model has found that it means the same.
            reasons.push(self.shared_words(entry).unwrap_or(MatchReason::Meaning));
        }
        reasons
    }

    /// The words that speak most for an entry which has no condition that holds.
    fn shared_words(&self, entry: &Entry) -> Option<MatchReason> {
        let mut shared: Vec<(f32, String)> = Vec::new();
        for word in super::words(&entry.text) {
            let stems = self.index.stems.known_in(&word);
            if !stems.is_empty() && self.said.has_all_with_paths(&stems) {
                let rare = stems.iter().map(|it| self.index.postings[*it as usize].rare).sum();
                if !shared.iter().any(|(_, known)| *known == word) {
                    shared.push((rare, word));
                }
            }
        }
        shared.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        let words: Vec<String> = shared.into_iter().take(3).map(|(_, word)| word).collect();
        (!words.is_empty()).then_some(MatchReason::Words(words))
    }
}

impl Tally {
    /// How much its words have in common with what is said.
    fn shared(&self) -> f32 {
        weight::SAID * self.said
            + weight::IN_PATHS * self.in_paths
            + weight::FOLDERS * self.folders
            + weight::KEYWORD * f32::from(self.keywords)
            + weight::BEST_KEYWORD * self.best_keyword
            + weight::KEYWORD_IN_PATHS * f32::from(self.keywords_in_paths)
    }
}

fn is_undecidable(reason: &MatchReason) -> bool {
    matches!(reason, MatchReason::Undecidable { .. })
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
