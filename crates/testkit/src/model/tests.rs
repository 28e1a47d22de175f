use serde_json::json;

use super::*;

async fn post(model: &ScriptedModel, path: &str, body: &Value) -> Value {
    let response = reqwest::Client::new()
        .post(format!("{}{path}", model.url()))
        .json(body)
        .send()
        .await
        .expect("answered");
    response.json().await.expect("JSON")
}

fn chat(messages: &Value) -> Value {
    let tools = json!([{ "type": "function", "function": { "name": "bash" } }]);
    json!({ "model": "m", "messages": messages, "tools": tools })
}

fn steps() -> [ModelStep; 2] {
    [ModelStep::call(ScriptedCall::Shell { cmd: "ls".to_owned() }), ModelStep::say("Done.")]
}

#[tokio::test]
async fn conversation_determines_the_next_step() {
    let model = ScriptedModel::start(Script::new(steps())).await.expect("model");
    let user = json!({ "role": "user", "content": "Do it, as [c0s7] says." });
    let first = post(&model, "/v1/chat/completions", &chat(&json!([user]))).await;
    let message = first["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"][0]["id"], "call_c0s0_0");
    assert_eq!(message["tool_calls"][0]["function"]["name"], "bash");
    let retry = post(&model, "/v1/chat/completions", &chat(&json!([user]))).await;
    assert_eq!(retry, first, "a retry gets the same response");
    let result = json!({ "role": "tool", "tool_call_id": "call_c0s0_0", "content": "" });
    let second = post(&model, "/v1/chat/completions", &chat(&json!([user, message, result]))).await;
    let message = second["choices"][0]["message"].clone();
    assert_eq!(message["content"], "Done. [c0s1]");
    let third = post(&model, "/v1/chat/completions", &chat(&json!([user, message, user]))).await;
    assert_eq!(third["choices"][0]["message"]["content"], "That is all. [c0s2]");
    assert_eq!(model.requests().iter().map(|r| r.step).collect::<Vec<_>>(), [0, 0, 1, 2].map(Some));
}

#[tokio::test]
async fn side_request_plays_no_step_but_is_logged() {
    let model = ScriptedModel::start(Script::new(steps())).await.expect("model");
    let messages = json!([{ "role": "user", "content": "Name this." }]);
    let bare = json!({ "model": "small", "messages": messages });
    let title = post(&model, "/v1/messages", &bare).await;
    assert_eq!(title["content"][0]["text"], "A scripted title");
    let sent = model.sent();
    assert_eq!((sent.len(), sent[0].is_side_request, sent[0].model.as_str()), (1, true, "small"));
    assert_eq!(model.requests()[0].step, None);
    let mut structured = chat(&messages);
    structured["response_format"] = json!({ "type": "json_schema" });
    let title = post(&model, "/v1/chat/completions", &structured).await;
    assert_eq!(
        title["choices"][0]["message"]["content"],
        r#"{"title":"A scripted title","outcome":"allow"}"#
    );
}

#[tokio::test]
async fn first_matching_case_is_played() {
    let case = |when: &str, unless: Option<&str>| ConversationCase {
        when: when.to_owned(),
        unless: unless.map(str::to_owned),
        steps: vec![ModelStep::say(when)],
    };
    let cases = vec![case("You plan", None), case("You \"build\"", Some("again"))];
    let script = Script { cases, ..Script::new([ModelStep::say("otherwise")]) };
    let model = ScriptedModel::start(script).await.expect("model");
    let reply = async |prompt: &str| {
        let request = chat(&json!([{ "role": "user", "content": prompt }]));
        let response = post(&model, "/v1/chat/completions", &request).await;
        response["choices"][0]["message"]["content"].as_str().expect("text").to_owned()
    };
    assert_eq!(reply("You plan. You \"build\".").await, "You plan [c1s0]");
    assert_eq!(reply("You \"build\".").await, "You \"build\" [c2s0]");
    assert_eq!(reply("You \"build\" again.").await, "otherwise [c0s0]");
}

#[tokio::test]
async fn step_fails_the_scripted_number_of_times() {
    let mut step = ModelStep::fail(2, 429);
    step.headers.insert("retry-after".to_owned(), "7".to_owned());
    let model = ScriptedModel::start(Script::new([step])).await.expect("model");
    let request = chat(&json!([{ "role": "user", "content": "Go." }]));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let url = format!("{}/v1/responses", model.url());
        let response =
            reqwest::Client::new().post(url).json(&request).send().await.expect("answer");
        let after = response.headers().get("retry-after").map(|value| value.as_bytes().to_vec());
        statuses.push((response.status().as_u16(), after.is_some()));
    }
    assert_eq!(statuses, [(429, true), (429, true), (200, false)]);
    assert_eq!(model.sent().len(), 1);
}

#[test]
fn tool_is_found_by_the_end_of_its_name() {
    let call = ScriptedCall::tool("submit_plan", json!({ "a": 1 }));
    let name = |request: &Value| {
        offered_tools::OfferedTools::from_request(
            request,
            &script_position::conversation_text(request),
        )
        .resolve(&call)
        .name
    };
    let chat = json!({ "tools": [{ "function": { "name": "tamma_submit_plan" } },
        { "function": { "name": "resubmit_plan_b" } }] });
    assert_eq!(name(&chat), "tamma_submit_plan");
    let gemini =
        json!({ "tools": [{ "functionDeclarations": [{ "name": "mcp_tamma_submit_plan" }] }] });
    assert_eq!(name(&gemini), "mcp_tamma_submit_plan");
    let spaces = json!({ "tools": [{ "type": "namespace", "name": "mcp__tamma__",
        "tools": [{ "type": "function", "name": "submit_plan" }] }] });
    assert_eq!(name(&spaces), "mcp__tamma__.submit_plan");
    let deferred = json!({ "tools": [{ "name": "ToolSearch" }],
        "messages": [{ "role": "user", "content": "Deferred:\nmcp__tamma__submit_plan\n" }] });
    assert_eq!(name(&deferred), "mcp__tamma__submit_plan");
    let searched = json!({ "tools": [{ "type": "tool_search" }] });
    assert_eq!(name(&searched), "mcp__tamma.submit_plan");
}

#[tokio::test]
async fn counted_tokens_are_reported_with_the_cached_prefix() {
    let script = Script { count_tokens: true, ..Script::new(steps()) };
    let model = ScriptedModel::start(script).await.expect("model");
    let long = json!({ "role": "user", "content": "word".repeat(2_000) });
    let first = post(&model, "/v1/chat/completions", &chat(&json!([long]))).await;
    let result = json!({ "role": "tool", "tool_call_id": "call_c0s0_0", "content": "a file" });
    let message = first["choices"][0]["message"].clone();
    let messages = json!([long, message, result]);
    let second = post(&model, "/v1/chat/completions", &chat(&messages)).await;
    let cached =
        |response: &Value| response["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!((cached(&first), cached(&second)), (json!(0), json!(1_920)));
    let sent = model.sent();
    assert_eq!(second["usage"]["prompt_tokens"], sent[1].tokens.input + 1_920);
    assert_eq!(
        second["usage"]["completion_tokens"],
        json!(3),
        "a token is four bytes: Done. [c0s1]"
    );
}
