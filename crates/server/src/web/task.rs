//! Task page and its tabs.

pub(in crate::web) mod actions;
pub(super) mod change;
mod change_summary;
pub(super) mod events;
pub(super) mod log;
mod overview;
pub(super) mod plan;
pub(in crate::web) mod question;
pub(super) mod review;
mod timeline;

use askama::Template;
use axum::extract::Path;
use tamma_core::access::Permission;
use tamma_core::budget;
use tamma_core::cost::{Tokens, Usd};
use tamma_core::format::{capitalize, format_number, format_usd};
use tamma_core::ids::{Name, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{AnswerKind, State as TaskState, TaskLoop};
use tamma_store::LinePosition;
use uuid::Uuid;

use self::actions::ActionForm;
use self::change_summary::ChangeSummary;
use super::html::SafeHtml;
use super::layout::{DisplayTime, Layout, Tab};
use super::live::encode_position;
use super::permissions::PagePermissions;
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, markdown, render};
use crate::app::{App, Error};
use crate::clock;
use crate::dto::{self, short_id};

/// Defines the page of one tab: the common fields of all task pages, and its own.
macro_rules! task_page {
    ($(#[$doc:meta])* $name:ident, $path:literal, { $($field:ident: $type:ty),* $(,)? }) => {
        // Enums that the common templates match.
        use $crate::web::labels::NextStepView;
        use $crate::web::task::actions::{ActionInput, ActionScope};
        use $crate::web::task::question::{AnswerSection, QuestionView};

        $(#[$doc])*
        #[derive(askama::Template)]
        #[template(path = $path)]
        struct $name {
            layout: $crate::web::layout::Layout,
            task: $crate::web::task::TaskHeader,
            live_href: String,
            tabs: Vec<$crate::web::layout::Tab>,
            question: QuestionView,
            cost: $crate::web::task::CostView,
            current_run: Option<$crate::web::task::CurrentRunView>,
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
    /// Run in progress.
    pub(super) current_run: Option<CurrentRunView>,
    pub(super) details: Vec<DetailRow>,
    pub(super) actions: Vec<ActionForm>,
}

/// Header of a task: identity and status.
#[derive(Clone)]
pub(super) struct TaskHeader {
    pub(super) id: Uuid,
    pub(super) short_id: String,
    pub(super) title: String,
    /// Folder of the repository, for links to an editor; `None` if it is not on this machine.
    pub(super) root: Option<String>,
    pub(super) project: String,
    pub(super) project_href: String,
    pub(super) kind: String,
    pub(super) priority: String,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) next: NextStepView,
    pub(super) since: DisplayTime,
    pub(super) is_overdue: bool,
    pub(super) is_paused: bool,
    /// Error of the stored state.
    pub(super) read_error: Option<String>,
    pub(super) is_closed: bool,
    /// Empty if the author gave none.
    pub(super) description: SafeHtml,
}

/// Spend of a task and its limit.
pub(super) struct CostView {
    pub(super) spent: String,
    /// `None` without a limit.
    pub(super) limit: Option<String>,
    /// Part of the spend that stands for runs whose cost is unknown.
    pub(super) held: Option<String>,
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
    pub(super) agent: String,
    /// Model, tier, run number, cost so far and cached share, as far as they are known.
    pub(super) details: String,
    pub(super) started: DisplayTime,
    /// Newest log line.
    pub(super) last_line: Option<String>,
}

/// Row of the details section.
pub(super) struct DetailRow {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) href: Option<String>,
    /// Text that a button copies.
    pub(super) copy: Option<String>,
    /// Time, shown in the time zone of the browser.
    pub(super) at: Option<DisplayTime>,
}

/// Data that all pages of a task are built from.
pub(super) struct TaskData {
    pub(super) detail: dto::TaskDetail,
    pub(super) task_loop: TaskLoop,
    pub(super) rules: Rules,
    pub(super) project: String,
    /// Path or URL of the repository.
    pub(super) repository: String,
    pub(super) runs: Vec<dto::RunDetail>,
    /// Newest log position at load time.
    pub(super) lines: LinePosition,
    /// Change that awaits a decision.
    pub(super) change: Option<ChangeSummary>,
}

impl TaskData {
    pub(super) async fn load(app: &App, id: TaskId) -> Result<Self, Error> {
        // Read first, so that live updates miss nothing.
        let lines = app.resolve_line_position(id, Some("end")).await?;
        let (detail, task_loop) = (app.task_detail(id).await?, app.task_loop(id).await?);
        let project = app.project_by_id(task_loop.project).await?;
        let rules = app.task_rules(&task_loop).await?;
        let runs = app.runs(id).await?.runs;
        let (project, repository) = (project.name, project.repository);
        let change = if detail.card.answers.contains(&AnswerKind::Accept) {
            let commit = detail.commit.as_deref();
            Some(ChangeSummary::load(app, detail.card.id, commit).await?)
        } else {
            None
        };
        Ok(Self { detail, task_loop, rules, project, repository, runs, lines, change })
    }

    /// Returns the spending limit of the task.
    fn budget_limit(&self) -> budget::SpendLimit {
        budget::task_limit(self.task_loop.risk_level(), &self.task_loop.granted, &self.rules)
    }
}

impl TaskPageContext {
    /// Loads a task for one of its pages.
    pub(super) async fn load(
        state: &WebState,
        session: &Session,
        id: Uuid,
        here: &str,
    ) -> Result<(Self, TaskData), PageError> {
        let layout = Layout::for_page(state, session, "board").await?;
        let data = Box::pin(TaskData::load(&state.app, TaskId(id))).await;
        let data = data.map_err(|error| PageError::new(Layout::for_session(session), error))?;
        let mut permissions = PagePermissions::for_session(&state.app, session);
        Ok((Self::new(layout, &data, here, &mut permissions).await, data))
    }

    pub(super) async fn new(
        layout: Layout,
        data: &TaskData,
        here: &str,
        permissions: &mut PagePermissions,
    ) -> Self {
        let card = &data.detail.card;
        let can_work = permissions.allows(card.project, Permission::Work);
        let person: Option<Name> = layout.person.parse().ok();
        let person = person.as_ref();
        Self {
            layout,
            task: task_header(data),
            live_href: live_href(card.id, here, card.entries, data.lines),
            tabs: task_tabs(data, here),
            question: QuestionView::load(data, here, permissions, person).await,
            cost: cost_view(data),
            current_run: current_run(data),
            details: detail_rows(data),
            actions: if can_work { actions::control_forms(data, person) } else { Vec::new() },
        }
    }
}

/// Name of a page part that live updates never extend.
pub(super) const NO_LIVE_PART: &str = "elsewhere";

/// Returns the URL of live updates from this position on.
pub(super) fn live_href(id: Uuid, part: &str, entries: u64, lines: LinePosition) -> String {
    format!("/live/tasks/{id}?part={part}&seen={}", encode_position(entries, lines))
}

fn task_header(data: &TaskData) -> TaskHeader {
    let detail = &data.detail;
    let card = &detail.card;
    TaskHeader {
        id: card.id,
        short_id: card.short.clone(),
        title: card.title.clone(),
        root: Some(data.repository.clone()).filter(|path| path.starts_with('/')),
        project: data.project.clone(),
        project_href: super::board::BoardQuery::project_href(&data.project),
        kind: card.r#type.to_string(),
        priority: card.priority.to_string(),
        state: capitalize(labels::state_label(card.state)),
        tone: labels::task_tone(card),
        next: NextStepView::new(card),
        since: DisplayTime::elapsed(card.since),
        is_overdue: card.due_at.is_some_and(|due| due < clock::now()),
        is_paused: card.paused,
        read_error: detail.read_error.clone(),
        is_closed: card.state.is_terminal(),
        description: markdown::to_html(&detail.description),
    }
}

fn task_tabs(data: &TaskData, here: &str) -> Vec<Tab> {
    let card = &data.detail.card;
    let count = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    let versions = data.detail.plan.as_ref().map_or(0, |plan| plan.version.into());
    let lines = data.runs.iter().map(|run| run.lines).sum();
    let parts: [(&str, &'static str, String); 6] = [
        ("", "Overview", String::new()),
        ("plan", "Plans", count(versions)),
        ("change", "Change", String::new()),
        ("review", "Review", count(data.detail.iterations.len() as u64)),
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

fn cost_view(data: &TaskData) -> CostView {
    let spend = &data.detail.card.spend;
    let limit = data.budget_limit().usd;
    let percent = limit.map(|limit| spend.usd.percent_of(limit)).unwrap_or_default();
    let price = budget::estimate_run_cost(
        data.task_loop.tier,
        data.task_loop.plan.as_ref(),
        data.task_loop.max_run_cost,
        &data.rules,
    );
    let mut rows: Vec<CostRow> = Vec::new();
    for mode in ["plan", "implement", "validate", "advise", "conclude", "learn"] {
        let of: Vec<_> = data.runs.iter().filter(|run| run.mode == mode).collect();
        if of.is_empty() {
            continue;
        }
        let usage = || of.iter().filter_map(|run| run.usage);
        let tokens =
            usage().fold(Tokens::default(), |sum, dto::RunUsage { input, cached, output, .. }| {
                sum + Tokens { input, cached, output, ..Tokens::default() }
            });
        let share = tokens.cached_percent().map(|share| format!(" ({share}% cached)"));
        let usd = usage().filter_map(|it| it.usd).fold(Usd::ZERO, |a, b| a + b);
        let is_any_known = usage().any(|it| it.usd.is_some());
        let mut ended = of.iter().filter(|run| run.ended_at.is_some());
        let is_any_unknown = ended.any(|run| run.usage.is_none_or(|it| it.usd.is_none()));
        rows.push(CostRow {
            mode: mode.to_owned(),
            runs: of.len(),
            tokens: format_number(tokens.total()) + &share.unwrap_or_default(),
            usd: match (is_any_unknown, is_any_known) {
                (false, _) => format_usd(usd),
                (true, true) => format!("≥ {}", format_usd(usd)),
                (true, false) => "unknown".to_owned(),
            },
        });
    }
    let ended = data.detail.card.state.is_terminal();
    let used = limit.map(|_| format!("{percent}% used."));
    let next = (!ended).then(|| format!("The next run is estimated at {}.", format_usd(price)));
    let with_next = limit.map(|limit| (spend.usd + price).percent_of(limit).min(100));
    let reserved_percent = with_next.filter(|_| !ended).unwrap_or(percent);
    CostView {
        spent: spend.to_string(),
        limit: limit.map(format_usd),
        held: held_amount(spend, &data.runs),
        percent,
        reserved_percent,
        tone: super::board::budget_tone(percent),
        summary: used.into_iter().chain(next).collect::<Vec<_>>().join(" "),
        rows,
    }
}

/// Returns the part of the spend that no run has reported, so that the rows add up to the total.
fn held_amount(spend: &dto::Spend, runs: &[dto::RunDetail]) -> Option<String> {
    let ended = runs.iter().filter(|run| run.ended_at.is_some());
    let known = ended.filter_map(|run| run.usage?.usd).fold(Usd::ZERO, |sum, usd| sum + usd);
    let held = spend.usd.saturating_sub(known);
    (spend.estimated && held > Usd::ZERO).then(|| format!("≈ {}", format_usd(held)))
}

fn current_run(data: &TaskData) -> Option<CurrentRunView> {
    let current = data.detail.current_run.as_ref()?;
    let run = &current.run;
    let tier = run.tier.map(|tier| format!("{tier} tier"));
    let number = format!("run {}", run.run);
    let cost = run.usage.map(|usage| match usage.usd {
        Some(usd) => format!("{} so far", format_usd(usd)),
        None => "cost unknown".to_owned(),
    });
    let share = run.usage.and_then(|usage| usage.cached_percent);
    let cached = share.map(|share| format!("{share}% of input cached"));
    let parts = run.model.clone().into_iter().chain(tier).chain([number]).chain(cost).chain(cached);
    Some(CurrentRunView {
        agent: run.agent.clone(),
        details: parts.collect::<Vec<_>>().join(" · "),
        started: DisplayTime::elapsed(run.started_at),
        last_line: current.current_line.as_ref().map(|line| line.text.chars().take(200).collect()),
    })
}

fn detail_rows(data: &TaskData) -> Vec<DetailRow> {
    let detail = &data.detail;
    let fact = |name, value: String| DetailRow { name, value, href: None, copy: None, at: None };
    let pull_request = detail.pull_request.as_ref().map(|it| it.url.as_str());
    let commit = |name, hash: &String| DetailRow {
        href: pull_request.and_then(|url| commit_href(url, hash)),
        copy: Some(hash.clone()),
        ..fact(name, labels::short_hash(hash))
    };
    let at = Some(DisplayTime::absolute(detail.card.created_at));
    let mut facts = vec![DetailRow { at, ..fact("Added", String::new()) }];
    facts.extend(detail.base.as_ref().map(|base| commit("Base", base)));
    facts.extend(detail.commit.as_ref().map(|hash| commit("Commit", hash)));
    if detail.card.state == TaskState::Completed && detail.commit.is_some() {
        let branch = detail.branch.clone();
        facts.push(DetailRow { copy: Some(branch.clone()), ..fact("Branch", branch) });
    }
    facts.extend(data.task_loop.pin.map(|pin| fact("Rules", labels::short_hash(&pin.policy))));
    let prompts = data.task_loop.pin.and_then(|pin| pin.prompts);
    facts.extend(prompts.map(|digest| fact("Prompts", labels::short_hash(&digest))));
    if !detail.card.labels.is_empty() {
        facts.push(fact("Labels", detail.card.labels.join(", ")));
    }
    for id in &detail.depends_on {
        facts.push(DetailRow {
            name: "Depends on",
            value: short_id(*id),
            href: Some(format!("/tasks/{id}")),
            copy: None,
            at: None,
        });
    }
    // Link only web addresses, because the URL comes from outside.
    if let Some(url) = &detail.issue_url {
        let is_web = url.starts_with("https://") || url.starts_with("http://");
        let href = is_web.then(|| url.clone());
        facts.push(DetailRow { href, ..fact("Issue", url.clone()) });
    }
    facts.extend(detail.issue_number.map(|number| fact("Issue number", format!("#{number}"))));
    facts.extend(
        detail.ratings.iter().map(|(by, stars)| fact("Rating", format!("{stars} of 5 by {by}"))),
    );
    facts
}

/// Returns the page of a commit in the forge of a pull request.
fn commit_href(pull_request: &str, hash: &str) -> Option<String> {
    // The address comes from the forge.
    let is_web = pull_request.starts_with("https://") || pull_request.starts_with("http://");
    let forms =
        [("/-/merge_requests/", "/-/commit/"), ("/pulls/", "/commit/"), ("/pull/", "/commit/")];
    forms.into_iter().filter(|_| is_web).find_map(|(marker, page)| {
        let (repository, number) = pull_request.rsplit_once(marker)?;
        let is_number = !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit());
        is_number.then(|| format!("{repository}{page}{hash}"))
    })
}

task_page!(
    /// Page whose tab content is rendered by separate templates.
    PartPage, "task_part.html", { part: String, after: String, is_overview: bool }
);

/// Content of a tab that live updates replace.
pub(super) struct RenderedPart {
    pub(super) part: String,
    /// Content below the open question, on the overview; empty on other tabs.
    pub(super) after: String,
}

/// Acceptance criterion and its judgement.
pub(super) struct CriterionView {
    pub(super) text: SafeHtml,
    pub(super) tone: &'static str,
    pub(super) remark: String,
    /// Location of the evidence.
    pub(super) location: Option<String>,
}

pub(super) async fn overview(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
) -> PageResult {
    render_part_page(&state, &session, id, "").await
}

/// Renders a page whose tab content live updates replace as a whole.
async fn render_part_page(state: &WebState, session: &Session, id: Uuid, here: &str) -> PageResult {
    let (context, data) = TaskPageContext::load(state, session, id, here).await?;
    let part = render_part(&state.app, &context.layout, &data, here).await;
    let part = part.map_err(|error| PageError::new(Layout::for_session(session), error))?;
    let (part, after) = part.map(|it| (it.part, it.after)).unwrap_or_default();
    render(&PartPage::new(context, part, after, here.is_empty()))
}

/// Renders the tab content that live updates replace; `None` if the tab has none.
pub(super) async fn render_part(
    app: &App,
    layout: &Layout,
    data: &TaskData,
    here: &str,
) -> Result<Option<RenderedPart>, Error> {
    let failed = |error: askama::Error| Error::Internal(error.into());
    Ok(match here {
        "" => {
            let (part, after) = overview::load(app, layout, data).await?;
            let (part, after) = (part.render().map_err(failed)?, after.render().map_err(failed)?);
            Some(RenderedPart { part, after })
        }
        "review" => {
            let part = review::load_iterations(app, layout, data).await?.render();
            Some(RenderedPart { part: part.map_err(failed)?, after: String::new() })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_linked_in_the_forge_of_its_pull_request() {
        for (pull_request, expected) in [
            ("https://github.com/a/b/pull/7", Some("https://github.com/a/b/commit/c0ffee")),
            (
                "https://gitlab.com/a/b/-/merge_requests/7",
                Some("https://gitlab.com/a/b/-/commit/c0ffee"),
            ),
            ("https://codeberg.org/a/b/pulls/7", Some("https://codeberg.org/a/b/commit/c0ffee")),
            ("javascript:alert(1)//pull/7", None),
            ("https://github.com/a/b/pull/x", None),
        ] {
            assert_eq!(commit_href(pull_request, "c0ffee").as_deref(), expected, "{pull_request}");
        }
    }
}
