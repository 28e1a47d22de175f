//! Plans and texts that this worker has read or saved, by the hash of their content.
//!
//! A hash names the same content for ever, so what is cached is never out of date.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tamma_core::ids::{Digest, PlanHash, TaskId};
use tamma_core::plan::Plan;
use tamma_store::Store;
use tokio::time::Instant;

use crate::error::Error;

/// Maximum number of cached plans. A worker runs fewer tasks at a time.
const MAX_PLANS: usize = 100;

/// Maximum number of cached texts. Tasks share them, because they are prompts.
const MAX_TEXTS: usize = 20;

/// Time after which a text is saved again. Texts that nobody uses are kept for days at least.
const SAVED_FOR: Duration = Duration::from_mins(10);

/// Cache of plans and texts. Clones share it.
#[derive(Clone)]
pub(crate) struct ContentCache {
    store: Store,
    plans: RecentValues<(TaskId, PlanHash), Plan>,
    texts: RecentValues<Digest, String>,
    /// Times at which texts were saved.
    saved_texts: RecentValues<Digest, Instant>,
}

impl ContentCache {
    /// Creates an empty cache.
    pub(crate) fn new(store: &Store) -> Self {
        let (plans, texts) = (RecentValues::new(MAX_PLANS), RecentValues::new(MAX_TEXTS));
        Self { store: store.clone(), plans, texts, saved_texts: RecentValues::new(MAX_TEXTS) }
    }

    /// Returns the plan of a task with this hash.
    pub(crate) async fn plan(&self, task: TaskId, hash: PlanHash) -> Result<Plan, Error> {
        if let Some(plan) = self.plans.get(&(task, hash)) {
            return Ok(plan);
        }
        let (_, plan) = self.store.plan_by_hash(task, hash).await?;
        self.plans.put((task, hash), plan.clone());
        Ok(plan)
    }

    /// Keeps a plan that is saved.
    pub(crate) fn keep_plan(&self, task: TaskId, plan: &Plan) {
        self.plans.put((task, plan.hash()), plan.clone());
    }

    /// Saves a text that many tasks share, unless this worker has done so a short time ago. Returns its
    /// hash.
    pub(crate) async fn save_text(&self, text: &str) -> Result<Digest, Error> {
        let hash = Digest::of(text.as_bytes());
        if self.saved_texts.get(&hash).is_some_and(|at| at.elapsed() < SAVED_FOR) {
            return Ok(hash);
        }
        self.store.save_text(text).await?;
        self.saved_texts.put(hash, Instant::now());
        Ok(hash)
    }

    /// Returns the saved text with this hash.
    pub(crate) async fn text(&self, hash: Digest) -> Result<String, Error> {
        if let Some(text) = self.texts.get(&hash) {
            return Ok(text);
        }
        let text = self.store.text_by_hash(hash).await?;
        self.texts.put(hash, text.clone());
        Ok(text)
    }
}

/// Values that were used last, most recent last. Clones share them.
pub(crate) struct RecentValues<K, V> {
    values: Arc<Mutex<VecDeque<(K, V)>>>,
    capacity: usize,
}

impl<K, V> Clone for RecentValues<K, V> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), capacity: self.capacity }
    }
}

impl<K: PartialEq, V: Clone> RecentValues<K, V> {
    /// Creates a cache for at most `capacity` values.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { values: Arc::default(), capacity }
    }

    /// Returns a value, which then counts as used.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let position = values.iter().position(|(known, _)| known == key)?;
        let found = values.remove(position)?;
        let value = found.1.clone();
        values.push_back(found);
        Some(value)
    }

    /// Inserts a value, and drops the one that was not used for longest.
    pub(crate) fn put(&self, key: K, value: V) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.retain(|(known, _)| *known != key);
        values.push_back((key, value));
        while values.len() > self.capacity {
            values.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_longest_is_dropped() {
        let values = RecentValues::new(2);
        values.put(1, "one");
        values.put(2, "two");
        assert_eq!(values.get(&1), Some("one"));
        values.put(3, "three");
        assert_eq!([1, 2, 3].map(|key| values.get(&key)), [Some("one"), None, Some("three")]);
        values.put(3, "other");
        assert_eq!((values.get(&3), values.get(&1)), (Some("other"), Some("one")));
    }
}
