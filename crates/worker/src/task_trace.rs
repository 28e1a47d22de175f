//! Spans of jobs, runs and tool calls, in the trace of their task.

use tamma_core::cost::Usage;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_store::{NewRun, RunEnd, RunNumber};
use tamma_telemetry::trace::{self, SpanRecord, gen_ai, spans};

/// Tool call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedCall {
    /// ID that the agent gave the call, without secrets.
    pub(crate) id: String,
    /// Kind of the tool, such as `read` or `execute`.
    pub(crate) kind: String,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) has_failed: bool,
}

fn nanos(at: Timestamp) -> u64 {
    at.timestamp_nanos_opt().and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or_default()
}

/// Records the span of a job. `error` is the reason if it has no result.
pub(crate) fn record_job(
    (task, number, attempt): (TaskId, u32, u32),
    kind: &str,
    (started_at, ended_at): (Timestamp, Timestamp),
    error: Option<String>,
) {
    spans().record(|| {
        let trace = task.0.as_u128();
        SpanRecord {
            trace,
            id: trace::job_span(trace, number, attempt),
            parent: Some(trace::root_span(trace)),
            name: format!("job {kind}"),
            start_nanos: nanos(started_at),
            end_nanos: nanos(ended_at),
            attributes: vec![
                ("tamma.job.kind", kind.into()),
                ("tamma.job.number", u64::from(number).into()),
                ("tamma.job.attempt", u64::from(attempt).into()),
            ],
            error,
        }
    });
}

/// Records the span of an agent's run.
pub(crate) fn record_run(run: &NewRun, ended_at: Timestamp, end: RunEnd, usage: Option<Usage>) {
    spans().record(|| {
        let (trace, RunNumber { job_number, attempt }) = (run.task.0.as_u128(), run.number);
        let mut attributes = vec![
            (gen_ai::OPERATION, gen_ai::INVOKE_AGENT.into()),
            (gen_ai::AGENT_NAME, run.agent.as_str().into()),
            (gen_ai::CONVERSATION, format!("{}-{job_number}-{attempt}", run.task).into()),
        ];
        if let Some(model) = &run.model {
            attributes.push((gen_ai::MODEL, model.as_str().into()));
        }
        if let Some(Usage { tokens, .. }) = usage {
            let input = tokens.input.saturating_add(tokens.cached);
            attributes.push((gen_ai::INPUT_TOKENS, input.into()));
            attributes.push((gen_ai::OUTPUT_TOKENS, tokens.output.into()));
        }
        SpanRecord {
            trace,
            id: trace::run_span(trace, job_number, attempt),
            parent: Some(trace::job_span(trace, job_number, attempt)),
            name: format!("{} {}", gen_ai::INVOKE_AGENT, run.agent),
            start_nanos: nanos(run.at),
            end_nanos: nanos(ended_at),
            attributes,
            error: (end != RunEnd::Finished).then(|| end.to_string()),
        }
    });
}

/// Records the spans of tool calls. Their titles and arguments stay in the transcript.
pub(crate) fn record_tool_calls(run: &NewRun, calls: Vec<EndedCall>) {
    let (trace, RunNumber { job_number, attempt }) = (run.task.0.as_u128(), run.number);
    for call in calls {
        spans().record(|| {
            let start_nanos = nanos(call.started_at);
            SpanRecord {
                trace,
                id: trace::named_span(trace, &format!("tool {}", call.id), start_nanos),
                parent: Some(trace::run_span(trace, job_number, attempt)),
                name: format!("{} {}", gen_ai::EXECUTE_TOOL, call.kind),
                start_nanos,
                end_nanos: nanos(call.ended_at),
                attributes: vec![
                    (gen_ai::OPERATION, gen_ai::EXECUTE_TOOL.into()),
                    (gen_ai::TOOL_NAME, call.kind.as_str().into()),
                    (gen_ai::TOOL_CALL, call.id.as_str().into()),
                ],
                error: call.has_failed.then(|| "failed".to_owned()),
            }
        });
    }
}
