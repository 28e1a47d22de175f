//! Messages of an agent during a run.

use std::sync::{Arc, Mutex, PoisonError};

use tamma_engine::agent::{AgentObserver, AgentUpdate};

/// Largest log, in bytes. Older messages are dropped first.
const MAX_BYTES: usize = 1024 * 1024;

/// Log of messages. Clones share it.
#[derive(Clone, Default)]
pub(super) struct MessageLog(Arc<Mutex<String>>);

impl MessageLog {
    /// Returns an observer that keeps messages and passes everything on.
    pub(super) fn observe(&self, next: AgentObserver) -> AgentObserver {
        let log = self.clone();
        Arc::new(move |update| {
            if let AgentUpdate::Message(text) = &update {
                log.push(text);
            }
            next(update);
        })
    }

    fn push(&self, text: &str) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(text);
        if log.len() > MAX_BYTES {
            let start = log.len() - MAX_BYTES / 2;
            let start = (start..log.len()).find(|index| log.is_char_boundary(*index));
            *log = log.split_off(start.unwrap_or_default());
        }
    }

    /// Returns all messages.
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_messages_are_kept() {
        let log = MessageLog::default();
        let observer = log.observe(Arc::new(|_| {}));
        observer(AgentUpdate::Message("é".repeat(MAX_BYTES)));
        observer(AgentUpdate::Thought("no message".to_owned()));
        observer(AgentUpdate::Message("QA PASS".to_owned()));
        let text = log.text();
        assert!(text.len() <= MAX_BYTES && text.ends_with("éQA PASS"));
    }
}
