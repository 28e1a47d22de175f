//! Overview tab of a task: timeline, pull request, plan, risk, knowledge, criteria and decisions.

use askama::Template;
use strum::IntoEnumIterator as _;
use tamma_core::actor::Actor;
use tamma_core::approval::{ApprovalRequirement, approval_requirement};
use tamma_core::complexity::ComplexityLevel;
use tamma_core::format::{format_usd, pluralize};
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::level::RiskLevel;
use tamma_core::plan::{FileAction, Plan, PlannedTest, criterion_id};
use tamma_core::risk::{FactorEffect, RiskFactor};
use tamma_core::task_loop::{AnswerKind, State};
use tamma_store::{MatchRole, PlanDecision, PlanVerdict};
use uuid::Uuid;

use super::timeline::Timeline;
use super::{CriterionView, TaskData, TaskHeader, review, task_header};
use crate::app::{App, Error};
use crate::dto;
use crate::web::html::SafeHtml;
use crate::web::layout::{DisplayTime, Layout};
use crate::web::pull_requests::{PullRequestLink, PullRequestView};
use crate::web::{labels, markdown};

/// Content of the overview tab above the open question: the request and the plan.
#[derive(Template)]
#[template(path = "_overview.html")]
pub(super) struct OverviewFragment {
    layout: Layout,
    task: TaskHeader,
    /// `None` before there is a commit that nobody works on any more.
    result: Option<ResultView>,
    /// Changes of the request, in the words of people.
    request_changes: Vec<WordsView>,
    /// `None` before the first plan.
    plan: Option<PlanView>,
    /// `None` before the first plan was assessed.
    risk: Option<RiskView>,
    matches: Vec<MatchedEntry>,
    criteria: Vec<CriterionView>,
}

/// Content of the overview tab below the open question.
#[derive(Template)]
#[template(path = "_overview_after.html")]
pub(super) struct OverviewAfterFragment {
    timeline: Timeline,
    decisions: Vec<DecisionRow>,
    /// `None` before the change was delivered as a pull request.
    pull_request: Option<PullRequestView>,
}

/// Place of the finished work.
struct ResultView {
    title: &'static str,
    branch: String,
    short_commit: String,
    /// Command that brings the work into the current branch.
    command: String,
    /// Pull request of the work.
    pull_request: Option<PullRequestLink>,
}

/// Words of a person in the history of a task.
pub(super) struct WordsView {
    pub(super) by: String,
    pub(super) at: DisplayTime,
    pub(super) html: SafeHtml,
}

struct PlanView {
    version: u32,
    hash: String,
    short_hash: String,
    approval: String,
    is_editable: bool,
    files: u16,
    critical: u16,
    complexity: u8,
    level: ComplexityLevel,
    estimate: Option<String>,
    tier: String,
    content: Option<PlanContent>,
}

struct PlanContent {
    summary: SafeHtml,
    approach: SafeHtml,
    file_changes: Vec<PlanFileView>,
    testing: SafeHtml,
    /// Proposed criteria with their IDs, if the task has none of its own.
    criteria: Vec<SafeHtml>,
    verification: Vec<PlannedTest>,
    assumptions: Vec<SafeHtml>,
    questions: Vec<SafeHtml>,
    risks: Vec<SafeHtml>,
    test_changes: Vec<String>,
    /// Complexity signals that Tamma estimated, as a list of their names.
    estimated_signals: String,
}

struct PlanFileView {
    action: FileAction,
    path: String,
    is_critical: bool,
    description: String,
    lines: u32,
}

struct RiskView {
    level: RiskLevel,
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

struct MatchedEntry {
    role: MatchRole,
    icon: &'static str,
    id: Uuid,
    short_id: String,
    relevance: u8,
    text: SafeHtml,
    reasons: String,
    origin: Option<String>,
}

struct DecisionRow {
    at: DisplayTime,
    by: String,
    verdict: &'static str,
    plan: Option<String>,
    risk: Option<RiskLevel>,
    /// Reason, or the changes that were asked for.
    words: Option<SafeHtml>,
}

/// Loads both parts of the overview.
pub(super) async fn load(
    app: &App,
    layout: &Layout,
    data: &TaskData,
) -> Result<(OverviewFragment, OverviewAfterFragment), Error> {
    let id = TaskId(data.detail.card.id);
    let content = match &data.detail.plan {
        Some(_) => app.current_plan(id).await?.content,
        None => None,
    };
    let report = app.report(id, None).await?.report;
    let judged = report.iterations.iter().rev().find(|it| !it.criteria.is_empty());
    let criteria = if let Some(iteration) = judged {
        iteration.criteria.iter().map(review::criterion_view).collect()
    } else {
        let proposed = content.as_ref().map(|plan| plan.criteria.as_slice()).unwrap_or_default();
        let own = data.detail.acceptance_criteria.as_slice();
        let criteria = if own.is_empty() { proposed } else { own };
        criteria.iter().map(|text| unjudged_criterion(text)).collect()
    };
    let words = app.entries_with_words(id).await?;
    let pull_request =
        PullRequestView::load(app, id, data.task_loop.pull_request.as_deref()).await?;
    let before = OverviewFragment {
        layout: layout.clone(),
        task: task_header(data),
        result: result_view(data, pull_request.as_ref()),
        request_changes: words
            .iter()
            .filter(|line| line.entry.name == EntryName::SmTaskModified)
            .filter_map(WordsView::new)
            .collect(),
        plan: data.detail.plan.as_ref().map(|plan| plan_view(data, plan, content)),
        risk: data.detail.risk_report.as_ref().map(|report| risk_view(data, report)),
        matches: data.detail.knowledge.iter().map(matched_entry).collect(),
        criteria,
    };
    let after = OverviewAfterFragment {
        timeline: Timeline::load(app, data).await?,
        decisions: app
            .store
            .decisions(id)
            .await?
            .iter()
            .map(|it| decision_row(it, &words))
            .collect(),
        pull_request,
    };
    Ok((before, after))
}

/// Returns where the work of a task is, once nobody works on it any more.
fn result_view(data: &TaskData, pull_request: Option<&PullRequestView>) -> Option<ResultView> {
    let card = &data.detail.card;
    let commit = data.detail.commit.as_ref().filter(|_| card.state.is_terminal())?;
    let branch = data.detail.branch.clone();
    Some(ResultView {
        title: match card.state {
            State::Completed => "Done. The work is ready.",
            _ => "Closed. The work so far is kept.",
        },
        command: format!("git merge {branch}"),
        branch,
        short_commit: labels::short_hash(commit),
        pull_request: pull_request.map(|it| it.link.clone()),
    })
}

impl WordsView {
    /// Returns the words of a person; `None` if the entry has none.
    pub(super) fn new(line: &dto::RecordedEntry) -> Option<Self> {
        let Actor::Person(by) = &line.entry.actor else { return None };
        let words = line.text.as_deref().or(line.entry.reason.as_deref())?;
        Some(Self {
            by: by.to_string(),
            at: DisplayTime::absolute(line.entry.at),
            html: markdown::to_html(words),
        })
    }
}

fn unjudged_criterion(text: &str) -> CriterionView {
    CriterionView {
        text: markdown::code_spans_to_html(text),
        tone: "idle",
        remark: "not reviewed yet".to_owned(),
        location: None,
    }
}

fn plan_view(data: &TaskData, plan: &dto::PlanVersion, content: Option<Plan>) -> PlanView {
    let approval = match data.detail.approvals.as_slice() {
        [] if data.task_loop.approved_scope.is_some() => {
            "approved automatically: low risk".to_owned()
        }
        [] => "not approved yet".to_owned(),
        by => {
            let names: Vec<_> = by.iter().map(|approval| approval.by.as_str()).collect();
            format!("approved by {}", names.join(" and "))
        }
    };
    PlanView {
        version: plan.version,
        hash: plan.hash.clone(),
        short_hash: labels::short_hash(&plan.hash),
        approval,
        is_editable: data.detail.card.answers.contains(&AnswerKind::RevisePlan),
        files: plan.files,
        critical: plan.critical_files,
        complexity: plan.complexity,
        level: ComplexityLevel::from_score(plan.complexity),
        estimate: plan.estimated_cost.map(format_usd),
        tier: data.task_loop.tier.to_string(),
        content: content.map(|content| plan_content(data, content)),
    }
}

fn plan_content(data: &TaskData, plan: Plan) -> PlanContent {
    let file_changes = plan.file_changes.into_iter().map(|change| PlanFileView {
        action: change.action,
        is_critical: tamma_core::rules::is_critical(&change.path, &data.rules),
        path: change.path,
        description: change.description,
        lines: change.estimated_lines,
    });
    let lines = |texts: &[String]| -> Vec<SafeHtml> {
        texts.iter().map(|text| markdown::code_spans_to_html(text)).collect()
    };
    PlanContent {
        summary: markdown::to_html(&plan.summary),
        approach: markdown::to_html(&plan.approach),
        file_changes: file_changes.collect(),
        testing: markdown::to_html(&plan.testing_strategy),
        criteria: plan
            .criteria
            .iter()
            .enumerate()
            .map(|(index, text)| {
                markdown::code_spans_to_html(&format!("{}: {text}", criterion_id(index)))
            })
            .collect(),
        verification: plan.verification,
        assumptions: lines(&plan.assumptions),
        questions: lines(&plan.questions),
        risks: lines(&plan.risks),
        test_changes: plan.test_changes,
        estimated_signals: plan
            .estimated_signals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn risk_view(data: &TaskData, report: &dto::RiskReport) -> RiskView {
    let budget = data.budget_limit().usd;
    let budget = budget.map(|usd| format!(" Budget: {}.", format_usd(usd)));
    let assessment = data.task_loop.plan_assessment.as_ref();
    let effects = assessment.map(|check| check.risk.factors.as_slice()).unwrap_or_default();
    let plan = data.task_loop.plan.as_ref().map(|plan| plan.hash);
    let overridden = plan.is_some() && data.task_loop.overridden_plan == plan;
    let requirement = assessment.map(|check| approval_requirement(check, overridden, &data.rules));
    let requirement = match requirement {
        Some(ApprovalRequirement::Blocked) => "Blocked by a prohibition.".to_owned(),
        Some(ApprovalRequirement::Automatic) => "Approved automatically.".to_owned(),
        Some(ApprovalRequirement::Approvers(count)) => {
            format!("Needs {}.", pluralize(count, "approval"))
        }
        None => String::new(),
    };
    RiskView {
        level: report.level,
        score: report.score,
        requirement: format!("{requirement}{}", budget.unwrap_or_default()).trim().to_owned(),
        knowledge_summary: format!(
            "The knowledge check raised {} and {}.",
            pluralize(report.blockers, "blocker"),
            pluralize(report.warnings, "warning")
        ),
        factors: RiskFactor::iter().map(|it| risk_factor_view(it, effects, data)).collect(),
    }
}

/// Builds the row of a risk factor. Factors without effect are shown too.
fn risk_factor_view(
    factor: RiskFactor,
    counted: &[(RiskFactor, FactorEffect)],
    data: &TaskData,
) -> RiskFactorView {
    let weight = counted.iter().find(|(it, _)| *it == factor).map(|(_, weight)| *weight);
    let plan = data.task_loop.plan.as_ref();
    let files = plan.map_or(0, |plan| plan.file_count);
    let critical = plan.map_or(0, |plan| plan.critical_file_count);
    let score = plan.map_or(0, |plan| plan.complexity_score);
    let level = ComplexityLevel::from_score(score);
    let cost = plan.and_then(|plan| plan.estimated_cost);
    let thresholds = &data.rules.scrum_master.risk_thresholds;
    let (low, medium) = (&thresholds.low, &thresholds.medium);
    let observation = match factor {
        RiskFactor::Files => {
            format!("{}; 6 or more: 1 point, 11 or more: 2 points", pluralize(files, "file"))
        }
        RiskFactor::Complexity => format!("{level}: {score} of 14"),
        RiskFactor::Warnings => {
            let warnings =
                data.task_loop.plan_assessment.as_ref().map_or(0, |check| check.warnings);
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
    RiskFactorView { name: labels::risk_factor_label(factor), observation, effect, points, counts }
}

fn matched_entry(it: &dto::KnowledgeMatch) -> MatchedEntry {
    MatchedEntry {
        role: it.role,
        icon: match it.role {
            MatchRole::Blocker => "block",
            MatchRole::Warning => "warn",
            MatchRole::Recommendation => "good",
            MatchRole::Convention => "file",
            MatchRole::Learning => "book",
        },
        id: it.id,
        short_id: it.short.clone(),
        relevance: it.relevance,
        text: markdown::code_spans_to_html(&it.text),
        reasons: it.reason_texts.join("; ").replace('`', ""),
        origin: match (&it.owner, it.evidence.as_slice()) {
            (Some(owner), _) => Some(format!("Owner: {owner}.")),
            (None, []) => None,
            (None, evidence) => Some(format!("Based on {}.", evidence.join(", "))),
        },
    }
}

fn decision_row(it: &PlanDecision, words: &[dto::RecordedEntry]) -> DecisionRow {
    // The changes that a person asked for are longer than a reason, and stored apart.
    let asked = words.iter().find(|line| line.entry.sequence == it.sequence);
    let asked = asked.and_then(|line| line.text.as_deref());
    DecisionRow {
        at: DisplayTime::absolute(it.at),
        by: it.by.clone().unwrap_or_else(|| "the rules".to_owned()),
        verdict: match it.verdict {
            PlanVerdict::Approve | PlanVerdict::Auto => "approved",
            PlanVerdict::Reject => "rejected",
            PlanVerdict::Changes => "revised",
            PlanVerdict::Override => "overrode a prohibition for",
        },
        plan: it.plan.as_ref().map(labels::short_hash),
        risk: it.risk,
        words: it.reason.as_deref().or(asked).map(markdown::to_html),
    }
}
