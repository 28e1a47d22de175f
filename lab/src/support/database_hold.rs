//! Database holds: block a transaction of Tamma halfway until it is released.
//!
//! A trigger waits for an advisory lock of this process if its point is held. If PostgreSQL dies, the
//! lock and the transaction die with it.
//!
//! | point | transaction |
//! |---|---|
//! | `tasks <state>` | moves a task to the state |
//! | `answers <state>` | saves the result of a task's job in that state |
//! | `pipelines <state> <phase>` | moves a story to the state, at the phase if it has one |
//! | `answers phase <phase>` | saves the result of a story's phase |

use std::collections::BTreeSet;

use anyhow::Result;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::postgres::{PostgresServer, PsqlSession};

/// Triggers.
const TRIGGERS: &str = "
CREATE TABLE lab_holds (point text PRIMARY KEY);
-- State of a pipeline's run, with its phase if it has one: `complete`, `running 2`.
CREATE FUNCTION lab_state(run jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', name, coalesce(data ->> 'phase', data #>> '{}'))
    FROM (SELECT run -> 'state' AS state) AS current, jsonb_each(
        CASE jsonb_typeof(state)
            WHEN 'string' THEN jsonb_build_object(state #>> '{}', NULL)
            ELSE state
        END
    ) AS entry (name, data)
$$;
CREATE FUNCTION lab_hold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here text;
    run jsonb;
BEGIN
    IF tg_table_name = 'tasks' THEN
        here := 'tasks ' || new.state;
    ELSIF tg_table_name = 'pipelines' THEN
        here := 'pipelines ' || lab_state(new.run);
    ELSE
        SELECT 'answers ' || state INTO here FROM tasks WHERE id = new.task;
        IF NOT found THEN
            SELECT pipelines.run INTO run FROM pipelines WHERE id = new.task;
            here := 'answers phase ' || split_part(lab_state(run), ' ', 2);
        END IF;
    END IF;
    IF EXISTS (SELECT FROM lab_holds WHERE point = here) THEN
        PERFORM pg_advisory_xact_lock_shared(8622);
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER lab_hold BEFORE INSERT OR UPDATE ON tasks
    FOR EACH ROW EXECUTE FUNCTION lab_hold();
CREATE TRIGGER lab_hold BEFORE INSERT OR UPDATE ON pipelines
    FOR EACH ROW EXECUTE FUNCTION lab_hold();
CREATE TRIGGER lab_hold BEFORE INSERT ON answers
    FOR EACH ROW EXECUTE FUNCTION lab_hold();";

/// Creates the triggers.
pub(crate) async fn prepare(server: &PostgresServer) -> Result<()> {
    server.query(DATABASE, TRIGGERS).await.map(drop)
}

/// Held point.
#[derive(Debug)]
pub(crate) struct DatabaseHold(PsqlSession);

impl DatabaseHold {
    /// Blocks every transaction that reaches a point from now on.
    pub(crate) async fn at(server: &PostgresServer, point: &str) -> Result<Self> {
        let mut session = server.session(DATABASE)?;
        session.run("SELECT pg_advisory_lock(8622)").await?;
        session.run(&format!("INSERT INTO lab_holds VALUES ('{point}')")).await?;
        Ok(Self(session))
    }

    /// Releases all transactions. The session is gone if PostgreSQL was killed meanwhile.
    pub(crate) async fn release(mut self, server: &PostgresServer) -> Result<()> {
        server.query(DATABASE, "DELETE FROM lab_holds").await?;
        if self.0.run("SELECT pg_advisory_unlock(8622)").await.is_err() {
            drop(self.0);
        }
        Ok(())
    }
}

/// Rolls back the held transactions of a database user.
pub(crate) async fn cancel_waiting(server: &PostgresServer, user: &str) -> Result<()> {
    let terminate = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND wait_event = 'advisory' AND usename = '{user}'"
    );
    server.query(DATABASE, &terminate).await.map(drop)
}

/// Returns the database users whose transactions are held.
pub(crate) async fn held(server: &PostgresServer) -> Result<BTreeSet<String>> {
    let waiting = "SELECT DISTINCT usename FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'";
    let names = server.query(DATABASE, waiting).await?;
    Ok(names.lines().map(str::to_owned).collect())
}
