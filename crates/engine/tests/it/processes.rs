//! Processes: recorded before they run, and stopped after their owner died.

use std::process::Stdio;
use std::time::Duration;

use tamma_engine::agent::RunMode;
use tamma_engine::process::{Error, Launch, ProcessIdentity, ProcessRecord, SupervisedProcess};
use tamma_testkit::agent::{AgentStep, Script};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, RecordedUpdates, environment, group, is_alive, noon, pid, until};

/// Variable that makes the test program act as an owner that will be killed.
const OWNER: &str = "TAMMA_TEST_OWNER";

fn launch(fixture: &Fixture, program: &str, args: &[&str]) -> Launch {
    Launch {
        program: program.into(),
        args: args.iter().map(|argument| (*argument).to_owned()).collect(),
        env: environment(),
        working_dir: fixture.project(),
        run: fixture.run(),
        now: noon(),
    }
}

#[tokio::test]
async fn record_is_written_before_the_program_runs() {
    let fixture = Fixture::create().await;
    let records = fixture.records().await;
    let listing = format!("ls {}/runs", fixture.data().display());
    let (mut group, mut pipes) =
        SupervisedProcess::start(&launch(&fixture, "sh", &["-c", &listing]), &records, |record| {
            let name = format!("{}-7-1-{}.json", record.run.task, record.pgid);
            assert!(fixture.data().join("runs").join(name).exists());
        })
        .await
        .unwrap();
    let mut listed = String::new();
    pipes.stdout.read_to_string(&mut listed).await.unwrap();
    assert_eq!(listed.trim(), format!("{}-7-1-{}.json", fixture.task, group.record().pgid));
    group.stop(Duration::from_secs(5)).await.unwrap();
    assert_eq!(records.all().await.unwrap(), []);
}

#[tokio::test]
async fn arguments_are_not_parsed_by_a_shell() {
    let fixture = Fixture::create().await;
    let odd = "$(touch oops) `touch oops` ; touch oops \n 'x\"";
    let launch = launch(&fixture, "printf", &["%s", odd]);
    let (mut group, mut pipes) =
        SupervisedProcess::start(&launch, &fixture.records().await, |_| {}).await.unwrap();
    let mut messages = String::new();
    pipes.stdout.read_to_string(&mut messages).await.unwrap();
    assert_eq!(messages, odd);
    assert!(!fixture.project().join("oops").exists());
    group.stop(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn dropped_group_is_killed() {
    let fixture = Fixture::create().await;
    let records = fixture.records().await;
    let left = fixture.scratch_path("left.pid");
    let leave = format!("setsid sh -c 'echo $$ > {}; exec sleep 600' & wait", left.display());
    let launch = launch(&fixture, "sh", &["-c", &leave]);
    let (running, pipes) = SupervisedProcess::start(&launch, &records, |_| {}).await.unwrap();
    let (pgid, left) = (running.record().pgid, pid(&left).await);
    assert!(is_alive(left));
    drop(running);
    // The pipe closes when its last holder has exited.
    let mut lines = BufReader::new(pipes.stdout).lines();
    assert_eq!(lines.next_line().await.unwrap(), None);
    // An exiting process closes its files shortly before it is gone from the process table.
    until(async || group(pgid).is_empty() && !is_alive(left)).await;
    until(async || records.all().await.unwrap().is_empty()).await;
}

/// Helper of the test below: the owner that is killed.
#[tokio::test]
#[ignore = "started by a test in a separate process"]
async fn owner() {
    let Some(data) = std::env::var_os(OWNER) else { return };
    let data = std::path::PathBuf::from(data);
    let fixture = Fixture::create().await;
    let records = tamma_engine::process::ProcessRecords::open(&data).await.unwrap();
    let sleeper = |new_session, name: &str| AgentStep::Spawn {
        command: "trap '' TERM; while :; do sleep 1; done".to_owned(),
        new_session,
        pid_file: data.join(name),
    };
    let script =
        Script::new([sleeper(false, "inside.pid"), sleeper(true, "outside.pid"), AgentStep::Hang]);
    let request = fixture.run_request(&fixture.project(), RunMode::Implement);
    let cancel = CancellationToken::new();
    fixture
        .agent(&script)
        .run(&request, &records, &RecordedUpdates::default().observer(), &cancel)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_data_folder_has_one_worker() {
    let fixture = Fixture::create().await;
    let records = fixture.records().await;
    let claim = records.claim().unwrap();
    let error = records.claim().unwrap_err();
    assert!(matches!(&error, Error::InUse { data } if *data == fixture.data()), "{error:?}");
    drop(claim);
    records.claim().unwrap();
    assert_eq!(records.all().await.unwrap(), [], "the lock is no record");
}

#[tokio::test]
async fn processes_of_a_killed_owner_are_stopped_by_the_next_one() {
    let fixture = Fixture::create().await;
    let records = fixture.records().await;
    let mut owner = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::owner", "--ignored"])
        .env(OWNER, fixture.data())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let left = [
        pid(&fixture.data().join("inside.pid")).await,
        pid(&fixture.data().join("outside.pid")).await,
    ];
    let recorded = records.all().await.unwrap();
    assert_eq!(recorded.len(), 1);
    assert_eq!(records.stop_orphans(Duration::ZERO).await.unwrap(), [], "its owner is alive");
    assert!(left.iter().all(|pid| is_alive(*pid)));

    owner.kill().await.unwrap();
    assert!(left.iter().any(|pid| is_alive(*pid)), "killing the owner is not enough");
    assert_eq!(records.stop_orphans(Duration::from_millis(50)).await.unwrap(), recorded);
    assert!(!left.iter().any(|pid| is_alive(*pid)));
    assert_eq!(group(recorded[0].pgid), [0; 0]);
    assert_eq!(records.all().await.unwrap(), []);
}

#[tokio::test]
async fn unrelated_process_with_a_reused_id_is_not_stopped() {
    let fixture = Fixture::create().await;
    let records = fixture.records().await;
    let mut stranger =
        tokio::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
    let pgid = stranger.id().unwrap();
    let dead = |pid| ProcessIdentity { pid, start_ticks: 1 };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = ProcessRecord {
        run: fixture.run(),
        pgid,
        leader: dead(pgid),
        owner: dead(std::process::id()),
        boot_id: boot.trim().to_owned(),
        started_at: noon(),
    };
    let path = fixture.data().join("runs/an-old-one.json");
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    assert_eq!(records.stop_orphans(Duration::ZERO).await.unwrap(), [record]);
    assert!(is_alive(pgid));
    stranger.kill().await.unwrap();
}

#[tokio::test]
async fn an_empty_record_does_not_keep_a_worker_from_starting() {
    let data = tempfile::tempdir().unwrap();
    let records = tamma_engine::process::ProcessRecords::open(data.path()).await.unwrap();
    let empty = data.path().join("runs/a-1-1-1.json");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(records.stop_orphans(Duration::ZERO).await.unwrap(), []);
    assert!(!empty.exists());
}
