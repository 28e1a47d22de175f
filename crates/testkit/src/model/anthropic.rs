//! Encoding of Anthropic messages.

use serde_json::{Value, json};

use super::model_response::{EncodedResponse, ModelResponse, named_event};

pub(super) fn encode(answer: &ModelResponse) -> EncodedResponse {
    let mut blocks = Vec::new();
    blocks.extend(answer.text.as_ref().map(|text| json!({ "type": "text", "text": text })));
    for (number, call) in answer.calls.iter().enumerate() {
        blocks.push(json!({
            "type": "tool_use", "id": answer.call_id("toolu", number),
            "name": call.name, "input": call.input.object(),
        }));
    }
    let reason = match answer.stop.as_deref() {
        Some(stop) => stop,
        None if !answer.calls.is_empty() => "tool_use",
        None => "end_turn",
    };
    // Tokens written to the cache cost the full price or more.
    let created = answer.tokens.input / 10;
    let usage = |output: u64| {
        answer.usage(json!({
            "input_tokens": answer.tokens.input - created,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": answer.tokens.cached,
            "output_tokens": output,
        }))
    };
    let message = |content: Value, reason: Value, usage: Value| {
        json!({
            "id": format!("msg_{}", answer.step_marker), "type": "message", "role": "assistant",
            "model": answer.model, "content": content, "stop_reason": reason,
            "stop_sequence": null, "usage": usage,
        })
    };
    let whole = message(json!(blocks), json!(reason), usage(answer.tokens.output));

    let start = message(json!([]), Value::Null, usage(answer.tokens.output.min(1)));
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
    let end = json!({ "delta": delta, "usage": usage(answer.tokens.output) });
    events.push(named_event("message_delta", end));
    events.push(named_event("message_stop", json!({})));
    EncodedResponse { body: whole, events }
}
