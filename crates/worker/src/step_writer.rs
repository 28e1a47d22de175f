//! Steps that arrive with job requests, saved before anything else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tamma_core::ids::PolicyVersion;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Step, StepRecord};
use tamma_flow::activities::PendingSteps;
use tamma_store::{Conflict, JobFacts, Store};

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

/// Saved steps.
pub(crate) struct SavedSteps {
    /// Rules of the task.
    pub(crate) rules: Arc<Rules>,
    /// Set if later steps are stored already.
    pub(crate) has_later_steps: bool,
    /// Facts for the job that the steps request; `None` if they were stored already.
    pub(crate) facts: Option<JobFacts>,
}

impl StepWriter {
    /// Creates a writer. It cleans up the repositories of tasks that end.
    pub(crate) fn new(store: Store, repositories: Repositories) -> Self {
        Self { store, repositories, rules_cache: Arc::default() }
    }

    /// Saves pending steps idempotently. `process` runs their job inside a workflow task.
    ///
    /// Fails with [`Error::Diverged`] if the database has another history of the task, or none.
    pub(crate) async fn save(
        &self,
        pending: &PendingSteps,
        process: Option<&str>,
    ) -> Result<SavedSteps, Error> {
        let rules = match &pending.submission {
            Some(submission) => Arc::new(submission.rules.clone()),
            // An older database was restored.
            None => self.rules(pending.policy).await.map_err(as_divergence)?,
        };
        let mut steps = &pending.steps[..];
        // Step 0 inserts the task itself, with its rules.
        if let Some((first, rest)) = steps.split_first().filter(|(first, _)| first.step == 0) {
            if let Some(submission) = &pending.submission {
                let StepRecord { next, commands, entries, .. } = first.clone();
                let first = Step { next, commands, entries };
                self.store.insert_task(&submission.task, &first, &rules).await?;
            }
            steps = rest;
        } else if let Some(submission) = &pending.submission {
            self.store.save_rules(&submission.rules).await?;
        }
        let (mut has_later_steps, mut facts) = (false, None);
        match self.store.save_steps_for_job(steps, &rules, process).await {
            // Later steps are stored, so these are too.
            Err(tamma_store::Error::Conflict(Conflict::StaleStep { .. })) => {
                has_later_steps = true;
            }
            saved => facts = saved.map_err(|error| as_divergence(error.into()))?,
        }
        if let Some(last) = pending.steps.last()
            && last.next.state.is_terminal()
        {
            let project = facts.as_ref().and_then(|facts| facts.project.clone());
            self.repositories.start_cleanup((pending.project, project), &last.next);
        }
        Ok(SavedSteps { rules, has_later_steps, facts })
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

/// Converts an error that shows another history of the task in the database.
pub(crate) fn as_divergence(error: Error) -> Error {
    use tamma_store::Error as Stored;
    match &error {
        Error::Store(Stored::Conflict(conflict)) if conflict.is_divergence() => {
            Error::Diverged(conflict.to_string())
        }
        Error::Store(missing @ Stored::NotFound { .. }) => Error::Diverged(missing.to_string()),
        _ => error,
    }
}
