//! Names in the file that point at other parts of it, and sections whose keys belong together.
//!
//! A tier and a seat of the council name an agent, and a level of risk names gates. What is named has
//! to be there, which neither the schema nor a single value can tell; nor which keys of a pattern go
//! with which.

use super::Rules;
use super::check::{Walk, join};
use super::fit::cut;
use super::load::nearest;
use super::problem::{Fault, Origin, Problem, closest};

/// The longest name that a user may give.
const LONGEST: usize = 100;

/// Finds names that point at nothing, and things that cannot be named.
pub(super) fn check(rules: &Rules, walk: &mut Walk<'_>) {
    for (name, agent) in &rules.agents {
        check_name(walk, "agents", name);
        let path = join("agents", name);
        // One that is there but wrong has been told already.
        if agent.command.is_empty() && !walk.origins.contains_key(&join(&path, "command")) {
            let origin = nearest(&walk.origins, &path);
            let expected = "the program to start, such as `goose`".to_owned();
            let fault = Fault::MissingKey { path, key: "command".to_owned(), expected };
            walk.problems.push(Problem { fault, origin });
        }
    }
    for name in rules.gates.keys() {
        check_name(walk, "gates", name);
    }
    for (name, pattern) in &rules.review.patterns {
        check_name(walk, "review.patterns", name);
        if let Some((key, reason)) = pattern.flaw() {
            let path = join("review.patterns", name);
            let path = key.map_or(path.clone(), |key| join(&path, key));
            let origin = nearest(&walk.origins, &path);
            walk.problems.push(Problem { fault: Fault::Refused { path, reason }, origin });
        }
    }
    let (tiers, levels) = (&rules.tiers, &rules.ceremony);
    let agents: Vec<String> = rules.agents.keys().cloned().collect();
    for (key, tier) in
        [("simple", &tiers.simple), ("moderate", &tiers.moderate), ("complex", &tiers.complex)]
    {
        check_target(walk, "agents", &agents, format!("tiers.{key}.agent"), &tier.agent);
    }
    let council = &rules.council;
    let members = council.members.iter().enumerate();
    let members = members.map(|(index, seat)| (format!("council.members[{index}]"), seat));
    for (path, seat) in members.chain([("council.chair".to_owned(), &council.chair)]) {
        if let Some(agent) = &seat.agent {
            check_target(walk, "agents", &agents, join(&path, "agent"), agent);
        }
    }
    let gates: Vec<String> = rules.gates.keys().cloned().collect();
    for (key, level) in [("low", &levels.low), ("medium", &levels.medium), ("high", &levels.high)] {
        for (index, name) in level.gates.iter().enumerate() {
            let path = format!("ceremony.{key}.gates[{index}]");
            check_target(walk, "gates", &gates, path, name);
        }
    }
}

/// A name is part of paths, files and messages, so it is a plain word.
fn check_name(walk: &mut Walk<'_>, section: &str, name: &str) {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain) {
        return;
    }
    let path = join(section, name);
    let origin = nearest(&walk.origins, &path);
    let reason = format!(
        "a name here has 1 to {LONGEST} letters from a to z, digits, `-` and `_`, and no others"
    );
    let fault = Fault::Refused { path: join(section, &cut(name)), reason };
    walk.problems.push(Problem { fault, origin });
}

/// Reports a name that nothing in a section has.
fn check_target(walk: &mut Walk<'_>, section: &str, known: &[String], path: String, name: &str) {
    // What is there but wrong is reported where it is, once.
    if known.iter().any(|one| one == name) || walk.origins.contains_key(&join(section, name)) {
        return;
    }
    let origin = nearest(&walk.origins, &path);
    // What came out of a variable is not told, nor what it is close to.
    let hidden = match &origin {
        Origin::Variable { name } => Some(format!("what `{name}` holds")),
        Origin::File(_) | Origin::Default => {
            walk.hidden.get(&path).map(|hidden| format!("what `{}` holds", cut(&hidden.shown)))
        }
    };
    let meant = if hidden.is_none() { closest(name, known).cloned() } else { None };
    let fault = Fault::UnknownName {
        path,
        section: section.to_owned(),
        found: hidden.unwrap_or_else(|| format!("`{}`", cut(name))),
        meant,
        known: known.to_vec(),
    };
    walk.problems.push(Problem { fault, origin });
}
