//! The Agent Client Protocol: one session over the agent's standard input and output.
//!
//! This is the only file that names the protocol's library. Messages from the agent are kept as raw
//! JSON and read leniently: the library would drop an update of a kind that it does not know, and
//! fail on a stop reason that it does not know. Time is measured by our own clock, and a stop reason
//! is only what the agent says of itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, Implementation, InitializeRequest,
    NewSessionRequest, PermissionOptionKind, PromptRequest, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId,
};
use agent_client_protocol::{
    Agent, ByteStreams, Client, Error, JsonRpcNotification, UntypedMessage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::budget::Limit;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::task_loop::Timestamp;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};
use tokio_util::sync::CancellationToken;

use super::{Observer, Report, RunEnd, RunOrder, Update};
use crate::permission::{Ask, Kind};
use crate::submission::{self, Submission};

/// The protocol's code for "sign in first".
const AUTHENTICATE_FIRST: i32 = -32_000;

/// An update as it came.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "session/update")]
#[serde(rename_all = "camelCase")]
struct RawUpdate {
    session_id: SessionId,
    update: Value,
}

/// What has been heard from the agent so far.
#[derive(Clone, Default)]
pub(super) struct Heard {
    state: Arc<Mutex<State>>,
    over_budget: Arc<Notify>,
}

#[derive(Default)]
struct State {
    agent: Option<String>,
    session: Option<String>,
    /// What it said in this turn.
    text: String,
    tokens: Option<Tokens>,
    cost: Option<Cost>,
    tools: BTreeMap<String, Value>,
    cancelled: bool,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What it holds is consistent after every single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usage(&self) -> Option<Usage> {
        let state = self.lock();
        (state.tokens.is_some() || state.cost.is_some()).then(|| Usage {
            tokens: state.tokens.unwrap_or_default(),
            cost: state.cost.unwrap_or_default(),
        })
    }

    /// How a run ends whose agent is gone. One that never had a session never was available.
    pub(super) fn died(&self, reason: &str) -> RunEnd {
        let reason = reason.to_owned();
        if self.lock().session.is_some() {
            RunEnd::Crashed { reason }
        } else {
            RunEnd::Unavailable { reason }
        }
    }

    /// What is known of the run, with the end that is yet to be filled in.
    pub(super) fn report(&self) -> Report {
        let usage = self.usage();
        let state = self.lock();
        let (agent, session) = (state.agent.clone(), state.session.clone());
        Report { end: RunEnd::Cancelled, usage, session, agent, stderr: String::new() }
    }

    /// Takes an update in, and says what it was.
    fn take(&self, update: Value, allowance: &Limit) -> Update {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let said = || text(&update["content"]["text"]);
        match (update["sessionUpdate"].as_str().unwrap_or_default(), said()) {
            ("agent_message_chunk", Some(said)) => {
                self.lock().text.push_str(&said);
                Update::Said(said)
            }
            ("agent_thought_chunk", Some(thought)) => Update::Thought(thought),
            ("tool_call" | "tool_call_update", _) => {
                let id = text(&update["toolCallId"]).unwrap_or_default();
                merge(self.lock().tools.entry(id.clone()).or_default(), &update);
                Update::Tool { id, title: text(&update["title"]), status: text(&update["status"]) }
            }
            // `used` is how full the context is, which is not what was consumed.
            ("usage_update", _) if update["cost"].is_object() => {
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
        }
    }
}

/// Holds the conversation of one run, to its end.
pub(super) async fn talk(
    (stdin, stdout): (ChildStdin, ChildStdout),
    order: RunOrder,
    heard: Heard,
    observer: Observer,
    cancel: CancellationToken,
) -> RunEnd {
    let allowance = order.allowance;
    let policy = order.policy.clone();
    let (updates, asks, session) = (heard.clone(), heard.clone(), heard.clone());
    let (see_update, see_ask, see) = (observer.clone(), observer.clone(), observer);
    let ended = Client
        .v1()
        .name("tamma")
        .on_receive_notification(
            async move |raw: RawUpdate, _cx| {
                see_update(updates.take(raw.update, &allowance));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                let (cancelled, known) = {
                    let state = asks.lock();
                    let known = state.tools.get(&*request.tool_call.tool_call_id.0).cloned();
                    (state.cancelled, known.unwrap_or_default())
                };
                let outcome = if cancelled {
                    RequestPermissionOutcome::Cancelled
                } else {
                    let ask = ask(&request, known);
                    let ruling = policy(&ask);
                    let outcome = answer(&request, ruling.allowed);
                    see_ask(Update::Asked(ask, ruling));
                    outcome
                };
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(
            ByteStreams::new(stdin.compat_write(), stdout.compat()),
            async move |agent: ConnectionTo<Agent>| {
                Session { agent, order, heard: session, see, cancel }.hold().await
            },
        )
        .await;
    ended.unwrap_or_else(|error| failed(&heard, &error))
}

/// One session, from its beginning to its end.
struct Session {
    agent: ConnectionTo<Agent>,
    order: RunOrder,
    heard: Heard,
    see: Observer,
    cancel: CancellationToken,
}

impl Session {
    async fn hold(self) -> Result<RunEnd, Error> {
        // A run that was cancelled while it started needs no session.
        let started = tokio::select! {
            started = timeout(self.order.patience.start, self.start()) => started,
            () = self.cancel.cancelled() => return Ok(RunEnd::Cancelled),
        };
        let Ok(session) = started else {
            let reason = "the agent gave no answer when it was started".to_owned();
            return Ok(RunEnd::Unavailable { reason });
        };
        let session = session?;
        let turns = self.turns(&session);
        tokio::pin!(turns);
        let end = tokio::select! {
            end = &mut turns => return end,
            () = tokio::time::sleep(self.order.time_limit) => RunEnd::TimedOut,
            () = self.cancel.cancelled() => RunEnd::Cancelled,
            () = self.heard.over_budget.notified() => RunEnd::OverBudget,
        };
        // From now on every question is answered with "cancelled", as the protocol asks.
        self.heard.lock().cancelled = true;
        self.agent.send_notification(CancelNotification::new(session.clone()))?;
        // The agent may still say what it used. Whatever it says, we have decided how this ended.
        drop(timeout(self.order.patience.cancel, &mut turns).await);
        Ok(end)
    }

    async fn start(&self) -> Result<SessionId, Error> {
        let hello = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new())
            .client_info(Implementation::new("tamma", env!("CARGO_PKG_VERSION")));
        let hello = self.agent.send_request(hello).block_task().await?;
        self.heard.lock().agent =
            hello.agent_info.map(|agent| format!("{} {}", agent.name, agent.version));
        let session = NewSessionRequest::new(self.order.workspace.clone());
        let answer = self.request("session/new", &session).await?;
        let name = answer["sessionId"].as_str().unwrap_or_default().to_owned();
        self.heard.lock().session = Some(name.clone());
        (self.see)(Update::Session(name.clone()));
        Ok(SessionId::new(name))
    }

    /// Prompts, and prompts again while what is handed in cannot be taken.
    async fn turns(&self, session: &SessionId) -> Result<RunEnd, Error> {
        let mode = self.order.mode;
        let mut prompt = match submission::instructions(mode) {
            Some(how) => format!("{}\n\n{how}", self.order.prompt),
            None => self.order.prompt.clone(),
        };
        let mut again = self.order.patience.again;
        loop {
            let stop = self.turn(session, prompt).await?;
            let text = std::mem::take(&mut self.heard.lock().text);
            let submission = match submission::read(mode, &text) {
                Ok(submission) => submission,
                Err(flaws) if again == 0 || self.heard.lock().cancelled => {
                    Submission::Invalid { flaws, text }
                }
                Err(flaws) => {
                    again -= 1;
                    prompt = submission::ask_again(mode, &flaws);
                    (self.see)(Update::Refused(flaws));
                    continue;
                }
            };
            return Ok(RunEnd::Finished { stop, submission });
        }
    }

    async fn turn(&self, session: &SessionId, prompt: String) -> Result<String, Error> {
        let request = PromptRequest::new(session.clone(), vec![ContentBlock::from(prompt)]);
        let answer = self.request("session/prompt", &request).await?;
        if let Some(tokens) = tokens(&answer) {
            let mut state = self.heard.lock();
            let before = state.tokens.unwrap_or_default();
            state.tokens = Some(Tokens {
                input: before.input.saturating_add(tokens.input),
                cached: before.cached.saturating_add(tokens.cached),
                output: before.output.saturating_add(tokens.output),
            });
        }
        if self.heard.lock().cost.is_none() {
            // Some agents report what a turn cost after they have ended it.
            tokio::time::sleep(self.order.patience.late).await;
        }
        if let Some(usage) = self.heard.usage() {
            (self.see)(Update::Used(usage));
        }
        Ok(answer["stopReason"].as_str().unwrap_or("unknown").to_owned())
    }

    async fn request(&self, method: &str, params: &impl Serialize) -> Result<Value, Error> {
        let params = serde_json::to_value(params).map_err(Error::into_internal_error)?;
        self.agent.send_request(UntypedMessage::new(method, params)?).block_task().await
    }
}

/// How a run ends whose agent answered with an error, or did not answer any more.
fn failed(heard: &Heard, error: &Error) -> RunEnd {
    if agent_client_protocol::is_incoming_transport_closed(error) {
        return heard.died("the agent's process ended");
    }
    let reason = match &error.data {
        Some(data) => format!("{} ({data})", error.message),
        None => error.message.clone(),
    };
    let code = i32::from(error.code);
    match error.data.as_ref().and_then(reset) {
        Some(until) => RunEnd::Quota { until },
        // A quota that does not say when it ends is waited for like anything that is not there.
        None if code == AUTHENTICATE_FIRST || code == 429 => RunEnd::Unavailable { reason },
        None => heard.died(&reason),
    }
}

/// When a quota is reset, if an error's data says so: `resetAt`, as a time or in seconds.
fn reset(data: &Value) -> Option<Timestamp> {
    let at = ["resetAt", "reset_at", "resetsAt", "resets_at"]
        .iter()
        .map(|name| &data[*name])
        .find(|value| !value.is_null())?;
    match at {
        Value::String(text) => text.parse().ok(),
        Value::Number(seconds) => Timestamp::from_timestamp(seconds.as_i64()?, 0),
        _ => None,
    }
}

/// The tokens of one turn, as far as the agent says.
fn tokens(answer: &Value) -> Option<Tokens> {
    let usage = &answer["usage"];
    let count = |name: &str| usage[name].as_u64();
    let (input, output) = (count("inputTokens")?, count("outputTokens")?);
    Some(Tokens { input, cached: count("cachedReadTokens").unwrap_or_default(), output })
}

fn dollars(cost: &Value) -> Cost {
    let amount = (cost["currency"] == "USD").then(|| cost["amount"].to_string().parse().ok());
    amount.flatten().map_or(Cost::Unknown, Cost::Known)
}

/// Lays what is new of a tool call over what was known of it.
fn merge(known: &mut Value, new: &Value) {
    match (known, new) {
        (Value::Object(known), Value::Object(new)) => {
            for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                known.insert(name.clone(), value.clone());
            }
        }
        (known, new) => *known = new.clone(),
    }
}

/// What a request is about. Agents put it into different places, and may have said it before.
fn ask(request: &RequestPermissionRequest, known: Value) -> Ask {
    let mut call = known;
    merge(&mut call, &serde_json::to_value(&request.tool_call).unwrap_or_default());
    let input = &call["rawInput"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut paths: Vec<PathBuf> = Vec::new();
    paths.extend(list(&call["locations"]).iter().filter_map(path));
    paths.extend(
        list(&call["content"]).iter().filter(|part| part["type"] == "diff").filter_map(path),
    );
    let named = ["file_path", "filePath", "filepath", "path"].iter().map(|name| &input[*name]);
    paths.extend(named.filter_map(Value::as_str).map(PathBuf::from));
    let changes = ["changes", "fileChanges"].iter().filter_map(|name| input[*name].as_object());
    paths.extend(changes.flat_map(|changes| changes.keys()).map(PathBuf::from));
    paths.sort();
    paths.dedup();
    let command = ["command", "cmd"].iter().find_map(|name| match &input[*name] {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    });
    let kind = match call["kind"].as_str().unwrap_or_default() {
        _ if command.is_some() => Kind::Command,
        "execute" => Kind::Command,
        "edit" | "delete" | "move" => Kind::Write,
        "read" | "search" | "think" => Kind::Read,
        _ => Kind::Other,
    };
    Ask { kind, title: call["title"].as_str().unwrap_or_default().to_owned(), paths, command }
}

fn path(value: &Value) -> Option<PathBuf> {
    value["path"].as_str().map(PathBuf::from)
}

/// The answer, by the kind of the option: the agent names and orders them as it likes.
///
/// Never "always": what that covers is different in every agent.
fn answer(request: &RequestPermissionRequest, allowed: bool) -> RequestPermissionOutcome {
    let wanted =
        if allowed { PermissionOptionKind::AllowOnce } else { PermissionOptionKind::RejectOnce };
    match request.options.iter().find(|option| option.kind == wanted) {
        Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(
            option.option_id.clone(),
        )),
        None => RequestPermissionOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_names_its_reset_as_a_time_or_in_seconds() {
        let noon: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a time");
        assert_eq!(reset(&json!({ "resetAt": "2026-11-15T12:00:00Z" })), Some(noon));
        assert_eq!(reset(&json!({ "resets_at": noon.timestamp() })), Some(noon));
        assert_eq!(reset(&json!({ "resetAt": "soon" })), None);
        assert_eq!(reset(&json!("429 Too Many Requests")), None);
    }

    #[test]
    fn a_cost_in_another_currency_is_unknown_and_not_zero() {
        let known = dollars(&json!({ "amount": 0.25, "currency": "USD" }));
        assert_eq!(known, Cost::Known("0.25".parse().expect("money")));
        assert_eq!(dollars(&json!({ "amount": 0.25, "currency": "EUR" })), Cost::Unknown);
    }

    #[test]
    fn what_is_asked_is_found_wherever_the_agent_put_it() {
        let request = |call: Value| {
            let request = json!({ "sessionId": "s", "toolCall": call, "options": [] });
            serde_json::from_value::<RequestPermissionRequest>(request).expect("a request")
        };
        let known = json!({ "kind": "edit", "locations": [{ "path": "/w/a" }] });
        let asked = ask(&request(json!({ "toolCallId": "1", "title": "Edit" })), known);
        assert_eq!((asked.kind, asked.paths), (Kind::Write, vec![PathBuf::from("/w/a")]));
        let call = json!({ "toolCallId": "1", "rawInput": { "command": ["git", "push"] } });
        let asked = ask(&request(call), Value::Null);
        assert_eq!((asked.kind, asked.command.as_deref()), (Kind::Command, Some("git push")));
        let call =
            json!({ "toolCallId": "1", "kind": "edit", "rawInput": { "changes": { "b": 1 } } });
        assert_eq!(ask(&request(call), Value::Null).paths, [PathBuf::from("b")]);
    }
}
