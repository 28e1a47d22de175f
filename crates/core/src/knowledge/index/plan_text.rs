//! Text of a task and its plan, parsed once for all entries.

use std::collections::BTreeMap;

use crate::knowledge::negation::Mentions;
use crate::knowledge::stems::StemIndex;
use crate::plan::{FileChange, Plan};
use crate::task::Task;

/// Number of texts before those about files: title, description, summary and approach. The test
/// strategy is last.
const TEXTS_BEFORE_FILES: usize = 4;

/// Weights of words by position; one occurrence in a text is 1.
mod weight {
    pub(super) const TITLE: f32 = 2.0;
    pub(super) const SUMMARY: f32 = 1.3;
    pub(super) const TESTING: f32 = 0.5;
    /// Upper limit, so that a word used ten times does not count ten times.
    pub(super) const MAX: f32 = 1.6;
}

/// Text of a task and its plan.
pub(super) struct PlanText<'a> {
    pub(super) task: &'a Task,
    pub(super) files: &'a [FileChange],
    texts: Vec<&'a str>,
    pub(super) mentions: Vec<Mentions>,
}

/// Terms of a plan, as stem numbers of an index.
#[derive(Debug, Default)]
pub(super) struct PlanTerms {
    /// Weight of each stem in the texts.
    pub(super) words: BTreeMap<u32, f32>,
    /// Stems that occur only in paths.
    pub(super) only_in_paths: Vec<u32>,
}

impl PlanTerms {
    /// Returns true if the texts contain all stems.
    pub(super) fn has_all(&self, stems: &[u32]) -> bool {
        stems.iter().all(|stem| self.words.contains_key(stem))
    }

    /// Returns true if the texts and paths together contain all stems.
    pub(super) fn has_all_with_paths(&self, stems: &[u32]) -> bool {
        stems.iter().all(|stem| {
            self.words.contains_key(stem) || self.only_in_paths.binary_search(stem).is_ok()
        })
    }
}

impl<'a> PlanText<'a> {
    pub(super) fn new(task: &'a Task, plan: &'a Plan) -> Self {
        let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
        texts.extend(plan.file_changes.iter().map(|change| &*change.description));
        texts.push(&plan.testing_strategy);
        let mentions = texts.iter().map(|text| Mentions::parse(text)).collect();
        Self { task, files: &plan.file_changes, texts, mentions }
    }

    /// Returns the terms that the index knows.
    pub(super) fn terms(&self, stems: &StemIndex) -> PlanTerms {
        let mut words = BTreeMap::new();
        let last = self.texts.len() - 1;
        for (at, text) in self.texts.iter().enumerate() {
            let weight = match at {
                0 => weight::TITLE,
                2 => weight::SUMMARY,
                at if at == last => weight::TESTING,
                _ => 1.0,
            };
            for stem in stems.lookup(text) {
                *words.entry(stem).or_insert(0.0) += weight;
            }
        }
        for count in words.values_mut() {
            *count = (1.0 + count.max(1.0).ln()).min(weight::MAX);
        }
        let paths = self.files.iter().flat_map(|file| stems.lookup(&file.path));
        let mut only_in_paths: Vec<u32> = paths.filter(|stem| !words.contains_key(stem)).collect();
        only_in_paths.sort_unstable();
        only_in_paths.dedup();
        PlanTerms { words, only_in_paths }
    }

    /// Returns the texts, each with the ranges that count as code. A text about a file counts
    /// completely; elsewhere only text marked as code does.
    pub(super) fn code_texts(
        &self,
    ) -> impl Iterator<Item = (&'a str, &Mentions, impl Fn(usize) -> bool + 'a)> {
        let file_texts = TEXTS_BEFORE_FILES..self.texts.len() - 1;
        self.texts.iter().zip(&self.mentions).enumerate().map(move |(at, (text, mentions))| {
            let text: &'a str = text;
            let is_file_text = file_texts.contains(&at);
            let is_code =
                move |offset: usize| is_file_text || text[..offset].matches('`').count() % 2 == 1;
            (text, mentions, is_code)
        })
    }
}
