//! `tamma task show`, and how a task and its plan are shown.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use tamma_core::task_loop::Answer;
use tamma_server::shape::{Ending, Iteration, PlanVersion, RiskReport, Run, Runs, Whole};

use super::list::{drawn, table};
use crate::client::{self, Client, Target};
use crate::commands::knowledge::show::matches;
use crate::look::{self, FAINT, STRONG, ago, lasting, money, paint, styled, words};
use crate::output::{self, counted, plain};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    /// Shows the whole plan too.
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.which(&arguments.id).await?;
        let mut whole: Whole = client.get(&format!("/tasks/{id}"), &[]).await?;
        let waits = whole.card.answers.contains(&Answer::Approve);
        if (arguments.plan || waits) && whole.plan.is_some() {
            whole.plan = Some(client.get(&format!("/tasks/{id}/plan"), &[]).await?);
        }
        if arguments.target.json {
            output::json(&whole)?;
        } else {
            let Runs { runs } = client.get(&format!("/tasks/{id}/runs"), &[]).await?;
            writeln!(anstream::stdout().lock(), "{}", task(&whole, &runs, look::now()))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The commands that answer a task's question, the first one first.
pub(crate) fn suggestions(whole: &Whole) -> Vec<String> {
    let id = &whole.card.short;
    let first = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let plan = whole.plan.as_ref().map(|plan| first(&plan.hash)).unwrap_or_default();
    let commit = whole.commit.as_deref().map(first).unwrap_or_default();
    let command = |answer: &Answer| match answer {
        Answer::Approve => format!("tamma approve {id} --plan {plan}"),
        Answer::Reject => format!("tamma reject {id} --reason TEXT"),
        Answer::AskChanges => format!("tamma modify {id} TEXT"),
        Answer::Override => format!("tamma answer {id} override --plan {plan} --reason TEXT"),
        Answer::Accept => format!("tamma answer {id} accept --commit {commit}"),
        Answer::Rework => format!(
            "tamma answer {id} rework --commit {commit} --reason TEXT [--comment FILE:LINE:TEXT]"
        ),
        Answer::Reply => format!("tamma reply {id} TEXT"),
        Answer::Continue => format!("tamma answer {id} continue [--grant-runs 1]"),
        Answer::Modify => format!("tamma answer {id} modify --reason TEXT"),
        Answer::Retry => format!("tamma retry {id}"),
        Answer::RollBack => format!("tamma answer {id} roll-back --to STATE --reason TEXT"),
        Answer::Skip => format!("tamma answer {id} skip --reason TEXT"),
        Answer::Cancel => format!("tamma cancel {id} --reason TEXT"),
        Answer::Abandon => format!("tamma answer {id} abandon --reason TEXT"),
    };
    whole.card.answers.iter().map(command).collect()
}

/// Rows of a name and a value, the names aligned.
struct Rows(String);

impl Rows {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        look::add(
            &mut self.0,
            format_args!("\n  {} {}", styled(&format!("{name:<10}"), FAINT), value.as_ref()),
        );
    }

    /// Several values under one name.
    fn each(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        for (index, value) in values.into_iter().enumerate() {
            self.add(if index == 0 { name } else { "" }, value);
        }
    }
}

/// Everything that is known of a task.
fn task(whole: &Whole, runs: &[Run], now: DateTime<Utc>) -> String {
    let card = &whole.card;
    let head = format!("{}  {}", styled(&card.short, STRONG), styled(&plain(&card.title), STRONG));
    let mut rows = Rows(head);
    let paused = if card.paused { ", paused" } else { "" };
    let state = format!("{}{paused}", words(&card.state));
    rows.add(
        "state",
        format!("{}, {}", paint(&state, look::of_state(card.state)), ago(card.since, now)),
    );
    rows.add("phase", paint(&card.phase.to_string(), look::colour(card.phase)));
    if let Some(next) = &card.next_in_words {
        rows.add("next", plain(next));
    }
    rows.add("work", format!("{} of {} priority", card.r#type, card.priority));
    rows.add("added", ago(card.created_at, now));
    let tokens = look::number(card.spend.tokens);
    rows.add("cost", format!("{}, {tokens} tokens", money(&card.spend)));
    if let Some(plan) = &whole.plan {
        rows.add("plan", outline(plan));
    }
    if let Some(risk) = &whole.risk_report {
        rows.add("risk", assessed(risk));
    }
    rows.each(
        "approved",
        whole.approvals.iter().map(|it| format!("by {} {}", plain(&it.by), ago(it.at, now))),
    );
    rows.each("run", whole.runs.iter().map(ran));
    rows.each("criterion", whole.acceptance_criteria.iter().map(|text| plain(text)));
    if !whole.labels.is_empty() {
        rows.add("labels", plain(&whole.labels.join(", ")));
    }
    if let Some(issue) = &whole.issue_url {
        rows.add("issue", plain(issue));
    }
    if let Some(question) = whole.question.as_ref() {
        rows.each("asks", question.asks.iter().map(|asks| plain(asks)));
        rows.each("else", question.default.iter().map(|default| plain(default)));
    }
    let open = whole.alerts.iter().filter(|alert| alert.settled_at.is_none());
    rows.each("alert", open.map(|it| format!("{}, {}", plain(&it.in_words), ago(it.at, now))));
    if let Some(damage) = &whole.damage {
        rows.add("damage", plain(damage));
    }
    if let Some(branch) = look::branch(whole) {
        rows.add("branch", branch);
    }
    rows.add("id", card.id.to_string());
    let mut text = rows.0;
    if !whole.description.trim().is_empty() {
        look::add(&mut text, format_args!("\n\n{}", indented(&whole.description)));
    }
    if !whole.knowledge.is_empty() {
        look::add(&mut text, format_args!("\n\n{}", known(whole)));
    }
    if let Some(content) = whole.plan.as_ref().and_then(|plan| plan.content.as_ref()) {
        look::add(&mut text, format_args!("\n\n{}", written(content)));
    }
    if !runs.is_empty() {
        look::add(&mut text, format_args!("\n\n{}", engines(runs, now)));
    }
    let failed =
        |run: &Iteration| matches!(run.ending, Some(Ending::GatesFailed | Ending::ReviewFailed));
    if whole.runs.iter().any(failed) {
        look::add(
            &mut text,
            format_args!("\n\nWhat failed, and what was decided: tamma task report {}", card.short),
        );
    }
    if card.waits_for_person {
        text += "\n\nTo answer:";
        for command in suggestions(whole) {
            look::add(&mut text, format_args!("\n    {command}"));
        }
    }
    text
}

/// The runs of a task: who did what, how it ended, and what it used.
fn engines(runs: &[Run], now: DateTime<Utc>) -> String {
    let heads = ["run", "for", "tier", "agent", "model", "end", "tokens", "cost", "time"];
    let mut table = table(&heads);
    for run in runs {
        let usage = run.usage.as_ref();
        table.add_row([
            run.run.clone(),
            plain(&run.mode),
            run.tier.map(|tier| tier.to_string()).unwrap_or_default(),
            plain(&run.agent),
            run.model.as_deref().map(plain).unwrap_or_default(),
            run.end.map_or_else(|| "under way".to_owned(), |end| words(&end)),
            look::tokens(usage),
            look::cost(usage),
            lasting(run.ended_at.unwrap_or(now) - run.started_at),
        ]);
    }
    drawn(&table)
}

/// What a person sees before they approve.
pub(crate) fn plan(whole: &Whole, plan: &PlanVersion) -> String {
    let mut rows = Rows(styled(&plain(&whole.card.title), STRONG));
    rows.add("plan", outline(plan));
    if let Some(risk) = &whole.risk_report {
        rows.add("risk", assessed(risk));
    }
    let spent = money(&whole.card.spend);
    let cost = match plan.estimated_cost {
        Some(cost) => format!("about {}, after {spent} so far", look::dollars(cost)),
        None => format!("not estimated, after {spent} so far"),
    };
    rows.add("cost", cost);
    let mut text = rows.0;
    if !whole.knowledge.is_empty() {
        look::add(&mut text, format_args!("\n\n{}", known(whole)));
    }
    match &plan.content {
        Some(content) => format!("{text}\n\n{}\n", written(content)),
        None => text,
    }
}

/// What the team knows about the plan.
fn known(whole: &Whole) -> String {
    format!("What the team knows about it:\n{}", matches(&whole.knowledge))
}

fn outline(plan: &PlanVersion) -> String {
    let hash = plan.hash.get(..12).unwrap_or(&plan.hash);
    let critical = match plan.critical_files {
        0 => String::new(),
        some => format!(" ({some} critical)"),
    };
    let files = counted(plan.files.into(), "file");
    format!(
        "{hash}, version {}, {files}{critical}, complexity {} of 14",
        plan.version, plan.complexity
    )
}

fn assessed(risk: &RiskReport) -> String {
    let mut text = paint(&risk.level.to_string(), look::of_risk(risk.level));
    let factors: Vec<_> =
        risk.factors.iter().map(|it| format!("{} {}", words(&it.factor), it.effect)).collect();
    if !factors.is_empty() {
        look::add(&mut text, format_args!(": {}", factors.join(", ")));
    }
    if risk.blockers > 0 {
        look::add(
            &mut text,
            format_args!("; breaks {}", counted(risk.blockers.into(), "critical prohibition")),
        );
    }
    if risk.warnings > 0 {
        look::add(&mut text, format_args!("; {}", counted(risk.warnings.into(), "warning")));
    }
    text
}

fn ran(run: &Iteration) -> String {
    let mut text = format!("#{}", run.number);
    if let Some(tier) = run.tier {
        look::add(&mut text, format_args!(" {tier}"));
    }
    if let Some(engine) = &run.engine {
        look::add(&mut text, format_args!(" with {}", plain(engine)));
    }
    match run.ending {
        Some(ending) => look::add(&mut text, format_args!(": {}", words(&ending))),
        None => text += ": under way",
    }
    if let Some(score) = run.score {
        look::add(&mut text, format_args!(", score {score}"));
    }
    text
}

fn written(plan: &tamma_core::plan::Plan) -> String {
    let mut text = indented(&plan.summary);
    look::add(&mut text, format_args!("\n\n{}\n", indented(&plan.approach)));
    for change in &plan.file_changes {
        look::add(
            &mut text,
            format_args!(
                "\n  {} {} {}",
                match change.action {
                    tamma_core::plan::Action::Create => paint("+", anstyle::AnsiColor::Green),
                    tamma_core::plan::Action::Modify => paint("~", anstyle::AnsiColor::Yellow),
                    tamma_core::plan::Action::Delete => paint("-", anstyle::AnsiColor::Red),
                },
                styled(&plain(&change.path), STRONG),
                plain(&change.description)
            ),
        );
    }
    look::add(
        &mut text,
        format_args!("\n\n  {}  {}", styled("tests ", FAINT), plain(&plan.testing_strategy)),
    );
    for risk in &plan.risks {
        look::add(&mut text, format_args!("\n  {}  {}", styled("beware", FAINT), plain(risk)));
    }
    text
}

/// A text of several lines, a little to the right.
fn indented(text: &str) -> String {
    let line = |line: &str| format!("  {}", plain(line)).trim_end().to_owned();
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A task that waits for an approval.
    pub(crate) fn whole() -> Whole {
        let text = include_str!("../../../tests/fixtures/waits.json");
        serde_json::from_str(text).expect("a task")
    }

    #[test]
    fn a_task_that_waits_shows_its_plan_and_the_commands_that_answer() {
        let now = "2026-11-15T10:23:30Z".parse().expect("a moment");
        let text = anstream::adapter::strip_str(&task(&whole(), &[], now)).to_string();
        insta::assert_snapshot!(text, @r"
        1a2b3c4d  Greet the whole world
          state      awaiting approval, 3 min ago
          phase      Approve
          next       a plan of medium risk needs approval
          work       feature of high priority
          added      23 min ago
          cost       ~$0.42, 12,345 tokens
          plan       0123456789ab, version 2, 2 files (1 critical), complexity 5 of 14
          risk       medium: files 1 point, warnings 1 point; 1 warning
          run        #1 simple with claude: gates failed
          criterion  it greets
          labels     nice, small
          id         0192a000-0000-7000-8000-00001a2b3c4d

          In every language.
          Also in Welsh.

          Greets everybody.

          One table of greetings.

          + src/greet.rs the table
          ~ src/lib.rs its use

          tests   A test for each language.
          beware  Welsh is hard

        What failed, and what was decided: tamma task report 1a2b3c4d

        To answer:
            tamma approve 1a2b3c4d --plan 0123456789ab
            tamma reject 1a2b3c4d --reason TEXT
            tamma modify 1a2b3c4d TEXT
            tamma answer 1a2b3c4d modify --reason TEXT
            tamma cancel 1a2b3c4d --reason TEXT
        ");
    }

    #[test]
    fn runs_are_a_table_and_what_nobody_knows_is_unknown() {
        let run = |fields: serde_json::Value| -> Run {
            let mut run = serde_json::json!({
                "run": "2", "ticket": 2, "attempt": 1, "agent": "claude-code", "model": "opus",
                "tier": "complex", "mode": "plan", "session": null,
                "started_at": "2026-11-15T10:20:00Z", "ended_at": "2026-11-15T10:21:00Z",
                "end": "finished", "reason": null, "calls": 3, "lines": 7, "transcript": true,
                "usage": {
                    "input": 1200, "cached": 30, "output": 4, "usd": "0.03", "metered": true
                },
            });
            let fields = fields.as_object().expect("an object").clone();
            run.as_object_mut().expect("an object").extend(fields);
            serde_json::from_value(run).expect("a run")
        };
        let now = "2026-11-15T10:23:30Z".parse().expect("a moment");
        let runs = [
            run(serde_json::json!({})),
            run(serde_json::json!({
                "run": "4.2", "mode": "implement", "end": null, "ended_at": null, "model": null,
                "usage": null, "tier": null,
            })),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&engines(&runs, now)), @r"
        run  for        tier     agent        model  end        tokens   cost     time
        2    plan       complex  claude-code  opus   finished   1,234    $0.03    1 min
        4.2  implement           claude-code         under way  unknown  unknown  3 min
        ");
    }

    #[test]
    fn the_plan_to_approve_has_its_risk_with_the_factors_and_its_cost() {
        let whole = whole();
        let plan = plan(&whole, whole.plan.as_ref().expect("a plan"));
        insta::assert_snapshot!(anstream::adapter::strip_str(&plan), @r"
        Greet the whole world
          plan       0123456789ab, version 2, 2 files (1 critical), complexity 5 of 14
          risk       medium: files 1 point, warnings 1 point; 1 warning
          cost       about $0.40, after ~$0.42 so far

          Greets everybody.

          One table of greetings.

          + src/greet.rs the table
          ~ src/lib.rs its use

          tests   A test for each language.
          beware  Welsh is hard
        ");
    }

    #[test]
    fn an_approver_reads_what_the_team_knows_why_it_matched_and_where_it_comes_from() {
        let knowledge = serde_json::json!([
            {
                "role": "blocker", "id": "0192a000-0000-7000-8000-0000aaaa0001",
                "short": "aaaa0001", "text": "No tables:\n use \u{1b}[31mgettext.",
                "relevance": 100, "reasons": [], "severity": "critical", "owner": "maya",
                "because": ["`src/greet.rs` is under `src/**`", "it speaks of `table`"],
                "evidence": ["commit:4be01d9"], "shown": true,
            },
            {
                "role": "learning", "id": "0192a000-0000-7000-8000-0000aaaa0002",
                "short": "aaaa0002", "text": "Welsh needs a plural of its own.",
                "relevance": 82, "reasons": [], "severity": "low", "because": [],
                "evidence": [], "shown": true,
            },
        ]);
        let knowledge = serde_json::from_value(knowledge).expect("matches");
        let whole = Whole { knowledge, ..whole() };
        let plan = plan(&whole, whole.plan.as_ref().expect("a plan"));
        let told = anstream::adapter::strip_str(&plan).to_string();
        let (_, told) = told.split_once("so far\n\n").expect("the head");
        let (told, _) = told.split_once("\n\n").expect("the plan");
        insta::assert_snapshot!(told, @r"
        What the team knows about it:
          blocker        aaaa0001  No tables: use \u{1b}[31mgettext.
                         because `src/greet.rs` is under `src/**`, and it speaks of `table` (commit:4be01d9, ask maya)
          learning       aaaa0002  Welsh needs a plural of its own.
                         because it speaks of the same things
        ");
        let shown = task(&whole, &[], "2026-11-15T10:23:30Z".parse().expect("a moment"));
        assert!(anstream::adapter::strip_str(&shown).to_string().contains(told));
    }
}
