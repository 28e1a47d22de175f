//! Registry of counters, gauges and histograms.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::names;

/// Maximum number of combinations of labels of one metric.
const MAX_SERIES: usize = 2000;

/// Metric with its name, description and kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name, such as `tamma_http_requests_total`.
    pub name: Cow<'static, str>,
    /// Description in one line.
    pub help: Cow<'static, str>,
    /// Kind of its values.
    pub kind: MetricKind,
}

/// Kind of the values of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Sum that only grows.
    Counter,
    /// Value that can change in both directions.
    Gauge,
    /// Distribution, with the upper bounds of its buckets in ascending order.
    Histogram(&'static [f64]),
}

/// Registry of metrics.
#[derive(Debug, Default)]
pub struct MetricsRegistry(Mutex<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    families: BTreeMap<String, MetricFamily>,
    dropped: u64,
}

#[derive(Debug)]
struct MetricFamily {
    help: String,
    kind: MetricKind,
    /// Values by labels, which are sorted by name.
    series: BTreeMap<Vec<(String, String)>, SeriesValue>,
}

#[derive(Debug, Clone)]
enum SeriesValue {
    Number(f64),
    Distribution {
        /// Number of values in each bucket, without those in smaller ones.
        counts: Vec<u64>,
        count: u64,
        sum: f64,
    },
}

/// Returns the registry of this process.
pub fn registry() -> &'static MetricsRegistry {
    static REGISTRY: LazyLock<MetricsRegistry> = LazyLock::new(MetricsRegistry::default);
    &REGISTRY
}

/// Converts a count. Above 2^53, the nearest number that can be represented is returned.
pub fn to_f64(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(count & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    f64::from(high) * (f64::from(u32::MAX) + 1.0) + f64::from(low)
}

impl MetricsRegistry {
    /// Adds to a counter or a gauge.
    pub fn add(&self, metric: &Metric, labels: &[(&str, &str)], delta: f64) {
        self.change(metric, labels, |value| {
            if let SeriesValue::Number(number) = value {
                *number += delta;
            }
        });
    }

    /// Sets a gauge.
    pub fn set(&self, metric: &Metric, labels: &[(&str, &str)], to: f64) {
        self.change(metric, labels, |value| *value = SeriesValue::Number(to));
    }

    /// Adds a value to a histogram.
    pub fn observe(&self, metric: &Metric, labels: &[(&str, &str)], observed: f64) {
        let MetricKind::Histogram(bounds) = metric.kind else { return };
        self.change(metric, labels, |value| {
            if let SeriesValue::Distribution { counts, count, sum } = value {
                let bucket = bounds.iter().position(|bound| observed <= *bound);
                if let Some(bucket) = bucket.and_then(|bucket| counts.get_mut(bucket)) {
                    *bucket += 1;
                }
                *count += 1;
                *sum += observed;
            }
        });
    }

    /// Removes all values of a metric, such as those of labels that no longer occur.
    pub fn clear(&self, metric: &Metric) {
        if let Some(family) = self.state().families.get_mut(metric.name.as_ref()) {
            family.series.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        metric: &Metric,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut SeriesValue),
    ) {
        let mut labels: Vec<(String, String)> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        labels.sort_unstable();
        let mut state = self.state();
        let RegistryState { families, dropped } = &mut *state;
        let family = families.entry(metric.name.clone().into_owned()).or_insert_with(|| {
            let (help, kind) = (metric.help.clone().into_owned(), metric.kind);
            MetricFamily { help, kind, series: BTreeMap::new() }
        });
        if family.series.len() >= MAX_SERIES && !family.series.contains_key(&labels) {
            *dropped += 1;
            return;
        }
        change(family.series.entry(labels).or_insert_with(|| match metric.kind {
            MetricKind::Counter | MetricKind::Gauge => SeriesValue::Number(0.0),
            MetricKind::Histogram(bounds) => {
                SeriesValue::Distribution { counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
            }
        }));
    }

    /// Returns all metrics in the text format of Prometheus.
    pub fn render(&self) -> String {
        let dropped = self.state().dropped;
        self.set(&names::DROPPED_SERIES, &[], to_f64(dropped));
        let mut text = String::new();
        for (name, family) in &self.state().families {
            family.render(name, &mut text);
        }
        text
    }
}

impl MetricFamily {
    fn render(&self, name: &str, text: &mut String) {
        let kind = match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        let help = self.help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in &self.series {
            match (value, self.kind) {
                (SeriesValue::Number(number), _) => {
                    let _ = writeln!(text, "{name}{} {number}", format_labels(labels, None));
                }
                (
                    SeriesValue::Distribution { counts, count, sum },
                    MetricKind::Histogram(bounds),
                ) => {
                    let mut total = 0;
                    for (bound, in_bucket) in bounds.iter().zip(counts) {
                        total += in_bucket;
                        let labels = format_labels(labels, Some(&bound.to_string()));
                        let _ = writeln!(text, "{name}_bucket{labels} {total}");
                    }
                    let all = format_labels(labels, Some("+Inf"));
                    let labels = format_labels(labels, None);
                    let _ = writeln!(text, "{name}_bucket{all} {count}");
                    let _ =
                        writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}");
                }
                (SeriesValue::Distribution { .. }, MetricKind::Counter | MetricKind::Gauge) => {}
            }
        }
    }
}

/// Formats labels, and the upper bound of a bucket.
fn format_labels(labels: &[(String, String)], bound: Option<&str>) -> String {
    let escape =
        |value: &str| value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    let own = labels.iter().map(|(name, value)| format!(r#"{name}="{}""#, escape(value)));
    let all: Vec<_> = own.chain(bound.map(|bound| format!(r#"le="{bound}""#))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: Metric = Metric {
        name: Cow::Borrowed("requests_total"),
        help: Cow::Borrowed("Requests."),
        kind: MetricKind::Counter,
    };
    const SECONDS: Metric = Metric {
        name: Cow::Borrowed("request_seconds"),
        help: Cow::Borrowed("Durations."),
        kind: MetricKind::Histogram(&[0.5, 1.0]),
    };

    #[test]
    fn metrics_have_the_text_format_of_prometheus() {
        let registry = MetricsRegistry::default();
        registry.add(&REQUESTS, &[("status", "2xx"), ("route", "a\"b\\c\nd")], 2.0);
        registry.add(&REQUESTS, &[("route", "a\"b\\c\nd"), ("status", "2xx")], 1.0);
        for seconds in [0.5, 0.7, 3.0] {
            registry.observe(&SECONDS, &[], seconds);
        }
        let expected = r#"# HELP request_seconds Durations.
# TYPE request_seconds histogram
request_seconds_bucket{le="0.5"} 1
request_seconds_bucket{le="1"} 2
request_seconds_bucket{le="+Inf"} 3
request_seconds_sum 4.2
request_seconds_count 3
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{route="a\"b\\c\nd",status="2xx"} 3
# HELP tamma_dropped_series_total Values that were dropped because their metric has too many combinations of labels.
# TYPE tamma_dropped_series_total counter
tamma_dropped_series_total 0
"#;
        assert_eq!(registry.render(), expected);
    }

    #[test]
    fn series_of_a_metric_are_limited() {
        let registry = MetricsRegistry::default();
        for number in 0..MAX_SERIES + 5 {
            registry.add(&REQUESTS, &[("id", number.to_string().as_str())], 1.0);
        }
        let text = registry.render();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("requests_total{")).count(),
            MAX_SERIES
        );
        assert!(text.contains("tamma_dropped_series_total 5\n"), "{text}");
        registry.clear(&REQUESTS);
        assert!(!registry.render().contains("requests_total{"));
    }

    #[test]
    fn large_counts_are_converted() {
        for (count, expected) in [(0, 0.0), (7, 7.0), (1 << 40, 1_099_511_627_776.0)] {
            assert!((to_f64(count) - expected).abs() < f64::EPSILON, "{count}");
        }
    }
}
