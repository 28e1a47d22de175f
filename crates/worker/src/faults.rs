//! Places where a worker can be made to fail, so that tests can show that it does no harm.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Decides, for each step of a job, whether the worker fails there. Outside tests it never does.
#[derive(Clone)]
pub struct Faults(Option<Arc<dyn Fn(&'static str) -> bool + Send + Sync>>);

impl Faults {
    /// No fault anywhere.
    pub fn none() -> Self {
        Self(None)
    }

    /// A fault wherever the function says so. It is told the name of the step.
    pub fn when(fails: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(fails)))
    }

    /// Passes a step, or fails there.
    pub(crate) fn pass(&self, step: &'static str) -> Result<(), Error> {
        match &self.0 {
            Some(fails) if fails(step) => Err(Error::Fault(step)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(some)" } else { "Faults(none)" })
    }
}
