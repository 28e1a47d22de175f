//! Tests of the private services with the real programs.

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

/// Variable with the data folder, for the process that stands in for `tamma up`.
const PLAYS_UP: &str = "TAMMA_TEST_PLAYS_UP";

/// Time limit for expected events.
const LIMIT: Duration = Duration::from_secs(30);

async fn postgres(lock: &DataFolderLock) -> PostgresService {
    PostgresService::start(lock, &ProgramSearch::from_environment(), Progress::Silent)
        .await
        .unwrap()
}

async fn temporal(lock: &DataFolderLock) -> TemporalService {
    TemporalService::start(lock, &ProgramSearch::from_environment(), Progress::Silent)
        .await
        .unwrap()
}

/// Creates another database, as test data.
async fn write(postgres: &PostgresService) {
    assert!(tamma_store::create_database(&postgres.url(), "kept", None).await.unwrap());
}

/// Returns `true` if the test data exists.
async fn has_data(postgres: &PostgresService) -> bool {
    tamma_store::list_databases(&postgres.url(), "kept").await.unwrap() == ["kept"]
}

/// Stops both services.
async fn stop(postgres: &mut PostgresService, temporal: &mut TemporalService) {
    let (first, second) = tokio::join!(temporal.stop(), postgres.stop());
    first.and(second).unwrap();
}

async fn is_alive(pid: u32) -> bool {
    process::start_time(pid).await.is_some()
}

/// Runs the `temporal` command against the server.
async fn ask(temporal: &TemporalService, arguments: &[&str]) -> bool {
    let mut command = Command::new(ProgramSearch::from_environment().find_temporal().unwrap());
    command.args(arguments).args(["--address", &temporal.address()]);
    command.output().await.unwrap().status.success()
}

#[tokio::test]
async fn data_survives_a_stop_and_a_start() {
    let folder = TempDir::new().unwrap();
    {
        let lock = DataFolderLock::acquire(folder.path()).unwrap();
        let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
        assert!(!has_data(&postgres).await);
        write(&postgres).await;
        let start = ["workflow", "start", "--type", "T", "--task-queue", "q", "-w", "kept"];
        assert!(ask(&temporal, &start).await);
        let (database, server) = (postgres.pid(), temporal.pid());
        stop(&mut postgres, &mut temporal).await;
        assert!(!is_alive(database).await && !is_alive(server).await);
    }
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    assert!(has_data(&postgres).await);
    assert!(ask(&temporal, &["workflow", "describe", "-w", "kept"]).await);
    assert!(!ask(&temporal, &["workflow", "describe", "-w", "another"]).await);
    stop(&mut postgres, &mut temporal).await;
}

#[tokio::test]
async fn a_killed_service_is_reported_and_restarts_at_its_address_with_its_data() {
    let folder = TempDir::new().unwrap();
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let mut postgres = postgres(&lock).await;
    let mut temporal = temporal(&lock).await;
    let (url, address) = (postgres.url(), temporal.address());
    write(&postgres).await;
    process::send_signal(postgres.pid(), Signal::KILL);
    process::send_signal(temporal.pid(), Signal::KILL);
    for exit in [postgres.wait_for_exit().await, temporal.wait_for_exit().await] {
        assert!(exit.to_string().contains("killed by signal 9"), "{exit}");
    }
    postgres.restart(Progress::Silent).await.unwrap();
    temporal.restart(Progress::Silent).await.unwrap();
    assert_eq!((postgres.url(), temporal.address()), (url, address));
    assert!(has_data(&postgres).await);
    stop(&mut postgres, &mut temporal).await;
    // After a power failure, the file can name a process that is not PostgreSQL.
    let stale = folder.path().join("postgres/cluster/postmaster.pid");
    fs::write(&stale, format!("{}\n", std::process::id())).unwrap();
    postgres.restart(Progress::Silent).await.unwrap();
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn orphaned_services_are_stopped_first() {
    let folder = TempDir::new().unwrap();
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let (orphan_postgres, orphan_temporal) = (postgres(&lock).await, temporal(&lock).await);
    let (database, server) = (orphan_postgres.pid(), orphan_temporal.pid());
    write(&orphan_postgres).await;
    // A killed `tamma up` leaves them running.
    std::mem::forget((orphan_postgres, orphan_temporal));
    assert!(is_alive(database).await && is_alive(server).await);
    // Without the record, it is found by its own files.
    fs::remove_file(folder.path().join("postgres/process.json")).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    assert!(!is_alive(database).await && !is_alive(server).await);
    assert!(has_data(&postgres).await);
    stop(&mut postgres, &mut temporal).await;
}

#[tokio::test]
async fn a_stale_record_does_not_stop_an_unrelated_process() {
    let folder = TempDir::new().unwrap();
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    // Alive, with a matching start time, but not Temporal.
    let mut bystander = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = bystander.id().unwrap();
    let record = serde_json::json!({ "pid": pid, "started": process::start_time(pid).await });
    fs::create_dir(folder.path().join("temporal")).unwrap();
    fs::write(folder.path().join("temporal/process.json"), record.to_string()).unwrap();
    let mut temporal = temporal(&lock).await;
    assert!(is_alive(pid).await);
    temporal.stop().await.unwrap();
    drop(bystander.stdin.take());
    assert!(bystander.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_locked_data_folder_is_refused_with_its_holder() {
    let folder = TempDir::new().unwrap();
    assert_eq!(DataFolderLock::holder(folder.path()), None);
    let first = DataFolderLock::acquire(folder.path()).unwrap();
    assert_eq!(DataFolderLock::holder(folder.path()), Some(std::process::id()));
    let error = DataFolderLock::acquire(folder.path()).unwrap_err().to_string();
    for part in [&format!("process {}", std::process::id()), "Ctrl-C", "--data"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    drop(first);
    assert_eq!(DataFolderLock::holder(folder.path()), None);
    DataFolderLock::acquire(folder.path()).unwrap();
}

#[tokio::test]
async fn a_long_path_uses_a_port_with_a_password_and_incomplete_files_are_replaced() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("long".repeat(25));
    for through in [folder.path(), &data] {
        fs::create_dir_all(through).unwrap();
        fs::set_permissions(through, fs::Permissions::from_mode(0o711)).unwrap();
    }
    let partial = data.join("postgres/cluster.partial-1");
    fs::create_dir_all(partial.join("base")).unwrap();
    let lock = DataFolderLock::acquire(&data).unwrap();
    let mut postgres = postgres(&lock).await;
    assert!(!partial.exists());
    let url = postgres.url();
    assert!(url.contains("@127.0.0.1:"), "{url}");
    write(&postgres).await;
    assert!(has_data(&postgres).await);
    let (before, after) = url.split_once("tamma:").unwrap();
    let wrong = format!("{before}tamma:x{after}");
    assert!(
        tamma_store::list_databases(&wrong, "").await.is_err(),
        "a wrong password was accepted"
    );
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn the_socket_needs_the_password_also_of_a_cluster_that_trusted_it() {
    let folder = TempDir::new().unwrap();
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let mut postgres = postgres(&lock).await;
    // Rules of a cluster that an earlier version created.
    let own_rules = folder.path().join("postgres/cluster/pg_hba.conf");
    fs::write(own_rules, "local all all trust\n").unwrap();
    postgres.restart(Progress::Silent).await.unwrap();
    let url = postgres.url();
    assert!(url.starts_with("postgres:///tamma?host="), "{url}");
    write(&postgres).await;
    assert!(has_data(&postgres).await);
    let password = fs::read_to_string(folder.path().join("postgres/password")).unwrap();
    let parameter = format!("&password={}", password.trim());
    for wrong in [url.replace(&parameter, "&password=x"), url.replace(&parameter, "")] {
        assert!(tamma_store::list_databases(&wrong, "").await.is_err(), "{wrong} was accepted");
    }
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_that_exits_at_once_is_reported_with_its_log() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("temporal-that-fails");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" = server ] && echo 'no space left' >&2\nexit 3\n")
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let search = ProgramSearch { temporal: Some(program), ..ProgramSearch::from_environment() };
    let error =
        TemporalService::start(&lock, &search, Progress::Silent).await.unwrap_err().to_string();
    for part in ["exit code 3", "temporal/temporal.log", "no space left"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[tokio::test]
async fn root_needs_a_folder_that_the_servers_user_can_enter() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Other users cannot enter the outer folder, as with root's home.
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let lock = DataFolderLock::acquire(&folder.path().join("data")).unwrap();
    let started =
        PostgresService::start(&lock, &ProgramSearch::from_environment(), Progress::Silent).await;
    let error = started.unwrap_err().to_string();
    assert!(error.contains("cannot enter") && error.contains("--data /var/lib/tamma"), "{error}");
}

/// Process that the next test kills. Not a test by itself.
#[tokio::test]
#[ignore = "started by another test"]
async fn plays_up() {
    let Some(data) = std::env::var_os(PLAYS_UP) else { return };
    let lock = DataFolderLock::acquire(Path::new(&data)).unwrap();
    let (postgres, temporal) = (postgres(&lock).await, temporal(&lock).await);
    println!("\nready {} {}", postgres.pid(), temporal.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn services_stop_after_a_kill_and_the_next_start_works() {
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
    let error = DataFolderLock::acquire(folder.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", up.id().unwrap())), "{error}");
    up.kill().await.unwrap();
    // With `setpriv`, the kernel stops them.
    if Path::new("/usr/bin/setpriv").exists() {
        for pid in &pids {
            assert!(
                process::poll_until(LIMIT, async || !is_alive(*pid).await).await,
                "{pid} is still running"
            );
        }
    }
    let lock = DataFolderLock::acquire(folder.path()).unwrap();
    let (mut postgres, mut temporal) = (postgres(&lock).await, temporal(&lock).await);
    for pid in pids {
        assert!(!is_alive(pid).await);
    }
    stop(&mut postgres, &mut temporal).await;
}
