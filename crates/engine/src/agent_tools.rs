//! MCP tools that Tamma offers in an agent's session: the assignment, gates, submissions, progress
//! and questions.
//!
//! Each run has its own server behind its own token, so no run can submit for another. Only this
//! file depends on the library of the Model Context Protocol. Submissions pass the same checks as a
//! JSON block in a message. Errors are returned to the model, which can correct them in the same
//! turn. A question waits for its answer if the agent's client allows long calls. Otherwise, and if
//! nobody answers in time, it ends the run.
//!
//! The descriptions that models read are the text files beside this module. The same server also
//! answers the hooks of agents that ask before each call (`permission_hook`).

mod denials;
mod gate_calls;
mod permission_hook;
mod slow_response;

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::routing::post;
use axum::{Json, middleware};
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
use serde::de::DeserializeOwned;
use serde_json::Value;
use tamma_core::council::{CouncilConclusion, CouncilOpinion};
use tamma_core::learning::LessonSubmission;
use tamma_core::pipeline::TaskSplit;
use tamma_core::pipeline::signal::SignalSubmission;
use tamma_core::plan::{PLANNER_FIELDS, Plan, SIGNAL_FIELDS};
use tamma_core::run_result::RunResult;
use tokio::sync::watch;

pub(crate) use self::denials::DenialLog;
pub use self::gate_calls::AgentGates;
use self::gate_calls::GateCallArgs;
use self::permission_hook::HookCall;
use crate::agent::{AgentObserver, AgentUpdate, RunMode};
use crate::permission::{
    self, PermissionDecision, PermissionEffect, PermissionPolicy, PermissionRequest,
};
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
/// Submits the signal of a phase.
pub const SUBMIT_SIGNAL: &str = "submit_signal";
/// Submits the tasks of a story.
pub const SUBMIT_TASKS: &str = "submit_tasks";
/// Reports progress.
pub const REPORT_PROGRESS: &str = "report_progress";
/// Asks a person.
pub const ASK_HUMAN: &str = "ask_human";
/// Searches the knowledge base.
pub const SEARCH_KNOWLEDGE: &str = "search_knowledge";
/// Returns the assignment of the run.
pub const GET_TASK: &str = "get_task";
/// Runs gates on the agent's files.
pub const RUN_GATES: &str = "run_gates";

/// Path of the permission hook below the server.
pub(crate) const HOOK_PATH: &str = "/permission";

/// Names of all tools.
pub const TOOL_NAMES: [&str; 13] = [
    SUBMIT_PLAN,
    SUBMIT_RESULT,
    SUBMIT_VERDICT,
    SUBMIT_OPINION,
    SUBMIT_CONCLUSION,
    SUBMIT_LESSONS,
    SUBMIT_SIGNAL,
    SUBMIT_TASKS,
    REPORT_PROGRESS,
    ASK_HUMAN,
    SEARCH_KNOWLEDGE,
    GET_TASK,
    RUN_GATES,
];

/// Search in the knowledge base: takes a query and returns texts, best match first.
pub type KnowledgeSearch = Arc<dyn Fn(String) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// Search without results.
pub fn empty_search() -> KnowledgeSearch {
    Arc::new(|_| Box::pin(std::future::ready(Vec::new())))
}

/// Function that asks a person and waits. `None` if nobody answered in time.
pub type AskPerson = Arc<dyn Fn(AgentQuestion) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// Services of the worker behind the tools of a run.
#[derive(Clone, Default)]
pub struct ToolServices {
    /// Assignment that `get_task` returns. `None` for runs that need no tool for it.
    pub task_text: Option<String>,
    /// Gates of the task, for runs that change files.
    pub gates: Option<Arc<dyn AgentGates>>,
    /// Wait for a person's answer. With `None`, a question ends the run.
    pub ask_person: Option<AskPerson>,
}

/// Question of an agent to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentQuestion {
    /// The question, with everything a person needs to answer it: what you found, what is unclear,
    /// and what depends on it.
    pub question: String,
    /// Suggested answers, if any. The person can also answer in their own words.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Answer that applies if nobody responds. Leave it out if only a person can decide.
    #[serde(default)]
    pub default: Option<String>,
    /// Request that a yes would permit. Only Tamma sets it.
    #[serde(skip)]
    pub permission: Option<PermissionRequest>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgressArgs {
    /// Finished work and next step, in one sentence.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    /// A few search terms, such as a module, a library or a subject.
    query: String,
}

/// Arguments of tools without arguments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// Tools of one run.
#[derive(Clone)]
pub struct AgentTools {
    mode: RunMode,
    search: KnowledgeSearch,
    facts: SubmissionFacts,
    observer: AgentObserver,
    submission: Arc<Mutex<Option<Submission>>>,
    question: watch::Sender<Option<AgentQuestion>>,
    services: ToolServices,
    /// Policy that decides calls which a hook reports.
    policy: Option<PermissionPolicy>,
    denials: DenialLog,
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
        Self {
            mode,
            search,
            facts,
            observer,
            submission: Arc::default(),
            question,
            services: ToolServices::default(),
            policy: None,
            denials: DenialLog::default(),
        }
    }

    /// Adds the services of the worker.
    #[must_use]
    pub fn with_services(mut self, services: ToolServices) -> Self {
        self.services = services;
        self
    }

    /// Adds the policy for calls that a hook of the agent reports.
    #[must_use]
    pub fn with_policy(mut self, policy: PermissionPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Returns the denials of the run so far.
    pub(crate) fn denials(&self) -> &DenialLog {
        &self.denials
    }

    /// Keeps a denial, for `get_task` and for the next prompt.
    pub(crate) fn keep_denial(&self, request: &PermissionRequest, decision: &PermissionDecision) {
        if decision.effect == PermissionEffect::Deny {
            let text = permission::listed_denial(self.mode, request, &decision.reason);
            self.denials.add(text);
        }
    }

    /// Decides a call that a hook reports, and returns the hook's response. Only denials are
    /// decided here.
    fn handle_hook(&self, body: &Value) -> Value {
        let (request, decision) = match permission_hook::parse(body) {
            HookCall::Judged(request) => {
                let Some(policy) = &self.policy else { return permission_hook::response(None) };
                let decision = policy(&request);
                (request, decision)
            }
            HookCall::PlanMode(request) => {
                let reason = permission::NO_PLAN_MODE.to_owned();
                (request, PermissionDecision { effect: PermissionEffect::Deny, reason })
            }
            HookCall::Other => return permission_hook::response(None),
        };
        if decision.effect != PermissionEffect::Deny {
            return permission_hook::response(None);
        }
        let text = permission::denial_text(self.mode, &request, &decision.reason);
        self.keep_denial(&request, &decision);
        (self.observer)(AgentUpdate::PermissionDecided(request, decision));
        permission_hook::response(Some(text))
    }

    /// Returns the MCP server. The caller puts it behind the token of the run.
    pub fn router(&self) -> axum::Router {
        // Stateless: each request is complete, so nothing is left over when an agent crashes.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true);
        let (tools, hooks) = (self.clone(), self.clone());
        // Agents differ in the content type that they send.
        let hook = post(move |body: Bytes| async move {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            Json(hooks.handle_hook(&sanitize::value(body)))
        });
        let server = StreamableHttpService::new(
            move || Ok(tools.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        axum::Router::new()
            .route(HOOK_PATH, hook)
            .fallback_service(server)
            .layer(middleware::from_fn(slow_response::stream_if_slow))
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
                define_tool::<Plan>(SUBMIT_PLAN, include_str!("agent_tools/submit_plan.md")),
                &PLANNER_FIELDS,
                self.facts.task_criteria == 0,
            )),
            RunMode::Validate => tools.push(define_tool::<VerdictSubmission>(
                SUBMIT_VERDICT,
                include_str!("agent_tools/submit_verdict.md"),
            )),
            RunMode::Advise => tools.push(define_tool::<CouncilOpinion>(
                SUBMIT_OPINION,
                include_str!("agent_tools/submit_opinion.md"),
            )),
            RunMode::Conclude => tools.push(define_tool::<CouncilConclusion>(
                SUBMIT_CONCLUSION,
                include_str!("agent_tools/submit_conclusion.md"),
            )),
            RunMode::Learn => tools.push(define_tool::<LessonSubmission>(
                SUBMIT_LESSONS,
                include_str!("agent_tools/submit_lessons.md"),
            )),
            RunMode::Phase => tools.push(define_tool::<SignalSubmission>(
                SUBMIT_SIGNAL,
                include_str!("agent_tools/submit_signal.md"),
            )),
            RunMode::Split => tools.push(define_tool::<TaskSplit>(
                SUBMIT_TASKS,
                include_str!("agent_tools/submit_tasks.md"),
            )),
            RunMode::Implement => tools.push(define_tool::<RunResult>(
                SUBMIT_RESULT,
                include_str!("agent_tools/submit_result.md"),
            )),
        }
        if self.services.task_text.is_some() {
            tools.push(define_tool::<NoArgs>(GET_TASK, include_str!("agent_tools/get_task.md")));
        }
        if self.services.gates.is_some() {
            let text = include_str!("agent_tools/run_gates.md");
            tools.push(define_tool::<GateCallArgs>(RUN_GATES, text));
        }
        tools.push(define_tool::<ProgressArgs>(
            REPORT_PROGRESS,
            include_str!("agent_tools/report_progress.md"),
        ));
        if self.can_ask() {
            let text = include_str!("agent_tools/ask_human.md");
            tools.push(define_tool::<AgentQuestion>(ASK_HUMAN, text));
        }
        tools.push(define_tool::<SearchArgs>(
            SEARCH_KNOWLEDGE,
            include_str!("agent_tools/search_knowledge.md"),
        ));
        tools
    }

    /// Returns `true` if the run can ask people. A learning run is over before anybody answers.
    fn can_ask(&self) -> bool {
        self.mode != RunMode::Learn
    }

    /// Returns the assignment, with everything that happened to it in this run.
    fn task_text(&self, task: &str) -> String {
        let mut text = task.trim_end().to_owned();
        let denials = self.denials.all();
        if !denials.is_empty() {
            text.push_str("\n\n# Denied in this run\n\n- ");
            text.push_str(&denials.join("\n- "));
        }
        text.push('\n');
        text
    }

    /// Asks a person. Waits for the answer if the agent can wait; otherwise the run ends.
    async fn ask_human(&self, question: AgentQuestion) -> Result<String, Vec<String>> {
        if question.question.trim().is_empty() {
            return Err(vec!["`question` is empty: write what a person must decide".to_owned()]);
        }
        if let Some(ask) = &self.services.ask_person
            && let Some(answer) = ask(question.clone()).await
        {
            return Ok(format!("{answer}\n\nContinue with your work."));
        }
        let is_first = self.question.send_if_modified(|open| {
            let is_first = open.is_none();
            open.get_or_insert(question);
            is_first
        });
        Ok(if is_first {
            "The question was forwarded, and nobody has answered yet. You will be called again with \
             the answer. End your turn now."
        } else {
            "Another question of yours is open, so this one was not forwarded. You will be called \
             again with the answer to the first, and can ask then. End your turn now."
        }
        .to_owned())
    }

    /// Handles one call. Errors are returned to the model for correction.
    async fn handle_call(&self, name: &str, arguments: Value) -> Result<String, Vec<String>> {
        match (name, self.mode) {
            (SUBMIT_PLAN, RunMode::Plan)
            | (SUBMIT_RESULT, RunMode::Implement)
            | (SUBMIT_VERDICT, RunMode::Validate)
            | (SUBMIT_OPINION, RunMode::Advise)
            | (SUBMIT_CONCLUSION, RunMode::Conclude)
            | (SUBMIT_LESSONS, RunMode::Learn)
            | (SUBMIT_SIGNAL, RunMode::Phase)
            | (SUBMIT_TASKS, RunMode::Split) => {
                let submission = submission::check(self.mode, arguments, &self.facts)?;
                *self.submission.lock().unwrap_or_else(PoisonError::into_inner) = Some(submission);
                Ok("Accepted. End your turn now.".to_owned())
            }
            (GET_TASK, _) => match &self.services.task_text {
                Some(task) => {
                    parse_args::<NoArgs>(arguments)?;
                    Ok(self.task_text(task))
                }
                None => Err(self.unknown_tool(name)),
            },
            (RUN_GATES, _) => match &self.services.gates {
                Some(gates) => parse_args::<GateCallArgs>(arguments)?.call(gates.as_ref()).await,
                None => Err(self.unknown_tool(name)),
            },
            (REPORT_PROGRESS, _) => {
                (self.observer)(AgentUpdate::Progress(
                    parse_args::<ProgressArgs>(arguments)?.message,
                ));
                Ok("Reported.".to_owned())
            }
            (ASK_HUMAN, _) if self.can_ask() => self.ask_human(parse_args(arguments)?).await,
            (SEARCH_KNOWLEDGE, _) => {
                let entries = (self.search)(parse_args::<SearchArgs>(arguments)?.query).await;
                Ok(if entries.is_empty() {
                    "No matching entries.".to_owned()
                } else {
                    entries.join("\n\n")
                })
            }
            _ => Err(self.unknown_tool(name)),
        }
    }

    fn unknown_tool(&self, name: &str) -> Vec<String> {
        let known = self.tool_names().join(", ");
        vec![format!("no tool `{name}` in this run; there are: {known}")]
    }

    fn tool_names(&self) -> Vec<String> {
        self.tool_definitions().iter().map(|tool| tool.name.to_string()).collect()
    }
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION")))
            .with_instructions(format!(
                "{} The tools of this run are: {}.",
                include_str!("agent_tools/instructions.md").trim_end(),
                self.tool_names().join(", ")
            ))
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

/// Parses arguments. The error lists the arguments that the tool takes.
fn parse_args<T: DeserializeOwned + JsonSchema>(arguments: Value) -> Result<T, Vec<String>> {
    serde_json::from_value(arguments)
        .map_err(|error| vec![format!("{error}; {}", describe_arguments::<T>())])
}

/// Describes the arguments of a tool in one line.
fn describe_arguments<T: JsonSchema>() -> String {
    let schema = input_schema::<T>();
    let required: Vec<_> =
        schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let arguments: Vec<_> = properties
        .into_iter()
        .flatten()
        .map(|(name, _)| {
            let is_required = required.iter().any(|it| it.as_str() == Some(name));
            format!("`{name}` ({})", if is_required { "required" } else { "optional" })
        })
        .collect();
    if arguments.is_empty() {
        "the tool takes no arguments: {}".to_owned()
    } else {
        format!("the arguments are {}", arguments.join(", "))
    }
}

fn define_tool<T: JsonSchema>(name: &'static str, description: &'static str) -> Tool {
    // The tools change nothing outside Tamma. Agents ask for approval of tools that might.
    let harmless = ToolAnnotations::new().read_only(true).destructive(false).open_world(false);
    Tool::new(name, description.trim_end(), input_schema::<T>()).with_annotations(harmless)
}

/// Marks fields as required that only planners must submit; `criteria` too, if the task has none.
fn require_fields(mut tool: Tool, fields: &[&str], criteria: bool) -> Tool {
    let mut schema = (*tool.input_schema).clone();
    let more = fields.iter().copied().chain(criteria.then_some("criteria"));
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.extend(more.map(Value::from));
    }
    if let Some(signals) = schema.get_mut("properties").and_then(|it| it.get_mut("signals")) {
        signals["required"] = Value::from(SIGNAL_FIELDS.to_vec());
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

/// Parses the body of a permission hook, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn parse_hook(body: &Value) -> Option<PermissionRequest> {
    match permission_hook::parse(body) {
        HookCall::Judged(request) | HookCall::PlanMode(request) => Some(request),
        HookCall::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::IntoEnumIterator as _;

    use super::*;

    fn tools(mode: RunMode) -> AgentTools {
        let facts =
            SubmissionFacts { criteria: vec!["C1".to_owned()], ..SubmissionFacts::default() };
        AgentTools::new(mode, empty_search(), facts, Arc::new(|_| {}))
    }

    struct FixedGates;

    impl AgentGates for FixedGates {
        fn start(&self, gates: Vec<String>) -> BoxFuture<'static, Result<String, String>> {
            Box::pin(async move { Ok(format!("g1: {}", gates.join(" "))) })
        }

        fn result(&self, id: String) -> BoxFuture<'static, Result<String, String>> {
            Box::pin(async move { Err(format!("no run `{id}`")) })
        }
    }

    /// Tools with every service.
    fn all_tools(mode: RunMode) -> AgentTools {
        tools(mode).with_services(ToolServices {
            task_text: Some("# Task: greet\n".to_owned()),
            gates: Some(Arc::new(FixedGates)),
            ask_person: None,
        })
    }

    /// Calls `check` for every property of a schema, with its path. The only property of a
    /// described variant needs no description of its own.
    fn for_each_property(schema: &Value, path: &str, check: &mut impl FnMut(&str, &Value)) {
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let properties = value.as_object().filter(|_| key == "properties");
                    let is_variant = properties.is_some_and(|it| it.len() == 1)
                        && path.contains("oneOf")
                        && fields.contains_key("description");
                    if !is_variant {
                        for (name, property) in properties.into_iter().flatten() {
                            check(&format!("{path}.{name}"), property);
                        }
                    }
                    for_each_property(value, &format!("{path}.{key}"), check);
                }
            }
            Value::Array(items) => {
                for item in items {
                    for_each_property(item, path, check);
                }
            }
            _ => {}
        }
    }

    fn names(mode: RunMode) -> Vec<String> {
        tools(mode).tool_names()
    }

    #[test]
    fn run_only_has_the_submission_tool_of_its_mode() {
        let always = ["report_progress", "ask_human", "search_knowledge"];
        assert_eq!(names(RunMode::Plan), [&["submit_plan"][..], &always].concat());
        assert_eq!(names(RunMode::Validate), [&["submit_verdict"][..], &always].concat());
        assert_eq!(names(RunMode::Advise), [&["submit_opinion"][..], &always].concat());
        assert_eq!(names(RunMode::Conclude), [&["submit_conclusion"][..], &always].concat());
        let without_people = ["submit_lessons", "report_progress", "search_knowledge"];
        assert_eq!(names(RunMode::Learn), without_people);
        assert_eq!(names(RunMode::Implement), [&["submit_result"][..], &always].concat());
        assert_eq!(names(RunMode::Phase), [&["submit_signal"][..], &always].concat());
        assert_eq!(names(RunMode::Split), [&["submit_tasks"][..], &always].concat());
    }

    #[test]
    fn schema_has_no_references_and_lists_required_fields() {
        for mode in RunMode::iter() {
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
        let schema = tools(RunMode::Plan).tool_definitions().remove(0).input_schema;
        assert_eq!(schema["properties"]["signals"]["required"], json!(SIGNAL_FIELDS));
    }

    #[test]
    fn every_tool_and_every_property_has_a_description() {
        for mode in RunMode::iter() {
            for tool in all_tools(mode).tool_definitions() {
                let name = tool.name.to_string();
                let text = tool.description.as_deref().unwrap_or_default();
                assert!(text.len() > 80, "{name}: {text}");
                let schema = Value::Object((*tool.input_schema).clone());
                for_each_property(&schema, &name, &mut |path, property| {
                    let text = property["description"].as_str().unwrap_or_default();
                    assert!(text.len() > 5, "{path} has no description: {property}");
                });
            }
        }
    }

    #[tokio::test]
    async fn errors_say_how_to_correct_the_call() {
        let tools = all_tools(RunMode::Implement);
        let error = async |name: &str, arguments: Value| {
            tools.handle_call(name, arguments).await.expect_err("an error").join("\n")
        };
        let text = error(RUN_GATES, json!({ "action": "wait" })).await;
        assert!(text.contains("`start`") && text.contains("`action` (required)"), "{text}");
        let text = error(RUN_GATES, json!({ "action": "result" })).await;
        assert!(text.contains("\"id\": \"g1\""), "{text}");
        let text = error(GET_TASK, json!({ "id": 1 })).await;
        assert!(text.contains("takes no arguments"), "{text}");
        let text = error(REPORT_PROGRESS, json!({})).await;
        assert!(text.contains("`message` (required)"), "{text}");
        let text = error("submit_plan", json!({})).await;
        assert!(text.contains("there are: submit_result, get_task, run_gates"), "{text}");
        let text = error(ASK_HUMAN, json!({ "question": " " })).await;
        assert!(text.contains("`question` is empty"), "{text}");
    }

    #[tokio::test]
    async fn gates_are_started_and_their_results_returned() {
        let tools = all_tools(RunMode::Implement);
        let start = json!({ "action": "start", "gates": ["tests"] });
        assert_eq!(tools.handle_call(RUN_GATES, start).await.as_deref(), Ok("g1: tests"));
        let result = json!({ "action": "result", "id": "g7" });
        let errors = tools.handle_call(RUN_GATES, result).await.expect_err("an error");
        assert_eq!(errors, ["no run `g7`"]);
    }

    #[tokio::test]
    async fn denials_are_listed_with_the_task_and_answered_to_hooks() {
        let tools = all_tools(RunMode::Implement).with_policy(Arc::new(|request| {
            let denied = request.command.as_deref() == Some("git push");
            let effect = if denied { PermissionEffect::Deny } else { PermissionEffect::Allow };
            PermissionDecision { effect, reason: "only Tamma pushes commits".to_owned() }
        }));
        let call =
            |command: &str| json!({ "tool_name": "Bash", "tool_input": { "command": command } });
        assert_eq!(tools.handle_hook(&call("cargo test")), json!({}));
        let before = tools.handle_call(GET_TASK, json!({})).await.expect("a task");
        assert_eq!(before, "# Task: greet\n");
        let response = tools.handle_hook(&call("git push"));
        let output = &response["hookSpecificOutput"];
        assert_eq!(output["permissionDecision"], "deny");
        let reason = output["permissionDecisionReason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("Denied: only Tamma pushes commits. Instead: "), "{reason}");
        let after = tools.handle_call(GET_TASK, json!({})).await.expect("a task");
        assert!(after.contains(&format!("- `git push`: {reason}")), "{after}");
        let plan_mode = json!({ "tool_name": "EnterPlanMode", "tool_input": {} });
        let response = tools.handle_hook(&plan_mode).to_string();
        assert!(response.contains("Tamma plans in runs of its own"), "{response}");
    }

    #[tokio::test]
    async fn a_question_returns_the_answer_or_ends_the_run() {
        let answer = |answer: Option<&'static str>| -> AskPerson {
            Arc::new(move |_| Box::pin(async move { answer.map(str::to_owned) }))
        };
        let ask = json!({ "question": "Tabs or spaces?" });
        for (given, expected) in
            [(Some("Bo answered: tabs"), "Bo answered: tabs"), (None, "End your turn")]
        {
            let services =
                ToolServices { ask_person: Some(answer(given)), ..ToolServices::default() };
            let tools = tools(RunMode::Plan).with_services(services);
            let text = tools.handle_call(ASK_HUMAN, ask.clone()).await.expect("accepted");
            assert!(text.contains(expected), "{text}");
            assert_eq!(tools.question.borrow().is_some(), given.is_none());
        }
    }

    #[tokio::test]
    async fn the_first_unanswered_question_ends_the_run() {
        let tools = tools(RunMode::Plan);
        let mut texts = Vec::new();
        for question in ["Tabs?", "Spaces?"] {
            let ask = json!({ "question": question });
            texts.push(tools.handle_call(ASK_HUMAN, ask).await.expect("accepted"));
        }
        assert!(texts[0].contains("was forwarded") && texts[1].contains("was not forwarded"));
        assert_eq!(tools.wait_for_question().await.question, "Tabs?");
        // An agent cannot name a permission that an answer grants.
        let forged = json!({ "question": "Tabs?", "permission": { "kind": "Write" } });
        assert!(tools.handle_call(ASK_HUMAN, forged).await.is_err());
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
