//! What has been heard from the agent so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tamma_core::budget::Limit;
use tamma_core::cost::{Cost, Tokens, Usage};
use tokio::sync::{Notify, watch};

use crate::agent::{Entry, Report, RunEnd, Update};
use crate::desk::Question;

/// What has been heard from the agent so far. Copies hear the same.
#[derive(Clone)]
pub(crate) struct Heard {
    state: Arc<Mutex<State>>,
    /// Whether the gateway meters. Then what the agent says of its usage is not asked for.
    metered: bool,
    /// The agent says that it has spent more than it may.
    pub(super) over_budget: Arc<Notify>,
    /// A tool call has ended.
    pub(super) tool_ended: Arc<Notify>,
    /// It asked for something that a person decides.
    pub(super) asked: watch::Sender<Option<Question>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) resumed: bool,
    /// An earlier conversation is told again, which is nothing new.
    pub(super) replaying: bool,
    /// What it said in this turn.
    pub(super) text: String,
    pub(super) tokens: Option<Tokens>,
    pub(super) cost: Option<Cost>,
    pub(super) tools: BTreeMap<String, Value>,
    pub(super) cancelled: bool,
}

impl Heard {
    pub(crate) fn new(metered: bool) -> Self {
        Self {
            state: Arc::default(),
            metered,
            over_budget: Arc::default(),
            tool_ended: Arc::default(),
            asked: watch::Sender::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What it holds is consistent after every single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        let state = self.lock();
        let said = !self.metered && (state.tokens.is_some() || state.cost.is_some());
        said.then(|| Usage {
            tokens: state.tokens.unwrap_or_default(),
            cost: state.cost.unwrap_or_default(),
        })
    }

    /// How a run ends whose agent is gone. One that never had a session never was available.
    pub(crate) fn died(&self, reason: &str) -> RunEnd {
        let reason = reason.to_owned();
        if self.lock().session.is_some() {
            RunEnd::Crashed { reason }
        } else {
            RunEnd::Unavailable { reason }
        }
    }

    /// What is known of the run, with the end that is yet to be filled in.
    pub(crate) fn report(&self) -> Report {
        let usage = self.usage();
        let state = self.lock();
        Report {
            end: RunEnd::Cancelled,
            usage,
            metered: false,
            session: state.session.clone(),
            resumed: state.resumed,
            agent: state.agent.clone(),
            stderr: String::new(),
        }
    }

    /// Takes an update in, and says what it was. What is only told again is nothing.
    pub(super) fn take(&self, update: Value, allowance: &Limit) -> Option<Update> {
        if self.lock().replaying {
            return None;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let said = || text(&update["content"]["text"]);
        Some(match (update["sessionUpdate"].as_str().unwrap_or_default(), said()) {
            ("agent_message_chunk", Some(said)) => {
                self.lock().text.push_str(&said);
                Update::Said(said)
            }
            ("agent_thought_chunk", Some(thought)) => Update::Thought(thought),
            ("tool_call" | "tool_call_update", _) => self.take_tool(&update),
            ("plan", _) => Update::Plan(entries(&update["entries"])),
            // `used` is how full the context is, which is not what was consumed.
            ("usage_update", _) if update["cost"].is_object() && !self.metered => {
                let cost = dollars(&update["cost"]);
                self.lock().cost = Some(cost);
                if let (Cost::Known(spent), Some(limit)) = (cost, allowance.usd)
                    && spent > limit
                {
                    self.over_budget.notify_one();
                }
                Update::Used(self.usage().unwrap_or_default())
            }
            _ => Update::Other(update),
        })
    }

    fn take_tool(&self, update: &Value) -> Update {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let id = text(&update["toolCallId"]).unwrap_or_default();
        merge(self.lock().tools.entry(id.clone()).or_default(), update);
        let status = text(&update["status"]);
        if matches!(status.as_deref(), Some("completed" | "failed")) {
            self.tool_ended.notify_waiters();
        }
        let places = update["locations"].as_array().into_iter().flatten();
        Update::Tool {
            id,
            title: text(&update["title"]),
            status,
            kind: text(&update["kind"]),
            locations: places.filter_map(|place| text(&place["path"])).collect(),
        }
    }

    /// Books the tokens of one turn, as far as the agent says.
    pub(super) fn add(&self, answer: &Value) {
        let Some(tokens) = tokens(answer) else {
            return;
        };
        let mut state = self.lock();
        let before = state.tokens.unwrap_or_default();
        state.tokens = Some(Tokens {
            input: before.input.saturating_add(tokens.input),
            cached: before.cached.saturating_add(tokens.cached),
            output: before.output.saturating_add(tokens.output),
        });
    }
}

/// The tokens of one turn, as far as the agent says: in the protocol's place, or in Gemini's.
fn tokens(answer: &Value) -> Option<Tokens> {
    let (usage, quota) = (&answer["usage"], &answer["_meta"]["quota"]["token_count"]);
    let count = |name: &str, other: &str| usage[name].as_u64().or_else(|| quota[other].as_u64());
    let input = count("inputTokens", "input_tokens")?;
    let output = count("outputTokens", "output_tokens")?;
    Some(Tokens { input, cached: count("cachedReadTokens", "").unwrap_or_default(), output })
}

fn dollars(cost: &Value) -> Cost {
    let amount = (cost["currency"] == "USD").then(|| cost["amount"].to_string().parse().ok());
    amount.flatten().map_or(Cost::Unknown, Cost::Known)
}

fn entries(list: &Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry =
        |one: &Value| Entry { content: text(&one["content"]), status: text(&one["status"]) };
    list.as_array().into_iter().flatten().map(entry).collect()
}

/// Lays what is new of a tool call over what was known of it.
pub(super) fn merge(known: &mut Value, new: &Value) {
    match (known, new) {
        (Value::Object(known), Value::Object(new)) => {
            for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                known.insert(name.clone(), value.clone());
            }
        }
        (known, new) => *known = new.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cost_in_another_currency_is_unknown_and_not_zero() {
        let known = dollars(&json!({ "amount": 0.25, "currency": "USD" }));
        assert_eq!(known, Cost::Known("0.25".parse().expect("money")));
        assert_eq!(dollars(&json!({ "amount": 0.25, "currency": "EUR" })), Cost::Unknown);
    }

    #[test]
    fn tokens_are_found_in_both_places() {
        let expected = Some(Tokens { input: 3, cached: 0, output: 2 });
        assert_eq!(tokens(&json!({ "usage": { "inputTokens": 3, "outputTokens": 2 } })), expected);
        let quota = json!({ "token_count": { "input_tokens": 3, "output_tokens": 2 } });
        assert_eq!(tokens(&json!({ "_meta": { "quota": quota } })), expected);
        assert_eq!(tokens(&json!({ "stopReason": "end_turn" })), None);
    }

    #[test]
    fn what_is_told_again_is_nothing_new() {
        let heard = Heard::new(false);
        let chunk =
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "text": "before" } });
        heard.lock().replaying = true;
        assert_eq!(heard.take(chunk.clone(), &Limit::default()), None);
        heard.lock().replaying = false;
        let said = heard.take(chunk, &Limit::default());
        assert_eq!(said, Some(Update::Said("before".to_owned())));
        assert_eq!(heard.lock().text, "before");
    }
}
