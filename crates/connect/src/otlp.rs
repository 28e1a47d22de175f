//! Export of spans to an OpenTelemetry backend, as JSON over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use tamma_telemetry::trace::{SpanRecord, SpanValue};

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of all spans: internal.
const SPAN_KIND: u8 = 1;

/// Code of the status of a failed span.
const STATUS_ERROR: u8 = 2;

/// Exporter of spans.
#[derive(Debug, Clone)]
pub struct OtlpExporter {
    http: reqwest::Client,
    url: String,
    headers: Vec<(String, String)>,
    service: String,
}

/// Failure to export spans.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// Backend cannot be reached.
    #[error("cannot reach the trace backend; check OTEL_EXPORTER_OTLP_ENDPOINT")]
    Unreachable(#[source] reqwest::Error),
    /// Backend refused the spans.
    #[error("the trace backend returned {0}; check OTEL_EXPORTER_OTLP_HEADERS")]
    Refused(u16),
}

impl OtlpExporter {
    /// Creates an exporter to an endpoint such as `http://127.0.0.1:4318`. `headers` has the form
    /// `name=value,name=value`, with percent-encoded values.
    pub fn new(endpoint: &str, headers: &str, service: &str) -> Result<Self, OtlpError> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).build();
        let pairs = headers.split(',').filter_map(|pair| pair.split_once('='));
        let read =
            |(name, value): (&str, &str)| (name.trim().to_owned(), percent_decoded(value.trim()));
        Ok(Self {
            http: http.map_err(OtlpError::Unreachable)?,
            url: format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            headers: pairs.map(read).collect(),
            service: service.to_owned(),
        })
    }

    /// Sends spans once.
    pub async fn export(&self, spans: &[SpanRecord]) -> Result<(), OtlpError> {
        let mut request = self.http.post(&self.url).json(&trace_body(&self.service, spans));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        // The URL can contain a secret.
        let response = request.send().await;
        let response = response.map_err(|error| OtlpError::Unreachable(error.without_url()))?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(OtlpError::Refused(status.as_u16())) }
    }
}

/// Decodes a percent-encoded text. The parser of forms takes `+` for a space, and `&` for the next field.
fn percent_decoded(text: &str) -> String {
    let field = format!("={}", text.replace('+', "%2B").replace('&', "%26"));
    let mut fields = form_urlencoded::parse(field.as_bytes());
    fields.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn trace_body(service: &str, spans: &[SpanRecord]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span_json).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [attribute("service.name", &service.into())] },
            "scopeSpans": [{ "scope": { "name": "tamma" }, "spans": spans }],
        }],
    })
}

fn span_json(span: &SpanRecord) -> Value {
    let attributes: Vec<Value> =
        span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut json = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": SPAN_KIND,
        "startTimeUnixNano": span.start_nanos.to_string(),
        "endTimeUnixNano": span.end_nanos.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if let Some(error) = &span.error {
        json["status"] = json!({ "code": STATUS_ERROR, "message": error });
    }
    json
}

fn attribute(name: &str, value: &SpanValue) -> Value {
    let value = match value {
        SpanValue::Text(text) => json!({ "stringValue": text }),
        // 64-bit numbers are strings in this format.
        SpanValue::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_json_form_of_otlp() {
        let span = SpanRecord {
            trace: 0x0192_a000,
            id: 7,
            parent: Some(1),
            name: "execute_tool read".to_owned(),
            start_nanos: 1_790_000_000_000_000_000,
            end_nanos: 1_790_000_000_000_000_001,
            attributes: vec![("gen_ai.tool.name", "read".into()), ("n", 3_u64.into())],
            error: Some("failed".to_owned()),
        };
        let body = trace_body("tamma", &[span]);
        let resource = &body["resourceSpans"][0];
        let service = json!({ "key": "service.name", "value": { "stringValue": "tamma" } });
        assert_eq!(resource["resource"]["attributes"][0], service);
        assert_eq!(
            resource["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "0000000000000000000000000192a000",
                "spanId": "0000000000000007",
                "name": "execute_tool read",
                "kind": 1,
                "startTimeUnixNano": "1790000000000000000",
                "endTimeUnixNano": "1790000000000000001",
                "attributes": [
                    { "key": "gen_ai.tool.name", "value": { "stringValue": "read" } },
                    { "key": "n", "value": { "intValue": "3" } },
                ],
                "parentSpanId": "0000000000000001",
                "status": { "code": 2, "message": "failed" },
            })
        );
    }

    #[test]
    fn headers_and_path_come_from_the_usual_variables() {
        let exporter = OtlpExporter::new("http://localhost:4318/", "a=b, c = d=e", "tamma");
        let exporter = exporter.expect("exporter");
        assert_eq!(exporter.url, "http://localhost:4318/v1/traces");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(exporter.headers, [pair("a", "b"), pair("c", "d=e")]);
        let headers = "authorization=Basic%20YTpi%2Bw%3D%3D,x=1%2C2,y=a+b&c=d,z=100%,n=";
        let exporter = OtlpExporter::new("http://localhost:4318", headers, "tamma");
        assert_eq!(
            exporter.expect("exporter").headers,
            [
                pair("authorization", "Basic YTpi+w=="),
                pair("x", "1,2"),
                pair("y", "a+b&c=d"),
                pair("z", "100%"),
                pair("n", ""),
            ]
        );
    }
}
