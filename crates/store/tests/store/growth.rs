//! What must stay flat as the work grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{Datelike as _, NaiveDate, TimeDelta};
use tamma_core::task_loop::State;
use tamma_store::{Filter, Store};
use tamma_testkit::postgres::Database;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::tape::{PROJECT, Tape, careful, quick, register};

#[tokio::test]
async fn months_are_made_ahead_and_take_what_was_kept_among_the_others() {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    let tape = Tape::new(1, quick()).until(State::Completed);
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    store.record(&tape.records()[..4], &tape.rules).await.expect("recorded");
    let first = tape.now.date_naive();
    let month = NaiveDate::from_ymd_opt(first.year(), first.month(), 1).expect("a day");
    // Four months of each of three tables: the log, the lines of runs, and model calls.
    assert_eq!(store.ensure_partitions(month, 3).await.expect("made"), 12);
    assert_eq!(store.ensure_partitions(month, 3).await.expect("there"), 0);
    store.record(&tape.records()[4..], &tape.rules).await.expect("recorded");
    let lines = store.history(tape.task.id, 0, 1000).await.expect("a history");
    let log: Vec<_> = lines.into_iter().map(|line| line.entry).collect();
    assert_eq!(log, tape.log());
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let others = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM entries_other");
    assert_eq!(others.fetch_one(&pool).await.expect("a count"), 0);
    let changed = sqlx::query("UPDATE entries SET reason = 'other'").execute(&pool).await;
    assert!(changed.is_err(), "the log is append-only");
}

#[tokio::test]
async fn lists_of_many_tasks_read_no_table_from_end_to_end() {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    let tape = Tape::new(1, careful()).until(State::Validated);
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    store.record(&tape.records(), &tape.rules).await.expect("recorded");
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    // One in fifty statements, fails often or is overdue; the rest has ended.
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
    // How often the table was read from end to end, and how often through an index.
    let scans = async || -> (i64, i64) {
        sqlx::query_as("SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'tasks'")
            .fetch_one(&pool)
            .await
            .expect("the counts")
    };
    store.close().await;
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.expect("flushed");
    let (read_before, found_before) = scans().await;
    let store = database.store().await.expect("a store");
    let late = tape.now + TimeDelta::days(9);
    for _ in 0..8 {
        assert_eq!(store.inbox(None, None, 20).await.expect("an inbox").tasks.len(), 20);
        store.over_timeout(late, None, 20).await.expect("a page");
        store.under_council(None, 20).await.expect("a page");
        store.failing_often(20).await.expect("a list");
        let states = vec![State::CtoIntervention];
        for filter in [
            Filter { project: Some(PROJECT), ..Filter::default() },
            Filter { project: Some(PROJECT), states, ..Filter::default() },
            Filter::default(),
        ] {
            store.tasks(&filter, None, 20).await.expect("a page");
        }
        store.waiting(None).await.expect("a count");
        store.task(tape.task.id).await.expect("a task");
    }
    // A connection that is closed hands in what it has counted, a little later. Each of the nine
    // lists has been asked for eight times.
    store.close().await;
    let read = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let (read, found) = scans().await;
            if found - found_before >= 72 || read > read_before {
                return read;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(read.await.expect("the counts are handed in"), read_before);
}

/// Passes everything on, and counts the statements.
async fn counting(server: &str) -> (String, Arc<AtomicU64>) {
    let statements = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (from, to) = (server.find('@').map_or(0, |at| at + 1), server.rfind('/').expect("a URL"));
    let behind = server[from..to].to_owned();
    let url = format!("{}{address}{}", &server[..from], &server[to..]);
    let count = statements.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&behind).await.expect("the server");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let count = count.clone();
            tokio::spawn(async move {
                // The first message has no type.
                let mut kind = None;
                loop {
                    let Ok(length) = from_client.read_u32().await else { return };
                    let mut body = vec![0; length as usize - 4];
                    from_client.read_exact(&mut body).await.expect("a message");
                    if let Some(kind) = kind {
                        to_server.write_u8(kind).await.expect("written");
                        // Execute and simple query. Beside them a pool makes sure that a connection
                        // still answers when it is given back, which nobody statements for.
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
async fn a_step_is_one_statement_and_so_one_round_trip() {
    let database = Database::fresh().await.expect("a database");
    let (url, statements) = counting(&database.url()).await;
    let store = Store::connect_with(&url, 1).await.expect("a store");
    register(&store).await;
    let tape = Tape::new(1, careful()).until(State::Validated);
    let records = tape.records();
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    // The first time the statement is prepared.
    store.record(&records[..1], &tape.rules).await.expect("recorded");
    let before = statements.load(Ordering::SeqCst);
    for record in &records[1..] {
        store.record(&[*record], &tape.rules).await.expect("recorded");
    }
    assert_eq!(statements.load(Ordering::SeqCst) - before, records.len() as u64 - 1);
}
