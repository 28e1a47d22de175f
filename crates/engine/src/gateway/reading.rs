//! Reads from a response what it used, while it passes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::Poll;

use axum::body::Bytes;
use eventsource_stream::{Event, EventStreamError, Eventsource as _};
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use serde_json::Value;
use tamma_core::cost::Tokens;

use super::{Dialect, Failed};

/// More of a response is not kept to be read at its end.
const LONGEST: usize = 64 * 1024 * 1024;

/// What a response has said so far.
#[derive(Debug)]
pub(super) struct Reading {
    dialect: Dialect,
    counts: Counts,
    /// Whether the numbers are the last ones.
    told: bool,
    /// Whether the model has said all.
    finished: bool,
    /// The model that answered, which may have a longer name than the one that was asked.
    pub(super) model: Option<String>,
    /// A failure in the middle of a response that began well.
    pub(super) failed: Option<Failed>,
}

/// The numbers of one response, each as the provider counts it.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    created: u64,
    cached: u64,
    output: u64,
}

impl Reading {
    /// Nothing is read yet.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            counts: Counts::default(),
            told: false,
            finished: false,
            model: None,
            failed: None,
        }
    }

    /// What the response used, if it has said so to the end.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        let Counts { input, created, cached, output } = self.counts;
        let tokens = match self.dialect {
            // Counts what it read from its cache apart.
            Dialect::Anthropic => Tokens { input: input.saturating_add(created), cached, output },
            _ => Tokens { input: input.saturating_sub(cached), cached, output },
        };
        // Gemini tells with each piece what it used so far.
        let goes_on = self.dialect == Dialect::Gemini && !self.finished;
        (self.told && !goes_on).then_some(tokens)
    }

    /// Whether nothing comes any more that is worth waiting for.
    pub(super) fn is_over(&self) -> bool {
        self.finished
    }

    /// Reads a response in one piece, or one event of it.
    pub(super) fn take(&mut self, value: &Value) {
        match self.dialect {
            Dialect::Anthropic => self.anthropic(value),
            Dialect::Chat => self.chat(value),
            Dialect::Responses => self.responses(value),
            // A stream that is not of events is one list.
            Dialect::Gemini => match value.as_array() {
                Some(parts) => parts.iter().for_each(|part| self.gemini(part)),
                None => self.gemini(value),
            },
        }
    }

    fn anthropic(&mut self, value: &Value) {
        match value["type"].as_str() {
            Some("message_start") => {
                self.named(&value["message"]["model"]);
                self.anthropic_usage(&value["message"]["usage"]);
            }
            // The numbers are sums, and only those of the end are whole.
            Some("message_delta") => self.told |= self.anthropic_usage(&value["usage"]),
            Some("message_stop") => self.finished = true,
            Some("message") => {
                self.named(&value["model"]);
                self.told |= self.anthropic_usage(&value["usage"]);
            }
            Some("error") => {
                let error = &value["error"];
                let status = if error["type"] == "overloaded_error" { 529 } else { 500 };
                self.fail(status, &error["message"]);
            }
            _ => {}
        }
    }

    fn anthropic_usage(&mut self, usage: &Value) -> bool {
        set(&mut self.counts.input, &usage["input_tokens"]);
        set(&mut self.counts.created, &usage["cache_creation_input_tokens"]);
        set(&mut self.counts.cached, &usage["cache_read_input_tokens"]);
        set(&mut self.counts.output, &usage["output_tokens"])
    }

    fn chat(&mut self, value: &Value) {
        self.named(&value["model"]);
        let usage = &value["usage"];
        set(&mut self.counts.cached, &usage["prompt_tokens_details"]["cached_tokens"]);
        set(&mut self.counts.output, &usage["completion_tokens"]);
        self.told |= set(&mut self.counts.input, &usage["prompt_tokens"]);
        if value["error"].is_object() {
            self.fail(500, &value["error"]["message"]);
        }
    }

    fn responses(&mut self, value: &Value) {
        // An event has the response in it.
        let response = if value["response"].is_object() { &value["response"] } else { value };
        self.named(&response["model"]);
        let usage = &response["usage"];
        set(&mut self.counts.cached, &usage["input_tokens_details"]["cached_tokens"]);
        set(&mut self.counts.output, &usage["output_tokens"]);
        self.told |= set(&mut self.counts.input, &usage["input_tokens"]);
        if value["type"] == "response.failed" || response["status"] == "failed" {
            self.fail(500, &response["error"]["message"]);
        } else if matches!(
            value["type"].as_str(),
            Some("response.completed" | "response.incomplete")
        ) {
            self.finished = true;
        } else if value["type"] == "error" {
            self.fail(500, &value["message"]);
        }
    }

    fn gemini(&mut self, value: &Value) {
        self.named(&value["modelVersion"]);
        let usage = &value["usageMetadata"];
        let count = |name: &str| usage[name].as_u64();
        if let Some(prompt) = count("promptTokenCount") {
            let tools = count("toolUsePromptTokenCount").unwrap_or_default();
            self.counts.input = prompt.saturating_add(tools);
            self.counts.cached = count("cachedContentTokenCount").unwrap_or_default();
            // Thoughts are written too.
            let thoughts = count("thoughtsTokenCount").unwrap_or_default();
            let said = count("candidatesTokenCount").unwrap_or_default();
            self.counts.output = said.saturating_add(thoughts);
            self.told = true;
        }
        let blocked = value["promptFeedback"]["blockReason"].is_string();
        self.finished |= value["candidates"][0]["finishReason"].is_string() || blocked;
        if value["error"].is_object() {
            self.fail(500, &value["error"]["message"]);
        }
    }

    fn named(&mut self, model: &Value) {
        if let Some(model) = model.as_str() {
            self.model = Some(model.to_owned());
        }
    }

    fn fail(&mut self, status: u16, text: &Value) {
        let text = text.as_str().unwrap_or("the response broke off").to_owned();
        self.failed = Some(Failed { status, text });
        self.finished = true;
    }
}

fn set(count: &mut u64, value: &Value) -> bool {
    match value.as_u64() {
        Some(value) => {
            *count = value;
            true
        }
        None => false,
    }
}

type Events = Pin<Box<dyn Stream<Item = Result<Event, EventStreamError<Infallible>>> + Send>>;

/// Reads a response piece by piece.
pub(super) struct Reader {
    /// What it has said so far.
    pub(super) reading: Reading,
    form: Form,
}

enum Form {
    /// A stream of events: the pieces go in at one end, and the whole events come out at the other.
    Events(Sender<Bytes>, Events),
    /// One piece of JSON, which can only be read at its end.
    Whole(Vec<u8>),
}

impl Reader {
    /// Reads a response of this type.
    pub(super) fn new(dialect: Dialect, content_type: &str) -> Self {
        let form = if content_type.starts_with("text/event-stream") {
            let (sender, receiver) = channel();
            Form::Events(sender, Box::pin(pieces(receiver).eventsource()))
        } else {
            Form::Whole(Vec::new())
        };
        Self { reading: Reading::new(dialect), form }
    }

    /// Reads the next piece.
    pub(super) fn take(&mut self, piece: &Bytes) {
        match &mut self.form {
            Form::Events(sender, events) => {
                // Its other end is beside it, so it is there.
                let _ = sender.send(piece.clone());
                while let Some(Some(event)) = events.next().now_or_never() {
                    // What cannot be read is passed on all the same.
                    let Ok(event) = event else { continue };
                    if event.data == "[DONE]" {
                        self.reading.finished = true;
                    } else if let Ok(value) = serde_json::from_str(&event.data) {
                        self.reading.take(&value);
                    }
                }
            }
            Form::Whole(body) if body.len() + piece.len() <= LONGEST => {
                body.extend_from_slice(piece);
            }
            Form::Whole(_) => {}
        }
    }

    /// Reads what can only be read at the end.
    pub(super) fn end(&mut self) {
        if let Form::Whole(body) = &self.form
            && let Ok(value) = serde_json::from_slice(body)
        {
            self.reading.take(&value);
        }
    }
}

/// What was sent so far, as a stream. It is asked when something was sent, so nobody is woken.
fn pieces(receiver: Receiver<Bytes>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::poll_fn(move |_| match receiver.try_recv() {
        Ok(piece) => Poll::Ready(Some(Ok(piece))),
        Err(TryRecvError::Empty) => Poll::Pending,
        Err(TryRecvError::Disconnected) => Poll::Ready(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, content_type: &str, text: &str) -> Reading {
        let mut reader = Reader::new(dialect, content_type);
        // One byte at a time: an event comes in any pieces.
        text.bytes().for_each(|byte| reader.take(&Bytes::from(vec![byte])));
        reader.end();
        reader.reading
    }

    const EVENTS: &str = "text/event-stream; charset=utf-8";

    #[test]
    fn a_stream_that_is_cut_off_has_not_told_its_usage() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\
            \"m-1\",\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":2,\
            \"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n";
        let reading = read(Dialect::Anthropic, EVENTS, start);
        assert_eq!((reading.tokens(), reading.model.as_deref()), (None, Some("m-1")));
        let end = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\r\n\r\n";
        let reading = read(Dialect::Anthropic, EVENTS, &format!("{start}{end}"));
        assert_eq!(reading.tokens(), Some(Tokens { input: 7, cached: 7, output: 9 }));
    }

    #[test]
    fn a_failure_in_the_middle_of_a_stream_is_seen() {
        let text = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
            \"message\":\"Overloaded\"}}\n\n";
        let failed = read(Dialect::Anthropic, EVENTS, text).failed;
        assert_eq!(failed, Some(Failed { status: 529, text: "Overloaded".to_owned() }));
        let text = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\
            \"error\":{\"message\":\"No.\"}}}\n\n";
        assert_eq!(read(Dialect::Responses, EVENTS, text).failed.expect("failed").text, "No.");
    }

    #[test]
    fn a_list_of_gemini_is_read_as_its_parts() {
        let text = r#"[{"usageMetadata":{"promptTokenCount":10}},
            {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,
             "toolUsePromptTokenCount":5,"cachedContentTokenCount":4,"candidatesTokenCount":3,
             "thoughtsTokenCount":2}}]"#;
        let tokens = read(Dialect::Gemini, "application/json", text).tokens();
        assert_eq!(tokens, Some(Tokens { input: 11, cached: 4, output: 5 }));
    }
}
