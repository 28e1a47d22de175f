//! Scripted model that speaks the real protocols of four providers.
//!
//! It listens on this machine only and speaks Anthropic messages, OpenAI chat completions, OpenAI
//! responses and Gemini. A coding agent that uses it does real work with real tools, free of charge
//! and repeatably.
//!
//! The position in the script is read from the conversation itself: IDs of scripted tool calls and
//! markers in scripted texts name the played steps. Retries, restarted agents and side requests
//! therefore never lose the position.
//!
//! Token counts are scripted, or counted with an emulated prompt cache (`count_tokens`).
//!
//! A side request, such as for a title, a summary or an approval, plays no step. It is recognised
//! by the lack of tools or by a requested output format.

mod anthropic;
mod chat;
mod gemini;
mod model_response;
mod offered_tools;
mod prompt_cache;
mod responses;
mod script_position;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::Tokens;
use tokio::task::JoinHandle;

/// Behaviour of a scripted model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Responses in conversations that match no case.
    pub steps: Vec<ModelStep>,
    /// Responses in matching conversations. The first match applies.
    pub cases: Vec<ConversationCase>,
    /// Response to side requests. The default is a title.
    #[serde(rename = "side")]
    pub side_answer: Option<String>,
    /// Counts the tokens of requests and responses, and emulates the provider's prompt cache. The
    /// counts replace the defaults of a step.
    pub count_tokens: bool,
}

/// Responses in matching conversations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConversationCase {
    /// Text that the conversation must contain; tool definitions do not count.
    pub when: String,
    /// Text that the conversation must not contain.
    pub unless: Option<String>,
    /// Responses, in order.
    pub steps: Vec<ModelStep>,
}

/// One response of a scripted model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelStep {
    /// Text of the response.
    pub say: Option<String>,
    /// Tool calls of the response.
    pub calls: Vec<ScriptedCall>,
    /// Delay before the response, in milliseconds.
    pub delay_ms: u64,
    /// Starts to respond and then stalls.
    pub stall: bool,
    /// Number of requests for this step that fail first.
    pub fail_first: u32,
    /// HTTP status of failures. The default is 503.
    pub status: Option<u16>,
    /// Headers of failures.
    pub headers: BTreeMap<String, String>,
    /// Body of failures. The default is typical for the provider.
    pub body: Option<Value>,
    /// Stop reason other than a normal end: `max_tokens` or `refusal`.
    pub stop: Option<String>,
    /// Input tokens that are not from the cache. The default is 1000, plus 100 per step.
    pub input_tokens: Option<u64>,
    /// Part of the input tokens that is written to the cache. The default is a tenth for Anthropic
    /// messages, and none for others.
    pub cache_write_tokens: Option<u64>,
    /// Part of the input tokens that is written to the cache for an hour (Anthropic). The default
    /// is none.
    pub cache_write_1h_tokens: Option<u64>,
    /// Input tokens from the cache. The default is 200.
    pub cached_tokens: Option<u64>,
    /// Output tokens. The default is 10, plus 1 per step.
    pub output_tokens: Option<u64>,
    /// Omits token counts from the response.
    #[serde(rename = "untold")]
    pub hide_usage: bool,
}

/// Tool call of a scripted model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScriptedCall {
    /// Writes a complete file with the agent's own tool.
    Write {
        /// Path of the file.
        path: String,
        /// New content.
        content: String,
    },
    /// Runs a shell command with the agent's own tool.
    Shell {
        /// Shell command.
        cmd: String,
    },
    /// Calls a tool by its name or the end of its name. Agents add different prefixes to the tools
    /// of MCP servers.
    Tool {
        /// Name of the tool.
        name: String,
        /// Arguments of the call.
        args: Value,
        /// MCP server of the tool, for agents that do not list such tools at first.
        #[serde(default = "our_server")]
        server: String,
    },
}

fn our_server() -> String {
    "tamma".to_owned()
}

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Anthropic messages.
    Anthropic,
    /// OpenAI chat completions.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Gemini API.
    Gemini,
}

/// Response that was sent completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentResponse {
    /// Requested model.
    pub model: String,
    /// Protocol of the request.
    pub dialect: Dialect,
    /// Token counts.
    pub tokens: Tokens,
    /// `true` if the response reported the counts.
    pub reported_usage: bool,
    /// `true` for side requests.
    pub is_side_request: bool,
    /// Index of the matching case, if any.
    pub case: Option<usize>,
}

/// Request that the model received.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// Path with the query.
    pub path: String,
    /// Headers; names are in lower case.
    pub headers: BTreeMap<String, String>,
    /// Requested model.
    pub model: Option<String>,
    /// Offered tools.
    pub tools: Vec<String>,
    /// Index of the matching case, if any.
    pub case: Option<usize>,
    /// Played step; `None` for side requests.
    pub step: Option<usize>,
    /// Body, if it is JSON.
    pub body: Value,
}

/// Running scripted model. It stops when dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    log: Arc<Mutex<RequestLog>>,
    server: JoinHandle<()>,
}

/// Requests and responses so far.
#[derive(Debug, Default)]
struct RequestLog {
    sent: Vec<SentResponse>,
    requests: Vec<RecordedRequest>,
    /// Number of requests for each step of each case.
    attempts: BTreeMap<(Option<usize>, usize), u32>,
    /// Prompts by model, for the emulated cache.
    prompts: BTreeMap<String, Vec<prompt_cache::Prompt>>,
}

impl Script {
    /// Creates a script with these responses.
    pub fn new(steps: impl IntoIterator<Item = ModelStep>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Returns the case of a conversation and its steps.
    fn select_case(&self, conversation: &str) -> (Option<usize>, &[ModelStep]) {
        let fits = |case: &&ConversationCase| {
            let not = case.unless.as_ref().is_some_and(|text| conversation.contains(text));
            conversation.contains(&case.when) && !not
        };
        let mut cases = self.cases.iter().enumerate();
        cases
            .find(|(_, case)| fits(case))
            .map_or((None, &self.steps), |(number, case)| (Some(number), &case.steps))
    }
}

impl ModelStep {
    /// Creates a response with text.
    pub fn say(text: impl Into<String>) -> Self {
        Self { say: Some(text.into()), ..Self::default() }
    }

    /// Creates a response with one tool call.
    pub fn call(call: ScriptedCall) -> Self {
        Self { calls: vec![call], ..Self::default() }
    }

    /// Creates a response that fails with a status, this number of times.
    pub fn fail(times: u32, status: u16) -> Self {
        Self { fail_first: times, status: Some(status), ..Self::say("At last.") }
    }

    /// Sets the token counts.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.input_tokens = Some(tokens.input);
        self.cached_tokens = Some(tokens.cached);
        self.output_tokens = Some(tokens.output);
        self.cache_write_tokens = Some(tokens.cache_write);
        self.cache_write_1h_tokens = Some(tokens.cache_write_1h);
        self
    }
}

impl ScriptedCall {
    /// Creates a call of one of Tamma's own tools.
    pub fn tool(name: impl Into<String>, args: Value) -> Self {
        Self::Tool { name: name.into(), args, server: our_server() }
    }
}

impl ScriptedModel {
    /// Starts a model on a free port of this machine.
    pub async fn start(script: Script) -> anyhow::Result<Self> {
        Self::start_at(0, script, |_| ()).await
    }

    /// Starts a model on a port of this machine, and reports every request to `observer`.
    pub async fn start_at(
        port: u16,
        script: Script,
        observer: impl Fn(&RecordedRequest) + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let log = Arc::<Mutex<RequestLog>>::default();
        let (address, server) =
            server::start(port, script, log.clone(), Box::new(observer)).await?;
        Ok(Self { address, log, server })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its base URL for a provider's API, without `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all responses so far.
    pub fn sent(&self) -> Vec<SentResponse> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).sent.clone()
    }

    /// Returns all requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[cfg(test)]
mod tests;
