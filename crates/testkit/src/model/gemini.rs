//! Encoding of Gemini responses.

use serde_json::json;

use super::model_response::{EncodedResponse, ModelResponse, event};

pub(super) fn encode(answer: &ModelResponse) -> EncodedResponse {
    let mut parts = Vec::new();
    parts.extend(answer.text.as_ref().map(|text| json!({ "text": text })));
    for (number, call) in answer.calls.iter().enumerate() {
        parts.push(json!({ "functionCall": {
            "id": answer.call_id("call", number), "name": call.name, "args": call.input.object(),
        } }));
    }
    let reason = match answer.stop.as_deref() {
        Some("max_tokens") => "MAX_TOKENS",
        Some("refusal") => "SAFETY",
        _ => "STOP",
    };
    let tokens = answer.tokens;
    // Thoughts are output too, and reported separately.
    let thoughts = tokens.output / 4;
    let usage = answer.usage(json!({
        "promptTokenCount": tokens.input + tokens.cached,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": tokens.total(),
    }));
    let mut whole = json!({
        "candidates": [{
            "content": { "role": "model", "parts": parts }, "finishReason": reason, "index": 0,
        }],
        "modelVersion": answer.model, "responseId": format!("r-{}", answer.step_marker),
    });
    if answer.reports_usage {
        whole["usageMetadata"] = usage;
    }
    let events = vec![event(&whole)];
    EncodedResponse { body: whole, events }
}
