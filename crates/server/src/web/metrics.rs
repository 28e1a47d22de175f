//! Metrics page: spend, and metrics with their targets over time.

mod chart;
mod counts;

use askama::Template;
use axum::extract::Query;
use chrono::Days;
use serde::Deserialize;
use tamma_core::aftercare::{Calibration, FactorCalibration, LevelCalibration};
use tamma_core::cost::Usd;
use tamma_core::format::{capitalize, format_usd, humanize, pluralize};
use tamma_core::metrics::Metrics;
use tamma_core::task_loop::Timestamp;
use tamma_store::SpendItem;

use self::chart::{Chart, ChartPoint, ChartSize};
pub(super) use self::counts::MetricsCache;
use self::counts::{CountsKey, PageCounts};
use super::labels::state_label;
use super::layout::{Layout, SelectOption};
use super::session::Session;
use super::{PageError, PageResult, WebState, render};
use crate::app::Error;
use crate::dto::MetricTargets;

/// Periods that people can choose, in days. No others are counted: counting is expensive.
const PERIODS: [u32; 4] = [7, 30, 90, 365];

#[derive(Template)]
#[template(path = "metrics.html")]
struct MetricsPage {
    layout: Layout,
    summary: String,
    is_empty: bool,
    projects: Vec<SelectOption>,
    periods: Vec<SelectOption>,
    spend_charts: Vec<Chart>,
    target_charts: Vec<Chart>,
    groups: Vec<TableGroup>,
}

struct TableGroup {
    name: &'static str,
    tables: Vec<BarTable>,
}

struct BarTable {
    name: &'static str,
    unit: &'static str,
    rows: Vec<BarRow>,
}

struct BarRow {
    name: String,
    href: Option<String>,
    percent: u8,
    value: String,
}

/// Query parameters of the metrics page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetricsPageQuery {
    project: String,
    days: String,
}

pub(super) async fn page(
    state: WebState,
    session: Session,
    Query(query): Query<MetricsPageQuery>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "figures").await?;
    let days: u32 = query.days.parse().ok().filter(|days| PERIODS.contains(days)).unwrap_or(30);
    let page = load_metrics(&state, &session, &query.project, days, layout);
    render(&page.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?)
}

async fn load_metrics(
    state: &WebState,
    session: &Session,
    project: &str,
    days: u32,
    layout: Layout,
) -> Result<MetricsPage, Error> {
    let store = &state.app.store;
    let projects = store.projects().await?;
    let project_id = match project {
        "" => None,
        name => Some(state.app.resolve_project(Some(name)).await?.id),
    };
    let key = CountsKey::new(&session.rights, project_id, days);
    let counts = state.metrics_cache.counts(store, key).await?;
    let PageCounts { at, spent, by_job, costliest, by_state, overall, parts, .. } = &*counts;
    let unknown: u64 = spent.iter().map(|day| day.unpriced_jobs).sum();
    let total = spent.iter().fold(Usd::ZERO, |sum, day| sum + day.usd);
    let bars = (0..=days).filter_map(|back| {
        let day = at.date_naive().checked_sub_days(Days::new((days - back).into()))?;
        let found = spent.iter().find(|it| it.day == day);
        let (usd, unknown) = found.map_or((Usd::ZERO, 0), |it| (it.usd, it.unpriced_jobs));
        Some(ChartPoint {
            name: day.format("%-d %b").to_string(),
            value: Some(usd_as_f64(usd)),
            label: cost_text(usd, unknown),
        })
    });
    let note = match unknown {
        0 => format!("{days} days"),
        runs => format!("{days} days, {} of unknown cost", pluralize(runs, "run")),
    };
    let spending = Chart::bars(ChartSize::Large, "spend", "Cost per day", bars.collect())
        .with_value(cost_text(total, unknown))
        .with_note(note);
    let most = by_state.values().copied().max().unwrap_or(1).max(1);
    let states = by_state.iter().map(|(state, count)| BarRow {
        name: capitalize(state_label(*state)),
        href: Some(format!("/?phase={}", super::board::serialized_name(&state.phase()))),
        percent: u8::try_from(count * 100 / most).unwrap_or(100),
        value: count.to_string(),
    });
    let choices = projects.iter().map(|it| SelectOption::new(&it.name, &it.name, project));
    let selected_days = days.to_string();
    Ok(MetricsPage {
        layout,
        summary: summary(days, &counts),
        is_empty: counts.is_empty(),
        projects: std::iter::once(SelectOption::new("", "All", project)).chain(choices).collect(),
        periods: PERIODS
            .into_iter()
            .map(|days| days.to_string())
            .map(|days| SelectOption::new(&days, &days, &selected_days))
            .collect(),
        spend_charts: vec![spending],
        target_charts: target_charts(overall, parts, unknown > 0),
        groups: [
            TableGroup {
                name: "Cost breakdown",
                tables: vec![
                    BarTable { name: "By job type", unit: "Cost", rows: spend_rows(by_job, total) },
                    BarTable {
                        name: "Most expensive tasks",
                        unit: "Cost",
                        rows: spend_rows(costliest, total),
                    },
                ],
            },
            TableGroup {
                name: "Tasks",
                tables: vec![
                    BarTable { name: "By state", unit: "Tasks", rows: states.collect() },
                    BarTable { name: "Councils", unit: "Councils", rows: council_rows(overall) },
                ],
            },
        ]
        .into_iter()
        .chain(aftercare_group(&counts.aftercare))
        .collect(),
    })
}

/// Returns the subtitle. Kept counts show their time.
fn summary(days: u32, counts: &PageCounts) -> String {
    let summary = format!("Last {days} days, from task history");
    if counts.is_kept() {
        format!("{summary}, counted at {}", counts.at.format("%Y-%m-%d %H:%M UTC"))
    } else {
        summary
    }
}

/// Returns what followed the councils. Those of open tasks may be undecided.
fn council_rows(metrics: &Metrics) -> Vec<BarRow> {
    let decided = metrics.councils_resolved + metrics.councils_unresolved;
    let undecided = metrics.councils.saturating_sub(decided);
    [
        ("Convened", metrics.councils),
        ("Resolved", metrics.councils_resolved),
        ("Not resolved", metrics.councils_unresolved),
        ("Undecided", undecided),
    ]
    .into_iter()
    .map(|(name, count)| BarRow {
        name: name.to_owned(),
        href: None,
        percent: u8::try_from(count * 100 / metrics.councils.max(1)).unwrap_or(100),
        value: count.to_string(),
    })
    .collect()
}

/// Returns what happened to merged changes, compared with their predicted risk. `None` if no change
/// was merged.
fn aftercare_group(calibration: &Calibration) -> Option<TableGroup> {
    (calibration.merged > 0).then(|| TableGroup {
        name: "After the merge",
        tables: vec![
            BarTable { name: "Merged changes", unit: "Changes", rows: aftercare_rows(calibration) },
            BarTable {
                name: "Findings by predicted risk",
                unit: "Changes with findings",
                rows: level_rows(calibration),
            },
            BarTable {
                name: "Findings by risk factor",
                unit: "Changes with findings",
                rows: factor_rows(calibration),
            },
        ],
    })
}

/// Counts what happened to merged changes.
fn aftercare_rows(calibration: &Calibration) -> Vec<BarRow> {
    [
        ("Merged", calibration.merged),
        ("Reverted", calibration.reverted),
        ("Fixed later", calibration.fixed),
        ("Broke the base branch", calibration.broke_base),
    ]
    .into_iter()
    .map(|(name, count)| BarRow {
        name: name.to_owned(),
        href: None,
        percent: u8::try_from(count * 100 / calibration.merged.max(1)).unwrap_or(100),
        value: count.to_string(),
    })
    .collect()
}

/// Returns the rate of findings by predicted level.
fn level_rows(calibration: &Calibration) -> Vec<BarRow> {
    let row = |it: &LevelCalibration| BarRow {
        name: capitalize(&it.level.to_string()),
        href: None,
        percent: rate_percent(it.rate),
        value: format!("{} of {}", it.with_findings, it.merged),
    };
    calibration.by_level.iter().map(row).collect()
}

/// Returns the rate of findings by factor, compared with the changes that do not have it.
fn factor_rows(calibration: &Calibration) -> Vec<BarRow> {
    let row = |it: &FactorCalibration| {
        let others = it.rate_without.map(|rate| format!(" (without: {rate}%)"));
        let others = others.unwrap_or_default();
        BarRow {
            name: capitalize(&humanize(&it.factor)),
            href: None,
            percent: rate_percent(it.rate),
            value: format!("{} of {}{others}", it.with_findings, it.merged),
        }
    };
    calibration.by_factor.iter().map(row).collect()
}

fn rate_percent(rate: Option<u64>) -> u8 {
    u8::try_from(rate.unwrap_or_default()).unwrap_or(100)
}

fn spend_rows(spent: &[SpendItem], total: Usd) -> Vec<BarRow> {
    spent
        .iter()
        .map(|it| BarRow {
            name: match it.task {
                Some(_) => it.what.clone(),
                None => capitalize(&humanize(&it.what)),
            },
            href: it.task.map(|task| format!("/tasks/{task}")),
            percent: it.usd.percent_of(total),
            value: cost_text(it.usd, it.unpriced_jobs),
        })
        .collect()
}

/// Formats the cost of several jobs, some of which may be unknown. An unknown cost is not zero.
fn cost_text(known: Usd, unpriced_jobs: u64) -> String {
    match (unpriced_jobs, known > Usd::ZERO) {
        (0, _) => format_usd(known),
        (_, true) => format!("≥ {}", format_usd(known)),
        (_, false) => "unknown".to_owned(),
    }
}

/// Converts an amount to a number for a chart.
fn usd_as_f64(usd: Usd) -> f64 {
    format_usd(usd).trim_start_matches('$').parse().unwrap_or_default()
}

/// Definition of one metric.
struct MetricDefinition {
    id: &'static str,
    name: &'static str,
    value: fn(&Metrics) -> Option<f64>,
    format: fn(f64) -> String,
    /// Target, with `true` if the metric must be above it and `false` if below.
    target: Option<(bool, f64)>,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Builds the charts of metrics. If the cost of a job is unknown, a cost of zero is not known either.
fn target_charts(
    overall: &Metrics,
    parts: &[(Timestamp, Metrics)],
    has_unknown_costs: bool,
) -> Vec<Chart> {
    let is_unknown = |definition: &MetricDefinition, metrics: &Metrics| {
        let is_zero = metrics.cost_per_completed == Some(Usd::ZERO);
        has_unknown_costs && is_zero && definition.id == "cost"
    };
    let targets = MetricTargets::default();
    let percent = |value: f64| format!("{value:.0}%");
    let time = |value: f64| match value {
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms => format!("{:.0} min", ms / 60_000.0),
    };
    let definitions = [
        MetricDefinition {
            id: "completion",
            name: "Completion rate",
            value: |it| it.completion_rate.map(to_f64),
            format: percent,
            target: Some((true, to_f64(targets.completion_rate_over))),
        },
        MetricDefinition {
            id: "retries",
            name: "Plan revisions per task",
            value: |it| it.retries_per_100_tasks.map(|it| to_f64(it) / 100.0),
            format: |value| format!("{value:.2}"),
            target: Some((false, to_f64(targets.retries_per_100_tasks_under) / 100.0)),
        },
        MetricDefinition {
            id: "lessons",
            name: "Tasks with lessons",
            value: |it| it.lesson_rate.map(to_f64),
            format: percent,
            target: Some((true, to_f64(targets.lesson_rate_over))),
        },
        MetricDefinition {
            id: "turnaround",
            name: "Approval time (median)",
            value: |it| it.approval_turnaround_ms.map(to_f64),
            format: time,
            target: Some((false, to_f64(targets.approval_turnaround_ms_under))),
        },
        MetricDefinition {
            id: "latency",
            name: "Transition latency (p99)",
            value: |it| it.transition_latency_ms.map(to_f64),
            format: time,
            target: Some((false, to_f64(targets.transition_latency_ms_under))),
        },
        MetricDefinition {
            id: "rating",
            name: "Rating",
            value: |it| it.rating_hundredths.map(|it| to_f64(it) / 100.0),
            format: |value| format!("{value:.1} of 5"),
            target: Some((true, to_f64(targets.rating_hundredths_over) / 100.0)),
        },
        MetricDefinition {
            id: "cost",
            name: "Cost per completed task",
            value: |it| it.cost_per_completed.map(usd_as_f64),
            format: |value| format!("${value:.2}"),
            target: None,
        },
    ];
    definitions
        .into_iter()
        .map(|definition| {
            let points = parts
                .iter()
                .map(|(from, metrics)| {
                    let is_unknown = is_unknown(&definition, metrics);
                    let value = (definition.value)(metrics).filter(|_| !is_unknown);
                    let none = if is_unknown { "unknown" } else { "none" };
                    ChartPoint {
                        name: from.format("%-d %b").to_string(),
                        value,
                        label: value.map_or_else(|| none.to_owned(), definition.format),
                    }
                })
                .collect();
            let is_unknown = is_unknown(&definition, overall);
            let now = (definition.value)(overall).filter(|_| !is_unknown);
            let none = if is_unknown { "unknown" } else { "No data yet" };
            let chart = Chart::bars(ChartSize::Small, definition.id, definition.name, points)
                .with_value(now.map_or_else(|| none.to_owned(), definition.format));
            match definition.target {
                Some((over, target)) => {
                    let word = if over { "over" } else { "under" };
                    let met = now.map(|now| if over { now > target } else { now < target });
                    chart.with_target(
                        target,
                        format!("{word} {}", (definition.format)(target)),
                        met,
                    )
                }
                None => chart,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cost_is_not_zero() {
        let cents = Usd::from_cents;
        assert_eq!(cost_text(cents(0), 0), "$0.00");
        assert_eq!(cost_text(cents(0), 2), "unknown");
        assert_eq!(cost_text(cents(150), 2), "≥ $1.50");
    }

    #[test]
    fn the_cost_of_a_task_is_unknown_if_agents_report_none() {
        let free = Metrics { cost_per_completed: Some(Usd::ZERO), ..Metrics::default() };
        let paid = Metrics { cost_per_completed: Some(Usd::from_cents(150)), ..Metrics::default() };
        let values = |metrics: &Metrics, has_unknown_costs| {
            let parts = [(Timestamp::UNIX_EPOCH, metrics.clone())];
            let charts = target_charts(metrics, &parts, has_unknown_costs);
            charts.into_iter().map(|chart| chart.value).collect::<Vec<_>>()
        };
        assert_eq!(values(&free, false).last().map(String::as_str), Some("$0.00"));
        assert_eq!(values(&free, true).last().map(String::as_str), Some("unknown"));
        assert_eq!(values(&paid, true).last().map(String::as_str), Some("$1.50"));
        assert_eq!(
            values(&Metrics::default(), true).last().map(String::as_str),
            Some("No data yet")
        );
    }
}
