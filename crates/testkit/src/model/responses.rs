//! Encoding of OpenAI responses.

use serde_json::{Value, json};

use super::model_response::{EncodedResponse, ModelResponse, named_event};
use super::offered_tools::ToolInput;

pub(super) fn encode(model_response: &ModelResponse) -> EncodedResponse {
    let items = items(model_response);
    let tokens = model_response.tokens;
    let usage = model_response.usage(json!({
        "input_tokens": tokens.input + tokens.cached,
        "input_tokens_details": {
            "cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write,
        },
        "output_tokens": tokens.output,
        "output_tokens_details": { "reasoning_tokens": tokens.output / 4 },
        "total_tokens": tokens.total(),
    }));
    let response = |status: &str, output: &[Value], usage: &Value| {
        let reason = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        json!({
            "id": format!("resp_{}", model_response.step_marker), "object": "response", "created_at": 1,
            "status": status, "model": model_response.model, "output": output, "usage": usage,
            "incomplete_details": reason,
        })
    };
    let cut = model_response.stop.as_deref() == Some("max_tokens");
    let status = if cut { "incomplete" } else { "completed" };
    let body = response(status, &items, &usage);

    let mut events = Vec::new();
    let mut push = |name: &str, mut data: Value| {
        data["sequence_number"] = json!(events.len());
        events.push(named_event(name, data));
    };
    push("response.created", json!({ "response": response("in_progress", &[], &Value::Null) }));
    for (index, item) in items.iter().enumerate() {
        let mut started = item.clone();
        started["status"] = json!("in_progress");
        match item["type"].as_str() {
            Some("message") => started["content"] = json!([]),
            Some("function_call") => started["arguments"] = json!(""),
            _ => {}
        }
        push("response.output_item.added", json!({ "output_index": index, "item": started }));
        if item["type"] == "message" {
            let delta = json!({
                "output_index": index, "item_id": item["id"], "content_index": 0,
                "delta": item["content"][0]["text"],
            });
            push("response.output_text.delta", delta);
        }
        push("response.output_item.done", json!({ "output_index": index, "item": item }));
    }
    push(&format!("response.{status}"), json!({ "response": body }));
    EncodedResponse { body, events }
}

fn items(model_response: &ModelResponse) -> Vec<Value> {
    let marker = &model_response.step_marker;
    let mut items = Vec::new();
    items.extend(model_response.text.as_ref().map(|text| {
        json!({
            "type": "message", "id": format!("msg_{marker}"), "role": "assistant",
            "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        })
    }));
    for (number, call) in model_response.calls.iter().enumerate() {
        let (space, name) = match call.name.split_once('.') {
            Some((space, name)) => (Some(space), name),
            None => (None, call.name.as_str()),
        };
        let id = model_response.call_id("call", number);
        let mut item = match &call.input {
            ToolInput::Args(args) => json!({
                "type": "function_call", "id": format!("fc_{marker}_{number}"), "call_id": id,
                "name": name, "arguments": args.to_string(), "status": "completed",
            }),
            ToolInput::Text(text) => json!({
                "type": "custom_tool_call", "id": format!("ctc_{marker}_{number}"), "call_id": id,
                "name": name, "input": text, "status": "completed",
            }),
        };
        if let Some(space) = space {
            item["namespace"] = json!(space);
        }
        items.push(item);
    }
    items
}
