//! Extraction of usage from a response while it is streamed.

use axum::body::Bytes;
use serde_json::Value;
use tamma_core::cost::Tokens;

use super::event_reader::EventReader;
use super::{CallFailure, Dialect};

/// Maximum size of a response that is buffered for parsing.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Usage and state that a response has reported so far.
#[derive(Debug)]
pub(super) struct ResponseUsage {
    dialect: Dialect,
    counts: TokenCounts,
    /// The counts are final.
    is_final: bool,
    /// The model has finished its response.
    finished: bool,
    /// Model in the response, which may be more specific than the requested one.
    pub(super) model: Option<String>,
    /// Failure during a response that started successfully.
    pub(super) failure: Option<CallFailure>,
}

/// Token counts of one response, as the provider counts them.
#[derive(Debug, Default)]
struct TokenCounts {
    input: u64,
    /// Input written to the cache, for any time.
    cache_write: u64,
    /// Part of `cache_write` that is kept for an hour.
    cache_write_1h: u64,
    cached: u64,
    output: u64,
}

impl ResponseUsage {
    /// Starts without any usage.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            counts: TokenCounts::default(),
            is_final: false,
            finished: false,
            model: None,
            failure: None,
        }
    }

    /// Returns the usage, once it is final.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        let TokenCounts { input, cache_write, cache_write_1h, cached, output } = self.counts;
        let input = match self.dialect {
            // Anthropic counts tokens that are read from the cache or written to it separately.
            Dialect::Anthropic => input.saturating_add(cache_write.max(cache_write_1h)),
            _ => input.saturating_sub(cached),
        };
        let cache_write = cache_write.saturating_sub(cache_write_1h);
        let tokens = Tokens { input, cached, output, cache_write, cache_write_1h };
        // Gemini reports interim usage with each chunk.
        let goes_on = self.dialect == Dialect::Gemini && !self.finished;
        (self.is_final && !goes_on).then_some(tokens)
    }

    /// Returns `true` if nothing relevant follows.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Reads a complete response, or one event of a stream.
    pub(super) fn read_event(&mut self, value: &Value) {
        match self.dialect {
            Dialect::Anthropic => self.anthropic(value),
            Dialect::Chat => self.chat(value),
            Dialect::Responses => self.responses(value),
            // Without server-sent events, a Gemini stream is one JSON list.
            Dialect::Gemini => match value.as_array() {
                Some(parts) => parts.iter().for_each(|part| self.gemini(part)),
                None => self.gemini(value),
            },
        }
    }

    fn anthropic(&mut self, value: &Value) {
        match value["type"].as_str() {
            Some("message_start") => {
                self.set_model(&value["message"]["model"]);
                self.anthropic_usage(&value["message"]["usage"]);
            }
            // Counts are cumulative, and final only here.
            Some("message_delta") => self.is_final |= self.anthropic_usage(&value["usage"]),
            Some("message_stop") => self.finished = true,
            Some("message") => {
                self.set_model(&value["model"]);
                self.is_final |= self.anthropic_usage(&value["usage"]);
            }
            Some("error") => {
                let error = &value["error"];
                let status = if error["type"] == "overloaded_error" { 529 } else { 500 };
                self.set_failure(status, &error["message"]);
            }
            _ => {}
        }
    }

    fn anthropic_usage(&mut self, usage: &Value) -> bool {
        update_count(&mut self.counts.input, &usage["input_tokens"]);
        update_count(&mut self.counts.cache_write, &usage["cache_creation_input_tokens"]);
        let for_an_hour = &usage["cache_creation"]["ephemeral_1h_input_tokens"];
        update_count(&mut self.counts.cache_write_1h, for_an_hour);
        update_count(&mut self.counts.cached, &usage["cache_read_input_tokens"]);
        update_count(&mut self.counts.output, &usage["output_tokens"])
    }

    fn chat(&mut self, value: &Value) {
        self.set_model(&value["model"]);
        let usage = &value["usage"];
        let details = &usage["prompt_tokens_details"];
        update_count(&mut self.counts.cached, &details["cached_tokens"]);
        update_count(&mut self.counts.cache_write, &details["cache_write_tokens"]);
        update_count(&mut self.counts.output, &usage["completion_tokens"]);
        self.is_final |= update_count(&mut self.counts.input, &usage["prompt_tokens"]);
        if value["error"].is_object() {
            self.set_failure(500, &value["error"]["message"]);
        }
    }

    fn responses(&mut self, value: &Value) {
        // Events contain the response.
        let response = if value["response"].is_object() { &value["response"] } else { value };
        self.set_model(&response["model"]);
        let usage = &response["usage"];
        let details = &usage["input_tokens_details"];
        update_count(&mut self.counts.cached, &details["cached_tokens"]);
        update_count(&mut self.counts.cache_write, &details["cache_write_tokens"]);
        update_count(&mut self.counts.output, &usage["output_tokens"]);
        self.is_final |= update_count(&mut self.counts.input, &usage["input_tokens"]);
        if value["type"] == "response.failed" || response["status"] == "failed" {
            self.set_failure(500, &response["error"]["message"]);
        } else if matches!(
            value["type"].as_str(),
            Some("response.completed" | "response.incomplete")
        ) {
            self.finished = true;
        } else if value["type"] == "error" {
            self.set_failure(500, &value["message"]);
        }
    }

    fn gemini(&mut self, value: &Value) {
        self.set_model(&value["modelVersion"]);
        let usage = &value["usageMetadata"];
        let count = |name: &str| usage[name].as_u64();
        if let Some(prompt) = count("promptTokenCount") {
            let tools = count("toolUsePromptTokenCount").unwrap_or_default();
            self.counts.input = prompt.saturating_add(tools);
            self.counts.cached = count("cachedContentTokenCount").unwrap_or_default();
            // Reasoning counts as output.
            let thoughts = count("thoughtsTokenCount").unwrap_or_default();
            let candidates = count("candidatesTokenCount").unwrap_or_default();
            self.counts.output = candidates.saturating_add(thoughts);
            self.is_final = true;
        }
        let blocked = value["promptFeedback"]["blockReason"].is_string();
        self.finished |= value["candidates"][0]["finishReason"].is_string() || blocked;
        if value["error"].is_object() {
            self.set_failure(500, &value["error"]["message"]);
        }
    }

    fn set_model(&mut self, model: &Value) {
        if let Some(model) = model.as_str() {
            self.model = Some(model.to_owned());
        }
    }

    fn set_failure(&mut self, status: u16, text: &Value) {
        let text = text.as_str().unwrap_or("the response was interrupted").to_owned();
        self.failure = Some(CallFailure { status, message: text });
        self.finished = true;
    }
}

fn update_count(count: &mut u64, value: &Value) -> bool {
    match value.as_u64() {
        Some(value) => {
            *count = value;
            true
        }
        None => false,
    }
}

/// Parser for a response that arrives in chunks.
pub(super) struct ResponseReader {
    /// Usage so far.
    pub(super) usage: ResponseUsage,
    format: BodyFormat,
}

enum BodyFormat {
    /// Server-sent events.
    Events(Box<EventReader>),
    /// JSON document, parsed at its end.
    Json(Vec<u8>),
}

impl ResponseReader {
    /// Creates a reader for a content type.
    pub(super) fn new(dialect: Dialect, content_type: &str) -> Self {
        let format = if content_type.starts_with("text/event-stream") {
            BodyFormat::Events(Box::new(EventReader::new()))
        } else {
            BodyFormat::Json(Vec::new())
        };
        Self { usage: ResponseUsage::new(dialect), format }
    }

    /// Reads the next chunk.
    pub(super) fn read_chunk(&mut self, piece: &Bytes) {
        match &mut self.format {
            BodyFormat::Events(events) => events.read_chunk(piece, |data| {
                // Malformed events are forwarded, but not read.
                if data == "[DONE]" {
                    self.usage.finished = true;
                } else if let Ok(value) = serde_json::from_str(data) {
                    self.usage.read_event(&value);
                }
            }),
            BodyFormat::Json(body) if body.len() + piece.len() <= MAX_BODY_BYTES => {
                body.extend_from_slice(piece);
            }
            BodyFormat::Json(_) => {}
        }
    }

    /// Parses a body that can only be read at its end.
    pub(super) fn finish(&mut self) {
        if let BodyFormat::Json(body) = &self.format
            && let Ok(value) = serde_json::from_slice(body)
        {
            self.usage.read_event(&value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, content_type: &str, text: &str) -> ResponseUsage {
        let mut reader = ResponseReader::new(dialect, content_type);
        // One byte at a time, because events can be split anywhere.
        text.bytes().for_each(|byte| reader.read_chunk(&Bytes::from(vec![byte])));
        reader.finish();
        reader.usage
    }

    const EVENTS: &str = "text/event-stream; charset=utf-8";

    #[test]
    fn interrupted_stream_has_no_usage() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\
            \"m-1\",\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":2,\
            \"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n";
        let reading = read(Dialect::Anthropic, EVENTS, start);
        assert_eq!((reading.tokens(), reading.model.as_deref()), (None, Some("m-1")));
        let end = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\r\n\r\n";
        let reading = read(Dialect::Anthropic, EVENTS, &format!("{start}{end}"));
        assert_eq!(
            reading.tokens(),
            Some(Tokens { input: 7, cached: 7, output: 9, cache_write: 2, ..Tokens::default() })
        );
    }

    #[test]
    fn failure_during_a_stream_is_detected() {
        let text = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
            \"message\":\"Overloaded\"}}\n\n";
        let failed = read(Dialect::Anthropic, EVENTS, text).failure;
        assert_eq!(failed, Some(CallFailure { status: 529, message: "Overloaded".to_owned() }));
        let text = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\
            \"error\":{\"message\":\"No.\"}}}\n\n";
        assert_eq!(read(Dialect::Responses, EVENTS, text).failure.expect("failed").message, "No.");
    }

    #[test]
    fn list_of_gemini_chunks_is_read() {
        let text = r#"[{"usageMetadata":{"promptTokenCount":10}},
            {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,
             "toolUsePromptTokenCount":5,"cachedContentTokenCount":4,"candidatesTokenCount":3,
             "thoughtsTokenCount":2}}]"#;
        let tokens = read(Dialect::Gemini, "application/json", text).tokens();
        assert_eq!(tokens, Some(Tokens { input: 11, cached: 4, output: 5, ..Tokens::default() }));
    }

    #[test]
    fn cache_writes_are_read_in_every_dialect_that_reports_them() {
        let anthropic = r#"{"type":"message","model":"m","usage":{"input_tokens":5,
            "cache_creation_input_tokens":30,"cache_read_input_tokens":7,"output_tokens":9,
            "cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}"#;
        let expected =
            Tokens { input: 35, cached: 7, output: 9, cache_write: 10, cache_write_1h: 20 };
        let json = "application/json";
        assert_eq!(read(Dialect::Anthropic, json, anthropic).tokens(), Some(expected));
        let start = anthropic.replace('\n', "");
        let stream = format!(
            "data: {{\"type\":\"message_start\",\"message\":{start}}}\n\n\
             data: {{\"type\":\"message_delta\",\"usage\":{{\"output_tokens\":9}}}}\n\n"
        );
        assert_eq!(read(Dialect::Anthropic, EVENTS, &stream).tokens(), Some(expected));

        let expected =
            Tokens { input: 60, cached: 40, output: 9, cache_write: 30, ..Tokens::default() };
        let chat = r#"{"model":"m","usage":{"prompt_tokens":100,"completion_tokens":9,
            "prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":30}}}"#;
        assert_eq!(read(Dialect::Chat, json, chat).tokens(), Some(expected));
        let responses = r#"{"model":"m","usage":{"input_tokens":100,"output_tokens":9,
            "input_tokens_details":{"cached_tokens":40,"cache_write_tokens":30}}}"#;
        assert_eq!(read(Dialect::Responses, json, responses).tokens(), Some(expected));
        let completed = responses.replace('\n', "");
        let completed =
            format!("data: {{\"type\":\"response.completed\",\"response\":{completed}}}\n\n");
        assert_eq!(read(Dialect::Responses, EVENTS, &completed).tokens(), Some(expected));
    }
}
