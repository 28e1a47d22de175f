//! Holding plans and changes against what the team knows.
//!
//! An entry has up to four kinds of condition: paths, task types, words and a pattern. Within a
//! kind, one that holds is enough. A prohibition needs every kind it has; the other entries are
//! ranked by the share that holds.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};
use globset::Glob;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{Entry, Kind, MatchReason, Severity};
use crate::ids::KnowledgeId;
use crate::plan::Plan;
use crate::review;
use crate::review::patterns::Matcher;
use crate::rules::Rules;
use crate::task::{Task, TaskType};

/// An entry that matched, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// The entry.
    pub entry: KnowledgeId,
    /// What matched what.
    pub reasons: Vec<MatchReason>,
    /// The share of its conditions that hold, 0 to 100.
    pub relevance: u8,
}

/// What the knowledge base has to say about a plan. The most relevant come first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Critical prohibitions: a person must decide.
    pub blockers: Vec<Match>,
    /// Other prohibitions, and entries that cannot be decided. They raise the risk.
    pub warnings: Vec<Match>,
    /// Relevant recommendations.
    pub recommendations: Vec<Match>,
    /// Relevant conventions.
    pub conventions: Vec<Match>,
    /// Relevant learnings.
    pub learnings: Vec<Match>,
}

impl Findings {
    /// Whether the plan may go on without a person's override.
    pub fn can_proceed(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// Holds a task and its plan against the entries that are in force.
pub fn check(
    task: &Task,
    plan: &Plan,
    entries: &[Entry],
    now: DateTime<Utc>,
    rules: &Rules,
) -> Findings {
    let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
    texts.extend(plan.file_changes.iter().map(|change| &*change.description));
    let subject = Subject {
        paths: plan.file_changes.iter().map(|change| &*change.path).collect(),
        task_type: task.r#type,
        words: texts.iter().map(|text| words(text)).collect(),
        texts,
    };
    let enough = rules.scrum_master.learning_capture.min_relevance_score;

    let mut findings = Findings::default();
    for entry in entries.iter().filter(|entry| entry.is_in_force(task.project, now)) {
        let conditions = conditions(entry, &subject);
        let relevance = relevance(&conditions);
        let holds = !conditions.is_empty() && conditions.iter().all(Condition::holds);
        let reasons: Vec<_> = conditions.into_iter().flat_map(|one| one.reasons).collect();
        let undecided = reasons.iter().any(|it| matches!(it, MatchReason::Undecidable { .. }));
        let list = match entry.kind {
            Kind::Prohibition if !holds => continue,
            Kind::Prohibition if entry.severity == Severity::Critical => &mut findings.blockers,
            Kind::Prohibition => &mut findings.warnings,
            _ if undecided => &mut findings.warnings,
            // Where everything is relevant enough, what has nothing in common still is not.
            _ if reasons.is_empty() || relevance < enough => continue,
            Kind::Recommendation => &mut findings.recommendations,
            Kind::Convention => &mut findings.conventions,
            Kind::Learning => &mut findings.learnings,
        };
        list.push(Match { entry: entry.id, reasons, relevance });
    }
    for list in [
        &mut findings.blockers,
        &mut findings.warnings,
        &mut findings.recommendations,
        &mut findings.conventions,
        &mut findings.learnings,
    ] {
        list.sort_by_key(|one| (Reverse(one.relevance), one.entry));
    }
    findings
}

/// What the entries are held against.
struct Subject<'a> {
    paths: Vec<&'a str>,
    task_type: TaskType,
    texts: Vec<&'a str>,
    words: Vec<Vec<String>>,
}

/// The conditions of one kind that an entry has: why they hold, and which share of them does.
struct Condition {
    reasons: Vec<MatchReason>,
    percent: usize,
}

impl Condition {
    fn holds(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// A kind of which one is as good as all.
    fn any(reasons: Vec<MatchReason>) -> Self {
        Self { percent: if reasons.is_empty() { 0 } else { 100 }, reasons }
    }
}

fn conditions(entry: &Entry, subject: &Subject<'_>) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if !entry.globs.is_empty() {
        conditions.push(Condition::any(paths(&entry.globs, &subject.paths)));
    }
    if !entry.task_types.is_empty() {
        conditions.push(Condition::any(task_type(&entry.task_types, subject.task_type)));
    }
    if !entry.keywords.is_empty() {
        let reasons = keywords(&entry.keywords, &subject.words);
        let percent = reasons.len() * 100 / entry.keywords.len();
        conditions.push(Condition { reasons, percent });
    }
    if let Some(pattern) = &entry.pattern {
        let reasons = match Regex::new(pattern) {
            Ok(regex) => subject.texts.iter().filter_map(|text| found(&regex, text)).collect(),
            Err(_) => vec![MatchReason::Undecidable { condition: pattern.clone() }],
        };
        conditions.push(Condition::any(reasons));
    }
    conditions
}

fn relevance(conditions: &[Condition]) -> u8 {
    let sum: usize = conditions.iter().map(|one| one.percent).sum();
    sum.checked_div(conditions.len()).and_then(|mean| u8::try_from(mean).ok()).unwrap_or_default()
}

fn paths(globs: &[String], paths: &[&str]) -> Vec<MatchReason> {
    let mut reasons = Vec::new();
    for text in globs {
        match Glob::new(text).map(|glob| glob.compile_matcher()) {
            Ok(glob) => {
                reasons.extend(paths.iter().filter(|path| glob.is_match(path)).map(|path| {
                    MatchReason::Path { glob: text.clone(), path: (*path).to_owned() }
                }));
            }
            Err(_) => reasons.push(MatchReason::Undecidable { condition: text.clone() }),
        }
    }
    reasons
}

fn task_type(types: &[TaskType], of_task: TaskType) -> Vec<MatchReason> {
    types.iter().filter(|it| **it == of_task).map(|it| MatchReason::TaskType(*it)).collect()
}

/// Whole words, or several in a row, whatever their case.
fn keywords(keywords: &[String], texts: &[Vec<String>]) -> Vec<MatchReason> {
    keywords
        .iter()
        .filter(|keyword| {
            let wanted = words(keyword);
            !wanted.is_empty()
                && texts.iter().any(|text| text.windows(wanted.len()).any(|run| run == wanted))
        })
        .map(|keyword| MatchReason::Keyword(keyword.clone()))
        .collect()
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

fn found(regex: &Regex, text: &str) -> Option<MatchReason> {
    regex.find(text).map(|found| MatchReason::Pattern {
        pattern: regex.to_string(),
        found: found.as_str().chars().take(80).collect(),
    })
}

/// A line of a change that does what the team has forbidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The prohibition.
    pub entry: KnowledgeId,
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// The line, counted from 1; none where the pattern cannot be read and so every line may be it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What matched what.
    pub reason: MatchReason,
}

impl Violation {
    /// The issue that the review makes of it: as with plans, only a critical one blocks.
    pub fn issue(&self) -> review::Issue {
        review::Issue {
            severity: match self.severity {
                Severity::Critical => review::Severity::Critical,
                Severity::Low | Severity::Medium | Severity::High => review::Severity::Warning,
            },
            category: review::Category::Code,
            message: format!("prohibited by {}: {}", self.entry, self.reason),
            file: Some(self.file.clone()),
            line: self.line,
        }
    }
}

/// Holds the lines that a change adds to one file against the prohibitions that have a pattern.
///
/// Paths and task types narrow a prohibition here as they do for a plan. Keywords do not: they
/// are about the words of a plan, and code that is forbidden stays so whatever the plan said.
pub fn added_lines(
    task: &Task,
    entries: &[Entry],
    now: DateTime<Utc>,
    path: &str,
    lines: &[(u32, &str)],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for entry in entries {
        let Some(pattern) = &entry.pattern else {
            continue;
        };
        let concerns = !lines.is_empty()
            && entry.kind == Kind::Prohibition
            && entry.is_in_force(task.project, now)
            && (entry.task_types.is_empty() || entry.task_types.contains(&task.r#type));
        if !concerns {
            continue;
        }
        let violation = |line, reason| Violation {
            entry: entry.id,
            severity: entry.severity,
            file: path.to_owned(),
            line,
            reason,
        };
        match Matcher::new(pattern, &entry.globs) {
            Ok(matcher) => {
                violations.extend(matcher.found(path, lines).into_iter().map(|(line, found)| {
                    let reason = MatchReason::Pattern { pattern: pattern.clone(), found };
                    violation(Some(line), reason)
                }));
            }
            Err(_) if entry.globs.is_empty() || !paths(&entry.globs, &[path]).is_empty() => {
                let reason = MatchReason::Undecidable { condition: pattern.clone() };
                violations.push(violation(None, reason));
            }
            Err(_) => {}
        }
    }
    violations.sort_by_key(|one| (one.line, one.entry));
    violations
}
