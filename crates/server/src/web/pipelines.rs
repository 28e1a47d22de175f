//! Pipelines: the list of stories, and the page of one story.

use askama::Template;
use axum::extract::Path;
use tamma_core::format::{capitalize, format_number, format_usd, pluralize};
use tamma_core::ids::{PipelineId, ProjectId};
use tamma_store::PipelineFilter;
use uuid::Uuid;

use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Notice};
use super::permissions::PagePermissions;
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error};
use crate::dto::{PipelineAction, PipelineView};

/// Maximum number of listed stories.
const MAX_STORIES: u32 = 200;

#[derive(Template)]
#[template(path = "pipelines.html")]
struct PipelinesPage {
    layout: Layout,
    summary: String,
    stories: Vec<StoryRow>,
}

struct StoryRow {
    href: String,
    story: String,
    feature: String,
    project: String,
    state: String,
    tone: &'static str,
    progress: String,
    changed: DisplayTime,
}

#[derive(Template)]
#[template(path = "pipeline.html")]
struct PipelinePage {
    layout: Layout,
    live_href: String,
    story: StoryView,
}

/// Story with its phases and tasks, as live updates replace it.
#[derive(Template)]
#[template(path = "_story.html")]
pub(super) struct StoryView {
    layout: Layout,
    view: PipelineView,
    state: String,
    tone: &'static str,
    /// Question of a gate: its title, and its lines.
    question: Option<(String, Vec<String>)>,
    started: Option<DisplayTime>,
    /// `None` if the cost of a phase is unknown.
    cost: Option<String>,
    phases: Vec<PhaseCell>,
    levels: Vec<Vec<TaskCell>>,
    /// A person decides about the tasks, and reads them first.
    shows_tasks: bool,
    /// Actions of this person.
    buttons: Vec<ActionButton>,
    /// Others can act, and this person cannot.
    is_read_only: bool,
}

struct PhaseCell {
    number: u8,
    title: String,
    status: String,
    tone: &'static str,
    /// Signal, or the reason if there is none.
    note: String,
    approved_by: Option<String>,
    /// Empty before the phase runs.
    tokens: String,
    output_href: Option<String>,
}

struct TaskCell {
    key: String,
    title: String,
    /// Paragraphs of the description.
    description: Vec<String>,
    criteria: Vec<String>,
    /// Estimated size, in words.
    estimate: Option<String>,
    status: String,
    tone: &'static str,
    needs: String,
    reason: Option<String>,
    href: Option<String>,
}

struct ActionButton {
    action: PipelineAction,
    text: &'static str,
    consequence: &'static str,
    style: &'static str,
}

/// Output of a phase.
#[derive(Template)]
#[template(path = "phase_output.html")]
struct PhaseOutputPage {
    layout: Layout,
    story_id: String,
    story_href: String,
    title: String,
    text: String,
}

pub(super) async fn list(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "pipelines").await?;
    let views = state.app.pipeline_list(&PipelineFilter::default(), MAX_STORIES).await;
    let views = views.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let waiting = views.iter().filter(|view| is_at_gate(view)).count();
    let running = views.iter().filter(|view| !view.over && !is_at_gate(view)).count();
    let total = pluralize(views.len(), "story");
    let summary = format!("{total}, {running} running, {waiting} waiting for approval");
    render(&PipelinesPage { layout, summary, stories: views.iter().map(story_row).collect() })
}

/// Returns whether a run waits for a person's approval.
fn is_at_gate(view: &PipelineView) -> bool {
    matches!(view.state.as_str(), "at_gate" | "at_split")
}

pub(super) async fn page(state: WebState, session: Session, Path(id): Path<Uuid>) -> PageResult {
    let layout = Layout::for_page(&state, &session, "pipelines").await?;
    let permissions = PagePermissions::for_session(&state.app, &session);
    let story = StoryView::load(&state.app, &layout, &permissions, PipelineId(id)).await;
    let story = story.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render(&PipelinePage { layout, live_href: format!("/live/pipelines/{id}"), story })
}

/// Shows the output of a phase.
pub(super) async fn output(
    state: WebState,
    session: Session,
    Path((id, phase)): Path<(Uuid, u8)>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "pipelines").await?;
    let read = async {
        let view = state.app.pipeline_view(PipelineId(id)).await?;
        Ok((view, state.app.phase_output(PipelineId(id), phase).await?))
    };
    let (view, output) =
        read.await.map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    let title = view.phases.iter().find(|it| it.number == phase).map(|it| it.title.clone());
    render(&PhaseOutputPage {
        layout,
        story_id: view.story_id,
        story_href: format!("/pipelines/{id}"),
        title: format!("Phase {phase}: {}", title.unwrap_or_default()),
        text: output.text,
    })
}

/// Performs an action, then shows the story again.
pub(super) async fn submit_action(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    let submitted = async {
        let action: PipelineAction = fields.text("action").parse().map_err(|_| {
            Error::invalid("Unknown action.", "Use the buttons on the story's page.")
        })?;
        let by = session.acting_person()?;
        state.app.act_on_pipeline(PipelineId(id), &by, action).await?;
        Ok(action)
    };
    let action = submitted
        .await
        .map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    let text = match action {
        PipelineAction::Continue => "Approved. The run continues.",
        PipelineAction::Skip => "Phase skipped.",
        PipelineAction::Stop => "Run stopped.",
        PipelineAction::Cancel => "Run cancelled.",
        PipelineAction::Resume => "Run resumed.",
        PipelineAction::Dismiss => "Removed from the inbox.",
    };
    redirect_with_notice(&format!("/pipelines/{id}"), &Notice::success(text))
}

impl StoryView {
    pub(super) async fn load(
        app: &App,
        layout: &Layout,
        permissions: &PagePermissions,
        id: PipelineId,
    ) -> Result<Self, Error> {
        let ProjectId(project) = app.store.pipeline(id).await?.project;
        let view = app.pipeline_view(id).await?;
        let mut buttons = Vec::new();
        for action in &view.actions {
            if permissions.allows(project, action.permission()) {
                buttons.push(button(*action, &view));
            }
        }
        Ok(Self {
            layout: layout.clone(),
            state: state_label(&view),
            tone: state_tone(&view.state),
            question: view.question.as_deref().map(split_question),
            started: view.started_at.map(DisplayTime::ago),
            cost: view.report.total_usd.map(format_usd),
            phases: phase_cells(&view),
            levels: task_levels(&view),
            shows_tasks: view.state == "at_split",
            is_read_only: buttons.is_empty() && !view.actions.is_empty(),
            buttons,
            view,
        })
    }

    /// Returns the number of changes that the view shows.
    pub(super) fn version(&self) -> u64 {
        self.view.version
    }
}

/// Splits a question into its first line and the others.
fn split_question(text: &str) -> (String, Vec<String>) {
    let mut lines = text.lines().filter(|line| !line.is_empty()).map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.collect())
}

fn story_row(view: &PipelineView) -> StoryRow {
    let is_done = |status: &str| matches!(status, "complete" | "skipped");
    let done = view.phases.iter().filter(|it| is_done(&it.status)).count();
    StoryRow {
        href: format!("/pipelines/{}", view.id),
        story: view.story_id.clone(),
        feature: view.feature_dir.clone(),
        project: view.project.clone(),
        state: state_label(view),
        tone: state_tone(&view.state),
        progress: format!("{done} of {}", pluralize(view.phases.len(), "phase")),
        changed: DisplayTime::ago(view.updated_at),
    }
}

fn phase_cells(view: &PipelineView) -> Vec<PhaseCell> {
    let cell = |phase: &crate::dto::PipelinePhaseView| PhaseCell {
        number: phase.number,
        title: phase.title.clone(),
        status: capitalize(&phase.status),
        tone: status_tone(&phase.status),
        note: phase.signal.clone().or_else(|| phase.reason.clone()).unwrap_or_default(),
        approved_by: phase.approved_by.clone(),
        tokens: match phase.tokens {
            0 => String::new(),
            tokens => format_number(tokens),
        },
        output_href: phase
            .has_output
            .then(|| format!("/pipelines/{}/phases/{}", view.id, phase.number)),
    };
    view.phases.iter().map(cell).collect()
}

/// Arranges tasks in levels: a task is one level below the deepest task that it needs.
fn task_levels(view: &PipelineView) -> Vec<Vec<TaskCell>> {
    let mut depth: std::collections::BTreeMap<(u8, &str), usize> =
        view.tasks.iter().map(|task| ((task.phase, task.key.as_str()), 0)).collect();
    // A valid graph settles after as many rounds as it has tasks.
    for _ in &view.tasks {
        for task in &view.tasks {
            let needed = task.depends_on.iter().filter_map(|key| depth.get(&(task.phase, &**key)));
            let own = needed.map(|level| level + 1).max().unwrap_or_default();
            depth.insert((task.phase, &task.key), own.min(view.tasks.len()));
        }
    }
    let count = depth.values().max().map_or(0, |deepest| deepest + 1);
    let mut levels: Vec<Vec<TaskCell>> = (0..count).map(|_| Vec::new()).collect();
    for task in &view.tasks {
        let level = depth.get(&(task.phase, task.key.as_str())).copied().unwrap_or_default();
        if let Some(level) = levels.get_mut(level) {
            level.push(TaskCell {
                key: task.key.clone(),
                title: task.title.clone(),
                description: labels::paragraphs(&task.description),
                criteria: task.acceptance_criteria.clone(),
                estimate: task.estimated_lines.map(|lines| pluralize(lines, "line")),
                status: capitalize(&task.status),
                tone: status_tone(&task.status),
                needs: task.depends_on.join(", "),
                reason: task.reason.clone(),
                href: task.task.map(|id| format!("/tasks/{id}")),
            });
        }
    }
    levels
}

fn button(action: PipelineAction, view: &PipelineView) -> ActionButton {
    let text = match action {
        PipelineAction::Continue => "Continue",
        PipelineAction::Skip => "Skip phase",
        PipelineAction::Stop => "Stop run",
        PipelineAction::Cancel => "Cancel run",
        PipelineAction::Resume => "Resume run",
        PipelineAction::Dismiss => "Dismiss",
    };
    let style = match action {
        PipelineAction::Continue | PipelineAction::Resume => "primary",
        PipelineAction::Cancel => "danger",
        PipelineAction::Skip | PipelineAction::Stop | PipelineAction::Dismiss => "",
    };
    ActionButton { action, text, consequence: action.consequence(view), style }
}

/// Returns the state in words, with the title of its phase.
fn state_label(view: &PipelineView) -> String {
    let phase = view.phases.iter().find(|it| Some(it.number) == view.phase);
    let title = phase.map(|it| it.title.as_str()).unwrap_or_default();
    match view.state.as_str() {
        "at_gate" => format!("Waiting for approval of {title}"),
        "at_split" => "Waiting for approval of tasks".to_owned(),
        "running" => format!("Running {title}"),
        "running_tasks" if view.actions.is_empty() => "Cancelling tasks".to_owned(),
        "running_tasks" => "Running tasks".to_owned(),
        "failed" => format!("Failed at {title}"),
        "blocked" => format!("Stopped at {title}"),
        _ => capitalize(&view.state_text),
    }
}

fn state_tone(state: &str) -> &'static str {
    match state {
        "complete" => "good",
        "failed" => "bad",
        "blocked" | "at_gate" | "at_split" => "wait",
        _ => "work",
    }
}

fn status_tone(status: &str) -> &'static str {
    match status {
        "complete" => "good",
        "failed" => "bad",
        "blocked" | "waiting" => "wait",
        _ => "work",
    }
}
