//! Steps that arrive with job requests, saved before anything else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tamma_core::ids::PolicyVersion;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Step, StepRecord};
use tamma_flow::activities::PendingSteps;
use tamma_store::{Conflict, Store};

use crate::error::Error;
use crate::repositories::Repositories;

/// Writer of pending steps. Clones share the cache of rules.
#[derive(Clone)]
pub(crate) struct StepWriter {
    store: Store,
    repositories: Repositories,
    /// Rules by version. They are immutable, and there are few.
    rules_cache: Arc<Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>>,
}

impl StepWriter {
    /// Creates a writer. It cleans up the repositories of tasks that end.
    pub(crate) fn new(store: Store, repositories: Repositories) -> Self {
        Self { store, repositories, rules_cache: Arc::default() }
    }

    /// Saves pending steps idempotently, and returns their rules.
    pub(crate) async fn save(&self, pending: &PendingSteps) -> Result<Arc<Rules>, Error> {
        let rules = match &pending.submission {
            Some(submission) => {
                self.store.save_rules(&submission.rules).await?;
                Arc::new(submission.rules.clone())
            }
            None => self.rules(pending.policy).await?,
        };
        let mut steps = &pending.steps[..];
        // Step 0 inserts the task itself.
        if let Some((first, rest)) = steps.split_first().filter(|(first, _)| first.step == 0) {
            if let Some(submission) = &pending.submission {
                let StepRecord { next, commands, entries, .. } = first.clone();
                let first = Step { next, commands, entries };
                self.store.insert_task(&submission.task, &first, &rules).await?;
            }
            steps = rest;
        }
        match self.store.save_steps(steps, &rules).await {
            // Later steps are stored, so these are too.
            Err(tamma_store::Error::Conflict(Conflict::StaleStep { .. })) => {}
            saved => drop(saved?),
        }
        if let Some(last) = pending.steps.last()
            && last.next.state.is_terminal()
        {
            self.repositories.start_cleanup(pending.project, &last.next);
        }
        Ok(rules)
    }

    async fn rules(&self, version: PolicyVersion) -> Result<Arc<Rules>, Error> {
        let cached = |rules: &Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>| {
            rules.lock().ok().and_then(|rules| rules.get(&version).cloned())
        };
        if let Some(rules) = cached(&self.rules_cache) {
            return Ok(rules);
        }
        let rules = Arc::new(self.store.rules(version).await?);
        if let Ok(mut all) = self.rules_cache.lock() {
            all.insert(version, rules.clone());
        }
        Ok(rules)
    }
}
