//! Lines of the short form as policies.

use std::collections::BTreeSet;

use cedar_policy::{Policy, PolicyId};
use tamma_core::rules::{AgentRole, Deed, Line};

use crate::{Error, Verdict};

/// The policy that a line stands for.
pub(crate) fn policy(
    id: PolicyId,
    role: AgentRole,
    verdict: Verdict,
    line: &Line,
) -> Result<Policy, Error> {
    let Line { deed, pattern } = line;
    let matches: Vec<String> = alternatives(line)
        .into_iter()
        .map(|one| format!("context.what like \"{}\"", escaped(&one)))
        .collect();
    let mut when = format!("({})", matches.join(" || "));
    // A pattern from the worktree's root says nothing of what is outside.
    if matches!(deed, Deed::Read | Deed::Write) && !pattern.starts_with('/') {
        when = format!("context.inside && {when}");
    }
    let because = escaped(&format!("the rules say `{verdict}: {deed}: {pattern}`"));
    let (effect, unless) = match verdict {
        Verdict::Allow => ("permit", ""),
        Verdict::Ask => ("forbid", " unless { context.approved }"),
        Verdict::Deny => ("forbid", ""),
    };
    let text = format!(
        "@because(\"{because}\") {effect} (principal == Role::\"{role}\", action == \
         Action::\"{deed}\", resource) when {{ {when} }}{unless};"
    );
    Policy::parse(Some(id), text).map_err(|error| Error::Cedar(error.to_string()))
}

/// A text in the quotes of Cedar. `*` stays what it is in a pattern: anything.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// What a pattern stands for, as patterns in which `*` is anything.
fn alternatives(line: &Line) -> BTreeSet<String> {
    match line.deed {
        Deed::Read | Deed::Write => paths(&line.pattern),
        // `cargo *` is also `cargo` alone.
        Deed::Command => {
            let alone = line.pattern.strip_suffix(" *").map(str::to_owned);
            [line.pattern.clone()].into_iter().chain(alone).collect()
        }
        Deed::Tool | Deed::Network => BTreeSet::from([line.pattern.clone()]),
    }
}

/// A name stands for the file, or for the folder with all that is in it; `**/` also for nothing.
fn paths(pattern: &str) -> BTreeSet<String> {
    let named = pattern.trim_end_matches("/**").trim_end_matches('/');
    let mut open = vec![named.to_owned()];
    let mut done = BTreeSet::new();
    while let Some(next) = open.pop() {
        if let Some(rest) = next.strip_prefix("**/") {
            open.push(rest.to_owned());
            open.push(format!("*/{rest}"));
        } else if let Some((before, after)) = next.split_once("/**/") {
            open.push(format!("{before}/{after}"));
            open.push(format!("{before}/*/{after}"));
        } else {
            done.insert(next.replace("**", "*"));
        }
    }
    done.iter().flat_map(|one| [one.clone(), format!("{one}/*")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_the_file_or_all_that_is_in_the_folder() {
        let all = |pattern: &str| paths(pattern).into_iter().collect::<Vec<_>>();
        assert_eq!(all("src"), ["src", "src/*"]);
        assert_eq!(all("src/**"), all("src"));
        assert_eq!(all("**/.env"), ["*/.env", "*/.env/*", ".env", ".env/*"]);
        assert_eq!(all("a/**/b")[..2], ["a/*/b", "a/*/b/*"]);
        assert!(all("a/**/b").contains(&"a/b".to_owned()));
    }
}
