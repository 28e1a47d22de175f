//! MCP tools that Tamma offers in an agent's session, for submissions, progress and questions.
//!
//! Each run has its own server behind its own token, so no run can submit for another. Only this
//! file depends on the library of the Model Context Protocol. Submissions pass the same checks as a
//! JSON block in a message. Errors are returned to the model, which can correct them in the same
//! turn. A question to a person is accepted at once and ends the run, so no process waits for the
//! answer.

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
use tamma_core::council::{CouncilConclusion, CouncilOpinion};
use tamma_core::learning::LessonSubmission;
use tamma_core::plan::{PLANNER_FIELDS, Plan};
use tamma_core::run_result::RunResult;
use tokio::sync::watch;

use crate::agent::{AgentObserver, AgentUpdate, RunMode};
use crate::sanitize;
use crate::submission::{self, Submission, SubmissionFacts, VerdictSubmission};

/// Name of the server in the agent's session.
pub const SERVER_NAME: &str = "tamma";

/// Submits a plan.
pub const SUBMIT_PLAN: &str = "submit_plan";
/// Submits the result of an implementing run.
pub const SUBMIT_RESULT: &str = "submit_result";
/// Submits a verdict on a change.
pub const SUBMIT_VERDICT: &str = "submit_verdict";
/// Submits the opinion of a council member.
pub const SUBMIT_OPINION: &str = "submit_opinion";
/// Submits the conclusion of the council.
pub const SUBMIT_CONCLUSION: &str = "submit_conclusion";
/// Submits lessons from a task.
pub const SUBMIT_LESSONS: &str = "submit_lessons";
/// Reports progress.
pub const REPORT_PROGRESS: &str = "report_progress";
/// Asks a person.
pub const ASK_HUMAN: &str = "ask_human";
/// Searches the knowledge base.
pub const SEARCH_KNOWLEDGE: &str = "search_knowledge";

/// Names of all tools.
pub const TOOL_NAMES: [&str; 9] = [
    SUBMIT_PLAN,
    SUBMIT_RESULT,
    SUBMIT_VERDICT,
    SUBMIT_OPINION,
    SUBMIT_CONCLUSION,
    SUBMIT_LESSONS,
    REPORT_PROGRESS,
    ASK_HUMAN,
    SEARCH_KNOWLEDGE,
];

/// Search in the knowledge base: takes a query and returns texts, best match first.
pub type KnowledgeSearch = Arc<dyn Fn(String) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// Search without results.
pub fn empty_search() -> KnowledgeSearch {
    Arc::new(|_| Box::pin(std::future::ready(Vec::new())))
}

/// Question of an agent to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentQuestion {
    /// The question, with everything a person needs to answer it.
    pub question: String,
    /// Suggested answers, if any.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Answer that applies if nobody responds.
    #[serde(default)]
    pub default: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ProgressArgs {
    /// Finished work and next step, in one sentence.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct SearchArgs {
    /// A few search terms.
    query: String,
}

/// Tools of one run.
#[derive(Clone)]
pub struct AgentTools {
    mode: RunMode,
    search: KnowledgeSearch,
    facts: SubmissionFacts,
    observer: AgentObserver,
    submission: Arc<Mutex<Option<Submission>>>,
    question: watch::Sender<Option<AgentQuestion>>,
}

impl AgentTools {
    /// Creates the tools for a run. The observer receives progress reports.
    pub(crate) fn new(
        mode: RunMode,
        search: KnowledgeSearch,
        facts: SubmissionFacts,
        observer: AgentObserver,
    ) -> Self {
        let question = watch::Sender::new(None);
        Self { mode, search, facts, observer, submission: Arc::default(), question }
    }

    /// Returns the MCP server. The caller puts it behind the token of the run.
    pub fn router(&self) -> axum::Router {
        // Stateless: each request is complete, so nothing is left over when an agent crashes.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true);
        let tools = self.clone();
        let server = StreamableHttpService::new(
            move || Ok(tools.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        axum::Router::new().fallback_service(server)
    }

    /// Returns the last valid submission.
    pub fn submission(&self) -> Option<Submission> {
        self.submission.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` if the agent has asked a person.
    pub(crate) fn has_question(&self) -> bool {
        self.question.borrow().is_some()
    }

    /// Waits for a question to a person.
    pub async fn wait_for_question(&self) -> AgentQuestion {
        let mut questions = self.question.subscribe();
        let question =
            questions.wait_for(Option::is_some).await.ok().and_then(|question| question.clone());
        match question {
            Some(question) => question,
            // Unreachable, because `self` owns the sender.
            None => std::future::pending().await,
        }
    }

    fn tool_definitions(&self) -> Vec<Tool> {
        let mut tools = Vec::new();
        match self.mode {
            RunMode::Plan => tools.push(require_fields(
                define_tool::<Plan>(
                    SUBMIT_PLAN,
                    "Submit the complete plan. Call this when the plan is ready, then end your \
                     turn.",
                ),
                &PLANNER_FIELDS,
                self.facts.task_criteria == 0,
            )),
            RunMode::Validate => tools.push(define_tool::<VerdictSubmission>(
                SUBMIT_VERDICT,
                "Submit the verdict: one entry for each acceptance criterion, by its ID (C1, C2, …). \
                 Call it once when you have judged all of them, then end your turn.",
            )),
            RunMode::Advise => tools.push(define_tool::<CouncilOpinion>(
                SUBMIT_OPINION,
                "Submit your analysis of the problem and your proposed fix, then end your turn.",
            )),
            RunMode::Conclude => tools.push(define_tool::<CouncilConclusion>(
                SUBMIT_CONCLUSION,
                "Submit the council's conclusion, including any dissent, then end your turn.",
            )),
            RunMode::Learn => tools.push(define_tool::<LessonSubmission>(
                SUBMIT_LESSONS,
                "Submit the lessons of the task, each with its evidence, then end your \
                 turn.",
            )),
            RunMode::Implement => tools.push(define_tool::<RunResult>(
                SUBMIT_RESULT,
                "Report the result of your work: `done`, `blocked` or `plan_wrong`. Call it once, as \
                 the last thing you do, then end your turn. Gates and a review judge the work itself.",
            )),
        }
        tools.push(define_tool::<ProgressArgs>(
            REPORT_PROGRESS,
            "Report your progress to the people who are waiting. Use it at every larger step.",
        ));
        tools.push(define_tool::<AgentQuestion>(
            ASK_HUMAN,
            "Ask a person for facts that you cannot find and must not guess. The answer comes \
             later, so end your turn afterwards.",
        ));
        tools.push(define_tool::<SearchArgs>(
            SEARCH_KNOWLEDGE,
            "Search the project's knowledge base: decisions, pitfalls and prohibitions.",
        ));
        tools
    }

    /// Handles one call. Errors are returned to the model for correction.
    async fn handle_call(&self, name: &str, arguments: Value) -> Result<String, Vec<String>> {
        match (name, self.mode) {
            (SUBMIT_PLAN, RunMode::Plan)
            | (SUBMIT_RESULT, RunMode::Implement)
            | (SUBMIT_VERDICT, RunMode::Validate)
            | (SUBMIT_OPINION, RunMode::Advise)
            | (SUBMIT_CONCLUSION, RunMode::Conclude)
            | (SUBMIT_LESSONS, RunMode::Learn) => {
                let submission = submission::check(self.mode, arguments, &self.facts)?;
                *self.submission.lock().unwrap_or_else(PoisonError::into_inner) = Some(submission);
                Ok("Accepted. End your turn now.".to_owned())
            }
            (REPORT_PROGRESS, _) => {
                (self.observer)(AgentUpdate::Progress(
                    parse_args::<ProgressArgs>(arguments)?.message,
                ));
                Ok("Reported.".to_owned())
            }
            (ASK_HUMAN, _) => {
                let question: AgentQuestion = parse_args(arguments)?;
                if question.question.trim().is_empty() {
                    return Err(vec!["`question` is empty".to_owned()]);
                }
                self.question.send_replace(Some(question));
                Ok("The question was forwarded. You will be called again with the answer. End your \
                    turn now."
                    .to_owned())
            }
            (SEARCH_KNOWLEDGE, _) => {
                let entries = (self.search)(parse_args::<SearchArgs>(arguments)?.query).await;
                Ok(if entries.is_empty() {
                    "No matching entries.".to_owned()
                } else {
                    entries.join("\n\n")
                })
            }
            _ => Err(vec![format!("unknown tool `{name}`")]),
        }
    }
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tool_definitions()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Arguments are shown to people.
        let arguments = sanitize::value(Value::Object(request.arguments.unwrap_or_default()));
        let result = match self.handle_call(&request.name, arguments).await {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(errors) => {
                let text = format!("Not accepted:\n- {}", errors.join("\n- "));
                CallToolResult::error(vec![ContentBlock::text(text)])
            }
        };
        Ok(result.into())
    }
}

fn parse_args<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, Vec<String>> {
    serde_json::from_value(arguments).map_err(|error| vec![error.to_string()])
}

fn define_tool<T: JsonSchema>(name: &'static str, description: &'static str) -> Tool {
    // The tools change nothing outside Tamma. Agents ask for approval of tools that might.
    let harmless = ToolAnnotations::new().read_only(true).destructive(false).open_world(false);
    Tool::new(name, description, input_schema::<T>()).with_annotations(harmless)
}

/// Marks fields as required that only planners must submit; `criteria` too, if the task has none.
fn require_fields(mut tool: Tool, fields: &[&str], criteria: bool) -> Tool {
    let mut schema = (*tool.input_schema).clone();
    let more = fields.iter().copied().chain(criteria.then_some("criteria"));
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.extend(more.map(Value::from));
    }
    tool.input_schema = Arc::new(schema);
    tool
}

/// Returns the JSON schema of a tool's arguments without references, because some models do not
/// follow them.
fn input_schema<T: JsonSchema>() -> JsonObject {
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

    fn tools(mode: RunMode) -> AgentTools {
        let facts =
            SubmissionFacts { criteria: vec!["C1".to_owned()], ..SubmissionFacts::default() };
        AgentTools::new(mode, empty_search(), facts, Arc::new(|_| {}))
    }

    fn names(mode: RunMode) -> Vec<String> {
        tools(mode).tool_definitions().iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn run_only_has_the_submission_tool_of_its_mode() {
        let always = ["report_progress", "ask_human", "search_knowledge"];
        assert_eq!(names(RunMode::Plan), [&["submit_plan"][..], &always].concat());
        assert_eq!(names(RunMode::Validate), [&["submit_verdict"][..], &always].concat());
        assert_eq!(names(RunMode::Advise), [&["submit_opinion"][..], &always].concat());
        assert_eq!(names(RunMode::Conclude), [&["submit_conclusion"][..], &always].concat());
        assert_eq!(names(RunMode::Learn), [&["submit_lessons"][..], &always].concat());
        assert_eq!(names(RunMode::Implement), [&["submit_result"][..], &always].concat());
    }

    #[test]
    fn schema_has_no_references_and_lists_required_fields() {
        for mode in [
            RunMode::Plan,
            RunMode::Implement,
            RunMode::Validate,
            RunMode::Advise,
            RunMode::Conclude,
            RunMode::Learn,
        ] {
            let tool = tools(mode).tool_definitions().remove(0);
            let text = serde_json::to_string(&tool.input_schema).expect("JSON");
            assert!(!text.contains("$ref") && !text.contains("$defs"), "{text}");
            assert_eq!(tool.input_schema["type"], "object");
            assert!(!tool.input_schema["required"].as_array().expect("a list").is_empty());
        }
    }

    #[test]
    fn plan_schema_requires_what_planners_must_submit() {
        let required = |task_criteria| {
            let facts = SubmissionFacts { task_criteria, ..SubmissionFacts::default() };
            let tools = AgentTools::new(RunMode::Plan, empty_search(), facts, Arc::new(|_| {}));
            tools.tool_definitions().remove(0).input_schema["required"].clone()
        };
        let has = |required: &Value, name: &str| {
            required.as_array().is_some_and(|names| names.contains(&json!(name)))
        };
        for name in PLANNER_FIELDS {
            assert!(has(&required(1), name), "{name}");
        }
        assert!(has(&required(0), "criteria") && !has(&required(1), "criteria"));
    }

    #[tokio::test]
    async fn only_valid_submissions_are_accepted() {
        let tools = tools(RunMode::Validate);
        let result =
            tools.handle_call(SUBMIT_VERDICT, json!({ "criteria": { "C1": "met" } })).await;
        assert_eq!(result.expect_err("errors").len(), 1);
        let result = tools.handle_call(SUBMIT_VERDICT, json!({ "weather": 1 })).await;
        assert!(result.expect_err("errors")[0].contains("weather"));
        assert!(tools.handle_call(SUBMIT_PLAN, json!({})).await.is_err());
        assert_eq!(tools.submission(), None);
        let entry = json!({ "id": "C1", "verdict": "unmet", "evidence": "b" });
        let verdict = json!({ "criteria": [entry] });
        tools.handle_call(SUBMIT_VERDICT, verdict).await.expect("accepted");
        assert!(matches!(tools.submission(), Some(Submission::Verdict(_))));
    }
}
