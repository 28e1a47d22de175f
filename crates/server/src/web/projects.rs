//! Projects: the repositories that tasks are for.

use askama::Template;
use axum::extract::State;
use tamma_core::task_loop::State as Where;

use super::door::{Visitor, done};
use super::fields::Fields;
use super::shell::{Notice, Shell};
use super::{Hall, Oops, Page, render, words};
use crate::app::Error;
use crate::clock;
use crate::shape::NewProject;

#[derive(Template)]
#[template(path = "projects.html")]
struct Projects {
    shell: Shell,
    summary: String,
    empty: bool,
    projects: Vec<Project>,
}

struct Project {
    name: String,
    href: String,
    repository: String,
    live: u64,
    waiting: u64,
    done: u64,
    budget: super::board::Money,
    fault: String,
    policy: String,
}

pub(super) async fn page(State(hall): State<Hall>, visitor: Visitor) -> Page {
    let shell = Shell::at(&hall, &visitor, "projects").await?;
    let oops = |error: Error| Oops::new(Shell::of(&visitor), error);
    let app = &hall.app;
    let known = app.store.projects().await.map_err(|error| oops(error.into()))?;
    let mut projects = Vec::new();
    for project in known {
        let one = async {
            let states = app.store.by_state(Some(project.id)).await?;
            let waiting = app.store.waiting(Some(project.id)).await?;
            let today = clock::now().date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
            let spent = app.store.spent(project.id, today).await?.usd;
            Ok::<_, Error>((states, waiting, spent))
        };
        let (states, waiting, spent) = one.await.map_err(oops)?;
        let (rules, fault) = match app.rules_of(&project.repository).await {
            Ok(rules) => (Some(rules), String::new()),
            Err(error) => (None, error.to_string()),
        };
        let live = states.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, n)| n).sum();
        let limit = rules.as_ref().and_then(|rules| rules.budget.day_usd);
        let percent = limit.map(|limit| spent.share_of(limit)).unwrap_or_default();
        projects.push(Project {
            href: super::board::Wanted::of_project(&project.name),
            name: project.name,
            repository: project.repository,
            live,
            waiting,
            done: states.get(&Where::Completed).copied().unwrap_or_default(),
            budget: super::board::Money {
                used: words::dollars(spent),
                limit: limit.map_or_else(|| "no limit".to_owned(), words::dollars),
                about: false,
                percent,
                tone: if percent >= 100 { "over" } else { "acc" },
            },
            fault,
            policy: rules
                .map(|rules| rules.version().to_string().chars().take(8).collect())
                .unwrap_or_default(),
        });
    }
    render(&Projects {
        summary: words::counted(projects.len() as u64, "repository").replace("ys", "ies"),
        empty: projects.is_empty(),
        projects,
        shell,
    })
}

/// Registers a repository.
pub(super) async fn register(State(hall): State<Hall>, visitor: Visitor, fields: Fields) -> Page {
    let (name, repository) = (fields.text("name"), fields.text("repository"));
    let new = NewProject { id: None, name, repository };
    let registered = async { hall.app.register(&visitor.name()?, new).await };
    let project = registered
        .await
        .map_err(|error| Oops::new(Shell::of(&visitor), error).keeping(fields.written()))?;
    done("/projects", &Notice::good(format!("{} is a project now.", project.name)))
}
