//! Lesson of a pull request that a person closed without merging it, in that person's words.

use tamma_connect::forge::ThreadComment;
use tamma_core::actor::Actor;
use tamma_core::forge::PullRequestStatus;
use tamma_core::format::single_line;
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::knowledge::{EntryKind, EntrySeverity};
use tamma_core::learning::{Lesson, LessonTrigger, TaskRecord};
use tamma_core::pull_request::PullRequestState;
use tamma_engine::sanitize;

use super::MAX_ENTRIES;
use crate::forge_context::{ForgeContext, ForgeFailure};
use crate::job_context::JobContext;
use crate::services::Services;

/// Maximum number of comments that become part of the lesson, newest last.
const MAX_COMMENTS: usize = 3;

/// Maximum length of a comment in the lesson, in characters.
const MAX_COMMENT_CHARS: usize = 500;

/// Maximum number of keywords.
const MAX_KEYWORDS: usize = 6;

/// Returns the lesson, or `None` if nobody closed the pull request or said why. A failure never fails
/// the task.
pub(super) async fn closing_lesson(
    services: &Services,
    ctx: &JobContext,
    record: &TaskRecord,
) -> Option<Lesson> {
    if !ctx.rules.scrum_master.learning_capture.capture_failure {
        return None;
    }
    let known = ctx.task_loop.pull_request.as_deref()?;
    let facts = known.facts.as_ref()?;
    let PullRequestStatus::Closed { by } = &facts.status else { return None };
    let comments = match closing_comments(services, ctx, known).await {
        Ok(comments) => comments,
        Err(failure) => {
            tracing::warn!(task = %ctx.task.id, ?failure, "failed to read why a pull request was closed");
            Vec::new()
        }
    };
    let history: Vec<_> = match services.store.history(ctx.task.id, 0, MAX_ENTRIES).await {
        Ok(lines) => lines.into_iter().map(|line| line.entry).collect(),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(task = %ctx.task.id, error, "failed to read why a task was cancelled");
            Vec::new()
        }
    };
    let text = lesson_text(&ctx.task.title, by, &comments, cancel_reason(&history))?;
    Some(Lesson {
        project: record.project,
        trigger: LessonTrigger::Failure,
        kind: EntryKind::Learning,
        title: String::new(),
        text,
        keywords: keywords(&ctx.task.title),
        globs: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: EntrySeverity::Medium,
        evidence: known.url.parse().into_iter().collect(),
        note: record.summary(),
    })
}

async fn closing_comments(
    services: &Services,
    ctx: &JobContext,
    known: &PullRequestState,
) -> Result<Vec<ThreadComment>, ForgeFailure> {
    let project = services.repositories.project(ctx).await?;
    let address = &project.project.repository;
    let ids = (ctx.project(), ctx.task.id);
    let forge = ForgeContext::open(&services.store, &services.forges, address, ids)?;
    let threads = known.facts.iter().flat_map(|facts| &facts.threads);
    let threads: Vec<String> = threads.map(|thread| thread.id.clone()).collect();
    if threads.is_empty() {
        return Ok(Vec::new());
    }
    forge.thread_comments(known.number, &threads).await
}

/// Returns the reason of the person who cancelled the task, if a person did.
fn cancel_reason(history: &[HistoryEntry]) -> Option<&str> {
    let cancelled = history.iter().rfind(|it| it.name == EntryName::SmTaskCancelled)?;
    match cancelled.actor {
        Actor::Person(_) => cancelled.reason.as_deref(),
        Actor::Tamma | Actor::Council => None,
    }
}

/// Returns the text of the lesson: the last comments of the person who closed the pull request, and the
/// reason for which a person then cancelled the task.
fn lesson_text(
    title: &str,
    by: &str,
    comments: &[ThreadComment],
    cancelled: Option<&str>,
) -> Option<String> {
    let theirs: Vec<_> = comments.iter().filter(|comment| comment.by == by).collect();
    let first = theirs.len().saturating_sub(MAX_COMMENTS);
    let said: Vec<String> = theirs
        .iter()
        .skip(first)
        .map(|comment| comment.text.as_str())
        .chain(cancelled)
        .map(|text| single_line(&sanitize::text(text)))
        .filter(|text| !text.is_empty())
        .map(|text| text.chars().take(MAX_COMMENT_CHARS).collect())
        .collect();
    if said.is_empty() {
        return None;
    }
    let title = single_line(title);
    let said = said.join(" / ");
    Some(format!("A pull request for \"{title}\" was closed without merging. Reason: {said}"))
}

fn keywords(title: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in title.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let word = word.to_lowercase();
        if word.chars().count() > 3 && !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(MAX_KEYWORDS);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(by: &str, text: &str) -> ThreadComment {
        ThreadComment {
            thread: "1".to_owned(),
            id: "2".to_owned(),
            by: by.to_owned(),
            can_write: true,
            position: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_last_comments_of_the_person_who_closed_it_are_the_reason() {
        let comments = [
            comment("ann", "one"),
            comment("bo", "I like it"),
            comment("ann", "two"),
            comment("ann", "three"),
            comment("ann", "We use\nthe other list."),
        ];
        let text = lesson_text("Greet Cy", "ann", &comments, None).expect("a lesson");
        assert_eq!(
            text,
            "A pull request for \"Greet Cy\" was closed without merging. Reason: two / three / We \
             use the other list."
        );
        assert_eq!(lesson_text("Greet Cy", "cy", &comments, None), None, "nobody said why");
        let text = lesson_text("Greet Cy", "cy", &comments, Some("Too\nrisky.")).expect("a lesson");
        assert!(text.ends_with("Reason: Too risky."), "{text}");
        assert_eq!(keywords("Greet the Cy, greet names"), ["greet", "names"]);
    }
}
