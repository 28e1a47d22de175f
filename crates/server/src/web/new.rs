//! A new task.

use askama::Template;
use axum::extract::State;
use strum::IntoEnumIterator as _;
use tamma_core::rules::Right;
use tamma_core::task::{Priority, TaskType};

use super::board::word;
use super::door::{Visitor, done};
use super::fields::Fields;
use super::rights::Rights;
use super::shell::{Choice, Notice, Shell};
use super::{Hall, Oops, Page, render, words};
use crate::app::{App, Error};
use crate::clock;
use crate::problem::Problem;
use crate::shape::NewTask;

#[derive(Template)]
#[template(path = "new_task.html")]
struct NewPage {
    shell: Shell,
    faults: Vec<String>,
    no_project: bool,
    may: bool,
    consequence: String,
    form: Form,
}

struct Form {
    id: String,
    title: String,
    description: String,
    criteria: String,
    projects: Vec<Choice>,
    types: Vec<Choice>,
    priorities: Vec<Choice>,
    labels: String,
    depends_on: String,
    agents: Vec<Choice>,
    issue_url: String,
    plan: String,
}

pub(super) async fn page(State(hall): State<Hall>, visitor: Visitor) -> Page {
    show(&hall, &visitor, None, Vec::new()).await
}

async fn show(hall: &Hall, visitor: &Visitor, said: Option<&Fields>, faults: Vec<String>) -> Page {
    let shell = Shell::at(hall, visitor, "board").await?;
    let oops = |error: Error| Oops::new(Shell::of(visitor), error);
    let text = |name: &str| said.map(|fields| fields.text(name)).unwrap_or_default();
    let projects = hall.app.store.projects().await.map_err(|error| oops(error.into()))?;
    let chosen = |name: &str, usual: &str| match text(name) {
        given if given.is_empty() => usual.to_owned(),
        given => given,
    };
    let mut rights = Rights::of(&hall.app, visitor);
    let ids: Vec<_> = projects.iter().map(|project| project.id.0).collect();
    let may = rights.may_in_any(&ids, Right::Work).await;
    let agents = match projects.first() {
        Some(project) => agents(&hall.app, &project.repository, &text("suggested_agent")).await,
        None => Vec::new(),
    };
    let id = said.and_then(|fields| fields.given("id"));
    let project = text("project");
    let kind = chosen("type", "feature");
    let priority = chosen("priority", "medium");
    let form = Form {
        id: id.unwrap_or_else(|| clock::new_id().to_string()),
        title: text("title"),
        description: text("description"),
        criteria: text("acceptance_criteria"),
        projects: projects.iter().map(|it| Choice::new(&it.name, &it.name, &project)).collect(),
        types: TaskType::iter()
            .map(|it| Choice::new(word(&it), words::plain(&it), &kind))
            .collect(),
        priorities: Priority::iter()
            .map(|it| Choice::new(word(&it), words::plain(&it), &priority))
            .collect(),
        labels: text("labels"),
        depends_on: text("depends_on"),
        agents,
        issue_url: text("issue_url"),
        plan: text("plan"),
    };
    let page = NewPage {
        shell,
        no_project: projects.is_empty(),
        may,
        consequence: "A planner reads the repository and writes a plan. Nothing is changed before \
                      the plan is checked and, where the risk asks for it, approved."
            .to_owned(),
        form,
        faults,
    };
    render(&page)
}

async fn agents(app: &App, repository: &str, chosen: &str) -> Vec<Choice> {
    let mut agents = vec![Choice::new("", "whichever the tier says", chosen)];
    if let Ok(rules) = app.rules_of(repository).await {
        agents.extend(rules.agents.keys().map(|name| Choice::new(name, name, chosen)));
    }
    agents
}

/// Adds the task.
pub(super) async fn add(State(hall): State<Hall>, visitor: Visitor, fields: Fields) -> Page {
    let added = async {
        let new = task(&hall.app, &fields).await?;
        hall.app.add(visitor.name()?, new).await
    };
    match added.await {
        Ok(added) => {
            let place = format!("/tasks/{}", added.task.id);
            done(&place, &Notice::good("The task is there. What happens shows here as it happens."))
        }
        Err(error) => {
            let problem = Problem::from(error);
            let mut faults = vec![problem.detail];
            faults.extend(problem.problems.into_iter().map(|fault| fault.message));
            faults.extend(problem.what_to_do);
            let mut page = show(&hall, &visitor, Some(&fields), faults).await?;
            *page.status_mut() = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
            Ok(page)
        }
    }
}

async fn task(app: &App, fields: &Fields) -> Result<NewTask, Error> {
    let split = |name: &str| -> Vec<String> {
        fields.text(name).split_whitespace().map(str::to_owned).collect()
    };
    let mut depends_on = Vec::new();
    for said in split("depends_on") {
        depends_on.push(app.which(&said).await?.0);
    }
    let plan = fields.given("plan").map(|text| serde_json::from_str(&text)).transpose();
    let plan = plan.map_err(|error| {
        Error::invalid(format!("The plan is not JSON: {error}."), "Mend it, or leave it out.")
    })?;
    let word = |name: &str| serde_json::Value::String(fields.text(name));
    let odd = |what: &str| Error::invalid(format!("There is no such {what}."), "Choose one.");
    Ok(NewTask {
        id: fields.given("id").and_then(|id| id.parse().ok()),
        project: fields.given("project"),
        title: fields.text("title"),
        description: fields.text("description"),
        r#type: serde_json::from_value(word("type")).map_err(|_| odd("type"))?,
        priority: serde_json::from_value(word("priority")).map_err(|_| odd("priority"))?,
        acceptance_criteria: fields.lines("acceptance_criteria"),
        labels: split("labels"),
        depends_on,
        suggested_agent: fields.given("suggested_agent"),
        issue_url: fields.given("issue_url"),
        metadata: std::collections::BTreeMap::default(),
        plan,
    })
}
