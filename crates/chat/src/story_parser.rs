//! Parser for messages about stories and their pipelines.
//!
//! A story is named by its ID, such as `WISH-001`, so a message is about a story only if the ID is
//! in it. A command needs the position of a command, like every other one.

use std::ops::Range;

use crate::change::{PipelineDraft, RequestedChange, StoryAction};
use crate::command_parser::command_head;
use crate::interpretation::interpretation;
use crate::message_text::{MessageText, phrase};
use crate::{ChatContext, ChatStory, Clarification, Intent, Interpretation};

/// Interprets a message about a story or about all pipelines, if it is one.
pub(crate) fn parse_story(
    message: &MessageText<'_>,
    context: &ChatContext,
) -> Option<Interpretation> {
    let text = &*message.masked;
    let named: Vec<_> =
        context.stories.iter().filter(|story| names(text, &story.story_id)).collect();
    let unclear = |unclear, explanation: &str| {
        Some(interpretation(Intent::Unclear(unclear), 70, explanation))
    };
    let heads = || message.clauses.iter().filter_map(|clause| command_head(message, clause));
    if let Some((start, head)) = heads().find(|(_, head)| is_run(head, &named)) {
        if is_hedged(text) {
            return unclear(Clarification::Condition, "conditional or scheduled command");
        }
        return Some(match pipeline_draft(message, start..start + head.len(), &named) {
            Ok(draft) => change(RequestedChange::RunPipeline(draft), "command: run a pipeline"),
            Err(missing) => interpretation(Intent::Unclear(missing), 70, "incomplete command"),
        });
    }
    let story = match &*named {
        [] if is_list(text) => {
            return Some(interpretation(Intent::Stories, 80, "request to list pipelines"));
        }
        [] => return None,
        [story] => *story,
        _ => return unclear(Clarification::OneAtATime, "several stories"),
    };
    let is_own = |(_, head): &(usize, &str)| names(head, &story.story_id);
    let commands: Vec<_> =
        heads().filter(is_own).filter_map(|(_, head)| wanted_actions(head)).collect();
    match &*commands {
        [] => {
            let intent = Intent::StoryStatus { pipeline: story.id };
            Some(interpretation(intent, 80, "question about a story"))
        }
        [_] if is_hedged(text) => {
            unclear(Clarification::Condition, "conditional or scheduled command")
        }
        [wanted] => match wanted.iter().find(|action| story.actions.contains(action)) {
            Some(action) => {
                let (pipeline, action) = (story.id, *action);
                Some(change(RequestedChange::Story { pipeline, action }, "command for a story"))
            }
            None => unclear(
                Clarification::StoryState { pipeline: story.id },
                "command does not fit the state",
            ),
        },
        _ => unclear(Clarification::OneAtATime, "several commands"),
    }
}

fn change(change: RequestedChange, explanation: &str) -> Interpretation {
    interpretation(Intent::Change(change), 85, explanation)
}

/// Returns `true` if a text contains the ID of a story as a word of its own.
fn names(text: &str, story_id: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let id = story_id.to_ascii_lowercase();
    text.match_indices(&id).any(|(at, _)| {
        let before = text.get(..at).and_then(|it| it.chars().next_back());
        let after = text.get(at + id.len()..).and_then(|it| it.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Returns `true` if a command is for later, or depends on something.
fn is_hedged(text: &str) -> bool {
    phrase!(
        r"\b(?:if|unless|once|whenever|when|provided|assuming|in case|as soon as|as long as|tomorrow|tonight|later|next week|after)\b"
    )
    .is_match(text)
}

/// Returns `true` if a command starts a run: it names a pipeline, a story or a known story ID.
fn is_run(head: &str, named: &[&ChatStory]) -> bool {
    let run = phrase!(r"^(?:run|start)\b");
    let again = phrase!(r"\b(?:again|once more)\b");
    let noun = phrase!(r"\b(?:pipeline|workflow|story|phases?)\b");
    run.is_match(head)
        && !again.is_match(head)
        && (noun.is_match(head) || named.iter().any(|story| names(head, &story.story_id)))
}

fn is_list(text: &str) -> bool {
    let list = phrase!(
        r"^\W*(?:(?:please|can you|could you|hey|hi|so)\W+)*(?:list|show|what|which|how many|how are|are there|any|status of|give me)\b.*\b(?:pipelines|stories)\b"
    );
    // "What are pipelines?" asks for help.
    let help = phrase!(r"^\W*what(?:['’]?s| is| are) (?:the )?(?:pipelines|stories)\W*$");
    list.is_match(text) && !help.is_match(text)
}

/// Returns the actions that a command can mean, the first one that is possible counts.
fn wanted_actions(head: &str) -> Option<&'static [StoryAction]> {
    use StoryAction as A;
    let verbs: [(_, &'static [StoryAction]); 5] = [
        (
            phrase!(
                r"^(?:continue|approve|accept|proceed|go on|carry on|keep going|let .+ (?:run|continue|go on|start))\b"
            ),
            &[A::Continue, A::Resume],
        ),
        (phrase!(r"^skip\b"), &[A::Skip]),
        (phrase!(r"^(?:stop|halt|reject|decline)\b"), &[A::Stop, A::Cancel]),
        (phrase!(r"^(?:cancel|abort|kill|call off|terminate|end)\b"), &[A::Cancel]),
        (phrase!(r"^(?:resume|retry|rerun|re-run|restart|run .* again)\b"), &[A::Resume]),
    ];
    verbs.into_iter().find(|(verb, _)| verb.is_match(head)).map(|(_, actions)| actions)
}

/// Reads the run that a message asks for.
fn pipeline_draft(
    message: &MessageText<'_>,
    head: Range<usize>,
    named: &[&ChatStory],
) -> Result<PipelineDraft, Clarification> {
    if named.len() > 1 {
        return Err(Clarification::OneAtATime);
    }
    let text = message.masked.get(head.start..).unwrap_or_default();
    let original = message.original.get(head.start..).unwrap_or_default();
    let copied = |range: Option<Range<usize>>| range.and_then(|at| original.get(at));
    let dir = phrase!(r"(?:^|\s)(?P<dir>[a-z0-9_.-]+(?:/[a-z0-9_.-]+)+)/?(?:[\s,;:!?]|$)");
    let dir = copied(dir.group(text, "dir")).map(|dir| dir.trim_end_matches(['.', '/']).to_owned());
    let id = phrase!(r"(?:^|\s)(?P<id>[a-z][a-z0-9]*-[0-9]+)(?:[\s.,;:!?]|$)");
    let known = named.first();
    let story_id = match known {
        Some(story) => story.story_id.clone(),
        None => copied(id.group(text, "id")).ok_or(Clarification::MissingStory)?.to_owned(),
    };
    let feature_dir = match (dir, known) {
        (Some(dir), _) => dir,
        (None, Some(story)) => story.feature_dir.clone(),
        (None, None) => return Err(Clarification::MissingFeature { story_id }),
    };
    let number = |at: Option<Range<usize>>| at.and_then(|at| text.get(at)?.parse().ok());
    let from = phrase!(r"\bfrom[ =](?:phase )?(?P<n>\d+)\b").group(text, "n");
    let to = phrase!(r"\b(?:to|until|through|up to)[ =](?:phase )?(?P<n>\d+)\b").group(text, "n");
    let only = phrase!(r"\bonly phase (?P<n>\d+)\b").group(text, "n");
    let approve = phrase!(
        r"\b(?:approv\w*|gates?|ask(?: me)?)\b(?: (?:before|at|for|of|in))?[ =](?:phases? )?(?P<list>\d+(?:(?:,? and |, ?| )\d+)*)"
    );
    let listed = approve.group(text, "list").and_then(|at| text.get(at)).unwrap_or_default();
    let gates = listed.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    Ok(PipelineDraft {
        project: known.map(|story| story.project.clone()),
        feature_dir,
        story_id,
        from: number(from.or(only.clone())),
        to: number(to.or(only)),
        approve: gates.collect(),
    })
}
