//! Checks of a task's trace: one trace from the request of a person to the agent's tool call.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Service that exports the first span.
const SERVER: &str = "tamma-server";

/// Paths of a task that a person approved, from the first span. A name that ends with a space is the
/// start of one.
const PATHS: [&[&str]; 8] = [
    &["add_task", "approve"],
    &["add_task", "job plan", "invoke_agent "],
    &["add_task", "job implement", "invoke_agent ", "chat "],
    &["add_task", "job implement", "invoke_agent ", "execute_tool "],
    &["add_task", "job test"],
    &["add_task", "job review", "invoke_agent "],
    &["add_task", "job deliver"],
    &["add_task", "job learn"],
];

/// Attributes that spans with a name have.
const ATTRIBUTES: [(&str, &[&str]); 5] = [
    ("add_task", &["tamma.route", "tamma.interface"]),
    ("job ", &["tamma.job.kind", "tamma.job.number", "tamma.job.attempt"]),
    ("invoke_agent ", &["gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.conversation.id"]),
    (
        "chat ",
        &[
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "gen_ai.conversation.id",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
        ],
    ),
    ("execute_tool ", &["gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id"]),
];

/// Maximum length of a path. A longer one is a cycle.
const MAX_PATH: usize = 20;

/// Trace of one task.
#[derive(Debug)]
pub(super) struct TaskTrace {
    spans: BTreeMap<String, TraceSpan>,
}

/// Span, with the service that exported it.
#[derive(Debug)]
struct TraceSpan {
    service: String,
    name: String,
    parent: Option<String>,
    attributes: BTreeMap<String, String>,
}

/// Returns the IDs of all traces.
pub(super) fn trace_ids(resource_spans: &[Value]) -> BTreeSet<String> {
    spans_of(resource_spans).map(|(_, span)| text_of(&span["traceId"])).collect()
}

/// Returns all spans, with the attributes of their resource.
fn spans_of(resource_spans: &[Value]) -> impl Iterator<Item = (&Value, &Value)> {
    resource_spans.iter().flat_map(|resource| {
        let scopes = resource["scopeSpans"].as_array().into_iter().flatten();
        let spans = scopes.flat_map(|scope| scope["spans"].as_array().into_iter().flatten());
        spans.map(move |span| (&resource["resource"]["attributes"], span))
    })
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads attributes. 64-bit numbers are strings in this format, or numbers.
fn read_attributes(list: &Value) -> BTreeMap<String, String> {
    let list = list.as_array().into_iter().flatten();
    let pair = |attribute: &Value| {
        let value = &attribute["value"];
        let number = &value["intValue"];
        let text = value["stringValue"].as_str().or_else(|| number.as_str()).map(str::to_owned);
        let text = text.or_else(|| number.as_u64().map(|number| number.to_string()));
        (text_of(&attribute["key"]), text.unwrap_or_default())
    };
    list.map(pair).collect()
}

impl TaskTrace {
    /// Reads the trace of a task, which must be the only one, and checks it.
    pub(super) fn read(resource_spans: &[Value], task: &str) -> Result<Self> {
        let traces = trace_ids(resource_spans);
        let is_one = traces.iter().eq([task]);
        ensure!(is_one, "the backend has not exactly the trace of the task: {traces:?}");
        let mut spans = BTreeMap::new();
        for (resource, span) in spans_of(resource_spans) {
            let (id, name) = (text_of(&span["spanId"]), text_of(&span["name"]));
            let parent = Some(text_of(&span["parentSpanId"])).filter(|parent| !parent.is_empty());
            let service = read_attributes(resource).remove("service.name").unwrap_or_default();
            let attributes = read_attributes(&span["attributes"]);
            let span = TraceSpan { service, name, parent, attributes };
            let earlier = spans.insert(id, span);
            ensure!(earlier.is_none(), "two spans have the same ID: {earlier:?}");
        }
        let trace = Self { spans };
        trace.check()?;
        Ok(trace)
    }

    fn check(&self) -> Result<()> {
        for span in self.spans.values() {
            let parent = span.parent.as_ref();
            let has_parent = parent.is_none_or(|parent| self.spans.contains_key(parent));
            ensure!(has_parent, "the parent of `{}` is missing", span.name);
        }
        let first: Vec<_> = self.spans.values().filter(|span| span.parent.is_none()).collect();
        let is_request = |span: &&TraceSpan| span.name == "add_task" && span.service == SERVER;
        ensure!(
            first.len() == 1 && first.iter().all(is_request),
            "the trace does not start with the request to the server: {first:?}"
        );
        let paths: Vec<_> = self.spans.values().map(|span| self.path(span)).collect();
        for expected in PATHS {
            let is_there = paths.iter().any(|path| is_path(path, expected));
            ensure!(is_there, "the trace has no {}", expected.join(" → "));
        }
        for (name, expected) in ATTRIBUTES {
            for span in self.named(name) {
                for attribute in expected {
                    let value = span.attributes.get(*attribute).map_or("", String::as_str);
                    ensure!(!value.is_empty(), "`{}` has no `{attribute}`", span.name);
                }
            }
        }
        Ok(())
    }

    /// Returns the names of the spans from the first one to this one.
    fn path<'a>(&'a self, span: &'a TraceSpan) -> Vec<&'a str> {
        let parent = |span: &&'a TraceSpan| self.spans.get(span.parent.as_ref()?);
        let mut path: Vec<_> = std::iter::successors(Some(span), parent)
            .take(MAX_PATH)
            .map(|span| span.name.as_str())
            .collect();
        path.reverse();
        path
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &TraceSpan> {
        self.spans.values().filter(move |span| is_name(&span.name, name))
    }

    /// Returns the sum of a numeric attribute of all spans with a name.
    pub(super) fn sum(&self, name: &str, attribute: &str) -> Result<u64> {
        let mut sum = 0;
        for span in self.named(name) {
            let value = span.attributes.get(attribute).context("no attribute")?;
            sum += value.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Returns the number of spans by name.
    pub(super) fn names(&self) -> BTreeMap<&str, usize> {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for span in self.spans.values() {
            *names.entry(span.name.as_str()).or_default() += 1;
        }
        names
    }
}

fn is_path(path: &[&str], expected: &[&str]) -> bool {
    path.len() == expected.len() && path.iter().zip(expected).all(|(name, it)| is_name(name, it))
}

fn is_name(name: &str, expected: &str) -> bool {
    if expected.ends_with(' ') { name.starts_with(expected) } else { name == expected }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TASK: &str = "0192a000000070008000000200000001";

    fn attributes(name: &str) -> Vec<Value> {
        let expected = ATTRIBUTES.iter().find(|(start, _)| is_name(name, start));
        let names = expected.map(|(_, names)| names.to_vec()).unwrap_or_default();
        let value = |name: &str| {
            if name.ends_with("_tokens") {
                json!({ "intValue": "7" })
            } else {
                json!({ "stringValue": "x" })
            }
        };
        names.iter().map(|name| json!({ "key": name, "value": value(name) })).collect()
    }

    fn span(id: &str, parent: &str, name: &str) -> Value {
        json!({
            "traceId": TASK, "spanId": id, "parentSpanId": parent, "name": name,
            "attributes": attributes(name),
        })
    }

    fn resource(service: &str, spans: &[Value]) -> Value {
        let service = json!({ "key": "service.name", "value": { "stringValue": service } });
        json!({ "resource": { "attributes": [service] }, "scopeSpans": [{ "spans": spans }] })
    }

    /// Returns the spans of a server and a worker about a completed task.
    fn whole() -> [Vec<Value>; 2] {
        let server = vec![span("1", "", "add_task"), span("2", "1", "approve")];
        let worker = vec![
            span("3", "1", "job plan"),
            span("4", "3", "invoke_agent scripted"),
            span("5", "1", "job implement"),
            span("6", "5", "invoke_agent scripted"),
            span("7", "6", "chat scripted"),
            span("8", "6", "execute_tool edit"),
            span("9", "6", "chat scripted"),
            span("a", "1", "job test"),
            span("b", "1", "job review"),
            span("c", "b", "invoke_agent scripted"),
            span("d", "1", "job deliver"),
            span("e", "1", "job learn"),
        ];
        [server, worker]
    }

    fn read([server, worker]: [Vec<Value>; 2]) -> Result<TaskTrace> {
        TaskTrace::read(&[resource(SERVER, &server), resource("tamma-worker", &worker)], TASK)
    }

    #[test]
    fn a_whole_trace_is_accepted() {
        let trace = read(whole()).expect("a whole trace");
        assert_eq!(trace.sum("chat ", "gen_ai.usage.input_tokens").expect("a sum"), 14);
        assert_eq!(trace.names().get("invoke_agent scripted"), Some(&3));
    }

    #[test]
    fn every_lost_span_is_noticed() {
        let [server, worker] = whole();
        for (number, lost) in server.iter().enumerate() {
            let mut rest = server.clone();
            rest.remove(number);
            assert!(read([rest, worker.clone()]).is_err(), "{lost}");
        }
        for (number, lost) in worker.iter().enumerate() {
            let mut rest = worker.clone();
            rest.remove(number);
            // One of the two calls to the model is enough.
            let is_doubled = lost["name"] == "chat scripted";
            assert_eq!(read([server.clone(), rest]).is_ok(), is_doubled, "{lost}");
        }
    }

    #[test]
    fn other_traces_and_wrong_spans_are_refused() {
        let with = |more: Value| {
            let [server, mut worker] = whole();
            worker.push(more);
            let problem = read([server, worker]).expect_err("an incorrect span");
            problem.to_string()
        };
        let mut foreign = span("f", "1", "job plan");
        foreign["traceId"] = json!("0192a000000070008000000200000002");
        assert!(with(foreign).contains("not exactly the trace"));
        assert!(with(span("f", "99", "job plan")).contains("the parent of `job plan`"));
        assert!(with(span("f", "", "job plan")).contains("does not start with the request"));
        assert!(with(span("8", "6", "execute_tool edit")).contains("the same ID"));
        let mut bare = span("f", "6", "chat scripted");
        bare["attributes"] = json!([]);
        assert!(with(bare).contains("has no `gen_ai.operation.name`"));
    }
}
