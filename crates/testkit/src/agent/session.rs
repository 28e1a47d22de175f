//! Agent side of the protocol.

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

use super::session_setup::{
    InitializeRequest, LoadSession, NewSession, ResumeSession, SetMode, SetModel, SetOption,
    initialize_response, session_response,
};
use super::submission::{approving_verdict, plan_submission};
use super::{AgentStep, ResumeSupport, SCRIPT_FILE, Script, tools};

/// First and longest pause between two checks for a file. Many waiting agents must not keep the
/// machine busy.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

struct ScriptedSession {
    folder: PathBuf,
    /// MCP servers of the session.
    servers: Vec<McpServer>,
    model: Option<String>,
    mode: Option<String>,
    /// Remaining steps, selected by the first prompt.
    steps: Option<std::vec::IntoIter<AgentStep>>,
    /// First prompt of the session.
    prompt: String,
    ignores_cancel: bool,
}

struct AgentState {
    script: Option<Script>,
    sessions: Mutex<BTreeMap<String, ScriptedSession>>,
    cancelled: watch::Sender<u64>,
}

impl AgentState {
    fn with_session<T>(
        &self,
        id: &SessionId,
        update: impl FnOnce(&mut ScriptedSession) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        update(sessions.get_mut(&*id.0).ok_or_else(Error::invalid_params)?)
    }

    /// Starts a session and returns its options.
    fn begin_session(&self, id: Option<String>, new: NewSession) -> Value {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let id = id.unwrap_or_else(|| format!("scripted-{}", sessions.len()));
        let first = |list: &[String]| list.first().cloned();
        let session = ScriptedSession {
            folder: new.cwd,
            servers: new.mcp_servers,
            model: self.script.as_ref().and_then(|script| first(&script.models)),
            mode: self.script.as_ref().and_then(|script| first(&script.modes)),
            steps: None,
            prompt: String::new(),
            ignores_cancel: false,
        };
        sessions.insert(id.clone(), session);
        session_response(&id, self.script.as_ref())
    }

    /// Returns `true` if it supports this way of continuing a session.
    fn supports(&self, support: ResumeSupport) -> bool {
        self.script.as_ref().is_some_and(|script| script.resume == support)
    }
}

/// Serves the agent on a connection until the client closes it.
///
/// `script` is the script it was started with; a prompt or the folder can provide another.
#[expect(clippy::too_many_lines, reason = "one handler per request of the protocol")]
pub async fn serve(
    script: Option<Script>,
    transport: impl ConnectTo<Agent> + 'static,
) -> Result<(), Error> {
    let is_silent = script.as_ref().is_some_and(|script| script.ignores_initialize);
    let shared =
        Arc::new(AgentState { script, sessions: Mutex::default(), cancelled: watch::channel(0).0 });
    let [initializes, creates, resumes, loads] = [(); 4].map(|()| shared.clone());
    let [options, modes, models] = [(); 3].map(|()| shared.clone());
    let (cancels, prompts) = (shared.clone(), shared);
    Agent
        .v1()
        .name("scripted-agent")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _cx| {
                if is_silent {
                    std::future::pending::<()>().await;
                }
                responder.respond(initialize_response(&request, initializes.script.as_ref()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSession, responder, _cx| {
                responder.respond(creates.begin_session(None, request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSession, responder, _cx| {
                if !resumes.supports(ResumeSupport::Resume) {
                    return responder.respond_with_error(Error::method_not_found());
                }
                responder.respond(resumes.begin_session(Some(request.session_id), request.new))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |LoadSession { resume }: LoadSession,
                        responder,
                        cx: ConnectionTo<Client>| {
                if !loads.supports(ResumeSupport::Load) {
                    return responder.respond_with_error(Error::method_not_found());
                }
                replay(&cx, &resume.session_id)?;
                responder.respond(loads.begin_session(Some(resume.session_id), resume.new))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetOption, responder, _cx| {
                options.with_session(&SessionId::new(request.session_id), |session| {
                    session.model = Some(request.value);
                    Ok(())
                })?;
                responder.respond(json!({ "configOptions": [] }))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetMode, responder, _cx| {
                modes.with_session(&SessionId::new(request.session_id), |session| {
                    session.mode = Some(request.mode_id);
                    Ok(())
                })?;
                responder.respond(json!({}))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetModel, responder, _cx| {
                models.with_session(&SessionId::new(request.session_id), |session| {
                    session.model = Some(request.model_id);
                    Ok(())
                })?;
                responder.respond(json!({}))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _cx| {
                if !cancels
                    .with_session(&notification.session_id, |session| Ok(session.ignores_cancel))?
                {
                    cancels.cancelled.send_modify(|count| *count += 1);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let (shared, client) = (prompts.clone(), cx.clone());
                // A turn waits for responses of the client, which arrive through this loop.
                cx.spawn(async move {
                    let mut cancelled = shared.cancelled.subscribe();
                    cancelled.mark_unchanged();
                    let result = tokio::select! {
                        result = run_turn(&shared, &client, request) => result,
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

/// Replays an earlier conversation.
fn replay(client: &ConnectionTo<Client>, session: &str) -> Result<(), Error> {
    let content = json!({ "type": "text", "text": "what was said before" });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    let params = json!({ "sessionId": session, "update": update });
    client.send_notification(UntypedMessage::new("session/update", params)?)
}

async fn run_turn(
    shared: &AgentState,
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
    let folder = shared.with_session(&id, |session| {
        if session.steps.is_none() {
            let script = load_script(shared.script.as_ref(), &prompt, &session.folder)?;
            session.ignores_cancel = script.ignores_cancel;
            session.steps = Some(script.steps_for(&prompt, &session.folder).into_iter());
            session.prompt = prompt;
        }
        Ok(session.folder.clone())
    })?;
    let (servers, current, prompt) = shared.with_session(&id, |session| {
        let current = (session.model.clone(), session.mode.clone());
        Ok((session.servers.clone(), current, session.prompt.clone()))
    })?;
    let mut turn = AgentTurn { client, id, folder, servers, current, prompt, calls: 0 };
    loop {
        let next = shared.with_session(&turn.id, |session| {
            Ok(session.steps.as_mut().and_then(Iterator::next))
        })?;
        if let Some(response) =
            turn.run_step(next.unwrap_or(AgentStep::End { tokens: None })).await?
        {
            return Ok(response);
        }
    }
}

/// Returns the script of the prompt, the environment or the folder, in this order.
fn load_script(default: Option<&Script>, prompt: &str, folder: &Path) -> Result<Script, Error> {
    let in_prompt = prompt
        .split_once("```script\n")
        .and_then(|(_, rest)| rest.split_once("\n```"))
        .map(|(script, _)| script.as_bytes().to_vec());
    match (in_prompt, default, std::fs::read(folder.join(SCRIPT_FILE))) {
        (Some(bytes), _, _) => serde_json::from_slice(&bytes).map_err(Error::into_internal_error),
        (None, Some(script), _) => Ok(script.clone()),
        (None, None, Ok(bytes)) => {
            serde_json::from_slice(&bytes).map_err(Error::into_internal_error)
        }
        (None, None, Err(_)) => Err(Error::internal_error().data("the agent has no script")),
    }
}

struct AgentTurn<'a> {
    client: &'a ConnectionTo<Client>,
    id: SessionId,
    folder: PathBuf,
    servers: Vec<McpServer>,
    /// Current model and mode.
    current: (Option<String>, Option<String>),
    /// First prompt of the session.
    prompt: String,
    calls: u32,
}

/// Waits until a file exists.
async fn await_file(path: &Path) {
    let mut pause = POLL_INTERVAL.0;
    while !path.exists() {
        tokio::time::sleep(pause).await;
        pause = (pause * 11 / 10).min(POLL_INTERVAL.1);
    }
}

impl AgentTurn<'_> {
    /// Runs one step. A response ends the turn.
    async fn run_step(&mut self, step: AgentStep) -> Result<Option<PromptResponse>, Error> {
        match step {
            AgentStep::Say(text) => self.say(text)?,
            AgentStep::Think(text) => {
                self.update(SessionUpdate::AgentThoughtChunk(ContentChunk::new(text.into())))?;
            }
            AgentStep::Write { path, content } => {
                let path = self.folder.join(path);
                let call = self
                    .new_call(format!("Write {}", path.display()), ToolKind::Edit)
                    .content(vec![Diff::new(path.clone(), content.clone()).into()])
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.request_permission(call).await? {
                    write(&path, &content)?;
                    self.complete_call()?;
                }
            }
            AgentStep::WriteUnasked { path, content } => write(&self.folder.join(path), &content)?,
            AgentStep::Append { path, line } => append(&self.folder.join(path), &line)?,
            AgentStep::Journal { path, lines, pause, found: count_file } => {
                let (path, count_file) = (self.folder.join(path), self.folder.join(count_file));
                journal(&path, lines, Duration::from_millis(pause.into()), &count_file).await?;
            }
            AgentStep::Delete { path } => {
                let path = self.folder.join(path);
                let call = self
                    .new_call(format!("Delete {}", path.display()), ToolKind::Delete)
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.request_permission(call).await? {
                    std::fs::remove_file(&path).map_err(Error::into_internal_error)?;
                    self.complete_call()?;
                }
            }
            AgentStep::Run(command) => {
                let call = self
                    .new_call(command.clone(), ToolKind::Execute)
                    .raw_input(json!({ "command": command }));
                if self.request_permission(call).await? {
                    let mut shell = shell(&command, &self.folder);
                    let ended = shell.stdout(Stdio::null()).status().await;
                    self.complete_command(ended.map_err(Error::into_internal_error)?.code())?;
                }
            }
            AgentStep::Ask { title } => {
                let call = self.new_call(title, ToolKind::Other);
                self.request_permission(call).await?;
            }
            AgentStep::Tool { name, args } => self.call_tool(name, &args).await?,
            AgentStep::ToolsTogether { name, calls } => {
                self.call_tools_together(&name, &calls).await?;
            }
            AgentStep::Model => {
                let status = tools::call_model().await;
                self.say(status.map_or_else(|error| format!("{error:#}"), |s| s.to_string()))?;
            }
            AgentStep::Describe { env, files } => self.describe(&env, &files)?,
            AgentStep::Usage { cost } => {
                let amount: f64 = cost.parse().map_err(Error::into_internal_error)?;
                let used = UsageUpdate::new(1_000, 200_000).cost(Cost::new(amount, "USD"));
                self.update(SessionUpdate::UsageUpdate(used))?;
            }
            AgentStep::Plan(plan) => self.submit(&plan_submission(&plan, &self.prompt))?,
            AgentStep::Approve => self.submit(&approving_verdict(&self.prompt, &self.folder))?,
            AgentStep::Submit(value) => self.submit(&value)?,
            AgentStep::Update(update) => {
                let params = json!({ "sessionId": self.id, "update": update });
                self.client.send_notification(UntypedMessage::new("session/update", params)?)?;
            }
            #[expect(clippy::print_stderr, reason = "the step needs it")]
            AgentStep::WriteStderr(text) => eprintln!("{text}"),
            AgentStep::AwaitFile(path) => await_file(&self.folder.join(path)).await,
            AgentStep::Spawn { command, new_session, pid_file } => {
                self.spawn(&command, new_session, &self.folder.join(pid_file))?;
            }
            AgentStep::Hang => std::future::pending().await,
            AgentStep::Exit(code) => std::process::exit(code),
            AgentStep::Die => {
                let kill = format!("kill -KILL {}", std::process::id());
                shell(&kill, &self.folder).status().await.map_err(Error::into_internal_error)?;
            }
            AgentStep::Fail { code, message, data } => {
                return Err(Error::new(code, message).data(data.unwrap_or_default()));
            }
            AgentStep::Stop(reason) => {
                let reason: StopReason = serde_json::from_value(Value::String(reason))
                    .map_err(Error::into_internal_error)?;
                return Ok(Some(PromptResponse::new(reason)));
            }
            AgentStep::End { tokens } => {
                let usage = tokens.map(|tokens| {
                    Usage::new(tokens.total(), tokens.input, tokens.output)
                        .cached_read_tokens(tokens.cached)
                });
                return Ok(Some(PromptResponse::new(StopReason::EndTurn).usage(usage)));
            }
        }
        Ok(None)
    }

    /// Reports its session, environment and files.
    fn describe(&self, env: &[String], files: &[PathBuf]) -> Result<(), Error> {
        let value = |name: &String| std::env::var(name).ok();
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let text = |path: &PathBuf| std::fs::read_to_string(home.join(path)).ok();
        let description = json!({
            "model": self.current.0,
            "mode": self.current.1,
            "session": self.id,
            "env": env.iter().map(value).collect::<Vec<_>>(),
            "files": files.iter().map(text).collect::<Vec<_>>(),
        });
        self.say(description.to_string())
    }

    /// Calls a tool several times at once.
    async fn call_tools_together(&self, name: &str, calls: &[Value]) -> Result<(), Error> {
        let calls = calls.iter().map(|args| tools::call_tool(&self.servers, name, args));
        for result in futures_util::future::join_all(calls).await {
            self.say(result.unwrap_or_else(|error| format!("{error:#}")))?;
        }
        Ok(())
    }

    /// Calls a tool of the session's MCP server.
    async fn call_tool(&mut self, name: String, args: &Value) -> Result<(), Error> {
        let call = self.new_call(format!("{name} (tamma MCP Server)"), ToolKind::Other);
        if !self.request_permission(call).await? {
            return Ok(());
        }
        match tools::call_tool(&self.servers, &name, args).await {
            Ok(text) => {
                self.say(text)?;
                self.complete_call()
            }
            Err(error) => {
                self.say(format!("{error:#}"))?;
                self.update_status(ToolCallStatus::Failed)
            }
        }
    }

    fn update(&self, update: SessionUpdate) -> Result<(), Error> {
        self.client.send_notification(SessionNotification::new(self.id.clone(), update))
    }

    fn say(&self, text: String) -> Result<(), Error> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into())))
    }

    fn submit(&self, value: &serde_json::Value) -> Result<(), Error> {
        self.say(format!("\n```json\n{value:#}\n```\n"))
    }

    fn new_call(&mut self, title: String, kind: ToolKind) -> ToolCall {
        self.calls += 1;
        ToolCall::new(self.call_id(), title).kind(kind)
    }

    fn call_id(&self) -> String {
        format!("call-{}", self.calls)
    }

    /// Announces a tool call and requests permission for it.
    async fn request_permission(&self, call: ToolCall) -> Result<bool, Error> {
        self.update(SessionUpdate::ToolCall(call.clone()))?;
        let options = vec![
            PermissionOption::new("always", "Always", PermissionOptionKind::AllowAlways),
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new(self.id.clone(), call.into(), options);
        let response = self.client.send_request(request).block_task().await?;
        let allowed = matches!(
            response.outcome,
            RequestPermissionOutcome::Selected(option) if &*option.option_id.0 != "reject"
        );
        if !allowed {
            self.update_status(ToolCallStatus::Failed)?;
        }
        Ok(allowed)
    }

    fn complete_call(&self) -> Result<(), Error> {
        self.update_status(ToolCallStatus::Completed)
    }

    /// Reports a command as completed whatever its exit code, as Codex does.
    fn complete_command(&self, exit_code: Option<i32>) -> Result<(), Error> {
        let fields = ToolCallUpdateFields::new()
            .status(ToolCallStatus::Completed)
            .raw_output(json!({ "exit_code": exit_code }));
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(self.call_id(), fields)))
    }

    fn update_status(&self, status: ToolCallStatus) -> Result<(), Error> {
        let fields = ToolCallUpdateFields::new().status(status);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(self.call_id(), fields)))
    }

    fn spawn(&self, command: &str, new_session: bool, pid_file: &Path) -> Result<(), Error> {
        // The child writes its own ID after leaving the group, and renames the file so that it
        // appears complete.
        let script =
            format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}' && {command}", pid_file.display());
        let mut child = if new_session {
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
    // A single write, so that concurrent writers do not mix.
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(Error::into_internal_error)
}

/// Appends lines to a file up to a total.
async fn journal(path: &Path, lines: u32, pause: Duration, count_file: &Path) -> Result<(), Error> {
    let before = std::fs::read_to_string(path).unwrap_or_default().lines().count();
    append(count_file, &before.to_string())?;
    let mut interval = tokio::time::interval(pause);
    for number in before + 1..=lines as usize {
        interval.tick().await;
        append(path, &format!("{number} {}", milliseconds()))?;
    }
    Ok(())
}

/// Returns the current time in milliseconds.
#[expect(clippy::disallowed_methods, reason = "the journal contains timestamps")]
fn milliseconds() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_comes_from_prompt_then_environment_then_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let script = |text: &str| Script::new([AgentStep::Say(text.to_owned())]);
        let load =
            |default: Option<&Script>, prompt: &str| load_script(default, prompt, folder.path());
        assert!(load(None, "Do it.").is_err());
        script("folder").write(&folder.path().join(SCRIPT_FILE)).expect("written");
        assert_eq!(load(None, "Do it.").expect("script"), script("folder"));
        let default = script("environment");
        assert_eq!(load(Some(&default), "Do it.").expect("script"), default);
        let prompt = "Do it.\n```script\n{\"steps\": [{\"say\": \"prompt\"}]}\n```\n";
        assert_eq!(load(Some(&default), prompt).expect("script"), script("prompt"));
    }
}
