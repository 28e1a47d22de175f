//! Projects page: repositories that tasks work on.

use askama::Template;
use tamma_core::access::Permission;
use tamma_core::cost::Usd;
use tamma_core::format::{format_usd, pluralize};
use tamma_core::repository_address::hide_url_credentials;
use tamma_core::task_loop::State as TaskState;

use super::form_fields::FormFields;
use super::layout::{Layout, Notice};
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::Error;
use crate::clock;
use crate::dto::NewProject;

#[derive(Template)]
#[template(path = "projects.html")]
struct ProjectsPage {
    layout: Layout,
    summary: String,
    is_empty: bool,
    projects: Vec<ProjectRow>,
    /// Shows the form that registers a project.
    can_register: bool,
}

struct ProjectRow {
    name: String,
    href: String,
    repository: String,
    open: u64,
    waiting: u64,
    done: u64,
    budget: super::board::BudgetView,
    /// Amount reserved for running agents, if any.
    reserved: Option<String>,
    /// Version of the rules, or the error in their file.
    rules: Result<String, String>,
}

pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "projects").await?;
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let app = &state.app;
    let registered = app.store.projects().await.map_err(|error| page_error(error.into()))?;
    let mut projects = Vec::new();
    for project in registered {
        let one = async {
            let states = app.store.count_by_state(Some(project.id)).await?;
            let waiting = app.store.count_waiting(Some(project.id)).await?;
            let now = clock::now();
            let today = now.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
            let recorded = app.store.usage_since(project.id, today).await?.usd;
            let (unrecorded, reserved) =
                app.store.reservations_since(project.id, today, now).await?;
            Ok::<_, Error>((states, waiting, recorded + unrecorded, reserved))
        };
        let (states, waiting, spent, reserved) = one.await.map_err(page_error)?;
        let rules = app.project_rules(&project.repository).await;
        let open = states.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, n)| n).sum();
        let limit = rules.as_ref().ok().and_then(|rules| rules.budget.day_usd);
        let percent = limit.map(|limit| (spent + reserved).percent_of(limit)).unwrap_or_default();
        projects.push(ProjectRow {
            href: super::board::BoardQuery::project_href(&project.name),
            name: project.name,
            repository: hide_url_credentials(&project.repository),
            open,
            waiting,
            done: states.get(&TaskState::Completed).copied().unwrap_or_default(),
            budget: super::board::BudgetView {
                spent: format_usd(spent),
                limit: limit.map(format_usd),
                percent,
                tone: super::board::budget_tone(percent),
            },
            reserved: (reserved > Usd::ZERO).then(|| format_usd(reserved)),
            rules: match rules {
                Ok(rules) => Ok(labels::short_hash(&rules.version())),
                Err(error) => Err(error.to_string()),
            },
        });
    }
    render(&ProjectsPage {
        summary: pluralize(projects.len(), "repository"),
        is_empty: projects.is_empty(),
        projects,
        can_register: session.rights.allows_anywhere(Permission::Operate),
        layout,
    })
}

/// Registers a project.
pub(super) async fn register(state: WebState, session: Session, fields: FormFields) -> PageResult {
    let (name, repository) = (fields.text("name"), fields.text("repository"));
    let new = NewProject { id: None, name, repository, organisation: None };
    let registered = async { state.app.register_project(&session.acting_person()?, new).await };
    let project = registered.await.map_err(|error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.user_text())
    })?;
    let mut text = format!("Project {} registered.", project.name);
    let proposed = state.app.count_proposed_roles(&project).await;
    if proposed > 0 {
        let roles = pluralize(proposed, "role");
        text = format!(
            "{text} Its tamma.yaml proposes {roles}; to grant them, run `tamma access import`."
        );
    }
    redirect_with_notice("/projects", &Notice::success(text))
}
