//! Costs, and the figures that Tamma is judged by, over time.

mod chart;

use askama::Template;
use axum::extract::{Query, State};
use chrono::{Days, TimeDelta};
use serde::Deserialize;
use tamma_core::cost::Usd;
use tamma_core::metrics::Metrics;
use tamma_core::task_loop::Timestamp;
use tamma_store::SpendOn;

use self::chart::{Chart, Mark, Size};
use super::door::Visitor;
use super::shell::{Choice, Shell};
use super::{Hall, Oops, Page, render, words};
use crate::app::Error;
use crate::clock;
use crate::shape::Goals;

/// How many parts a figure is shown in.
const PARTS: u32 = 10;

/// How many tasks are named.
const NAMED: u32 = 8;

#[derive(Template)]
#[template(path = "figures.html")]
struct Figures {
    shell: Shell,
    summary: String,
    empty: bool,
    projects: Vec<Choice>,
    days: Vec<Choice>,
    spending: Vec<Chart>,
    goals: Vec<Chart>,
    groups: Vec<Group>,
}

struct Group {
    name: &'static str,
    tables: Vec<Table>,
}

struct Table {
    name: &'static str,
    unit: &'static str,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    href: String,
    percent: u8,
    value: String,
}

/// Which figures are wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    project: String,
    days: String,
}

pub(super) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Page {
    let shell = Shell::at(&hall, &visitor, "figures").await?;
    let days: u32 = wanted.days.parse().ok().filter(|days| (1..=366).contains(days)).unwrap_or(30);
    let made = figures(&hall, &wanted.project, days, shell);
    render(&made.await.map_err(|error| Oops::new(Shell::of(&visitor), error))?)
}

async fn figures(hall: &Hall, project: &str, days: u32, shell: Shell) -> Result<Figures, Error> {
    let store = &hall.app.store;
    let projects = store.projects().await?;
    let of = match project {
        "" => None,
        name => Some(hall.app.project(Some(name)).await?.id),
    };
    let now = clock::now();
    let since = now - TimeDelta::days(days.into());
    let spent = store.spend_by_day(of, since).await?;
    let by_job = store.spend_by_job(of, since).await?;
    let dearest = store.dearest_tasks(of, since, NAMED).await?;
    let by_state = store.by_state(of).await?;
    let whole = store.metrics(of, since, None).await?;
    let step = TimeDelta::minutes(i64::from(days) * 24 * 60 / i64::from(PARTS));
    let mut parts = Vec::new();
    for part in 0..PARTS {
        let from = since + step * i32::try_from(part).unwrap_or_default();
        let until = if part + 1 == PARTS { None } else { Some(from + step) };
        parts.push((from, store.metrics(of, from, until).await?));
    }
    let unknown: u64 = spent.iter().map(|day| day.unknown).sum();
    let total = spent.iter().fold(Usd::ZERO, |sum, day| sum + day.usd);
    let bars = (0..=days).filter_map(|back| {
        let day = now.date_naive().checked_sub_days(Days::new((days - back).into()))?;
        let usd = spent.iter().find(|it| it.day == day).map_or(Usd::ZERO, |it| it.usd);
        Some(Mark {
            name: day.format("%-d %b").to_string(),
            value: Some(money(usd)),
            words: words::dollars(usd),
        })
    });
    let note = match unknown {
        0 => format!("{days} days"),
        runs => format!("{days} days, {} of unknown cost", words::counted(runs, "run")),
    };
    let spending = Chart::bars(Size::Large, "spend", "Cost by day", bars.collect())
        .valued(words::dollars(total))
        .noted(note);
    let most = by_state.values().copied().max().unwrap_or(1).max(1);
    let states = by_state.iter().map(|(state, count)| Row {
        name: words::plain(state),
        href: format!("/?phase={}", super::board::word(&state.phase())),
        percent: u8::try_from(count * 100 / most).unwrap_or(100),
        value: count.to_string(),
    });
    let choices = projects.iter().map(|it| Choice::new(&it.name, &it.name, project));
    let days_said = days.to_string();
    Ok(Figures {
        shell,
        summary: format!("the last {days} days, from the log and from nothing else"),
        empty: whole.ended == 0 && spent.is_empty(),
        projects: std::iter::once(Choice::new("", "all", project)).chain(choices).collect(),
        days: ["7", "30", "90", "365"]
            .into_iter()
            .map(|days| Choice::new(days, days, &days_said))
            .collect(),
        spending: vec![spending],
        goals: goals(&whole, &parts),
        groups: vec![
            Group {
                name: "Where it goes",
                tables: vec![
                    Table { name: "By kind of work", unit: "Cost", rows: rows(&by_job, total) },
                    Table { name: "The dearest tasks", unit: "Cost", rows: rows(&dearest, total) },
                ],
            },
            Group {
                name: "Where tasks are",
                tables: vec![Table { name: "By state", unit: "Tasks", rows: states.collect() }],
            },
        ],
    })
}

fn rows(spent: &[SpendOn], total: Usd) -> Vec<Row> {
    spent
        .iter()
        .map(|it| Row {
            name: match it.task {
                Some(_) => it.what.clone(),
                None => words::plain(&it.what),
            },
            href: it.task.map(|task| format!("/tasks/{task}")).unwrap_or_default(),
            percent: it.usd.share_of(total),
            value: words::dollars(it.usd),
        })
        .collect()
}

/// Money as a number that can be drawn.
fn money(usd: Usd) -> f64 {
    usd.with_cents().trim_start_matches('$').parse().unwrap_or_default()
}

/// One figure of all.
struct Figure {
    id: &'static str,
    name: &'static str,
    of: fn(&Metrics) -> Option<f64>,
    words: fn(f64) -> String,
    /// Whether it must be over the goal, and the goal.
    goal: Option<(bool, f64)>,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn number(number: u64) -> f64 {
    number as f64
}

fn goals(whole: &Metrics, parts: &[(Timestamp, Metrics)]) -> Vec<Chart> {
    let goal = Goals::default();
    let percent = |value: f64| format!("{value:.0} %");
    let time = |value: f64| match value {
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms => format!("{:.0} min", ms / 60_000.0),
    };
    let figures = [
        Figure {
            id: "completion",
            name: "Tasks completed",
            of: |it| it.completion_rate.map(number),
            words: percent,
            goal: Some((true, number(goal.completion_rate_over))),
        },
        Figure {
            id: "retries",
            name: "Adjusted plans per task",
            of: |it| it.retries_per_100_tasks.map(|it| number(it) / 100.0),
            words: |value| format!("{value:.2}"),
            goal: Some((false, number(goal.retries_per_100_tasks_under) / 100.0)),
        },
        Figure {
            id: "lessons",
            name: "Tasks that left a lesson",
            of: |it| it.lesson_rate.map(number),
            words: percent,
            goal: Some((true, number(goal.lesson_rate_over))),
        },
        Figure {
            id: "turnaround",
            name: "Approval turnaround, median",
            of: |it| it.approval_turnaround_ms.map(number),
            words: time,
            goal: Some((false, number(goal.approval_turnaround_ms_under))),
        },
        Figure {
            id: "latency",
            name: "Transition latency, 99th percentile",
            of: |it| it.transition_latency_ms.map(number),
            words: time,
            goal: Some((false, number(goal.transition_latency_ms_under))),
        },
        Figure {
            id: "rating",
            name: "Rating",
            of: |it| it.rating_hundredths.map(|it| number(it) / 100.0),
            words: |value| format!("{value:.1} of 5"),
            goal: Some((true, number(goal.rating_hundredths_over) / 100.0)),
        },
        Figure {
            id: "cost",
            name: "Cost per completed task",
            of: |it| it.cost_per_completed.map(money),
            words: |value| format!("${value:.2}"),
            goal: None,
        },
    ];
    figures
        .into_iter()
        .map(|figure| {
            let marks = parts
                .iter()
                .map(|(from, metrics)| {
                    let value = (figure.of)(metrics);
                    Mark {
                        name: from.format("%-d %b").to_string(),
                        value,
                        words: value.map_or_else(|| "none".to_owned(), figure.words),
                    }
                })
                .collect();
            let now = (figure.of)(whole);
            let chart = Chart::bars(Size::Small, figure.id, figure.name, marks)
                .valued(now.map_or_else(|| "no case yet".to_owned(), figure.words));
            match figure.goal {
                Some((over, goal)) => {
                    let word = if over { "over" } else { "under" };
                    let met = now.map(|now| if over { now > goal } else { now < goal });
                    chart.held_to(goal, format!("{word} {}", (figure.words)(goal)), met)
                }
                None => chart,
            }
        })
        .collect()
}
