//! Encoding of Anthropic messages.

use serde_json::{Value, json};

use super::model_response::{EncodedResponse, ModelResponse, named_event};

pub(super) fn encode(model_response: &ModelResponse) -> EncodedResponse {
    let mut blocks = Vec::new();
    blocks.extend(model_response.text.as_ref().map(|text| json!({ "type": "text", "text": text })));
    for (number, call) in model_response.calls.iter().enumerate() {
        blocks.push(json!({
            "type": "tool_use", "id": model_response.call_id("toolu", number),
            "name": call.name, "input": call.input.object(),
        }));
    }
    let reason = match model_response.stop.as_deref() {
        Some(stop) => stop,
        None if !model_response.calls.is_empty() => "tool_use",
        None => "end_turn",
    };
    let for_an_hour = model_response.tokens.cache_write_1h;
    let created = model_response.tokens.cache_write + for_an_hour;
    let usage = |output: u64| {
        model_response.usage(json!({
            "input_tokens": model_response.tokens.input - created,
            "cache_creation_input_tokens": created,
            "cache_creation": {
                "ephemeral_5m_input_tokens": created - for_an_hour,
                "ephemeral_1h_input_tokens": for_an_hour,
            },
            "cache_read_input_tokens": model_response.tokens.cached,
            "output_tokens": output,
        }))
    };
    let message = |content: Value, reason: Value, usage: Value| {
        json!({
            "id": format!("msg_{}", model_response.step_marker), "type": "message", "role": "assistant",
            "model": model_response.model, "content": content, "stop_reason": reason,
            "stop_sequence": null, "usage": usage,
        })
    };
    let body = message(json!(blocks), json!(reason), usage(model_response.tokens.output));

    let start = message(json!([]), Value::Null, usage(model_response.tokens.output.min(1)));
    let mut events = vec![named_event("message_start", json!({ "message": start }))];
    for (index, block) in blocks.iter().enumerate() {
        let mut empty = block.clone();
        let delta = if let Some(text) = block.get("text") {
            empty["text"] = json!("");
            json!({ "type": "text_delta", "text": text })
        } else {
            empty["input"] = json!({});
            json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() })
        };
        let begin = json!({ "index": index, "content_block": empty });
        events.push(named_event("content_block_start", begin));
        events.push(named_event("content_block_delta", json!({ "index": index, "delta": delta })));
        events.push(named_event("content_block_stop", json!({ "index": index })));
    }
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    let end = json!({ "delta": delta, "usage": usage(model_response.tokens.output) });
    events.push(named_event("message_delta", end));
    events.push(named_event("message_stop", json!({})));
    EncodedResponse { body, events }
}
