//! Section 10: a plan does not violate a prohibition by mentioning something that it will not do.
//!
//! The labelled plans in `lab/inputs/knowledge` have their own cases; none of these sentences is in
//! them.

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use rstest::rstest;
use tamma_core::ids::{KnowledgeId, ProjectId};
use tamma_core::knowledge::{
    EntryKind, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry, check,
};
use tamma_core::plan::Plan;
use tamma_core::rules::Rules;
use tamma_core::task::{Task, TaskType};
use uuid::Uuid;

const HERE: ProjectId = ProjectId(Uuid::from_u128(1));

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn forbidding(keywords: &[&str], pattern: Option<&str>) -> KnowledgeEntry {
    KnowledgeEntry {
        id: KnowledgeId(Uuid::from_u128(1)),
        kind: EntryKind::Prohibition,
        text: "Never".to_owned(),
        scope: EntryScope::Project(HERE),
        globs: Vec::new(),
        task_types: Vec::new(),
        keywords: keywords.iter().map(|it| (*it).to_owned()).collect(),
        actions: Vec::new(),
        pattern: pattern.map(str::to_owned),
        severity: EntrySeverity::Critical,
        owner: None,
        evidence: Vec::new(),
        status: EntryStatus::Approved,
        expires_at: None,
        origin: None,
    }
}

/// Returns true if a plan with this approach violates a prohibition.
fn breaks(approach: &str, entry: KnowledgeEntry) -> bool {
    let task = Task {
        title: "A task".to_owned(),
        description: String::new(),
        r#type: TaskType::Feature,
        ..super::s10_knowledge::task()
    };
    let plan = Plan {
        summary: "A summary".to_owned(),
        approach: approach.to_owned(),
        file_changes: Vec::new(),
        testing_strategy: String::new(),
        signals: tamma_core::complexity::Signals::default().into(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
        criteria: Vec::new(),
        assumptions: Vec::new(),
        questions: Vec::new(),
        verification: Vec::new(),
        estimated_signals: Vec::new(),
    };
    !check(&task, &plan, &[entry], now(), &Rules::default()).can_proceed()
}

fn speaks_of_eval(approach: &str) -> bool {
    breaks(approach, forbidding(&["eval"], None))
}

#[rstest]
#[case("The formula is run with eval.")]
#[case("Eval it.")]
#[case("We do not touch the parser, and eval runs the rest.")]
#[case("We do not touch the parser and call eval for the rest.")]
#[case("It does not read the cache because eval is fast enough.")]
#[case("Nothing is cached, so eval runs each time.")]
#[case("No parser is needed: eval does it.")]
#[case("This is not only a parser but eval as well.")]
#[case("It is not just faster with eval.")]
#[case("Not until eval returns does the lock open.")]
#[case("No more than three calls of eval in a row.")]
#[case("No later than eval, the cache is cleared.")]
#[case("The formula cannot be read without eval.")]
#[case("It never works without eval.")]
#[case("There is no way to avoid eval.")]
#[case("We do not remove eval.")]
#[case("It no longer forbids eval.")]
#[case("The linter does not refuse eval any more.")]
#[case("Replace the parser with eval.")]
#[case("Replaces the parser by eval.")]
#[case("Remove the parser in favour of eval.")]
#[case("Instead of a parser we use eval.")]
#[case("Instead of a parser, eval.")]
#[case("Without the parser the page calls eval.")]
#[case("Rather than parse it, we eval it.")]
#[case("Avoid the parser by calling eval.")]
#[case("Removes the parser and adds eval.")]
#[case("Remove the parser, then call eval.")]
#[case("Switch from the parser to eval.")]
#[case("eval is used and the parser stays as it is.")]
#[case("We call eval and the parser is left alone.")]
#[case("The eval call is not slow.")]
#[case("With eval the parser is no longer needed.")]
#[case("With eval, the parser is removed.")]
#[case("A no-op mode and eval.")]
#[case("`--without-parser` turns eval on.")]
#[case("`if not ready` then eval.")]
#[case("`NOT NULL` stays and eval comes.")]
#[case("Out of scope: the parser. It calls eval.")]
#[case("Out of scope: the parser; the page calls eval.")]
#[case("Nothing but eval runs it.")]
#[case("No doubt eval is the way.")]
#[case("There is no harm in calling eval.")]
#[case("We never cache; eval is called each time.")]
#[case("We don't use the parser (eval does).")]
#[case("It is not the parser that runs, but eval.")]
#[case("Neither fast nor slow: eval.")]
#[case("Why not use eval?")]
fn planned_work_counts_whatever_else_is_negated(#[case] approach: &str) {
    assert!(speaks_of_eval(approach), "{approach}");
}

#[rstest]
#[case("It does not call eval.")]
#[case("It doesn\u{2019}t call eval.")]
#[case("We won't call eval in any branch of the parser.")]
#[case("No eval.")]
#[case("There is no eval here.")]
#[case("No event is sent through eval.")]
#[case("Never eval the text of a user.")]
#[case("Nothing is run with eval.")]
#[case("Nobody calls eval any more.")]
#[case("None of the formulas goes through eval.")]
#[case("Neither eval nor exec is called.")]
#[case("Neither exec nor eval is called.")]
#[case("We use neither exec, eval nor compile.")]
#[case("It works without eval.")]
#[case("It works without exec, eval or compile.")]
#[case("It works without exec and eval.")]
#[case("A parser instead of eval.")]
#[case("A parser rather than eval.")]
#[case("A parser in place of eval.")]
#[case("The parser replaces eval.")]
#[case("Replace eval with a parser.")]
#[case("Replace the last call of eval by a parser.")]
#[case("Remove eval.")]
#[case("Removing the eval from the importer.")]
#[case("The removal of eval from the importer.")]
#[case("Get rid of eval.")]
#[case("Stop using eval.")]
#[case("Switch from eval to a parser.")]
#[case("Moves away from eval.")]
#[case("The linter forbids eval.")]
#[case("A rule that bans eval.")]
#[case("It avoids eval.")]
#[case("Everything is allowed except eval.")]
#[case("The importer stays free of eval.")]
#[case("Eval stays as it is.")]
#[case("Eval and exec stay as they are.")]
#[case("The call of eval is left untouched.")]
#[case("The call of eval is left alone.")]
#[case("The plan leaves eval alone.")]
#[case("The plan leaves eval unchanged.")]
#[case("We keep eval out.")]
#[case("A check that keeps eval out of the importer.")]
#[case("Eval is not used.")]
#[case("Eval isn't used.")]
#[case("Eval is no longer called.")]
#[case("Eval is out of scope.")]
#[case("Eval is not part of this.")]
#[case("Eval remains forbidden.")]
#[case("Eval is removed.")]
#[case("Eval is replaced by a parser.")]
#[case("Eval goes away.")]
#[case("Out of scope: eval.")]
#[case("Out of scope: the cache, eval and the log.")]
#[case("Out of scope:\n- the cache\n- eval\n- the log")]
#[case("Not part of this: eval for the counters, which was talked about.")]
#[case("Non-goals: eval; exec.")]
#[case("We do not call exec, do not call eval, and do not cache.")]
#[case("We do not use eval, not even in tests.")]
#[case("No exec and no eval.")]
#[case("It must not call eval.")]
#[case("The formula cannot reach eval.")]
#[case("It refrains from eval.")]
fn negated_work_does_not_count(#[case] approach: &str) {
    assert!(!speaks_of_eval(approach), "{approach}");
}

#[rstest]
#[case("Runs `DROP TABLE x`.", true)]
#[case("Runs no `DROP TABLE x`.", false)]
#[case("It never runs `DROP TABLE x`, and `DROP TABLE y` is gone.", false)]
#[case("It never runs `DROP TABLE x`, but `DROP TABLE y` at the end.", true)]
#[case("The words DROP TABLE in a sentence are no code.", false)]
fn patterns_are_negated_like_words(#[case] approach: &str, #[case] expected: bool) {
    assert_eq!(breaks(approach, forbidding(&[], Some("DROP TABLE"))), expected, "{approach}");
}

#[rstest]
#[case::own_denial("Skip tests.", "skip tests", true)]
#[case::own_no("It commits with no verify.", "no verify", true)]
#[case::denied("We do not skip tests.", "skip tests", false)]
#[case::plural("Two caches.", "cache", true)]
#[case::plural_es("Two indexes.", "index", true)]
#[case::plural_y("Two libraries.", "library", true)]
#[case::singular("One cache.", "caches", true)]
#[case::across_sentences("We skip. Tests run.", "skip tests", false)]
#[case::with_a_mark("A feature-flag.", "feature flag", true)]
#[case::part_of_a_name("evaluate", "eval", false)]
fn keywords_are_found_as_phrases(
    #[case] approach: &str,
    #[case] keyword: &str,
    #[case] expected: bool,
) {
    assert_eq!(breaks(approach, forbidding(&[keyword], None)), expected, "{approach}");
}

proptest! {
    /// A statement in its own sentence counts in any context.
    #[test]
    fn an_affirmed_sentence_always_counts(
        before in "[a-z ,;:()]{0,60}",
        after in "[a-zA-Z ,.;:()'`-]{0,60}",
    ) {
        let text = format!("{before}.\n\nThe page calls eval.\n\n{after}");
        prop_assert!(speaks_of_eval(&text));
    }

    /// A negated statement never counts if no other sentence mentions it.
    #[test]
    fn a_negated_sentence_never_counts(before in "[b-d ,;]{0,40}", after in "[b-d ,;.:()]{0,40}") {
        let text = format!("{before}.\n\nIt does not call eval.\n\n{after}");
        prop_assert!(!speaks_of_eval(&text));
    }

    /// Any text can be parsed.
    #[test]
    fn parsing_never_fails(text in "\\PC{0,200}") {
        breaks(&text, forbidding(&["eval", "a b"], Some("e")));
    }
}
