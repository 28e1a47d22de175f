//! The agent's side of the protocol.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, ContentChunk, Cost, Diff, McpServer, PermissionOption,
    PermissionOptionKind, PromptRequest, PromptResponse, RequestPermissionOutcome,
    RequestPermissionRequest, SessionId, SessionNotification, SessionUpdate, StopReason, ToolCall,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, Usage,
    UsageUpdate,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, UntypedMessage};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use super::opening::{Again, Hello, Load, New, SetMode, SetModel, SetOption, hello, offers};
use super::{Resume, SCRIPT_FILE, Script, Step, tools};

/// The first and the longest pause between two looks whether a file is there. Many agents that wait
/// for long must not keep the machine busy.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

struct Session {
    folder: PathBuf,
    /// The servers of tools that it was given.
    servers: Vec<McpServer>,
    model: Option<String>,
    mode: Option<String>,
    /// What is left to do, once the first prompt has chosen it.
    steps: Option<std::vec::IntoIter<Step>>,
    deaf: bool,
}

struct Shared {
    script: Option<Script>,
    sessions: Mutex<BTreeMap<String, Session>>,
    cancelled: watch::Sender<u64>,
}

impl Shared {
    fn with<T>(
        &self,
        id: &SessionId,
        look: impl FnOnce(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        look(sessions.get_mut(&*id.0).ok_or_else(Error::invalid_params)?)
    }

    /// Begins a session, and answers with what it offers.
    fn begin(&self, id: Option<String>, new: New) -> Value {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let id = id.unwrap_or_else(|| format!("scripted-{}", sessions.len()));
        let first = |list: &[String]| list.first().cloned();
        let session = Session {
            folder: new.cwd,
            servers: new.mcp_servers,
            model: self.script.as_ref().and_then(|script| first(&script.models)),
            mode: self.script.as_ref().and_then(|script| first(&script.modes)),
            steps: None,
            deaf: false,
        };
        sessions.insert(id.clone(), session);
        offers(&id, self.script.as_ref())
    }

    /// Whether it can go on with a session in this way.
    fn resumes(&self, way: Resume) -> bool {
        self.script.as_ref().is_some_and(|script| script.resume == way)
    }
}

/// Plays the agent on a connection, until the other side closes it.
///
/// `script` is what the agent was started with; a prompt or its folder may have another.
pub async fn serve(
    script: Option<Script>,
    transport: impl ConnectTo<Agent> + 'static,
) -> Result<(), Error> {
    let mute = script.as_ref().is_some_and(|script| script.mute);
    let shared =
        Arc::new(Shared { script, sessions: Mutex::default(), cancelled: watch::channel(0).0 });
    let [greets, news, resumes, loads] = [(); 4].map(|()| shared.clone());
    let [options, modes, models] = [(); 3].map(|()| shared.clone());
    let (cancels, prompts) = (shared.clone(), shared);
    Agent
        .v1()
        .name("scripted-agent")
        .on_receive_request(
            async move |request: Hello, responder, _cx| {
                if mute {
                    std::future::pending::<()>().await;
                }
                responder.respond(hello(&request, greets.script.as_ref()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: New, responder, _cx| responder.respond(news.begin(None, request)),
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: Again, responder, _cx| {
                if !resumes.resumes(Resume::Resume) {
                    return responder.respond_with_error(Error::method_not_found());
                }
                responder.respond(resumes.begin(Some(request.session_id), request.new))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |Load { again }: Load, responder, cx: ConnectionTo<Client>| {
                if !loads.resumes(Resume::Load) {
                    return responder.respond_with_error(Error::method_not_found());
                }
                replay(&cx, &again.session_id)?;
                responder.respond(loads.begin(Some(again.session_id), again.new))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetOption, responder, _cx| {
                options.with(&SessionId::new(request.session_id), |session| {
                    session.model = Some(request.value);
                    Ok(())
                })?;
                responder.respond(json!({ "configOptions": [] }))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetMode, responder, _cx| {
                modes.with(&SessionId::new(request.session_id), |session| {
                    session.mode = Some(request.mode_id);
                    Ok(())
                })?;
                responder.respond(json!({}))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetModel, responder, _cx| {
                models.with(&SessionId::new(request.session_id), |session| {
                    session.model = Some(request.model_id);
                    Ok(())
                })?;
                responder.respond(json!({}))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _cx| {
                if !cancels.with(&notification.session_id, |session| Ok(session.deaf))? {
                    cancels.cancelled.send_modify(|count| *count += 1);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let (shared, client) = (prompts.clone(), cx.clone());
                // A turn waits for the client's answers, which come in through this very loop.
                cx.spawn(async move {
                    let mut cancelled = shared.cancelled.subscribe();
                    cancelled.mark_unchanged();
                    let result = tokio::select! {
                        result = turn(&shared, &client, request) => result,
                        _ = cancelled.changed() => Ok(PromptResponse::new(StopReason::Cancelled)),
                    };
                    responder.respond_with_result(result)
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(transport)
        .await
}

/// Tells an earlier conversation again.
fn replay(client: &ConnectionTo<Client>, session: &str) -> Result<(), Error> {
    let content = json!({ "type": "text", "text": "what was said before" });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    let params = json!({ "sessionId": session, "update": update });
    client.send_notification(UntypedMessage::new("session/update", params)?)
}

async fn turn(
    shared: &Shared,
    client: &ConnectionTo<Client>,
    request: PromptRequest,
) -> Result<PromptResponse, Error> {
    let id = request.session_id;
    let prompt: String = request
        .prompt
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    let folder = shared.with(&id, |session| {
        if session.steps.is_none() {
            let script = choose(shared.script.as_ref(), &prompt, &session.folder)?;
            session.deaf = script.deaf;
            session.steps = Some(script.steps(&prompt, &session.folder).into_iter());
        }
        Ok(session.folder.clone())
    })?;
    let (servers, now) = shared.with(&id, |session| {
        Ok((session.servers.clone(), (session.model.clone(), session.mode.clone())))
    })?;
    let mut turn = Turn { client, id, folder, servers, now, calls: 0 };
    loop {
        let next =
            shared.with(&turn.id, |session| Ok(session.steps.as_mut().and_then(Iterator::next)))?;
        if let Some(response) = turn.play(next.unwrap_or(Step::End { tokens: None })).await? {
            return Ok(response);
        }
    }
}

/// The script for a session: that of the prompt, of the environment, of the folder.
fn choose(given: Option<&Script>, prompt: &str, folder: &Path) -> Result<Script, Error> {
    let in_prompt = prompt
        .split_once("```script\n")
        .and_then(|(_, rest)| rest.split_once("\n```"))
        .map(|(script, _)| script.as_bytes().to_vec());
    match (in_prompt, given, std::fs::read(folder.join(SCRIPT_FILE))) {
        (Some(bytes), _, _) => serde_json::from_slice(&bytes).map_err(Error::into_internal_error),
        (None, Some(script), _) => Ok(script.clone()),
        (None, None, Ok(bytes)) => {
            serde_json::from_slice(&bytes).map_err(Error::into_internal_error)
        }
        (None, None, Err(_)) => Err(Error::internal_error().data("the agent has no script")),
    }
}

struct Turn<'a> {
    client: &'a ConnectionTo<Client>,
    id: SessionId,
    folder: PathBuf,
    servers: Vec<McpServer>,
    /// The model and the mode.
    now: (Option<String>, Option<String>),
    calls: u32,
}

/// Waits until a file is there.
async fn await_file(path: &Path) {
    let mut pause = LOOK.0;
    while !path.exists() {
        tokio::time::sleep(pause).await;
        pause = (pause * 11 / 10).min(LOOK.1);
    }
}

impl Turn<'_> {
    /// Does one thing. A response ends the turn.
    async fn play(&mut self, step: Step) -> Result<Option<PromptResponse>, Error> {
        match step {
            Step::Say(text) => self.say(text)?,
            Step::Think(text) => {
                self.update(SessionUpdate::AgentThoughtChunk(ContentChunk::new(text.into())))?;
            }
            Step::Write { path, content } => {
                let path = self.folder.join(path);
                let call = self
                    .call(format!("Write {}", path.display()), ToolKind::Edit)
                    .content(vec![Diff::new(path.clone(), content.clone()).into()])
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.may(call).await? {
                    write(&path, &content)?;
                    self.done()?;
                }
            }
            Step::WriteUnasked { path, content } => write(&self.folder.join(path), &content)?,
            Step::Append { path, line } => append(&self.folder.join(path), &line)?,
            Step::Journal { path, lines, pause, found } => {
                let (path, found) = (self.folder.join(path), self.folder.join(found));
                journal(&path, lines, Duration::from_millis(pause.into()), &found).await?;
            }
            Step::Delete { path } => {
                let path = self.folder.join(path);
                let call = self
                    .call(format!("Delete {}", path.display()), ToolKind::Delete)
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.may(call).await? {
                    std::fs::remove_file(&path).map_err(Error::into_internal_error)?;
                    self.done()?;
                }
            }
            Step::Run(command) => {
                let call = self
                    .call(command.clone(), ToolKind::Execute)
                    .raw_input(json!({ "command": command }));
                if self.may(call).await? {
                    let mut shell = shell(&command, &self.folder);
                    shell
                        .stdout(Stdio::null())
                        .status()
                        .await
                        .map_err(Error::into_internal_error)?;
                    self.done()?;
                }
            }
            Step::Ask { title } => {
                let call = self.call(title, ToolKind::Other);
                self.may(call).await?;
            }
            Step::Tool { name, args } => self.tool(name, &args).await?,
            Step::Model => {
                let status = tools::model().await;
                self.say(status.map_or_else(|error| format!("{error:#}"), |s| s.to_string()))?;
            }
            Step::Tell { env, files } => self.tell(&env, &files)?,
            Step::Usage { cost } => {
                let amount: f64 = cost.parse().map_err(Error::into_internal_error)?;
                let used = UsageUpdate::new(1_000, 200_000).cost(Cost::new(amount, "USD"));
                self.update(SessionUpdate::UsageUpdate(used))?;
            }
            Step::Plan(plan) => {
                let plan = serde_json::to_value(plan).map_err(Error::into_internal_error)?;
                self.hand_in(&plan)?;
            }
            Step::HandIn(value) => self.hand_in(&value)?,
            Step::Update(update) => {
                let params = json!({ "sessionId": self.id, "update": update });
                self.client.send_notification(UntypedMessage::new("session/update", params)?)?;
            }
            #[expect(clippy::print_stderr, reason = "it is what the step is for")]
            Step::Complain(text) => eprintln!("{text}"),
            Step::AwaitFile(path) => await_file(&self.folder.join(path)).await,
            Step::Spawn { command, leave, pid_file } => {
                self.spawn(&command, leave, &self.folder.join(pid_file))?;
            }
            Step::Hang => std::future::pending().await,
            Step::Exit(code) => std::process::exit(code),
            Step::Die => {
                let kill = format!("kill -KILL {}", std::process::id());
                shell(&kill, &self.folder).status().await.map_err(Error::into_internal_error)?;
            }
            Step::Fail { code, message, data } => {
                return Err(Error::new(code, message).data(data.unwrap_or_default()));
            }
            Step::End { tokens } => {
                let usage = tokens.map(|tokens| {
                    Usage::new(tokens.total(), tokens.input, tokens.output)
                        .cached_read_tokens(tokens.cached)
                });
                return Ok(Some(PromptResponse::new(StopReason::EndTurn).usage(usage)));
            }
        }
        Ok(None)
    }

    /// Says what it has and what it was given.
    fn tell(&self, env: &[String], files: &[PathBuf]) -> Result<(), Error> {
        let value = |name: &String| std::env::var(name).ok();
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let text = |path: &PathBuf| std::fs::read_to_string(home.join(path)).ok();
        let told = json!({
            "model": self.now.0,
            "mode": self.now.1,
            "session": self.id,
            "env": env.iter().map(value).collect::<Vec<_>>(),
            "files": files.iter().map(text).collect::<Vec<_>>(),
        });
        self.say(told.to_string())
    }

    /// Calls a tool of a server in the session.
    async fn tool(&mut self, name: String, args: &Value) -> Result<(), Error> {
        let call = self.call(format!("{name} (tamma MCP Server)"), ToolKind::Other);
        if !self.may(call).await? {
            return Ok(());
        }
        match tools::call(&self.servers, &name, args).await {
            Ok(text) => {
                self.say(text)?;
                self.done()
            }
            Err(error) => {
                self.say(format!("{error:#}"))?;
                self.ended(ToolCallStatus::Failed)
            }
        }
    }

    fn update(&self, update: SessionUpdate) -> Result<(), Error> {
        self.client.send_notification(SessionNotification::new(self.id.clone(), update))
    }

    fn say(&self, text: String) -> Result<(), Error> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into())))
    }

    fn hand_in(&self, value: &serde_json::Value) -> Result<(), Error> {
        self.say(format!("\n```json\n{value:#}\n```\n"))
    }

    fn call(&mut self, title: String, kind: ToolKind) -> ToolCall {
        self.calls += 1;
        ToolCall::new(self.call_id(), title).kind(kind)
    }

    fn call_id(&self) -> String {
        format!("call-{}", self.calls)
    }

    /// Announces a tool call and asks whether it may go on.
    async fn may(&self, call: ToolCall) -> Result<bool, Error> {
        self.update(SessionUpdate::ToolCall(call.clone()))?;
        let options = vec![
            PermissionOption::new("always", "Always", PermissionOptionKind::AllowAlways),
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new(self.id.clone(), call.into(), options);
        let answer = self.client.send_request(request).block_task().await?;
        let allowed = matches!(
            answer.outcome,
            RequestPermissionOutcome::Selected(option) if &*option.option_id.0 != "reject"
        );
        if !allowed {
            self.ended(ToolCallStatus::Failed)?;
        }
        Ok(allowed)
    }

    fn done(&self) -> Result<(), Error> {
        self.ended(ToolCallStatus::Completed)
    }

    fn ended(&self, status: ToolCallStatus) -> Result<(), Error> {
        let fields = ToolCallUpdateFields::new().status(status);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(self.call_id(), fields)))
    }

    fn spawn(&self, command: &str, leave: bool, pid_file: &Path) -> Result<(), Error> {
        // The number is written by the child itself, after it has left, under its final name at once.
        let script =
            format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}' && {command}", pid_file.display());
        let mut child = if leave {
            let mut child = Command::new("setsid");
            child.args(["sh", "-c", &script]);
            child
        } else {
            shell(&script, &self.folder)
        };
        child
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(false)
            .spawn()
            .map_err(Error::into_internal_error)?;
        Ok(())
    }
}

fn shell(command: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).stdin(Stdio::null());
    shell
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::into_internal_error)?;
    }
    std::fs::write(path, content).map_err(Error::into_internal_error)
}

fn append(path: &Path, line: &str) -> Result<(), Error> {
    let file = std::fs::File::options().create(true).append(true).open(path);
    // In one call, so that two who write at once do not mix.
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(Error::into_internal_error)
}

/// Adds lines to a file until it has so many.
async fn journal(path: &Path, lines: u32, pause: Duration, found: &Path) -> Result<(), Error> {
    let before = std::fs::read_to_string(path).unwrap_or_default().lines().count();
    append(found, &before.to_string())?;
    let mut pace = tokio::time::interval(pause);
    for number in before + 1..=lines as usize {
        pace.tick().await;
        append(path, &format!("{number} {}", milliseconds()))?;
    }
    Ok(())
}

/// The time it is, in milliseconds.
#[expect(clippy::disallowed_methods, reason = "this agent tells the time")]
fn milliseconds() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_in_the_prompt_else_in_the_environment_else_in_the_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let script = |text: &str| Script::of([Step::Say(text.to_owned())]);
        let chosen = |given: Option<&Script>, prompt: &str| choose(given, prompt, folder.path());
        assert!(chosen(None, "Do it.").is_err());
        script("folder").write(&folder.path().join(SCRIPT_FILE)).expect("written");
        assert_eq!(chosen(None, "Do it.").expect("a script"), script("folder"));
        let given = script("environment");
        assert_eq!(chosen(Some(&given), "Do it.").expect("a script"), given);
        let prompt = "Do it.\n```script\n{\"steps\": [{\"say\": \"prompt\"}]}\n```\n";
        assert_eq!(chosen(Some(&given), prompt).expect("a script"), script("prompt"));
    }
}
