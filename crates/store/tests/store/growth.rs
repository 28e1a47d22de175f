//! Costs that must not grow with the number of tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{Datelike as _, NaiveDate, TimeDelta};
use tamma_core::task_loop::State;
use tamma_store::{Store, TaskFilter};
use tamma_testkit::postgres::TestDatabase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::recorded_task::{PROJECT, RecordedTask, careful, quick, register};

#[tokio::test]
async fn partitions_are_created_ahead_and_take_rows_from_the_default() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, quick()).until(State::Completed);
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records()[..4], &recorded.rules).await.expect("recorded");
    let first = recorded.now.date_naive();
    let month = NaiveDate::from_ymd_opt(first.year(), first.month(), 1).expect("date");
    // Four months of each of three tables: history, log lines and model calls.
    assert_eq!(store.ensure_partitions(month, 3).await.expect("created"), 12);
    assert_eq!(store.ensure_partitions(month, 3).await.expect("there"), 0);
    store.save_steps(&recorded.records()[4..], &recorded.rules).await.expect("recorded");
    let lines = store.history(recorded.task.id, 0, 1000).await.expect("history");
    let log: Vec<_> = lines.into_iter().map(|line| line.entry).collect();
    assert_eq!(log, recorded.log());
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let others = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM entries_other");
    assert_eq!(others.fetch_one(&pool).await.expect("count"), 0);
    let changed = sqlx::query("UPDATE entries SET reason = 'other'").execute(&pool).await;
    assert!(changed.is_err(), "the history is append-only");
}

#[tokio::test]
async fn lists_use_indexes_with_many_tasks() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    // One in fifty asks, fails often or is overdue; the rest has ended.
    sqlx::raw_sql(
        "CREATE TEMP TABLE copies AS SELECT * FROM tasks;
         ALTER TABLE copies DROP COLUMN words;
         DO $$
         DECLARE names text := (
            SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
            WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND attname NOT IN ('words', 'id'));
         BEGIN
            EXECUTE format('INSERT INTO tasks (id, %1$s)
                SELECT gen_random_uuid(), %1$s FROM copies, generate_series(1, 5000)', names);
         END $$;
         UPDATE tasks SET
            asked_at = NULL, question = NULL, due_at = NULL, live = false, state = 'completed'
         WHERE hashtext(id::text) % 50 <> 0;
         UPDATE tasks SET failures = 5, state = 'cto_intervention' WHERE live;
         INSERT INTO projects (id, name, repository)
            SELECT gen_random_uuid(), 'p' || n, 'p' FROM generate_series(1, 20) n;
         UPDATE tasks SET project = (
            SELECT id FROM projects WHERE name = 'p' || (1 + abs(hashtext(tasks.id::text)) % 20))
         WHERE hashtext(id::text) % 3 <> 0;
",
    )
    .execute(&pool)
    .await
    .expect("many");
    sqlx::query("VACUUM ANALYZE tasks").execute(&pool).await.expect("tidied");
    // Number of sequential scans and of index scans of the table.
    let scans = async || -> (i64, i64) {
        sqlx::query_as("SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'tasks'")
            .fetch_one(&pool)
            .await
            .expect("scan counts")
    };
    store.close().await;
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.expect("flushed");
    let (read_before, found_before) = scans().await;
    let store = database.store().await.expect("connection");
    let late = recorded.now + TimeDelta::days(9);
    for _ in 0..8 {
        assert_eq!(store.inbox(None, None, 20).await.expect("inbox").tasks.len(), 20);
        store.over_timeout(None, late, None, 20).await.expect("page");
        store.failing_often(None, 20).await.expect("list");
        let states = vec![State::CtoIntervention];
        for filter in [
            TaskFilter { project: Some(PROJECT), ..TaskFilter::default() },
            TaskFilter { project: Some(PROJECT), states: states.clone(), ..TaskFilter::default() },
            TaskFilter { states, ..TaskFilter::default() },
            TaskFilter::default(),
        ] {
            store.tasks(&filter, None, 20).await.expect("page");
        }
        store.count_waiting(None).await.expect("count");
        store.task(recorded.task.id).await.expect("task");
    }
    // A closed connection reports its statistics a little later. Each of the nine lists was read
    // eight times.
    store.close().await;
    let read = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let (read, index_scans) = scans().await;
            if index_scans - found_before >= 72 || read > read_before {
                return read;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(read.await.expect("statistics are reported"), read_before);
}

/// Proxies a connection and counts its statements.
async fn counting(server: &str) -> (String, Arc<AtomicU64>) {
    let statements = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    let (from, to) = (server.find('@').map_or(0, |at| at + 1), server.rfind('/').expect("a URL"));
    let upstream = server[from..to].to_owned();
    let url = format!("{}{address}{}?sslmode=disable", &server[..from], &server[to..]);
    let count = statements.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&upstream).await.expect("server connection");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let count = count.clone();
            tokio::spawn(async move {
                // The first message has no type byte.
                let mut kind = None;
                loop {
                    let Ok(length) = from_client.read_u32().await else { return };
                    let mut body = vec![0; length as usize - 4];
                    from_client.read_exact(&mut body).await.expect("message");
                    if let Some(kind) = kind {
                        to_server.write_u8(kind).await.expect("written");
                        // Execute and simple query. Pings of the pool use other messages and are
                        // not counted.
                        count.fetch_add(u64::from(matches!(kind, b'E' | b'Q')), Ordering::SeqCst);
                    }
                    to_server.write_u32(length).await.expect("written");
                    to_server.write_all(&body).await.expect("written");
                    let Ok(next) = from_client.read_u8().await else { return };
                    kind = Some(next);
                }
            });
        }
    });
    (url, statements)
}

#[tokio::test]
async fn step_is_written_in_one_round_trip() {
    let database = TestDatabase::fresh().await.expect("test database");
    let (url, statements) = counting(&database.url()).await;
    let store = Store::connect_with(&url, 1).await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    let records = recorded.records();
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    // The first call prepares the statement.
    store.save_steps(&records[..1], &recorded.rules).await.expect("recorded");
    let before = statements.load(Ordering::SeqCst);
    for record in &records[1..] {
        store.save_steps(std::slice::from_ref(record), &recorded.rules).await.expect("recorded");
    }
    assert_eq!(statements.load(Ordering::SeqCst) - before, records.len() as u64 - 1);
}
