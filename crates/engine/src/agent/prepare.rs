//! Preparation of a run: renders arguments, environment and home files from the agent's templates.
//!
//! Unknown template variables are an error, found before anything starts. The home may be left over
//! from an earlier run, and its agent may have planted links, so files are never written through
//! links.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

use super::{CodingAgent, RunRequest};
use crate::agent_tools::HOOK_PATH;
use crate::files::remove_any;
use crate::gateway::RunEndpoint;
use crate::permission::{self, PermissionEffect, PermissionKind, PermissionRequest};
use crate::sandbox::SandboxKind;

/// Error from preparing a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Template could not be rendered.
    #[error("cannot render {what} of the agent: {source}")]
    Template { what: String, source: minijinja::Error },
    /// Path of a file leaves the home.
    #[error("cannot write the agent's file `{0}`: its path is outside the agent's home")]
    Outside(String),
    /// File could not be written.
    #[error("cannot write the agent's file `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Rendered arguments and environment of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreparedLaunch {
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

/// Variables available to templates.
#[derive(Serialize)]
struct TemplateVars<'a> {
    /// The first three exist only in runs through the gateway. A signed-in agent uses the worker's
    /// home, whose files must not be redirected.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    home: Option<&'a Path>,
    worktree: &'a Path,
    model: Option<&'a str>,
    effort: Option<&'a str>,
    context: u32,
    #[serde(rename = "look")]
    read_only: bool,
    #[serde(rename = "caged")]
    sandboxed: bool,
    shell_seconds: u64,
    protected: &'a [String],
    forbidden: &'a [String],
    #[serde(rename = "asked")]
    ask_commands: &'a [String],
    /// Texts of denials: of each command in `forbidden`, of changed files, and of plan modes.
    denials: &'a DenialTexts,
    /// URL of the permission hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook_url: Option<&'a str>,
}

/// Texts that tell a model why a call is denied, and what to do instead.
#[derive(Debug, Default, Serialize)]
struct DenialTexts {
    /// Texts of the commands in `forbidden`.
    commands: BTreeMap<String, String>,
    /// Change of a protected file.
    protected: String,
    /// Change of any file in a read-only run.
    write: String,
    /// Command in a read-only run.
    command: String,
}

impl DenialTexts {
    /// Writes the texts of a run. The reason of each command is the one that the policy gives.
    fn new(request: &RunRequest, forbidden: &[String]) -> Self {
        let call = |kind, command: Option<&str>| PermissionRequest {
            kind,
            title: String::new(),
            paths: Vec::new(),
            command: command.map(str::to_owned),
        };
        let text = |call: &PermissionRequest, reason: &str| {
            permission::denial_text(request.mode, call, reason)
        };
        let forbidden = forbidden.iter().map(|command| {
            let call = call(PermissionKind::Command, Some(command));
            let decision = (request.policy)(&call);
            let reason = match decision.effect {
                PermissionEffect::Deny => decision.reason,
                PermissionEffect::Allow | PermissionEffect::Ask => {
                    "the rules of this project forbid it".to_owned()
                }
            };
            (command.clone(), text(&call, &reason))
        });
        let write = call(PermissionKind::Write, None);
        Self {
            commands: forbidden.collect(),
            protected: text(&write, "the rules of this project protect this file"),
            write: text(&write, "this run is read-only"),
            command: text(&call(PermissionKind::Command, Some("")), "this run is read-only"),
        }
    }
}

/// Renders the agent's templates and writes its files.
pub(super) async fn prepare(
    agent: &CodingAgent,
    request: &RunRequest,
    endpoint: Option<&RunEndpoint>,
) -> Result<PreparedLaunch, Error> {
    let keyed = request.access.as_ref().is_some_and(|access| access.upstream.is_some());
    let endpoint = endpoint.filter(|_| keyed);
    // Agents match commands by prefix, so trailing stars are removed.
    let prefix = |command: &String| command.trim_end_matches([' ', '*']).to_owned();
    let forbidden: Vec<_> = request.denied_commands.iter().map(prefix).collect();
    let ask_commands: Vec<_> = request.ask_commands.iter().map(prefix).collect();
    // The policy decides each command for its text, so only for agents whose templates have them.
    let mut templates = agent.args.iter().chain(agent.env.values()).chain(agent.files.values());
    let denials = if templates.any(|text| text.contains("denials")) {
        DenialTexts::new(request, &forbidden)
    } else {
        DenialTexts::default()
    };
    let hook_url = endpoint.map(|endpoint| format!("{}/mcp{HOOK_PATH}", endpoint.url()));
    let variables = TemplateVars {
        url: endpoint.map(RunEndpoint::url),
        token: endpoint.map(|endpoint| endpoint.token().expose()),
        home: endpoint.map(|_| request.home.as_path()),
        worktree: &request.worktree,
        model: request.model.as_deref().filter(|model| *model != super::acp::DEFAULT_MODEL),
        effort: request.effort.as_deref(),
        context: agent.context_tokens,
        read_only: request.mode.is_read_only(),
        sandboxed: request.sandbox.as_ref().is_some_and(|sandbox| sandbox.kind != SandboxKind::Off),
        shell_seconds: request.shell_limit.as_secs(),
        protected: &request.protected_paths,
        forbidden: &forbidden,
        ask_commands: &ask_commands,
        denials: &denials,
        hook_url: hook_url.as_deref(),
    };
    let (launch, files) = render(agent, &variables)?;
    if endpoint.is_none() {
        return Ok(launch);
    }
    let home = request.home.clone();
    let write = move || {
        create_private_dir(&home).map_err(|source| Error::Write { path: home.clone(), source })?;
        files.iter().try_for_each(|(path, text)| write_file(&home, path, text))
    };
    // Fails only while the runtime shuts down, and then nothing runs.
    tokio::task::spawn_blocking(write).await.unwrap_or(Ok(()))?;
    Ok(launch)
}

fn render(
    agent: &CodingAgent,
    variables: &TemplateVars<'_>,
) -> Result<(PreparedLaunch, BTreeMap<String, String>), Error> {
    let templates = template_environment();
    let values = Value::from(Serde(variables));
    let fill = |name: &str, text: &str| {
        templates
            .render_str(text, values.clone())
            .map_err(|source| Error::Template { what: name.to_owned(), source })
    };
    let args = agent
        .args
        .iter()
        .map(|argument| fill("an argument", argument))
        .collect::<Result<_, _>>()?;
    let mut env = agent.inherited.clone();
    for (name, text) in &agent.env {
        match fill(&format!("the variable `{name}`"), text) {
            Ok(value) => drop(env.insert(name.clone(), value)),
            // Variable is only meant for runs through the gateway.
            Err(Error::Template { source, .. })
                if variables.url.is_none()
                    && source.kind() == ErrorKind::UndefinedError
                    && needs_gateway(&templates, text, variables) => {}
            Err(error) => return Err(error),
        }
    }
    let mut files = BTreeMap::new();
    if let Some(home) = variables.home {
        env.insert("HOME".to_owned(), home.display().to_string());
        for (path, text) in &agent.files {
            files.insert(path.clone(), fill(&format!("the file `{path}`"), text)?);
        }
    }
    Ok((PreparedLaunch { args, env }, files))
}

/// Returns `true` if a template only lacks the variables of runs through the gateway.
fn needs_gateway(templates: &Environment<'_>, text: &str, variables: &TemplateVars<'_>) -> bool {
    let (url, token, home, hook_url) = (Some(""), Some(""), Some(Path::new("")), Some(""));
    let variables = Value::from(Serde(TemplateVars { url, token, home, hook_url, ..*variables }));
    templates.render_str(text, variables).is_ok()
}

fn template_environment() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_auto_escape_callback(|_| AutoEscape::None);
    // Quotes a value for JSON and TOML.
    templates.add_filter("json", |value: Value| {
        serde_json::to_string(&value)
            .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))
    });
    // Quotes a text for a regular expression.
    templates.add_filter("regex", |text: String| {
        let quote = |letter: char| {
            let special = r"\.+*?()|[]{}^$/".contains(letter);
            special.then_some('\\').into_iter().chain([letter])
        };
        text.chars().flat_map(quote).collect::<String>()
    });
    templates
}

/// Writes a file with mode 0600, and replaces an existing one.
fn write_file(home: &Path, path: &str, text: &str) -> Result<(), Error> {
    let below = Path::new(path);
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Error::Outside(path.to_owned()));
    }
    let full = home.join(below);
    let failed = |source| Error::Write { path: full.clone(), source };
    let mut folder = home.to_owned();
    for part in below.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        create_private_dir(&folder).map_err(failed)?;
    }
    // Write a new file and rename it, so that an existing link is replaced instead of followed.
    let new = full.with_extension("tamma-new");
    // An agent of an earlier run may have put a folder there, so that the next one cannot start.
    remove_any(&new).map_err(failed)?;
    if full.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        remove_any(&full).map_err(failed)?;
    }
    let mut file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    std::fs::rename(&new, &full).map_err(failed)
}

/// Creates a directory with mode 0700. A file or link at this path is removed.
fn create_private_dir(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => std::fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::LazyLock;

    use tamma_core::rules::Rules;

    use super::*;

    fn variables(through: bool, lists: &[String]) -> TemplateVars<'_> {
        static DENIALS: LazyLock<DenialTexts> = LazyLock::new(|| DenialTexts {
            commands: ["git push", "secrets/**"]
                .map(|it| (it.to_owned(), "Denied: \"no\". Instead: b.".to_owned()))
                .into(),
            protected: "Denied: c. Instead: d.".to_owned(),
            ..DenialTexts::default()
        });
        TemplateVars {
            url: through.then_some("http://127.0.0.1:1/run"),
            token: through.then_some("a-token"),
            home: through.then_some(Path::new("/home/of/run")),
            worktree: Path::new("/worktree"),
            model: None,
            effort: None,
            context: 200_000,
            read_only: false,
            sandboxed: false,
            shell_seconds: 1_800,
            protected: lists,
            forbidden: lists,
            ask_commands: lists,
            denials: &DENIALS,
            hook_url: through.then_some("http://127.0.0.1:1/run/mcp/permission"),
        }
    }

    fn agent(env: &[(&str, &str)]) -> CodingAgent {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let inherited = [("HOME".to_owned(), "/home/ann".to_owned())].into();
        CodingAgent { env: env.collect(), inherited, ..CodingAgent::default() }
    }

    #[test]
    fn unknown_template_variable_is_an_error() {
        let agent = agent(&[("A", "{{ brand }}")]);
        for through in [true, false] {
            let error = render(&agent, &variables(through, &[])).expect_err("unknown").to_string();
            assert!(error.contains("the variable `A`"), "{error}");
        }
    }

    #[test]
    fn signed_in_agent_keeps_its_home_and_has_no_gateway_variables() {
        let agent = agent(&[("URL", "{{ url }}/v1"), ("HERE", "{{ home }}"), ("PLAIN", "1")]);
        let (signed_in, files) = render(&agent, &variables(false, &[])).expect("rendered");
        let names: Vec<_> = signed_in.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "PLAIN"]);
        assert_eq!((signed_in.env["HOME"].as_str(), files.len()), ("/home/ann", 0));
        let (through, _) = render(&agent, &variables(true, &[])).expect("rendered");
        assert_eq!(through.env["URL"], "http://127.0.0.1:1/run/v1");
        assert_eq!(through.env["HOME"], "/home/of/run");
    }

    #[test]
    fn templates_of_built_in_agents_render_and_their_json_is_valid() {
        let lists = ["secrets/**".to_owned(), "git push".to_owned()];
        for (name, rules) in Rules::default().agents {
            let agent = CodingAgent::from_rules(&rules, &BTreeMap::new());
            for (read_only, sandboxed) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let effort = read_only.then_some("high");
                let variables =
                    TemplateVars { effort, read_only, sandboxed, ..variables(true, &lists) };
                let (_, files) =
                    render(&agent, &variables).unwrap_or_else(|e| panic!("{name}: {e}"));
                let has_effort = files.values().any(|text| text.contains("ffort"));
                assert_eq!(has_effort, effort.is_some() && name != "gemini", "{name}: {files:?}");
                for (path, text) in files.iter().filter(|(path, _)| path.contains(".json")) {
                    let parsed = serde_json::from_str::<serde_json::Value>(text);
                    assert!(parsed.is_ok(), "{name} {path}: {parsed:?}\n{text}");
                }
            }
        }
    }

    #[test]
    fn built_in_agents_tell_the_model_why_a_command_is_denied() {
        let lists = ["git push".to_owned()];
        for (name, rules) in Rules::default().agents {
            let agent = CodingAgent::from_rules(&rules, &BTreeMap::new());
            let (_, files) = render(&agent, &variables(true, &lists)).expect("rendered");
            let all: String = files.values().map(String::as_str).collect();
            let direct = all.contains("Denied: \\\"no\\\". Instead: b.");
            let by_hook = all.contains("http://127.0.0.1:1/run/mcp/permission");
            assert!(direct || by_hook, "{name}: {all}");
        }
    }

    #[test]
    fn files_are_never_written_outside_the_home_or_through_links() {
        let folder = tempfile::tempdir().expect("folder");
        let (home, outside) = (folder.path().join("home"), folder.path().join("aside"));
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(&outside).expect("made");
        for path in ["../aside/x", "/etc/x", "a/../../aside/x"] {
            assert!(matches!(write_file(&home, path, "x"), Err(Error::Outside(_))), "{path}");
        }
        std::os::unix::fs::symlink(outside.join("file"), home.join("file")).expect("linked");
        std::os::unix::fs::symlink(&outside, home.join("folder")).expect("linked");
        write_file(&home, "file", "text").expect("written");
        write_file(&home, "folder/file", "text").expect("written");
        assert_eq!(std::fs::read_dir(&outside).expect("read").count(), 0);
        for folder in ["blocked", "blocked.tamma-new"] {
            std::fs::create_dir_all(home.join(folder).join("x")).expect("made");
        }
        write_file(&home, "blocked", "text").expect("written");
        let mode = std::fs::metadata(home.join("folder/file")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
