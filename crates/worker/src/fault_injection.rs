//! Fault injection, so that tests can fail a worker at any step.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Decides for each step of a job whether the worker fails there. Disabled outside tests.
#[derive(Clone)]
pub struct FaultInjection(Option<Arc<dyn Fn(&'static str) -> bool + Send + Sync>>);

impl FaultInjection {
    /// Returns a configuration without faults.
    pub fn none() -> Self {
        Self(None)
    }

    /// Fails wherever `fails` returns `true` for the name of the step.
    pub fn when(fails: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(fails)))
    }

    /// Returns an error if this step must fail.
    pub(crate) fn fault_point(&self, step: &'static str) -> Result<(), Error> {
        match &self.0 {
            Some(fails) if fails(step) => Err(Error::InjectedFault(step)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for FaultInjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(some)" } else { "Faults(none)" })
    }
}
