//! Section 4: plan.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::begin;
use tamma_core::cause::{AlertCause, LoopLimit};
use tamma_core::complexity::{
    ComplexityFactor, ComplexityLevel, Grade, PlanSignals, Signals, assess,
};
use tamma_core::cost::Usd;
use tamma_core::council::CouncilSeat;
use tamma_core::failure::FailureKind;
use tamma_core::history::EntryName;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::plan::{
    AdjustmentError, EDITABLE_FIELDS, EstimateFacts, FileAction, FileChange, PLANNER_FIELDS, Plan,
    PlanAdjustment, PlanError, PlanFacts, PlanSummary, PlannedTest, estimate_signals,
};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{EventKind, Job, Outcome, Refusal, State, TaskReceived, Trigger};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, failure, minute, note, pin, plan, text};

fn written() -> Plan {
    Plan {
        summary: "Say hello".to_owned(),
        approach: "Print it".to_owned(),
        file_changes: vec![change("src/main.rs")],
        testing_strategy: "Run it".to_owned(),
        signals: Signals::default().into(),
        estimated_tokens: None,
        estimated_cost_usd: Some(Usd::from_cents(30)),
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
        criteria: Vec::new(),
        assumptions: Vec::new(),
        questions: Vec::new(),
        verification: Vec::new(),
        estimated_signals: Vec::new(),
    }
}

fn change(path: &str) -> FileChange {
    FileChange {
        path: path.to_owned(),
        action: FileAction::Modify,
        description: "greets".to_owned(),
        estimated_lines: 3,
    }
}

// Complexity factors

#[rstest]
#[case::files(Signals { files: 1, ..none() }, 0)]
#[case::files(Signals { files: 2, ..none() }, 1)]
#[case::files(Signals { files: 5, ..none() }, 1)]
#[case::files(Signals { files: 6, ..none() }, 2)]
#[case::files(Signals { files: 10, ..none() }, 2)]
#[case::files(Signals { files: 11, ..none() }, 3)]
#[case::modules(Signals { modules: 1, ..none() }, 0)]
#[case::modules(Signals { modules: 2, ..none() }, 1)]
#[case::modules(Signals { modules: 3, ..none() }, 2)]
#[case::modules(Signals { modules: 4, ..none() }, 2)]
#[case::modules(Signals { modules: 5, ..none() }, 3)]
#[case::novelty(Signals { novelty: Grade::Some, ..none() }, 1)]
#[case::novelty(Signals { novelty: Grade::Much, ..none() }, 2)]
#[case::tests(Signals { tests: Grade::Some, ..none() }, 1)]
#[case::tests(Signals { tests: Grade::Much, ..none() }, 2)]
#[case::security(Signals { security: Grade::Much, ..none() }, 2)]
#[case::ambiguity(Signals { ambiguity: Grade::Much, ..none() }, 2)]
fn complexity_is_the_sum_of_named_factors(#[case] signals: Signals, #[case] score: u8) {
    assert_eq!(assess(&signals).score, score);
}

fn none() -> Signals {
    Signals::default()
}

#[test]
fn complexity_ends_at_14_and_names_every_factor_that_counted() {
    let much = Grade::Much;
    let all = Signals {
        files: 99,
        modules: 99,
        novelty: much,
        tests: much,
        security: much,
        ambiguity: much,
    };
    let complexity = assess(&all);
    assert_eq!(complexity.score, 14);
    assert_eq!(
        complexity.factors,
        [
            (ComplexityFactor::Files, 3),
            (ComplexityFactor::Modules, 3),
            (ComplexityFactor::Novelty, 2),
            (ComplexityFactor::Tests, 2),
            (ComplexityFactor::Security, 2),
            (ComplexityFactor::Ambiguity, 2),
        ]
    );
    assert_eq!(assess(&none()).factors, []);
}

#[rstest]
#[case(0, ComplexityLevel::Low, Tier::Simple)]
#[case(4, ComplexityLevel::Low, Tier::Simple)]
#[case(5, ComplexityLevel::Medium, Tier::Moderate)]
#[case(8, ComplexityLevel::Medium, Tier::Moderate)]
#[case(9, ComplexityLevel::High, Tier::Complex)]
#[case(14, ComplexityLevel::High, Tier::Complex)]
fn the_score_selects_the_first_tier(
    #[case] score: u8,
    #[case] level: ComplexityLevel,
    #[case] tier: Tier,
) {
    assert_eq!(
        (ComplexityLevel::from_score(score), ComplexityLevel::from_score(score).tier()),
        (level, tier)
    );
    let mut world = World::new().to(State::Planning);
    world.done(Outcome::Planned(PlanSummary { complexity_score: score, ..plan(1) }));
    world.walk(State::Validated);
    assert_eq!(world.it.tier, tier);
}

#[test]
fn files_are_counted_instead_of_estimated() {
    let mut plan = written();
    plan.signals.files = 0;
    plan.file_changes = (0..11).map(|number| change(&format!("src/{number}.rs"))).collect();
    assert_eq!(plan.complexity().factors, [(ComplexityFactor::Files, 3)]);
}

// Missing signals

fn repository(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn described_task(description: &str, criteria: &[&str]) -> Task {
    Task {
        id: TaskId(uuid::Uuid::nil()),
        project: ProjectId(uuid::Uuid::nil()),
        title: "Greet".to_owned(),
        description: description.to_owned(),
        r#type: TaskType::Feature,
        priority: Priority::Medium,
        acceptance_criteria: criteria.iter().map(|it| (*it).to_owned()).collect(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        issue_number: None,
        metadata: BTreeMap::new(),
    }
}

#[test]
fn missing_signals_are_estimated_and_named_and_given_ones_kept() {
    let mut plan = written();
    plan.signals =
        PlanSignals { modules: Some(7), security: Some(Grade::None), ..PlanSignals::default() };
    plan.file_changes = vec![
        change("crates/api/src/auth/login.rs"),
        FileChange { action: FileAction::Create, ..change("crates/vault/src/key.rs") },
        FileChange { action: FileAction::Create, ..change("crates/vault/src/lib.rs") },
    ];
    let paths =
        repository(&["Cargo.toml", "crates/api/Cargo.toml", "crates/api/src/auth/login.rs"]);
    let task = described_task("Please", &[]);
    let facts = EstimateFacts { repository: Some(&paths), task: Some(&task), critical_files: 0 };
    plan.complete_signals(&facts);
    assert_eq!(
        plan.estimated_signals,
        [ComplexityFactor::Novelty, ComplexityFactor::Tests, ComplexityFactor::Ambiguity]
    );
    let expected = Signals {
        files: 0,
        modules: 7,
        novelty: Grade::Much,
        tests: Grade::Some,
        security: Grade::None,
        ambiguity: Grade::Much,
    };
    assert_eq!(plan.signals, PlanSignals::from(expected));
    // A complete plan stays as it is.
    let complete = plan.clone();
    plan.complete_signals(&EstimateFacts::default());
    assert_eq!(plan.signals, complete.signals);
    assert_eq!(plan.estimated_signals, []);
}

#[rstest]
#[case::manifests(&["crates/a/src/x/y.rs", "crates/a/src/z.rs", "crates/b/src/lib.rs"], 2)]
#[case::folders(&["src/auth/login.rs", "src/mail/send.rs", "docs/mail.md"], 3)]
#[case::tests_belong_to_their_module(&["src/auth/login.rs", "tests/login.rs"], 1)]
#[case::root(&["README.md", "main.go"], 1)]
fn modules_are_counted_by_manifests_or_folders(#[case] files: &[&str], #[case] modules: u16) {
    let mut plan = written();
    plan.file_changes = files.iter().map(|path| change(path)).collect();
    let paths = repository(&["crates/a/Cargo.toml", "crates/b/Cargo.toml", "Cargo.toml"]);
    let facts = EstimateFacts { repository: Some(&paths), ..EstimateFacts::default() };
    assert_eq!(estimate_signals(&plan, &facts).modules, modules);
}

#[test]
fn security_is_estimated_from_paths_texts_and_critical_files() {
    let grade = |path: &str, summary: &str, critical_files| {
        let mut plan = written();
        plan.file_changes = vec![change(path)];
        plan.summary = summary.to_owned();
        estimate_signals(&plan, &EstimateFacts { critical_files, ..EstimateFacts::default() })
            .security
    };
    assert_eq!(grade("src/main.rs", "Say hello", 0), Grade::None);
    assert_eq!(grade("src/main.rs", "Say hello", 1), Grade::Some);
    assert_eq!(grade("src/main.rs", "Reset the password", 0), Grade::Some);
    assert_eq!(grade("src/oauth.rs", "Refresh the token", 0), Grade::Much);
}

#[test]
fn ambiguity_is_estimated_from_the_task_and_open_questions() {
    let long = "Every visitor whose name is on the list is greeted with it, in the language that \
                their browser requests, and everybody else politely.";
    let grade = |description: &str, criteria: &[&str], questions: &[&str]| {
        let task = described_task(description, criteria);
        let questions = questions.iter().map(|it| (*it).to_owned()).collect();
        let plan = Plan { questions, ..written() };
        estimate_signals(&plan, &EstimateFacts { task: Some(&task), ..EstimateFacts::default() })
            .ambiguity
    };
    assert_eq!(grade(long, &["It greets"], &[]), Grade::None);
    assert_eq!(grade(long, &[], &[]), Grade::Some);
    assert_eq!(grade("Greet", &[], &["Whom?"]), Grade::Much);
}

#[test]
fn a_plan_without_signals_is_never_simple_because_of_that() {
    let mut plan = written();
    plan.signals = PlanSignals::default();
    plan.dependencies = vec!["a greeting library".to_owned()];
    plan.file_changes =
        vec![change("src/auth.rs"), change("src/token/store.rs"), change("web/a.rs")];
    plan.summary = "Sign in with a token".to_owned();
    plan.questions = vec!["Which one?".to_owned()];
    assert!(plan.complexity().level > ComplexityLevel::Low, "{:?}", plan.complexity());
    // Old plans with grades keep their score and hash.
    let old = serde_json::json!({
        "summary": "s", "approach": "a", "testing_strategy": "t",
        "file_changes": [{ "path": "a", "action": "modify", "description": "d" }],
        "signals": {
            "files": 0, "modules": 0, "novelty": "none", "tests": "none", "security": "none",
            "ambiguity": "none",
        },
    });
    let old: Plan = serde_json::from_value(old).unwrap();
    assert_eq!(old.complexity().score, 0);
    assert!(serde_json::to_string(&old).unwrap().contains(
        r#""signals":{"files":0,"modules":0,"novelty":"none","tests":"none","security":"none","ambiguity":"none"}"#
    ));
}

// Validation

#[test]
fn a_valid_plan_has_no_errors() {
    assert_eq!(written().validate(), []);
}

#[test]
fn all_errors_of_a_plan_are_found_at_once() {
    let plan = Plan {
        summary: "  ".to_owned(),
        approach: String::new(),
        testing_strategy: String::new(),
        file_changes: vec![change("../outside"), change("a.rs"), change("a.rs")],
        ..written()
    };
    assert_eq!(
        plan.validate(),
        [
            PlanError::EmptyField("summary"),
            PlanError::EmptyField("approach"),
            PlanError::EmptyField("testing_strategy"),
            PlanError::InvalidPath("../outside".to_owned()),
            PlanError::DuplicatePath("a.rs".to_owned()),
        ]
    );
    let plan = Plan { file_changes: Vec::new(), ..written() };
    assert_eq!(plan.validate(), [PlanError::NoFiles]);
}

#[rstest]
fn a_path_stays_inside_the_repository(
    #[values("", " ", "/etc/passwd", "a//b", "./a", "a/../b", "a\\b", "..")] path: &str,
) {
    let plan = Plan { file_changes: vec![change(path)], ..written() };
    assert_eq!(plan.validate(), [PlanError::InvalidPath(path.to_owned())]);
}

/// Plan with everything that a planner must submit for a task without criteria.
fn submitted() -> Plan {
    let test = |id: &str| PlannedTest { criterion: id.to_owned(), test: "it_greets".to_owned() };
    Plan {
        criteria: vec!["It greets.".to_owned(), "It stops.".to_owned()],
        verification: vec![test("C1"), test("C2")],
        ..written()
    }
}

fn errors(plan: &Plan, fields: &[&str], task_criteria: usize) -> Vec<PlanError> {
    let path_exists = |path: &str| path == "src/main.rs";
    plan.validate_submission(PlanFacts {
        fields,
        task_criteria,
        signals_requested: false,
        path_exists: &path_exists,
    })
}

#[test]
fn a_planner_submits_every_part_of_the_form() {
    assert_eq!(errors(&submitted(), &PLANNER_FIELDS, 0), []);
    // Missing signals have an error of their own.
    let missing: Vec<_> = PLANNER_FIELDS.into_iter().skip(1).map(PlanError::MissingField).collect();
    assert_eq!(errors(&submitted(), &[], 0), missing);
    for error in missing {
        assert!(error.to_string().contains("is missing: "), "{error}");
    }
}

#[test]
fn a_plan_proposes_criteria_only_for_a_task_without_any() {
    let none = Plan { criteria: Vec::new(), verification: Vec::new(), ..submitted() };
    assert_eq!(errors(&none, &PLANNER_FIELDS, 0), [PlanError::NoCriteria]);
    assert_eq!(errors(&submitted(), &PLANNER_FIELDS, 2), [PlanError::ForeignCriteria]);
    let own = Plan { criteria: Vec::new(), ..submitted() };
    assert_eq!(errors(&own, &PLANNER_FIELDS, 2), []);
}

#[test]
fn every_criterion_has_a_planned_test() {
    let mut plan = submitted();
    plan.verification[1].criterion = "C3".to_owned();
    assert_eq!(
        errors(&plan, &PLANNER_FIELDS, 0),
        [PlanError::Unverified("C2".to_owned()), PlanError::UnknownCriterion("C3".to_owned())]
    );
    let mut plan = submitted();
    plan.verification[0].test = " ".to_owned();
    assert_eq!(errors(&plan, &PLANNER_FIELDS, 0), [PlanError::Unverified("C1".to_owned())]);
}

#[rstest]
#[case::create(FileAction::Create, "src/main.rs", Some(PlanError::ExistingFile("src/main.rs".to_owned())))]
#[case::create_new(FileAction::Create, "src/new.rs", None)]
#[case::modify(FileAction::Modify, "src/main.rs", None)]
#[case::modify_missing(FileAction::Modify, "src/new.rs", Some(PlanError::MissingFile { path: "src/new.rs".to_owned(), action: FileAction::Modify }))]
#[case::delete_missing(FileAction::Delete, "src/new.rs", Some(PlanError::MissingFile { path: "src/new.rs".to_owned(), action: FileAction::Delete }))]
fn paths_are_checked_against_the_base_commit(
    #[case] action: FileAction,
    #[case] path: &str,
    #[case] error: Option<PlanError>,
) {
    let plan = Plan { file_changes: vec![FileChange { action, ..change(path) }], ..submitted() };
    assert_eq!(errors(&plan, &PLANNER_FIELDS, 0), error.into_iter().collect::<Vec<_>>());
}

#[test]
fn the_criteria_of_the_task_win_over_proposed_ones() {
    let mut task = plain_task();
    assert_eq!(submitted().criteria_of(&task), ["It greets.", "It stops."]);
    task.acceptance_criteria = vec!["It sings.".to_owned()];
    assert_eq!(submitted().criteria_of(&task), ["It sings."]);
}

fn plain_task() -> tamma_core::task::Task {
    let world = World::new();
    serde_json::from_value(serde_json::json!({
        "id": world.it.task, "project": world.it.project, "title": "Greet", "type": "feature",
    }))
    .expect("a task")
}

proptest::proptest! {
    /// Approvals refer to hashes of plans from before the newer fields existed.
    #[test]
    fn newer_fields_leave_hashes_of_older_plans_unchanged(
        texts in proptest::collection::vec("[ -~]{0,20}", 3),
        risks in proptest::collection::vec("[ -~]{0,10}", 0..3),
        tokens in proptest::option::of(0_u64..1_000_000),
    ) {
        let plan = Plan {
            summary: texts[0].clone(),
            approach: texts[1].clone(),
            testing_strategy: texts[2].clone(),
            risks,
            estimated_tokens: tokens,
            ..written()
        };
        let mut old = serde_json::to_value(&plan).expect("JSON");
        for field in ["test_changes", "criteria", "assumptions", "questions", "verification"] {
            proptest::prop_assert!(old.get(field).is_none(), "{field}");
        }
        old["dependencies"] = serde_json::json!([]);
        let read: Plan = serde_json::from_value(old).expect("a plan");
        proptest::prop_assert_eq!(read.hash(), plan.hash());
    }
}

#[test]
fn a_plan_is_identified_by_the_hash_of_its_content() {
    assert_eq!(written().hash(), written().hash());
    let mut other = written();
    other.approach.push('!');
    assert_ne!(written().hash(), other.hash());
    // The hash is part of the format, because existing approvals refer to it.
    assert_eq!(written().hash().short(), "860d073486f5");
}

#[test]
fn the_summary_has_the_facts_that_the_state_machine_needs() {
    let mut plan = written();
    plan.file_changes.push(change("db/migrations/1.sql"));
    let summary = plan.summarize(3, text("plans/3"), &Rules::default());
    assert_eq!(
        summary,
        PlanSummary {
            hash: plan.hash(),
            version: 3,
            stored_at: text("plans/3"),
            file_count: 2,
            critical_file_count: 1,
            complexity_score: 1,
            estimated_cost: Some(Usd::from_cents(30)),
        }
    );
}

// Planning in the state machine

#[test]
fn an_invalid_plan_returns_to_the_planner_with_its_errors() {
    let mut world = World::new().to(State::Planning);
    world.done(Outcome::PlanInvalid(text("flaws")));
    assert_eq!(world.it.state, State::Planning);
    let again = Job::Plan { version: 1, from: None, note: Some(text("flaws")) };
    assert_eq!(world.started_job(), Some(&again));
    assert_eq!(world.it.state_failures(), 1);
    assert!(world.has_entry(EntryName::SmPlanInvalid));
}

#[test]
fn three_invalid_plans_go_to_the_council() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..2 {
        world.done(Outcome::PlanInvalid(note()));
        assert_eq!(world.it.state, State::Planning);
    }
    world.done(Outcome::PlanInvalid(note()));
    assert_eq!(world.it.state, State::CtoIntervention);
    let (seat, opinions) = (Some(CouncilSeat::Member(0)), Vec::new());
    assert_eq!(world.started_job(), Some(&Job::Convene { council_number: 1, seat, opinions }));
    // A planning failure is not a failed change, so it is not a retry.
    assert_eq!((world.it.councils, world.it.retries), (1, 0));
    assert!(world.it.failures.is_empty());
    world.walk(State::Planning);
    let guided = Job::Plan { version: 1, from: None, note: Some(text("guidance")) };
    assert_eq!(world.started_job(), Some(&guided));
}

#[test]
fn after_two_councils_planning_asks_a_person() {
    let mut world = World::new().to(State::Planning);
    for council in 1..=2 {
        for _ in 0..3 {
            world.done(Outcome::PlanInvalid(note()));
        }
        assert_eq!((world.it.state, world.it.councils), (State::CtoIntervention, council));
        world.walk(State::Planning);
    }
    for _ in 0..2 {
        world.done(Outcome::PlanInvalid(note()));
        assert_eq!(world.it.state, State::Planning);
    }
    world.done(Outcome::PlanInvalid(note()));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::LimitReached(LoopLimit::Councils));
    assert_eq!(question.resume_state, State::Planning);
}

#[test]
fn a_submitted_plan_is_reviewed_first() {
    let received = TaskReceived {
        task: World::new().it.task,
        project: World::new().it.project,
        priority: tamma_core::task::Priority::High,
        at: minute(0),
        by: Actor::Tamma,
        auth: None,
        submitted_plan: Some(text("brought")),
        edition: Edition::NEWEST,
    };
    let rules = Rules::default();
    let mut world = World::new();
    world.it = begin(&received, &rules).next;
    world.walk(State::Planning);
    let review = Job::Plan { version: 1, from: Some(text("brought")), note: None };
    assert_eq!(world.started_job(), Some(&review));
}

#[test]
fn a_new_plan_has_the_next_version() {
    let mut world = World::new().to(State::Planning);
    let refused = world.try_done(Outcome::Planned(plan(2)));
    assert_eq!(refused, Err(Refusal::PlanVersion { found: 2, expected: 1 }));
    world
        .done(Outcome::Planned(plan(1)))
        .ask(tamma_core::task_loop::Action::ChangeTask { request: note() });
    world.done(Outcome::Interrupted);
    let refused = world.try_done(Outcome::Planned(plan(1)));
    assert_eq!(refused, Err(Refusal::PlanVersion { found: 1, expected: 2 }));
    world.done(Outcome::Planned(plan(2)));
    assert!(world.has_entry(EntryName::SmPlanAdjusted));
}

#[test]
fn the_first_plan_is_not_a_revision() {
    let world = World::new().to(State::AwaitingApproval);
    assert!(world.has_entry(EntryName::SmPlanGenerated));
    assert!(!world.has_entry(EntryName::SmPlanAdjusted));
    assert_eq!(world.log.last().unwrap().trigger, Some(Trigger::PlanMade));
}

#[test]
fn a_planner_that_crashes_is_not_an_invalid_plan() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.councils, 0);
}

#[test]
fn the_base_and_the_rules_are_pinned_before_planning() {
    let mut world = World::new().to(State::Assigned);
    assert_eq!(world.feed(Actor::Tamma, EventKind::PinChanged(pin(1))), Err(Refusal::NotPinned));
    world.done(Outcome::Prepared(pin(1)));
    assert_eq!(world.it.pin, Some(pin(1)));
    assert_eq!(world.feed(Actor::Tamma, EventKind::PinChanged(pin(1))), Err(Refusal::PinUnchanged));
}

// Edits, field by field

fn edit(field: &str, new_value: Value) -> PlanAdjustment {
    let (field, reason) = (field.to_owned(), "better".to_owned());
    PlanAdjustment { field, original_value: None, new_value, reason }
}

#[test]
fn every_field_of_a_plan_can_be_edited() {
    let full = json!({
        "summary": "Say bye", "approach": "Print it twice",
        "file_changes": [{ "path": "a.rs", "action": "create", "description": "bye" }],
        "testing_strategy": "Read it", "signals": { "modules": 3 }, "estimated_tokens": 5,
        "estimated_cost_usd": "0.5", "risks": ["slow"], "dependencies": ["x"],
        "test_changes": ["t"], "criteria": ["c"], "assumptions": ["a"], "questions": ["q"],
        "verification": [{ "criterion": "C1", "test": "t" }],
    });
    let mut fields: Vec<_> = full.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let mut editable = EDITABLE_FIELDS.to_vec();
    editable.sort_unstable();
    assert_eq!(fields, editable);
    let edits: Vec<_> = fields.iter().map(|field| edit(field, full[*field].clone())).collect();
    let (edited, applied) = written().apply_adjustments(&edits).unwrap();
    assert_eq!(edited, serde_json::from_value(full.clone()).unwrap());
    assert_eq!(applied.len(), fields.len());
    for it in &applied {
        assert_eq!(it.original_value, written().field(&it.field), "{}", it.field);
    }
}

#[test]
fn edits_that_change_nothing_are_left_out() {
    let edits = [edit("approach", json!("Print it")), edit("risks", json!(["slow"]))];
    let (edited, applied) = written().apply_adjustments(&edits).unwrap();
    assert_eq!(edited, Plan { risks: vec!["slow".to_owned()], ..written() });
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0].original_value, Some(json!([])));
    assert_ne!(edited.hash(), written().hash());
}

#[test]
fn an_edit_that_does_not_fit_is_refused_with_the_reason() {
    let refused = |edits: &[PlanAdjustment]| written().apply_adjustments(edits).unwrap_err();
    assert_eq!(refused(&[]), AdjustmentError::Unchanged);
    assert_eq!(refused(&[edit("approach", json!("Print it"))]), AdjustmentError::Unchanged);
    let unknown = refused(&[edit("title", json!("x"))]);
    assert_eq!(unknown, AdjustmentError::UnknownField("title".to_owned()));
    let twice = [edit("risks", json!(["a"])), edit("risks", json!(["b"]))];
    assert_eq!(refused(&twice), AdjustmentError::DuplicateField("risks".to_owned()));
    let seen = Some(json!("Shout it"));
    let outdated = PlanAdjustment { original_value: seen, ..edit("approach", json!("x")) };
    assert_eq!(refused(&[outdated]), AdjustmentError::Outdated("approach".to_owned()));
    assert!(matches!(
        refused(&[edit("risks", json!("slow"))]),
        AdjustmentError::WrongType { field, .. } if field == "risks"
    ));
    let empty = refused(&[edit("file_changes", json!([]))]);
    assert_eq!(empty, AdjustmentError::Invalid(vec![PlanError::NoFiles]));
}
