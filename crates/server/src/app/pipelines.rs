//! Pipelines of stories: start, list, show and act.
//!
//! The workflow is the source of truth. A story has at most one open run, because its workflow ID is
//! derived from the story.

use std::collections::BTreeMap;
use std::time::Duration;

use tamma_core::access::Permission;
use tamma_core::ids::{Name, PipelineId, ProjectId};
use tamma_core::pipeline::{
    BUILT_IN_PIPELINE, GateAnswer, PhaseRunner, PipelineEvent, PipelineRefusal, PipelineRequest,
    PipelineRun, TaskSplit, step,
};
use tamma_core::pipeline_alert::alert_for;
use tamma_core::rules::Rules;
use tamma_flow::pipeline::{
    PipelineAction as FlowAction, PipelineActionRequest, PipelineInput, PipelineWorkflow,
};
use tamma_flow::{TASK_QUEUE, pipeline_workflow_id};
use tamma_store::{PipelineFilter, PipelineWrite, StoryPipeline};
use temporalio_client::errors::{WorkflowStartError, WorkflowUpdateError};
use temporalio_client::{
    WorkflowExecuteUpdateOptions, WorkflowIdConflictPolicy, WorkflowIdReusePolicy,
    WorkflowStartOptions,
};

use super::{App, Error, Principal, TEMPORAL_TIMEOUT};
use crate::audit;
use crate::clock;
use crate::dto::{EarlierPhase, NewPipelineRun, PhaseOutput, PipelineAction, PipelineView};

/// Workflow task timeout: after this time another worker can take over the step.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of pipelines in the inbox.
const MAX_WAITING: u32 = 200;

/// Longest time that a request waits for a newer version.
const MAX_WAIT: Duration = Duration::from_secs(25);

impl App {
    /// Starts a run of a story's pipeline. Records of earlier runs are kept for phases before the
    /// range.
    pub(crate) async fn start_pipeline(
        &self,
        by: &Principal,
        new: NewPipelineRun,
    ) -> Result<PipelineView, Error> {
        let project = self.resolve_project(new.project.as_deref()).await?;
        by.authorize(Permission::Work, project.id)?;
        let rules = self.project_rules(&project.repository).await?;
        let name = new.pipeline.as_deref().unwrap_or(BUILT_IN_PIPELINE);
        let definition = rules.pipeline(name).ok_or_else(|| {
            let names = rules.pipeline_names().join(", ");
            Error::invalid(format!("Unknown pipeline `{name}`."), format!("Use one of {names}."))
        })?;
        let request = PipelineRequest {
            feature_dir: new.feature_dir.trim_end_matches('/').to_owned(),
            story_id: new.story_id,
            from: new.from.unwrap_or(1),
            to: new.to.unwrap_or_else(|| definition.last()),
            approve: new.approve.into_iter().collect(),
            definition,
        };
        // Before anything is stored.
        PipelineRun::new(request.clone()).map_err(|refusal| invalid_request(&refusal))?;
        let id = PipelineId(clock::new_id());
        let story = self
            .store
            .ensure_pipeline(id, project.id, &request.feature_dir, &request.story_id)
            .await?;
        self.start_run(by, &story, request, &rules).await
    }

    /// Starts the next run of a story.
    async fn start_run(
        &self,
        by: &Principal,
        story: &StoryPipeline,
        request: PipelineRequest,
        rules: &Rules,
    ) -> Result<PipelineView, Error> {
        let run = match &story.run {
            Some(earlier) => earlier.continue_with(request).map_err(|refusal| match refusal {
                PipelineRefusal::NothingToContinue(_) => already_running(story),
                refusal => invalid_request(&refusal),
            })?,
            None => PipelineRun::new(request).map_err(|refusal| invalid_request(&refusal))?,
        };
        if leaves_out_approval(&run) {
            by.authorize(Permission::Decide, story.project)?;
        }
        // Workers load the rules by their version.
        self.store.save_rules(rules).await?;
        let behaviour = self.new_task_behaviour().await?;
        let input = PipelineInput {
            pipeline: story.id,
            project: story.project,
            number: story.number.saturating_add(1),
            started_by: by.name.clone(),
            at: clock::now(),
            rules: rules.clone(),
            tuning: self.tuning_for(behaviour),
            edition: behaviour.edition,
            run,
            base: story.base,
            carried: None,
        };
        let write = PipelineWrite {
            pipeline: story.id,
            number: input.number,
            revision: 0,
            started_by: input.started_by.clone(),
            started_at: input.at,
            run: input.run.clone(),
            base: None,
            story_path: None,
            delivered: None,
            delivery_error: None,
            is_live: true,
            alert: None,
            at: input.at,
        };
        let options =
            WorkflowStartOptions::new(TASK_QUEUE.to_owned(), pipeline_workflow_id(story.id))
                .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
                .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
                .task_timeout(TASK_TIMEOUT)
                .build();
        // Later runs stay where the first one was, and so do the tasks of the story.
        let client = if story.number == 0 {
            self.place_workflow(story.id.0, story.project).await?
        } else {
            self.workflow_client(story.id.0).await?
        };
        let started = client.start_workflow(PipelineWorkflow::run, input, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, started).await {
            Ok(Ok(_)) => {}
            Ok(Err(WorkflowStartError::AlreadyStarted { .. })) => {
                return Err(already_running(story));
            }
            Ok(Err(error @ WorkflowStartError::PayloadConversion(_))) => {
                return Err(Error::Internal(error.into()));
            }
            Ok(Err(error)) => {
                return Err(Error::temporal(error));
            }
            Err(late) => return Err(Error::temporal(late)),
        }
        // The workflow saves it too, if this server dies here.
        self.store.save_pipeline(&write).await?;
        self.pipeline_view(story.id).await
    }

    /// Performs an action on a pipeline.
    pub(crate) async fn act_on_pipeline(
        &self,
        id: PipelineId,
        by: &Principal,
        action: PipelineAction,
    ) -> Result<PipelineView, Error> {
        let story = self.store.pipeline(id).await?;
        audit::note_action(action, id);
        by.authorize(action.permission(), story.project)?;
        let action = match action {
            PipelineAction::Resume => return self.resume_pipeline(by, &story).await,
            PipelineAction::Dismiss => return self.dismiss_pipeline(by, &story).await,
            PipelineAction::Continue => FlowAction::Answer(GateAnswer::Continue),
            PipelineAction::Skip => FlowAction::Answer(GateAnswer::Skip),
            PipelineAction::Stop => FlowAction::Answer(GateAnswer::Stop),
            PipelineAction::Cancel => FlowAction::Cancel,
        };
        let is_answer = matches!(action, FlowAction::Answer(_));
        let request = PipelineActionRequest { at: clock::now(), by: by.name.clone(), action };
        let key = clock::new_id().to_string();
        let options = WorkflowExecuteUpdateOptions::builder().update_id(key).build();
        let client = self.workflow_client(id.0).await?;
        let handle = client.get_workflow_handle::<PipelineWorkflow>(pipeline_workflow_id(id));
        let update = handle.execute_update(PipelineWorkflow::act, request, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, update).await {
            Ok(Ok(Ok(_))) => self.pipeline_view(id).await,
            Ok(Ok(Err(refusal))) => Err(Error::Refused(refusal)),
            Ok(Err(WorkflowUpdateError::Failed(failure))) => {
                Err(self.refused_update(*failure).await)
            }
            Ok(Err(WorkflowUpdateError::NotFound(_))) => {
                let ended = || format!("the run of {} has ended", story.story_id);
                let late = story.run.filter(|run| is_answer && run.last_answer.is_some());
                let late = late.map(|run| run.refuse_answer().to_string());
                Err(Error::Refused(late.unwrap_or_else(ended)))
            }
            Ok(Err(error @ WorkflowUpdateError::PayloadConversion(_))) => {
                Err(Error::Internal(error.into()))
            }
            Ok(Err(error)) => Err(Error::temporal(error)),
            Err(_) => Err(Error::WorkflowTimeout),
        }
    }

    /// Continues a stopped run at the phase where it stopped, with the current rules.
    async fn resume_pipeline(
        &self,
        by: &Principal,
        story: &StoryPipeline,
    ) -> Result<PipelineView, Error> {
        let run = story.run.as_ref().ok_or_else(|| not_started(story))?;
        let mut request =
            run.resume_request().map_err(|refusal| Error::Refused(refusal.to_string()))?;
        let project = self.store.project(story.project).await?;
        let rules = self.project_rules(&project.repository).await?;
        let name = request.definition.name.clone();
        // A changed definition would not fit the records.
        if let Some(current) = rules.pipeline(&name)
            && current.phases.len() == request.definition.phases.len()
            && current.phases.iter().zip(&request.definition.phases).all(|(a, b)| a.id == b.id)
        {
            request.definition = current;
        }
        self.start_run(by, story, request, &rules).await
    }

    /// Stops a run whose workflow was lost, so that a person can resume it. The tasks of the story
    /// continue by themselves.
    pub(crate) async fn stop_lost_pipeline(
        &self,
        story: &StoryPipeline,
        loss: &str,
    ) -> Result<(), Error> {
        let Some(earlier) = &story.run else { return Ok(()) };
        let Some(started_at) = story.started_at else { return Ok(()) };
        let started_by = story.started_by.as_deref().unwrap_or_default().parse::<Name>();
        let started_by = started_by.map_err(|error| Error::Internal(error.into()))?;
        let at = clock::now();
        let reason = format!("the workflow {loss} in Temporal; resume the run to continue");
        let event = PipelineEvent::WorkflowLost { reason: reason.clone() };
        // A run that has ended was only being delivered.
        let (run, delivery_error) = match step(earlier, at, event) {
            Ok((run, _)) => (run, story.delivery_error.clone()),
            Err(_) => (earlier.clone(), Some(reason.clone())),
        };
        let project = self.store.project(story.project).await?;
        let rules = self.project_rules(&project.repository).await.unwrap_or_default();
        let write = PipelineWrite {
            pipeline: story.id,
            number: story.number,
            // No later write of the lost workflow counts.
            revision: u64::from(u32::MAX),
            started_by,
            started_at,
            alert: alert_for(&run.state, &rules),
            run,
            base: story.base,
            story_path: story.story_path.clone(),
            delivered: story.branch.clone().zip(story.commit),
            delivery_error,
            is_live: false,
            at,
        };
        self.store.save_pipeline(&write).await?;
        tracing::warn!(pipeline = %story.id, reason, "pipeline reconciled with Temporal");
        Ok(())
    }

    /// Removes a stopped run from the inbox.
    async fn dismiss_pipeline(
        &self,
        by: &Principal,
        story: &StoryPipeline,
    ) -> Result<PipelineView, Error> {
        if !self.store.dismiss_pipeline(story.id).await? {
            return Err(Error::Refused(format!(
                "the run of {} has not stopped, or needs nobody",
                story.story_id
            )));
        }
        tracing::info!(pipeline = %story.id, by = %by.name, "stopped pipeline dismissed");
        self.pipeline_view(story.id).await
    }

    /// Returns the pipelines that need a person, longest wait first.
    pub(crate) async fn waiting_pipelines(
        &self,
        project: Option<ProjectId>,
    ) -> Result<Vec<PipelineView>, Error> {
        let filter = PipelineFilter { project, needs_person: true, ..PipelineFilter::default() };
        let mut waiting = self.pipeline_list(&filter, MAX_WAITING).await?;
        waiting.reverse();
        Ok(waiting)
    }

    /// Returns a pipeline.
    pub(crate) async fn pipeline_view(&self, id: PipelineId) -> Result<PipelineView, Error> {
        let story = self.store.pipeline(id).await?;
        let project = self.store.project(story.project).await?;
        let mut view =
            PipelineView::new(&story, project.name).ok_or_else(|| not_started(&story))?;
        for (phase, graph) in story.run.iter().flat_map(|run| &run.graphs) {
            let split = self.store.text(&graph.split).await?;
            // Without its content, the task is still shown.
            let Ok(split) = serde_json::from_str::<TaskSplit>(&split) else { continue };
            let mut tasks: BTreeMap<_, _> =
                split.tasks.into_iter().map(|task| (task.key.clone(), task)).collect();
            for shown in view.tasks.iter_mut().filter(|shown| shown.phase == *phase) {
                if let Some(task) = tasks.remove(&shown.key) {
                    shown.add_content(task);
                }
            }
        }
        let phases = self.store.pipeline_phases(id).await?.into_iter();
        let earlier = phases.filter(|phase| phase.run_number < story.number);
        Ok(PipelineView { earlier_phases: earlier.map(EarlierPhase::from).collect(), ..view })
    }

    /// Returns a pipeline once it is newer than a version, or after a while.
    pub(crate) async fn newer_pipeline_view(
        &self,
        id: PipelineId,
        version: u64,
    ) -> Result<PipelineView, Error> {
        // Subscribe before reading, so that no change is missed.
        let mut subscriber = self.live.subscribe(id.as_task());
        let view = self.pipeline_view(id).await?;
        if view.version > version {
            return Ok(view);
        }
        let changed = subscriber.wait_for_entries_after(version);
        let _ = tokio::time::timeout(MAX_WAIT, changed).await;
        self.pipeline_view(id).await
    }

    /// Returns pipelines, last changed first.
    pub(crate) async fn pipeline_list(
        &self,
        filter: &PipelineFilter,
        limit: u32,
    ) -> Result<Vec<PipelineView>, Error> {
        let names: BTreeMap<ProjectId, String> =
            self.store.projects().await?.into_iter().map(|it| (it.id, it.name)).collect();
        let stories = self.store.pipelines(filter, limit).await?;
        let view = |story: &StoryPipeline| {
            PipelineView::new(story, names.get(&story.project).cloned().unwrap_or_default())
        };
        Ok(stories.iter().filter_map(view).collect())
    }

    /// Resolves a pipeline by its ID, the end of its ID, or the ID of its story.
    pub(crate) async fn resolve_pipeline(&self, text: &str) -> Result<PipelineId, Error> {
        if let Ok(id) = text.parse() {
            return Ok(PipelineId(id));
        }
        let found = self.store.match_pipelines(text).await?;
        match found.as_slice() {
            [story] => Ok(story.id),
            [] => Err(Error::NotFound { what: "pipeline", key: text.to_owned() }),
            several => {
                let known: Vec<_> = several
                    .iter()
                    .map(|it| format!("{} ({} {})", it.id, it.feature_dir, it.story_id))
                    .collect();
                Err(Error::invalid(
                    format!("`{text}` matches several pipelines."),
                    format!("Use one of {}.", known.join(", ")),
                ))
            }
        }
    }

    /// Returns the stored output of a phase of the newest run.
    pub(crate) async fn phase_output(
        &self,
        id: PipelineId,
        phase: u8,
    ) -> Result<PhaseOutput, Error> {
        let story = self.store.pipeline(id).await?;
        let record = story.run.as_ref().and_then(|run| run.records.get(&phase));
        let output = record.and_then(|record| record.work.output.as_ref());
        let missing = || Error::NotFound { what: "output of phase", key: phase.to_string() };
        let text = self.store.text(output.ok_or_else(missing)?).await?;
        Ok(PhaseOutput { phase, text })
    }
}

/// Returns `true` if the run starts after an approval phase that nobody has answered.
fn leaves_out_approval(run: &PipelineRun) -> bool {
    run.request.definition.numbered().any(|(number, phase)| {
        number < run.request.from
            && phase.runner == PhaseRunner::Approval
            && !run.records.contains_key(&number)
    })
}

fn invalid_request(refusal: &PipelineRefusal) -> Error {
    Error::invalid(format!("{refusal}."), "`tamma pipeline run --help` describes the arguments.")
}

fn already_running(story: &StoryPipeline) -> Error {
    let story_id = &story.story_id;
    let is_over = story.run.as_ref().is_some_and(|run| run.state.is_over());
    Error::Refused(if is_over {
        format!(
            "the last run of {story_id} is still delivering its branch; wait, or run `tamma \
             pipeline cancel {story_id}`"
        )
    } else {
        format!("the pipeline of {story_id} is already running")
    })
}

fn not_started(story: &StoryPipeline) -> Error {
    Error::NotFound { what: "run of story", key: story.story_id.clone() }
}
