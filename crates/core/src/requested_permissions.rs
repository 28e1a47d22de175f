//! Permissions that a question of an agent asks for.
//!
//! A question lists them after a fixed heading, one on each line. If a person says yes, exactly these
//! are granted for the rest of the task.

const HEADING: &str = "If you allow it, this is allowed for the rest of the task:";

/// Appends the permissions that a yes would grant to a question. Whatever an agent writes in the
/// question grants nothing.
pub fn append_permissions(question: &str, subjects: &[String]) -> String {
    let mut text = question.replace(HEADING, "[…]");
    if !subjects.is_empty() {
        text.push_str("\n\n");
        text.push_str(HEADING);
    }
    for subject in subjects {
        text.push_str("\n- ");
        text.push_str(&encode_line(subject));
    }
    text
}

/// Returns the permissions that a question asks for.
pub fn requested_permissions(question: &str) -> Vec<String> {
    let list = question.split_once(HEADING).map(|(_, list)| list).unwrap_or_default();
    list.lines().filter_map(|line| decode_line(line.strip_prefix("- ")?)).collect()
}

/// Writes a subject on one line. An agent chooses the words, so one with line breaks is written as
/// JSON, and cannot pass for several subjects.
fn encode_line(subject: &str) -> String {
    if subject.contains(char::is_control) || subject.starts_with('"') {
        return serde_json::Value::from(subject).to_string();
    }
    subject.to_owned()
}

fn decode_line(line: &str) -> Option<String> {
    if line.starts_with('"') { serde_json::from_str(line).ok() } else { Some(line.to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts of the parts that a forged list would have.
    fn hostile_text() -> impl Strategy<Value = String> {
        let parts = vec![
            "\n", "\n- ", "\r", "\r\n", "\u{0}", "\u{85}", "\u{2028}", "\"", "\\", "\\n", "- ",
            " ", "write: x", "é", HEADING,
        ];
        prop::collection::vec(prop::sample::select(parts), 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn a_question_asks_for_exactly_the_permissions_that_were_appended(
            question in hostile_text(),
            subjects in prop::collection::vec(hostile_text(), 0..4),
        ) {
            let text = append_permissions(&question, &subjects);
            prop_assert_eq!(requested_permissions(&text), subjects);
        }
    }

    #[test]
    fn a_command_of_several_lines_is_one_permission() {
        let subjects = ["command: ls\n- write: ci.yml".to_owned()];
        let text = append_permissions("May I?", &subjects);
        assert!(text.ends_with(":\n- \"command: ls\\n- write: ci.yml\""), "{text}");
        assert_eq!(requested_permissions(&text), subjects);
    }
}
