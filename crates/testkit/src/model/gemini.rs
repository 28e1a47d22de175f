//! Encoding of Gemini responses.

use serde_json::json;

use super::model_response::{EncodedResponse, ModelResponse, event};

pub(super) fn encode(model_response: &ModelResponse) -> EncodedResponse {
    let mut parts = Vec::new();
    parts.extend(model_response.text.as_ref().map(|text| json!({ "text": text })));
    for (number, call) in model_response.calls.iter().enumerate() {
        parts.push(json!({ "functionCall": {
            "id": model_response.call_id("call", number), "name": call.name, "args": call.input.object(),
        } }));
    }
    let reason = match model_response.stop.as_deref() {
        Some("max_tokens") => "MAX_TOKENS",
        Some("refusal") => "SAFETY",
        _ => "STOP",
    };
    let tokens = model_response.tokens;
    // Thoughts are output too, and reported separately.
    let thoughts = tokens.output / 4;
    let usage = model_response.usage(json!({
        "promptTokenCount": tokens.input + tokens.cached,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": tokens.total(),
    }));
    let mut body = json!({
        "candidates": [{
            "content": { "role": "model", "parts": parts }, "finishReason": reason, "index": 0,
        }],
        "modelVersion": model_response.model, "responseId": format!("r-{}", model_response.step_marker),
    });
    if model_response.reports_usage {
        body["usageMetadata"] = usage;
    }
    let events = vec![event(&body)];
    EncodedResponse { body, events }
}
