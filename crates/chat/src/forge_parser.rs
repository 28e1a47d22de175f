//! Parser for questions about pull requests and the merge queue.

use crate::interpretation::interpretation;
use crate::message_text::{MessageText, phrase};
use crate::{Intent, Interpretation};

/// Interprets a request to list pull requests, or the entries of the merge queue.
pub(crate) fn parse_forge_list(message: &MessageText<'_>) -> Option<Interpretation> {
    let text = &*message.masked;
    if is_queue_list(text) {
        return Some(interpretation(Intent::MergeQueue, 80, "request to list the merge queue"));
    }
    is_pull_request_list(text)
        .then(|| interpretation(Intent::PullRequests, 80, "request to list pull requests"))
}

fn is_pull_request_list(text: &str) -> bool {
    let list = phrase!(
        r"^\W*(?:(?:please|can you|could you|hey|hi|so|and)\W+)*(?:list|show|see|view|what|which|how many|how are|are there|any|status of|give me)\b.*\b(?:pull requests|prs|merge requests|mrs)\b"
    );
    let alone =
        phrase!(r"^\W*(?:(?:open|my|our|all|the) )*(?:pull requests|prs|merge requests)\W*$");
    // "What are pull requests?" asks for help.
    let help = phrase!(r"^\W*what(?:['’]?s| is| are) (?:the )?(?:pull requests|prs)\W*$");
    (list.is_match(text) || alone.is_match(text)) && !help.is_match(text)
}

fn is_queue_list(text: &str) -> bool {
    let list = phrase!(
        r"^\W*(?:(?:please|can you|could you|hey|hi|so|and)\W+)*(?:list|show|see|view|what|what['’]?s|which|who|how many|how long|how is|is|are|anything|any|status of|give me)\b.*\bmerge queue\b"
    );
    let alone = phrase!(r"^\W*(?:the )?merge queue\W*$");
    // "What is the merge queue?" asks for help.
    let help = phrase!(r"^\W*what(?:['’]?s| is) (?:the |a )?merge queue\W*$");
    (list.is_match(text) || alone.is_match(text)) && !help.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<&'static str> {
        parse_forge_list(&MessageText::parse(text, &[])).map(|it| it.intent.name())
    }

    #[test]
    fn lists_of_pull_requests_and_the_queue_are_recognised() {
        for text in ["show pull requests", "Which PRs are open?", "any merge requests?", "open PRs"]
        {
            assert_eq!(read(text), Some("pull_requests"), "{text}");
        }
        for text in ["what is in the merge queue", "show me the merge queue", "merge queue?"] {
            assert_eq!(read(text), Some("merge_queue"), "{text}");
        }
    }

    #[test]
    fn questions_about_the_words_and_commands_are_left_to_others() {
        for text in ["what are pull requests?", "what is the merge queue?", "open a pull request"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
