//! What a history says: the commands and bytes of a task, and how long its transitions took.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes as A;

use super::bare::{ActivityCall, CallSequence, WorkflowCall};

fn bytes(payloads: Option<&Payloads>) -> usize {
    payloads.map_or(0, |payloads| sum(&payloads.payloads))
}

fn sum<'a>(payloads: impl IntoIterator<Item = &'a Payload>) -> usize {
    payloads.into_iter().map(|payload| payload.data.len()).sum()
}

/// What the engine has to do for a task, from the history of one. `short` are the sizes of what the
/// local activities were given, in their order; no history has these.
pub(crate) fn score(events: &[HistoryEvent], short: &[usize]) -> Result<CallSequence> {
    let attributes = || events.iter().filter_map(|event| event.attributes.as_ref());
    let mut answers = BTreeMap::new();
    let mut updates = Vec::new();
    let mut heard = Vec::new();
    for attribute in attributes() {
        match attribute {
            A::ActivityTaskCompletedEventAttributes(it) => {
                answers.insert(it.scheduled_event_id, bytes(it.result.as_ref()));
            }
            A::WorkflowExecutionUpdateAcceptedEventAttributes(it) => {
                let input = it.accepted_request.as_ref().and_then(|asked| asked.input.as_ref());
                updates.push(bytes(input.and_then(|input| input.args.as_ref())));
            }
            A::WorkflowExecutionUpdateCompletedEventAttributes(it) => {
                heard.push(it.outcome.as_ref().map_or(0, outcome));
            }
            _ => {}
        }
    }
    let mut updates = updates.into_iter().zip(heard);
    let mut short = short.iter().copied();
    let (mut ops, mut started, mut answer) = (Vec::new(), 0, 0);
    for event in events {
        let Some(attribute) = &event.attributes else { continue };
        match attribute {
            A::WorkflowExecutionStartedEventAttributes(it) => started = bytes(it.input.as_ref()),
            A::MarkerRecordedEventAttributes(it) => {
                let given = short.next().context("a local activity that nobody has seen")?;
                ops.push(WorkflowCall::Local(given, bytes(it.details.get("result"))));
            }
            A::ActivityTaskScheduledEventAttributes(it) => {
                let queue = it.task_queue.as_ref().map(|queue| queue.name.as_str());
                let engines = queue == Some(tamma_flow::AGENT_TASK_QUEUE);
                ops.push(WorkflowCall::Begin(ActivityCall {
                    engines,
                    given: bytes(it.input.as_ref()),
                    answer: answers.get(&event.event_id).copied().unwrap_or_default(),
                    update: if engines { updates.next() } else { None },
                }));
            }
            A::ActivityTaskCompletedEventAttributes(_) => ops.push(WorkflowCall::End),
            A::WorkflowExecutionUpdateAcceptedEventAttributes(_) => ops.push(WorkflowCall::Hear),
            A::WorkflowExecutionUpdateCompletedEventAttributes(_) => ops.push(WorkflowCall::Reply),
            A::UpsertWorkflowSearchAttributesEventAttributes(it) => {
                let fields = it.search_attributes.iter().flat_map(|all| &all.indexed_fields);
                let pair = |(name, value): (&String, &Payload)| {
                    Ok((name.clone(), serde_json::from_slice(&value.data)?))
                };
                ops.push(WorkflowCall::Upsert(fields.map(pair).collect::<Result<_>>()?));
            }
            A::TimerStartedEventAttributes(it) => {
                let seconds = it.start_to_fire_timeout.as_ref().map_or(0, |left| left.seconds);
                ops.push(WorkflowCall::Set(seconds.unsigned_abs()));
            }
            A::TimerCanceledEventAttributes(_) => ops.push(WorkflowCall::TakeBack),
            A::WorkflowExecutionCompletedEventAttributes(it) => answer = bytes(it.result.as_ref()),
            A::WorkflowTaskScheduledEventAttributes(_)
            | A::WorkflowTaskStartedEventAttributes(_)
            | A::WorkflowTaskCompletedEventAttributes(_)
            | A::ActivityTaskStartedEventAttributes(_) => {}
            other => bail!("a task's history has an event that is not measured: {other:?}"),
        }
    }
    Ok(CallSequence { ops, answer, filler: String::new() }.filled(started))
}

fn outcome(outcome: &temporalio_common::protos::temporal::api::update::v1::Outcome) -> usize {
    use temporalio_common::protos::temporal::api::update::v1::outcome::Value;
    match &outcome.value {
        Some(Value::Success(payloads)) => bytes(Some(payloads)),
        _ => 0,
    }
}

/// How long things took in one history.
#[derive(Debug, Default)]
pub(crate) struct HistoryTimes {
    /// From what moved the task (its start, the end of a job, a worker's word) until the next job
    /// was taken up, the worker was answered, or the task had ended.
    pub(crate) transitions: Vec<Duration>,
    /// Between two completions of workflow tasks, with the job in between.
    pub(crate) steps: Vec<Duration>,
}

impl HistoryTimes {
    /// Those of one history.
    pub(crate) fn of(events: &[HistoryEvent]) -> Self {
        let mut times = Self::default();
        let (mut moved, mut scheduled, mut completed) = (None, None, None);
        let put = |list: &mut Vec<Duration>, from: Option<Duration>, to: Duration| {
            list.extend(from.map(|from| to.saturating_sub(from)));
        };
        for event in events {
            let Some(at) = &event.event_time else { continue };
            let nanos = u32::try_from(at.nanos).unwrap_or_default();
            let at = Duration::new(at.seconds.unsigned_abs(), nanos);
            match &event.attributes {
                Some(
                    A::WorkflowExecutionStartedEventAttributes(_)
                    | A::ActivityTaskCompletedEventAttributes(_),
                ) => moved = Some(at),
                Some(
                    A::ActivityTaskStartedEventAttributes(_)
                    | A::WorkflowExecutionCompletedEventAttributes(_),
                ) => put(&mut times.transitions, moved.take(), at),
                Some(A::WorkflowTaskScheduledEventAttributes(_)) => scheduled = Some(at),
                Some(A::WorkflowExecutionUpdateCompletedEventAttributes(_)) => {
                    put(&mut times.transitions, scheduled, at);
                }
                Some(A::WorkflowTaskCompletedEventAttributes(_)) => {
                    put(&mut times.steps, completed.replace(at), at);
                }
                _ => {}
            }
        }
        times
    }
}
