//! Agents: how a run ends is told apart, and when it has ended nothing of it lives.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::failure::FailureKind;
use tamma_core::plan::{Action, FileChange, Plan};
use tamma_core::review::Judgement;
use tamma_engine::agent::{Agent, Mode, Report, RunEnd, Update};
use tamma_engine::permission::Verdict;
use tamma_engine::process;
use tamma_engine::submission::Submission;
use tamma_testkit::agent::{Case, Script, Step};
use tokio_util::sync::CancellationToken;

use crate::stage::{Seen, Stage, environment, group, lives, noon, pid};

pub(crate) fn plan() -> Plan {
    Plan {
        summary: "A greeting".to_owned(),
        approach: "Write it down".to_owned(),
        file_changes: vec![FileChange {
            path: "greeting.txt".to_owned(),
            action: Action::Create,
            description: "The greeting".to_owned(),
            estimated_lines: 1,
        }],
        testing_strategy: "Read it".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

pub(crate) fn finished(submission: Submission) -> RunEnd {
    RunEnd::Finished { stop: "end_turn".to_owned(), submission }
}

/// The group that an agent ran in, from what was seen.
pub(crate) fn pgid(seen: &[Update]) -> u32 {
    let recorded = |update: &Update| match update {
        Update::Recorded(record) => Some(record.pgid),
        _ => None,
    };
    seen.iter().find_map(recorded).expect("it was recorded")
}

pub(crate) async fn nothing_is_left(stage: &Stage, seen: &[Update]) {
    assert_eq!(group(pgid(seen)), [0; 0], "no process of the group lives");
    assert_eq!(stage.records().await.all().await.unwrap(), [], "no record is left");
}

#[tokio::test]
async fn an_agent_writes_files_says_what_it_does_and_finishes() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let script = Script::of([
        Step::Say("I will greet.".to_owned()),
        Step::Think("How?".to_owned()),
        Step::Write { path: "greeting.txt".into(), content: "hello\n".to_owned() },
        Step::Delete { path: "src/old.txt".into() },
        Step::Run("echo run > run.txt".to_owned()),
        Step::Update(json!({ "sessionUpdate": "of_tomorrow", "x": 1 })),
        Step::Usage { cost: "0.02".to_owned() },
        Step::Complain("a complaint".to_owned()),
        Step::End { tokens: Some(Tokens { input: 1_200, cached: 300, output: 80 }) },
    ]);
    let order = stage.order(tree.path(), Mode::Implement);
    let (report, seen) = stage.play(&script, &order).await;

    let usage = Usage {
        tokens: Tokens { input: 1_200, cached: 300, output: 80 },
        cost: Cost::Known("0.02".parse().unwrap()),
    };
    let expected = Report {
        end: finished(Submission::Nothing),
        usage: Some(usage),
        metered: false,
        session: Some("scripted-0".to_owned()),
        resumed: false,
        agent: Some("scripted-agent 0.1.0".to_owned()),
        stderr: "a complaint\n".to_owned(),
    };
    assert_eq!(report, expected);
    assert_eq!(fs::read_to_string(tree.path().join("greeting.txt")).unwrap(), "hello\n");
    assert_eq!(fs::read_to_string(tree.path().join("run.txt")).unwrap(), "run\n");
    assert!(!tree.path().join("src/old.txt").exists());
    assert!(matches!(seen[0], Update::Recorded(_)), "on record before anything else");
    assert!(seen.contains(&Update::Said("I will greet.".to_owned())));
    assert!(seen.contains(&Update::Thought("How?".to_owned())));
    assert!(seen.contains(&Update::Other(json!({ "sessionUpdate": "of_tomorrow", "x": 1 }))));
    assert!(seen.contains(&Update::Used(usage)));
    let completed = |update: &&Update| matches!(update, Update::Tool { status: Some(status), .. } if status == "completed");
    assert_eq!(seen.iter().filter(completed).count(), 3);
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn usage_that_nobody_reports_is_not_zero() {
    let stage = Stage::set().await;
    let order = stage.order(&stage.project(), Mode::Implement);
    let (report, _) = stage.play(&Script::default(), &order).await;
    assert_eq!((report.end, report.usage), (finished(Submission::Nothing), None));
}

#[tokio::test]
async fn a_plan_comes_back_checked() {
    let stage = Stage::set().await;
    let script = Script::of([Step::Say("Here:".to_owned()), Step::Plan(Box::new(plan()))]);
    let (report, _) = stage.play(&script, &stage.order(&stage.project(), Mode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(plan()))));
}

#[tokio::test]
async fn an_invalid_plan_goes_back_with_its_flaws() {
    let stage = Stage::set().await;
    let empty = Plan { summary: String::new(), ..plan() };
    let script = Script::of([
        Step::Say("I have no plan.".to_owned()),
        Step::End { tokens: Some(Tokens { input: 10, cached: 0, output: 1 }) },
        Step::Plan(Box::new(empty)),
        Step::End { tokens: Some(Tokens { input: 20, cached: 0, output: 2 }) },
        Step::Plan(Box::new(plan())),
    ]);
    let (report, seen) = stage.play(&script, &stage.order(&stage.project(), Mode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(plan()))));
    let refused: Vec<_> = seen
        .iter()
        .filter_map(|update| match update {
            Update::Refused(flaws) => Some(flaws.join("; ")),
            _ => None,
        })
        .collect();
    let none = "the message has no block that starts with ```json";
    assert_eq!(refused, [none, "`summary` is empty"]);
    let tokens = report.usage.expect("reported").tokens;
    assert_eq!(tokens, Tokens { input: 30, cached: 0, output: 3 }, "every turn counts");
}

#[tokio::test]
async fn an_agent_is_asked_again_twice_and_no_more() {
    let stage = Stage::set().await;
    let (report, seen) =
        stage.play(&Script::default(), &stage.order(&stage.project(), Mode::Plan)).await;
    let RunEnd::Finished { submission: Submission::Invalid { flaws, .. }, .. } = report.end else {
        panic!("{:?}", report.end)
    };
    assert_eq!(flaws.len(), 1);
    let refusals = seen.iter().filter(|update| matches!(update, Update::Refused(_))).count();
    assert_eq!(refusals, 2);
}

#[tokio::test]
async fn a_verdict_comes_back_checked() {
    let stage = Stage::set().await;
    let verdict = json!({ "criteria": { "it greets": { "unmet": { "why": "it is silent" } } } });
    let script = Script::of([Step::HandIn(verdict)]);
    let (report, _) = stage.play(&script, &stage.order(&stage.project(), Mode::Validate)).await;
    let RunEnd::Finished { submission: Submission::Verdict(verdict), .. } = report.end else {
        panic!("{:?}", report.end)
    };
    let unmet = Judgement::Unmet { why: "it is silent".to_owned() };
    assert_eq!(verdict.criteria, [("it greets".to_owned(), unmet)].into());
}

#[tokio::test]
async fn nothing_is_allowed_outside_the_worktree() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let outside = stage.aside("outside.txt");
    let script = Script::of([
        Step::Write { path: outside.clone(), content: "out\n".to_owned() },
        Step::Write { path: ".git".into(), content: "gitdir: elsewhere\n".to_owned() },
        Step::Ask { title: "Something odd".to_owned() },
        Step::Write { path: "inside.txt".into(), content: "in\n".to_owned() },
    ]);
    let order = stage.order(tree.path(), Mode::Implement);
    let (report, seen) = stage.play(&script, &order).await;
    assert_eq!(report.end, finished(Submission::Nothing));
    assert!(!outside.exists());
    assert!(tree.path().join("inside.txt").exists());
    let rulings: Vec<_> = seen
        .iter()
        .filter_map(|update| match update {
            Update::Asked(_, ruling) => Some((ruling.verdict, ruling.reason.clone())),
            _ => None,
        })
        .collect();
    let denied = |reason: &str| (Verdict::Deny, reason.to_owned());
    assert_eq!(
        rulings,
        [
            denied(&format!("`{}` is outside the worktree", outside.display())),
            denied("the link to the repository is not the agent's to change"),
            denied("no rule allows it"),
            (Verdict::Allow, "an implementer may change files of the worktree".to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_planner_that_would_write_may_not() {
    let stage = Stage::set().await;
    let script = Script::of([
        Step::Write { path: "early.txt".into(), content: "early\n".to_owned() },
        Step::Run("touch early.txt".to_owned()),
        Step::Plan(Box::new(plan())),
    ]);
    let (report, _) = stage.play(&script, &stage.order(&stage.project(), Mode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(plan()))));
    assert!(!stage.project().join("early.txt").exists());
}

#[tokio::test]
async fn an_agent_that_hangs_times_out_and_its_whole_tree_is_gone() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let (inside, outside) = (stage.aside("inside.pid"), stage.aside("outside.pid"));
    // Deaf, with a child that will not be asked to end, and one that left the group.
    let script = Script {
        deaf: true,
        ..Script::of([
            Step::Spawn {
                command: "trap '' TERM; while :; do sleep 1; done".to_owned(),
                leave: false,
                pid_file: inside.clone(),
            },
            Step::Spawn {
                command: "trap '' TERM; while :; do sleep 1; done".to_owned(),
                leave: true,
                pid_file: outside.clone(),
            },
            Step::AwaitFile(inside.clone()),
            Step::AwaitFile(outside.clone()),
            Step::Hang,
        ])
    };
    let mut order = stage.order(tree.path(), Mode::Implement);
    order.time_limit = Duration::from_secs(3);
    order.patience.cancel = Duration::from_millis(50);
    order.patience.stop = Duration::from_millis(50);
    let (report, seen) = stage.play(&script, &order).await;
    assert_eq!(report.end, RunEnd::TimedOut);
    for file in [inside, outside] {
        let pid = pid(&file).await;
        assert!(!lives(pid), "{pid} of {} lives", file.display());
    }
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn a_cancelled_agent_is_gone_when_that_is_said() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let script = Script::of([Step::Say("working".to_owned()), Step::Hang]);
    let (seen, cancel) = (Seen::default(), CancellationToken::new());
    let (agent, records) = (stage.agent(&script), stage.records().await);
    let order = stage.order(tree.path(), Mode::Implement);
    let observer = seen.observer();
    let run = agent.run(&order, &records, &observer, &cancel);
    let stop = async {
        seen.until(|update| (*update == Update::Said("working".to_owned())).then_some(())).await;
        assert_ne!(group(pgid(&seen.all())), [0; 0]);
        assert_eq!(records.all().await.unwrap().len(), 1);
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(run, stop);
    assert_eq!(report.unwrap().end, RunEnd::Cancelled);
    nothing_is_left(&stage, &seen.all()).await;
}

#[tokio::test]
async fn an_agent_that_dies_has_crashed_whatever_it_leaves_behind() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let child = stage.aside("child.pid");
    for last in [Step::Exit(3), Step::Die] {
        let script = Script::of([
            Step::Spawn { command: "sleep 600".to_owned(), leave: false, pid_file: child.clone() },
            Step::AwaitFile(child.clone()),
            last,
        ]);
        let (report, seen) = stage.play(&script, &stage.order(tree.path(), Mode::Implement)).await;
        assert!(matches!(report.end, RunEnd::Crashed { .. }), "{:?}", report.end);
        nothing_is_left(&stage, &seen).await;
        fs::remove_file(&child).unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_cannot_start_is_unavailable() {
    let stage = Stage::set().await;
    let order = stage.order(&stage.project(), Mode::Implement);
    let (records, seen) = (stage.records().await, Seen::default());
    for (command, args) in [("no-such-agent", vec![]), ("sh", vec!["-c", "echo no >&2; exit 9"])] {
        let args = args.into_iter().map(str::to_owned).collect();
        let agent = Agent { command: command.into(), args, env: environment(), ..Agent::default() };
        let cancel = CancellationToken::new();
        let report = agent.run(&order, &records, &seen.observer(), &cancel).await.unwrap();
        assert!(matches!(report.end, RunEnd::Unavailable { .. }), "{report:?}");
    }
    let mut order = order;
    order.patience.start = Duration::from_millis(200);
    let script = Script { mute: true, ..Script::default() };
    let (report, seen) = stage.play(&script, &order).await;
    assert!(matches!(report.end, RunEnd::Unavailable { .. }), "{report:?}");
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn a_used_up_quota_says_until_when() {
    let stage = Stage::set().await;
    let script = Script::of([Step::Fail {
        code: 429,
        message: "too many requests".to_owned(),
        data: Some(json!({ "resetAt": noon() })),
    }]);
    let (report, _) = stage.play(&script, &stage.order(&stage.project(), Mode::Implement)).await;
    assert_eq!(report.end, RunEnd::Quota { until: noon() });
    let failure = report.end.failure(&"a-provider".parse().unwrap()).expect("a failure");
    let provider = "a-provider".parse().unwrap();
    assert_eq!(failure.kind, FailureKind::Quota { provider, until: noon() });
}

#[tokio::test]
async fn an_agent_that_has_spent_its_allowance_is_stopped() {
    let stage = Stage::set().await;
    let script = Script::of([
        Step::Usage { cost: "0.5".to_owned() },
        Step::Usage { cost: "1.5".to_owned() },
        Step::Hang,
    ]);
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.allowance.usd = Some("1".parse().unwrap());
    let (report, seen) = stage.play(&script, &order).await;
    assert_eq!(report.end, RunEnd::OverBudget);
    assert_eq!(report.usage.expect("reported").cost, Cost::Known("1.5".parse().unwrap()));
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn a_later_run_of_a_task_takes_the_place_of_an_earlier_one() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let records = stage.records().await;
    let never = CancellationToken::new();
    let earlier = stage.order(tree.path(), Mode::Implement);
    let mut later = earlier.clone();
    later.run.generation += 1;
    let script = Script {
        cases: vec![Case {
            when: "later".to_owned(),
            steps: vec![Step::Say("later".to_owned()), Step::Hang],
            ..Case::default()
        }],
        ..Script::of([Step::Say("earlier".to_owned()), Step::Hang])
    };
    later.prompt = "Do it later.".to_owned();
    let agent = stage.agent(&script);
    let (first, second) = (Seen::default(), Seen::default());
    let (see_first, see_second) = (first.observer(), second.observer());
    let stop = CancellationToken::new();
    let said = |seen: &Seen, text: &str| {
        let (seen, text) = (seen.clone(), Update::Said(text.to_owned()));
        async move { seen.until(|update| (*update == text).then_some(())).await }
    };
    let run_first = agent.run(&earlier, &records, &see_first, &never);
    let run_second = async {
        said(&first, "earlier").await;
        agent.run(&later, &records, &see_second, &stop).await.unwrap()
    };
    let check = async {
        said(&second, "later").await;
        assert_eq!(group(pgid(&first.all())), [0; 0], "one at a time");
        let refused = agent.run(&earlier, &records, &see_first, &never).await;
        let Err(process::Error::Superseded { by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(by, later.run);
        stop.cancel();
    };
    let (first_end, second_end, ()) = tokio::join!(run_first, run_second, check);
    assert!(matches!(first_end.unwrap().end, RunEnd::Crashed { .. }));
    assert_eq!(second_end.end, RunEnd::Cancelled);
    nothing_is_left(&stage, &second.all()).await;
}
