//! Check of a project's prompts, before any task uses them.

use std::collections::BTreeSet;

use minijinja::Error;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use super::{Prompt, environment, render_template};

/// Longest template, in bytes.
const MAX_BYTES: usize = 50_000;

/// Problem of a project's prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PromptProblem {
    /// Line of the template, from 1, if known.
    pub line: Option<usize>,
    /// Description of the problem.
    pub message: String,
}

/// Checks a template that replaces the named prompt: its syntax, its variables, and that it renders.
pub fn check_prompt(name: &str, template: &str) -> Result<(), PromptProblem> {
    let problem = |line, message| PromptProblem { line, message };
    let Some(prompt) = Prompt::iter().find(|prompt| prompt.to_string() == name) else {
        return Err(problem(None, format!("there is no prompt `{name}`")));
    };
    if template.trim().is_empty() {
        return Err(problem(None, "the prompt is empty".to_owned()));
    }
    if template.len() > MAX_BYTES {
        return Err(problem(None, format!("the prompt is longer than {MAX_BYTES} bytes")));
    }
    let template_problem = |error: Error| {
        let text = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        problem(error.line(), text)
    };
    let samples = [sample(prompt, true), sample(prompt, false)];
    let known: BTreeSet<&str> =
        samples[0].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let environment = environment().map_err(template_problem)?;
    let parsed = environment.template_from_named_str(name, template).map_err(template_problem)?;
    let used: BTreeSet<String> = parsed.undeclared_variables(false).into_iter().collect();
    if let Some(unknown) = used.iter().find(|name| !known.contains(name.as_str())) {
        let line = template.lines().position(|line| line.contains(unknown.as_str()));
        let all: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("unknown variable `{unknown}`; use {}", all.join(", "));
        return Err(problem(line.map(|index| index + 1), message));
    }
    for sample in samples {
        render_template(name, template, sample).map_err(template_problem)?;
    }
    Ok(())
}

/// Returns sample values of a prompt: all of them filled, or as empty as they can be.
pub(super) fn sample(prompt: Prompt, filled: bool) -> Value {
    let text = |text: &str| if filled { json!(text) } else { Value::Null };
    let list = |items: Value| if filled { items } else { json!([]) };
    let mut values = json!({
        "task": {
            "id": "0192a000-0000-7000-8000-000000000001",
            "title": "Greet Cy",
            "description": if filled { "Cy should be greeted too." } else { "" },
            "type": "feature",
            "priority": "medium",
            "acceptance_criteria": list(json!(["Cy is greeted."])),
            "labels": [],
        },
        "criteria": list(json!([{ "id": "C1", "text": "Cy is greeted." }])),
        "base": "1111111111111111111111111111111111111111",
        "gates": list(json!([{
            "name": "tests", "command": "sh check.sh", "kind": "tests", "standing": "passed",
            "tests": "1 test passed",
        }])),
        "limits": { "files": 5, "critical": "`tamma.yaml`", "guarded": if filled { "`ci/**`" } else { "" } },
        "setup": text("npm ci"),
    });
    let plan = json!({
        "summary": "Cy is greeted.",
        "approach": "Add the name to the list.",
        "file_changes": [{
            "path": "names.txt", "action": "modify", "description": "one more name",
            "estimated_lines": 1,
        }],
        "testing_strategy": "The check counts the greetings.",
        "signals": {
            "files": 1, "modules": 1, "novelty": "none", "tests": "none", "security": "none",
            "ambiguity": "none",
        },
        "estimated_tokens": null,
        "estimated_cost_usd": null,
        "risks": list(json!(["Cy may not want it."])),
        "dependencies": [],
        "test_changes": list(json!(["old_test"])),
        "criteria": list(json!(["Cy is greeted."])),
        "assumptions": list(json!(["Names are plain text."])),
        "questions": list(json!(["Also Dee?"])),
        "verification": list(json!([{ "criterion": "C1", "test": "check.sh" }])),
    });
    let own = match prompt {
        Prompt::Plan => json!({
            "before": text("{}"), "note": text("Mind the tests."), "failed": text("tests failed"),
            "known": list(json!(["Prefer lists."])),
        }),
        Prompt::Implement => json!({
            "plan": plan, "known": list(json!(["Prefer lists."])), "brief": text("tests failed"),
            "iteration": 2, "max_iterations": 10, "budget": "60 min, $2.50",
        }),
        Prompt::Continue => {
            json!({ "brief": "tests failed", "iteration": 2, "max_iterations": 10 })
        }
        Prompt::Brief => json!({
            "number": 2, "most": 10, "tier": text("simple"), "outcome": "gates failed",
            "decision": text("retry"), "committed": filled, "first": !filled, "planner": false,
            "feedback": false,
            "last": if filled { json!({ "summary": "I added it." }) } else { Value::Null },
            "note": text("Mind the tests."), "again": list(json!(["tests: a"])),
            "new": list(json!(["tests: b"])), "gone": list(json!(["tests: c"])),
            "report": text("## `tests` failed"), "earlier": text("- attempt 1: gates failed"),
        }),
        Prompt::Validate => json!({
            "plan": plan, "passed": list(json!(["it_greets"])), "more_passed": usize::from(filled),
            "touched": ["names.txt"], "diff": "+cy", "cut": filled,
        }),
        Prompt::Advise | Prompt::Conclude => json!({
            "plan": "{}", "why": text("ask the council"), "attempts": "Attempt 1 failed.",
            "note": text("The plan was invalid."), "opinions": "Member 1: the list.",
            "question": text("Why does it fail?"), "reviews_plan": filled,
        }),
        Prompt::Learn => json!({
            "ending": "completed", "short": "2 attempts", "record": "[check 7] tests failed",
            "troubles": list(json!(["tests: a"])), "known": list(json!(["Prefer lists."])),
        }),
        Prompt::Phase | Prompt::Split => json!({
            "story": {
                "id": "WISH-001", "feature_dir": "plans/wishlist",
                "path": "plans/wishlist/stories/WISH-001",
                "workflow": "plans/wishlist/stories/WISH-001/_workflow",
            },
            "pipeline": "story", "count": 6,
            "phase": {
                "number": 5, "title": "QA Verify", "name": "QA VERIFY", "signal": "QA PASS",
                "command": text("/qa-verify-story plans/wishlist WISH-001"),
            },
            "source": text(".claude/commands/qa-verify-story.md"),
            "instructions": "Verify the story.",
            "inputs": list(json!(["plans/wishlist/STORY.md"])),
            "outputs": list(json!(["plans/wishlist/QA.md"])),
            "known": list(json!(["Prefer lists."])),
        }),
    };
    if let (Value::Object(values), Value::Object(own)) = (&mut values, own) {
        values.extend(own);
    }
    values
}
