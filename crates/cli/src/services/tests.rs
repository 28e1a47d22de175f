//! The services as `tamma up` uses them, with the real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::*;
use crate::progress::Progress;

/// Names the data folder to the process that plays `tamma up`.
const PLAYS_UP: &str = "TAMMA_TEST_PLAYS_UP";

/// How long something may take that must happen.
const LIMIT: Duration = Duration::from_secs(30);

async fn postgres(lock: &Lock) -> Postgres {
    Postgres::start(lock, &Search::environment(), Progress::Silent).await.unwrap()
}

async fn temporal(lock: &Lock) -> Temporal {
    Temporal::start(lock, &Search::environment(), Progress::Silent).await.unwrap()
}

/// Writes something into the server: one more database.
async fn write(postgres: &Postgres) {
    assert!(tamma_store::create_database(&postgres.url(), "kept", None).await.unwrap());
}

/// Whether that is there.
async fn has_data(postgres: &Postgres) -> bool {
    tamma_store::databases(&postgres.url(), "kept").await.unwrap() == ["kept"]
}

/// Stops both.
async fn stop(postgres: &mut Postgres, temporal: &mut Temporal) {
    let (first, second) = tokio::join!(temporal.stop(), postgres.stop());
    first.and(second).unwrap();
}

async fn is_alive(pid: u32) -> bool {
    process::started(pid).await.is_some()
}

/// Asks Temporal for something with its own program.
async fn ask(temporal: &Temporal, arguments: &[&str]) -> bool {
    let mut command = Command::new(Search::environment().temporal().unwrap());
    command.args(arguments).args(["--address", &temporal.address()]);
    command.output().await.unwrap().status.success()
}

#[tokio::test]
async fn what_was_written_is_there_after_a_stop_and_a_start() {
    let folder = TempDir::new().unwrap();
    {
        let lock = Lock::take(folder.path()).unwrap();
        let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
        assert!(!has_data(&postgres).await);
        write(&postgres).await;
        let start = ["workflow", "start", "--type", "T", "--task-queue", "q", "-w", "kept"];
        assert!(ask(&temporal, &start).await);
        let (database, server) = (postgres.pid(), temporal.pid());
        stop(&mut postgres, &mut temporal).await;
        assert!(!is_alive(database).await && !is_alive(server).await);
    }
    let lock = Lock::take(folder.path()).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    assert!(has_data(&postgres).await);
    assert!(ask(&temporal, &["workflow", "describe", "-w", "kept"]).await);
    assert!(!ask(&temporal, &["workflow", "describe", "-w", "another"]).await);
    stop(&mut postgres, &mut temporal).await;
}

#[tokio::test]
async fn a_killed_service_is_told_and_started_again_at_its_address_with_its_data() {
    let folder = TempDir::new().unwrap();
    let lock = Lock::take(folder.path()).unwrap();
    let mut postgres = postgres(&lock).await;
    let mut temporal = temporal(&lock).await;
    let (url, address) = (postgres.url(), temporal.address());
    write(&postgres).await;
    process::send(postgres.pid(), Signal::KILL);
    process::send(temporal.pid(), Signal::KILL);
    for died in [postgres.died().await, temporal.died().await] {
        assert!(died.to_string().contains("killed by signal 9"), "{died}");
    }
    postgres.restart(Progress::Silent).await.unwrap();
    temporal.restart(Progress::Silent).await.unwrap();
    assert_eq!((postgres.url(), temporal.address()), (url, address));
    assert!(has_data(&postgres).await);
    stop(&mut postgres, &mut temporal).await;
    // What a crash of the machine leaves: the number of somebody who is not a PostgreSQL.
    let stale = folder.path().join("postgres/cluster/postmaster.pid");
    fs::write(&stale, format!("{}\n", std::process::id())).unwrap();
    postgres.restart(Progress::Silent).await.unwrap();
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_predecessor_left_running_is_stopped_first() {
    let folder = TempDir::new().unwrap();
    let lock = Lock::take(folder.path()).unwrap();
    let (left, also_left) = (postgres(&lock).await, temporal(&lock).await);
    let (database, server) = (left.pid(), also_left.pid());
    write(&left).await;
    // As a killed process leaves them: nobody stops them.
    std::mem::forget((left, also_left));
    assert!(is_alive(database).await && is_alive(server).await);
    // Without its record, it is known by its own files.
    fs::remove_file(folder.path().join("postgres/process.json")).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    assert!(!is_alive(database).await && !is_alive(server).await);
    assert!(has_data(&postgres).await);
    stop(&mut postgres, &mut temporal).await;
}

#[tokio::test]
async fn a_record_of_somebody_elses_process_harms_nobody() {
    let folder = TempDir::new().unwrap();
    let lock = Lock::take(folder.path()).unwrap();
    // Alive, started when the record says, and no Temporal.
    let mut bystander = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = bystander.id().unwrap();
    let record = serde_json::json!({ "pid": pid, "started": process::started(pid).await });
    fs::create_dir(folder.path().join("temporal")).unwrap();
    fs::write(folder.path().join("temporal/process.json"), record.to_string()).unwrap();
    let mut temporal = temporal(&lock).await;
    assert!(is_alive(pid).await);
    temporal.stop().await.unwrap();
    drop(bystander.stdin.take());
    assert!(bystander.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_second_one_in_the_same_folder_is_told_who_has_it() {
    let folder = TempDir::new().unwrap();
    assert_eq!(Lock::holder(folder.path()), None);
    let first = Lock::take(folder.path()).unwrap();
    assert_eq!(Lock::holder(folder.path()), Some(std::process::id()));
    let error = Lock::take(folder.path()).unwrap_err().to_string();
    for part in [&format!("process {}", std::process::id()), "Ctrl-C", "--data"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    drop(first);
    assert_eq!(Lock::holder(folder.path()), None);
    Lock::take(folder.path()).unwrap();
}

#[tokio::test]
async fn a_long_path_means_a_port_and_a_password_and_half_a_folder_is_made_again() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("long".repeat(25));
    for through in [folder.path(), &data] {
        fs::create_dir_all(through).unwrap();
        fs::set_permissions(through, fs::Permissions::from_mode(0o711)).unwrap();
    }
    let half = data.join("postgres/cluster.partial-1");
    fs::create_dir_all(half.join("base")).unwrap();
    let lock = Lock::take(&data).unwrap();
    let mut postgres = postgres(&lock).await;
    assert!(!half.exists());
    let url = postgres.url();
    assert!(url.contains("@127.0.0.1:"), "{url}");
    write(&postgres).await;
    assert!(has_data(&postgres).await);
    let (before, after) = url.split_once("tamma:").unwrap();
    let wrong = format!("{before}tamma:x{after}");
    assert!(tamma_store::databases(&wrong, "").await.is_err(), "any password will do");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_that_ends_at_once_is_told_with_the_end_of_its_log() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("temporal-that-fails");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" = server ] && echo 'no space left' >&2\nexit 3\n")
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let lock = Lock::take(folder.path()).unwrap();
    let search = Search { temporal: Some(program), ..Search::environment() };
    let error = Temporal::start(&lock, &search, Progress::Silent).await.unwrap_err().to_string();
    for part in ["exit code 3", "temporal/temporal.log", "no space left"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[tokio::test]
async fn for_root_a_folder_that_the_servers_user_cannot_enter_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The outer folder is closed, as root's home is.
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let lock = Lock::take(&folder.path().join("data")).unwrap();
    let started = Postgres::start(&lock, &Search::environment(), Progress::Silent).await;
    let error = started.unwrap_err().to_string();
    assert!(error.contains("cannot enter") && error.contains("--data /var/lib/tamma"), "{error}");
}

/// Not a test: the process that the next test kills.
#[tokio::test]
#[ignore = "it is started by another test"]
async fn plays_up() {
    let Some(data) = std::env::var_os(PLAYS_UP) else { return };
    let lock = Lock::take(Path::new(&data)).unwrap();
    let (postgres, temporal) = (postgres(&lock).await, temporal(&lock).await);
    println!("\nready {} {}", postgres.pid(), temporal.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn after_a_kill_of_ours_nothing_is_left_and_the_next_start_works() {
    let folder = TempDir::new().unwrap();
    let mut up = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "services::tests::plays_up", "--ignored", "--nocapture"])
        .env(PLAYS_UP, folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = loop {
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some(pids) = line.strip_prefix("ready ") {
            break pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
        }
    };
    let error = Lock::take(folder.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", up.id().unwrap())), "{error}");
    up.kill().await.unwrap();
    // Where the kernel can be asked to tell them, they end without anybody else.
    if Path::new("/usr/bin/setpriv").exists() {
        for pid in &pids {
            assert!(process::until(LIMIT, async || !is_alive(*pid).await).await, "{pid} lives");
        }
    }
    let lock = Lock::take(folder.path()).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    for pid in pids {
        assert!(!is_alive(pid).await);
    }
    stop(&mut postgres, &mut temporal).await;
}
