//! Spans of jobs, runs, calls to models and tool calls, in the trace of their task.

use tamma_core::cost::{Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_engine::gateway::Dialect;
use tamma_store::{ModelCall, NewRun, RunEnd, RunNumber};
use tamma_telemetry::trace::{self, SpanRecord, SpanValue, gen_ai, spans};

/// Maximum length of a model's name in a span, in characters. The agent chooses it.
const MAX_MODEL_CHARS: usize = 100;

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

/// Call to a model through the gateway that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedModelCall {
    pub(crate) dialect: Dialect,
    pub(crate) call: ModelCall,
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

/// Returns the ID of the conversation between an agent and its models: the run.
fn conversation(run: &NewRun) -> String {
    let RunNumber { job_number, attempt } = run.number;
    format!("{}-{job_number}-{attempt}", run.task)
}

/// Returns the attributes of token counts. Cached input counts as input.
fn token_attributes(tokens: Tokens) -> [(&'static str, SpanValue); 2] {
    let input = tokens.input.saturating_add(tokens.cached);
    [(gen_ai::INPUT_TOKENS, input.into()), (gen_ai::OUTPUT_TOKENS, tokens.output.into())]
}

/// Records the span of an agent's run.
pub(crate) fn record_run(run: &NewRun, ended_at: Timestamp, end: RunEnd, usage: Option<Usage>) {
    spans().record(|| {
        let (trace, RunNumber { job_number, attempt }) = (run.task.0.as_u128(), run.number);
        let mut attributes: Vec<(&'static str, SpanValue)> = vec![
            (gen_ai::OPERATION, gen_ai::INVOKE_AGENT.into()),
            (gen_ai::AGENT_NAME, run.agent.as_str().into()),
            (gen_ai::CONVERSATION, conversation(run).into()),
        ];
        if let Some(model) = &run.model {
            attributes.push((gen_ai::MODEL, model.as_str().into()));
        }
        attributes.extend(usage.into_iter().flat_map(|usage| token_attributes(usage.tokens)));
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

/// Records the spans of calls to models. Prompts and responses are never part of them.
pub(crate) fn record_model_calls(run: &NewRun, calls: Vec<EndedModelCall>) {
    for call in calls {
        spans().record(|| model_call_span(run, &call));
    }
}

fn model_call_span(run: &NewRun, EndedModelCall { dialect, call }: &EndedModelCall) -> SpanRecord {
    let (trace, RunNumber { job_number, attempt }) = (run.task.0.as_u128(), run.number);
    let (operation, provider) = match dialect {
        Dialect::Anthropic => (gen_ai::CHAT, "anthropic"),
        Dialect::Chat | Dialect::Responses => (gen_ai::CHAT, "openai"),
        Dialect::Gemini => (gen_ai::GENERATE_CONTENT, "gcp.gemini"),
    };
    let model: String = call.model.chars().take(MAX_MODEL_CHARS).collect();
    let start_nanos = nanos(call.at);
    let name = format!("model {job_number} {attempt} {}", call.sequence);
    let mut attributes: Vec<(&'static str, SpanValue)> = vec![
        (gen_ai::OPERATION, operation.into()),
        (gen_ai::PROVIDER, provider.into()),
        (gen_ai::MODEL, model.as_str().into()),
        (gen_ai::CONVERSATION, conversation(run).into()),
        ("http.response.status_code", u64::from(call.status).into()),
    ];
    attributes.extend(call.tokens.into_iter().flat_map(token_attributes));
    SpanRecord {
        trace,
        id: trace::named_span(trace, &name, start_nanos),
        parent: Some(trace::run_span(trace, job_number, attempt)),
        name: format!("{operation} {model}"),
        start_nanos,
        end_nanos: start_nanos.saturating_add(call.took_ms.saturating_mul(1_000_000)),
        attributes,
        // Messages of providers can contain parts of a prompt.
        error: (!(200..300).contains(&call.status)).then(|| call.status.to_string()),
    }
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

#[cfg(test)]
mod tests {
    use tamma_core::cost::Cost;

    use super::*;

    fn run() -> NewRun {
        let task = "0192a000-0000-7000-8000-000000000001".parse().expect("an id");
        NewRun {
            task: TaskId(task),
            number: RunNumber { job_number: 3, attempt: 2 },
            at: Timestamp::from_timestamp(1_800_000_000, 0).expect("valid timestamp"),
            agent: "claude-code".to_owned(),
            model: None,
            tier: None,
            mode: "implement".to_owned(),
            worker: None,
        }
    }

    fn call(dialect: Dialect, status: u16) -> EndedModelCall {
        let call = ModelCall {
            sequence: 1,
            at: Timestamp::from_timestamp(1_800_000_001, 0).expect("valid timestamp"),
            model: "m".repeat(1000),
            status,
            tokens: Some(Tokens { input: 100, cached: 20, output: 3, ..Tokens::default() }),
            cost: Cost::Unknown,
            first_byte_ms: None,
            took_ms: 250,
            note: Some("the prompt of Ann is too long".to_owned()),
        };
        EndedModelCall { dialect, call }
    }

    #[test]
    fn a_call_to_a_model_belongs_to_its_run_and_has_no_contents() {
        let (run, trace) = (run(), run().task.0.as_u128());
        let span = model_call_span(&run, &call(Dialect::Responses, 429));
        assert_eq!((span.trace, span.parent), (trace, Some(trace::run_span(trace, 3, 2))));
        assert_eq!(span.name, format!("chat {}", "m".repeat(MAX_MODEL_CHARS)));
        assert_eq!(span.end_nanos - span.start_nanos, 250_000_000);
        assert_eq!(span.error.as_deref(), Some("429"));
        let value =
            |name: &str| span.attributes.iter().find(|(key, _)| *key == name).map(|(_, it)| it);
        assert_eq!(value(gen_ai::PROVIDER), Some(&SpanValue::from("openai")));
        assert_eq!(value(gen_ai::INPUT_TOKENS), Some(&SpanValue::from(120_u64)));
        assert_eq!(value(gen_ai::OUTPUT_TOKENS), Some(&SpanValue::from(3_u64)));
        assert!(!format!("{span:?}").contains("Ann"), "{span:?}");
    }

    #[test]
    fn calls_of_a_run_have_spans_of_their_own() {
        let mut second = call(Dialect::Gemini, 200);
        second.call.sequence = 2;
        let first = model_call_span(&run(), &call(Dialect::Gemini, 200));
        let second = model_call_span(&run(), &second);
        assert_ne!(first.id, second.id);
        assert_eq!(first.error, None);
        let operation = (gen_ai::OPERATION, SpanValue::from(gen_ai::GENERATE_CONTENT));
        assert!(first.attributes.contains(&operation), "{first:?}");
    }
}
