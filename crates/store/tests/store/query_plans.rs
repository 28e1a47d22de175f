//! Query plans of the lists with 10,000 tasks in the database.
//!
//! The queries come from the `.sqlx` folder, so they are the ones that Tamma sends. Each is
//! prepared and explained with the settings of the pool for lists.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use tamma_core::task_loop::State;
use tamma_store::{LineFilter, LineKind, LinePosition, RunNumber, Store};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, careful, register};

/// Inserts 10,000 tasks in twenty projects and all states; one in a hundred asks a question.
const MANY: &str = "
    CREATE TEMP TABLE copies AS SELECT * FROM tasks;
    ALTER TABLE copies DROP COLUMN words;
    INSERT INTO projects (id, name, repository)
        SELECT gen_random_uuid(), 'p' || n, 'p' FROM generate_series(1, 20) n;
    DO $$
    DECLARE names text := (
        SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
        WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND NOT attisdropped
            AND attname NOT IN ('words', 'id'));
    BEGIN
        EXECUTE format('INSERT INTO tasks (id, %1$s)
            SELECT gen_random_uuid(), %1$s FROM copies, generate_series(1, 10000)', names);
    END $$;
    UPDATE tasks SET
        title = 'Round totals, part ' || abs(hashtext(id::text)) % 5000,
        project = (SELECT id FROM projects WHERE name = 'p' || (1 + abs(hashtext(tasks.id::text)) % 20)),
        state = (ARRAY['pending', 'in_progress', 'awaiting_approval', 'completed', 'completed',
            'completed', 'cancelled'])[1 + abs(hashtext(id::text)) % 7],
        live = abs(hashtext(id::text)) % 7 < 3,
        asked_at = CASE WHEN abs(hashtext(id::text)) % 100 = 0 THEN asked_at END,
        updated_at = updated_at - make_interval(secs => abs(hashtext(id::text)) % 100000);
    INSERT INTO deliveries (id, alert, reminder, receiver, digest, due_at, ended_at, outcome)
        SELECT gen_random_uuid(), alerts.id, n, 'a', false, now(), now(), 'delivered'
        FROM alerts, generate_series(1, 10000) n;
    INSERT INTO deliveries (id, alert, reminder, receiver, digest, due_at)
        SELECT gen_random_uuid(), alerts.id, n, 'b', false, now() FROM alerts, generate_series(1, 20) n;
";

/// Returns the only query that contains all `parts`.
fn query(parts: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let mut matches = Vec::new();
    for file in std::fs::read_dir(folder).expect("queries") {
        let text = std::fs::read_to_string(file.expect("file").path()).expect("query");
        let query: Value = serde_json::from_str(&text).expect("JSON");
        let query = query["query"].as_str().expect("SQL").to_owned();
        if parts.iter().all(|part| query.contains(part)) {
            matches.push(query);
        }
    }
    assert_eq!(matches.len(), 1, "expected one query with {parts:?}: {matches:#?}");
    matches.remove(0)
}

/// Returns the query plan of a query with some arguments.
async fn query_plan(pool: &PgPool, query: &str, arguments: &str) -> String {
    let mut one = pool.begin().await.expect("transaction");
    let prepare =
        format!("SET LOCAL plan_cache_mode = force_custom_plan; PREPARE wanted AS {query}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *one).await.expect("prepared");
    let explain = format!("EXPLAIN EXECUTE wanted ({arguments})");
    let lines =
        sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *one).await.expect("query plan");
    sqlx::raw_sql("DEALLOCATE wanted").execute(&mut *one).await.expect("deleted");
    lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

async fn database_with_a_task() -> (TestDatabase, RecordedTask) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, careful()).until(State::Completed);
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    (database, recorded)
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of queries with their indexes")]
async fn board_and_related_queries_use_their_indexes() {
    let (database, recorded) = database_with_a_task().await;
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    sqlx::raw_sql(MANY).execute(&pool).await.expect("many");
    for table in ["tasks", "deliveries", "alerts"] {
        let tidy = format!("VACUUM ANALYZE {table}");
        sqlx::raw_sql(AssertSqlSafe(tidy)).execute(&pool).await.expect("tidied");
    }
    let id = sqlx::query_scalar::<_, String>("SELECT id::text FROM projects WHERE name = 'p7'");
    let project = format!("'{}'", id.fetch_one(&pool).await.expect("project"));
    // Operators read all projects, other people some of them.
    let (all, some) = ("true, '{}'", format!("false, ARRAY[{project}]::uuid[]"));
    let nothing = format!("{}, {all}", ["NULL"; 9].join(", "));
    let with_words = format!("{}, 'part:* & 4711:*', {all}", ["NULL"; 8].join(", "));
    let with_start = format!("{}, 'part:* & 471:*', {all}", ["NULL"; 8].join(", "));
    // Open or closed tasks with one filter, by the number of its parameter. No task matches.
    let filtered = |live: bool, parameter: usize, value: &str| {
        let mut arguments = ["NULL"; 9].map(str::to_owned);
        (arguments[1], arguments[parameter - 1]) = (live.to_string(), format!("'{value}'"));
        format!("{}, {all}", arguments.join(", "))
    };
    let oldest = sqlx::query_scalar::<_, String>(
        "SELECT id::text FROM tasks WHERE NOT live ORDER BY id DESC OFFSET 50 LIMIT 1",
    );
    let oldest = oldest.fetch_one(&pool).await.expect("a closed task");
    let nil = "00000000-0000-0000-0000-000000000000";
    let open = "ARRAY['pending', 'in_progress', 'awaiting_approval']";
    let scope = format!(
        "ARRAY['pending', 'in_progress', 'awaiting_approval', 'completed', 'cancelled'],
         ARRAY['{nil}', '{nil}', '{nil}', '{oldest}', '{oldest}']::uuid[]"
    );
    let closed = "ARRAY['completed', 'cancelled']";
    let open = format!("{open}, '{nil}'");
    let newest = query(&["wanted_state", "AS newest"]);
    let capped = query(&["wanted_state", "AS matching"]);
    let counts = query(&["GROUP BY state", "@@ to_tsquery"]);
    let ranked = query(&["ranked.place <= $13"]);
    let oldest = query(&["NOT live AND", "OFFSET $4"]);
    let suffix = query(&["FROM tasks", "right(id::text, 8)"]);
    let list = query(&["SELECT id FROM tasks WHERE", "@@ to_tsquery", "LIMIT $14"]);
    let inbox = query(&["asked_at IS NOT NULL", "ORDER BY asked_at, id LIMIT"]);
    let waiting = query(&["count(*)", "asked_at IS NOT NULL AND"]);
    let changed = query(&["FROM tasks WHERE updated_at >= $1"]);
    let cards = query(&["FROM tasks WHERE id = ANY($1) ORDER BY id DESC"]);
    let history = query(&["FROM entries WHERE task = $1 AND sequence > $2"]);
    let claim = query(&["FOR UPDATE SKIP LOCKED", "claimed_until = now()"]);
    let next = query(&["min(greatest(due_at"]);
    let sent = query(&["ORDER BY deliveries.created_at DESC"]);
    let task = recorded.task.id.0;
    let mut failures = Vec::new();
    // Counts for metrics and for the API read the whole table, so they are not listed; `just lab
    // bench-store` measures them.
    for (name, query, arguments, index) in [
        ("board", &newest, format!("NULL, {all}, {scope}, 40"), "tasks_by_state"),
        (
            "board of a project",
            &newest,
            format!("{project}, {all}, {scope}, 40"),
            "tasks_by_project",
        ),
        ("board of a member", &newest, format!("NULL, {some}, {scope}, 40"), "tasks_by_"),
        (
            "board with words",
            &ranked,
            format!("{with_words}, 'newest', 40, {open}"),
            "tasks_by_word",
        ),
        ("counts", &capped, format!("NULL, {all}, {scope}, 10000"), "tasks_by_state"),
        (
            "counts of a project",
            &capped,
            format!("{project}, {all}, {scope}, 10000"),
            "tasks_by_project",
        ),
        ("counts with words", &counts, format!("{with_words}, {open}"), "tasks_by_word"),
        (
            "counts with a type",
            &counts,
            format!("{}, {open}", filtered(true, 4, "bugfix")),
            "Index Only Scan using tasks_open",
        ),
        (
            "board with a priority",
            &ranked,
            format!("{}, 'newest', 40, {open}", filtered(true, 5, "critical")),
            "Index Only Scan using tasks_open",
        ),
        (
            "board with a label",
            &ranked,
            format!("{}, 'newest', 40, {open}", filtered(true, 8, "money")),
            "tasks_by_label",
        ),
        (
            "older tasks with words",
            &list,
            format!("{}, {closed}, NULL, 40", filtered(false, 9, "part:* & 4711:*")),
            "tasks_by_word",
        ),
        (
            "closed tasks with a type",
            &list,
            format!("{}, {closed}, NULL, 50", filtered(false, 4, "bugfix")),
            "tasks_closed_by_type",
        ),
        (
            "closed tasks with a priority",
            &list,
            format!("{}, {closed}, NULL, 50", filtered(false, 5, "critical")),
            "tasks_closed_by_priority",
        ),
        (
            "closed tasks with a risk",
            &list,
            format!("{}, {closed}, NULL, 50", filtered(false, 6, "critical")),
            "tasks_closed_by_risk",
        ),
        (
            "closed tasks with a label",
            &list,
            format!("{}, {closed}, NULL, 50", filtered(false, 8, "money")),
            "tasks_by_label",
        ),
        ("oldest task on the board", &oldest, format!("NULL, {all}, 9"), "tasks_closed"),
        ("digits of an ID", &suffix, format!("'00004711', {all}"), "tasks_by_suffix"),
        ("list", &list, format!("{nothing}, '{{}}', NULL, 50"), "tasks_pkey"),
        ("list with words", &list, format!("{with_words}, '{{}}', NULL, 50"), "tasks_by_word"),
        (
            "list with the start of a word",
            &list,
            format!("{with_start}, '{{}}', NULL, 50"),
            "tasks_by_word",
        ),
        ("inbox", &inbox, format!("NULL, NULL, NULL, 50, {all}"), "tasks_asking"),
        ("waiting count", &waiting, format!("NULL, {all}"), "tasks_asking"),
        ("changed tasks", &changed, "now() - interval '10 s'".to_owned(), "tasks_by_change"),
        ("cards", &cards, format!("ARRAY['{task}'::uuid]"), "tasks_pkey"),
        ("history of a task", &history, format!("'{task}', 0, 50, {all}"), "task"),
        ("due deliveries", &claim, "60, 100, true".to_owned(), "deliveries_open"),
        ("next delivery", &next, "true".to_owned(), "deliveries_"),
        ("messages", &sent, format!("NULL, 50, {all}"), "deliveries_by_time"),
    ] {
        let plan = query_plan(&pool, query, &arguments).await;
        let scans = ["tasks", "deliveries", "entries"].map(|table| format!("Seq Scan on {table}"));
        if scans.iter().any(|scan| plan.contains(scan)) || !plan.contains(index) {
            failures.push(format!("{name} does not use {index}:\n{plan}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Inserts 100,000 log lines of a task; one in ten is a tool call that failed. There are no statistics
/// of them, as on the first day of a month.
const MANY_LINES: &str = "
    INSERT INTO run_lines (task, ticket, attempt, sequence, project, at, kind, text, data)
        SELECT tasks.id, 4, 2, n, tasks.project, now(),
            CASE WHEN n % 10 = 0 THEN 'tool' ELSE 'said' END, 'line ' || n,
            CASE WHEN n % 10 = 0 THEN '{\"status\": \"failed\"}'::jsonb END
        FROM tasks, generate_series(1, 100000) n;
";

/// Returns the number of log lines that PostgreSQL has read for connections that are closed.
async fn read_lines(pool: &PgPool) -> i64 {
    let read = sqlx::query_scalar(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
         FROM pg_stat_user_tables WHERE relname LIKE 'run\\_lines%'",
    );
    read.fetch_one(pool).await.expect("statistics")
}

#[tokio::test]
async fn a_page_of_a_long_log_reads_only_its_lines() {
    let (database, recorded) = database_with_a_task().await;
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    sqlx::raw_sql(MANY_LINES).execute(&pool).await.expect("many lines");
    let task = recorded.task.id;
    let run = RunNumber { job_number: 4, attempt: 2 };
    let all = LineFilter::default();
    let of_run = LineFilter { job_number: Some(4), attempt: Some(2), ..LineFilter::default() };
    let failed = LineFilter { kinds: vec![LineKind::Tool], failed: true, ..LineFilter::default() };
    let middle = LinePosition { run, sequence: 50_000 };
    // The filter for failed calls finds one line in ten.
    for (name, filter, before, most) in [
        ("log", &all, LinePosition::END, 200),
        ("run", &of_run, LinePosition::END, 200),
        ("earlier lines", &all, middle, 200),
        ("failed calls", &failed, LinePosition::END, 2_000),
    ] {
        let (lines, read) = count_read_lines(&database, &pool, async |store| {
            store.lines_before(task, filter, before, 200).await
        })
        .await;
        assert_eq!(lines.len(), 200, "{name}");
        assert!(read <= most, "{name}, backwards: {read} lines");

        let after = if before == middle { middle } else { LinePosition::START };
        let (lines, read) = count_read_lines(&database, &pool, async |store| {
            store.lines(task, filter, after, 200).await
        })
        .await;
        assert_eq!(lines.len(), 200, "{name}");
        assert!(read <= most, "{name}, forwards: {read} lines");
    }
    let (last, read) = count_read_lines(&database, &pool, async |store| {
        store.last_line(task, run, &[LineKind::Said]).await
    })
    .await;
    assert_eq!(last.expect("last").text, "line 99999");
    assert!(read <= 2, "last line: {read} lines");
}

/// Runs a query on new connections, and returns its result and the number of log lines that PostgreSQL
/// has read. It counts them when the connections have ended.
async fn count_read_lines<T>(
    database: &TestDatabase,
    pool: &PgPool,
    query: impl AsyncFn(&Store) -> tamma_store::Result<T>,
) -> (T, i64) {
    let store = database.store().await.expect("connection");
    let earlier = read_lines(pool).await;
    let result = query(&store).await.expect("lines");
    store.close().await;
    for _ in 0..1_000 {
        let read = read_lines(pool).await - earlier;
        if read > 0 {
            return (result, read);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("PostgreSQL has not counted any line");
}
