//! Form for a new task.

use askama::Template;
use strum::IntoEnumIterator as _;
use tamma_core::access::Permission;
use tamma_core::format::humanize;
use tamma_core::task::{Priority, TaskType};

use super::board::serialized_name;
use super::form_fields::FormFields;
use super::layout::{Layout, Notice, SelectOption};
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, render};
use crate::app::{App, Error, NEW_TASK_CONSEQUENCE};
use crate::clock;
use crate::dto::NewTask;
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "new_task.html")]
struct NewTaskPage {
    layout: Layout,
    errors: Vec<String>,
    no_project: bool,
    can_add: bool,
    consequence: &'static str,
    form: NewTaskForm,
}

struct NewTaskForm {
    id: String,
    title: String,
    description: String,
    criteria: String,
    projects: Vec<SelectOption>,
    types: Vec<SelectOption>,
    priorities: Vec<SelectOption>,
    labels: String,
    depends_on: String,
    agents: Vec<SelectOption>,
    issue_url: String,
    issue_number: String,
    plan: String,
}

pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    render_form(&state, &session, None, Vec::new()).await
}

async fn render_form(
    state: &WebState,
    session: &Session,
    fields: Option<&FormFields>,
    errors: Vec<String>,
) -> PageResult {
    let layout = Layout::for_page(state, session, "board").await?;
    let page_error = |error: Error| PageError::new(Layout::for_session(session), error);
    let text = |name: &str| fields.map(|fields| fields.text(name)).unwrap_or_default();
    let projects = state.app.store.projects().await.map_err(|error| page_error(error.into()))?;
    let chosen = |name: &str, default: &str| match text(name) {
        value if value.is_empty() => default.to_owned(),
        value => value,
    };
    let can_add = session.rights.allows_anywhere(Permission::Work);
    let agents = match projects.first() {
        Some(project) => {
            agent_options(&state.app, &project.repository, &text("suggested_agent")).await
        }
        None => Vec::new(),
    };
    let id = fields.and_then(|fields| fields.non_empty("id"));
    let project = text("project");
    let kind = chosen("type", "feature");
    let priority = chosen("priority", "medium");
    let form = NewTaskForm {
        id: id.unwrap_or_else(|| clock::new_id().to_string()),
        title: text("title"),
        description: text("description"),
        criteria: text("acceptance_criteria"),
        projects: projects
            .iter()
            .map(|it| SelectOption::new(&it.name, &it.name, &project))
            .collect(),
        types: TaskType::iter()
            .map(|it| SelectOption::new(serialized_name(&it), humanize(&it), &kind))
            .collect(),
        priorities: Priority::iter()
            .map(|it| SelectOption::new(serialized_name(&it), humanize(&it), &priority))
            .collect(),
        labels: text("labels"),
        depends_on: text("depends_on"),
        agents,
        issue_url: text("issue_url"),
        issue_number: text("issue_number"),
        plan: text("plan"),
    };
    let page = NewTaskPage {
        layout,
        no_project: projects.is_empty(),
        can_add,
        consequence: NEW_TASK_CONSEQUENCE,
        form,
        errors,
    };
    render(&page)
}

async fn agent_options(app: &App, repository: &str, chosen: &str) -> Vec<SelectOption> {
    let mut agents = vec![SelectOption::new("", "default for the tier", chosen)];
    if let Ok(rules) = app.project_rules(repository).await {
        agents.extend(rules.agents.keys().map(|name| SelectOption::new(name, name, chosen)));
    }
    agents
}

/// Adds a task.
pub(super) async fn add(state: WebState, session: Session, fields: FormFields) -> PageResult {
    let added = async {
        let new = parse_task(&state.app, &fields).await?;
        state.app.add_task(session.acting_person()?, new).await
    };
    match added.await {
        Ok(added) => {
            let path = format!("/tasks/{}", added.task.id);
            redirect_with_notice(&path, &Notice::success("Task added. Every step appears here."))
        }
        Err(error) => {
            let problem = Problem::from(error);
            let mut errors = vec![problem.detail];
            errors.extend(problem.problems.into_iter().map(|it| it.message));
            errors.extend(problem.hint);
            let mut page = render_form(&state, &session, Some(&fields), errors).await?;
            *page.status_mut() = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
            Ok(page)
        }
    }
}

async fn parse_task(app: &App, fields: &FormFields) -> Result<NewTask, Error> {
    let split = |name: &str| -> Vec<String> {
        fields.text(name).split_whitespace().map(str::to_owned).collect()
    };
    let mut depends_on = Vec::new();
    for id_text in split("depends_on") {
        depends_on.push(app.resolve_task_id(&id_text).await?.0);
    }
    let plan = fields.non_empty("plan").map(|text| serde_json::from_str(&text)).transpose();
    let plan = plan.map_err(|error| {
        Error::invalid(format!("The plan is not valid JSON: {error}."), "Fix it, or leave it out.")
    })?;
    let issue_number = fields.non_empty("issue_number");
    let issue_number = issue_number.map(|text| text.trim_start_matches('#').parse()).transpose();
    let issue_number = issue_number.map_err(|_| {
        Error::invalid("The issue number is not a number.", "Use digits only, such as 42.")
    })?;
    let word = |name: &str| serde_json::Value::String(fields.text(name));
    let unknown =
        |what: &str| Error::invalid(format!("Unknown {what}."), "Choose one from the list.");
    Ok(NewTask {
        id: fields.non_empty("id").and_then(|id| id.parse().ok()),
        project: fields.non_empty("project"),
        title: fields.text("title"),
        description: fields.text("description"),
        r#type: serde_json::from_value(word("type")).map_err(|_| unknown("type"))?,
        priority: serde_json::from_value(word("priority")).map_err(|_| unknown("priority"))?,
        acceptance_criteria: fields.lines("acceptance_criteria"),
        labels: split("labels"),
        depends_on,
        suggested_agent: fields.non_empty("suggested_agent"),
        issue_url: fields.non_empty("issue_url"),
        issue_number,
        metadata: std::collections::BTreeMap::default(),
        plan,
    })
}
