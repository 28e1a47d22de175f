//! Paths of a worktree, shortened for people.

/// Replaces absolute paths below `worktree` with paths relative to it. The worktree itself becomes
/// `.`; other paths are unchanged. An empty `worktree` changes nothing.
pub(super) fn relative_paths(text: &str, worktree: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !worktree.is_empty()
        && let Some(at) = rest.find(worktree)
    {
        let (before, after) = (&rest[..at], &rest[at + worktree.len()..]);
        out.push_str(before);
        let is_inside_path = before.chars().next_back().is_some_and(is_path_char);
        match after.chars().next() {
            Some('/') if !is_inside_path => {
                rest = &after[1..];
                // The folder itself, with a slash at its end.
                if !rest.chars().next().is_some_and(is_path_char) {
                    out.push_str("./");
                }
            }
            next if is_inside_path || next.is_some_and(is_path_char) => {
                out.push_str(worktree);
                rest = after;
            }
            _ => {
                out.push('.');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn is_path_char(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/' | '@' | '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_worktree_are_relative_and_others_stay() {
        for (text, expected) in [
            ("Read /w/t/src/a.rs", "Read src/a.rs"),
            ("`/w/t/a` and '/w/t/b c'", "`a` and 'b c'"),
            ("cd /w/t && ls", "cd . && ls"),
            ("cd /w/t", "cd ."),
            ("ls /w/t/", "ls ./"),
            ("/w/tree/a", "/w/tree/a"),
            ("/home/w/t/a", "/home/w/t/a"),
            ("--dir=/w/t/a", "--dir=a"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(relative_paths(text, "/w/t"), expected, "{text}");
        }
        assert_eq!(relative_paths("/a", ""), "/a");
    }
}
