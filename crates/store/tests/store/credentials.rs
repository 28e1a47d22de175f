//! Tokens, sessions and logins: what counts, and until when.

use chrono::{DateTime, TimeDelta, Utc};
use tamma_core::access::{PersonRole, TokenLimit};
use tamma_core::actor::AuthMethod;
use tamma_core::ids::{Digest, Name};
use tamma_store::{
    Credential, EndedLogin, LoginCheck, NewAccessToken, NewLogin, NewSession, NewSignInFlow,
    SessionKind, SessionProof, Store,
};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::PROJECT;

const ISSUER: &str = "https://id.example";

fn name(text: &str) -> Name {
    text.parse().expect("name")
}

fn day(number: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(30_000 + number)
}

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    (database, store)
}

fn new_token(id: u128, person: &str, secret: &[u8]) -> NewAccessToken {
    NewAccessToken {
        id: Uuid::from_u128(id),
        person: name(person),
        label: "laptop".to_owned(),
        hash: Digest::of(secret),
        limit: None,
        expires_at: None,
        by: name(person),
    }
}

async fn log_in(store: &Store, id: u128, person: &str, groups: &[String]) -> Uuid {
    let login = Uuid::from_u128(id);
    let person = name(person);
    let new = NewLogin {
        ids: [login, Uuid::from_u128(id + 1), Uuid::from_u128(id + 2)],
        issuer: ISSUER,
        subject: person.as_str(),
        person: &person,
        groups,
        sid: Some("session"),
        tokens: "sealed",
        now: day(0),
    };
    store.add_login(&new).await.expect("added");
    login
}

#[tokio::test]
async fn tokens_of_open_logins_are_sealed_again_unless_a_check_was_faster() {
    let (_database, store) = fresh().await;
    let first = log_in(&store, 10, "Ada", &[]).await;
    let second = log_in(&store, 20, "Bob", &[]).await;
    let ended = log_in(&store, 30, "Cy", &[]).await;
    store.finish_login_check(ended, LoginCheck::Refused, day(1)).await.expect("ended");
    let others =
        async |after: Uuid| store.logins_sealed_otherwise("new.", after, 10).await.expect("read");
    let sealed = "sealed".to_owned();
    assert_eq!(others(Uuid::nil()).await, [(first, sealed.clone()), (second, sealed.clone())]);
    assert_eq!(others(first).await, [(second, sealed.clone())]);
    store.replace_login_tokens(first, "sealed", "new.1").await.expect("replaced");
    store.replace_login_tokens(second, "another", "new.2").await.expect("nothing replaced");
    assert_eq!(others(Uuid::nil()).await, [(second, sealed)]);
}

async fn open_cli(store: &Store, login: Uuid, person: &str, secret: &[u8]) {
    let person = name(person);
    let new = NewSession {
        hash: Digest::of(secret),
        person: &person,
        proof: SessionProof::Login(login),
        kind: SessionKind::Cli,
        client: Some("tamma"),
        until: day(30),
    };
    store.open_session(new).await.expect("opened");
}

async fn credential(store: &Store, secret: &[u8], at: DateTime<Utc>) -> Option<Credential> {
    store.credential(Digest::of(secret), at).await.expect("read")
}

#[tokio::test]
async fn a_token_counts_until_its_end_and_within_its_limit() {
    let (_database, store) = fresh().await;
    let limit = TokenLimit { role: PersonRole::Viewer, projects: Some([PROJECT].into()) };
    let mut new = new_token(1, "Ada", b"a");
    new.limit = Some(limit.clone());
    new.expires_at = Some(day(1));
    store.add_access_token(&new).await.expect("added");
    let found = credential(&store, b"a", day(0)).await.expect("valid");
    assert_eq!(
        (found.method, found.limit, found.last_used_at),
        (AuthMethod::OwnToken, Some(limit), None)
    );
    assert_eq!(credential(&store, b"a", day(1)).await, None, "it has expired");
    store.touch_credential(Digest::of(b"a"), day(0)).await.expect("recorded");
    let listed = store.access_tokens(Some(&name("ADA"))).await.expect("list");
    assert_eq!(listed[0].last_used_at, Some(day(0)));
    let id = Uuid::from_u128(1);
    let of_other = store.revoke_access_token(id, Some(&name("Bob")), &name("Bob")).await;
    assert_eq!(of_other.expect("nothing done"), None);
    let revoked = store.revoke_access_token(id, Some(&name("ada")), &name("Ada")).await;
    assert_eq!(revoked.expect("revoked"), Some(name("Ada")));
    assert_eq!(credential(&store, b"a", day(0)).await, None);
}

#[tokio::test]
async fn a_use_of_a_first_token_is_recorded_and_nothing_else_of_it_changes() {
    let (database, store) = fresh().await;
    let (ada, grace) = (name("Ada"), name("Grace"));
    store.add_person(Uuid::from_u128(9), &ada, Digest::of(b"first"), &grace).await.expect("added");
    store.touch_credential(Digest::of(b"first"), day(0)).await.expect("recorded");
    store.touch_credential(Digest::of(b"first"), day(1)).await.expect("recorded again");
    let found = credential(&store, b"first", day(1)).await.expect("valid");
    assert_eq!(found.last_used_at, Some(day(1)));
    assert_eq!(store.people().await.expect("list")[0].last_used_at, Some(day(1)));
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    for statement in [
        "UPDATE people SET hash = 'other', last_used_at = clock_timestamp()",
        "UPDATE people SET revoked_by = 'Mallory', last_used_at = clock_timestamp()",
    ] {
        let refused = sqlx::raw_sql(statement).execute(&pool).await;
        assert!(refused.is_err(), "{statement}");
    }
    assert!(store.revoke_person(&ada, &grace).await.expect("revoked"));
    let later = sqlx::raw_sql("UPDATE people SET last_used_at = clock_timestamp()");
    assert!(later.execute(&pool).await.is_err(), "it is revoked");
}

#[tokio::test]
async fn a_deactivated_account_has_no_credential_until_it_is_active_again() {
    let (_database, store) = fresh().await;
    store
        .add_person(Uuid::from_u128(9), &name("Ada"), Digest::of(b"first"), &name("Grace"))
        .await
        .expect("added");
    store.add_access_token(&new_token(1, "ada", b"second")).await.expect("added");
    let login = log_in(&store, 10, "ADA", &[]).await;
    open_cli(&store, login, "ADA", b"third").await;
    let all: [&[u8]; 3] = [b"first", b"second", b"third"];
    for secret in all {
        assert!(credential(&store, secret, day(0)).await.is_some());
    }
    let by = name("Grace");
    assert!(store.deactivate_account(Uuid::from_u128(20), &name("Ada"), &by).await.expect("done"));
    assert!(!store.deactivate_account(Uuid::from_u128(21), &name("ada"), &by).await.expect("done"));
    for secret in all {
        assert_eq!(credential(&store, secret, day(0)).await, None);
    }
    assert!(store.activate_account(&name("Ada")).await.expect("done"));
    assert!(credential(&store, b"first", day(0)).await.is_some());
    assert_eq!(credential(&store, b"third", day(0)).await, None, "sessions stay closed");
}

#[tokio::test]
async fn losing_the_last_group_ends_all_logins_and_tokens_of_a_person() {
    let (_database, store) = fresh().await;
    let groups = ["leads".to_owned()];
    let login = log_in(&store, 10, "Ada", &groups).await;
    let other = log_in(&store, 20, "Ada", &groups).await;
    open_cli(&store, login, "Ada", b"one").await;
    open_cli(&store, other, "Ada", b"two").await;
    store.add_access_token(&new_token(1, "Ada", b"own")).await.expect("added");
    let all: [&[u8]; 3] = [b"one", b"two", b"own"];
    assert!(store.claim_login_check(login, day(0), day(1)).await.expect("asked").is_some());
    let again = store.claim_login_check(login, day(0), day(1)).await.expect("asked");
    assert_eq!(again, None, "one server asks at a time");
    let fewer = ["staff".to_owned()];
    let still = LoginCheck::Admitted { groups: &fewer, tokens: "new" };
    store.finish_login_check(login, still, day(1)).await.expect("saved");
    let known = store.groups_of(&name("ada"), day(0)).await.expect("groups");
    assert_eq!(known, [(ISSUER.to_owned(), fewer.to_vec())]);
    let known = store.groups_of(&name("ada"), day(1)).await.expect("groups");
    assert_eq!(known, [(ISSUER.to_owned(), Vec::new())], "too old");
    for secret in all {
        assert!(credential(&store, secret, day(0)).await.is_some());
    }
    store.finish_login_check(login, LoginCheck::NotAdmitted, day(2)).await.expect("saved");
    assert!(store.has_lost_groups(&name("ADA")).await.expect("asked"));
    // A check that began earlier ends later, with the groups of then.
    store.finish_login_check(other, still, day(2)).await.expect("ignored");
    for secret in all {
        assert_eq!(credential(&store, secret, day(0)).await, None);
    }
    log_in(&store, 30, "Ada", &groups).await;
    assert!(credential(&store, b"own", day(0)).await.is_some(), "she is back");
    assert!(!store.has_lost_groups(&name("Ada")).await.expect("asked"));
}

#[tokio::test]
async fn a_name_belongs_to_the_first_who_signs_in_with_it() {
    let (_database, store) = fresh().await;
    log_in(&store, 10, "Ada", &[]).await;
    assert!(store.is_name_used(&name("ADA")).await.expect("asked"));
    let person = name("ada");
    let new = NewLogin {
        ids: [Uuid::from_u128(40), Uuid::from_u128(41), Uuid::from_u128(42)],
        issuer: "https://other.example",
        subject: "7",
        person: &person,
        groups: &[],
        sid: None,
        tokens: "sealed",
        now: day(0),
    };
    store.add_login(&new).await.expect_err("the name is taken");
    let ids = [Uuid::from_u128(43), Uuid::from_u128(44)];
    let subject = ("https://other.example", "7");
    store.link_identity(ids, subject, &name("Ada"), &name("Grace"), day(0)).await.expect("linked");
    store.add_login(&new).await.expect("an operator has linked it");
}

#[tokio::test]
async fn linking_a_subject_to_another_person_ends_its_logins() {
    let (_database, store) = fresh().await;
    let login = log_in(&store, 10, "Mallory", &[]).await;
    open_cli(&store, login, "Mallory", b"one").await;
    let link = async |id: u128, person: &str| {
        let ids = [Uuid::from_u128(id), Uuid::from_u128(id + 1)];
        let (person, by) = (name(person), name("Grace"));
        let linked = store.link_identity(ids, (ISSUER, "Mallory"), &person, &by, day(0));
        linked.await.expect("linked");
    };
    link(50, "mallory").await;
    assert!(credential(&store, b"one", day(0)).await.is_some(), "the same person");
    link(60, "Ada").await;
    assert_eq!(credential(&store, b"one", day(0)).await, None);
}

#[tokio::test]
async fn a_logout_ends_the_logins_of_its_session_or_person() {
    let (_database, store) = fresh().await;
    let login = log_in(&store, 10, "Ada", &[]).await;
    open_cli(&store, login, "Ada", b"one").await;
    let end = async |sid: Option<&str>, subject: Option<&str>| {
        store.end_logins(ISSUER, sid, subject).await.expect("ended")
    };
    assert_eq!(end(None, None).await, 0, "nobody is named");
    assert_eq!(end(Some("other"), None).await, 0);
    assert_eq!(end(Some("session"), Some("Bob")).await, 0);
    assert_eq!(store.end_logins("https://other", None, Some("Ada")).await.expect("ended"), 0);
    assert_eq!(end(Some("session"), Some("Ada")).await, 1);
    assert_eq!(credential(&store, b"one", day(0)).await, None);
}

#[tokio::test]
async fn a_sign_in_takes_the_place_of_the_oldest_if_there_are_too_many() {
    let (database, store) = fresh().await;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    sqlx::query(
        "INSERT INTO sign_in_flows (hash, issuer, browser, return_to, expires_at)
         SELECT number::text, 'x', 'y', '/',
             clock_timestamp() + interval '5 minutes' + number * interval '1 millisecond'
         FROM generate_series(1, 10050) AS number",
    )
    .execute(&pool)
    .await
    .expect("added");
    let (hash, browser) = (Digest::of(b"state"), Digest::of(b"cookie"));
    let flow = NewSignInFlow {
        hash,
        issuer: ISSUER,
        browser: Some((browser, "/projects")),
        device: None,
        client: None,
        until: day(0),
    };
    store.begin_sign_in(&flow).await.expect("begun");
    let rows = sqlx::query_as::<_, (i64, bool)>(
        "SELECT count(*), bool_or(hash = '51') FROM sign_in_flows",
    );
    assert_eq!(rows.fetch_one(&pool).await.expect("count"), (10_000, false));
    let path = store.take_browser_sign_in(hash, ISSUER, browser, day(-1)).await.expect("taken");
    assert_eq!(path.as_deref(), Some("/projects"));
}

#[tokio::test]
async fn tokens_of_the_provider_are_deleted_with_their_login() {
    let (_database, store) = fresh().await;
    let (first, second) =
        (log_in(&store, 10, "Ada", &[]).await, log_in(&store, 20, "Ada", &[]).await);
    assert!(store.take_ended_logins(9).await.expect("read").is_empty());
    let mut expected = EndedLogin {
        id: first,
        issuer: ISSUER.to_owned(),
        tokens: "sealed".to_owned(),
        is_shared: true,
    };
    // Both belong to one session at the provider.
    for login in [first, second] {
        store.finish_login_check(login, LoginCheck::Refused, day(1)).await.expect("ended");
        assert_eq!(store.take_ended_logins(9).await.expect("read"), [expected.clone()]);
        assert!(store.take_ended_logins(9).await.expect("read").is_empty());
        expected = EndedLogin { id: second, is_shared: false, ..expected };
    }
}
