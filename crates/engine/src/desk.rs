//! Our desk in the agent's session: the tools by which an agent hands in, asks and tells.
//!
//! It is a server of the Model Context Protocol, one for each run, and behind the token of that run,
//! so that nobody hands in for another. This is the only file that names the protocol's library.
//! What is handed in goes through the same checks as a block of JSON would; what is wrong with it goes
//! back to the model as the tool's error, so that it can mend it in the same turn. A question to a
//! person is taken and answered at once: nobody waits inside a process.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;
use tamma_core::council::{Conclusion, View};
use tamma_core::learning::Taught;
use tamma_core::plan::Plan;
use tokio::sync::watch;

use crate::agent::{Mode, Observer, Update};
use crate::plain;
use crate::submission::{self, Known, Submission, Verdict};

/// The name of the server in the agent's session.
pub const NAME: &str = "tamma";

/// Hands in a plan.
pub const SUBMIT_PLAN: &str = "submit_plan";
/// Hands in a verdict.
pub const SUBMIT_VERDICT: &str = "submit_verdict";
/// Hands in what a member of the council thinks.
pub const SUBMIT_OPINION: &str = "submit_opinion";
/// Hands in what the council concludes.
pub const SUBMIT_CONCLUSION: &str = "submit_conclusion";
/// Hands in what a task has taught.
pub const SUBMIT_LESSONS: &str = "submit_lessons";
/// Tells how far the agent is.
pub const REPORT_PROGRESS: &str = "report_progress";
/// Asks a person.
pub const ASK_HUMAN: &str = "ask_human";
/// Searches what was learned.
pub const SEARCH_KNOWLEDGE: &str = "search_knowledge";

/// All of them.
pub const TOOLS: [&str; 8] = [
    SUBMIT_PLAN,
    SUBMIT_VERDICT,
    SUBMIT_OPINION,
    SUBMIT_CONCLUSION,
    SUBMIT_LESSONS,
    REPORT_PROGRESS,
    ASK_HUMAN,
    SEARCH_KNOWLEDGE,
];

/// Searches what was learned: a query in, texts out, the best first.
pub type Search = Arc<dyn Fn(String) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// A search that finds nothing.
pub fn nothing_known() -> Search {
    Arc::new(|_| Box::pin(std::future::ready(Vec::new())))
}

/// What an agent asks a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question, with all that a person needs to answer it.
    pub question: String,
    /// Answers to choose from, if there are some.
    #[serde(default)]
    pub choices: Vec<String>,
    /// What holds if nobody answers.
    #[serde(default)]
    pub default: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Progress {
    /// What was done and what comes next, in a sentence.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// What to look for, in a few words.
    query: String,
}

/// The desk of one run.
#[derive(Clone)]
pub struct Desk {
    mode: Mode,
    search: Search,
    evidence: Known,
    see: Observer,
    submission: Arc<Mutex<Option<Submission>>>,
    asked: watch::Sender<Option<Question>>,
}

impl Desk {
    /// A desk for a run of this mode. The observer sees what the agent tells.
    pub fn new(mode: Mode, search: Search, evidence: Known, see: Observer) -> Self {
        let asked = watch::Sender::new(None);
        Self { mode, search, evidence, see, submission: Arc::default(), asked }
    }

    /// The server, to be put behind the token of the run.
    pub fn router(&self) -> axum::Router {
        // Without sessions: a request has all that it needs, and nothing is left when an agent dies.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true);
        let desk = self.clone();
        let server = StreamableHttpService::new(
            move || Ok(desk.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        axum::Router::new().fallback_service(server)
    }

    /// What was handed in last, and was right.
    pub fn submission(&self) -> Option<Submission> {
        self.submission.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the agent asks a person something.
    pub async fn asked(&self) -> Question {
        let mut asked = self.asked.subscribe();
        let question = asked.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match question {
            Some(question) => question,
            // The sender is ours, so this is never reached.
            None => std::future::pending().await,
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = Vec::new();
        match self.mode {
            Mode::Plan => tools.push(tool::<Plan>(
                SUBMIT_PLAN,
                "Hands in the plan, whole. Call it when the plan is ready, then end your turn.",
            )),
            Mode::Validate => tools.push(tool::<Verdict>(
                SUBMIT_VERDICT,
                "Hands in the verdict on every acceptance criterion. Then end your turn.",
            )),
            Mode::Advise => tools.push(tool::<View>(
                SUBMIT_OPINION,
                "Hands in what you think is wrong and will mend it. Then end your turn.",
            )),
            Mode::Conclude => tools.push(tool::<Conclusion>(
                SUBMIT_CONCLUSION,
                "Hands in what the council concludes, with its dissent. Then end your turn.",
            )),
            Mode::Learn => tools.push(tool::<Taught>(
                SUBMIT_LESSONS,
                "Hands in what the task has taught, each lesson with its evidence. Then end your \
                 turn.",
            )),
            Mode::Implement => {}
        }
        tools.push(tool::<Progress>(
            REPORT_PROGRESS,
            "Tells the people who wait how far you are. Use it at every larger step.",
        ));
        tools.push(tool::<Question>(
            ASK_HUMAN,
            "Asks a person something that you cannot find out and must not guess. The answer comes \
             later, so end your turn after it.",
        ));
        tools.push(tool::<Query>(
            SEARCH_KNOWLEDGE,
            "Searches what was learned in this project before: decisions, pitfalls, prohibitions.",
        ));
        tools
    }

    /// Serves one call. The error is what the model is told to mend.
    async fn serve(&self, name: &str, arguments: Value) -> Result<String, Vec<String>> {
        match (name, self.mode) {
            (SUBMIT_PLAN, Mode::Plan)
            | (SUBMIT_VERDICT, Mode::Validate)
            | (SUBMIT_OPINION, Mode::Advise)
            | (SUBMIT_CONCLUSION, Mode::Conclude)
            | (SUBMIT_LESSONS, Mode::Learn) => {
                let submission = submission::check(self.mode, arguments, &self.evidence)?;
                *self.submission.lock().unwrap_or_else(PoisonError::into_inner) = Some(submission);
                Ok("Taken. End your turn now.".to_owned())
            }
            (REPORT_PROGRESS, _) => {
                (self.see)(Update::Progress(parse::<Progress>(arguments)?.message));
                Ok("Told.".to_owned())
            }
            (ASK_HUMAN, _) => {
                let question: Question = parse(arguments)?;
                if question.question.trim().is_empty() {
                    return Err(vec!["`question` is empty".to_owned()]);
                }
                self.asked.send_replace(Some(question));
                Ok("The question is passed on. You will be called again with the answer: end your \
                    turn now."
                    .to_owned())
            }
            (SEARCH_KNOWLEDGE, _) => {
                let found = (self.search)(parse::<Query>(arguments)?.query).await;
                Ok(if found.is_empty() {
                    "Nothing is known about that.".to_owned()
                } else {
                    found.join("\n\n")
                })
            }
            _ => Err(vec![format!("there is no tool `{name}` in this run")]),
        }
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(NAME, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // What is handed in and asked is shown to people.
        let arguments = plain::value(Value::Object(request.arguments.unwrap_or_default()));
        let result = match self.serve(&request.name, arguments).await {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(flaws) => {
                let text = format!("It cannot be taken:\n- {}", flaws.join("\n- "));
                CallToolResult::error(vec![ContentBlock::text(text)])
            }
        };
        Ok(result.into())
    }
}

fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, Vec<String>> {
    serde_json::from_value(arguments).map_err(|error| vec![error.to_string()])
}

fn tool<T: JsonSchema>(name: &'static str, description: &'static str) -> Tool {
    // They change nothing outside of Tamma, and agents ask about tools that might.
    let harmless = ToolAnnotations::new().read_only(true).destructive(false).open_world(false);
    Tool::new(name, description, schema::<T>()).with_annotations(harmless)
}

/// The schema of what a tool takes, in one piece: not every model follows references.
fn schema<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    match settings.into_generator().into_root_schema_for::<T>().to_value() {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desk(mode: Mode) -> Desk {
        Desk::new(mode, nothing_known(), submission::no_evidence(), Arc::new(|_| {}))
    }

    fn names(mode: Mode) -> Vec<String> {
        desk(mode).tools().iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn a_run_has_the_tool_to_hand_in_what_it_is_for_and_no_other() {
        let always = ["report_progress", "ask_human", "search_knowledge"];
        assert_eq!(names(Mode::Plan), [&["submit_plan"][..], &always].concat());
        assert_eq!(names(Mode::Validate), [&["submit_verdict"][..], &always].concat());
        assert_eq!(names(Mode::Advise), [&["submit_opinion"][..], &always].concat());
        assert_eq!(names(Mode::Conclude), [&["submit_conclusion"][..], &always].concat());
        assert_eq!(names(Mode::Learn), [&["submit_lessons"][..], &always].concat());
        assert_eq!(names(Mode::Implement), always);
    }

    #[test]
    fn a_schema_is_in_one_piece_and_says_what_is_needed() {
        for mode in [Mode::Plan, Mode::Validate, Mode::Advise, Mode::Conclude, Mode::Learn] {
            let tool = desk(mode).tools().remove(0);
            let text = serde_json::to_string(&tool.input_schema).expect("JSON");
            assert!(!text.contains("$ref") && !text.contains("$defs"), "{text}");
            assert_eq!(tool.input_schema["type"], "object");
            assert!(!tool.input_schema["required"].as_array().expect("a list").is_empty());
        }
    }

    #[tokio::test]
    async fn only_what_is_right_is_taken() {
        let desk = desk(Mode::Validate);
        let flaws = desk.serve(SUBMIT_VERDICT, json!({ "criteria": { "a": "met" } })).await;
        assert_eq!(flaws.expect_err("flaws").len(), 1);
        let flaws = desk.serve(SUBMIT_VERDICT, json!({ "weather": 1 })).await;
        assert!(flaws.expect_err("flaws")[0].contains("weather"));
        assert!(desk.serve(SUBMIT_PLAN, json!({})).await.is_err());
        assert_eq!(desk.submission(), None);
        let verdict = json!({ "criteria": { "a": { "unmet": { "why": "b" } } } });
        desk.serve(SUBMIT_VERDICT, verdict).await.expect("taken");
        assert!(matches!(desk.submission(), Some(Submission::Verdict(_))));
    }
}
