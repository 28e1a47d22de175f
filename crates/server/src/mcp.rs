//! MCP server: offers the use cases as tools to MCP clients.
//!
//! Authentication, permissions and history are the same as for the API. An agent that approves a
//! plan must name its hash. This is the only file of the crate that depends on the MCP library.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, JsonObject, ListPromptsResult,
    ListToolsResult, PaginatedRequestParams, Prompt, PromptArgument, PromptMessage, Role,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::access::{AccessAction, AccessRights};
use tamma_core::actor::RequestInterface;
use tamma_core::ids::TaskId;
use tamma_core::plan::PlanAdjustment;
use tamma_core::task_loop::State;
use tamma_store::{KnowledgeFilter, PipelineFilter, PullRequestFilter, StoredStatus, TaskFilter};

use crate::app::{App, Error, PageRequest, Principal};
use crate::dto::{NewKnowledgeEntry, NewPipelineRun, NewTask, TaskAction};
use crate::problem::Problem;
use crate::route_access::CallerRights;
use crate::{audit, auth};

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

/// Command file for coding agents, and text of the prompt.
pub const SCRUM_MASTER_COMMAND: &str = include_str!("mcp/scrum-master.md");

/// Name of the prompt.
const SCRUM_MASTER_PROMPT: &str = "scrum-master";

/// Filter for tasks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an argument of the tool")]
struct ListTasks {
    /// Text in title or description.
    text: Option<String>,
    /// Project ID or name.
    project: Option<String>,
    /// Only open tasks.
    live: bool,
    /// Only tasks that need a decision.
    waiting: bool,
    /// Only tasks that take longer than expected, most overdue first. Other filters except
    /// `project` are ignored.
    overdue: bool,
    /// Only open tasks with at least three failures, most failures first. Other filters except
    /// `project` are ignored.
    failing: bool,
}

/// Project to read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ProjectRef {
    /// Project ID or name; optional if only one project is registered.
    project: Option<String>,
}

/// Tool without arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct NoArguments {}

/// Rating of a closed task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateTask {
    /// Task ID, or at least four characters from its start or end.
    task: String,
    /// 1 (bad) to 5 (good).
    stars: u8,
    /// Comment.
    #[serde(default)]
    reason: Option<String>,
}

/// Edits of a plan, field by field.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AdjustPlan {
    /// Task ID, or at least four characters from its start or end.
    task: String,
    /// Hash of the plan you read, or at least its first eight digits.
    plan: String,
    /// Edited fields, each with its complete new value.
    adjustments: Vec<PlanAdjustment>,
    /// Reason.
    reason: String,
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
    /// Configured agent that implements the task; by default that of the task's tier.
    #[serde(default)]
    suggested_agent: Option<String>,
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
    /// `{"resume": {}}`, `{"convene": {"question": "…"}}` (the council), `{"cancel": {"reason": "…"}}`.
    /// `show_task` lists the possible answers.
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

/// Filter for pull requests.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ListPullRequests {
    /// Project ID or name.
    project: Option<String>,
    /// Include merged and closed ones.
    all: bool,
}

/// Filter for pipelines.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ListPipelines {
    /// Project ID or name.
    project: Option<String>,
    /// Only runs that have not ended.
    live: bool,
    /// Only runs that need a person: at a gate, or stopped by a phase.
    waiting: bool,
}

/// Pipeline to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PipelineRef {
    /// Story ID, pipeline ID, or the end of the pipeline ID.
    story: String,
}

/// Phase to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PhaseRef {
    /// Story ID, pipeline ID, or the end of the pipeline ID.
    story: String,
    /// Number of the phase.
    phase: u8,
}

/// Run of a pipeline to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunPipeline {
    /// Folder of the feature, from the root of the repository.
    feature_dir: String,
    /// Story ID.
    story_id: String,
    /// Number of the first phase. Default: 1.
    #[serde(default)]
    from: Option<u8>,
    /// Number of the last phase. Default: the last one.
    #[serde(default)]
    to: Option<u8>,
    /// Numbers of the phases that need approval before they start.
    #[serde(default)]
    approve: Vec<u8>,
    /// Pipeline from tamma.yaml. Default: `story`.
    #[serde(default)]
    pipeline: Option<String>,
    /// Project ID or name; optional if only one project is registered.
    #[serde(default)]
    project: Option<String>,
}

/// Action on a pipeline.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerPipeline {
    /// Story ID, pipeline ID, or the end of the pipeline ID.
    story: String,
    /// `continue`, `skip` or `stop` at a gate; `cancel` a run; `resume` or `dismiss` a stopped run.
    action: String,
}

/// Endpoint, which gives each call a [`ToolCall`] with the rights of its caller.
#[derive(Clone)]
struct McpServer {
    unlimited: App,
}

/// Call of a tool: its use cases read nothing that the caller cannot read.
struct ToolCall {
    app: App,
    rights: AccessRights,
    by: Option<Principal>,
}

/// Builds the MCP endpoint. The caller adds authentication.
pub(crate) fn router(app: App) -> axum::Router {
    // Stateless: every request is complete, so any server can answer it.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // A page of another origin has no token, and the authenticator requires one.
        .disable_allowed_hosts();
    let server = McpServer { unlimited: app };
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
            "Show a task: state, open question, plan hash, pull request, runs and cost.",
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
        acts(tool::<AdjustPlan>(
            "adjust_plan",
            "Edit fields of the plan with this hash. The edited plan is checked and needs approval; \
             no planner runs.",
        )),
        adds(tool::<RateTask>("rate_task", "Rate a closed task with 1 to 5 stars.")),
        reads(tool::<NoArguments>(
            "show_agents",
            "Show the agent pool: workers with their runs and free slots, quotas of providers, and \
             the results of each agent.",
        )),
        reads(tool::<ProjectRef>(
            "show_permissions",
            "List the effective permissions of people and agents in a project.",
        )),
        acts(tool::<ProjectRef>(
            "apply_rules",
            "Apply the rules in a project's tamma.yaml to its open tasks. Plans are checked and \
             approved again, and runs stop.",
        )),
        acts(tool::<AnswerTask>(
            "answer_task",
            "Answer a task's question, convene the council, or pause, resume or cancel the task.",
        )),
        reads(tool::<ListPullRequests>(
            "list_pull_requests",
            "List open pull requests of tasks, newest first, each with its stage, checks and reviews.",
        )),
        reads(tool::<NoArguments>(
            "list_merge_queue",
            "List the merge queues: entries in their order, the current build, and pauses.",
        )),
        reads(tool::<ListPipelines>(
            "list_pipelines",
            "List the pipelines of stories, last changed first, each with its phases.",
        )),
        reads(tool::<PipelineRef>(
            "show_pipeline",
            "Show the pipeline of a story: phases, signals, open question, tasks and report.",
        )),
        reads(tool::<PhaseRef>(
            "read_phase_output",
            "Read the output of a phase, as its agent or command wrote it.",
        )),
        adds(tool::<RunPipeline>(
            "run_pipeline",
            "Take a story through the phases of its pipeline. Returns at once; follow it with \
             show_pipeline.",
        )),
        acts(tool::<AnswerPipeline>(
            "answer_pipeline",
            "Answer at an approval gate of a pipeline, cancel its run, or resume or dismiss a \
             stopped one.",
        )),
        reads(tool::<SearchKnowledge>("search_knowledge", "Search the knowledge base.")),
        adds(tool::<ProposeKnowledge>(
            "propose_knowledge",
            "Propose a knowledge entry. It takes effect only after a person approves it.",
        )),
    ]
}

/// Returns the action that a tool is. A tool without one is refused.
fn tool_action(name: &str) -> Option<AccessAction> {
    Some(match name {
        "list_tasks" | "show_task" | "read_events" | "show_agents" | "show_permissions"
        | "list_pull_requests" | "list_merge_queue" | "list_pipelines" | "show_pipeline"
        | "search_knowledge" => AccessAction::ReadProject,
        "read_plan" | "read_change" | "read_phase_output" => AccessAction::ReadContent,
        "add_task" | "run_pipeline" => AccessAction::AddTask,
        // The use case checks what the action or answer needs.
        "ask_changes" | "adjust_plan" | "rate_task" | "answer_task" | "answer_pipeline" => {
            AccessAction::ControlTask
        }
        "approve_plan" | "reject_plan" => AccessAction::Decide,
        "apply_rules" => AccessAction::ChangeRules,
        "propose_knowledge" => AccessAction::ProposeKnowledge,
        _ => return None,
    })
}

impl ToolCall {
    /// Returns the person that the call acts for.
    fn by(&self) -> Result<Principal, Error> {
        self.by.clone().ok_or_else(missing_person)
    }

    async fn dispatch(&self, name: &str, arguments: Value) -> Result<Value, Error> {
        let by = || self.by();
        match name {
            "list_tasks" => self.list_tasks(parse(arguments)?).await,
            "show_task" => {
                let task = self.task_of(arguments).await?;
                to_json(&self.app.task_detail(task).await?)
            }
            "read_plan" => {
                let task = self.task_of(arguments).await?;
                to_json(&self.app.current_plan(task).await?)
            }
            "read_change" => {
                let task = self.task_of(arguments).await?;
                to_json(&self.app.latest_change(task).await?)
            }
            "read_events" => {
                let task = self.task_of(arguments).await?;
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
            "adjust_plan" => {
                let AdjustPlan { task, plan, adjustments, reason } = parse(arguments)?;
                let task = self.app.resolve_task_id(&task).await?;
                let action = TaskAction::AdjustPlan { plan, adjustments, reason };
                to_json(&self.app.perform_action(task, by()?, action, None).await?)
            }
            "rate_task" => {
                let RateTask { task, stars, reason } = parse(arguments)?;
                let task = self.app.resolve_task_id(&task).await?;
                let action = TaskAction::Rate { stars, reason };
                to_json(&self.app.perform_action(task, by()?, action, None).await?)
            }
            "show_agents" => {
                let NoArguments {} = parse(arguments)?;
                to_json(&self.app.agent_pool().await?)
            }
            "show_permissions" => {
                let ProjectRef { project } = parse(arguments)?;
                let permissions = self.app.effective_permissions(project.as_deref(), &self.rights);
                to_json(&permissions.await?)
            }
            "apply_rules" => {
                let ProjectRef { project } = parse(arguments)?;
                to_json(&self.app.apply_rules(&by()?, project.as_deref()).await?)
            }
            "answer_task" => {
                let AnswerTask { task, action } = parse(arguments)?;
                let (task, action) = (self.app.resolve_task_id(&task).await?, parse(action)?);
                to_json(&self.app.perform_action(task, by()?, action, None).await?)
            }
            "list_merge_queue" => {
                let NoArguments {} = parse(arguments)?;
                to_json(&self.app.merge_queues().await?)
            }
            "list_pull_requests" => {
                let ListPullRequests { project, all } = parse(arguments)?;
                let project = self.app.project_filter(project.as_deref()).await?;
                let status = (!all).then_some(StoredStatus::Open);
                let filter = PullRequestFilter { project, status };
                to_json(&self.app.list_pull_requests(&filter, MAX_RESULTS).await?)
            }
            "list_pipelines" | "show_pipeline" | "read_phase_output" | "run_pipeline"
            | "answer_pipeline" => self.dispatch_pipeline_tool(by, name, arguments).await,
            "search_knowledge" => {
                let SearchKnowledge { query, project } = parse(arguments)?;
                let project = self.app.project_filter(project.as_deref()).await?;
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

    async fn dispatch_pipeline_tool(
        &self,
        by: impl Fn() -> Result<Principal, Error>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, Error> {
        match name {
            "list_pipelines" => {
                let query: ListPipelines = parse(arguments)?;
                let project = self.app.project_filter(query.project.as_deref()).await?;
                let filter =
                    PipelineFilter { project, live: query.live, needs_person: query.waiting };
                to_json(&self.app.pipeline_list(&filter, MAX_RESULTS).await?)
            }
            "show_pipeline" => {
                let PipelineRef { story } = parse(arguments)?;
                let id = self.app.resolve_pipeline(&story).await?;
                to_json(&self.app.pipeline_view(id).await?)
            }
            "read_phase_output" => {
                let PhaseRef { story, phase } = parse(arguments)?;
                let id = self.app.resolve_pipeline(&story).await?;
                to_json(&self.app.phase_output(id, phase).await?)
            }
            "run_pipeline" => {
                let new: RunPipeline = parse(arguments)?;
                let new = NewPipelineRun {
                    project: new.project,
                    feature_dir: new.feature_dir,
                    story_id: new.story_id,
                    pipeline: new.pipeline,
                    from: new.from,
                    to: new.to,
                    approve: new.approve,
                };
                to_json(&self.app.start_pipeline(&by()?, new).await?)
            }
            "answer_pipeline" => {
                let AnswerPipeline { story, action } = parse(arguments)?;
                let id = self.app.resolve_pipeline(&story).await?;
                let action = parse(Value::String(action))?;
                to_json(&self.app.act_on_pipeline(id, &by()?, action).await?)
            }
            _ => Err(Error::NotFound { what: "tool", key: name.to_owned() }),
        }
    }

    /// Returns the task that the arguments name.
    async fn task_of(&self, arguments: Value) -> Result<TaskId, Error> {
        self.app.resolve_task_id(&parse::<TaskRef>(arguments)?.task).await
    }

    async fn list_tasks(&self, query: ListTasks) -> Result<Value, Error> {
        let project = self.app.project_filter(query.project.as_deref()).await?;
        if query.overdue {
            let window = PageRequest { after: None, limit: MAX_RESULTS };
            return to_json(&self.app.overdue_tasks(project, &window).await?);
        }
        if query.failing {
            return to_json(&self.app.failing_tasks(project, MAX_RESULTS).await?);
        }
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
    let optional = [
        ("type", arguments.r#type),
        ("priority", arguments.priority),
        ("suggested_agent", arguments.suggested_agent),
    ];
    for (name, value) in optional {
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
        let capabilities = ServerCapabilities::builder().enable_prompts().enable_tools();
        ServerConfig::new(capabilities.build())
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

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![scrum_master_prompt()]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != SCRUM_MASTER_PROMPT {
            let text = format!("no prompt `{}`; use `{SCRUM_MASTER_PROMPT}`", request.name);
            return Err(ErrorData::invalid_params(text, None));
        }
        let text = scrum_master_text(&request.arguments.unwrap_or_default());
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let parts = context.extensions.get::<Parts>();
        let audited = parts.zip(tool_action(&request.name)).and_then(|(parts, action)| {
            audit::tool_call_request(parts, action, &request.name, &arguments)
        });
        let called = async {
            let caller = parts.and_then(|parts| parts.extensions.get::<CallerRights>());
            let caller = caller.ok_or_else(missing_person)?;
            let unknown = || Error::NotFound { what: "tool", key: request.name.to_string() };
            caller.authorize_anywhere(tool_action(&request.name).ok_or_else(unknown)?)?;
            let app = self.unlimited.limited_to(&caller.rights);
            let by = parts.and_then(|parts| auth::principal(parts).ok());
            let by = by.map(|by| by.through(RequestInterface::Mcp));
            let call = ToolCall { app, rights: caller.rights.clone(), by };
            call.dispatch(&request.name, arguments).await
        };
        let called = Box::pin(called);
        let called = match audited {
            Some(audited) => {
                let log = &self.unlimited.audit;
                log.record(&audited, called, audit::judge_result).await.flatten()
            }
            None => called.await,
        };
        let result = match called {
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

/// Arguments of the prompt, with their descriptions.
const PROMPT_ARGUMENTS: [(&str, &str); 5] = [
    ("feature_dir", "Folder of the feature, from the root of the repository"),
    ("story_id", "Story ID"),
    ("from", "Number of the first phase"),
    ("to", "Number of the last phase"),
    ("approve", "Numbers of the phases that need approval, such as 2,4"),
];

fn scrum_master_prompt() -> Prompt {
    let argument = |(index, (name, description)): (usize, (&str, &str))| {
        PromptArgument::new(name).with_description(description).with_required(index < 2)
    };
    let arguments = PROMPT_ARGUMENTS.into_iter().enumerate().map(argument).collect();
    let description = "Take a story through the phases of its pipeline";
    Prompt::new(SCRUM_MASTER_PROMPT, Some(description), Some(arguments))
}

/// Returns the text of the prompt: the command file without its front matter.
fn scrum_master_text(arguments: &JsonObject) -> String {
    let body = SCRUM_MASTER_COMMAND.splitn(3, "---\n").nth(2).unwrap_or(SCRUM_MASTER_COMMAND);
    let value = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::trim);
    let words = PROMPT_ARGUMENTS.into_iter().enumerate().filter_map(|(index, (name, _))| {
        let value = value(name).filter(|value| !value.is_empty())?;
        Some(if index < 2 { value.to_owned() } else { format!("--{name}={value}") })
    });
    body.trim_start().replace("$ARGUMENTS", &words.collect::<Vec<_>>().join(" "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_is_the_command_with_its_arguments() {
        let arguments = json!({ "feature_dir": "plans/a", "story_id": "A-1", "from": "2" });
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let text = scrum_master_text(&arguments);
        assert!(text.starts_with("Take a story through its pipeline."), "{text}");
        assert!(text.contains("The arguments are: plans/a A-1 --from=2\n"), "{text}");
    }
}
