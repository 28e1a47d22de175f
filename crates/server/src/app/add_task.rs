//! Adding a task.
//!
//! The workflow starts first, because it saves the task itself if nobody else has. From then on the
//! task cannot be lost. The server saves it too, so that the client can read it immediately.
//! A repeated request finds the task of the first one.

use std::time::Duration;

use futures_util::StreamExt as _;
use tamma_core::access::Permission;
use tamma_core::actor::Actor;
use tamma_core::format::capitalize;
use tamma_core::ids::TaskId;
use tamma_core::plan::Plan;
use tamma_core::rules::Rules;
use tamma_core::task::{MAX_TITLE_CHARS, Task, check_labels, is_title};
use tamma_core::task_loop::{TaskLoop, TaskReceived, begin};
use tamma_flow::{
    TASK_QUEUE, TaskWorkflow, WorkflowInput, WorkflowOrigin, search_attributes, workflow_id,
};
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{
    Client, WorkflowFetchHistoryOptions, WorkflowIdConflictPolicy, WorkflowIdReusePolicy,
    WorkflowStartOptions,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::search_attributes::SearchAttributes;

use super::{App, Error, Principal, TEMPORAL_TIMEOUT};
use crate::audit;
use crate::clock;
use crate::dto::{AddedTask, NewTask};

/// Workflow task timeout: after this time another worker can take over the step.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Consequence of adding a task.
pub(crate) const NEW_TASK_CONSEQUENCE: &str = "An agent reads the repository and writes a plan. Nothing \
    changes before the plan is checked and, if its risk requires it, approved.";

/// Result of a request to start a workflow.
pub(super) enum StartedWorkflow {
    /// Started, with this run ID.
    New(String),
    /// Started before.
    Existing,
}

impl App {
    /// Adds a task, or returns the existing task with the same ID.
    pub(crate) async fn add_task(
        &self,
        by: Principal,
        mut new: NewTask,
    ) -> Result<AddedTask, Error> {
        validate_new_task(&new)?;
        let id = TaskId(new.id.unwrap_or_else(clock::new_id));
        let project = self.resolve_project(new.project.as_deref()).await?;
        audit::note_task_action(audit::ADD_TASK, id);
        by.authorize(Permission::Work, project.id)?;
        let rules = self.project_rules(&project.repository).await?;
        let submitted_plan = new.plan.take();
        let task = Task {
            id,
            project: project.id,
            title: new.title.trim().to_owned(),
            description: new.description,
            r#type: new.r#type,
            priority: new.priority,
            acceptance_criteria: new.acceptance_criteria,
            labels: new.labels.iter().map(|label| label.trim().to_owned()).collect(),
            depends_on: new.depends_on.into_iter().map(TaskId).collect(),
            suggested_agent: new.suggested_agent,
            issue_url: new.issue_url,
            issue_number: new.issue_number,
            metadata: new.metadata,
        };
        let is_used = self.store.is_task_id_used(id).await?;
        if self.task_exists(&task).await? {
            return Ok(AddedTask { created: false, task: self.task_card(id).await? });
        }
        // The ID belongs to a task of a project that the caller cannot read, or to a pipeline, whose
        // runs the new task would show. Its workflow may be long gone, so Temporal would start another.
        if is_used {
            return Err(Error::Refused(format!("task ID {id} is already used")));
        }
        check_labels(&task.labels).map_err(|error| {
            Error::invalid(capitalize(&format!("{error}.")), "Correct the labels.")
        })?;
        self.check_dependencies(&task).await?;
        check_suggested_agent(&task, &rules)?;
        let submitted_plan = match submitted_plan {
            Some(plan) => Some(self.store.save_text(&validate_plan(plan)?).await?),
            None => None,
        };
        let auth = Some(by.authentication());
        let behaviour = self.new_task_behaviour().await?;
        let received = TaskReceived {
            task: id,
            project: task.project,
            priority: task.priority,
            at: clock::now(),
            by: Actor::Person(by.name),
            auth,
            submitted_plan,
            edition: behaviour.edition,
        };
        let first = begin(&received, &rules);
        let origin = WorkflowOrigin::New { received, task: Box::new(task.clone()) };
        let tuning = self.tuning_for(behaviour);
        let input = WorkflowInput { rules: rules.clone(), tuning, origin };
        let reuse = WorkflowIdReusePolicy::RejectDuplicate;
        let client = self.place_workflow(id.0, project.id).await?;
        let started = start_workflow(&client, input, &first.next, reuse).await?;
        let created = matches!(started, StartedWorkflow::New(_));
        if created {
            self.store.insert_task(&task, &first, &rules).await?;
        } else {
            self.save_started_task(&client, &task).await?;
        }
        Ok(AddedTask { created, task: self.task_card(id).await? })
    }

    /// Returns whether the task exists. A different task with the same ID is an error.
    async fn task_exists(&self, task: &Task) -> Result<bool, Error> {
        match self.store.task(task.id).await {
            Ok(existing) if existing.task == *task => Ok(true),
            Ok(existing) => Err(id_taken(task, &existing.task)),
            Err(tamma_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn check_dependencies(&self, task: &Task) -> Result<(), Error> {
        for other in &task.depends_on {
            match self.store.task_position(*other).await {
                Ok(_) => {}
                Err(tamma_store::Error::NotFound { .. }) => {
                    return Err(Error::invalid(
                        format!("Cannot find task {other}, which this task depends on."),
                        "Add that task first, or remove the dependency.",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Saves a task whose workflow an earlier request has started. Time, person and rules come
    /// from the workflow's input, because those of this request can differ.
    async fn save_started_task(&self, client: &Client, task: &Task) -> Result<(), Error> {
        let WorkflowInput { rules, origin, .. } = self.workflow_input(client, task.id).await?;
        let WorkflowOrigin::New { received, task: started } = origin else {
            // A continued workflow was saved during its first run.
            return Ok(());
        };
        if *started != *task {
            return Err(id_taken(task, &started));
        }
        self.store.insert_task(&started, &begin(&received, &rules), &rules).await?;
        Ok(())
    }

    /// Returns the input of a task's workflow, from the first event of its history.
    pub(super) async fn workflow_input(
        &self,
        client: &Client,
        task: TaskId,
    ) -> Result<WorkflowInput, Error> {
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let mut history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
        let event = match tokio::time::timeout(TEMPORAL_TIMEOUT, history.next()).await {
            Ok(Some(event)) => event.map_err(Error::temporal)?,
            Ok(None) => return Err(Error::temporal("the workflow has no history")),
            Err(late) => return Err(Error::temporal(late)),
        };
        workflow_input(self.open_payloads(event).await?)
    }
}

/// Starts the workflow of a task at a state of its state machine.
pub(super) async fn start_workflow(
    client: &Client,
    input: WorkflowInput,
    task_loop: &TaskLoop,
    reuse: WorkflowIdReusePolicy,
) -> Result<StartedWorkflow, Error> {
    let options = WorkflowStartOptions::new(TASK_QUEUE.to_owned(), workflow_id(task_loop.task))
        .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
        .id_reuse_policy(reuse)
        .task_timeout(TASK_TIMEOUT)
        .search_attributes(SearchAttributes::new(search_attributes::initial_values(task_loop)))
        // No summary: Temporal's client would not seal it.
        .build();
    let started = client.start_workflow(TaskWorkflow::run, input, options);
    match tokio::time::timeout(TEMPORAL_TIMEOUT, started).await {
        Ok(Ok(handle)) => Ok(StartedWorkflow::New(handle.run_id().unwrap_or_default().to_owned())),
        // Started by an earlier request; it may already be closed.
        Ok(Err(WorkflowStartError::AlreadyStarted { .. })) => Ok(StartedWorkflow::Existing),
        Ok(Err(error @ WorkflowStartError::PayloadConversion(_))) => {
            Err(Error::Internal(error.into()))
        }
        Ok(Err(error)) => Err(Error::temporal(error)),
        Err(late) => Err(Error::temporal(late)),
    }
}

/// Checks the agent that the task suggests, so that it is used or refused, and never ignored.
fn check_suggested_agent(task: &Task, rules: &Rules) -> Result<(), Error> {
    let Some(agent) = &task.suggested_agent else { return Ok(()) };
    rules.check_suggested_agent(agent).map_err(|error| {
        Error::invalid(
            format!("Cannot use the suggested agent: {error}."),
            "Choose another agent, leave it out to use the tier's, or configure it under `agents` \
             in `tamma.yaml`.",
        )
    })
}

fn id_taken(task: &Task, existing: &Task) -> Error {
    // A title of another project is none of the caller's business.
    if existing.project != task.project {
        return Error::Refused(format!("task ID {} is already used", task.id));
    }
    Error::Refused(format!("task ID {} is already used by `{}`", task.id, existing.title))
}

/// Parses the workflow's input from the first event of its history.
fn workflow_input(event: HistoryEvent) -> Result<WorkflowInput, Error> {
    let payloads = match event.attributes {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => started.input,
        _ => None,
    };
    let payload = payloads.and_then(|payloads| payloads.payloads.into_iter().next());
    let payload = payload.ok_or_else(|| Error::Internal("the workflow has no input".into()))?;
    serde_json::from_slice(&payload.data).map_err(|error| Error::Internal(error.into()))
}

fn validate_new_task(new: &NewTask) -> Result<(), Error> {
    if !is_title(&new.title) {
        let length = new.title.trim().chars().count();
        return Err(Error::invalid(
            format!(
                "The title must be one line of 1 to {MAX_TITLE_CHARS} characters; this one has {length}."
            ),
            "Shorten the title and put the details into the description.",
        ));
    }
    if let Some(id) = new.id.filter(|id| id.get_version_num() != 7) {
        return Err(Error::invalid(
            format!("Task ID {id} is not a version 7 UUID."),
            "Generate a version 7 UUID, or omit the ID.",
        ));
    }
    Ok(())
}

/// Validates a submitted plan and returns it as JSON for storage.
fn validate_plan(plan: serde_json::Value) -> Result<String, Error> {
    let plan: Plan = serde_json::from_value(plan).map_err(|error| {
        Error::invalid(
            format!("Cannot read the plan: {error}."),
            "Fix the plan according to its schema, then try again.",
        )
    })?;
    let problems: Vec<_> = plan.validate().iter().map(ToString::to_string).collect();
    if !problems.is_empty() {
        return Err(Error::invalid(
            format!("The plan is not valid: {}.", problems.join("; ")),
            "Fix the plan, then try again.",
        ));
    }
    serde_json::to_string(&plan).map_err(|error| Error::Internal(error.into()))
}
