//! Index of entries, built once and used to check many plans.
//!
//! Conditions alone decide whether a prohibition matches. Other entries are ranked by the words
//! they share with the plan, weighted by rarity, and by how many of their conditions match. An
//! index is immutable; build a new one if the entries change.
//!
//! A check starts from the plan: its words, paths and identifiers lead to related entries, so
//! unrelated entries cost almost nothing.

mod conditions;
mod plan_text;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

pub(super) use self::conditions::parse_glob;
use self::conditions::{GlobIndex, KeywordIndex, PatternIndex};
use self::plan_text::{PlanTerms, PlanText};
use super::stems::StemIndex;
use super::{
    EntryKind, EntryMatch, EntrySeverity, KnowledgeEntry, KnowledgeFindings, MatchReason,
    embeddings,
};
use crate::ids::KnowledgeId;
use crate::plan::{FileChange, Plan};
use crate::rules::Rules;
use crate::task::Task;

/// Most entries of a kind that a check lists. Nobody reads longer lists.
const MAX_LISTED: usize = 20;

/// Index of entries, for checking plans.
#[derive(Debug, Default)]
pub struct KnowledgeIndex {
    entries: Vec<IndexedEntry>,
    by_id: BTreeMap<KnowledgeId, u32>,
    stems: StemIndex,
    /// Weight of each stem, and the entries that have it in their text or globs.
    postings: Vec<Posting>,
    globs: GlobIndex,
    /// Keywords of prohibitions, which must match exactly.
    keywords: KeywordIndex,
    /// Keywords of other entries, by their first stem.
    ranked_keywords: BTreeMap<u32, Vec<RankedKeyword>>,
    patterns: PatternIndex,
    /// Prohibitions without paths and keywords, and other entries with a pattern. They are checked
    /// every time.
    always_checked: Vec<u32>,
}

/// Entry with everything needed to match it.
#[derive(Debug)]
struct IndexedEntry {
    entry: KnowledgeEntry,
    pattern: Option<u32>,
    is_always_checked: bool,
    is_ranked: bool,
}

#[derive(Debug, Default)]
struct Posting {
    /// Rarity, 0 to 1.
    rarity: f32,
    /// Number of entries that contain it.
    entry_count: u32,
    texts: Vec<u32>,
    globs: Vec<u32>,
}

#[derive(Debug)]
struct RankedKeyword {
    stems: Vec<u32>,
    /// Entries, each with the index of its keyword.
    entries: Vec<(u32, u16)>,
}

/// Scores of one entry against a plan.
#[derive(Debug, Clone, Copy, Default)]
struct MatchScores {
    /// Weight of text words that the plan mentions, and of those that only its paths contain.
    text_words: f32,
    in_paths: f32,
    /// Weight of glob words that the plan mentions.
    glob_words: f32,
    /// Keywords that the plan mentions, and the weight of the best one.
    keywords: u8,
    best_keyword: f32,
    /// Keywords that match only together with the plan's paths.
    keywords_in_paths: u8,
    /// Precision of the best glob that matches a planned file.
    precision: f32,
    /// Largest number of planned files that match its globs.
    files: u8,
}

/// Weights of the ranking, tuned on all labelled plans in `lab/inputs/knowledge`: decision 0009.
mod weight {
    pub(super) const TEXT_WORDS: f32 = 0.8;
    pub(super) const IN_PATHS: f32 = 0.8;
    pub(super) const GLOB_WORDS: f32 = 1.1;
    pub(super) const KEYWORD: f32 = 1.5;
    pub(super) const BEST_KEYWORD: f32 = 2.6;
    pub(super) const KEYWORD_IN_PATHS: f32 = 2.5;
    pub(super) const PATH_HOLDS: f32 = 1.8;
    pub(super) const PATH_FAILS: f32 = -0.62;
    pub(super) const PRECISION: f32 = 0.47;
    pub(super) const FILES: f32 = 0.75;
    pub(super) const TYPE_HOLDS: f32 = 2.39;
    pub(super) const TYPE_FAILS: f32 = -0.79;
    /// Share of the best entry's score that is subtracted from the others.
    pub(super) const BEST_SHARE: f32 = 0.22;
    /// Score that corresponds to 50% relevance.
    pub(super) const HALF_SCORE: f32 = 0.5;
}

impl KnowledgeIndex {
    /// Builds an index. Duplicate IDs count once.
    pub fn new(entries: impl IntoIterator<Item = KnowledgeEntry>) -> Self {
        let mut index = Self::default();
        // Sort, so that the same entries give exactly the same scores.
        let mut entries: Vec<KnowledgeEntry> = entries.into_iter().collect();
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        for entry in entries {
            index.add(entry);
        }
        index.compute_rarity();
        index
    }

    fn add(&mut self, entry: KnowledgeEntry) {
        let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.by_id.insert(entry.id, at);
        for glob in &entry.globs {
            self.globs.add(glob, at);
        }
        let pattern = entry.pattern.as_ref().map(|pattern| self.patterns.add(pattern));
        let forbids = entry.kind == EntryKind::Prohibition;
        let is_narrow = !entry.globs.is_empty() || !entry.keywords.is_empty();
        let has_condition = pattern.is_some() || !entry.task_types.is_empty();
        let is_always = if forbids { has_condition && !is_narrow } else { pattern.is_some() };
        if is_always {
            self.always_checked.push(at);
            // Compile now, so that no check has to wait for it.
            pattern.inspect(|pattern| self.patterns.compile(*pattern));
        }
        self.index_terms(&entry, at);
        self.entries.push(IndexedEntry {
            is_ranked: !forbids,
            entry,
            pattern,
            is_always_checked: is_always,
        });
    }

    fn index_terms(&mut self, entry: &KnowledgeEntry, at: u32) {
        let text: BTreeSet<u32> = self.stems.add_text(&entry.text).into_iter().collect();
        let in_globs = entry.globs.iter().flat_map(|glob| self.stems.add_text(glob));
        let in_globs: BTreeSet<u32> = in_globs.collect();
        let mut all_stems: BTreeSet<u32> = text.union(&in_globs).copied().collect();
        for (number, keyword) in entry.keywords.iter().enumerate() {
            let stems = self.stems.add_text(keyword);
            all_stems.extend(&stems);
            if entry.kind == EntryKind::Prohibition {
                self.keywords.add(keyword, at);
            } else if let Some(first) = stems.first() {
                let keywords = self.ranked_keywords.entry(*first).or_default();
                let occurrence = (at, u16::try_from(number).unwrap_or(u16::MAX));
                match keywords.iter_mut().find(|ranked| ranked.stems == stems) {
                    Some(ranked) => ranked.entries.push(occurrence),
                    None => keywords.push(RankedKeyword { stems, entries: vec![occurrence] }),
                }
            }
        }
        self.postings.resize_with(self.stems.len(), Posting::default);
        for stem in all_stems {
            self.postings[stem as usize].entry_count += 1;
        }
        for stem in text {
            self.postings[stem as usize].texts.push(at);
        }
        for stem in in_globs {
            self.postings[stem as usize].globs.push(at);
        }
    }

    /// Computes the rarity of each stem, relative to the highest possible one. A score then means
    /// the same among 10 and 10,000 entries.
    fn compute_rarity(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
        let all = self.entries.len() as f32;
        for posting in &mut self.postings {
            #[expect(clippy::cast_precision_loss, reason = "a count of entries")]
            let count = posting.entry_count as f32;
            let rarity = (1.0 + (all - count + 0.5) / (count + 0.5)).ln();
            posting.rarity = (rarity / (1.0 + all).ln()).min(1.0);
        }
    }

    /// Returns the entry with this ID.
    pub fn entry(&self, id: KnowledgeId) -> Option<&KnowledgeEntry> {
        self.by_id
            .get(&id)
            .and_then(|at| self.entries.get(*at as usize))
            .map(|indexed| &indexed.entry)
    }

    /// Returns all entries.
    pub fn entries(&self) -> impl Iterator<Item = &KnowledgeEntry> {
        self.entries.iter().map(|indexed| &indexed.entry)
    }

    /// Returns the entries of any status that share the most with a text, best first.
    pub fn search(&self, text: &str, limit: usize) -> Vec<KnowledgeId> {
        let words = self.stems.lookup(text).into_iter().map(|stem| (stem, 1.0)).collect();
        let terms = PlanTerms { words, only_in_paths: Vec::new() };
        let mut ranked: Vec<_> = self.score_terms(&terms).into_iter().enumerate().collect();
        ranked.retain(|(_, scores)| scores.term_score() > 0.0);
        ranked.sort_by(|(a, one), (b, other)| {
            other.term_score().total_cmp(&one.term_score()).then(a.cmp(b))
        });
        let ranked = ranked.into_iter().take(limit);
        ranked.filter_map(|(at, _)| self.entries.get(at)).map(|indexed| indexed.entry.id).collect()
    }

    /// Checks a task and its plan against the entries in effect.
    pub fn check(
        &self,
        task: &Task,
        plan: &Plan,
        now: DateTime<Utc>,
        rules: &Rules,
    ) -> KnowledgeFindings {
        self.check_with_nearest(task, plan, now, rules, &[])
    }

    /// Like [`KnowledgeIndex::check`], with the entries whose embeddings are nearest to the plan
    /// ([`embeddings::nearest_entries`]), nearest first. Empty without a model.
    pub fn check_with_nearest(
        &self,
        task: &Task,
        plan: &Plan,
        now: DateTime<Utc>,
        rules: &Rules,
        nearest: &[KnowledgeId],
    ) -> KnowledgeFindings {
        let check = PlanCheck::new(self, PlanText::new(task, plan), now);
        let mut findings = KnowledgeFindings::default();
        check.find_violations(&mut findings);
        let min_relevance = rules.scrum_master.learning_capture.min_relevance_score;
        check.rank_entries(min_relevance, nearest, &mut findings);
        findings
    }

    /// Scores all entries by the words they share with the plan.
    fn score_terms(&self, terms: &PlanTerms) -> Vec<MatchScores> {
        let mut scores = vec![MatchScores::default(); self.entries.len()];
        for (stem, weight) in &terms.words {
            let Some(posting) = self.postings.get(*stem as usize) else { continue };
            for at in &posting.texts {
                scores[*at as usize].text_words += posting.rarity * weight;
            }
            for at in &posting.globs {
                scores[*at as usize].glob_words += posting.rarity;
            }
        }
        for stem in &terms.only_in_paths {
            let Some(posting) = self.postings.get(*stem as usize) else { continue };
            for at in &posting.texts {
                scores[*at as usize].in_paths += posting.rarity;
            }
        }
        let firsts = terms.words.keys().chain(&terms.only_in_paths);
        for keyword in firsts.filter_map(|stem| self.ranked_keywords.get(stem)).flatten() {
            if terms.has_all(&keyword.stems) {
                let rarity =
                    keyword.stems.iter().map(|stem| self.postings[*stem as usize].rarity).sum();
                for (at, _) in &keyword.entries {
                    let entry_scores = &mut scores[*at as usize];
                    entry_scores.keywords = entry_scores.keywords.saturating_add(1).min(3);
                    entry_scores.best_keyword = entry_scores.best_keyword.max(rarity);
                }
            } else if terms.has_all_with_paths(&keyword.stems) {
                for (at, _) in &keyword.entries {
                    let entry_scores = &mut scores[*at as usize];
                    entry_scores.keywords_in_paths =
                        entry_scores.keywords_in_paths.saturating_add(1).min(3);
                }
            }
        }
        scores
    }
}

/// Check of one plan.
struct PlanCheck<'a> {
    index: &'a KnowledgeIndex,
    subject: PlanText<'a>,
    terms: PlanTerms,
    now: DateTime<Utc>,
    /// Path matches by entry, including invalid globs.
    paths: BTreeMap<u32, Vec<MatchReason>>,
    scores: Vec<MatchScores>,
}

impl<'a> PlanCheck<'a> {
    fn new(index: &'a KnowledgeIndex, subject: PlanText<'a>, now: DateTime<Utc>) -> Self {
        let terms = subject.terms(&index.stems);
        let mut scores = index.score_terms(&terms);
        let mut paths: BTreeMap<u32, Vec<MatchReason>> = BTreeMap::new();
        for (glob, files) in index.globs.matching(subject.files) {
            for at in &glob.entries {
                let Some(indexed) = index.entries.get(*at as usize) else { continue };
                let actions = &indexed.entry.actions;
                let is_concerned =
                    |file: &&&FileChange| actions.is_empty() || actions.contains(&file.action);
                let matching_files: Vec<_> = files.iter().filter(is_concerned).collect();
                if matching_files.is_empty() && glob.is_valid() {
                    continue;
                }
                let entry_scores = &mut scores[*at as usize];
                entry_scores.precision = entry_scores.precision.max(glob.precision);
                entry_scores.files =
                    entry_scores.files.max(u8::try_from(matching_files.len()).unwrap_or(u8::MAX));
                let reasons = paths.entry(*at).or_default();
                if !glob.is_valid() {
                    reasons.push(MatchReason::Undecidable { condition: glob.text.clone() });
                }
                reasons.extend(matching_files.into_iter().map(|file| MatchReason::Path {
                    glob: glob.text.clone(),
                    path: file.path.clone(),
                }));
            }
        }
        Self { index, subject, terms, now, paths, scores }
    }

    fn is_in_force(&self, entry: &KnowledgeEntry) -> bool {
        entry.is_in_force(self.subject.task.project, self.now)
    }

    /// Finds prohibitions that the plan violates.
    fn find_violations(&self, findings: &mut KnowledgeFindings) {
        let mut keyword_matches: BTreeMap<u32, Vec<MatchReason>> = BTreeMap::new();
        for keyword in self.index.keywords.mentioned_in(&self.subject) {
            for at in &keyword.entries {
                let reason = MatchReason::Keyword(keyword.text.clone());
                keyword_matches.entry(*at).or_default().push(reason);
            }
        }
        let candidates: BTreeSet<u32> = self
            .paths
            .keys()
            .chain(keyword_matches.keys())
            .chain(&self.index.always_checked)
            .copied()
            .collect();
        for at in candidates {
            let Some(indexed) = self.index.entries.get(at as usize) else { continue };
            let entry = &indexed.entry;
            if entry.kind != EntryKind::Prohibition || !self.is_in_force(entry) {
                continue;
            }
            let Some(reasons) = self.violation_reasons(at, indexed, keyword_matches.get(&at))
            else {
                continue;
            };
            let entry_match = EntryMatch { entry: entry.id, reasons, relevance: 100 };
            match entry.severity {
                EntrySeverity::Critical => findings.blockers.push(entry_match),
                EntrySeverity::Low | EntrySeverity::Medium | EntrySeverity::High => {
                    findings.warnings.push(entry_match);
                }
            }
        }
        findings.blockers.sort_by_key(|entry_match| entry_match.entry);
        findings.warnings.sort_by_key(|entry_match| entry_match.entry);
    }

    /// Returns the reasons if the plan violates a prohibition: every kind of condition must match.
    fn violation_reasons(
        &self,
        at: u32,
        indexed: &IndexedEntry,
        keyword_matches: Option<&Vec<MatchReason>>,
    ) -> Option<Vec<MatchReason>> {
        let entry = &indexed.entry;
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
            reasons.extend(keyword_matches?.iter().cloned());
        }
        if let Some(pattern) = indexed.pattern {
            let matches = self.index.patterns.matches_in(pattern, &self.subject);
            if matches.is_empty() {
                return None;
            }
            reasons.extend(matches);
        }
        Some(reasons)
    }

    /// Ranks the other entries, most relevant first.
    fn rank_entries(
        &self,
        min_relevance: u8,
        nearest: &[KnowledgeId],
        findings: &mut KnowledgeFindings,
    ) {
        // Embeddings can change the order, so keep entries that are not relevant by words.
        let threshold = if nearest.is_empty() { min_relevance.max(1) } else { 1 };
        let mut scored: Vec<(f32, u32)> = Vec::new();
        let mut best = 0.0;
        for (at, indexed) in (0..).zip(&self.index.entries) {
            if !indexed.is_ranked {
                continue;
            }
            let matches =
                if indexed.is_always_checked { self.pattern_matches(indexed) } else { Vec::new() };
            if self.has_invalid_glob(at) || matches.iter().any(is_undecidable) {
                self.add_warning(at, indexed, findings);
                continue;
            }
            let score = self.score(at, indexed, !matches.is_empty());
            // Checked last, because few entries get this far.
            if to_percent(score - weight::BEST_SHARE * best) >= threshold
                && self.is_in_force(&indexed.entry)
            {
                best = score.max(best);
                scored.push((score, at));
            }
        }
        scored.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        let mut relevant: BTreeMap<EntryKind, Vec<(u8, u32)>> = BTreeMap::new();
        for (score, at) in scored {
            let Some(indexed) = self.index.entries.get(at as usize) else { continue };
            let relevance = to_percent(score - weight::BEST_SHARE * best);
            relevant.entry(indexed.entry.kind).or_default().push((relevance, at));
        }
        for (kind, list) in [
            (EntryKind::Recommendation, &mut findings.recommendations),
            (EntryKind::Convention, &mut findings.conventions),
            (EntryKind::Learning, &mut findings.learnings),
        ] {
            let mut ranked = relevant.remove(&kind).unwrap_or_default();
            if !nearest.is_empty() {
                ranked = embeddings::fuse_rankings(&ranked, &self.nearest_of_kind(kind, nearest));
            }
            let listed = ranked
                .into_iter()
                .filter(|(relevance, _)| *relevance >= min_relevance.max(1))
                .take(MAX_LISTED);
            list.extend(listed.filter_map(|(relevance, at)| {
                let indexed = self.index.entries.get(at as usize)?;
                let reasons = self.match_reasons(at, indexed);
                Some(EntryMatch { entry: indexed.entry.id, reasons, relevance })
            }));
        }
    }

    /// Reports an undecidable entry as a warning, for any kind.
    fn add_warning(&self, at: u32, indexed: &IndexedEntry, findings: &mut KnowledgeFindings) {
        if self.is_in_force(&indexed.entry) {
            let reasons = self.match_reasons(at, indexed);
            findings.warnings.push(EntryMatch { entry: indexed.entry.id, reasons, relevance: 0 });
        }
    }

    /// Returns the entries of a kind that are in effect, among the nearest ones.
    fn nearest_of_kind(&self, kind: EntryKind, nearest: &[KnowledgeId]) -> Vec<u32> {
        let positions = nearest.iter().filter_map(|id| self.index.by_id.get(id).copied());
        let of_kind = positions.filter(|at| {
            let indexed = self.index.entries.get(*at as usize);
            indexed.is_some_and(|indexed| {
                indexed.entry.kind == kind && self.is_in_force(&indexed.entry)
            })
        });
        of_kind.take(MAX_LISTED).collect()
    }

    /// Returns true if a glob of an entry is invalid.
    fn has_invalid_glob(&self, at: u32) -> bool {
        self.paths.get(&at).is_some_and(|reasons| reasons.iter().any(is_undecidable))
    }

    fn pattern_matches(&self, indexed: &IndexedEntry) -> Vec<MatchReason> {
        let matches = |pattern| self.index.patterns.matches_in(pattern, &self.subject);
        indexed.pattern.map(matches).unwrap_or_default()
    }

    /// Computes the score of an entry.
    fn score(&self, at: u32, indexed: &IndexedEntry, matches_pattern: bool) -> f32 {
        let entry = &indexed.entry;
        let scores = &self.scores[at as usize];
        let mut score = scores.term_score();
        if !entry.globs.is_empty() {
            score += if scores.files == 0 {
                weight::PATH_FAILS
            } else {
                #[expect(clippy::cast_precision_loss, reason = "a count of files")]
                let files = f32::from(scores.files) / self.subject.files.len().max(1) as f32;
                weight::PATH_HOLDS
                    + weight::PRECISION * scores.precision
                    + weight::FILES * files.min(1.0)
            };
        }
        if !entry.task_types.is_empty() {
            let holds = entry.task_types.contains(&self.subject.task.r#type);
            score += if holds { weight::TYPE_HOLDS } else { weight::TYPE_FAILS };
        }
        if matches_pattern { score + weight::PATH_HOLDS } else { score }
    }

    fn match_reasons(&self, at: u32, indexed: &IndexedEntry) -> Vec<MatchReason> {
        let entry = &indexed.entry;
        let mut reasons = self.paths.get(&at).cloned().unwrap_or_default();
        let r#type = self.subject.task.r#type;
        reasons.extend(entry.task_types.contains(&r#type).then_some(MatchReason::TaskType(r#type)));
        let keywords = entry.keywords.iter().filter(|keyword| {
            let stems = self.index.stems.lookup(keyword);
            !stems.is_empty() && self.terms.has_all_with_paths(&stems)
        });
        reasons.extend(keywords.map(|keyword| MatchReason::Keyword(keyword.clone())));
        reasons.extend(self.pattern_matches(indexed));
        if reasons.is_empty() {
            // Without a shared word, the embeddings made it match.
            reasons.push(self.shared_words(entry).unwrap_or(MatchReason::Embedding));
        }
        reasons
    }

    /// Returns the shared words with the highest weight, for an entry without a matching condition.
    fn shared_words(&self, entry: &KnowledgeEntry) -> Option<MatchReason> {
        let mut shared: Vec<(f32, String)> = Vec::new();
        for word in super::split_words(&entry.text) {
            let stems = self.index.stems.lookup(&word);
            if !stems.is_empty() && self.terms.has_all_with_paths(&stems) {
                let rarity =
                    stems.iter().map(|stem| self.index.postings[*stem as usize].rarity).sum();
                if !shared.iter().any(|(_, other)| *other == word) {
                    shared.push((rarity, word));
                }
            }
        }
        shared.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        let words: Vec<String> = shared.into_iter().take(3).map(|(_, word)| word).collect();
        (!words.is_empty()).then_some(MatchReason::Words(words))
    }
}

impl MatchScores {
    /// Returns the weight of all shared words.
    fn term_score(&self) -> f32 {
        weight::TEXT_WORDS * self.text_words
            + weight::IN_PATHS * self.in_paths
            + weight::GLOB_WORDS * self.glob_words
            + weight::KEYWORD * f32::from(self.keywords)
            + weight::BEST_KEYWORD * self.best_keyword
            + weight::KEYWORD_IN_PATHS * f32::from(self.keywords_in_paths)
    }
}

fn is_undecidable(reason: &MatchReason) -> bool {
    matches!(reason, MatchReason::Undecidable { .. })
}

/// Converts a score to relevance, in percent.
fn to_percent(score: f32) -> u8 {
    if score <= 0.0 {
        return 0;
    }
    let percent = 100.0 * score / (score + weight::HALF_SCORE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
    let percent = percent.round() as u8;
    percent.min(100)
}
