//! Adding a task.
//!
//! The workflow is started first: from then on the task cannot be lost, since the workflow itself
//! writes it down when nobody else has. Then it is written down here, so that whoever added it
//! can read it at once. Who asks twice, because there was no answer, finds what the first request began.

use std::time::Duration;

use futures_util::StreamExt as _;
use tamma_core::actor::Actor;
use tamma_core::ids::TaskId;
use tamma_core::plan::Plan;
use tamma_core::rules::{Right, Rules};
use tamma_core::task::Task;
use tamma_core::task_loop::{Received, begin};
use tamma_core::version::Edition;
use tamma_flow::{Input, Origin, QUEUE, TaskFlow, attributes, workflow_id};
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{
    WorkflowFetchHistoryOptions, WorkflowIdConflictPolicy, WorkflowIdReusePolicy,
    WorkflowStartOptions,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::search_attributes::SearchAttributes;

use super::{App, By, Error, PATIENCE};
use crate::clock;
use crate::shape::{Added, NewTask};

/// How long a worker has to take one step of a workflow before another gets it.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

const TITLE: usize = 200;

impl App {
    /// Adds a task, or finds the one that has its id.
    pub(crate) async fn add(&self, by: By, mut new: NewTask) -> Result<Added, Error> {
        check(&new)?;
        let id = TaskId(new.id.unwrap_or_else(clock::new_id));
        let project = self.project(new.project.as_deref()).await?;
        // First, because whoever adds a task can mend them, and is told where they are broken.
        let rules = self.rules_of(&project.repository).await?;
        self.permit(&by, Right::Work, project.id).await?;
        let brought = new.plan.take();
        let task = Task {
            id,
            project: project.id,
            title: new.title.trim().to_owned(),
            description: new.description,
            r#type: new.r#type,
            priority: new.priority,
            acceptance_criteria: new.acceptance_criteria,
            labels: new.labels,
            depends_on: new.depends_on.into_iter().map(TaskId).collect(),
            suggested_agent: new.suggested_agent,
            issue_url: new.issue_url,
            metadata: new.metadata,
        };
        if self.is_there(&task).await? {
            return Ok(Added { new: false, task: self.card(id).await? });
        }
        self.depends_on_what_is_there(&task).await?;
        let plan = match brought {
            Some(plan) => Some(self.store.keep(&readable(plan)?).await?),
            None => None,
        };
        let received = Received {
            task: id,
            project: task.project,
            priority: task.priority,
            at: clock::now(),
            by: Actor::Person(by.name),
            plan,
            edition: Edition::NEWEST,
        };
        let first = begin(&received, &rules);
        let new = self.start(&task, received, &rules, &first.next).await?;
        if new {
            self.store.receive(&task, &first, &rules).await?;
        } else {
            self.receive_as_started(&task).await?;
        }
        Ok(Added { new, task: self.card(id).await? })
    }

    /// Whether the task is there already. Another one with its id is refused.
    async fn is_there(&self, task: &Task) -> Result<bool, Error> {
        match self.store.task(task.id).await {
            Ok(there) if there.task == *task => Ok(true),
            Ok(there) => Err(another(task, &there.task)),
            Err(tamma_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn depends_on_what_is_there(&self, task: &Task) -> Result<(), Error> {
        for other in &task.depends_on {
            match self.store.position(*other).await {
                Ok(_) => {}
                Err(tamma_store::Error::NotFound { .. }) => {
                    return Err(Error::invalid(
                        format!("It depends on task {other}, which is not there."),
                        "Add that task first, or leave the dependency out.",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes a task down as an earlier request has started it, which got no answer. What the
    /// workflow was told then is what it goes by: the time, the person and the rules of this request
    /// are others.
    async fn receive_as_started(&self, task: &Task) -> Result<(), Error> {
        let unavailable = |source| Error::Unavailable { what: "The durable engine", source };
        let handle = self.temporal.get_workflow_handle::<TaskFlow>(workflow_id(task.id));
        let mut history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
        let event = match tokio::time::timeout(PATIENCE, history.next()).await {
            Ok(Some(event)) => event.map_err(|error| unavailable(error.into()))?,
            Ok(None) => return Err(unavailable("the workflow has no history".into())),
            Err(late) => return Err(unavailable(late.into())),
        };
        let Input { rules, origin, .. } = input(event)?;
        let Origin::New { received, task: started } = origin else {
            // A workflow that goes on in a later run has been written down in an earlier one.
            return Ok(());
        };
        if *started != *task {
            return Err(another(task, &started));
        }
        self.store.receive(&started, &begin(&received, &rules), &rules).await?;
        Ok(())
    }

    /// Starts the workflow of a task. Returns whether it was not there before.
    async fn start(
        &self,
        task: &Task,
        received: Received,
        rules: &Rules,
        memory: &tamma_core::task_loop::TaskLoop,
    ) -> Result<bool, Error> {
        let origin = Origin::New { received, task: Box::new(task.clone()) };
        let input = Input { rules: rules.clone(), pace: self.pace, origin };
        let options = WorkflowStartOptions::new(QUEUE.to_owned(), workflow_id(task.id))
            .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
            .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
            .task_timeout(TASK_TIMEOUT)
            .search_attributes(SearchAttributes::new(attributes::at_start(memory)))
            .static_summary(task.title.clone())
            .build();
        let started = self.temporal.start_workflow(TaskFlow::run, input, options);
        match tokio::time::timeout(PATIENCE, started).await {
            Ok(Ok(_)) => Ok(true),
            // An earlier request has started it; it may even have ended.
            Ok(Err(WorkflowStartError::AlreadyStarted { .. })) => Ok(false),
            Ok(Err(error @ WorkflowStartError::PayloadConversion(_))) => {
                Err(Error::Fault(error.into()))
            }
            Ok(Err(error)) => {
                Err(Error::Unavailable { what: "The durable engine", source: error.into() })
            }
            Err(late) => {
                Err(Error::Unavailable { what: "The durable engine", source: late.into() })
            }
        }
    }
}

fn another(task: &Task, there: &Task) -> Error {
    Error::Refused(format!("there is another task with the id {}: `{}`", task.id, there.title))
}

/// What a workflow was started with, from the first event of its history.
fn input(event: HistoryEvent) -> Result<Input, Error> {
    let payloads = match event.attributes {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => started.input,
        _ => None,
    };
    let payload = payloads.and_then(|payloads| payloads.payloads.into_iter().next());
    let payload = payload.ok_or_else(|| Error::Fault("the workflow has no input".into()))?;
    serde_json::from_slice(&payload.data).map_err(|error| Error::Fault(error.into()))
}

fn check(new: &NewTask) -> Result<(), Error> {
    let letters = new.title.trim().chars().count();
    if letters == 0 || letters > TITLE || new.title.contains(char::is_control) {
        return Err(Error::invalid(
            format!("A title is one line of 1 to {TITLE} characters; this one has {letters}."),
            "Say in one line what is wanted, and the rest in the description.",
        ));
    }
    if let Some(id) = new.id.filter(|id| id.get_version_num() != 7) {
        return Err(Error::invalid(
            format!("The id {id} is not a UUID of version 7."),
            "Make one of version 7, which is in the order of time, or leave it out.",
        ));
    }
    Ok(())
}

/// A plan that was brought, as it is kept.
fn readable(plan: serde_json::Value) -> Result<String, Error> {
    let plan: Plan = serde_json::from_value(plan).map_err(|error| {
        Error::invalid(
            format!("The plan cannot be read: {error}."),
            "See the schema of a plan, mend it, and add the task again.",
        )
    })?;
    let flaws: Vec<_> = plan.flaws().iter().map(ToString::to_string).collect();
    if !flaws.is_empty() {
        return Err(Error::invalid(
            format!("The plan has flaws: {}.", flaws.join("; ")),
            "Mend them, and add the task again.",
        ));
    }
    serde_json::to_string(&plan).map_err(|error| Error::Fault(error.into()))
}
