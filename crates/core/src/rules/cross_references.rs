//! Checks across sections: references between them, keys that belong together, and prices for
//! limits in dollars.
//!
//! Tiers and council members refer to agents, and risk levels to gates. Neither the schema nor the
//! check of a single value can find a reference to something undefined, or a pattern whose keys do
//! not fit together.

use strum::IntoEnumIterator as _;

use super::Rules;
use super::alerts::ChannelProblem;
use super::load::nearest_origin;
use super::problem::{ConfigFault, ConfigProblem, ValueOrigin, closest_match};
use super::review::AgentSelection;
use super::validation::{FileValidator, join_path};
use super::value_check::truncate;
use crate::prices;
use crate::tier::Tier;

/// Longest name that a user can give, in bytes.
const MAX_NAME_LEN: usize = 100;

/// Reports undefined references and invalid names.
pub(super) fn check_names(rules: &Rules, validator: &mut FileValidator<'_>) {
    for (name, agent) in &rules.agents {
        check_name(validator, "agents", name);
        let path = join_path("agents", name);
        // An invalid `command` has been reported already.
        if agent.command.is_empty() && !validator.origins.contains_key(&join_path(&path, "command"))
        {
            let origin = nearest_origin(&validator.origins, &path);
            let expected = "program to start, such as `goose`".to_owned();
            let fault = ConfigFault::MissingKey { path, key: "command".to_owned(), expected };
            validator.problems.push(ConfigProblem { fault, origin });
        }
    }
    for name in rules.gates.keys() {
        check_name(validator, "gates", name);
    }
    if let Some(key) = rules.setup.useless_key() {
        let path = join_path("setup", key);
        let origin = nearest_origin(&validator.origins, &path);
        let reason = "it has no effect without `setup.command`: add the command, such as \
                      `npm ci`, or remove this key"
            .to_owned();
        validator
            .problems
            .push(ConfigProblem { fault: ConfigFault::Refused { path, reason }, origin });
    }
    for (name, pattern) in &rules.review.patterns {
        check_name(validator, "review.patterns", name);
        if let Some((key, reason)) = pattern.validation_error() {
            let path = join_path("review.patterns", name);
            let path = key.map_or(path.clone(), |key| join_path(&path, key));
            let origin = nearest_origin(&validator.origins, &path);
            validator
                .problems
                .push(ConfigProblem { fault: ConfigFault::Refused { path, reason }, origin });
        }
    }
    let (tiers, levels) = (&rules.tiers, &rules.ceremony);
    let agents: Vec<String> = rules.agents.keys().cloned().collect();
    for (key, tier) in
        [("simple", &tiers.simple), ("moderate", &tiers.moderate), ("complex", &tiers.complex)]
    {
        check_reference(validator, "agents", &agents, format!("tiers.{key}.agent"), &tier.agent);
    }
    let council = &rules.council;
    let members = council.members.iter().enumerate();
    let members = members.map(|(index, member)| (format!("council.members[{index}]"), member));
    for (path, member) in members.chain([("council.chair".to_owned(), &council.chair)]) {
        if let Some(agent) = &member.agent {
            check_reference(validator, "agents", &agents, join_path(&path, "agent"), agent);
        }
    }
    check_pipelines(rules, validator, &agents);
    let gates: Vec<String> = rules.gates.keys().cloned().collect();
    for (key, level) in [("low", &levels.low), ("medium", &levels.medium), ("high", &levels.high)] {
        for (index, name) in level.gates.iter().enumerate() {
            let path = format!("ceremony.{key}.gates[{index}]");
            check_reference(validator, "gates", &gates, path, name);
        }
    }
}

/// Reports enabled alert channels that could not deliver anything.
pub(super) fn check_channels(rules: &Rules, validator: &mut FileValidator<'_>) {
    let channels = rules.scrum_master.alerts.channels.iter().enumerate();
    for (index, channel) in channels.filter(|(_, channel)| channel.enabled) {
        let Some(problem) = channel.problem() else { continue };
        let section = format!("scrum_master.alerts.channels[{index}]");
        let path = join_path(&section, "config");
        // An invalid setting has been reported already.
        if let ChannelProblem::Missing { key, .. } = &problem
            && !channel.config.contains_key(*key)
            && validator.origins.contains_key(&join_path(&path, key))
        {
            continue;
        }
        let origin = match validator.origins.get(&path) {
            Some(origin) => origin.clone(),
            // A channel without settings, or one that a variable added.
            None => nearest_origin(&validator.origins, &join_path(&section, "type")),
        };
        let reason = problem.to_string();
        let fault = ConfigFault::Refused { path, reason };
        validator.problems.push(ConfigProblem { fault, origin });
    }
}

/// Reports phases whose keys do not fit together, duplicate phases and undefined agents.
fn check_pipelines(rules: &Rules, validator: &mut FileValidator<'_>, agents: &[String]) {
    for (name, pipeline) in &rules.pipelines {
        check_name(validator, "pipelines", name);
        for (index, phase) in pipeline.phases.iter().enumerate() {
            let path = format!("{}.phases[{index}]", join_path("pipelines", name));
            if let Some(agent) = &phase.agent {
                check_reference(validator, "agents", agents, join_path(&path, "agent"), agent);
            }
            let mut earlier = pipeline.phases.iter().take(index);
            let duplicate = earlier.any(|other| other.id == phase.id);
            let duplicate = duplicate
                .then(|| ("id", format!("phase `{}` is defined twice", truncate(&phase.id))));
            if let Some((key, reason)) = duplicate.or_else(|| phase.validation_error()) {
                let path = join_path(&path, key);
                let origin = nearest_origin(&validator.origins, &path);
                let fault = ConfigFault::Refused { path, reason };
                validator.problems.push(ConfigProblem { fault, origin });
            }
        }
    }
}

/// Reports models without a price if a limit in dollars applies, because it could not be enforced.
///
/// Agents without an `upstream` report their own cost, and models that agents choose are only known
/// during a run: the gateway refuses them.
pub(super) fn check_prices(rules: &Rules, validator: &mut FileValidator<'_>) {
    if !rules.has_dollar_limit() {
        return;
    }
    let tiers = Tier::iter().map(|tier| (format!("tiers.{tier}"), AgentSelection::from(tier)));
    let council = &rules.council;
    let members = council.members.iter().enumerate();
    let members = members.map(|(index, member)| (format!("council.members[{index}]"), member));
    let members = members.chain([("council.chair".to_owned(), &council.chair)]);
    // A member without its own model uses its tier's, which is checked there.
    let members = members.filter(|(_, member)| member.model.is_some());
    let members = members.map(|(path, member)| (path, member.clone()));
    for (path, member) in tiers.chain(members) {
        let is_metered =
            rules.selected_agent(&member).is_some_and(|(_, agent)| !agent.upstream.is_empty());
        let Some(model) = rules.selected_model(&member).filter(|_| is_metered) else { continue };
        if prices::is_priced(model, &rules.prices) {
            continue;
        }
        let path = join_path(&path, "model");
        let reason = validator.redact(&prices::unpriced_reason(model));
        let origin = nearest_origin(&validator.origins, &path);
        let fault = ConfigFault::Refused { path, reason };
        validator.problems.push(ConfigProblem { fault, origin });
    }
}

/// Reports a name that is not a plain word. Names become part of paths, files and messages.
fn check_name(validator: &mut FileValidator<'_>, section: &str, name: &str) {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if !name.is_empty() && name.len() <= MAX_NAME_LEN && name.chars().all(is_allowed) {
        return;
    }
    let path = join_path(section, name);
    let origin = nearest_origin(&validator.origins, &path);
    let reason = format!(
        "a name must have 1 to {MAX_NAME_LEN} characters: letters a to z, digits, `-` or `_`"
    );
    let fault = ConfigFault::Refused { path: join_path(section, &truncate(name)), reason };
    validator.problems.push(ConfigProblem { fault, origin });
}

/// Reports a reference to a name that `section` does not define.
fn check_reference(
    validator: &mut FileValidator<'_>,
    section: &str,
    known: &[String],
    path: String,
    name: &str,
) {
    // A definition with errors is reported once, at the definition.
    if known.iter().any(|other| other == name)
        || validator.origins.contains_key(&join_path(section, name))
    {
        return;
    }
    let origin = nearest_origin(&validator.origins, &path);
    // Neither the value of a variable nor a similar name is shown.
    let hidden = match &origin {
        ValueOrigin::Variable { name } => Some(format!("the value of `{name}`")),
        ValueOrigin::File(_) | ValueOrigin::Default => validator
            .secret_values
            .get(&path)
            .map(|hidden| format!("the value of `{}`", truncate(&hidden.placeholder))),
    };
    let suggestion = if hidden.is_none() { closest_match(name, known).cloned() } else { None };
    let fault = ConfigFault::UnknownName {
        path,
        section: section.to_owned(),
        found: hidden.unwrap_or_else(|| format!("`{}`", truncate(name))),
        suggestion,
        known: known.to_vec(),
    };
    validator.problems.push(ConfigProblem { fault, origin });
}
