//! A model that answers what a script says, over the real protocols of four providers.
//!
//! It listens on this machine only and speaks Anthropic messages, OpenAI chat completions, OpenAI
//! responses and Gemini. A coding agent that is pointed at it does real work with real tools, for
//! nothing, and the same every time.
//!
//! Where a conversation stands in the script is read from the conversation itself: the ids of the
//! scripted tool calls and marks in the scripted texts say which steps were played. So a retry, an
//! agent that is started again and requests on the side cannot bring it out of step. A request on
//! the side (a title, a summary, an approval by a model) never plays a step: it offers no tools, or
//! it wants an answer of a given form.

mod answer;
mod anthropic;
mod chat;
mod gemini;
mod offer;
mod place;
mod responses;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::Tokens;
use tokio::task::JoinHandle;

/// What a model is to answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// What it answers in a conversation that none of the cases is for.
    pub steps: Vec<Step>,
    /// What it answers in other conversations. The first that fits is taken.
    pub cases: Vec<Case>,
    /// What it answers to a request on the side, else a title.
    pub side: Option<String>,
}

/// What a model answers in some conversations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Case {
    /// The conversation has this in it, in anything but the tools.
    pub when: String,
    /// And it does not have this in it.
    pub unless: Option<String>,
    /// What it answers then, one step after the other.
    pub steps: Vec<Step>,
}

/// One answer of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// What it says.
    pub say: Option<String>,
    /// The tools that it calls.
    pub calls: Vec<Call>,
    /// How long it thinks before, in milliseconds.
    pub delay_ms: u64,
    /// It begins to answer, and then nothing comes any more.
    pub stall: bool,
    /// How many requests for this step fail before one is answered.
    pub fail_first: u32,
    /// The status of those that fail, 503 if nothing is said.
    pub status: Option<u16>,
    /// The headers of those that fail.
    pub headers: BTreeMap<String, String>,
    /// The body of those that fail, else one that such a failure usually has.
    pub body: Option<Value>,
    /// Why it stops, if not because it has said all: `max_tokens` or `refusal`.
    pub stop: Option<String>,
    /// Tokens read at the full price, else 1000 and 100 more for each step.
    pub input_tokens: Option<u64>,
    /// Tokens read from the cache, else 200.
    pub cached_tokens: Option<u64>,
    /// Tokens written, else 10 and one more for each step.
    pub output_tokens: Option<u64>,
    /// The answer does not say how many tokens there were.
    pub untold: bool,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// Writes a whole file, with the tool that the agent has for it.
    Write {
        /// Which file.
        path: String,
        /// What is in it then.
        content: String,
    },
    /// Runs a command line, with the tool that the agent has for it.
    Shell {
        /// The command line.
        cmd: String,
    },
    /// Calls a tool by its name, or by the end of its name: each agent puts something else before the
    /// name of a tool that an MCP server offers.
    Tool {
        /// The name.
        name: String,
        /// What it is called with.
        args: Value,
        /// The MCP server that has it, for agents that do not show such tools at first.
        #[serde(default = "our_server")]
        server: String,
    },
}

fn our_server() -> String {
    "tamma".to_owned()
}

/// Whose protocol a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Anthropic messages.
    Anthropic,
    /// OpenAI chat completions.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Gemini.
    Gemini,
}

/// An answer that was sent to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The model that was asked for.
    pub model: String,
    /// In whose protocol.
    pub dialect: Dialect,
    /// What it read and wrote.
    pub tokens: Tokens,
    /// Whether the answer said so.
    pub told: bool,
    /// Whether it was a request on the side.
    pub side: bool,
}

/// A request that came in.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// `GET` or `POST`.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The headers, by names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The model that it asks for.
    pub model: Option<String>,
    /// The tools that it offers.
    pub tools: Vec<String>,
    /// Which case it is of, if of one.
    pub case: Option<usize>,
    /// Which step it plays, if it is not on the side.
    pub step: Option<usize>,
    /// The body, if it is JSON.
    pub body: Value,
}

/// A model that runs, until it is dropped.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
    server: JoinHandle<()>,
}

/// What happened so far.
#[derive(Debug, Default)]
struct Books {
    sent: Vec<Sent>,
    requests: Vec<Request>,
    /// How often each step of each case was asked for.
    asked: BTreeMap<(Option<usize>, usize), u32>,
}

impl Script {
    /// A model that answers these one after the other.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Which case a conversation is of, and its steps.
    fn choose(&self, conversation: &str) -> (Option<usize>, &[Step]) {
        let fits = |case: &&Case| {
            let not = case.unless.as_ref().is_some_and(|text| conversation.contains(text));
            conversation.contains(&case.when) && !not
        };
        let mut cases = self.cases.iter().enumerate();
        cases
            .find(|(_, case)| fits(case))
            .map_or((None, &self.steps), |(number, case)| (Some(number), &case.steps))
    }
}

impl Step {
    /// It says something.
    pub fn say(text: impl Into<String>) -> Self {
        Self { say: Some(text.into()), ..Self::default() }
    }

    /// It calls a tool.
    pub fn call(call: Call) -> Self {
        Self { calls: vec![call], ..Self::default() }
    }

    /// It fails with a status, so many times.
    pub fn fail(times: u32, status: u16) -> Self {
        Self { fail_first: times, status: Some(status), ..Self::say("At last.") }
    }

    /// With these numbers of tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.input_tokens = Some(tokens.input);
        self.cached_tokens = Some(tokens.cached);
        self.output_tokens = Some(tokens.output);
        self
    }
}

impl Call {
    /// A call of one of our own tools.
    pub fn tool(name: impl Into<String>, args: Value) -> Self {
        Self::Tool { name: name.into(), args, server: our_server() }
    }
}

impl Model {
    /// Starts a model on a free port of this machine.
    pub async fn start(script: Script) -> anyhow::Result<Self> {
        Self::start_at(0, script, |_| ()).await
    }

    /// Starts a model on a port of this machine, and tells of every request.
    pub async fn start_at(
        port: u16,
        script: Script,
        heard: impl Fn(&Request) + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let books = Arc::<Mutex<Books>>::default();
        let (address, server) = server::start(port, script, books.clone(), Box::new(heard)).await?;
        Ok(Self { address, books, server })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as the base of a provider's API, without `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All answers so far, as they were sent.
    pub fn sent(&self) -> Vec<Sent> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).sent.clone()
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[cfg(test)]
mod tests;
