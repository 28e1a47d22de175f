//! Section 11: the phases, the run and its report.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use strum::IntoEnumIterator as _;
use tamma_core::pipeline::signal::{Signal, Source};
use tamma_core::pipeline::{
    Answer, Command, Event, Order, Phase, Record, Refusal, Report, Run, State, Status, Verdict,
    Work, step,
};

fn order(from: Phase, to: Phase, approve: &[Phase]) -> Order {
    Order {
        feature_dir: "plans/wishlist".to_owned(),
        story_id: "WISH-001".to_owned(),
        from,
        to,
        approve: approve.iter().copied().collect(),
    }
}

fn run(from: Phase, to: Phase, approve: &[Phase]) -> Run {
    Run::new(order(from, to, approve)).unwrap()
}

fn whole() -> Run {
    run(Phase::Generate, Phase::Done, &[])
}

/// Takes a run through some events; every one of them gives one command, of which the last is
/// returned.
fn after(run: Run, events: impl IntoIterator<Item = Event>) -> (Run, Command) {
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

fn work(tokens: u64) -> Work {
    Work { output: Some("out".parse().unwrap()), tokens, took_ms: 7 }
}

fn ended(phase: Phase, signal: Signal) -> Event {
    Event::PhaseEnded { phase, signal, source: Source::Structured, work: work(100) }
}

fn success(phase: Phase) -> Event {
    ended(phase, Signal::Success)
}

fn answered(answer: Answer) -> Event {
    Event::GateAnswered { answer, by: "ada".parse().unwrap() }
}

fn running(phase: Phase, command: &str) -> Command {
    Command::RunPhase { phase, command: Some(command.to_owned()) }
}

fn reported(command: Command) -> Report {
    let Command::Report(report) = command else {
        panic!("{command:?} is not a report");
    };
    report
}

fn stopped(phase: Phase, verdict: Verdict, reason: &str) -> State {
    State::Stopped { phase, verdict, reason: reason.to_owned() }
}

fn statuses(run: &Run) -> Vec<(u8, Status)> {
    run.records.iter().map(|(phase, record)| (phase.number(), record.status)).collect()
}

// Phases.

#[test]
fn the_built_in_pipeline_has_six_phases() {
    let phases: Vec<_> = Phase::iter()
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
    assert_eq!(Phase::numbered(4), Some(Phase::CodeReview));
    assert_eq!((Phase::numbered(0), Phase::numbered(7)), (None, None));
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let refusal = Run::new(order(Phase::Qa, Phase::Implement, &[])).unwrap_err();
    assert_eq!(refusal, Refusal::Range { from: Phase::Qa, to: Phase::Implement });
    assert_eq!(refusal.to_string(), "phase 3 comes before phase 5: give --from and --to in order");
    assert!(Run::new(order(Phase::Qa, Phase::Qa, &[Phase::Qa])).is_ok());
}

#[rstest]
#[case(Phase::Generate)]
#[case(Phase::Qa)]
fn a_gate_that_would_never_be_asked_is_refused(#[case] gate: Phase) {
    let refusal = Run::new(order(Phase::Elaborate, Phase::CodeReview, &[gate])).unwrap_err();
    assert_eq!(refusal, Refusal::GateOutsideRange(gate));
    let number = gate.number();
    assert_eq!(
        refusal.to_string(),
        format!("phase {number} is outside the range, so its gate would never be asked")
    );
}

// The run.

#[test]
fn a_story_runs_through_all_phases_in_order() {
    let mut commands = Vec::new();
    let (mut run, mut command) = after(whole(), [Event::Start]);
    for phase in Phase::iter() {
        assert_eq!(run.state, State::Running(phase));
        commands.push(command);
        (run, command) = after(run, [success(phase)]);
    }
    assert_eq!(run.state, State::Complete);
    assert_eq!(
        commands,
        [
            running(Phase::Generate, "/pm-story generate plans/wishlist WISH-001"),
            running(Phase::Elaborate, "/elab-story plans/wishlist WISH-001"),
            running(Phase::Implement, "/dev-implement-story plans/wishlist WISH-001"),
            running(Phase::CodeReview, "/dev-code-review plans/wishlist WISH-001"),
            running(Phase::Qa, "/qa-verify-story plans/wishlist WISH-001"),
            Command::RunPhase { phase: Phase::Done, command: None },
        ]
    );
    let report = reported(command);
    assert_eq!((report.verdict, report.phases_executed), (Verdict::Complete, 6));
    assert_eq!((report.total_tokens, report.continue_from), (600, None));
}

#[test]
fn phases_before_the_range_are_skipped_and_recorded_and_those_after_it_are_not_run() {
    let run = run(Phase::Implement, Phase::CodeReview, &[]);
    let events = [Event::Start, success(Phase::Implement), success(Phase::CodeReview)];
    let (run, command) = after(run, events);
    assert_eq!(
        statuses(&run),
        [(1, Status::Skipped), (2, Status::Skipped), (3, Status::Complete), (4, Status::Complete)]
    );
    assert_eq!(run.records[&Phase::Generate].reason.as_deref(), Some("before the range"));
    assert_eq!(run.state, State::Complete);
    let report = reported(command);
    assert_eq!((report.phases_executed, report.phases_skipped), (2, 2));
    assert_eq!(report.last_phase, Some(4));
}

#[test]
fn what_a_phase_took_and_said_is_kept() {
    let (run, _) = after(whole(), [Event::Start, success(Phase::Generate)]);
    assert_eq!(
        run.records[&Phase::Generate],
        Record {
            status: Status::Complete,
            signal: Some("PM COMPLETE".to_owned()),
            source: Some(Source::Structured),
            reason: None,
            work: work(100),
        }
    );
}

#[rstest]
#[case::blocked(
    ended(Phase::Generate, Signal::Blocked("no access".to_owned())),
    Status::Blocked,
    "no access",
    Some("PM GENERATE BLOCKED: no access")
)]
#[case::failed(
    ended(Phase::Generate, Signal::Failed("no idea".to_owned())),
    Status::Failed,
    "no idea",
    Some("PM GENERATE FAILED: no idea")
)]
#[case::unclear(
    ended(Phase::Generate, Signal::Unclear("All done!".to_owned())),
    Status::Failed,
    "no clear signal",
    Some("All done!")
)]
#[case::silent(
    ended(Phase::Generate, Signal::Unclear(String::new())),
    Status::Failed,
    "no clear signal",
    None
)]
#[case::crashed(
    Event::PhaseCrashed {
        phase: Phase::Generate,
        error: "signal 9".to_owned(),
        work: work(100),
    },
    Status::Failed,
    "crashed: signal 9",
    None
)]
#[case::timed_out(
    Event::PhaseTimedOut { phase: Phase::Generate, work: work(100) },
    Status::Failed,
    "timed out",
    None
)]
fn a_phase_that_does_not_complete_stops_the_run_without_a_retry(
    #[case] event: Event,
    #[case] status: Status,
    #[case] reason: &str,
    #[case] signal: Option<&str>,
) {
    let (run, command) = after(whole(), [Event::Start, event]);
    let verdict = if status == Status::Blocked { Verdict::Blocked } else { Verdict::Failed };
    assert_eq!(run.state, stopped(Phase::Generate, verdict, reason));
    let record = &run.records[&Phase::Generate];
    assert_eq!((record.status, record.signal.as_deref()), (status, signal));
    assert_eq!((record.reason.as_deref(), &record.work), (Some(reason), &work(100)));
    let report = reported(command);
    assert_eq!((report.verdict, report.reason.as_deref()), (verdict, Some(reason)));
    assert_eq!((report.continue_from, report.last_phase), (Some(1), Some(1)));
}

#[test]
fn a_gate_asks_before_its_phase_and_only_there() {
    let run = run(Phase::Elaborate, Phase::CodeReview, &[Phase::Implement]);
    let (run, command) = after(run, [Event::Start, success(Phase::Elaborate)]);
    assert_eq!(run.state, State::AtGate(Phase::Implement));
    let what = "/dev-implement-story plans/wishlist WISH-001";
    assert_eq!(
        command,
        Command::AskGate { phase: Phase::Implement, command: Some(what.to_owned()) }
    );
    let (run, command) = after(run, [answered(Answer::Continue)]);
    assert_eq!(run.state, State::Running(Phase::Implement));
    assert_eq!(command, running(Phase::Implement, what));
}

#[test]
fn a_phase_skipped_at_its_gate_is_recorded_with_who_skipped_it() {
    let run = run(Phase::Generate, Phase::Elaborate, &[Phase::Generate, Phase::Elaborate]);
    let (run, command) = after(run, [Event::Start, answered(Answer::Skip)]);
    assert_eq!(run.state, State::AtGate(Phase::Elaborate));
    assert!(matches!(command, Command::AskGate { phase: Phase::Elaborate, .. }));
    let (run, command) = after(run, [answered(Answer::Skip)]);
    assert_eq!(run.state, State::Complete);
    assert_eq!(statuses(&run), [(1, Status::Skipped), (2, Status::Skipped)]);
    let record = &run.records[&Phase::Generate];
    assert_eq!(record.reason.as_deref(), Some("skipped by ada"));
    assert_eq!((&record.signal, record.source, &record.work), (&None, None, &Work::default()));
    let report = reported(command);
    assert_eq!((report.phases_executed, report.phases_skipped), (0, 2));
    assert_eq!((report.last_phase, report.last_signal), (None, None));
}

#[test]
fn a_run_stopped_at_a_gate_says_who_stopped_it() {
    let run = run(Phase::Generate, Phase::Done, &[Phase::Elaborate]);
    let events = [Event::Start, success(Phase::Generate), answered(Answer::Stop)];
    let (run, command) = after(run, events);
    assert_eq!(run.state, stopped(Phase::Elaborate, Verdict::Blocked, "stopped by ada"));
    assert_eq!(statuses(&run), [(1, Status::Complete)]);
    let report = reported(command);
    assert_eq!((report.continue_from, report.last_phase), (Some(2), Some(1)));
}

fn at_gate() -> Run {
    let run = run(Phase::Generate, Phase::Done, &[Phase::Generate]);
    after(run, [Event::Start]).0
}

fn started() -> Run {
    after(whole(), [Event::Start]).0
}

fn crashed(phase: Phase) -> Event {
    Event::PhaseCrashed { phase, error: String::new(), work: Work::default() }
}

fn out_of_time(phase: Phase) -> Event {
    Event::PhaseTimedOut { phase, work: Work::default() }
}

#[rstest]
#[case(whole(), answered(Answer::Continue), "ready cannot take `gate_answered`")]
#[case(whole(), success(Phase::Generate), "ready cannot take `phase_ended`")]
#[case(started(), Event::Start, "running generate cannot take `start`")]
#[case(started(), success(Phase::Elaborate), "running generate cannot take `phase_ended`")]
#[case(started(), crashed(Phase::Elaborate), "running generate cannot take `phase_crashed`")]
#[case(started(), out_of_time(Phase::Qa), "running generate cannot take `phase_timed_out`")]
#[case(at_gate(), success(Phase::Generate), "at the gate of generate cannot take `phase_ended`")]
#[case(
    after(started(), [crashed(Phase::Generate)]).0,
    Event::Start,
    "stopped at generate cannot take `start`"
)]
#[case(
    after(run(Phase::Done, Phase::Done, &[]), [Event::Start, success(Phase::Done)]).0,
    success(Phase::Done),
    "complete cannot take `phase_ended`"
)]
fn what_cannot_happen_now_is_refused(#[case] run: Run, #[case] event: Event, #[case] told: &str) {
    let refusal = step(&run, event).unwrap_err();
    assert_eq!(refusal.to_string(), format!("a run that is {told}"));
}

// Continuing.

fn stopped_at_implement() -> Run {
    let events = [
        Event::Start,
        success(Phase::Generate),
        success(Phase::Elaborate),
        ended(Phase::Implement, Signal::Failed("red".to_owned())),
    ];
    after(whole(), events).0
}

#[test]
fn a_stopped_run_continues_from_its_phase_and_keeps_what_it_did() {
    let before = stopped_at_implement();
    let again = before.continued(order(Phase::Implement, Phase::Implement, &[])).unwrap();
    assert_eq!(statuses(&again), [(1, Status::Complete), (2, Status::Complete)]);
    let (again, command) = after(again, [Event::Start, success(Phase::Implement)]);
    assert_eq!(
        statuses(&again),
        [(1, Status::Complete), (2, Status::Complete), (3, Status::Complete)]
    );
    assert_eq!(reported(command).total_tokens, 300);
}

#[test]
fn a_run_that_has_not_stopped_is_not_continued() {
    let refusal = started().continued(order(Phase::Generate, Phase::Done, &[])).unwrap_err();
    assert_eq!(refusal, Refusal::NothingToContinue(State::Running(Phase::Generate)));
    assert_eq!(refusal.to_string(), "a run that is running generate cannot be continued");
    let range = stopped_at_implement().continued(order(Phase::Qa, Phase::Implement, &[]));
    assert_eq!(range, Err(Refusal::Range { from: Phase::Qa, to: Phase::Implement }));
}

// Rebuilding.

fn rebuilt(to: Phase, outputs: &[(u8, &str)]) -> Run {
    let outputs = outputs.iter().map(|(number, text)| (*number, (*text).to_owned())).collect();
    Run::rebuild(order(Phase::Generate, to, &[Phase::Elaborate]), &outputs).unwrap()
}

#[test]
fn a_damaged_state_is_rebuilt_from_the_outputs() {
    let run = rebuilt(Phase::Done, &[(1, "ok\nPM COMPLETE\n"), (2, "ELAB PASS")]);
    assert_eq!(run.state, stopped(Phase::Implement, Verdict::Blocked, "the state was lost"));
    assert_eq!(statuses(&run), [(1, Status::Complete), (2, Status::Complete)]);
    assert_eq!(run.records[&Phase::Generate].source, Some(Source::LastLine));
    assert_eq!(run.records[&Phase::Generate].signal.as_deref(), Some("PM COMPLETE"));
    assert_eq!(run.order.approve, BTreeSet::from([Phase::Elaborate]));
    assert!(run.continued(order(Phase::Implement, Phase::Done, &[])).is_ok());
}

#[rstest]
#[case::nothing(Phase::Done, &[], stopped(Phase::Generate, Verdict::Blocked, "the state was lost"), &[])]
#[case::unknown_numbers(
    Phase::Done,
    &[(0, "PM COMPLETE"), (7, "WORKFLOW COMPLETE")],
    stopped(Phase::Generate, Verdict::Blocked, "the state was lost"),
    &[]
)]
#[case::all_of_the_range(
    Phase::Elaborate,
    &[(1, "PM COMPLETE"), (2, "ELAB PASS"), (3, "half of it")],
    State::Complete,
    &[(1, Status::Complete), (2, Status::Complete)]
)]
#[case::a_gap_was_skipped(
    Phase::Elaborate,
    &[(2, "ELAB PASS")],
    State::Complete,
    &[(1, Status::Skipped), (2, Status::Complete)]
)]
#[case::after_a_failure_nothing_is_believed(
    Phase::Done,
    &[(1, "PM COMPLETE"), (2, "half of it"), (3, "DOCUMENTATION COMPLETE")],
    stopped(Phase::Elaborate, Verdict::Failed, "no clear signal"),
    &[(1, Status::Complete), (2, Status::Failed)]
)]
#[case::blocked(
    Phase::Done,
    &[(1, "PM BLOCKED: no access")],
    stopped(Phase::Generate, Verdict::Blocked, "no access"),
    &[(1, Status::Blocked)]
)]
fn a_rebuilt_run_stops_at_the_first_phase_not_known_to_have_succeeded(
    #[case] to: Phase,
    #[case] outputs: &[(u8, &str)],
    #[case] state: State,
    #[case] expected: &[(u8, Status)],
) {
    let run = rebuilt(to, outputs);
    assert_eq!(run.state, state);
    assert_eq!(statuses(&run), expected);
}

#[test]
fn a_gap_in_the_outputs_says_that_nothing_is_kept() {
    let run = rebuilt(Phase::Elaborate, &[(2, "ELAB PASS")]);
    assert_eq!(run.records[&Phase::Generate].reason.as_deref(), Some("no output is kept"));
}

#[test]
fn a_rebuilt_run_keeps_to_a_valid_order() {
    let refusal = Run::rebuild(order(Phase::Done, Phase::Qa, &[]), &BTreeMap::new());
    assert_eq!(refusal, Err(Refusal::Range { from: Phase::Done, to: Phase::Qa }));
}

// The report.

#[test]
fn the_report_is_a_table_for_people() {
    let events = [
        Event::Start,
        success(Phase::Elaborate),
        ended(Phase::Implement, Signal::Failed("a|b".to_owned())),
    ];
    let (_, command) = after(run(Phase::Elaborate, Phase::Done, &[]), events);
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
**To continue**: mend it, then run
`tamma pipeline run plans/wishlist WISH-001 --from 3`
**Total tokens**: 200
"
    );
}

#[test]
fn the_report_of_a_complete_run_has_nothing_to_continue() {
    let (_, command) =
        after(run(Phase::Done, Phase::Done, &[]), [Event::Start, success(Phase::Done)]);
    let text = reported(command).to_string();
    let end = text.split_once("**Status**").unwrap().1;
    assert_eq!(end, ": COMPLETE\n**Total tokens**: 100\n");
}

#[test]
fn the_report_is_yaml_for_programs() {
    let report = Report::of(&stopped_at_implement());
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
    assert_eq!(serde_saphyr::from_str::<Report>(&yaml).unwrap(), report);
}

#[test]
fn the_report_of_a_run_under_way_says_where_it_is() {
    let report = Report::of(&at_gate());
    assert_eq!(report.verdict, Verdict::Blocked);
    assert_eq!(report.reason.as_deref(), Some("the run is at the gate of generate"));
    assert_eq!(report.continue_from, None);
}

#[test]
fn a_run_is_kept_as_it_is() {
    let run = stopped_at_implement();
    let json = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), run);
}

fn any_event() -> impl Strategy<Value = Event> {
    let phase = || (1..=6_u8).prop_map(|number| Phase::numbered(number).unwrap());
    prop_oneof![
        Just(Event::Start),
        prop_oneof![Just(Answer::Continue), Just(Answer::Skip), Just(Answer::Stop)]
            .prop_map(answered),
        phase().prop_map(success),
        phase().prop_map(success),
        phase().prop_map(crashed),
    ]
}

proptest! {
    #[test]
    fn no_phase_is_jumped_over_and_an_ended_run_takes_nothing_more(
        approve in 0..64_u8,
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let approve: Vec<_> =
            Phase::iter().filter(|phase| approve & (1 << (phase.number() - 1)) != 0).collect();
        let mut run = run(Phase::Generate, Phase::Done, &approve);
        for event in events {
            let over = matches!(run.state, State::Complete | State::Stopped { .. });
            if let Ok((next, _)) = step(&run, event) {
                prop_assert!(!over);
                run = next;
            }
            let known: Vec<_> = run.records.keys().map(|phase| usize::from(phase.number())).collect();
            prop_assert_eq!(&known, &(1..=known.len()).collect::<Vec<_>>());
        }
    }
}
