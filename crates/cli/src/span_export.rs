//! Export of traces, configured by the variables of OpenTelemetry.

use std::time::Duration;

use anyhow::Result;
use tamma_connect::otlp::OtlpExporter;
use tamma_telemetry::trace::spans;
use tokio_util::sync::CancellationToken;

/// Time between two exports.
const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of spans in one request.
const BATCH_SIZE: usize = 500;

/// Returns the exporter to `OTEL_EXPORTER_OTLP_ENDPOINT`; `None` if it is not set. The service has the
/// name in `OTEL_SERVICE_NAME`, or one after its role.
pub(crate) fn exporter(role: &str) -> Result<Option<OtlpExporter>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(endpoint) = variable("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
    let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| role.to_owned());
    spans().enable();
    Ok(Some(OtlpExporter::new(&endpoint, &headers, &service)?))
}

/// Exports spans until `done` is cancelled, and then the rest. Those that the backend does not take are
/// dropped.
pub(crate) async fn run(exporter: Option<OtlpExporter>, done: CancellationToken) {
    let Some(exporter) = exporter else { return };
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        let is_last = tokio::select! {
            () = done.cancelled() => true,
            _ = tick.tick() => false,
        };
        loop {
            let batch = spans().take(BATCH_SIZE);
            if batch.is_empty() {
                break;
            }
            if let Err(error) = exporter.export(&batch).await {
                tracing::warn!(%error, spans = batch.len(), "failed to export spans");
                break;
            }
        }
        if is_last {
            return;
        }
    }
}
