//! Tamma as a server of the Model Context Protocol: the same use cases, for whatever agent a developer
//! already talks to.
//!
//! It is a face like the API: who asks is found out in the same way, the same rights are checked, and
//! the same is written down. A decision names what was seen, as everywhere: an agent that approves a plan
//! has to say which one. This is the only file of the crate that names the protocol's library.

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
use tamma_store::{Filter, KnowledgeFilter};

use crate::app::{App, By, Error, Window};
use crate::guard;
use crate::problem::Problem;
use crate::shape::{Action, NewKnowledge, NewTask};

/// Where it is.
pub(crate) const PATH: &str = "/mcp";

/// How many of a list are given at most.
const MOST: u32 = 50;

/// What a client is told about us.
const ABOUT: &str = "Tamma takes development tasks for a git repository through plan, approval, \
                     implementation, review and learning, with coding agents of its own. Add a task, \
                     follow it, and decide what it asks. A decision names the hash of the plan or the \
                     commit that was seen: read it first, and decide only what the person you work for \
                     has told you to decide.";

/// Which tasks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ListTasks {
    /// With these words in title or description.
    text: Option<String>,
    /// Of this project: its id or its name.
    project: Option<String>,
    /// Only tasks that have not ended.
    live: bool,
    /// Only tasks that wait for a person.
    waiting: bool,
}

/// Which task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct One {
    /// The task's id, or at least four digits from the beginning or the end of it.
    task: String,
}

/// A task to be added.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddTask {
    /// One line, of at most 200 characters.
    title: String,
    /// As much as there is to say.
    #[serde(default)]
    description: String,
    /// What must be true at the end, each judged on its own.
    #[serde(default)]
    acceptance_criteria: Vec<String>,
    /// What kind of work it is: feature, bugfix, refactor, test, docs or chore.
    #[serde(default)]
    r#type: Option<String>,
    /// How urgent it is: low, medium, high or critical.
    #[serde(default)]
    priority: Option<String>,
    /// The id or the name of its project. It can be left out where there is exactly one.
    #[serde(default)]
    project: Option<String>,
}

/// A decision about a plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DecidePlan {
    /// The task's id, or at least four digits of it.
    task: String,
    /// The hash of the plan that was read, or at least its first eight digits.
    plan: String,
    /// Why; or, for changes, what is to be different.
    #[serde(default)]
    reason: String,
}

/// An answer to a task's question, or something that is asked of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerTask {
    /// The task's id, or at least four digits of it.
    task: String,
    /// An object with one key, the name of the action, such as `{"reply": {"text": "…"}}`,
    /// `{"continue": {}}`, `{"retry": {}}`, `{"accept": {"commit": "…"}}`,
    /// `{"rework": {"commit": "…", "comments": "…"}}`, `{"modify": {"note": "…"}}`, `{"pause": {}}`,
    /// `{"resume": {}}`, `{"cancel": {"reason": "…"}}`. `show_task` says what may be answered.
    action: Value,
}

/// What to look for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// A few words.
    query: String,
    /// Of this project: its id or its name.
    #[serde(default)]
    project: Option<String>,
}

/// Something that the team should know. It waits until a person approves it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Propose {
    /// recommendation, prohibition, convention or learning.
    kind: String,
    /// What it says.
    text: String,
    /// The paths it is about, as globs from the root.
    #[serde(default)]
    globs: Vec<String>,
    /// The words it is about.
    #[serde(default)]
    keywords: Vec<String>,
    /// The id or the name of its project. It can be left out where there is exactly one.
    #[serde(default)]
    project: Option<String>,
}

/// What there is to call.
#[derive(Clone)]
struct Counter {
    app: App,
}

/// The server, to be put behind the guard.
pub(crate) fn router(app: App) -> axum::Router {
    // Without sessions: a request has all that it needs, and any server may answer it.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // The guard has looked at the name already, and knows which ones are ours.
        .disable_allowed_hosts();
    let counter = Counter { app };
    let server = StreamableHttpService::new(
        move || Ok(counter.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    axum::Router::new().route_service(PATH, server)
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
    // What is only added takes nothing away; what is decided cannot be taken back.
    let adds = |tool| changes(tool, false);
    let acts = |tool| changes(tool, true);
    vec![
        reads(tool::<ListTasks>(
            "list_tasks",
            "Lists tasks, the newest first, with what moves each next.",
        )),
        reads(tool::<One>(
            "show_task",
            "Shows a task: where it stands, what it asks, its plan's hash, its runs and its cost.",
        )),
        reads(tool::<One>("read_plan", "Gives the plan of a task, whole, with its hash.")),
        reads(tool::<One>(
            "read_change",
            "Gives the newest change of a task as a patch, with its commit.",
        )),
        reads(tool::<One>("read_events", "Gives the newest events of a task's log.")),
        adds(tool::<AddTask>(
            "add_task",
            "Adds a task. It is planned first; nothing is changed before that.",
        )),
        acts(tool::<DecidePlan>(
            "approve_plan",
            "Approves the plan with this hash, so that it runs.",
        )),
        acts(tool::<DecidePlan>(
            "reject_plan",
            "Rejects the plan with this hash. `reason` says why.",
        )),
        acts(tool::<DecidePlan>(
            "ask_changes",
            "Asks for another plan. `reason` says what is to be different.",
        )),
        acts(tool::<AnswerTask>(
            "answer_task",
            "Answers a task's question, or pauses, resumes or cancels it.",
        )),
        reads(tool::<Search>("search_knowledge", "Searches what the team knows.")),
        adds(tool::<Propose>(
            "propose_knowledge",
            "Proposes something that the team should know. It has no effect until a person approves it.",
        )),
    ]
}

impl Counter {
    async fn serve(&self, by: Option<By>, name: &str, given: Value) -> Result<Value, Error> {
        let by = || by.clone().ok_or_else(nobody);
        match name {
            "list_tasks" => self.list(parse(given)?).await,
            "show_task" => {
                let whole =
                    self.app.task(self.app.which(&parse::<One>(given)?.task).await?).await?;
                written(&whole)
            }
            "read_plan" => {
                let plan = self.app.plan(self.app.which(&parse::<One>(given)?.task).await?).await?;
                written(&plan)
            }
            "read_change" => {
                let change =
                    self.app.change(self.app.which(&parse::<One>(given)?.task).await?).await?;
                written(&change)
            }
            "read_events" => {
                let task = self.app.which(&parse::<One>(given)?.task).await?;
                let entries = self.app.card(task).await?.entries;
                let after = entries.saturating_sub(MOST.into()).to_string();
                let window = Window { after: Some(after), limit: MOST };
                written(&self.app.history(task, &window).await?)
            }
            "add_task" => {
                let new = new_task(parse(given)?)?;
                written(&self.app.add(by()?, new).await?)
            }
            "approve_plan" | "reject_plan" | "ask_changes" => {
                let DecidePlan { task, plan, reason } = parse(given)?;
                let task = self.app.which(&task).await?;
                let action = match name {
                    "approve_plan" => {
                        let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
                        Action::Approve { plan, reason }
                    }
                    "reject_plan" => Action::Reject { plan, reason },
                    _ => Action::AskChanges { plan, changes: reason },
                };
                written(&self.app.ask(task, by()?, action, None).await?)
            }
            "answer_task" => {
                let AnswerTask { task, action } = parse(given)?;
                let (task, action) = (self.app.which(&task).await?, parse(action)?);
                written(&self.app.ask(task, by()?, action, None).await?)
            }
            "search_knowledge" => {
                let Search { query, project } = parse(given)?;
                let project = match project {
                    Some(project) => Some(self.app.project(Some(&project)).await?.id),
                    None => None,
                };
                let filter = KnowledgeFilter { project, ..KnowledgeFilter::default() };
                written(&self.app.knowledge_list(&filter, Some(&query)).await?)
            }
            "propose_knowledge" => {
                let new = parse::<Propose>(given)?;
                let new: NewKnowledge = parse(json!({
                    "kind": new.kind, "text": new.text, "globs": new.globs,
                    "keywords": new.keywords, "project": new.project,
                }))?;
                written(&self.app.add_knowledge(new, &by()?).await?)
            }
            _ => Err(Error::NotFound { what: "tool", key: name.to_owned() }),
        }
    }

    async fn list(&self, wanted: ListTasks) -> Result<Value, Error> {
        let project = match &wanted.project {
            Some(project) => Some(self.app.project(Some(project)).await?.id),
            None => None,
        };
        let states = if wanted.live {
            use strum::IntoEnumIterator as _;
            State::iter().filter(|state| !state.is_terminal()).collect()
        } else {
            Vec::new()
        };
        let filter = Filter {
            project,
            states,
            waits: wanted.waiting.then_some(true),
            text: wanted.text,
            ..Filter::default()
        };
        written(&self.app.tasks(&filter, &Window { after: None, limit: MOST }).await?)
    }
}

fn nobody() -> Error {
    Error::invalid(
        "It is not known in whose name this is asked.",
        "Start `tamma mcp` with a token of your own in TAMMA_TOKEN, or say your name in the header \
         `Tamma-Person`.",
    )
}

fn new_task(given: AddTask) -> Result<NewTask, Error> {
    let mut task = json!({
        "title": given.title, "description": given.description, "project": given.project,
        "acceptance_criteria": given.acceptance_criteria,
    });
    for (name, value) in [("type", given.r#type), ("priority", given.priority)] {
        if let Some(value) = value {
            task[name] = json!(value);
        }
    }
    parse(task)
}

fn parse<T: serde::de::DeserializeOwned>(given: Value) -> Result<T, Error> {
    serde_json::from_value(given).map_err(|error| {
        Error::invalid(format!("What was given cannot be read: {error}."), "See the tool's schema.")
    })
}

fn written(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Fault(error.into()))
}

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("tamma", env!("CARGO_PKG_VERSION")))
            .with_instructions(ABOUT)
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
        let by = context.extensions.get::<Parts>().and_then(|parts| guard::by(parts).ok());
        let given = Value::Object(request.arguments.unwrap_or_default());
        let result = match self.serve(by, &request.name, given).await {
            Ok(value) => {
                let text = serde_json::to_string_pretty(&value).unwrap_or_default();
                CallToolResult::success(vec![ContentBlock::text(text)])
            }
            Err(error) => {
                let Problem { detail, what_to_do, .. } = error.into();
                let text = [Some(detail), what_to_do].into_iter().flatten();
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
