//! Task page and its tabs.

pub(in crate::web) mod actions;
pub(super) mod change;
pub(super) mod events;
pub(super) mod log;
pub(super) mod plan;
pub(super) mod review;
pub(super) mod timeline;

use askama::Template;
use axum::extract::{Path, State};
use strum::IntoEnumIterator as _;
use tamma_core::budget;
use tamma_core::complexity;
use tamma_core::format::{capitalize, format_number, format_usd, pluralize};
use tamma_core::ids::TaskId;
use tamma_core::plan::Plan;
use tamma_core::risk::{FactorEffect, RiskFactor};
use tamma_core::rules::{Permission, Rules};
use tamma_core::task_loop::{NextStep, TaskLoop};
use tamma_store::{LinePosition, PlanVerdict};
use uuid::Uuid;

use self::actions::ActionForm;
use self::timeline::Timeline;
use super::layout::{DisplayTime, Layout, Tab};
use super::live::encode_position;
use super::permissions::PagePermissions;
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error};
use crate::clock;
use crate::dto::{self, short_id};

/// Defines the page of one tab: the common fields of all task pages, and its own.
macro_rules! task_page {
    ($(#[$doc:meta])* $name:ident, $path:literal, { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(askama::Template)]
        #[template(path = $path)]
        struct $name {
            layout: $crate::web::layout::Layout,
            task: $crate::web::task::TaskHeader,
            live_href: String,
            tabs: Vec<$crate::web::layout::Tab>,
            question: $crate::web::task::QuestionView,
            cost: $crate::web::task::CostView,
            current_run: $crate::web::task::CurrentRunView,
            details: Vec<$crate::web::task::DetailRow>,
            actions: Vec<$crate::web::task::actions::ActionForm>,
            $($field: $type),*
        }

        impl $name {
            fn new(context: $crate::web::task::TaskPageContext, $($field: $type),*) -> Self {
                let $crate::web::task::TaskPageContext {
                    layout, task, live_href, tabs, question, cost, current_run, details, actions,
                } = context;
                Self {
                    layout, task, live_href, tabs, question, cost, current_run, details, actions,
                    $($field),*
                }
            }
        }
    };
}
pub(super) use task_page;

/// Common values of all task pages.
pub(super) struct TaskPageContext {
    pub(super) layout: Layout,
    pub(super) task: TaskHeader,
    pub(super) live_href: String,
    pub(super) tabs: Vec<Tab>,
    pub(super) question: QuestionView,
    pub(super) cost: CostView,
    pub(super) current_run: CurrentRunView,
    pub(super) details: Vec<DetailRow>,
    pub(super) actions: Vec<ActionForm>,
}

/// Header of a task: identity and status.
#[derive(Clone)]
pub(super) struct TaskHeader {
    pub(super) id: Uuid,
    pub(super) short_id: String,
    pub(super) title: String,
    pub(super) project: String,
    pub(super) project_href: String,
    pub(super) kind: String,
    pub(super) priority: String,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) next: String,
    pub(super) since: DisplayTime,
    pub(super) is_overdue: bool,
    pub(super) is_paused: bool,
    pub(super) damage: String,
    /// Set if the page shows the open question, which replaces the next step.
    pub(super) has_question: bool,
    pub(super) is_closed: bool,
    pub(super) description: Vec<String>,
}

/// Open question of a task.
pub(super) struct QuestionView {
    pub(super) is_open: bool,
    /// Set if only its title is shown. The overview and the change show it in full.
    pub(super) is_brief: bool,
    pub(super) number: u32,
    pub(super) title: String,
    pub(super) asked_at: DisplayTime,
    pub(super) seen_by: String,
    pub(super) reminder: String,
    pub(super) agent_question: String,
    pub(super) default_answer: String,
    pub(super) can_answer: bool,
    /// Set if the viewer can mark it as seen.
    pub(super) can_acknowledge: bool,
    pub(super) waiting_on: String,
    pub(super) context: Vec<String>,
    pub(super) answers: Vec<ActionForm>,
}

/// Spend of a task and its limit.
pub(super) struct CostView {
    pub(super) spent: String,
    pub(super) limit: String,
    pub(super) is_estimated: bool,
    pub(super) percent: u8,
    pub(super) reserved_percent: u8,
    pub(super) tone: &'static str,
    pub(super) summary: String,
    pub(super) rows: Vec<CostRow>,
}

pub(super) struct CostRow {
    pub(super) mode: String,
    pub(super) runs: usize,
    pub(super) tokens: String,
    pub(super) usd: String,
}

/// Run in progress.
pub(super) struct CurrentRunView {
    pub(super) is_running: bool,
    pub(super) agent: String,
    pub(super) model: String,
    pub(super) tier: String,
    pub(super) run: String,
    pub(super) started: DisplayTime,
    pub(super) last_line: String,
}

pub(super) struct DetailRow {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) href: String,
}

/// Data that all pages of a task are built from.
pub(super) struct TaskData {
    pub(super) detail: dto::TaskDetail,
    pub(super) task_loop: TaskLoop,
    pub(super) rules: Rules,
    pub(super) project: String,
    pub(super) runs: Vec<dto::RunDetail>,
    /// Newest log position at load time.
    pub(super) lines: LinePosition,
}

impl TaskData {
    pub(super) async fn load(app: &App, id: TaskId) -> Result<Self, Error> {
        // Read first, so that live updates miss nothing.
        let lines = app.resolve_line_position(id, Some("end")).await?;
        let (whole, machine) = (app.task_detail(id).await?, app.task_loop(id).await?);
        let project = app.project_by_id(machine.project).await?;
        let rules = match machine.pin {
            Some(pin) => app.store.rules(pin.policy).await?,
            None => app.project_rules(&project.repository).await.unwrap_or_default(),
        };
        let runs = app.runs(id).await?.runs;
        Ok(Self { detail: whole, task_loop: machine, rules, project: project.name, runs, lines })
    }

    /// Returns the spending limit of the task.
    fn budget_limit(&self) -> budget::SpendLimit {
        budget::task_limit(self.task_loop.risk_level(), &self.task_loop.granted, &self.rules)
    }
}

impl TaskPageContext {
    /// Loads a task for one of its pages.
    pub(super) async fn load(
        hall: &WebState,
        visitor: &Session,
        id: Uuid,
        here: &str,
    ) -> Result<(Self, TaskData), PageError> {
        let shell = Layout::for_page(hall, visitor, "board").await?;
        let known = TaskData::load(&hall.app, TaskId(id)).await;
        let known = known.map_err(|error| PageError::new(Layout::for_session(visitor), error))?;
        let mut rights = PagePermissions::for_session(&hall.app, visitor);
        Ok((Self::new(shell, &known, here, &mut rights).await, known))
    }

    pub(super) async fn new(
        shell: Layout,
        known: &TaskData,
        here: &str,
        rights: &mut PagePermissions,
    ) -> Self {
        let card = &known.detail.card;
        let steers = rights.allows(card.project, Permission::Work).await;
        Self {
            layout: shell,
            task: task_header(known),
            live_href: live_href(card.id, here, card.entries, known.lines),
            tabs: task_tabs(known, here),
            question: question_view(known, here, rights).await,
            cost: cost_view(known),
            current_run: current_run(known),
            details: detail_rows(known),
            actions: if steers { actions::control_forms(known) } else { Vec::new() },
        }
    }
}

/// Name of a page part that live updates never extend.
pub(super) const NO_LIVE_PART: &str = "elsewhere";

/// Returns the URL of live updates from this position on.
pub(super) fn live_href(id: Uuid, part: &str, entries: u64, lines: LinePosition) -> String {
    format!("/live/tasks/{id}?part={part}&seen={}", encode_position(entries, lines))
}

fn task_header(known: &TaskData) -> TaskHeader {
    let whole = &known.detail;
    let card = &whole.card;
    TaskHeader {
        id: card.id,
        short_id: card.short.clone(),
        title: card.title.clone(),
        project: known.project.clone(),
        project_href: super::board::BoardQuery::project_href(&known.project),
        kind: card.r#type.to_string(),
        priority: card.priority.to_string(),
        state: capitalize(labels::state_label(card.state)),
        tone: labels::task_tone(card),
        next: match &card.next {
            Some(_) => labels::next_step(card),
            None => "This task is closed".to_owned(),
        },
        since: DisplayTime::elapsed(card.since),
        is_overdue: card.due_at.is_some_and(|due| due < clock::now()),
        is_paused: card.paused,
        damage: whole.read_error.clone().unwrap_or_default(),
        has_question: card.waits_for_person,
        is_closed: card.state.is_terminal(),
        description: labels::paragraphs(&whole.description),
    }
}

fn task_tabs(known: &TaskData, here: &str) -> Vec<Tab> {
    let card = &known.detail.card;
    let count = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    let versions = known.detail.plan.as_ref().map_or(0, |plan| plan.version.into());
    let lines = known.runs.iter().map(|run| run.lines).sum();
    let parts: [(&str, &'static str, String); 6] = [
        ("", "Overview", String::new()),
        ("plan", "Plans", count(versions)),
        ("change", "Change", String::new()),
        ("review", "Review", count(known.detail.iterations.len() as u64)),
        ("log", "Log", count(lines)),
        ("events", "History", count(card.entries)),
    ];
    let tab = |(part, name, note): (&str, &'static str, String)| Tab {
        href: format!("/tasks/{}{}{part}", card.id, if part.is_empty() { "" } else { "/" }),
        name,
        note,
        tone: "",
        is_current: part == here,
    };
    parts.into_iter().map(tab).collect()
}

async fn question_view(known: &TaskData, here: &str, rights: &mut PagePermissions) -> QuestionView {
    let whole = &known.detail;
    let mut answers = Vec::new();
    for answer in whole.question.iter().flat_map(|question| &question.answers) {
        if rights.allows(whole.card.project, Permission::from(*answer)).await {
            answers.push(*answer);
        }
    }
    let open = whole.question.as_ref().filter(|_| !whole.card.paused);
    let reminder = match &whole.card.next {
        Some(NextStep::Answer { reminder_at: Some(at), .. }) => {
            format!("· next reminder at {}", labels::format_time(*at, clock::now()))
        }
        _ => String::new(),
    };
    QuestionView {
        is_open: open.is_some(),
        is_brief: open.is_some() && !["", "change"].contains(&here),
        number: open.map_or(0, |it| it.number),
        title: open.map(|it| capitalize(&it.cause_text)).unwrap_or_default(),
        asked_at: DisplayTime::ago(open.map_or(whole.card.since, |it| it.asked_at)),
        seen_by: open.and_then(|it| it.seen_by.clone()).unwrap_or_default(),
        reminder,
        agent_question: open.and_then(|it| it.agent_question.clone()).unwrap_or_default(),
        default_answer: open.and_then(|it| it.default.clone()).unwrap_or_default(),
        can_answer: !answers.is_empty(),
        waiting_on: format!("Waiting on {}.", rights.waiting_on(&whole.card).await),
        can_acknowledge: rights.allows(whole.card.project, Permission::Work).await,
        context: actions::decision_context(known),
        answers: open.map(|_| actions::answer_forms(known, &answers)).unwrap_or_default(),
    }
}

fn cost_view(known: &TaskData) -> CostView {
    let spend = &known.detail.card.spend;
    let limit = known.budget_limit().usd;
    let percent = limit.map(|limit| spend.usd.percent_of(limit)).unwrap_or_default();
    let price = budget::estimate_run_cost(
        known.task_loop.tier,
        known.task_loop.plan.as_ref(),
        known.task_loop.max_run_cost,
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
            tokens: format_number(tokens),
            usd: format_usd(usd),
        });
    }
    let ended = known.detail.card.state.is_terminal();
    let next = if ended {
        String::new()
    } else {
        format!(" The next run is estimated at {}.", format_usd(price))
    };
    let with_next = limit.map(|limit| (spend.usd + price).percent_of(limit).min(100));
    let reserved_percent = with_next.filter(|_| !ended).unwrap_or(percent);
    CostView {
        spent: format_usd(spend.usd),
        limit: limit.map_or_else(|| "no limit".to_owned(), format_usd),
        is_estimated: spend.estimated,
        percent,
        reserved_percent,
        tone: super::board::budget_tone(percent),
        summary: match limit {
            Some(_) => format!("{percent}% used.{next}"),
            None => next.trim().to_owned(),
        },
        rows,
    }
}

fn current_run(known: &TaskData) -> CurrentRunView {
    let present = known.detail.current_run.as_ref();
    let run = present.map(|present| &present.run);
    CurrentRunView {
        is_running: present.is_some(),
        agent: run.map(|run| run.agent.clone()).unwrap_or_default(),
        model: run.and_then(|run| run.model.clone()).unwrap_or_default(),
        tier: run.and_then(|run| run.tier).map(|tier| tier.to_string()).unwrap_or_default(),
        run: run.map(|run| run.run.clone()).unwrap_or_default(),
        started: DisplayTime::elapsed(run.map_or(known.detail.card.since, |run| run.started_at)),
        last_line: present
            .and_then(|present| present.current_line.as_ref())
            .map(|line| line.text.chars().take(200).collect())
            .unwrap_or_default(),
    }
}

fn detail_rows(known: &TaskData) -> Vec<DetailRow> {
    let whole = &known.detail;
    let fact = |name, value: String| DetailRow { name, value, href: String::new() };
    let mut facts = vec![fact("Added", labels::format_time(whole.card.created_at, clock::now()))];
    facts.extend(whole.base.as_ref().map(|base| fact("Base", labels::short_hash(base))));
    facts.extend(whole.commit.as_ref().map(|commit| fact("Commit", labels::short_hash(commit))));
    facts.extend(known.task_loop.pin.map(|pin| fact("Rules", labels::short_hash(&pin.policy))));
    if !whole.labels.is_empty() {
        facts.push(fact("Labels", whole.labels.join(", ")));
    }
    for id in &whole.depends_on {
        facts.push(DetailRow {
            name: "Depends on",
            value: short_id(*id),
            href: format!("/tasks/{id}"),
        });
    }
    // Link only web addresses, because the URL comes from outside.
    if let Some(url) = &whole.issue_url {
        let href = if url.starts_with("https://") || url.starts_with("http://") { url } else { "" };
        facts.push(DetailRow { name: "Issue", value: url.clone(), href: href.to_owned() });
    }
    facts
}

task_page!(
    /// Page whose tab content is rendered by a separate template.
    PartPage, "task_part.html", { part: String }
);

/// Content of the overview tab.
#[derive(Template)]
#[template(path = "_overview.html")]
struct OverviewFragment {
    layout: Layout,
    task: TaskHeader,
    timeline: Timeline,
    plan: PlanView,
    risk: RiskView,
    knowledge: KnowledgeMatches,
    criteria: CriteriaView,
    decisions: Vec<DecisionRow>,
}

/// Plan on the overview.
pub(super) struct PlanView {
    any: bool,
    empty_text: String,
    version: u32,
    versions: u32,
    hash: String,
    short_hash: String,
    approval: String,
    is_editable: bool,
    summary: String,
    files: u16,
    critical: u16,
    complexity: u8,
    level: String,
    estimate: String,
    tier: String,
    approach: Vec<String>,
    file_changes: Vec<PlanFileView>,
    testing: Vec<String>,
    risks: Vec<String>,
    test_changes: Vec<String>,
}

struct PlanFileView {
    action: String,
    path: String,
    is_critical: bool,
    description: String,
    lines: u32,
}

struct RiskView {
    any: bool,
    level: String,
    score: u8,
    requirement: String,
    knowledge_summary: String,
    factors: Vec<RiskFactorView>,
}

struct RiskFactorView {
    name: &'static str,
    observation: String,
    effect: String,
    points: u8,
    counts: bool,
}

struct KnowledgeMatches {
    explanation: String,
    matches: Vec<MatchedEntry>,
}

struct MatchedEntry {
    role: String,
    icon: &'static str,
    id: Uuid,
    short_id: String,
    relevance: u8,
    text: String,
    reasons: Vec<String>,
    origin: String,
}

struct CriteriaView {
    any: bool,
    list: Vec<CriterionView>,
}

/// Acceptance criterion and its judgement.
pub(super) struct CriterionView {
    pub(super) text: String,
    pub(super) tone: &'static str,
    pub(super) remark: String,
    pub(super) location: String,
}

struct DecisionRow {
    at: DisplayTime,
    by: String,
    verdict: &'static str,
    plan: String,
    risk: String,
    reason: String,
}

pub(super) async fn overview(
    State(hall): State<WebState>,
    visitor: Session,
    Path(id): Path<Uuid>,
) -> PageResult {
    render_part_page(&hall, &visitor, id, "").await
}

/// Renders a page whose tab content live updates replace as a whole.
async fn render_part_page(hall: &WebState, visitor: &Session, id: Uuid, here: &str) -> PageResult {
    let (around, known) = TaskPageContext::load(hall, visitor, id, here).await?;
    let part = render_part(&hall.app, &around.layout, &known, here).await;
    let part = part.map_err(|error| PageError::new(Layout::for_session(visitor), error))?;
    render(&PartPage::new(around, part.unwrap_or_default()))
}

/// Renders the tab content that live updates replace; `None` if the tab has none.
pub(super) async fn render_part(
    app: &App,
    shell: &Layout,
    known: &TaskData,
    here: &str,
) -> Result<Option<String>, Error> {
    let html = match here {
        "" => load_overview(app, shell, known).await?.render(),
        "review" => review::load_iterations(app, shell, known).await?.render(),
        _ => return Ok(None),
    };
    html.map(Some).map_err(|error| Error::Internal(error.into()))
}

async fn load_overview(
    app: &App,
    shell: &Layout,
    known: &TaskData,
) -> Result<OverviewFragment, Error> {
    let id = TaskId(known.detail.card.id);
    let plan = match &known.detail.plan {
        Some(_) => app.current_plan(id).await?.content,
        None => None,
    };
    let way = Timeline::load(app, known).await?;
    let report = app.report(id, None).await?.report;
    let judged = report.iterations.iter().rev().find(|it| !it.criteria.is_empty());
    let list = match judged {
        Some(iteration) => iteration.criteria.iter().map(review::criterion_view).collect(),
        None => {
            known.detail.acceptance_criteria.iter().map(|text| unjudged_criterion(text)).collect()
        }
    };
    let criteria = CriteriaView { any: !known.detail.acceptance_criteria.is_empty(), list };
    Ok(OverviewFragment {
        layout: shell.clone(),
        task: task_header(known),
        timeline: way,
        plan: plan_view(known, plan),
        risk: risk_view(known),
        knowledge: knowledge_matches(known),
        criteria,
        decisions: decision_rows(known),
    })
}

fn unjudged_criterion(text: &str) -> CriterionView {
    CriterionView {
        text: text.to_owned(),
        tone: "idle",
        remark: "not reviewed yet".to_owned(),
        location: String::new(),
    }
}

fn plan_view(known: &TaskData, plan: Option<Plan>) -> PlanView {
    let outline = known.detail.plan.as_ref();
    let waits = known.detail.card.answers.contains(&tamma_core::task_loop::AnswerKind::RevisePlan);
    let approval = match known.detail.approvals.as_slice() {
        [] if known.task_loop.approved_scope.is_some() => {
            "approved automatically: low risk".to_owned()
        }
        [] => "not approved yet".to_owned(),
        by => {
            let names: Vec<_> = by.iter().map(|approval| approval.by.clone()).collect();
            format!("approved by {}", names.join(" and "))
        }
    };
    let estimate = match outline.and_then(|plan| plan.estimated_cost) {
        Some(usd) => format_usd(usd),
        None => "no estimate".to_owned(),
    };
    let score = outline.map_or(0, |plan| plan.complexity);
    let plan = plan.unwrap_or_else(empty_plan);
    PlanView {
        any: outline.is_some(),
        empty_text: "No plan yet".to_owned(),
        version: outline.map_or(0, |plan| plan.version),
        versions: outline.map_or(0, |plan| plan.version),
        hash: outline.map(|plan| plan.hash.clone()).unwrap_or_default(),
        short_hash: outline.map(|plan| labels::short_hash(&plan.hash)).unwrap_or_default(),
        approval,
        is_editable: waits,
        summary: plan.summary,
        files: outline.map_or(0, |plan| plan.files),
        critical: outline.map_or(0, |plan| plan.critical_files),
        complexity: score,
        level: match score {
            0..=4 => "low",
            5..=8 => "medium",
            _ => "high",
        }
        .to_owned(),
        estimate,
        tier: known.task_loop.tier.to_string(),
        approach: labels::paragraphs(&plan.approach),
        file_changes: plan
            .file_changes
            .into_iter()
            .map(|change| PlanFileView {
                action: change.action.to_string(),
                is_critical: tamma_core::rules::is_critical(&change.path, &known.rules),
                path: change.path,
                description: change.description,
                lines: change.estimated_lines,
            })
            .collect(),
        testing: labels::paragraphs(&plan.testing_strategy),
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

fn risk_view(known: &TaskData) -> RiskView {
    let report = known.detail.risk_report.as_ref();
    let level = report.map(|report| report.level);
    let ceremony = level.map(|level| known.rules.ceremony.get(level).clone());
    let words = match (&ceremony, known.budget_limit().usd) {
        (Some(ceremony), limit) => {
            let approvers = pluralize(ceremony.approvers, "approver");
            let budget = limit.map(|usd| format!(", with a budget of {}", format_usd(usd)));
            format!("Requires {approvers}{}.", budget.unwrap_or_default())
        }
        _ => String::new(),
    };
    let counted =
        known.task_loop.plan_assessment.as_ref().map(|check| check.risk.factors.as_slice());
    RiskView {
        any: report.is_some(),
        level: level.map(|level| level.to_string()).unwrap_or_default(),
        score: report.map_or(0, |report| report.score),
        requirement: words,
        knowledge_summary: report
            .map(|report| {
                format!(
                    "The knowledge check raised {} and {}.",
                    pluralize(report.blockers, "blocker"),
                    pluralize(report.warnings, "warning")
                )
            })
            .unwrap_or_default(),
        factors: RiskFactor::iter()
            .map(|it| risk_factor_view(it, counted.unwrap_or_default(), known))
            .collect(),
    }
}

/// Builds the row of a risk factor. Factors without effect are shown too.
fn risk_factor_view(
    factor: RiskFactor,
    counted: &[(RiskFactor, FactorEffect)],
    known: &TaskData,
) -> RiskFactorView {
    let weight = counted.iter().find(|(it, _)| *it == factor).map(|(_, weight)| *weight);
    let plan = known.task_loop.plan.as_ref();
    let files = plan.map_or(0, |plan| plan.file_count);
    let critical = plan.map_or(0, |plan| plan.critical_file_count);
    let score = plan.map_or(0, |plan| plan.complexity_score);
    let level = complexity::ComplexityLevel::from_score(score);
    let cost = plan.and_then(|plan| plan.estimated_cost);
    let thresholds = &known.rules.scrum_master.risk_thresholds;
    let (low, medium) = (&thresholds.low, &thresholds.medium);
    let seen = match factor {
        RiskFactor::Files => {
            format!("{}; 1 point from 6, 2 points from 11", pluralize(files, "file"))
        }
        RiskFactor::Complexity => format!("{level}: {score} of 14"),
        RiskFactor::Warnings => {
            let warnings =
                known.task_loop.plan_assessment.as_ref().map_or(0, |check| check.warnings);
            pluralize(warnings, "warning")
        }
        RiskFactor::CriticalFiles => match critical {
            0 => "no critical files".to_owned(),
            count => format!("{count} critical"),
        },
        RiskFactor::FilesThreshold => {
            format!("{files}; medium above {}, high above {}", low.max_files, medium.max_files)
        }
        RiskFactor::ComplexityThreshold => {
            let (low, medium) = (low.max_complexity, medium.max_complexity);
            format!("{level}; medium above {low}, high above {medium}")
        }
        RiskFactor::CostThreshold => {
            let cost = cost.map_or_else(|| "not estimated".to_owned(), format_usd);
            let (low, medium) = (low.max_estimated_cost_usd, medium.max_estimated_cost_usd);
            let (low, medium) = (format_usd(low), format_usd(medium));
            format!("{cost}; medium above {low}, high above {medium}")
        }
    };
    let (points, effect) = match weight {
        None => (0, "none".to_owned()),
        Some(FactorEffect::Points(points)) => (points, pluralize(points, "point")),
        Some(FactorEffect::AtLeast(level)) => (0, format!("at least {level} risk")),
    };
    let counts = weight.is_some();
    RiskFactorView {
        name: labels::risk_factor_label(factor),
        observation: seen,
        effect,
        points,
        counts,
    }
}

fn knowledge_matches(known: &TaskData) -> KnowledgeMatches {
    use tamma_store::MatchRole as Role;
    let matches = known.detail.knowledge.iter().map(|it| MatchedEntry {
        role: it.role.to_string(),
        icon: match it.role {
            Role::Blocker => "block",
            Role::Warning => "warn",
            Role::Recommendation => "good",
            Role::Convention => "file",
            Role::Learning => "book",
        },
        id: it.id,
        short_id: it.short.clone(),
        relevance: it.relevance,
        text: it.text.clone(),
        reasons: it.reason_texts.clone(),
        origin: match (&it.owner, it.evidence.as_slice()) {
            (Some(owner), _) => format!("Owner: {owner}."),
            (None, []) => String::new(),
            (None, evidence) => format!("Based on {}.", evidence.join(", ")),
        },
    });
    KnowledgeMatches {
        explanation:
            "A blocker stops the plan until a person decides. A warning raises the risk. Other \
                entries are included in the agent's prompt."
                .to_owned(),
        matches: matches.collect(),
    }
}

fn decision_rows(known: &TaskData) -> Vec<DecisionRow> {
    let decision = |it: &dto::PlanDecision| DecisionRow {
        at: DisplayTime::absolute(it.at),
        by: it.by.clone().unwrap_or_else(|| "the rules".to_owned()),
        verdict: match it.verdict {
            PlanVerdict::Approve | PlanVerdict::Auto => "approved",
            PlanVerdict::Reject => "rejected",
            PlanVerdict::Changes => "revised",
            PlanVerdict::Override => "overrode a prohibition for",
        },
        plan: it.plan.as_ref().map(labels::short_hash).unwrap_or_default(),
        risk: it.risk.map(|risk| risk.to_string()).unwrap_or_default(),
        reason: it.reason.clone().unwrap_or_default(),
    };
    known.detail.decisions.iter().map(decision).collect()
}
