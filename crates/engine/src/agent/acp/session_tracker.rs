//! State of a session, collected from the agent's messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tamma_core::budget::SpendLimit;
use tamma_core::cost::{Cost, Tokens, Usage};
use tokio::sync::{Notify, watch};

use crate::agent::{AgentUpdate, PlanEntry, RunEnd, RunReport, ToolCallUpdate, ToolContent};
use crate::agent_tools::AgentQuestion;

/// Tracker of a session's state. Clones share it.
#[derive(Clone)]
pub(crate) struct SessionTracker {
    state: Arc<Mutex<SessionState>>,
    /// The gateway meters the run, so the agent's own usage reports are ignored.
    metered: bool,
    /// Signals that the agent reports a cost above its limit.
    pub(super) over_budget: Arc<Notify>,
    /// Signals that a tool call has ended.
    pub(super) tool_ended: Arc<Notify>,
    /// Question from a permission request that needs a person.
    pub(super) question: watch::Sender<Option<AgentQuestion>>,
}

#[derive(Default)]
pub(super) struct SessionState {
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) resumed: bool,
    /// The agent is replaying an earlier session, so its updates are ignored.
    pub(super) replaying: bool,
    /// Messages of the current turn.
    pub(super) text: String,
    pub(super) tokens: Option<Tokens>,
    pub(super) cost: Option<Cost>,
    pub(super) tools: BTreeMap<String, Value>,
    pub(super) cancelled: bool,
}

impl SessionTracker {
    pub(crate) fn new(metered: bool) -> Self {
        Self {
            state: Arc::default(),
            metered,
            over_budget: Arc::default(),
            tool_ended: Arc::default(),
            question: watch::Sender::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SessionState> {
        // The state is consistent after every single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        let state = self.lock();
        let has_usage = !self.metered && (state.tokens.is_some() || state.cost.is_some());
        has_usage.then(|| Usage {
            tokens: state.tokens.unwrap_or_default(),
            cost: state.cost.unwrap_or_default(),
        })
    }

    /// Returns the outcome for an agent that exited. Without a session, it was never available.
    pub(crate) fn end_for_exit(&self, reason: &str) -> RunEnd {
        let reason = reason.to_owned();
        if self.lock().session.is_some() {
            RunEnd::Crashed { reason }
        } else {
            RunEnd::Unavailable { reason }
        }
    }

    /// Returns a report of the run. The caller fills in the outcome.
    pub(crate) fn report(&self) -> RunReport {
        let usage = self.usage();
        let state = self.lock();
        RunReport {
            end: RunEnd::Cancelled,
            usage,
            metered: false,
            session: state.session.clone(),
            resumed: state.resumed,
            agent: state.agent.clone(),
            stderr: String::new(),
        }
    }

    /// Applies an update and returns the event for observers; `None` for replayed updates.
    pub(super) fn apply_update(
        &self,
        update: Value,
        allowance: &SpendLimit,
    ) -> Option<AgentUpdate> {
        if self.lock().replaying {
            return None;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let content = || text(&update["content"]["text"]);
        Some(match (update["sessionUpdate"].as_str().unwrap_or_default(), content()) {
            ("agent_message_chunk", Some(content)) => {
                self.lock().text.push_str(&content);
                AgentUpdate::Message(content)
            }
            ("agent_thought_chunk", Some(thought)) => AgentUpdate::Thought(thought),
            ("tool_call" | "tool_call_update", _) => self.apply_tool_update(&update),
            ("plan", _) => AgentUpdate::Plan(plan_entries(&update["entries"])),
            // `used` is the fill level of the context, not consumption.
            ("usage_update", _) if update["cost"].is_object() && !self.metered => {
                let cost = parse_cost(&update["cost"]);
                self.lock().cost = Some(cost);
                if let (Cost::Known(spent), Some(limit)) = (cost, allowance.usd)
                    && spent > limit
                {
                    self.over_budget.notify_one();
                }
                AgentUpdate::UsageReported(self.usage().unwrap_or_default())
            }
            _ => AgentUpdate::Other(update),
        })
    }

    fn apply_tool_update(&self, update: &Value) -> AgentUpdate {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let id = text(&update["toolCallId"]).unwrap_or_default();
        merge_tool_call(self.lock().tools.entry(id.clone()).or_default(), update);
        let status = text(&update["status"]);
        if matches!(status.as_deref(), Some("completed" | "failed")) {
            self.tool_ended.notify_waiters();
        }
        let locations = update["locations"].as_array().into_iter().flatten();
        let raw_output = &update["rawOutput"];
        let input = &update["rawInput"];
        AgentUpdate::ToolCall(ToolCallUpdate {
            id,
            title: text(&update["title"]),
            status,
            kind: text(&update["kind"]),
            locations: locations.filter_map(|location| text(&location["path"])).collect(),
            input: (!input.is_null()).then(|| input.clone()),
            content: tool_content(&update["content"], raw_output),
            exit_code: exit_code(raw_output),
        })
    }

    /// Adds the reported tokens of one turn.
    pub(super) fn add_usage(&self, response: &Value) {
        let Some(tokens) = turn_tokens(response) else {
            return;
        };
        let mut state = self.lock();
        state.tokens = Some(state.tokens.unwrap_or_default() + tokens);
    }
}

/// Returns the reported tokens of one turn, from the protocol's field or from Gemini's.
fn turn_tokens(response: &Value) -> Option<Tokens> {
    let (usage, quota) = (&response["usage"], &response["_meta"]["quota"]["token_count"]);
    let count = |name: &str, other: &str| usage[name].as_u64().or_else(|| quota[other].as_u64());
    let input = count("inputTokens", "input_tokens")?;
    let output = count("outputTokens", "output_tokens")?;
    let cached = count("cachedReadTokens", "").unwrap_or_default();
    // Reported apart from other input, as Anthropic does.
    let cache_write = count("cachedWriteTokens", "").unwrap_or_default();
    let input = input.saturating_add(cache_write);
    Some(Tokens { input, cached, output, cache_write, ..Tokens::default() })
}

fn parse_cost(cost: &Value) -> Cost {
    let amount = (cost["currency"] == "USD").then(|| cost["amount"].to_string().parse().ok());
    amount.flatten().map_or(Cost::Unknown, Cost::Known)
}

fn plan_entries(list: &Value) -> Vec<PlanEntry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry =
        |one: &Value| PlanEntry { content: text(&one["content"]), status: text(&one["status"]) };
    list.as_array().into_iter().flatten().map(entry).collect()
}

/// Returns the reported output of a tool call: its content, or the raw output of the tool. `None` if
/// the update has neither.
fn tool_content(content: &Value, raw_output: &Value) -> Option<Vec<ToolContent>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let part = |one: &Value| match one["type"].as_str()? {
        "content" => text(&one["content"]["text"]).map(ToolContent::Text),
        "diff" => Some(ToolContent::Edit {
            path: text(&one["path"])?,
            old: text(&one["oldText"]),
            new: text(&one["newText"])?,
        }),
        _ => None,
    };
    let parts: Option<Vec<_>> =
        content.as_array().map(|parts| parts.iter().filter_map(part).collect());
    if parts.as_ref().is_some_and(|parts| !parts.is_empty()) {
        return parts;
    }
    raw_output_text(raw_output).map(|text| vec![ToolContent::Text(text)]).or(parts)
}

/// Returns the text in the raw output of a tool. Agents name it differently.
fn raw_output_text(raw: &Value) -> Option<String> {
    let fields = ["aggregated_output", "formatted_output", "output", "stdout"];
    let text = raw.as_str().or_else(|| fields.iter().find_map(|field| raw[*field].as_str()))?;
    let errors = raw["stderr"].as_str().filter(|_| raw["stdout"].as_str() == Some(text));
    match errors.filter(|errors| !errors.is_empty()) {
        Some(errors) if text.is_empty() => Some(errors.to_owned()),
        Some(errors) => Some(format!("{text}\n{errors}")),
        None => Some(text.to_owned()),
    }
}

/// Returns the exit code in the raw output of a tool. Agents name it differently.
fn exit_code(raw: &Value) -> Option<i64> {
    ["exit_code", "exitCode", "exit"]
        .iter()
        .find_map(|field| raw[*field].as_i64().or_else(|| raw["metadata"][*field].as_i64()))
}

/// Merges new fields of a tool call into the known ones.
pub(super) fn merge_tool_call(target: &mut Value, new: &Value) {
    match (target, new) {
        (Value::Object(target), Value::Object(new)) => {
            for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                target.insert(name.clone(), value.clone());
            }
        }
        (target, new) => *target = new.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cost_in_another_currency_is_unknown() {
        let cost = parse_cost(&json!({ "amount": 0.25, "currency": "USD" }));
        assert_eq!(cost, Cost::Known("0.25".parse().expect("money")));
        assert_eq!(parse_cost(&json!({ "amount": 0.25, "currency": "EUR" })), Cost::Unknown);
    }

    #[test]
    fn tokens_are_read_from_either_field() {
        let expected = Some(Tokens { input: 3, output: 2, ..Tokens::default() });
        assert_eq!(
            turn_tokens(&json!({ "usage": { "inputTokens": 3, "outputTokens": 2 } })),
            expected
        );
        let quota = json!({ "token_count": { "input_tokens": 3, "output_tokens": 2 } });
        assert_eq!(turn_tokens(&json!({ "_meta": { "quota": quota } })), expected);
        assert_eq!(turn_tokens(&json!({ "stopReason": "end_turn" })), None);
    }

    #[test]
    fn tool_calls_keep_input_output_edits_and_exit_code() {
        let tracker = SessionTracker::new(false);
        let read = |update: Value| match tracker.apply_update(update, &SpendLimit::default()) {
            Some(AgentUpdate::ToolCall(call)) => call,
            other => panic!("{other:?}"),
        };
        let call = read(json!({
            "sessionUpdate": "tool_call", "toolCallId": "1", "title": "Edit a.rs", "kind": "edit",
            "rawInput": { "path": "a.rs" },
            "content": [
                { "type": "content", "content": { "type": "text", "text": "done" } },
                { "type": "diff", "path": "a.rs", "oldText": "a", "newText": "b" },
                { "type": "terminal", "terminalId": "t1" },
            ],
        }));
        assert_eq!(call.input, Some(json!({ "path": "a.rs" })));
        let edit = ToolContent::Edit {
            path: "a.rs".to_owned(),
            old: Some("a".to_owned()),
            new: "b".to_owned(),
        };
        assert_eq!(call.content, Some(vec![ToolContent::Text("done".to_owned()), edit]));
        // The formats of Codex and OpenCode, and one without output.
        for (raw, text, code) in [
            (json!({ "stdout": "a", "stderr": "b", "exit_code": 101 }), Some("a\nb"), Some(101)),
            (json!({ "output": "c", "metadata": { "exit": 1 } }), Some("c"), Some(1)),
            (json!(null), None, None),
        ] {
            let call = read(json!({
                "sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "completed",
                "rawOutput": raw,
            }));
            let text = text.map(|text| vec![ToolContent::Text(text.to_owned())]);
            assert_eq!((call.content, call.exit_code), (text, code));
        }
    }

    #[test]
    fn replayed_updates_are_ignored() {
        let tracker = SessionTracker::new(false);
        let chunk =
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "text": "before" } });
        tracker.lock().replaying = true;
        assert_eq!(tracker.apply_update(chunk.clone(), &SpendLimit::default()), None);
        tracker.lock().replaying = false;
        let update = tracker.apply_update(chunk, &SpendLimit::default());
        assert_eq!(update, Some(AgentUpdate::Message("before".to_owned())));
        assert_eq!(tracker.lock().text, "before");
    }
}
