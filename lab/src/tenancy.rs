//! Two organisations, and thousands of random requests of each for what belongs to the other, through
//! every interface; then the same by SQL, as the database role of the server's reads; then the workflows in
//! the Temporal namespaces of both.
//!
//! A request that nobody could answer shows nothing. So each kind of request must be answered if somebody
//! in the owning organisation sends it.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a session has an end")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;
use serde_json::{Value, json};
use strum::Display;
use tamma_core::ids::{Digest, TaskId};
use tamma_core::plan::FileAction;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_flow::{NAMESPACE, workflow_id};
use tamma_store::{NewSession, SessionKind, SessionProof};
use tamma_testkit::Cluster;
use tamma_testkit::agent::PLANNER;
use tamma_testkit::project::ScriptedProject;
use tamma_testkit::repository::Repository;
use tamma_testkit::tamma_process::TammaCli;
use tamma_testkit::temporal;
use temporalio_client::{WorkflowExecution, WorkflowListOptions};
use uuid::Uuid;

use crate::support::bench::meter;
use crate::support::programs;
use crate::support::scripts::{self, ScriptedCase, plan};
use crate::support::verdict::Verdict;

/// Token of the server, which nobody in an organisation has.
const TOKEN: &str = "token-of-the-server-itself";

/// Time limit of a task until its plan awaits approval.
const TASK_TIMEOUT: Duration = Duration::from_mins(3);

/// Time for the first events of a stream.
const STREAM_TIME: Duration = Duration::from_millis(300);

/// Number of requests at the same time.
const CONCURRENT: usize = 8;

/// Number of subqueries in one statement.
const SUBQUERIES: usize = 50;

/// Start of the random numbers.
const SEED: u64 = 0x7461_6d6d_6121;

/// Interface that takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "snake_case")]
enum Interface {
    Api,
    Action,
    Page,
    Stream,
    Mcp,
    Chat,
    Cli,
}

/// Requests for one thing. Words in braces stand for what belongs to an organisation.
const ITEMS: &[(Interface, &str)] = &[
    (Interface::Api, "/api/v1/tasks/{task}"),
    (Interface::Api, "/api/v1/tasks/{task}/plan"),
    (Interface::Api, "/api/v1/tasks/{task}/bundle"),
    (Interface::Api, "/api/v1/tasks/{task}/history"),
    (Interface::Api, "/api/v1/tasks/{task}/runs"),
    (Interface::Api, "/api/v1/tasks/{task}/lines"),
    (Interface::Api, "/api/v1/tasks/{task}/runs/{run}/transcript"),
    (Interface::Api, "/api/v1/knowledge/{entry}"),
    (Interface::Api, "/api/v1/tasks?project={project}"),
    (Interface::Api, "/api/v1/knowledge?project={project}"),
    (Interface::Api, "/api/v1/permissions?project={project}"),
    (Interface::Api, "/api/v1/export?task={task}"),
    (Interface::Action, r#"{"pause":{}}"#),
    (Interface::Action, r#"{"cancel":{"reason":"no"}}"#),
    (Interface::Page, "/tasks/{task}"),
    (Interface::Page, "/tasks/{task}/plan"),
    (Interface::Page, "/tasks/{task}/log"),
    (Interface::Page, "/runs/{task}-{run}"),
    (Interface::Page, "/knowledge/{entry}"),
    (Interface::Stream, "/api/v1/tasks/{task}/events"),
    (Interface::Stream, "/api/v1/tasks/{task}/lines/stream"),
    (Interface::Mcp, r#"show_task {"task":"{task}"}"#),
    (Interface::Mcp, r#"read_plan {"task":"{task}"}"#),
    (Interface::Mcp, r#"read_events {"task":"{task}"}"#),
    (Interface::Mcp, r#"show_permissions {"project":"{project}"}"#),
    (Interface::Chat, "what is its status?"),
    (Interface::Cli, "task show {task}"),
    (Interface::Cli, "task history {task}"),
];

/// Requests for everything. The answer has what belongs to the caller, and nothing else.
const LISTS: &[(Interface, &str)] = &[
    (Interface::Api, "/api/v1/tasks"),
    (Interface::Api, "/api/v1/inbox"),
    (Interface::Api, "/api/v1/knowledge"),
    (Interface::Api, "/api/v1/projects"),
    (Interface::Api, "/api/v1/tasks?text={marker}"),
    (Interface::Page, "/"),
    (Interface::Page, "/inbox"),
    (Interface::Page, "/knowledge"),
    (Interface::Page, "/projects"),
    (Interface::Mcp, "list_tasks {}"),
    (Interface::Mcp, r#"search_knowledge {"query":"names"}"#),
    (Interface::Chat, "show all tasks"),
    (Interface::Cli, "task list"),
];

/// Organisation with a person, and everything that others must not see.
struct Tenant {
    organisation: Uuid,
    /// Temporal namespace of its workflows.
    namespace: String,
    /// Word in everything that belongs to the organisation.
    marker: &'static str,
    token: String,
    /// Cookie of a browser of the same person.
    cookie: String,
    task: TaskId,
    run: String,
    entry: String,
    project: ScriptedProject,
}

impl Tenant {
    fn fill(&self, text: &str) -> String {
        let text = text.replace("{task}", &self.task.to_string()).replace("{run}", &self.run);
        let text = text.replace("{entry}", &self.entry).replace("{project}", &self.project.name);
        text.replace("{marker}", self.marker)
    }
}

/// Answer to a request.
struct Answer {
    is_granted: bool,
    text: String,
}

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let count: usize = if quick { 1_000 } else { 10_000 };
    let folder = programs::folder()?.join(format!("tenancy-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // The server reads the transcripts that the worker writes.
    let objects = folder.join("objects").display().to_string();
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server_with_token(TOKEN)
        .server_env("TAMMA_OBJECTS", objects.as_str())
        .worker_env("TAMMA_OBJECTS", objects)
        .workers(1)
        .start()
        .await?;
    let tenants = [
        prepare(&cluster, 1, "acme", "Zanzibar").await?,
        prepare(&cluster, 2, "globex", "Mauritius").await?,
    ];
    let http = reqwest::Client::builder().no_proxy();
    let http = http.redirect(reqwest::redirect::Policy::none()).build()?;
    let conversations = AtomicU64::new(0);
    let requests = Requests { cluster: &cluster, http, tenants: &tenants, conversations };

    let (answered, by_interface) = requests.send_random(count).await?;
    for (interface, sent) in &by_interface {
        println!("{interface}: {sent} requests");
    }
    let controls = requests.send_controls().await?;
    println!("{controls} kinds of requests answered to the owning organisation");

    let statements = count / SUBQUERIES;
    let (leaked, own) = query_as_role(&cluster, &tenants, statements).await?;
    let subqueries = statements * SUBQUERIES;
    println!("{subqueries} subqueries as tamma_tenant: {leaked} rows of others, {own} own rows");
    let (misplaced, placed) = list_workflows(&cluster, &tenants).await?;
    println!("{placed} workflows in the namespaces of their organisations, {misplaced} in others");
    cluster.stop().await?;
    let figures = format!(
        "{count} requests across organisations through {} interfaces: {answered} answered; \
         {subqueries} queries as the database role: {leaked} rows; {misplaced} workflows in the \
         namespace of another; {controls} of {} controls answered",
        by_interface.len(),
        ITEMS.len() + LISTS.len(),
    );
    let is_shown = controls == ITEMS.len() + LISTS.len() && own > 0 && placed == tenants.len();
    Ok(Verdict::new(answered == 0 && leaked == 0 && misplaced == 0 && is_shown, figures))
}

/// Creates an organisation with a project, a task whose plan awaits approval, a knowledge entry and a
/// person with a token and a browser.
async fn prepare(
    cluster: &Cluster,
    number: u32,
    name: &str,
    marker: &'static str,
) -> Result<Tenant> {
    let cli = &cluster.cli;
    let added = cli.run(&["organisation", "add", name, "--json"]).await?;
    let added: Value = serde_json::from_str(&added)?;
    let organisation = added["id"].as_str().context("no ID")?.parse()?;
    let namespace = added["namespace"].as_str().context("no namespace")?.to_owned();
    let repository = Repository::new()?;
    repository.write("greeting.txt", "Hello\n")?;
    let planned = vec![plan(marker, FileAction::Modify, &["greeting.txt"])];
    let script = scripts::agent_script(vec![ScriptedCase::new(PLANNER, planned)]);
    let rules = "scrum_master:\n  task_loop: { auto_approve_low_risk: false }\n";
    let project_name = format!("{}-app", marker.to_lowercase());
    let project = cluster
        .add_project(number, &project_name, repository, &script, |config| config.more(rules))
        .await?;
    project.repository.commit("a greeting")?;
    cli.run(&["organisation", "transfer", &project_name, name]).await?;
    let person = format!("{name}-lead");
    cli.run(&["organisation", "grant", name, &person, "--role", "approver"]).await?;
    let issued: Value =
        serde_json::from_str(&cli.run(&["person", "add", &person, "--json"]).await?)?;
    let token = issued["token"].as_str().context("no token")?.to_owned();

    let title = format!("Greet {marker}");
    let task = cluster.add_task(number, &title, &["--project", &project_name]).await?;
    cluster.wait_for_task(task, TASK_TIMEOUT, awaits_approval).await?;
    let runs = get_json(cluster, &token, &format!("/api/v1/tasks/{task}/runs")).await?;
    let run = runs["runs"][0]["run"].as_str().context("no run")?.to_owned();
    let entry = json!({
        "project": project_name, "kind": "convention", "globs": ["src/**"],
        "text": format!("{marker} names are short."),
    });
    let request = reqwest::Client::builder().no_proxy().build()?;
    let request = request.post(format!("{}/api/v1/knowledge", cluster.url())).bearer_auth(&token);
    let entry: Value = request.json(&entry).send().await?.error_for_status()?.json().await?;
    let entry = entry["id"].as_str().context("no ID")?.to_owned();

    // As long as the server makes them; it ignores others.
    let cookie = Digest::of(format!("session of {person}").as_bytes()).to_string();
    let new = NewSession {
        hash: Digest::of(cookie.as_bytes()),
        person: &person.parse()?,
        proof: SessionProof::Token(Digest::of(token.as_bytes())),
        kind: SessionKind::Web,
        client: None,
        until: chrono::Utc::now() + TimeDelta::days(1),
    };
    cluster.store.open_session(new).await?;
    Ok(Tenant { organisation, namespace, marker, token, cookie, task, run, entry, project })
}

fn awaits_approval(task_loop: &TaskLoop) -> Result<bool> {
    ensure!(!task_loop.state.is_terminal(), "the task is closed: {}", task_loop.state);
    Ok(task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some())
}

async fn get_json(cluster: &Cluster, token: &str, path: &str) -> Result<Value> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let request = http.get(format!("{}{path}", cluster.url())).bearer_auth(token);
    Ok(request.send().await?.error_for_status()?.json().await?)
}

/// Sender of requests.
struct Requests<'a> {
    cluster: &'a Cluster,
    http: reqwest::Client,
    tenants: &'a [Tenant; 2],
    /// Number of conversations so far.
    conversations: AtomicU64,
}

impl Requests<'_> {
    /// Sends random requests of each organisation for what belongs to the other. Returns how many were
    /// answered, and how many were sent through each interface.
    async fn send_random(&self, count: usize) -> Result<(usize, BTreeMap<Interface, usize>)> {
        let mut random = RandomNumbers(SEED);
        let kinds = ITEMS.len() + LISTS.len();
        let drawn: Vec<_> = (0..count).map(|_| (random.below(kinds), random.below(2))).collect();
        let mut by_interface = BTreeMap::new();
        for (kind, _) in &drawn {
            *by_interface.entry(request_kind(*kind).1).or_insert(0) += 1;
        }
        let sent = stream::iter(drawn).map(|(kind, from)| async move {
            let (is_list, interface, text) = request_kind(kind);
            let [one, other] = self.tenants;
            let (caller, owner) = if from == 0 { (one, other) } else { (other, one) };
            let answer = self.send(interface, text, caller, owner).await?;
            // A list is answered, without anything of the other organisation.
            let is_answered = !is_list && answer.is_granted;
            // The search for the word repeats it.
            let has_leaked = answer.text.contains(&format!("Greet {}", owner.marker))
                || (answer.text.contains(owner.marker) && !text.contains("{marker}"));
            if is_answered || has_leaked {
                println!("ANSWERED: {interface} {text}: {:.400}", answer.text);
            }
            Ok::<usize, anyhow::Error>(usize::from(is_answered || has_leaked))
        });
        let answered: Vec<usize> = sent.buffer_unordered(CONCURRENT).try_collect().await?;
        Ok((answered.into_iter().sum(), by_interface))
    }

    /// Sends each kind of request as somebody in the owning organisation, and returns how many were
    /// answered by both. The actions come last, because they change the tasks.
    async fn send_controls(&self) -> Result<usize> {
        let mut kinds: Vec<_> = (0..ITEMS.len() + LISTS.len()).map(request_kind).collect();
        kinds.sort_by_key(|(_, interface, _)| *interface == Interface::Action);
        let mut answered = 0;
        for (is_list, interface, text) in kinds {
            let mut is_answered = true;
            for own in self.tenants {
                let answer = self.send(interface, text, own, own).await?;
                let has_own = !is_list
                    || answer.text.contains(own.marker)
                    || answer.text.contains(&own.project.name);
                if !(answer.is_granted && has_own) {
                    println!("NOT ANSWERED: {interface} {text}: {:.400}", answer.text);
                    is_answered = false;
                }
            }
            answered += usize::from(is_answered);
        }
        Ok(answered)
    }

    async fn send(
        &self,
        interface: Interface,
        text: &str,
        caller: &Tenant,
        owner: &Tenant,
    ) -> Result<Answer> {
        let filled = owner.fill(text);
        match interface {
            Interface::Api => self.request(Method::GET, &filled, caller, None).await,
            Interface::Stream => self.stream(&filled, caller).await,
            Interface::Action => {
                let path = owner.fill("/api/v1/tasks/{task}/actions");
                self.request(Method::POST, &path, caller, Some(serde_json::from_str(&filled)?))
                    .await
            }
            Interface::Page => {
                let request = self.http.get(format!("{}{filled}", self.cluster.url()));
                let request = request.header("cookie", format!("tamma={}", caller.cookie));
                let response = request.send().await?;
                // Whoever has not signed in is redirected.
                let is_granted = response.status().is_success();
                Ok(Answer { is_granted, text: response.text().await? })
            }
            Interface::Mcp => {
                let (tool, arguments) = filled.split_once(' ').context("no arguments")?;
                let arguments: Value = serde_json::from_str(arguments)?;
                let call = json!({
                    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                    "params": { "name": tool, "arguments": arguments },
                });
                let answer = self.request(Method::POST, "/mcp", caller, Some(call)).await?;
                let is_error = answer.text.contains(r#""isError":true"#)
                    || answer.text.contains(r#""error":{"code""#);
                Ok(Answer { is_granted: answer.is_granted && !is_error, ..answer })
            }
            Interface::Chat => {
                let number = self.conversations.fetch_add(1, Ordering::Relaxed);
                let conversation = Uuid::from_u128((u128::from(SEED) << 64) | u128::from(number));
                let message = json!({
                    "conversation": conversation, "message": filled, "task": owner.task,
                });
                let path = "/api/v1/chat";
                let answer = self.request(Method::POST, path, caller, Some(message)).await?;
                let is_granted = answer.is_granted && answer.text.contains(owner.marker);
                Ok(Answer { is_granted, ..answer })
            }
            Interface::Cli => {
                let cli = TammaCli { token: caller.token.clone(), ..self.cluster.cli.clone() };
                let words: Vec<&str> = filled.split(' ').collect();
                let output = cli.command(&words).output().await?;
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text).into_owned();
                Ok(Answer { is_granted: output.status.success(), text })
            }
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        caller: &Tenant,
        body: Option<Value>,
    ) -> Result<Answer> {
        let request = self.http.request(method, format!("{}{path}", self.cluster.url()));
        let request = request.bearer_auth(&caller.token);
        let mut request = request.header("accept", "application/json, text/event-stream");
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let is_granted = response.status().is_success();
        Ok(Answer { is_granted, text: response.text().await? })
    }

    /// Reads the beginning of an event stream.
    async fn stream(&self, path: &str, caller: &Tenant) -> Result<Answer> {
        let request = self.http.get(format!("{}{path}", self.cluster.url()));
        let response = request.bearer_auth(&caller.token).send().await?;
        let is_granted = response.status().is_success();
        let (mut chunks, mut text) = (response.bytes_stream(), String::new());
        let reading = async {
            while let Some(Ok(chunk)) = chunks.next().await {
                text.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        // The stream of a task does not end.
        let _ = tokio::time::timeout(STREAM_TIME, reading).await;
        Ok(Answer { is_granted, text })
    }
}

/// Returns whether a kind of request is one for a list, its interface and its text.
fn request_kind(number: usize) -> (bool, Interface, &'static str) {
    let lists = LISTS.iter().map(|(interface, text)| (true, *interface, *text));
    let items = ITEMS.iter().map(|(interface, text)| (false, *interface, *text));
    items.chain(lists).nth(number).unwrap_or((true, Interface::Api, "/api/v1/tasks"))
}

/// Reads random tables as the role of the server's reads, for one organisation. Returns the number of
/// rows that mention the other organisation, and of those that mention its own.
async fn query_as_role(
    cluster: &Cluster,
    tenants: &[Tenant; 2],
    statements: usize,
) -> Result<(u64, u64)> {
    let url = cluster.database_url();
    let tables = "SELECT string_agg(DISTINCT polrelid::regclass::text, ',') FROM pg_policy";
    let tables = meter::sql(&url, tables).await?;
    let tables: Vec<&str> = tables.split(',').collect();
    ensure!(tables.len() > 30, "only {} tables have a policy", tables.len());
    let forbidden = meter::sql(&url, "SET ROLE tamma_tenant; SELECT count(*) FROM texts").await;
    ensure!(forbidden.is_err(), "the role reads tables without a policy");
    let mut random = RandomNumbers(SEED);
    let (mut leaked, mut own) = (0, 0);
    for _ in 0..statements {
        let [one, other] = tenants;
        let (reader, owner) = if random.below(2) == 0 { (one, other) } else { (other, one) };
        let mut picked = BTreeSet::new();
        let needles =
            |it: &Tenant| [it.marker.to_owned(), it.task.to_string(), it.project.id.to_string()];
        let (foreign, familiar) = (needles(owner), needles(reader));
        for _ in 0..SUBQUERIES {
            picked.insert((random.below(tables.len()), random.below(foreign.len())));
        }
        let sum = |needles: &[String; 3]| {
            let counts = picked.iter().filter_map(|(table, needle)| {
                let (table, needle) = (tables.get(*table)?, needles.get(*needle)?);
                let of = format!("FROM {table} AS r WHERE r::text LIKE '%{needle}%'");
                Some(format!("(SELECT count(*) {of})"))
            });
            counts.collect::<Vec<_>>().join(" + ")
        };
        let read = async |needles: &[String; 3]| -> Result<u64> {
            let organisation = reader.organisation;
            // Compiling fifty subqueries takes seconds.
            let sql = format!(
                "SET jit = off; SET ROLE tamma_tenant; SET tamma.organisations = '{organisation}'; \
                 SELECT {}",
                sum(needles)
            );
            Ok(meter::sql(&url, &sql).await?.parse()?)
        };
        leaked += read(&foreign).await?;
        own += read(&familiar).await?;
    }
    Ok((leaked, own))
}

/// Looks for the workflow of each organisation's task in every namespace. Returns how many are in another
/// than their own, and how many in their own.
async fn list_workflows(cluster: &Cluster, tenants: &[Tenant; 2]) -> Result<(usize, usize)> {
    let mut client = temporal::connect(&cluster.temporal_address()?).await?;
    let (mut misplaced, mut placed) = (0, 0);
    let namespaces = tenants.iter().map(|it| it.namespace.as_str());
    for namespace in namespaces.chain([NAMESPACE]) {
        namespace.clone_into(&mut client.options_mut().namespace);
        // All of them, not those that a query names.
        let listed = client.list_workflows("", WorkflowListOptions::default());
        let listed: Vec<WorkflowExecution> = listed.try_collect().await?;
        for tenant in tenants {
            let id = workflow_id(tenant.task);
            let found = usize::from(listed.iter().any(|workflow| workflow.id() == id));
            if tenant.namespace == namespace {
                placed += found;
            } else {
                misplaced += found;
            }
        }
    }
    Ok((misplaced, placed))
}

/// Random numbers that are the same in every run (xorshift).
struct RandomNumbers(u64);

impl RandomNumbers {
    /// Returns a number below a limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 1).unwrap_or_default() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_probed_for_things_and_lists() {
        let of = |all: &[(Interface, &str)]| all.iter().map(|(it, _)| *it).collect::<BTreeSet<_>>();
        assert_eq!(of(ITEMS).len(), 7);
        assert_eq!(of(LISTS).len(), 5);
        let mut random = RandomNumbers(SEED);
        let kinds = ITEMS.len() + LISTS.len();
        let drawn: BTreeSet<usize> = (0..1_000).map(|_| random.below(kinds)).collect();
        assert_eq!(drawn.len(), kinds, "1,000 requests have every kind");
    }
}
