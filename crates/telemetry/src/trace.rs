//! Spans of traces: one trace per task, from the request of a person to the agent's tool call.
//!
//! The trace has the ID of the task, and the IDs of spans are hashes of what they are about. So a server
//! and a worker agree on them without passing anything through Temporal, and a workflow that is
//! replayed changes nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Maximum number of spans that wait to be exported. Later ones are dropped.
const MAX_SPANS: usize = 10_000;

/// Attributes of the semantic conventions for generative AI, which name agents and their tools.
pub mod gen_ai {
    /// Kind of operation.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// Operation of an agent's run.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// Operation of a call to a model.
    pub const CHAT: &str = "chat";
    /// Operation of a call to a model of Gemini.
    pub const GENERATE_CONTENT: &str = "generate_content";
    /// Operation of a tool call.
    pub const EXECUTE_TOOL: &str = "execute_tool";
    /// Name of the agent in the rules.
    pub const AGENT_NAME: &str = "gen_ai.agent.name";
    /// Provider of the model, by the dialect of its API.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// Requested model.
    pub const MODEL: &str = "gen_ai.request.model";
    /// Run of the agent.
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    /// Tokens that the models read.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Tokens that the models wrote.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Kind of the tool. Titles and arguments are content, and stay in the transcript.
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    /// ID that the agent gave the call.
    pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
}

/// Span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanRecord {
    /// ID of the trace: that of the task.
    pub trace: u128,
    /// ID of the span.
    pub id: u64,
    /// ID of the span that it belongs to; `None` for the first one.
    pub parent: Option<u64>,
    /// Name, such as `invoke_agent claude-code`.
    pub name: String,
    /// Start, in nanoseconds since 1970.
    pub start_nanos: u64,
    /// End, in nanoseconds since 1970.
    pub end_nanos: u64,
    /// Attributes.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Reason for a failure.
    pub error: Option<String>,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// Text.
    Text(String),
    /// Number.
    Number(u64),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Returns the ID of the first span of a task.
pub fn root_span(task: u128) -> u64 {
    span_id(&format!("{task:032x} task"))
}

/// Returns the ID of a job's span.
pub fn job_span(task: u128, number: u32, attempt: u32) -> u64 {
    span_id(&format!("{task:032x} job {number} {attempt}"))
}

/// Returns the ID of a run's span.
pub fn run_span(task: u128, number: u32, attempt: u32) -> u64 {
    span_id(&format!("{task:032x} run {number} {attempt}"))
}

/// Returns the ID of another span, such as that of a request, which starts at a time.
pub fn named_span(task: u128, name: &str, start_nanos: u64) -> u64 {
    span_id(&format!("{task:032x} {name} {start_nanos}"))
}

/// Hashes a text (FNV-1a), so that every process and version gets the same ID. It is never 0.
fn span_id(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// Spans that wait to be exported.
#[derive(Debug, Default)]
pub struct SpanBuffer {
    enabled: AtomicBool,
    waiting: Mutex<VecDeque<SpanRecord>>,
}

/// Returns the buffer of this process.
pub fn spans() -> &'static SpanBuffer {
    static SPANS: LazyLock<SpanBuffer> = LazyLock::new(SpanBuffer::default);
    &SPANS
}

impl SpanBuffer {
    /// Keeps spans from now on, because an exporter takes them.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Adds a span, if somebody exports it.
    pub fn record(&self, make: impl FnOnce() -> SpanRecord) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting();
        if waiting.len() < MAX_SPANS {
            waiting.push_back(make());
        }
    }

    /// Takes up to `limit` spans, oldest first.
    pub fn take(&self, limit: usize) -> Vec<SpanRecord> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(limit);
        waiting.drain(..count).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<SpanRecord>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(number: usize) -> SpanRecord {
        SpanRecord {
            trace: 1,
            id: job_span(1, 1, 1),
            parent: Some(root_span(1)),
            name: format!("job {number}"),
            start_nanos: 1,
            end_nanos: 2,
            attributes: vec![(gen_ai::OPERATION, "a".into())],
            error: None,
        }
    }

    #[test]
    fn processes_agree_on_ids() {
        // As computed by another implementation of FNV-1a.
        assert_eq!(span_id("a"), 0xaf63_dc4c_8601_ec8c);
        let ids =
            [root_span(7), root_span(8), job_span(7, 1, 1), run_span(7, 1, 1), job_span(7, 1, 2)];
        let distinct: std::collections::BTreeSet<u64> = ids.into();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn spans_are_kept_only_for_an_exporter_and_up_to_a_limit() {
        let buffer = SpanBuffer::default();
        buffer.record(|| span(0));
        assert_eq!(buffer.take(10), []);
        buffer.enable();
        for number in 0..MAX_SPANS + 10 {
            buffer.record(|| span(number));
        }
        assert_eq!(buffer.take(2), [span(0), span(1)]);
        assert_eq!(buffer.take(usize::MAX).len(), MAX_SPANS - 2);
    }
}
