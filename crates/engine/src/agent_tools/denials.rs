//! Denials of one run, for the agent: what was denied, why, and what to do instead.

use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of kept denials, newest last. An agent may repeat the same request.
const MAX_KEPT: usize = 20;

/// Denials of a run. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DenialLog(Arc<Mutex<DenialList>>);

#[derive(Debug, Default)]
struct DenialList {
    texts: Vec<String>,
    /// Number of texts that a prompt has already shown.
    shown: usize,
}

impl DenialLog {
    /// Adds a denial, unless it is already the last one.
    pub(crate) fn add(&self, text: String) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.texts.last() == Some(&text) {
            return;
        }
        if list.texts.len() == MAX_KEPT {
            list.texts.remove(0);
            list.shown = list.shown.saturating_sub(1);
        }
        list.texts.push(text);
    }

    /// Returns all denials.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).texts.clone()
    }

    /// Returns the denials since the last call, as text for the next prompt.
    pub(crate) fn take_new(&self) -> Option<String> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = list.texts.get(list.shown..).filter(|new| !new.is_empty())?.join("\n- ");
        list.shown = list.texts.len();
        Some(format!("These calls were denied:\n\n- {new}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_denial_is_shown_in_one_prompt_and_the_list_is_bounded() {
        let log = DenialLog::default();
        assert_eq!(log.take_new(), None);
        log.add("a".to_owned());
        log.add("a".to_owned());
        assert_eq!(log.take_new().as_deref(), Some("These calls were denied:\n\n- a\n"));
        assert_eq!(log.take_new(), None);
        for number in 0..100 {
            log.add(number.to_string());
        }
        assert_eq!(log.all().len(), MAX_KEPT);
        let new = log.take_new().expect("new ones");
        assert!(new.ends_with("- 99\n"), "{new}");
    }
}
