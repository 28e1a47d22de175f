//! Section 11: phases, runs and reports of pipelines.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use strum::IntoEnumIterator as _;
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    GateAnswer, PhaseRecord, PhaseStatus, PhaseWork, PipelineCommand, PipelineEvent, PipelinePhase,
    PipelineRefusal, PipelineReport, PipelineRequest, PipelineRun, PipelineState, PipelineVerdict,
    step,
};

fn request(from: PipelinePhase, to: PipelinePhase, approve: &[PipelinePhase]) -> PipelineRequest {
    PipelineRequest {
        feature_dir: "plans/wishlist".to_owned(),
        story_id: "WISH-001".to_owned(),
        from,
        to,
        approve: approve.iter().copied().collect(),
    }
}

fn run(from: PipelinePhase, to: PipelinePhase, approve: &[PipelinePhase]) -> PipelineRun {
    PipelineRun::new(request(from, to, approve)).unwrap()
}

fn full_run() -> PipelineRun {
    run(PipelinePhase::Generate, PipelinePhase::Done, &[])
}

/// Applies events to a run. Each must give one command; the last one is returned.
fn after(
    run: PipelineRun,
    events: impl IntoIterator<Item = PipelineEvent>,
) -> (PipelineRun, PipelineCommand) {
    let mut last = None;
    let mut run = run;
    for event in events {
        let (next, mut commands) = step(&run, event).unwrap();
        assert_eq!(commands.len(), 1);
        last = commands.pop();
        run = next;
    }
    (run, last.unwrap())
}

fn work(tokens: u64) -> PhaseWork {
    PhaseWork { output: Some("out".parse().unwrap()), tokens, took_ms: 7 }
}

fn ended(phase: PipelinePhase, signal: PhaseSignal) -> PipelineEvent {
    PipelineEvent::PhaseEnded { phase, signal, source: SignalSource::Structured, work: work(100) }
}

fn success(phase: PipelinePhase) -> PipelineEvent {
    ended(phase, PhaseSignal::Success)
}

fn answered(answer: GateAnswer) -> PipelineEvent {
    PipelineEvent::GateAnswered { answer, by: "ada".parse().unwrap() }
}

fn running(phase: PipelinePhase, command: &str) -> PipelineCommand {
    PipelineCommand::RunPhase { phase, command: Some(command.to_owned()) }
}

fn reported(command: PipelineCommand) -> PipelineReport {
    let PipelineCommand::Report(report) = command else {
        panic!("{command:?} is not a report");
    };
    report
}

fn stopped(phase: PipelinePhase, verdict: PipelineVerdict, reason: &str) -> PipelineState {
    PipelineState::Stopped { phase, verdict, reason: reason.to_owned() }
}

fn statuses(run: &PipelineRun) -> Vec<(u8, PhaseStatus)> {
    run.records.iter().map(|(phase, record)| (phase.number(), record.status)).collect()
}

// Phases.

#[test]
fn the_built_in_pipeline_has_six_phases() {
    let phases: Vec<_> = PipelinePhase::iter()
        .map(|it| (it.number(), it.to_string(), it.title(), it.command(), it.success_signal()))
        .collect();
    let expected = [
        (1, "generate", "PM Generate", Some("/pm-story generate"), "PM COMPLETE"),
        (2, "elaborate", "Elaboration", Some("/elab-story"), "ELAB PASS"),
        (3, "implement", "Implementation", Some("/dev-implement-story"), "DOCUMENTATION COMPLETE"),
        (4, "code_review", "Code Review", Some("/dev-code-review"), "CODE REVIEW PASS"),
        (5, "qa", "QA Verify", Some("/qa-verify-story"), "QA PASS"),
        (6, "done", "Done", None, "WORKFLOW COMPLETE"),
    ]
    .map(|(number, name, title, command, signal)| {
        (number, name.to_owned(), title, command, signal)
    });
    assert_eq!(phases, expected);
    assert_eq!(PipelinePhase::from_number(4), Some(PipelinePhase::CodeReview));
    assert_eq!((PipelinePhase::from_number(0), PipelinePhase::from_number(7)), (None, None));
}

#[test]
fn a_range_that_ends_before_it_starts_is_refused() {
    let refusal =
        PipelineRun::new(request(PipelinePhase::Qa, PipelinePhase::Implement, &[])).unwrap_err();
    assert_eq!(
        refusal,
        PipelineRefusal::InvalidRange { from: PipelinePhase::Qa, to: PipelinePhase::Implement }
    );
    assert_eq!(
        refusal.to_string(),
        "invalid range: phase 3 comes before phase 5; swap --from and --to"
    );
    assert!(
        PipelineRun::new(request(PipelinePhase::Qa, PipelinePhase::Qa, &[PipelinePhase::Qa]))
            .is_ok()
    );
}

#[rstest]
#[case(PipelinePhase::Generate)]
#[case(PipelinePhase::Qa)]
fn a_gate_outside_the_range_is_refused(#[case] gate: PipelinePhase) {
    let refusal =
        PipelineRun::new(request(PipelinePhase::Elaborate, PipelinePhase::CodeReview, &[gate]))
            .unwrap_err();
    assert_eq!(refusal, PipelineRefusal::GateOutsideRange(gate));
    let number = gate.number();
    assert_eq!(
        refusal.to_string(),
        format!(
            "gate for phase {number} is outside the range; extend the range or remove the gate"
        )
    );
}

// The run.

#[test]
fn a_story_runs_through_all_phases_in_order() {
    let mut commands = Vec::new();
    let (mut run, mut command) = after(full_run(), [PipelineEvent::Start]);
    for phase in PipelinePhase::iter() {
        assert_eq!(run.state, PipelineState::Running(phase));
        commands.push(command);
        (run, command) = after(run, [success(phase)]);
    }
    assert_eq!(run.state, PipelineState::Complete);
    assert_eq!(
        commands,
        [
            running(PipelinePhase::Generate, "/pm-story generate plans/wishlist WISH-001"),
            running(PipelinePhase::Elaborate, "/elab-story plans/wishlist WISH-001"),
            running(PipelinePhase::Implement, "/dev-implement-story plans/wishlist WISH-001"),
            running(PipelinePhase::CodeReview, "/dev-code-review plans/wishlist WISH-001"),
            running(PipelinePhase::Qa, "/qa-verify-story plans/wishlist WISH-001"),
            PipelineCommand::RunPhase { phase: PipelinePhase::Done, command: None },
        ]
    );
    let report = reported(command);
    assert_eq!((report.verdict, report.phases_executed), (PipelineVerdict::Complete, 6));
    assert_eq!((report.total_tokens, report.continue_from), (600, None));
}

#[test]
fn phases_before_the_range_are_recorded_as_skipped_and_later_ones_do_not_run() {
    let run = run(PipelinePhase::Implement, PipelinePhase::CodeReview, &[]);
    let events = [
        PipelineEvent::Start,
        success(PipelinePhase::Implement),
        success(PipelinePhase::CodeReview),
    ];
    let (run, command) = after(run, events);
    assert_eq!(
        statuses(&run),
        [
            (1, PhaseStatus::Skipped),
            (2, PhaseStatus::Skipped),
            (3, PhaseStatus::Complete),
            (4, PhaseStatus::Complete)
        ]
    );
    assert_eq!(run.records[&PipelinePhase::Generate].reason.as_deref(), Some("before the range"));
    assert_eq!(run.state, PipelineState::Complete);
    let report = reported(command);
    assert_eq!((report.phases_executed, report.phases_skipped), (2, 2));
    assert_eq!(report.last_phase, Some(4));
}

#[test]
fn output_and_resource_use_of_a_phase_are_recorded() {
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(PipelinePhase::Generate)]);
    assert_eq!(
        run.records[&PipelinePhase::Generate],
        PhaseRecord {
            status: PhaseStatus::Complete,
            signal: Some("PM COMPLETE".to_owned()),
            source: Some(SignalSource::Structured),
            reason: None,
            work: work(100),
        }
    );
}

#[rstest]
#[case::blocked(
    ended(PipelinePhase::Generate, PhaseSignal::Blocked("no access".to_owned())),
    PhaseStatus::Blocked,
    "no access",
    Some("PM GENERATE BLOCKED: no access")
)]
#[case::failed(
    ended(PipelinePhase::Generate, PhaseSignal::Failed("no idea".to_owned())),
    PhaseStatus::Failed,
    "no idea",
    Some("PM GENERATE FAILED: no idea")
)]
#[case::unclear(
    ended(PipelinePhase::Generate, PhaseSignal::Unclear("All done!".to_owned())),
    PhaseStatus::Failed,
    "no clear signal",
    Some("All done!")
)]
#[case::silent(
    ended(PipelinePhase::Generate, PhaseSignal::Unclear(String::new())),
    PhaseStatus::Failed,
    "no clear signal",
    None
)]
#[case::crashed(
    PipelineEvent::PhaseCrashed {
        phase: PipelinePhase::Generate,
        error: "signal 9".to_owned(),
        work: work(100),
    },
    PhaseStatus::Failed,
    "crashed: signal 9",
    None
)]
#[case::timed_out(
    PipelineEvent::PhaseTimedOut { phase: PipelinePhase::Generate, work: work(100) },
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
    assert_eq!(run.state, stopped(PipelinePhase::Generate, verdict, reason));
    let record = &run.records[&PipelinePhase::Generate];
    assert_eq!((record.status, record.signal.as_deref()), (status, signal));
    assert_eq!((record.reason.as_deref(), &record.work), (Some(reason), &work(100)));
    let report = reported(command);
    assert_eq!((report.verdict, report.reason.as_deref()), (verdict, Some(reason)));
    assert_eq!((report.continue_from, report.last_phase), (Some(1), Some(1)));
}

#[test]
fn a_gate_asks_before_its_phase_and_only_there() {
    let run = run(PipelinePhase::Elaborate, PipelinePhase::CodeReview, &[PipelinePhase::Implement]);
    let (run, command) = after(run, [PipelineEvent::Start, success(PipelinePhase::Elaborate)]);
    assert_eq!(run.state, PipelineState::AtGate(PipelinePhase::Implement));
    let command_line = "/dev-implement-story plans/wishlist WISH-001";
    assert_eq!(
        command,
        PipelineCommand::AskGate {
            phase: PipelinePhase::Implement,
            command: Some(command_line.to_owned())
        }
    );
    let (run, command) = after(run, [answered(GateAnswer::Continue)]);
    assert_eq!(run.state, PipelineState::Running(PipelinePhase::Implement));
    assert_eq!(command, running(PipelinePhase::Implement, command_line));
}

#[test]
fn a_phase_skipped_at_its_gate_is_recorded_with_the_person() {
    let run = run(
        PipelinePhase::Generate,
        PipelinePhase::Elaborate,
        &[PipelinePhase::Generate, PipelinePhase::Elaborate],
    );
    let (run, command) = after(run, [PipelineEvent::Start, answered(GateAnswer::Skip)]);
    assert_eq!(run.state, PipelineState::AtGate(PipelinePhase::Elaborate));
    assert!(matches!(command, PipelineCommand::AskGate { phase: PipelinePhase::Elaborate, .. }));
    let (run, command) = after(run, [answered(GateAnswer::Skip)]);
    assert_eq!(run.state, PipelineState::Complete);
    assert_eq!(statuses(&run), [(1, PhaseStatus::Skipped), (2, PhaseStatus::Skipped)]);
    let record = &run.records[&PipelinePhase::Generate];
    assert_eq!(record.reason.as_deref(), Some("skipped by ada"));
    assert_eq!((&record.signal, record.source, &record.work), (&None, None, &PhaseWork::default()));
    let report = reported(command);
    assert_eq!((report.phases_executed, report.phases_skipped), (0, 2));
    assert_eq!((report.last_phase, report.last_signal), (None, None));
}

#[test]
fn a_run_stopped_at_a_gate_records_the_person() {
    let run = run(PipelinePhase::Generate, PipelinePhase::Done, &[PipelinePhase::Elaborate]);
    let events =
        [PipelineEvent::Start, success(PipelinePhase::Generate), answered(GateAnswer::Stop)];
    let (run, command) = after(run, events);
    assert_eq!(
        run.state,
        stopped(PipelinePhase::Elaborate, PipelineVerdict::Blocked, "stopped by ada")
    );
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete)]);
    let report = reported(command);
    assert_eq!((report.continue_from, report.last_phase), (Some(2), Some(1)));
}

fn at_gate() -> PipelineRun {
    let run = run(PipelinePhase::Generate, PipelinePhase::Done, &[PipelinePhase::Generate]);
    after(run, [PipelineEvent::Start]).0
}

fn started() -> PipelineRun {
    after(full_run(), [PipelineEvent::Start]).0
}

fn crashed(phase: PipelinePhase) -> PipelineEvent {
    PipelineEvent::PhaseCrashed { phase, error: String::new(), work: PhaseWork::default() }
}

fn out_of_time(phase: PipelinePhase) -> PipelineEvent {
    PipelineEvent::PhaseTimedOut { phase, work: PhaseWork::default() }
}

#[rstest]
#[case(
    full_run(),
    answered(GateAnswer::Continue),
    "event `gate_answered` is not possible: the run is ready"
)]
#[case(
    full_run(),
    success(PipelinePhase::Generate),
    "event `phase_ended` is not possible: the run is ready"
)]
#[case(
    started(),
    PipelineEvent::Start,
    "event `start` is not possible: the run is running generate"
)]
#[case(
    started(),
    success(PipelinePhase::Elaborate),
    "event `phase_ended` is not possible: the run is running generate"
)]
#[case(
    started(),
    crashed(PipelinePhase::Elaborate),
    "event `phase_crashed` is not possible: the run is running generate"
)]
#[case(
    started(),
    out_of_time(PipelinePhase::Qa),
    "event `phase_timed_out` is not possible: the run is running generate"
)]
#[case(
    at_gate(),
    success(PipelinePhase::Generate),
    "event `phase_ended` is not possible: the run is at the gate of generate"
)]
#[case(
    after(started(), [crashed(PipelinePhase::Generate)]).0,
    PipelineEvent::Start,
    "event `start` is not possible: the run is stopped at generate"
)]
#[case(
    after(run(PipelinePhase::Done, PipelinePhase::Done, &[]), [PipelineEvent::Start, success(PipelinePhase::Done)]).0,
    success(PipelinePhase::Done),
    "event `phase_ended` is not possible: the run is complete"
)]
fn events_that_do_not_fit_the_state_are_refused(
    #[case] run: PipelineRun,
    #[case] event: PipelineEvent,
    #[case] message: &str,
) {
    let refusal = step(&run, event).unwrap_err();
    assert_eq!(refusal.to_string(), message);
}

// Continuing.

fn stopped_at_implement() -> PipelineRun {
    let events = [
        PipelineEvent::Start,
        success(PipelinePhase::Generate),
        success(PipelinePhase::Elaborate),
        ended(PipelinePhase::Implement, PhaseSignal::Failed("red".to_owned())),
    ];
    after(full_run(), events).0
}

#[test]
fn a_stopped_run_continues_from_its_phase_and_keeps_its_records() {
    let before = stopped_at_implement();
    let again = before
        .continue_with(request(PipelinePhase::Implement, PipelinePhase::Implement, &[]))
        .unwrap();
    assert_eq!(statuses(&again), [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]);
    let (again, command) = after(again, [PipelineEvent::Start, success(PipelinePhase::Implement)]);
    assert_eq!(
        statuses(&again),
        [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete), (3, PhaseStatus::Complete)]
    );
    assert_eq!(reported(command).total_tokens, 300);
}

#[test]
fn a_run_that_has_not_stopped_cannot_be_continued() {
    let refusal = started()
        .continue_with(request(PipelinePhase::Generate, PipelinePhase::Done, &[]))
        .unwrap_err();
    assert_eq!(
        refusal,
        PipelineRefusal::NothingToContinue(PipelineState::Running(PipelinePhase::Generate))
    );
    assert_eq!(refusal.to_string(), "cannot continue: the run is running generate");
    let range = stopped_at_implement().continue_with(request(
        PipelinePhase::Qa,
        PipelinePhase::Implement,
        &[],
    ));
    assert_eq!(
        range,
        Err(PipelineRefusal::InvalidRange {
            from: PipelinePhase::Qa,
            to: PipelinePhase::Implement
        })
    );
}

// Rebuilding.

fn rebuilt(to: PipelinePhase, outputs: &[(u8, &str)]) -> PipelineRun {
    let outputs = outputs.iter().map(|(number, text)| (*number, (*text).to_owned())).collect();
    PipelineRun::rebuild(
        request(PipelinePhase::Generate, to, &[PipelinePhase::Elaborate]),
        &outputs,
    )
    .unwrap()
}

#[test]
fn a_damaged_run_is_rebuilt_from_the_outputs() {
    let run = rebuilt(PipelinePhase::Done, &[(1, "ok\nPM COMPLETE\n"), (2, "ELAB PASS")]);
    assert_eq!(
        run.state,
        stopped(PipelinePhase::Implement, PipelineVerdict::Blocked, "run state was lost")
    );
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]);
    assert_eq!(run.records[&PipelinePhase::Generate].source, Some(SignalSource::LastLine));
    assert_eq!(run.records[&PipelinePhase::Generate].signal.as_deref(), Some("PM COMPLETE"));
    assert_eq!(run.request.approve, BTreeSet::from([PipelinePhase::Elaborate]));
    assert!(run.continue_with(request(PipelinePhase::Implement, PipelinePhase::Done, &[])).is_ok());
}

#[rstest]
#[case::nothing(PipelinePhase::Done, &[], stopped(PipelinePhase::Generate, PipelineVerdict::Blocked, "run state was lost"), &[])]
#[case::unknown_numbers(
    PipelinePhase::Done,
    &[(0, "PM COMPLETE"), (7, "WORKFLOW COMPLETE")],
    stopped(PipelinePhase::Generate, PipelineVerdict::Blocked, "run state was lost"),
    &[]
)]
#[case::all_of_the_range(
    PipelinePhase::Elaborate,
    &[(1, "PM COMPLETE"), (2, "ELAB PASS"), (3, "half of it")],
    PipelineState::Complete,
    &[(1, PhaseStatus::Complete), (2, PhaseStatus::Complete)]
)]
#[case::a_gap_was_skipped(
    PipelinePhase::Elaborate,
    &[(2, "ELAB PASS")],
    PipelineState::Complete,
    &[(1, PhaseStatus::Skipped), (2, PhaseStatus::Complete)]
)]
#[case::after_a_failure_nothing_is_believed(
    PipelinePhase::Done,
    &[(1, "PM COMPLETE"), (2, "half of it"), (3, "DOCUMENTATION COMPLETE")],
    stopped(PipelinePhase::Elaborate, PipelineVerdict::Failed, "no clear signal"),
    &[(1, PhaseStatus::Complete), (2, PhaseStatus::Failed)]
)]
#[case::blocked(
    PipelinePhase::Done,
    &[(1, "PM BLOCKED: no access")],
    stopped(PipelinePhase::Generate, PipelineVerdict::Blocked, "no access"),
    &[(1, PhaseStatus::Blocked)]
)]
fn a_rebuilt_run_stops_at_the_first_phase_not_known_to_have_succeeded(
    #[case] to: PipelinePhase,
    #[case] outputs: &[(u8, &str)],
    #[case] state: PipelineState,
    #[case] expected: &[(u8, PhaseStatus)],
) {
    let run = rebuilt(to, outputs);
    assert_eq!(run.state, state);
    assert_eq!(statuses(&run), expected);
}

#[test]
fn a_gap_in_the_outputs_is_recorded() {
    let run = rebuilt(PipelinePhase::Elaborate, &[(2, "ELAB PASS")]);
    assert_eq!(run.records[&PipelinePhase::Generate].reason.as_deref(), Some("no stored output"));
}

#[test]
fn a_rebuilt_run_needs_a_valid_request() {
    let refusal = PipelineRun::rebuild(
        request(PipelinePhase::Done, PipelinePhase::Qa, &[]),
        &BTreeMap::new(),
    );
    assert_eq!(
        refusal,
        Err(PipelineRefusal::InvalidRange { from: PipelinePhase::Done, to: PipelinePhase::Qa })
    );
}

// The report.

#[test]
fn the_report_is_a_table_for_people() {
    let events = [
        PipelineEvent::Start,
        success(PipelinePhase::Elaborate),
        ended(PipelinePhase::Implement, PhaseSignal::Failed("a|b".to_owned())),
    ];
    let (_, command) = after(run(PipelinePhase::Elaborate, PipelinePhase::Done, &[]), events);
    assert_eq!(
        reported(command).to_string(),
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
**Total tokens**: 200
"
    );
}

#[test]
fn the_report_of_a_complete_run_has_nothing_to_continue() {
    let (_, command) = after(
        run(PipelinePhase::Done, PipelinePhase::Done, &[]),
        [PipelineEvent::Start, success(PipelinePhase::Done)],
    );
    let text = reported(command).to_string();
    let end = text.split_once("**Status**").unwrap().1;
    assert_eq!(end, ": COMPLETE\n**Total tokens**: 100\n");
}

#[test]
fn the_report_is_yaml_for_programs() {
    let report = PipelineReport::new(&stopped_at_implement());
    let yaml = serde_saphyr::to_string(&report).unwrap();
    let head: Vec<_> = yaml.lines().take_while(|line| *line != "phases:").collect();
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
            "reason: red",
            "continue_from: 3",
        ]
    );
    assert_eq!(serde_saphyr::from_str::<PipelineReport>(&yaml).unwrap(), report);
}

#[test]
fn the_report_of_an_unfinished_run_has_its_state() {
    let report = PipelineReport::new(&at_gate());
    assert_eq!(report.verdict, PipelineVerdict::Blocked);
    assert_eq!(report.reason.as_deref(), Some("the run is at the gate of generate"));
    assert_eq!(report.continue_from, None);
}

#[test]
fn a_run_round_trips_through_json() {
    let run = stopped_at_implement();
    let json = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<PipelineRun>(&json).unwrap(), run);
}

fn any_event() -> impl Strategy<Value = PipelineEvent> {
    let phase = || (1..=6_u8).prop_map(|number| PipelinePhase::from_number(number).unwrap());
    prop_oneof![
        Just(PipelineEvent::Start),
        prop_oneof![Just(GateAnswer::Continue), Just(GateAnswer::Skip), Just(GateAnswer::Stop)]
            .prop_map(answered),
        phase().prop_map(success),
        phase().prop_map(success),
        phase().prop_map(crashed),
    ]
}

proptest! {
    #[test]
    fn no_phase_is_left_out_and_an_ended_run_refuses_events(
        approve in 0..64_u8,
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let approve: Vec<_> =
            PipelinePhase::iter().filter(|phase| approve & (1 << (phase.number() - 1)) != 0).collect();
        let mut run = run(PipelinePhase::Generate, PipelinePhase::Done, &approve);
        for event in events {
            let over = matches!(run.state, PipelineState::Complete | PipelineState::Stopped { .. });
            if let Ok((next, _)) = step(&run, event) {
                prop_assert!(!over);
                run = next;
            }
            let numbers: Vec<_> = run.records.keys().map(|phase| usize::from(phase.number())).collect();
            prop_assert_eq!(&numbers, &(1..=numbers.len()).collect::<Vec<_>>());
        }
    }
}
