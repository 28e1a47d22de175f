//! What entries are held against: a task and its plan, read once.

use std::collections::BTreeMap;

use crate::knowledge::mention::Mentions;
use crate::knowledge::stems::Stems;
use crate::plan::{FileChange, Plan};
use crate::task::Task;

/// How many texts of a subject come before those about its files: title, description, summary and
/// approach. Last comes how it is tested.
const BEFORE_FILES: usize = 4;

/// How much a word counts where it is said; once in a text is 1.
mod weight {
    pub(super) const TITLE: f32 = 2.0;
    pub(super) const SUMMARY: f32 = 1.3;
    pub(super) const TESTING: f32 = 0.5;
    /// A word that is said ten times is not ten times as important.
    pub(super) const MOST: f32 = 1.6;
}

/// A task and its plan.
pub(super) struct Subject<'a> {
    pub(super) task: &'a Task,
    pub(super) files: &'a [FileChange],
    texts: Vec<&'a str>,
    pub(super) mentions: Vec<Mentions>,
}

/// What a subject says, in the stems of an index.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// How much each stem of its texts counts.
    pub(super) words: BTreeMap<u32, f32>,
    /// The stems of its paths that are in none of its texts.
    pub(super) only_in_paths: Vec<u32>,
}

impl Said {
    /// Whether it says every one of some stems.
    pub(super) fn has_all(&self, stems: &[u32]) -> bool {
        stems.iter().all(|stem| self.words.contains_key(stem))
    }

    /// Whether it says every one of some stems, or has a path of that name.
    pub(super) fn has_all_with_paths(&self, stems: &[u32]) -> bool {
        stems
            .iter()
            .all(|it| self.words.contains_key(it) || self.only_in_paths.binary_search(it).is_ok())
    }
}

impl<'a> Subject<'a> {
    pub(super) fn of(task: &'a Task, plan: &'a Plan) -> Self {
        let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
        texts.extend(plan.file_changes.iter().map(|change| &*change.description));
        texts.push(&plan.testing_strategy);
        let mentions = texts.iter().map(|text| Mentions::of(text)).collect();
        Self { task, files: &plan.file_changes, texts, mentions }
    }

    /// What it says, as far as an index knows the words.
    pub(super) fn said(&self, stems: &Stems) -> Said {
        let mut words = BTreeMap::new();
        let last = self.texts.len() - 1;
        for (at, text) in self.texts.iter().enumerate() {
            let weight = match at {
                0 => weight::TITLE,
                2 => weight::SUMMARY,
                at if at == last => weight::TESTING,
                _ => 1.0,
            };
            for stem in stems.known_in(text) {
                *words.entry(stem).or_insert(0.0) += weight;
            }
        }
        for count in words.values_mut() {
            *count = (1.0 + count.max(1.0).ln()).min(weight::MOST);
        }
        let paths = self.files.iter().flat_map(|file| stems.known_in(&file.path));
        let mut only_in_paths: Vec<u32> = paths.filter(|it| !words.contains_key(it)).collect();
        only_in_paths.sort_unstable();
        only_in_paths.dedup();
        Said { words, only_in_paths }
    }

    /// Its texts, and which of their places are code. What will be done to a file is about code;
    /// elsewhere only what is written as code is.
    pub(super) fn code(
        &self,
    ) -> impl Iterator<Item = (&'a str, &Mentions, impl Fn(usize) -> bool + 'a)> {
        let about_files = BEFORE_FILES..self.texts.len() - 1;
        self.texts.iter().zip(&self.mentions).enumerate().map(move |(at, (text, mentions))| {
            let text: &'a str = text;
            let about_a_file = about_files.contains(&at);
            let is_code =
                move |place: usize| about_a_file || text[..place].matches('`').count() % 2 == 1;
            (text, mentions, is_code)
        })
    }
}
