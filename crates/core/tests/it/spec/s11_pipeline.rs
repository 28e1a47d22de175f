//! Section 11: phases, runs and reports of pipelines.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{TimeZone as _, Utc};
use proptest::prelude::*;
use rstest::rstest;
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    GateAnswer, PhaseRecord, PhaseRunner, PhaseStatus, PhaseWork, PipelineCommand,
    PipelineDefinition, PipelineEvent, PipelineRefusal, PipelineReport, PipelineRequest,
    PipelineRun, PipelineState, PipelineVerdict, step,
};
use tamma_core::time::Timestamp;

pub(crate) fn at() -> Timestamp {
    Utc.with_ymd_and_hms(2026, 11, 16, 12, 0, 0).unwrap()
}

pub(crate) fn request(from: u8, to: u8, approve: &[u8]) -> PipelineRequest {
    PipelineRequest {
        definition: PipelineDefinition::built_in(),
        feature_dir: "plans/wishlist".to_owned(),
        story_id: "WISH-001".to_owned(),
        from,
        to,
        approve: approve.iter().copied().collect(),
    }
}

fn run(from: u8, to: u8, approve: &[u8]) -> PipelineRun {
    PipelineRun::new(request(from, to, approve)).unwrap()
}

pub(crate) fn full_run() -> PipelineRun {
    run(1, 6, &[])
}

/// Applies events to a run. Each must give one command, or make the run ask a person. The last
/// command is returned.
pub(crate) fn after(
    run: PipelineRun,
    events: impl IntoIterator<Item = PipelineEvent>,
) -> (PipelineRun, Option<PipelineCommand>) {
    let mut last = None;
    let mut run = run;
    for event in events {
        let (next, mut commands) = step(&run, at(), event).unwrap();
        assert_eq!(commands.len(), usize::from(!next.state.is_asking()), "{commands:?}");
        last = commands.pop();
        run = next;
    }
    (run, last)
}

fn work(tokens: u64) -> PhaseWork {
    let tokens = Tokens { input: tokens - 10, output: 10, ..Tokens::default() };
    let usage = Usage { tokens, cost: Cost::Known(Usd::from_cents(5)) };
    let output = Some("out".parse().unwrap());
    PhaseWork { output, usage: Some(usage), took_ms: 7, ..PhaseWork::default() }
}

fn ended(phase: u8, signal: PhaseSignal) -> PipelineEvent {
    PipelineEvent::PhaseEnded { phase, signal, source: SignalSource::Structured, work: work(100) }
}

pub(crate) fn success(phase: u8) -> PipelineEvent {
    ended(phase, PhaseSignal::Success)
}

pub(crate) fn answered(answer: GateAnswer) -> PipelineEvent {
    PipelineEvent::GateAnswered { answer, by: "ada".parse().unwrap() }
}

pub(crate) fn cancelled() -> PipelineEvent {
    PipelineEvent::Cancelled { by: "ada".parse().unwrap() }
}

fn running(phase: u8, job_number: u32) -> PipelineCommand {
    PipelineCommand::RunPhase { phase, job_number }
}

fn stopped(phase: u8, verdict: PipelineVerdict, reason: &str) -> PipelineState {
    PipelineState::Stopped { phase, verdict, reason: reason.to_owned(), by: None }
}

/// State of a run that a person stopped.
pub(crate) fn stopped_by_ada(phase: u8, reason: &str) -> PipelineState {
    let (verdict, by) = (PipelineVerdict::Blocked, Some("ada".parse().unwrap()));
    PipelineState::Stopped { phase, verdict, reason: reason.to_owned(), by }
}

pub(crate) fn statuses(run: &PipelineRun) -> Vec<(u8, PhaseStatus)> {
    run.records.iter().map(|(phase, record)| (*phase, record.status)).collect()
}

// Phases.

#[test]
fn the_built_in_pipeline_has_six_phases() {
    let definition = PipelineDefinition::built_in();
    let phases: Vec<_> = definition
        .numbered()
        .map(|(number, it)| {
            (number, it.id.as_str(), it.title(), it.command.as_deref(), it.success_signal())
        })
        .collect();
    let expected = [
        (1, "pm_generate", "PM Generate", Some("/pm-story generate"), "PM COMPLETE"),
        (2, "elaboration", "Elaboration", Some("/elab-story"), "ELAB PASS"),
        (
            3,
            "implementation",
            "Implementation",
            Some("/dev-implement-story"),
            "DOCUMENTATION COMPLETE",
        ),
        (4, "code_review", "Code Review", Some("/dev-code-review"), "CODE REVIEW PASS"),
        (5, "qa_verify", "QA Verify", Some("/qa-verify-story"), "QA PASS"),
        (6, "done", "Done", None, "WORKFLOW COMPLETE"),
    ]
    .map(|(number, id, title, command, signal)| (number, id, title, command, signal.to_owned()));
    assert_eq!(phases, expected);
    let file = definition.phase(1).unwrap().command_file();
    assert_eq!(file.as_deref(), Some("pm-story.md"));
    assert_eq!(definition.phase(6).unwrap().runner, PhaseRunner::Status);
    assert!(definition.phase(0).is_none() && definition.phase(7).is_none());
}

#[test]
fn a_range_that_ends_before_it_starts_is_refused() {
    let refusal = PipelineRun::new(request(5, 3, &[])).unwrap_err();
    assert_eq!(refusal, PipelineRefusal::InvalidRange { from: 5, to: 3 });
    assert_eq!(
        refusal.to_string(),
        "invalid range: phase 3 comes before phase 5; swap --from and --to"
    );
    assert!(PipelineRun::new(request(5, 5, &[5])).is_ok());
}

#[rstest]
#[case(0, 6, &[], 0)]
#[case(1, 7, &[], 7)]
#[case(1, 6, &[9], 9)]
fn a_phase_that_does_not_exist_is_refused(
    #[case] from: u8,
    #[case] to: u8,
    #[case] approve: &[u8],
    #[case] number: u8,
) {
    let refusal = PipelineRun::new(request(from, to, approve)).unwrap_err();
    assert_eq!(refusal, PipelineRefusal::UnknownPhase { number, last: 6 });
}

#[rstest]
#[case(1)]
#[case(5)]
fn a_gate_outside_the_range_is_refused(#[case] gate: u8) {
    let refusal = PipelineRun::new(request(2, 4, &[gate])).unwrap_err();
    assert_eq!(refusal, PipelineRefusal::GateOutsideRange(gate));
}

#[rstest]
#[case("", "A")]
#[case("/etc", "A")]
#[case("plans/../../etc", "A")]
#[case("plans//a", "A")]
#[case(".git/hooks", "A")]
#[case("plans/$(reboot)", "A")]
#[case("plans; reboot", "A")]
#[case("plans", "")]
#[case("plans", "../A")]
#[case("plans", ".A")]
#[case("plans", "A B")]
fn a_story_outside_the_repository_is_refused(#[case] feature_dir: &str, #[case] story: &str) {
    let mut request = request(1, 6, &[]);
    feature_dir.clone_into(&mut request.feature_dir);
    story.clone_into(&mut request.story_id);
    let refusal = PipelineRun::new(request).unwrap_err();
    assert!(matches!(
        refusal,
        PipelineRefusal::InvalidFeatureDir(_) | PipelineRefusal::InvalidStoryId(_)
    ));
}

// The run.

#[test]
fn a_story_runs_through_all_phases_in_order() {
    let mut commands = Vec::new();
    let (mut run, mut command) = after(full_run(), [PipelineEvent::Start]);
    for phase in 1..=6 {
        assert_eq!(run.state, PipelineState::Running(phase));
        commands.extend(command);
        (run, command) = after(run, [success(phase)]);
    }
    assert_eq!(run.state, PipelineState::Complete);
    assert_eq!(commands, [1, 2, 3, 4, 5, 6].map(|phase| running(phase, u32::from(phase))));
    assert_eq!(command, Some(PipelineCommand::Finish { job_number: 7 }));
    let report = PipelineReport::new(&run);
    assert_eq!((report.verdict, report.phases_executed), (PipelineVerdict::Complete, 6));
    assert_eq!((report.total_tokens, report.continue_from), (600, None));
    assert_eq!(report.signal_line(), "WORKFLOW COMPLETE");
}

#[test]
fn phases_before_the_range_are_recorded_as_skipped_and_later_ones_do_not_run() {
    let (run, command) = after(run(3, 4, &[]), [PipelineEvent::Start, success(3), success(4)]);
    let expected = [PhaseStatus::Skipped, PhaseStatus::Skipped, PhaseStatus::Complete];
    let expected: Vec<_> = (1..).zip(expected).chain([(4, PhaseStatus::Complete)]).collect();
    assert_eq!(statuses(&run), expected);
    assert_eq!(run.records[&1].reason.as_deref(), Some("before the range"));
    assert_eq!(run.state, PipelineState::Complete);
    assert!(matches!(command, Some(PipelineCommand::Finish { .. })));
    let report = PipelineReport::new(&run);
    assert_eq!((report.phases_executed, report.phases_skipped), (2, 2));
    assert_eq!((report.last_phase, run.current_phase()), (Some(4), 5));
}

#[test]
fn output_and_resource_use_of_a_phase_are_recorded() {
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(1)]);
    assert_eq!(
        run.records[&1],
        PhaseRecord {
            status: PhaseStatus::Complete,
            signal: Some("PM COMPLETE".to_owned()),
            source: Some(SignalSource::Structured),
            reason: None,
            completed_at: Some(at()),
            work: work(100),
        }
    );
}

#[rstest]
#[case::blocked(
    ended(1, PhaseSignal::Blocked("no access".to_owned())),
    PhaseStatus::Blocked,
    "no access",
    Some("PM GENERATE BLOCKED: no access")
)]
#[case::failed(
    ended(1, PhaseSignal::Failed("no idea".to_owned())),
    PhaseStatus::Failed,
    "no idea",
    Some("PM GENERATE FAILED: no idea")
)]
#[case::unclear(
    ended(1, PhaseSignal::Unclear("All done!".to_owned())),
    PhaseStatus::Failed,
    "no clear signal",
    Some("All done!")
)]
#[case::silent(
    ended(1, PhaseSignal::Unclear(String::new())),
    PhaseStatus::Failed,
    "no clear signal",
    None
)]
#[case::crashed(
    PipelineEvent::PhaseCrashed { phase: 1, error: "signal 9".to_owned(), work: work(100) },
    PhaseStatus::Failed,
    "crashed: signal 9",
    None
)]
#[case::timed_out(
    PipelineEvent::PhaseTimedOut { phase: 1, work: work(100) },
    PhaseStatus::Failed,
    "timed out",
    None
)]
fn a_phase_that_does_not_complete_stops_the_run_without_a_retry(
    #[case] event: PipelineEvent,
    #[case] status: PhaseStatus,
    #[case] reason: &str,
    #[case] signal: Option<&str>,
) {
    let (run, command) = after(full_run(), [PipelineEvent::Start, event]);
    let verdict = if status == PhaseStatus::Blocked {
        PipelineVerdict::Blocked
    } else {
        PipelineVerdict::Failed
    };
    assert_eq!(run.state, stopped(1, verdict, reason));
    let record = &run.records[&1];
    assert_eq!((record.status, record.signal.as_deref()), (status, signal));
    assert_eq!((record.reason.as_deref(), &record.work), (Some(reason), &work(100)));
    assert!(matches!(command, Some(PipelineCommand::Finish { .. })));
    let report = PipelineReport::new(&run);
    assert_eq!((report.verdict, report.reason.as_deref()), (verdict, Some(reason)));
    assert_eq!((report.continue_from, report.last_phase), (Some(1), Some(1)));
    assert_eq!(report.signal_line(), format!("WORKFLOW {verdict}: {reason}"));
}

#[test]
fn a_gate_asks_before_its_phase_and_only_there() {
    let (run, command) = after(run(2, 4, &[3]), [PipelineEvent::Start, success(2)]);
    assert_eq!(run.state, PipelineState::AtGate(3));
    assert!(run.state.needs_person());
    assert_eq!(command, None);
    let (run, command) = after(run, [answered(GateAnswer::Continue)]);
    assert_eq!(run.state, PipelineState::Running(3));
    assert_eq!(command, Some(running(3, 2)));
}

#[test]
fn a_phase_skipped_at_its_gate_is_recorded_with_the_person() {
    let (run, command) =
        after(run(1, 2, &[1, 2]), [PipelineEvent::Start, answered(GateAnswer::Skip)]);
    assert_eq!(run.state, PipelineState::AtGate(2));
    assert_eq!(command, None);
    let (run, _) = after(run, [answered(GateAnswer::Skip)]);
    assert_eq!(run.state, PipelineState::Complete);
    assert_eq!(statuses(&run), [(1, PhaseStatus::Skipped), (2, PhaseStatus::Skipped)]);
    assert_eq!(run.records[&1].reason.as_deref(), Some("skipped by ada"));
    let report = PipelineReport::new(&run);
    assert_eq!((report.phases_executed, report.phases_skipped), (0, 2));
    assert_eq!((report.last_phase, report.last_signal), (None, None));
}

#[test]
fn a_run_stopped_at_a_gate_records_the_person() {
    let events = [PipelineEvent::Start, success(1), answered(GateAnswer::Stop)];
    let (run, _) = after(run(1, 6, &[2]), events);
    assert_eq!(run.state, stopped_by_ada(2, "stopped by ada"));
    assert!(!run.state.needs_person(), "a person has decided");
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete)]);
    let report = PipelineReport::new(&run);
    assert_eq!((report.continue_from, report.last_phase), (Some(2), Some(1)));
}

#[test]
fn a_cancelled_run_stops_its_phase_and_can_continue_there() {
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(1)]);
    let (run, commands) = step(&run, at(), cancelled()).unwrap();
    let finish = PipelineCommand::Finish { job_number: 3 };
    assert_eq!(commands, [PipelineCommand::StopPhase { phase: 2 }, finish]);
    assert_eq!(run.state, stopped_by_ada(2, "cancelled by ada"));
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete), (2, PhaseStatus::Blocked)]);
    assert!(step(&run, at(), success(2)).is_err(), "a late result changes nothing");
    assert!(step(&run, at(), cancelled()).is_err());
    assert_eq!(run.resume_request().unwrap().from, 2);
}

#[test]
fn a_run_whose_workflow_was_lost_stops_with_a_reason_and_can_continue_there() {
    let lost = || PipelineEvent::WorkflowLost { reason: "terminated".to_owned() };
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(1)]);
    let (run, commands) = step(&run, at(), lost()).unwrap();
    assert!(commands.is_empty(), "nothing runs that could do them");
    assert_eq!(run.state, stopped(2, PipelineVerdict::Failed, "terminated"));
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete), (2, PhaseStatus::Failed)]);
    assert_eq!(run.resume_request().unwrap().from, 2);
    assert!(step(&run, at(), lost()).is_err(), "an ended run stays as it is");
    let (at_gate, _) = step(&at_gate(), at(), lost()).unwrap();
    assert_eq!(at_gate.state, stopped(1, PipelineVerdict::Failed, "terminated"));
    assert!(statuses(&at_gate).is_empty(), "the phase has not started");
}

#[test]
fn a_run_that_cannot_be_prepared_ends_at_once() {
    let event = PipelineEvent::NotPrepared { error: "no such branch".to_owned() };
    let (run, commands) = step(&full_run(), at(), event).unwrap();
    assert_eq!(run.state, stopped(1, PipelineVerdict::Failed, "no such branch"));
    assert!(commands.is_empty());
}

fn at_gate() -> PipelineRun {
    after(run(1, 6, &[1]), [PipelineEvent::Start]).0
}

fn started() -> PipelineRun {
    after(full_run(), [PipelineEvent::Start]).0
}

fn crashed(phase: u8) -> PipelineEvent {
    PipelineEvent::PhaseCrashed { phase, error: String::new(), work: PhaseWork::default() }
}

#[rstest]
#[case(full_run(), success(1), "`phase_ended`", "ready")]
#[case(started(), PipelineEvent::Start, "`start`", "running pm_generate")]
#[case(started(), success(2), "`phase_ended`", "running pm_generate")]
#[case(started(), crashed(2), "`phase_crashed`", "running pm_generate")]
#[case(at_gate(), success(1), "`phase_ended`", "waiting for approval of pm_generate")]
#[case(after(started(), [crashed(1)]).0, PipelineEvent::Start, "`start`", "stopped at pm_generate")]
#[case(
    after(run(6, 6, &[]), [PipelineEvent::Start, success(6)]).0,
    success(6),
    "`phase_ended`",
    "complete"
)]
fn events_that_do_not_fit_the_state_are_refused(
    #[case] run: PipelineRun,
    #[case] event: PipelineEvent,
    #[case] name: &str,
    #[case] state: &str,
) {
    let refusal = step(&run, at(), event).unwrap_err();
    assert_eq!(refusal.to_string(), format!("event {name} is not possible: the run is {state}"));
}

#[test]
fn a_late_answer_learns_who_answered_first() {
    let answer = |run: &PipelineRun| step(run, at(), answered(GateAnswer::Stop));
    let refused = answer(&full_run()).unwrap_err().to_string();
    assert_eq!(refused, "no gate waits for an answer: the run is ready");
    let (run, _) = after(at_gate(), [answered(GateAnswer::Continue)]);
    let refused = answer(&run).unwrap_err().to_string();
    assert_eq!(refused, "ada has already answered at the gate of pm_generate: continue");
}

// Continuing.

fn stopped_at_implement() -> PipelineRun {
    let red = ended(3, PhaseSignal::Failed("red".to_owned()));
    after(full_run(), [PipelineEvent::Start, success(1), success(2), red]).0
}

#[test]
fn a_stopped_run_continues_from_its_phase_and_keeps_its_records() {
    let before = stopped_at_implement();
    let again = before.continue_with(request(3, 3, &[])).unwrap();
    assert_eq!(statuses(&again), [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]);
    let (again, command) = after(again, [PipelineEvent::Start]);
    assert_eq!(command, Some(running(3, 5)), "job numbers continue");
    let (again, _) = after(again, [success(3)]);
    assert_eq!(statuses(&again).last(), Some(&(3, PhaseStatus::Complete)));
    assert_eq!(PipelineReport::new(&again).total_tokens, 300);
}

#[test]
fn a_resumed_run_has_the_rest_of_its_range_and_gates() {
    let events = [PipelineEvent::Start, answered(GateAnswer::Continue), crashed(2)];
    let (run, _) = after(run(2, 5, &[2, 4]), events);
    let request = run.resume_request().unwrap();
    assert_eq!((request.from, request.to), (2, 5));
    assert_eq!(request.approve, BTreeSet::from([2, 4]));
    let refusal = started().resume_request().unwrap_err();
    assert_eq!(refusal.to_string(), "cannot continue: the run is running pm_generate");
}

#[test]
fn a_run_that_has_not_ended_cannot_be_continued() {
    let refusal = started().continue_with(request(1, 6, &[])).unwrap_err();
    assert_eq!(refusal.to_string(), "cannot continue: the run is running pm_generate");
    let range = stopped_at_implement().continue_with(request(5, 3, &[]));
    assert_eq!(range, Err(PipelineRefusal::InvalidRange { from: 5, to: 3 }));
}

#[test]
fn records_of_another_pipeline_are_not_kept() {
    let mut request = request(2, 2, &[]);
    request.definition.phases.truncate(2);
    let again = stopped_at_implement().continue_with(request).unwrap();
    assert!(again.records.is_empty());
}

#[test]
fn records_from_files_fill_gaps_before_the_range_only() {
    let mut run = run(3, 6, &[]);
    let found = stopped_at_implement().records;
    run.adopt_records(&found);
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]);
}

// Rebuilding.

fn rebuilt(to: u8, outputs: &[(u8, &str)]) -> PipelineRun {
    let outputs = outputs.iter().map(|(number, text)| (*number, (*text).to_owned())).collect();
    PipelineRun::rebuild(request(1, to, &[2]), &outputs).unwrap()
}

#[test]
fn a_damaged_run_is_rebuilt_from_the_outputs() {
    let run = rebuilt(6, &[(1, "ok\nPM COMPLETE\n"), (2, "ELAB PASS")]);
    assert_eq!(run.state, stopped(3, PipelineVerdict::Blocked, "run state was lost"));
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]);
    assert_eq!(run.records[&1].source, Some(SignalSource::LastLine));
    assert!(run.continue_with(request(3, 6, &[])).is_ok());
}

#[rstest]
#[case::nothing(6, &[], stopped(1, PipelineVerdict::Blocked, "run state was lost"), &[])]
#[case::unknown_numbers(
    6,
    &[(0, "PM COMPLETE"), (7, "WORKFLOW COMPLETE")],
    stopped(1, PipelineVerdict::Blocked, "run state was lost"),
    &[]
)]
#[case::all_of_the_range(
    2,
    &[(1, "PM COMPLETE"), (2, "ELAB PASS"), (3, "half of it")],
    PipelineState::Complete,
    &[(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]
)]
#[case::a_gap_was_skipped(
    2,
    &[(2, "ELAB PASS")],
    PipelineState::Complete,
    &[(1, PhaseStatus::Skipped), (2, PhaseStatus::Complete)]
)]
#[case::after_a_failure_nothing_is_believed(
    6,
    &[(1, "PM COMPLETE"), (2, "half of it"), (3, "DOCUMENTATION COMPLETE")],
    stopped(2, PipelineVerdict::Failed, "no clear signal"),
    &[(1, PhaseStatus::Complete), (2, PhaseStatus::Failed)]
)]
#[case::blocked(
    6,
    &[(1, "PM BLOCKED: no access")],
    stopped(1, PipelineVerdict::Blocked, "no access"),
    &[(1, PhaseStatus::Blocked)]
)]
fn a_rebuilt_run_stops_at_the_first_phase_not_known_to_have_succeeded(
    #[case] to: u8,
    #[case] outputs: &[(u8, &str)],
    #[case] state: PipelineState,
    #[case] expected: &[(u8, PhaseStatus)],
) {
    let run = rebuilt(to, outputs);
    assert_eq!(run.state, state);
    assert_eq!(statuses(&run), expected);
}

#[test]
fn a_rebuilt_run_needs_a_valid_request() {
    let refusal = PipelineRun::rebuild(request(6, 5, &[]), &BTreeMap::new());
    assert_eq!(refusal, Err(PipelineRefusal::InvalidRange { from: 6, to: 5 }));
}

// The report.

#[test]
fn the_report_is_a_table_for_people() {
    let failed = ended(3, PhaseSignal::Failed("a|b".to_owned()));
    let (run, _) = after(run(2, 6, &[]), [PipelineEvent::Start, success(2), failed]);
    assert_eq!(
        PipelineReport::new(&run).to_string(),
        "\
## Workflow Progress: WISH-001

| Phase | Status | Signal | Tokens |
|-------|--------|--------|--------|
| 1. PM Generate | skipped | - | 0 |
| 2. Elaboration | complete | ELAB PASS | 100 |
| 3. Implementation | failed | IMPLEMENTATION FAILED: a\\|b | 100 |
| 4. Code Review | - | - | 0 |
| 5. QA Verify | - | - | 0 |
| 6. Done | - | - | 0 |

**Status**: FAILED at phase 3
**Reason**: a|b
**To continue**: fix the problem, then run
`tamma pipeline run plans/wishlist WISH-001 --from 3`
**Total tokens**: 200 ($0.1)
"
    );
}

#[test]
fn the_report_of_a_complete_run_has_nothing_to_continue() {
    let (mut run, _) = after(run(6, 6, &[]), [PipelineEvent::Start, success(6)]);
    let end = |run: &PipelineRun| {
        let text = PipelineReport::new(run).to_string();
        text.split_once("**Status**").unwrap().1.to_owned()
    };
    assert_eq!(end(&run), ": COMPLETE\n**Total tokens**: 100 ($0.05)\n");
    run.records.get_mut(&6).unwrap().work.is_estimated = true;
    assert_eq!(end(&run), ": COMPLETE\n**Total tokens**: 100 (≈ $0.05)\n");
}

#[test]
fn the_command_to_continue_names_a_pipeline_that_is_not_built_in() {
    let mut run = stopped_at_implement();
    "release".clone_into(&mut run.request.definition.name);
    assert_eq!(
        PipelineReport::new(&run).continue_command().as_deref(),
        Some("tamma pipeline run plans/wishlist WISH-001 --from 3 --pipeline release")
    );
}

#[test]
fn the_report_is_yaml_for_programs() {
    let report = PipelineReport::new(&stopped_at_implement());
    let yaml = report.to_yaml();
    let head: Vec<_> = yaml.lines().take(10).collect();
    assert_eq!(
        head,
        [
            "phase: loop",
            "verdict: FAILED",
            "feature_dir: plans/wishlist",
            "story_id: WISH-001",
            "phases_executed: 3",
            "phases_skipped: 0",
            "last_phase: 3",
            "last_signal: \"IMPLEMENTATION FAILED: red\"",
            "total_tokens: 300",
            "total_usd: \"0.15\"",
        ]
    );
    assert!(yaml.contains("\nreason: red\n") && yaml.contains("\ncontinue_from: 3\n"), "{yaml}");
    assert_eq!(serde_saphyr::from_str::<PipelineReport>(&yaml).unwrap(), report);
}

#[test]
fn the_report_of_an_unfinished_run_has_its_state() {
    let report = PipelineReport::new(&at_gate());
    assert_eq!(report.verdict, PipelineVerdict::Blocked);
    assert_eq!(report.reason.as_deref(), Some("the run is waiting for approval of pm_generate"));
    assert_eq!(report.continue_from, None);
}

#[test]
fn a_run_round_trips_through_json() {
    let run = stopped_at_implement();
    let json = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<PipelineRun>(&json).unwrap(), run);
}

fn any_event() -> impl Strategy<Value = PipelineEvent> {
    let phase = || 1..=6_u8;
    prop_oneof![
        Just(PipelineEvent::Start),
        prop_oneof![Just(GateAnswer::Continue), Just(GateAnswer::Skip), Just(GateAnswer::Stop)]
            .prop_map(answered),
        phase().prop_map(success),
        phase().prop_map(success),
        phase().prop_map(crashed),
        Just(cancelled()),
    ]
}

proptest! {
    #[test]
    fn no_phase_is_left_out_and_an_ended_run_refuses_events(
        approve in 0..64_u8,
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let approve: Vec<_> = (1..=6_u8).filter(|phase| approve & (1 << (phase - 1)) != 0).collect();
        let mut run = run(1, 6, &approve);
        let mut finished = 0;
        for event in events {
            let over = run.state.is_over();
            if let Ok((next, commands)) = step(&run, at(), event) {
                prop_assert!(!over);
                let is_finish = |it: &PipelineCommand| matches!(it, PipelineCommand::Finish { .. });
                finished += commands.iter().filter(|it| is_finish(it)).count();
                run = next;
            }
            let numbers: Vec<_> = run.records.keys().map(|phase| usize::from(*phase)).collect();
            prop_assert_eq!(&numbers, &(1..=numbers.len()).collect::<Vec<_>>());
        }
        prop_assert_eq!(finished, usize::from(run.state.is_over()));
    }
}
