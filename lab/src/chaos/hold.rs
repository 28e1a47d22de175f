//! A hold in the database: a transaction of Tamma's waits in its middle until it is let go.
//!
//! A trigger on the tables looks whether the point is one of those that are held, and then waits for
//! a lock that a session of ours has. If PostgreSQL dies, the lock and the transaction die with it.

use std::collections::BTreeSet;

use anyhow::Result;
use tamma_testkit::postgres::{PostgresServer, PsqlSession};

/// The database that Tamma works on.
pub(crate) const DATABASE: &str = "tamma";

/// Tables that are written at a point: the name of the table and a state are the point's name.
const TRIGGERS: &str = "
CREATE TABLE chaos_holds (point text PRIMARY KEY);
CREATE FUNCTION chaos_hold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here text;
BEGIN
    IF tg_table_name = 'tasks' THEN
        here := 'tasks ' || new.state;
    ELSE
        SELECT 'answers ' || state INTO here FROM tasks WHERE id = new.task;
    END IF;
    IF EXISTS (SELECT FROM chaos_holds WHERE point = here) THEN
        PERFORM pg_advisory_xact_lock_shared(8622);
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER chaos_hold BEFORE INSERT OR UPDATE ON tasks
    FOR EACH ROW EXECUTE FUNCTION chaos_hold();
CREATE TRIGGER chaos_hold BEFORE INSERT ON answers
    FOR EACH ROW EXECUTE FUNCTION chaos_hold();";

/// Makes the triggers.
pub(crate) async fn prepare(server: &PostgresServer) -> Result<()> {
    server.query(DATABASE, TRIGGERS).await.map(drop)
}

/// A point that is held.
#[derive(Debug)]
pub(crate) struct Hold(PsqlSession);

impl Hold {
    /// Holds whoever comes to a point from now on.
    pub(crate) async fn at(server: &PostgresServer, point: &str) -> Result<Self> {
        let mut session = server.session(DATABASE)?;
        session.run("SELECT pg_advisory_lock(8622)").await?;
        session.run(&format!("INSERT INTO chaos_holds VALUES ('{point}')")).await?;
        Ok(Self(session))
    }

    /// Lets everybody pass. The session is gone if the server was killed meanwhile.
    pub(crate) async fn release(mut self, server: &PostgresServer) -> Result<()> {
        server.query(DATABASE, "DELETE FROM chaos_holds").await?;
        if self.0.run("SELECT pg_advisory_unlock(8622)").await.is_err() {
            drop(self.0);
        }
        Ok(())
    }
}

/// Takes back what a user's processes have begun and that is held, as if it had never arrived.
pub(crate) async fn take_back(server: &PostgresServer, user: &str) -> Result<()> {
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND wait_event = 'advisory' AND usename = '{user}'"
    );
    server.query(DATABASE, &end).await.map(drop)
}

/// The users of the database who wait at a point.
pub(crate) async fn held(server: &PostgresServer) -> Result<BTreeSet<String>> {
    let waiting = "SELECT DISTINCT usename FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'";
    let names = server.query(DATABASE, waiting).await?;
    Ok(names.lines().map(str::to_owned).collect())
}
