//! Stories and their pipelines in chat.

use tamma_chat::{ChatStory, PipelineDraft, StoryAction};
use tamma_core::format::{capitalize, pluralize};
use tamma_core::ids::PipelineId;
use tamma_store::PipelineFilter;

use super::{MAX_LISTED, MAX_SUBJECTS, single_line_reply};
use crate::app::{App, Error};
use crate::dto::{ChatReply, NewPipelineRun, PipelineAction, PipelineView, TaskCard};

impl App {
    /// Describes the pipeline of a story: its state, its phases and its question.
    pub(super) async fn story_status_reply(&self, id: PipelineId) -> Result<ChatReply, Error> {
        let view = self.pipeline_view(id).await?;
        let mut lines = vec![format!(
            "{} ({}), run {}: {}.",
            view.story_id, view.feature_dir, view.run, view.state_text
        )];
        for phase in view.phases.iter().filter(|phase| phase.status != "pending") {
            let note = phase.signal.as_ref().or(phase.reason.as_ref());
            let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
            lines.push(format!("{}. {}: {}{note}", phase.number, phase.title, phase.status));
        }
        if !view.tasks.is_empty() {
            let complete = view.tasks.iter().filter(|task| task.status == "complete").count();
            let tasks = pluralize(view.tasks.len(), "task");
            lines.push(format!("{complete} of {tasks} complete."));
        }
        if let Some(reason) = view.report.reason.as_ref().filter(|_| view.over) {
            lines.push(format!("Stopped: {reason}."));
        }
        if let Some(answers) = possible_actions(&view) {
            lines.push(format!("You can {answers}."));
        }
        Ok(ChatReply { lines, ..ChatReply::default() })
    }

    /// Lists pipelines, last changed first.
    pub(super) async fn stories_reply(&self) -> Result<ChatReply, Error> {
        let views = self.pipeline_list(&PipelineFilter::default(), MAX_SUBJECTS).await?;
        if views.is_empty() {
            return Ok(single_line_reply("", "No pipelines."));
        }
        let lines = views.iter().take(MAX_LISTED).map(describe).collect();
        Ok(ChatReply { lines, ..ChatReply::default() })
    }
}

fn describe(view: &PipelineView) -> String {
    format!("{} ({}): {}.", view.story_id, view.feature_dir, view.state_text)
}

/// Returns the actions that are possible now, as they follow "You can".
fn possible_actions(view: &PipelineView) -> Option<String> {
    let actions: Vec<_> = view.actions.iter().map(ToString::to_string).collect();
    match actions.split_last()? {
        (only, []) => Some(only.clone()),
        (last, others) => Some(format!("{} or {last}", others.join(", "))),
    }
}

/// Adds pipelines that need a person to a reply about tasks.
pub(super) fn with_waiting(
    mut reply: ChatReply,
    tasks: &[TaskCard],
    waiting: &[PipelineView],
) -> ChatReply {
    if waiting.is_empty() {
        return reply;
    }
    if tasks.is_empty() {
        reply.lines.clear();
    }
    reply.lines.extend(waiting.iter().take(MAX_LISTED).map(|it| capitalize(&describe(it))));
    reply
}

/// Returns a story as a message can refer to it.
pub(super) fn chat_story(view: &PipelineView) -> ChatStory {
    ChatStory {
        id: PipelineId(view.id),
        story_id: view.story_id.clone(),
        feature_dir: view.feature_dir.clone(),
        project: view.project.clone(),
        state: view.state_text.clone(),
        run: view.run,
        actions: view.actions.iter().filter_map(|action| story_action(*action)).collect(),
    }
}

fn story_action(action: PipelineAction) -> Option<StoryAction> {
    match action {
        PipelineAction::Continue => Some(StoryAction::Continue),
        PipelineAction::Skip => Some(StoryAction::Skip),
        PipelineAction::Stop => Some(StoryAction::Stop),
        PipelineAction::Cancel => Some(StoryAction::Cancel),
        PipelineAction::Resume => Some(StoryAction::Resume),
        PipelineAction::Dismiss => None,
    }
}

pub(super) fn pipeline_action(action: StoryAction) -> PipelineAction {
    match action {
        StoryAction::Continue => PipelineAction::Continue,
        StoryAction::Skip => PipelineAction::Skip,
        StoryAction::Stop => PipelineAction::Stop,
        StoryAction::Cancel => PipelineAction::Cancel,
        StoryAction::Resume => PipelineAction::Resume,
    }
}

pub(super) fn new_run(draft: PipelineDraft) -> NewPipelineRun {
    NewPipelineRun {
        project: draft.project,
        feature_dir: draft.feature_dir,
        story_id: draft.story_id,
        pipeline: None,
        from: draft.from,
        to: draft.to,
        approve: draft.approve,
    }
}
