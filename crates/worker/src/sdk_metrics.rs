//! Metrics of the Temporal SDK, in the registry of this process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use tamma_telemetry::{Metric, MetricKind, registry, to_f64};
use temporalio_common::telemetry::METRIC_PREFIX;
use temporalio_common::telemetry::metrics::{
    CoreMeter, Counter, CounterBase, Gauge, GaugeBase, GaugeF64, GaugeF64Base, Histogram,
    HistogramBase, HistogramDuration, HistogramDurationBase, HistogramF64, HistogramF64Base,
    MetricAttributable, MetricAttributes, MetricParameters, NewAttributes, UpDownCounter,
    UpDownCounterBase, default_buckets_for,
};

/// Receiver of the SDK's metrics. Their labels are task queues and types of workflows and activities,
/// so there are few.
#[derive(Debug)]
pub(crate) struct SdkMeter;

/// Metric of the SDK with its labels.
#[derive(Debug, Clone)]
struct SdkInstrument {
    metric: Arc<Metric>,
    labels: Arc<HashMap<String, String>>,
}

impl SdkInstrument {
    /// Creates an instrument whose name follows the conventions of Prometheus.
    fn new(parameters: MetricParameters, suffix: &str, kind: MetricKind) -> Arc<Self> {
        let MetricParameters { name, description, .. } = parameters;
        let name =
            if name.ends_with(suffix) { name.into_owned() } else { format!("{name}{suffix}") };
        let help =
            if description.is_empty() { Cow::Borrowed("Temporal SDK.") } else { description };
        let metric = Arc::new(Metric { name: name.into(), help, kind });
        Arc::new(Self { metric, labels: Arc::default() })
    }

    fn histogram(parameters: MetricParameters, suffix: &str, is_in_seconds: bool) -> Arc<Self> {
        let name = parameters.name.strip_prefix(METRIC_PREFIX).unwrap_or(&parameters.name);
        let kind = MetricKind::Histogram(default_buckets_for(name, is_in_seconds));
        Self::new(parameters, suffix, kind)
    }

    fn with_labels(&self, attributes: &MetricAttributes) -> Self {
        let labels = match attributes {
            MetricAttributes::NoOp(labels) => Arc::clone(labels),
            _ => Arc::default(),
        };
        Self { metric: Arc::clone(&self.metric), labels }
    }

    fn labels(&self) -> Vec<(&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    fn add(&self, delta: f64) {
        registry().add(&self.metric, &self.labels(), delta);
    }

    fn set(&self, value: f64) {
        registry().set(&self.metric, &self.labels(), value);
    }

    fn observe(&self, value: f64) {
        registry().observe(&self.metric, &self.labels(), value);
    }
}

/// Implements the traits of one kind of instrument.
macro_rules! instrument {
    ($base:ident, $method:ident, $value:ty, |$own:ident, $given:ident| $record:expr) => {
        impl MetricAttributable<Box<dyn $base>> for SdkInstrument {
            fn with_attributes(
                &self,
                attributes: &MetricAttributes,
            ) -> Result<Box<dyn $base>, Box<dyn StdError>> {
                Ok(Box::new(self.with_labels(attributes)))
            }
        }

        impl $base for SdkInstrument {
            fn $method(&self, $given: $value) {
                let $own = self;
                $record;
            }
        }
    };
}

instrument!(CounterBase, adds, u64, |own, value| own.add(to_f64(value)));
instrument!(GaugeBase, records, u64, |own, value| own.set(to_f64(value)));
instrument!(GaugeF64Base, records, f64, |own, value| own.set(value));
instrument!(HistogramBase, records, u64, |own, value| own.observe(to_f64(value)));
instrument!(HistogramF64Base, records, f64, |own, value| own.observe(value));
instrument!(HistogramDurationBase, records, Duration, |own, value| {
    own.observe(value.as_secs_f64());
});
instrument!(UpDownCounterBase, adds, i64, |own, value| {
    let size = to_f64(value.unsigned_abs());
    own.add(if value < 0 { -size } else { size });
});

impl CoreMeter for SdkMeter {
    fn new_attributes(&self, attributes: NewAttributes) -> MetricAttributes {
        MetricAttributes::NoOp(Arc::new(attributes.into()))
    }

    fn extend_attributes(
        &self,
        existing: MetricAttributes,
        attributes: NewAttributes,
    ) -> MetricAttributes {
        let mut labels = match existing {
            MetricAttributes::NoOp(labels) => labels.as_ref().clone(),
            _ => HashMap::new(),
        };
        let more: HashMap<String, String> = attributes.into();
        labels.extend(more);
        MetricAttributes::NoOp(Arc::new(labels))
    }

    fn counter(&self, parameters: MetricParameters) -> Counter {
        Counter::new(SdkInstrument::new(parameters, "_total", MetricKind::Counter))
    }

    fn histogram(&self, parameters: MetricParameters) -> Histogram {
        Histogram::new(SdkInstrument::histogram(parameters, "", false))
    }

    fn histogram_f64(&self, parameters: MetricParameters) -> HistogramF64 {
        HistogramF64::new(SdkInstrument::histogram(parameters, "", false))
    }

    fn histogram_duration(&self, parameters: MetricParameters) -> HistogramDuration {
        HistogramDuration::new(SdkInstrument::histogram(parameters, "_seconds", true))
    }

    fn gauge(&self, parameters: MetricParameters) -> Gauge {
        Gauge::new(SdkInstrument::new(parameters, "", MetricKind::Gauge))
    }

    fn gauge_f64(&self, parameters: MetricParameters) -> GaugeF64 {
        GaugeF64::new(SdkInstrument::new(parameters, "", MetricKind::Gauge))
    }

    fn up_down_counter(&self, parameters: MetricParameters) -> UpDownCounter {
        UpDownCounter::new(SdkInstrument::new(parameters, "", MetricKind::Gauge))
    }
}

#[cfg(test)]
mod tests {
    use temporalio_common::telemetry::metrics::MetricKeyValue;

    use super::*;

    #[test]
    fn metrics_of_the_sdk_are_on_the_page_of_the_process() {
        let meter = SdkMeter;
        let queue = |name: &str| vec![MetricKeyValue::new("task_queue", name.to_owned())].into();
        let labels = meter.new_attributes(queue("tamma"));
        meter.counter("temporal_sample_request".into()).add(2, &labels);
        let labels = meter.extend_attributes(labels, queue("tamma-engines"));
        meter.gauge("temporal_sample_pollers".into()).record(5, &labels);
        let latency = meter.histogram_duration("temporal_sample_latency".into());
        latency.record(Duration::from_millis(60), &labels);
        let text = registry().render();
        for line in [
            "temporal_sample_request_total{task_queue=\"tamma\"} 2\n",
            "temporal_sample_pollers{task_queue=\"tamma-engines\"} 5\n",
            "temporal_sample_latency_seconds_bucket{task_queue=\"tamma-engines\",le=\"0.05\"} 0\n",
            "temporal_sample_latency_seconds_bucket{task_queue=\"tamma-engines\",le=\"0.1\"} 1\n",
            "temporal_sample_latency_seconds_count{task_queue=\"tamma-engines\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
