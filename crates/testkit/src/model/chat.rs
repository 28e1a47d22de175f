//! Encoding of OpenAI chat completions.

use serde_json::{Value, json};

use super::model_response::{EncodedResponse, ModelResponse, event};

pub(super) fn encode(model_response: &ModelResponse) -> EncodedResponse {
    let id = format!("chatcmpl-{}", model_response.step_marker);
    let calls = model_response.calls.iter().enumerate().map(|(number, call)| {
        json!({
            "index": number, "id": model_response.call_id("call", number), "type": "function",
            "function": { "name": call.name, "arguments": call.input.object().to_string() },
        })
    });
    let calls: Vec<_> = calls.collect();
    let reason = match model_response.stop.as_deref() {
        Some("max_tokens") => "length",
        Some("refusal") => "content_filter",
        _ if !calls.is_empty() => "tool_calls",
        _ => "stop",
    };
    let tokens = model_response.tokens;
    let usage = model_response.usage(json!({
        "prompt_tokens": tokens.input + tokens.cached,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.total(),
        "prompt_tokens_details": {
            "cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write,
        },
        "completion_tokens_details": { "reasoning_tokens": tokens.output / 4 },
    }));
    let mut message = json!({ "role": "assistant", "content": model_response.text });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let body = json!({
        "id": id, "object": "chat.completion", "created": 1, "model": model_response.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }], "usage": usage,
    });

    let chunk = |choices: Value, usage: &Value| {
        event(&json!({
            "id": id, "object": "chat.completion.chunk", "created": 1, "model": model_response.model,
            "choices": choices, "usage": usage,
        }))
    };
    let part = |delta: Value, reason: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        chunk(json!([choice]), &Value::Null)
    };
    let mut events = vec![part(json!({ "role": "assistant", "content": "" }), None)];
    events.extend(model_response.text.as_ref().map(|text| part(json!({ "content": text }), None)));
    events.extend(calls.iter().map(|call| part(json!({ "tool_calls": [call] }), None)));
    events.push(part(json!({}), Some(reason)));
    if model_response.reports_usage {
        events.push(chunk(json!([]), &usage));
    }
    events.push("data: [DONE]\n\n".to_owned());
    EncodedResponse { body, events }
}
