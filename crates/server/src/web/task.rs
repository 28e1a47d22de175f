//! A task's page, and its parts.

pub(super) mod change;
pub(in crate::web) mod deeds;
pub(super) mod events;
pub(super) mod log;
pub(super) mod plan;
pub(super) mod review;
pub(super) mod way;

use askama::Template;
use axum::extract::{Path, State};
use strum::IntoEnumIterator as _;
use tamma_core::budget;
use tamma_core::complexity;
use tamma_core::ids::TaskId;
use tamma_core::plan::Plan;
use tamma_core::risk::{Factor, Weight};
use tamma_core::rules::{Right, Rules};
use tamma_core::task_loop::{Next, TaskLoop};
use tamma_store::{LinePlace, Verdict};
use uuid::Uuid;

use self::deeds::Deed;
use self::way::Way;
use super::door::Visitor;
use super::live::seen_by_page;
use super::rights::Rights;
use super::shell::{Shell, Tab, When};
use super::words::capital;
use super::{Hall, Oops, Page, render, words};
use crate::app::{App, Error};
use crate::clock;
use crate::shape::{self, short};

/// A page of a task: what all of them have around them, and what is its own.
macro_rules! task_page {
    ($(#[$doc:meta])* $name:ident, $path:literal, { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(askama::Template)]
        #[template(path = $path)]
        struct $name {
            shell: $crate::web::shell::Shell,
            task: $crate::web::task::About,
            live: String,
            tabs: Vec<$crate::web::shell::Tab>,
            question: $crate::web::task::Question,
            cost: $crate::web::task::Cost,
            doing: $crate::web::task::Doing,
            facts: Vec<$crate::web::task::Fact>,
            steer: Vec<$crate::web::task::deeds::Deed>,
            $($field: $type),*
        }

        impl $name {
            fn new(around: $crate::web::task::Around, $($field: $type),*) -> Self {
                let $crate::web::task::Around {
                    shell, task, live, tabs, question, cost, doing, facts, steer,
                } = around;
                Self {
                    shell, task, live, tabs, question, cost, doing, facts, steer, $($field),*
                }
            }
        }
    };
}
pub(super) use task_page;

/// What all pages of a task have around them.
pub(super) struct Around {
    pub(super) shell: Shell,
    pub(super) task: About,
    pub(super) live: String,
    pub(super) tabs: Vec<Tab>,
    pub(super) question: Question,
    pub(super) cost: Cost,
    pub(super) doing: Doing,
    pub(super) facts: Vec<Fact>,
    pub(super) steer: Vec<Deed>,
}

/// What a task is and where it stands.
#[derive(Clone)]
pub(super) struct About {
    pub(super) id: Uuid,
    pub(super) short: String,
    pub(super) title: String,
    pub(super) project: String,
    pub(super) project_href: String,
    pub(super) kind: String,
    pub(super) priority: String,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) next: String,
    pub(super) since: When,
    pub(super) late: bool,
    pub(super) paused: bool,
    pub(super) damage: String,
    /// Whether its question is on the page, which says what comes next.
    pub(super) asked: bool,
    pub(super) ended: bool,
    pub(super) description: Vec<String>,
}

/// The question that waits for a person.
pub(super) struct Question {
    pub(super) open: bool,
    /// Whether only a line of it is shown: it is whole on the first page, and beside the change.
    pub(super) brief: bool,
    pub(super) number: u32,
    pub(super) title: String,
    pub(super) asked: When,
    pub(super) seen_by: String,
    pub(super) reminder: String,
    pub(super) asks: String,
    pub(super) default: String,
    pub(super) may: bool,
    /// Whether they may say that they have seen it.
    pub(super) sees: bool,
    pub(super) may_not: String,
    pub(super) why: Vec<String>,
    pub(super) answers: Vec<Deed>,
}

/// What it has cost, of what it may.
pub(super) struct Cost {
    pub(super) used: String,
    pub(super) limit: String,
    pub(super) about: bool,
    pub(super) percent: u8,
    pub(super) reserved_percent: u8,
    pub(super) tone: &'static str,
    pub(super) words: String,
    pub(super) rows: Vec<CostRow>,
}

pub(super) struct CostRow {
    pub(super) mode: String,
    pub(super) runs: usize,
    pub(super) tokens: String,
    pub(super) usd: String,
}

/// The run that is under way.
pub(super) struct Doing {
    pub(super) running: bool,
    pub(super) agent: String,
    pub(super) model: String,
    pub(super) tier: String,
    pub(super) run: String,
    pub(super) started: When,
    pub(super) line: String,
}

pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) href: String,
}

/// A task with what its pages are made of.
pub(super) struct Known {
    pub(super) whole: shape::Whole,
    pub(super) machine: TaskLoop,
    pub(super) rules: Rules,
    pub(super) project: String,
    pub(super) runs: Vec<shape::Run>,
    /// Up to where the lines of its runs were there when it was read.
    pub(super) lines: LinePlace,
}

impl Known {
    pub(super) async fn of(app: &App, id: TaskId) -> Result<Self, Error> {
        // Before everything else, so that nothing is missed between it and what follows.
        let lines = app.place(id, Some("end")).await?;
        let (whole, machine) = (app.task(id).await?, app.machine(id).await?);
        let project = app.project_by_id(machine.project).await?;
        let rules = match machine.pin {
            Some(pin) => app.store.rules(pin.policy).await?,
            None => app.rules_of(&project.repository).await.unwrap_or_default(),
        };
        let runs = app.runs(id).await?.runs;
        Ok(Self { whole, machine, rules, project: project.name, runs, lines })
    }

    /// What it may spend in all.
    fn limit(&self) -> budget::Limit {
        budget::limit(self.machine.risk(), &self.machine.granted, &self.rules)
    }
}

impl Around {
    /// Reads a task, for one of its pages.
    pub(super) async fn of(
        hall: &Hall,
        visitor: &Visitor,
        id: Uuid,
        here: &str,
    ) -> Result<(Self, Known), Oops> {
        let shell = Shell::at(hall, visitor, "board").await?;
        let known = Known::of(&hall.app, TaskId(id)).await;
        let known = known.map_err(|error| Oops::new(Shell::of(visitor), error))?;
        let mut rights = Rights::of(&hall.app, visitor);
        Ok((Self::new(shell, &known, here, &mut rights).await, known))
    }

    pub(super) async fn new(shell: Shell, known: &Known, here: &str, rights: &mut Rights) -> Self {
        let card = &known.whole.card;
        let steers = rights.may(card.project, Right::Work).await;
        Self {
            shell,
            task: about(known),
            live: live(card.id, here, card.entries, known.lines),
            tabs: tabs(known, here),
            question: question(known, here, rights).await,
            cost: cost(known),
            doing: doing(known),
            facts: facts(known),
            steer: if steers { deeds::steer(known) } else { Vec::new() },
        }
    }
}

/// A part of the page that nothing is added to while somebody looks.
pub(super) const ELSEWHERE: &str = "elsewhere";

/// Where the changes of a page come from that knows so much.
pub(super) fn live(id: Uuid, part: &str, entries: u64, lines: LinePlace) -> String {
    format!("/live/tasks/{id}?part={part}&seen={}", seen_by_page(entries, lines))
}

fn about(known: &Known) -> About {
    let whole = &known.whole;
    let card = &whole.card;
    About {
        id: card.id,
        short: card.short.clone(),
        title: card.title.clone(),
        project: known.project.clone(),
        project_href: super::board::Wanted::of_project(&known.project),
        kind: card.r#type.to_string(),
        priority: card.priority.to_string(),
        state: capital(words::state(card.state)),
        tone: words::tone(card),
        next: match &card.next {
            Some(_) => words::next(card),
            None => "It has ended; nothing moves it any more.".to_owned(),
        },
        since: When::lasting(card.since),
        late: card.due_at.is_some_and(|due| due < clock::now()),
        paused: card.paused,
        damage: whole.damage.clone().unwrap_or_default(),
        asked: card.waits_for_person,
        ended: card.state.is_terminal(),
        description: words::paragraphs(&whole.description),
    }
}

fn tabs(known: &Known, here: &str) -> Vec<Tab> {
    let card = &known.whole.card;
    let count = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    let versions = known.whole.plan.as_ref().map_or(0, |plan| plan.version.into());
    let lines = known.runs.iter().map(|run| run.lines).sum();
    let parts: [(&str, &'static str, String); 6] = [
        ("", "Overview", String::new()),
        ("plan", "Plans", count(versions)),
        ("change", "Change", String::new()),
        ("review", "Review", count(known.whole.runs.len() as u64)),
        ("log", "Log", count(lines)),
        ("events", "Events", count(card.entries)),
    ];
    let tab = |(part, name, note): (&str, &'static str, String)| Tab {
        href: format!("/tasks/{}{}{part}", card.id, if part.is_empty() { "" } else { "/" }),
        name,
        note,
        tone: "",
        here: part == here,
    };
    parts.into_iter().map(tab).collect()
}

async fn question(known: &Known, here: &str, rights: &mut Rights) -> Question {
    let whole = &known.whole;
    let mut answers = Vec::new();
    for answer in whole.question.iter().flat_map(|question| &question.answers) {
        if rights.may(whole.card.project, Right::from(*answer)).await {
            answers.push(*answer);
        }
    }
    let open = whole.question.as_ref().filter(|_| !whole.card.paused);
    let reminder = match &whole.card.next {
        Some(Next::Answer { reminder_at: Some(at), .. }) => {
            format!("Reminds at {}.", words::moment(*at, clock::now()))
        }
        _ => String::new(),
    };
    Question {
        open: open.is_some(),
        brief: open.is_some() && !["", "change"].contains(&here),
        number: open.map_or(0, |it| it.number),
        title: open.map(|it| capital(&it.in_words)).unwrap_or_default(),
        asked: When::ago(open.map_or(whole.card.since, |it| it.asked_at)),
        seen_by: open.and_then(|it| it.seen_by.clone()).unwrap_or_default(),
        reminder,
        asks: open.and_then(|it| it.asks.clone()).unwrap_or_default(),
        default: open.and_then(|it| it.default.clone()).unwrap_or_default(),
        may: !answers.is_empty(),
        may_not: format!("It waits for {}.", rights.waits_for(&whole.card).await),
        sees: rights.may(whole.card.project, Right::Work).await,
        why: deeds::why(known),
        answers: open.map(|_| deeds::answers(known, &answers)).unwrap_or_default(),
    }
}

fn cost(known: &Known) -> Cost {
    let spend = &known.whole.card.spend;
    let limit = known.limit().usd;
    let percent = limit.map(|limit| spend.usd.share_of(limit)).unwrap_or_default();
    let price = budget::price_run(
        known.machine.tier,
        known.machine.plan.as_ref(),
        known.machine.dearest_run,
        &known.rules,
    );
    let mut rows: Vec<CostRow> = Vec::new();
    for mode in ["plan", "implement", "validate", "advise", "conclude", "learn"] {
        let of: Vec<_> = known.runs.iter().filter(|run| run.mode == mode).collect();
        if of.is_empty() {
            continue;
        }
        let usage = || of.iter().filter_map(|run| run.usage);
        let tokens: u64 = usage().map(|it| it.input + it.cached + it.output).sum();
        let usd = usage().filter_map(|it| it.usd).fold(tamma_core::cost::Usd::ZERO, |a, b| a + b);
        rows.push(CostRow {
            mode: mode.to_owned(),
            runs: of.len(),
            tokens: grouped(tokens),
            usd: words::dollars(usd),
        });
    }
    let ended = known.whole.card.state.is_terminal();
    let next = if ended {
        String::new()
    } else {
        format!(" The next run is priced at about {}.", words::dollars(price))
    };
    let with_next = limit.map(|limit| (spend.usd + price).share_of(limit).min(100));
    let reserved_percent = with_next.filter(|_| !ended).unwrap_or(percent);
    Cost {
        used: words::dollars(spend.usd),
        limit: limit.map_or_else(|| "no limit".to_owned(), words::dollars),
        about: spend.estimated,
        percent,
        reserved_percent,
        tone: super::board::fullness(percent),
        words: match limit {
            Some(_) => format!("{percent} % used.{next}"),
            None => next.trim().to_owned(),
        },
        rows,
    }
}

/// A large number with commas.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn doing(known: &Known) -> Doing {
    let present = known.whole.run.as_ref();
    let run = present.map(|present| &present.run);
    Doing {
        running: present.is_some(),
        agent: run.map(|run| run.agent.clone()).unwrap_or_default(),
        model: run.and_then(|run| run.model.clone()).unwrap_or_default(),
        tier: run.and_then(|run| run.tier).map(|tier| tier.to_string()).unwrap_or_default(),
        run: run.map(|run| run.run.clone()).unwrap_or_default(),
        started: When::lasting(run.map_or(known.whole.card.since, |run| run.started_at)),
        line: present
            .and_then(|present| present.doing.as_ref())
            .map(|line| line.text.chars().take(200).collect())
            .unwrap_or_default(),
    }
}

fn facts(known: &Known) -> Vec<Fact> {
    let whole = &known.whole;
    let first = |hash: &String| hash.chars().take(8).collect::<String>();
    let fact = |name, value: String| Fact { name, value, href: String::new() };
    let mut facts = vec![fact("Added", words::moment(whole.card.created_at, clock::now()))];
    facts.extend(whole.base.as_ref().map(|base| fact("Base", first(base))));
    facts.extend(whole.commit.as_ref().map(|commit| fact("Commit", first(commit))));
    facts.extend(
        known
            .machine
            .pin
            .map(|pin| fact("Rules", pin.policy.to_string().chars().take(8).collect())),
    );
    if !whole.labels.is_empty() {
        facts.push(fact("Labels", whole.labels.join(", ")));
    }
    for id in &whole.depends_on {
        facts.push(Fact { name: "Waits for", value: short(*id), href: format!("/tasks/{id}") });
    }
    // An address that somebody else wrote is followed only where it is one of the web.
    if let Some(url) = &whole.issue_url {
        let href = if url.starts_with("https://") || url.starts_with("http://") { url } else { "" };
        facts.push(Fact { name: "Issue", value: url.clone(), href: href.to_owned() });
    }
    facts
}

task_page!(
    /// A page of which the part of its own is written by a template of its own.
    PartPage, "task_part.html", { part: String }
);

/// What is on the first page of a task.
#[derive(Template)]
#[template(path = "_overview.html")]
struct Overview {
    shell: Shell,
    task: About,
    way: Way,
    plan: PlanShown,
    risk: Risk,
    known: Matches,
    criteria: Criteria,
    decisions: Vec<Decided>,
}

/// A plan, as it is read.
pub(super) struct PlanShown {
    any: bool,
    none: String,
    version: u32,
    versions: u32,
    hash: String,
    short: String,
    approval: String,
    editable: bool,
    summary: String,
    files: u16,
    critical: u16,
    complexity: u8,
    level: String,
    estimate: String,
    tier: String,
    approach: Vec<String>,
    file_changes: Vec<FileShown>,
    testing: Vec<String>,
    risks: Vec<String>,
    test_changes: Vec<String>,
}

struct FileShown {
    action: String,
    path: String,
    critical: bool,
    description: String,
    lines: u32,
}

struct Risk {
    any: bool,
    level: String,
    score: u8,
    words: String,
    ceremony: String,
    factors: Vec<FactorShown>,
}

struct FactorShown {
    name: &'static str,
    seen: String,
    effect: String,
    points: u8,
    counts: bool,
}

struct Matches {
    words: String,
    matches: Vec<Matched>,
}

struct Matched {
    role: String,
    icon: &'static str,
    id: Uuid,
    short: String,
    relevance: u8,
    text: String,
    because: Vec<String>,
    origin: String,
}

struct Criteria {
    any: bool,
    list: Vec<Judged>,
}

/// A criterion, and what was said of it.
pub(super) struct Judged {
    pub(super) text: String,
    pub(super) tone: &'static str,
    pub(super) words: String,
    pub(super) place: String,
}

struct Decided {
    at: When,
    by: String,
    verdict: &'static str,
    plan: String,
    risk: String,
    reason: String,
}

pub(super) async fn overview(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Page {
    whole(&hall, &visitor, id, "").await
}

/// A page of which the part of its own changes as a whole.
async fn whole(hall: &Hall, visitor: &Visitor, id: Uuid, here: &str) -> Page {
    let (around, known) = Around::of(hall, visitor, id, here).await?;
    let part = part(&hall.app, &around.shell, &known, here).await;
    let part = part.map_err(|error| Oops::new(Shell::of(visitor), error))?;
    render(&PartPage::new(around, part.unwrap_or_default()))
}

/// The part of a page that changes as a whole, where it has one.
pub(super) async fn part(
    app: &App,
    shell: &Shell,
    known: &Known,
    here: &str,
) -> Result<Option<String>, Error> {
    let html = match here {
        "" => overview_of(app, shell, known).await?.render(),
        "review" => review::of(app, shell, known).await?.render(),
        _ => return Ok(None),
    };
    html.map(Some).map_err(|error| Error::Fault(error.into()))
}

async fn overview_of(app: &App, shell: &Shell, known: &Known) -> Result<Overview, Error> {
    let id = TaskId(known.whole.card.id);
    let plan = match &known.whole.plan {
        Some(_) => app.plan(id).await?.content,
        None => None,
    };
    let way = Way::of(app, known).await?;
    let report = app.report(id, None).await?.report;
    let judged = report.iterations.iter().rev().find(|it| !it.criteria.is_empty());
    let list = match judged {
        Some(iteration) => iteration.criteria.iter().map(review::judged).collect(),
        None => known.whole.acceptance_criteria.iter().map(|text| not_judged(text)).collect(),
    };
    let criteria = Criteria { any: !known.whole.acceptance_criteria.is_empty(), list };
    Ok(Overview {
        shell: shell.clone(),
        task: about(known),
        way,
        plan: plan_shown(known, plan),
        risk: risk(known),
        known: matches(known),
        criteria,
        decisions: decided(known),
    })
}

fn not_judged(text: &str) -> Judged {
    Judged {
        text: text.to_owned(),
        tone: "idle",
        words: "not judged yet".to_owned(),
        place: String::new(),
    }
}

fn plan_shown(known: &Known, plan: Option<Plan>) -> PlanShown {
    let outline = known.whole.plan.as_ref();
    let waits = known.whole.card.answers.contains(&tamma_core::task_loop::Answer::AskChanges);
    let approval = match known.whole.approvals.as_slice() {
        [] if known.machine.approved.is_some() => "approved by the rules: low risk".to_owned(),
        [] => "not approved yet".to_owned(),
        by => {
            let names: Vec<_> = by.iter().map(|approval| approval.by.clone()).collect();
            format!("approved by {}", names.join(" and "))
        }
    };
    let estimate = match outline.and_then(|plan| plan.estimated_cost) {
        Some(usd) => words::dollars(usd),
        None => "not named".to_owned(),
    };
    let score = outline.map_or(0, |plan| plan.complexity);
    let plan = plan.unwrap_or_else(empty_plan);
    PlanShown {
        any: outline.is_some(),
        none: "There is none yet. A planner reads the repository first.".to_owned(),
        version: outline.map_or(0, |plan| plan.version),
        versions: outline.map_or(0, |plan| plan.version),
        hash: outline.map(|plan| plan.hash.clone()).unwrap_or_default(),
        short: outline.map(|plan| plan.hash.chars().take(8).collect()).unwrap_or_default(),
        approval,
        editable: waits,
        summary: plan.summary,
        files: outline.map_or(0, |plan| plan.files),
        critical: outline.map_or(0, |plan| plan.critical_files),
        complexity: score,
        level: match score {
            0..=4 => "simple",
            5..=8 => "moderate",
            _ => "complex",
        }
        .to_owned(),
        estimate,
        tier: known.machine.tier.to_string(),
        approach: words::paragraphs(&plan.approach),
        file_changes: plan
            .file_changes
            .into_iter()
            .map(|change| FileShown {
                action: change.action.to_string(),
                critical: tamma_core::rules::is_critical(&change.path, &known.rules),
                path: change.path,
                description: change.description,
                lines: change.estimated_lines,
            })
            .collect(),
        testing: words::paragraphs(&plan.testing_strategy),
        risks: plan.risks,
        test_changes: plan.test_changes,
    }
}

fn empty_plan() -> Plan {
    Plan {
        summary: String::new(),
        approach: String::new(),
        file_changes: Vec::new(),
        testing_strategy: String::new(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

fn risk(known: &Known) -> Risk {
    let report = known.whole.risk_report.as_ref();
    let level = report.map(|report| report.level);
    let ceremony = level.map(|level| known.rules.ceremony.get(level).clone());
    let words = match (&ceremony, known.limit().usd) {
        (Some(ceremony), limit) => {
            let approvers = words::counted(ceremony.approvers.into(), "approver");
            let budget = limit.map(|usd| format!(", a budget of {}", words::dollars(usd)));
            format!("It asks for {approvers}{}.", budget.unwrap_or_default())
        }
        _ => String::new(),
    };
    let counted = known.machine.check.as_ref().map(|check| check.risk.factors.as_slice());
    Risk {
        any: report.is_some(),
        level: level.map(|level| level.to_string()).unwrap_or_default(),
        score: report.map_or(0, |report| report.score),
        words,
        ceremony: report
            .map(|report| {
                format!(
                    "The knowledge check found {} and {}.",
                    words::counted(report.blockers.into(), "blocker"),
                    words::counted(report.warnings.into(), "warning")
                )
            })
            .unwrap_or_default(),
        factors: Factor::iter().map(|it| factor(it, counted.unwrap_or_default(), known)).collect(),
    }
}

/// What one factor saw and did; also where it did nothing, so that nobody has to guess.
fn factor(factor: Factor, counted: &[(Factor, Weight)], known: &Known) -> FactorShown {
    let weight = counted.iter().find(|(it, _)| *it == factor).map(|(_, weight)| *weight);
    let plan = known.machine.plan.as_ref();
    let files = plan.map_or(0, |plan| plan.files);
    let critical = plan.map_or(0, |plan| plan.critical_files);
    let score = plan.map_or(0, |plan| plan.complexity);
    let level = complexity::Level::of(score);
    let cost = plan.and_then(|plan| plan.estimated_cost);
    let thresholds = &known.rules.scrum_master.risk_thresholds;
    let (low, medium) = (&thresholds.low, &thresholds.medium);
    let seen = match factor {
        Factor::Files => {
            format!("{}; from 6 on 1 point, from 11 on 2", words::counted(files.into(), "file"))
        }
        Factor::Complexity => format!("{level}: {score} of 14"),
        Factor::Warnings => {
            let warnings = known.machine.check.as_ref().map_or(0, |check| check.warnings);
            words::counted(warnings.into(), "warning")
        }
        Factor::CriticalFiles => match critical {
            0 => "none that the rules call critical".to_owned(),
            count => format!("{count} that the rules call critical"),
        },
        Factor::FilesThreshold => {
            format!("{files}; medium above {}, high above {}", low.max_files, medium.max_files)
        }
        Factor::ComplexityThreshold => {
            let (low, medium) = (low.max_complexity, medium.max_complexity);
            format!("{level}; medium above {low}, high above {medium}")
        }
        Factor::CostThreshold => {
            let cost = cost.map_or_else(|| "not estimated".to_owned(), words::dollars);
            let (low, medium) = (low.max_estimated_cost_usd, medium.max_estimated_cost_usd);
            let (low, medium) = (words::dollars(low), words::dollars(medium));
            format!("{cost}; medium above {low}, high above {medium}")
        }
    };
    let (points, effect) = match weight {
        None => (0, "nothing".to_owned()),
        Some(Weight::Points(points)) => (points, words::counted(points.into(), "point")),
        Some(Weight::AtLeast(level)) => (0, format!("makes it at least {level}")),
    };
    let counts = weight.is_some();
    FactorShown { name: words::factor(factor), seen, effect, points, counts }
}

fn matches(known: &Known) -> Matches {
    use tamma_store::MatchRole as Role;
    let matches = known.whole.knowledge.iter().map(|it| Matched {
        role: it.role.to_string(),
        icon: match it.role {
            Role::Blocker => "block",
            Role::Warning => "warn",
            Role::Recommendation => "good",
            Role::Convention => "file",
            Role::Learning => "book",
        },
        id: it.id,
        short: it.short.clone(),
        relevance: it.relevance,
        text: it.text.clone(),
        because: it.because.clone(),
        origin: match (&it.owner, it.evidence.as_slice()) {
            (Some(owner), _) => format!("{owner} answers for it."),
            (None, []) => String::new(),
            (None, evidence) => format!("Based on {}.", evidence.join(", ")),
        },
    });
    Matches {
        words: "A blocker stops the plan until a person decides; a warning raises the risk; the \
                rest is in the agent's prompt."
            .to_owned(),
        matches: matches.collect(),
    }
}

fn decided(known: &Known) -> Vec<Decided> {
    let decision = |it: &shape::Decision| Decided {
        at: When::clock(it.at),
        by: it.by.clone().unwrap_or_else(|| "the rules".to_owned()),
        verdict: match it.verdict {
            Verdict::Approve | Verdict::Auto => "approved",
            Verdict::Reject => "rejected",
            Verdict::Changes => "asked for changes of",
            Verdict::Override => "lifted a prohibition for",
        },
        plan: it.plan.as_ref().map(|hash| hash.chars().take(8).collect()).unwrap_or_default(),
        risk: it.risk.map(|risk| risk.to_string()).unwrap_or_default(),
        reason: it.reason.clone().unwrap_or_default(),
    };
    known.whole.decisions.iter().map(decision).collect()
}
