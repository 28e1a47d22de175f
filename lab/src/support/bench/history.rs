//! Calls, payload sizes and durations of a task, from its workflow history.

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

/// Calls of a recorded task.
#[derive(Debug)]
pub(crate) struct RecordedCalls {
    /// Calls, for the bare workflow.
    pub(crate) sequence: CallSequence,
    /// Start of the task, as a time since the epoch.
    pub(crate) start: Duration,
    /// Position and end of each call with an activity, as a time since the epoch, in order.
    pub(crate) ends: Vec<(usize, Duration)>,
}

/// Returns the time of an event since the epoch.
fn time_of(event: &HistoryEvent) -> Option<Duration> {
    let at = event.event_time.as_ref()?;
    Some(Duration::new(at.seconds.unsigned_abs(), u32::try_from(at.nanos).unwrap_or_default()))
}

/// Extracts the calls of a task from its history.
///
/// `local_inputs` has the input sizes of the local activities in order, which no history contains.
pub(crate) fn recorded_calls(
    events: &[HistoryEvent],
    local_inputs: &[usize],
) -> Result<RecordedCalls> {
    let attributes = || events.iter().filter_map(|event| event.attributes.as_ref());
    let mut results = BTreeMap::new();
    let mut updates = Vec::new();
    let mut responses = Vec::new();
    for attribute in attributes() {
        match attribute {
            A::ActivityTaskCompletedEventAttributes(it) => {
                results.insert(it.scheduled_event_id, bytes(it.result.as_ref()));
            }
            A::WorkflowExecutionUpdateAcceptedEventAttributes(it) => {
                let input = it.accepted_request.as_ref().and_then(|request| request.input.as_ref());
                updates.push(bytes(input.and_then(|input| input.args.as_ref())));
            }
            A::WorkflowExecutionUpdateCompletedEventAttributes(it) => {
                responses.push(it.outcome.as_ref().map_or(0, outcome));
            }
            _ => {}
        }
    }
    let mut updates = updates.into_iter().zip(responses);
    let mut local_inputs = local_inputs.iter().copied();
    let (mut calls, mut started, mut result) = (Vec::new(), 0, 0);
    let (mut ends, mut scheduled) = (Vec::new(), BTreeMap::new());
    for event in events {
        let Some(attribute) = &event.attributes else { continue };
        match attribute {
            A::WorkflowExecutionStartedEventAttributes(it) => started = bytes(it.input.as_ref()),
            A::MarkerRecordedEventAttributes(it) => {
                let input = local_inputs.next().context("a local activity without input size")?;
                ends.extend(time_of(event).map(|end| (calls.len(), end)));
                calls.push(WorkflowCall::Local(input, bytes(it.details.get("result"))));
            }
            A::ActivityTaskScheduledEventAttributes(it) => {
                let queue = it.task_queue.as_ref().map(|queue| queue.name.as_str());
                let on_agent_queue = queue == Some(tamma_flow::AGENT_TASK_QUEUE);
                scheduled.insert(event.event_id, calls.len());
                calls.push(WorkflowCall::Start(ActivityCall {
                    on_agent_queue,
                    input: bytes(it.input.as_ref()),
                    result: results.get(&event.event_id).copied().unwrap_or_default(),
                    update: if on_agent_queue { updates.next() } else { None },
                }));
            }
            A::ActivityTaskCompletedEventAttributes(it) => {
                let start = scheduled.get(&it.scheduled_event_id).copied();
                ends.extend(start.zip(time_of(event)));
                calls.push(WorkflowCall::Await);
            }
            A::WorkflowExecutionUpdateAcceptedEventAttributes(_) => {
                calls.push(WorkflowCall::ReceiveUpdate);
            }
            A::WorkflowExecutionUpdateCompletedEventAttributes(_) => {
                calls.push(WorkflowCall::CompleteUpdate);
            }
            A::UpsertWorkflowSearchAttributesEventAttributes(it) => {
                let fields = it.search_attributes.iter().flat_map(|all| &all.indexed_fields);
                let pair = |(name, value): (&String, &Payload)| {
                    Ok((name.clone(), serde_json::from_slice(&value.data)?))
                };
                calls.push(WorkflowCall::Upsert(fields.map(pair).collect::<Result<_>>()?));
            }
            A::TimerStartedEventAttributes(it) => {
                let seconds =
                    it.start_to_fire_timeout.as_ref().map_or(0, |timeout| timeout.seconds);
                calls.push(WorkflowCall::StartTimer(seconds.unsigned_abs()));
            }
            A::TimerCanceledEventAttributes(_) => calls.push(WorkflowCall::CancelTimer),
            A::WorkflowExecutionCompletedEventAttributes(it) => result = bytes(it.result.as_ref()),
            A::WorkflowTaskScheduledEventAttributes(_)
            | A::WorkflowTaskStartedEventAttributes(_)
            | A::WorkflowTaskCompletedEventAttributes(_)
            | A::ActivityTaskStartedEventAttributes(_) => {}
            other => bail!("unexpected event in a task's history: {other:?}"),
        }
    }
    ends.sort_by_key(|(_, end)| *end);
    let sequence = CallSequence { calls, result, filler: String::new() }.padded(started);
    let start = events.first().and_then(time_of).context("the history has no start")?;
    Ok(RecordedCalls { sequence, start, ends })
}

fn outcome(outcome: &temporalio_common::protos::temporal::api::update::v1::Outcome) -> usize {
    use temporalio_common::protos::temporal::api::update::v1::outcome::Value;
    match &outcome.value {
        Some(Value::Success(payloads)) => bytes(Some(payloads)),
        _ => 0,
    }
}

/// Durations within one history.
#[derive(Debug, Default)]
pub(crate) struct HistoryTimes {
    /// From the start of the task, the end of a job or a worker's update, until the next job starts, the
    /// worker gets its response, or the task closes.
    pub(crate) transitions: Vec<Duration>,
    /// From the start of the task or the end of a job until the workflow has scheduled the next job or
    /// closed the task: a transition without the wait for a slot.
    pub(crate) decisions: Vec<Duration>,
}

impl HistoryTimes {
    /// Extracts the durations of one history.
    pub(crate) fn of(events: &[HistoryEvent]) -> Self {
        let mut times = Self::default();
        let (mut moved, mut undecided, mut scheduled) = (None, None, None);
        let put = |list: &mut Vec<Duration>, from: Option<Duration>, to: Duration| {
            list.extend(from.map(|from| to.saturating_sub(from)));
        };
        for event in events {
            let Some(at) = time_of(event) else { continue };
            match &event.attributes {
                Some(
                    A::WorkflowExecutionStartedEventAttributes(_)
                    | A::ActivityTaskCompletedEventAttributes(_),
                ) => (moved, undecided) = (Some(at), Some(at)),
                Some(A::ActivityTaskScheduledEventAttributes(_)) => {
                    put(&mut times.decisions, undecided.take(), at);
                }
                Some(A::ActivityTaskStartedEventAttributes(_)) => {
                    put(&mut times.transitions, moved.take(), at);
                }
                Some(A::WorkflowExecutionCompletedEventAttributes(_)) => {
                    put(&mut times.transitions, moved.take(), at);
                    put(&mut times.decisions, undecided.take(), at);
                }
                Some(A::WorkflowTaskScheduledEventAttributes(_)) => scheduled = Some(at),
                Some(A::WorkflowExecutionUpdateCompletedEventAttributes(_)) => {
                    put(&mut times.transitions, scheduled, at);
                }
                _ => {}
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use temporalio_common::protos::temporal::api::history::v1 as events;

    use super::*;

    #[test]
    fn a_decision_ends_before_the_wait_for_a_slot() {
        let event = |millis: u64, attributes: A| HistoryEvent {
            event_time: Some((UNIX_EPOCH + Duration::from_millis(millis)).into()),
            attributes: Some(attributes),
            ..HistoryEvent::default()
        };
        let times = HistoryTimes::of(&[
            event(
                0,
                A::WorkflowExecutionStartedEventAttributes(
                    events::WorkflowExecutionStartedEventAttributes::default(),
                ),
            ),
            event(
                100,
                A::ActivityTaskScheduledEventAttributes(
                    events::ActivityTaskScheduledEventAttributes::default(),
                ),
            ),
            event(
                5_000,
                A::ActivityTaskStartedEventAttributes(
                    events::ActivityTaskStartedEventAttributes::default(),
                ),
            ),
            event(
                6_000,
                A::ActivityTaskCompletedEventAttributes(
                    events::ActivityTaskCompletedEventAttributes::default(),
                ),
            ),
            event(
                6_200,
                A::WorkflowExecutionCompletedEventAttributes(
                    events::WorkflowExecutionCompletedEventAttributes::default(),
                ),
            ),
        ]);
        assert_eq!(times.transitions, [5_000, 200].map(Duration::from_millis));
        assert_eq!(times.decisions, [100, 200].map(Duration::from_millis));
    }
}
