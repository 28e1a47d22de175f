//! MCP server: offers the use cases as tools to MCP clients.
//!
//! Authentication, permissions and history are the same as for the API. An agent that approves a
//! plan must name its hash. This is the only file of the crate that depends on the MCP library.

use std::sync::Arc;

use axum::http::request::Parts;
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
use serde_json::{Value, json};
use tamma_core::task_loop::State;
use tamma_store::{KnowledgeFilter, TaskFilter};

use crate::app::{App, Error, PageRequest, Principal};
use crate::auth;
use crate::dto::{NewKnowledgeEntry, NewTask, TaskAction};
use crate::problem::Problem;

/// Path of the MCP endpoint.
pub(crate) const MCP_PATH: &str = "/mcp";

/// Maximum number of items in a result.
const MAX_RESULTS: u32 = 50;

/// Instructions for MCP clients.
const INSTRUCTIONS: &str = "Tamma takes development tasks for a git repository through plan, approval, \
                     implementation, review and learning. It runs its own coding agents. Add a task, \
                     follow it, and make the decisions it needs. A decision names the hash of the plan \
                     or the commit: read it first. Decide only what the person you work for has \
                     instructed you to decide.";

/// Filter for tasks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ListTasks {
    /// Text in title or description.
    text: Option<String>,
    /// Project ID or name.
    project: Option<String>,
    /// Only open tasks.
    live: bool,
    /// Only tasks that need a decision.
    waiting: bool,
}

/// Task to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskRef {
    /// Task ID, or at least four characters from its start or end.
    task: String,
}

/// Task to add.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddTask {
    /// One-line title, up to 200 characters.
    title: String,
    /// Task description.
    #[serde(default)]
    description: String,
    /// Acceptance criteria; the review checks each one separately.
    #[serde(default)]
    acceptance_criteria: Vec<String>,
    /// Task type: feature, bugfix, refactor, test, docs or chore.
    #[serde(default)]
    r#type: Option<String>,
    /// Priority: low, medium, high or critical.
    #[serde(default)]
    priority: Option<String>,
    /// Project ID or name; optional if only one project is registered.
    #[serde(default)]
    project: Option<String>,
}

/// Decision about a plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DecidePlan {
    /// Task ID, or at least four characters from its start or end.
    task: String,
    /// Hash of the plan you read, or at least its first eight digits.
    plan: String,
    /// Reason; for `ask_changes`, the changes you want.
    #[serde(default)]
    reason: String,
}

/// Answer to a task's question, or another action on it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerTask {
    /// Task ID, or at least four characters from its start or end.
    task: String,
    /// Object with one key, the name of the action, such as `{"reply": {"text": "…"}}`,
    /// `{"continue": {}}`, `{"retry": {}}`, `{"accept": {"commit": "…"}}`,
    /// `{"rework": {"commit": "…", "comments": "…"}}`, `{"modify": {"note": "…"}}`, `{"pause": {}}`,
    /// `{"resume": {}}`, `{"cancel": {"reason": "…"}}`. `show_task` lists the possible answers.
    action: Value,
}

/// Search in the knowledge base.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchKnowledge {
    /// Search text.
    query: String,
    /// Project ID or name.
    #[serde(default)]
    project: Option<String>,
}

/// Knowledge entry to propose. It is pending until a person approves it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProposeKnowledge {
    /// Kind: recommendation, prohibition, convention or learning.
    kind: String,
    /// Text of the entry.
    text: String,
    /// Paths it applies to, as globs relative to the repository root.
    #[serde(default)]
    globs: Vec<String>,
    /// Keywords it applies to.
    #[serde(default)]
    keywords: Vec<String>,
    /// Project ID or name; optional if only one project is registered.
    #[serde(default)]
    project: Option<String>,
}

/// Tool handlers.
#[derive(Clone)]
struct McpServer {
    app: App,
}

/// Builds the MCP endpoint. The caller adds authentication.
pub(crate) fn router(app: App) -> axum::Router {
    // Stateless: every request is complete, so any server can answer it.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // The authenticator has already checked the host.
        .disable_allowed_hosts();
    let server = McpServer { app };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    axum::Router::new().route_service(MCP_PATH, service)
}

fn tools() -> Vec<Tool> {
    let reads = |tool: Tool| {
        let harmless = ToolAnnotations::new().read_only(true).destructive(false).open_world(false);
        tool.with_annotations(harmless)
    };
    let changes = |tool: Tool, destructive| {
        let annotations = ToolAnnotations::new().read_only(false).open_world(false);
        tool.with_annotations(annotations.destructive(destructive))
    };
    // Adding is not destructive; decisions cannot be undone.
    let adds = |tool| changes(tool, false);
    let acts = |tool| changes(tool, true);
    vec![
        reads(tool::<ListTasks>(
            "list_tasks",
            "List tasks, newest first, each with its state and next step.",
        )),
        reads(tool::<TaskRef>(
            "show_task",
            "Show a task: state, open question, plan hash, runs and cost.",
        )),
        reads(tool::<TaskRef>("read_plan", "Read the full plan of a task, with its hash.")),
        reads(tool::<TaskRef>(
            "read_change",
            "Read the newest reviewed change of a task as a patch, with its commit.",
        )),
        reads(tool::<TaskRef>("read_events", "Read the newest entries of a task's history.")),
        adds(tool::<AddTask>("add_task", "Add a task. Tamma plans it before any code is changed.")),
        acts(tool::<DecidePlan>(
            "approve_plan",
            "Approve the plan with this hash. An agent then implements it.",
        )),
        acts(tool::<DecidePlan>(
            "reject_plan",
            "Reject the plan with this hash. `reason` is required.",
        )),
        acts(tool::<DecidePlan>(
            "ask_changes",
            "Ask the planner to revise the plan with this hash. `reason` describes the changes.",
        )),
        acts(tool::<AnswerTask>(
            "answer_task",
            "Answer a task's question, or pause, resume or cancel the task.",
        )),
        reads(tool::<SearchKnowledge>("search_knowledge", "Search the knowledge base.")),
        adds(tool::<ProposeKnowledge>(
            "propose_knowledge",
            "Propose a knowledge entry. It takes effect only after a person approves it.",
        )),
    ]
}

impl McpServer {
    async fn dispatch_tool(
        &self,
        by: Option<Principal>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, Error> {
        let by = || by.clone().ok_or_else(missing_person);
        match name {
            "list_tasks" => self.list_tasks(parse(arguments)?).await,
            "show_task" => {
                let detail = self
                    .app
                    .task_detail(
                        self.app.resolve_task_id(&parse::<TaskRef>(arguments)?.task).await?,
                    )
                    .await?;
                to_json(&detail)
            }
            "read_plan" => {
                let plan = self
                    .app
                    .current_plan(
                        self.app.resolve_task_id(&parse::<TaskRef>(arguments)?.task).await?,
                    )
                    .await?;
                to_json(&plan)
            }
            "read_change" => {
                let change = self
                    .app
                    .latest_change(
                        self.app.resolve_task_id(&parse::<TaskRef>(arguments)?.task).await?,
                    )
                    .await?;
                to_json(&change)
            }
            "read_events" => {
                let task = self.app.resolve_task_id(&parse::<TaskRef>(arguments)?.task).await?;
                let entries = self.app.task_card(task).await?.entries;
                let after = entries.saturating_sub(MAX_RESULTS.into()).to_string();
                let window = PageRequest { after: Some(after), limit: MAX_RESULTS };
                to_json(&self.app.history_page(task, &window).await?)
            }
            "add_task" => {
                let new = new_task(parse(arguments)?)?;
                to_json(&self.app.add_task(by()?, new).await?)
            }
            "approve_plan" | "reject_plan" | "ask_changes" => {
                let DecidePlan { task, plan, reason } = parse(arguments)?;
                let task = self.app.resolve_task_id(&task).await?;
                let action = match name {
                    "approve_plan" => {
                        let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
                        TaskAction::Approve { plan, reason }
                    }
                    "reject_plan" => TaskAction::Reject { plan, reason },
                    _ => TaskAction::AskChanges { plan, changes: reason },
                };
                to_json(&self.app.perform_action(task, by()?, action, None).await?)
            }
            "answer_task" => {
                let AnswerTask { task, action } = parse(arguments)?;
                let (task, action) = (self.app.resolve_task_id(&task).await?, parse(action)?);
                to_json(&self.app.perform_action(task, by()?, action, None).await?)
            }
            "search_knowledge" => {
                let SearchKnowledge { query, project } = parse(arguments)?;
                let project = match project {
                    Some(project) => Some(self.app.resolve_project(Some(&project)).await?.id),
                    None => None,
                };
                let filter = KnowledgeFilter { project, ..KnowledgeFilter::default() };
                to_json(&self.app.list_knowledge(&filter, Some(&query)).await?)
            }
            "propose_knowledge" => {
                let new = parse::<ProposeKnowledge>(arguments)?;
                let new: NewKnowledgeEntry = parse(json!({
                    "kind": new.kind, "text": new.text, "globs": new.globs,
                    "keywords": new.keywords, "project": new.project,
                }))?;
                to_json(&self.app.add_knowledge(new, &by()?).await?)
            }
            _ => Err(Error::NotFound { what: "tool", key: name.to_owned() }),
        }
    }

    async fn list_tasks(&self, query: ListTasks) -> Result<Value, Error> {
        let project = match &query.project {
            Some(project) => Some(self.app.resolve_project(Some(project)).await?.id),
            None => None,
        };
        let states = if query.live {
            use strum::IntoEnumIterator as _;
            State::iter().filter(|state| !state.is_terminal()).collect()
        } else {
            Vec::new()
        };
        let filter = TaskFilter {
            project,
            states,
            waits: query.waiting.then_some(true),
            text: query.text,
            ..TaskFilter::default()
        };
        to_json(
            &self.app.list_tasks(&filter, &PageRequest { after: None, limit: MAX_RESULTS }).await?,
        )
    }
}

fn missing_person() -> Error {
    Error::invalid(
        "The name of the person is missing.",
        "Start `tamma mcp` with your access token in TAMMA_TOKEN, or send your name in the header \
         `Tamma-Person`.",
    )
}

fn new_task(arguments: AddTask) -> Result<NewTask, Error> {
    let mut task = json!({
        "title": arguments.title, "description": arguments.description,
        "project": arguments.project,
        "acceptance_criteria": arguments.acceptance_criteria,
    });
    for (name, value) in [("type", arguments.r#type), ("priority", arguments.priority)] {
        if let Some(value) = value {
            task[name] = json!(value);
        }
    }
    parse(task)
}

fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, Error> {
    serde_json::from_value(arguments).map_err(|error| {
        Error::invalid(format!("Cannot read the arguments: {error}."), "Follow the tool's schema.")
    })
}

fn to_json(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("tamma", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let by = context.extensions.get::<Parts>().and_then(|parts| auth::principal(parts).ok());
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match self.dispatch_tool(by, &request.name, arguments).await {
            Ok(value) => {
                let text = serde_json::to_string_pretty(&value).unwrap_or_default();
                CallToolResult::success(vec![ContentBlock::text(text)])
            }
            Err(error) => {
                let Problem { detail, hint, .. } = error.into();
                let text = [Some(detail), hint].into_iter().flatten();
                let text = text.collect::<Vec<_>>().join(" ");
                CallToolResult::error(vec![ContentBlock::text(text)])
            }
        };
        Ok(result.into())
    }
}

fn tool<T: JsonSchema>(name: &'static str, description: &'static str) -> Tool {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = match settings.into_generator().into_root_schema_for::<T>().to_value() {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    Tool::new(name, description, schema)
}
