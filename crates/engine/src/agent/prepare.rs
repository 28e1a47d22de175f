//! What a run is given: its arguments, its environment and the files in its home.
//!
//! The templates know a few words and no others; one that asks for a word that is not there fails,
//! before anything has started. The home may be that of an earlier run, whose agent may have left
//! anything in it, so nothing is written through a link.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

use super::{Agent, RunOrder};
use crate::confine::Kind;
use crate::gateway::Door;

/// What can go wrong before an agent is started.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A template cannot be filled in.
    #[error("{what} of the agent cannot be filled in: {source}")]
    Template { what: String, source: minijinja::Error },
    /// A file is not below the home.
    #[error("the file `{0}` of the agent is not below its home")]
    Outside(String),
    /// A file cannot be written.
    #[error("cannot write the agent's file `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What a run is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

/// The words that a template may use.
#[derive(Serialize)]
struct Words<'a> {
    /// Only a run through the gateway has these three: one that is signed in has the worker's home,
    /// and what is in there is not ours to point elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    home: Option<&'a Path>,
    worktree: &'a Path,
    model: Option<&'a str>,
    look: bool,
    caged: bool,
    protected: &'a [String],
    forbidden: &'a [String],
    asked: &'a [String],
}

/// Fills in what the agent is given, and writes its files.
pub(super) async fn prepare(
    agent: &Agent,
    order: &RunOrder,
    door: Option<&Door>,
) -> Result<Given, Error> {
    let keyed = order.access.as_ref().is_some_and(|access| access.upstream.is_some());
    let door = door.filter(|_| keyed);
    // Agents have lists of beginnings, and a list of ours may say so with a star.
    let beginning = |command: &String| command.trim_end_matches([' ', '*']).to_owned();
    let forbidden: Vec<_> = order.forbidden.iter().map(beginning).collect();
    let asked: Vec<_> = order.asked.iter().map(beginning).collect();
    let words = Words {
        url: door.map(Door::url),
        token: door.map(|door| door.token().expose()),
        home: door.map(|_| order.home.as_path()),
        worktree: &order.workspace,
        model: order.model.as_deref().filter(|model| *model != super::acp::LEAVE),
        look: order.mode.looks(),
        caged: order.cage.as_ref().is_some_and(|cage| cage.kind != Kind::Off),
        protected: &order.protected,
        forbidden: &forbidden,
        asked: &asked,
    };
    let (given, files) = fill(agent, &words)?;
    if door.is_none() {
        return Ok(given);
    }
    let home = order.home.clone();
    let write = move || {
        make_folder(&home).map_err(|source| Error::Write { path: home.clone(), source })?;
        files.iter().try_for_each(|(path, text)| write(&home, path, text))
    };
    // It only fails if the runtime ends, and then there is no run.
    tokio::task::spawn_blocking(write).await.unwrap_or(Ok(()))?;
    Ok(given)
}

fn fill(agent: &Agent, words: &Words<'_>) -> Result<(Given, BTreeMap<String, String>), Error> {
    let templates = environment();
    let fill = |what: &str, text: &str| {
        templates
            .render_str(text, Value::from(Serde(words)))
            .map_err(|source| Error::Template { what: what.to_owned(), source })
    };
    let args = agent.args.iter().map(|one| fill("an argument", one)).collect::<Result<_, _>>()?;
    let mut env = agent.inherited.clone();
    for (name, text) in &agent.env {
        match fill(&format!("the variable `{name}`"), text) {
            Ok(value) => drop(env.insert(name.clone(), value)),
            // It is meant for a run through the gateway.
            Err(Error::Template { source, .. })
                if words.url.is_none()
                    && source.kind() == ErrorKind::UndefinedError
                    && names_gateway(&templates, text, words) => {}
            Err(error) => return Err(error),
        }
    }
    let mut files = BTreeMap::new();
    if let Some(home) = words.home {
        env.insert("HOME".to_owned(), home.display().to_string());
        for (path, text) in &agent.files {
            files.insert(path.clone(), fill(&format!("the file `{path}`"), text)?);
        }
    }
    Ok((Given { args, env }, files))
}

/// Whether all that a template misses are the words of a run through the gateway.
fn names_gateway(templates: &Environment<'_>, text: &str, words: &Words<'_>) -> bool {
    let (url, token, home) = (Some(""), Some(""), Some(Path::new("")));
    let words = Value::from(Serde(Words { url, token, home, ..*words }));
    templates.render_str(text, words).is_ok()
}

fn environment() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_auto_escape_callback(|_| AutoEscape::None);
    // Texts for JSON and TOML, whatever is in them.
    templates.add_filter("json", |value: Value| {
        serde_json::to_string(&value)
            .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))
    });
    templates
}

/// Writes a file that only we can read, in the place of whatever is there.
fn write(home: &Path, path: &str, text: &str) -> Result<(), Error> {
    let below = Path::new(path);
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Error::Outside(path.to_owned()));
    }
    let full = home.join(below);
    let failed = |source| Error::Write { path: full.clone(), source };
    let mut folder = home.to_owned();
    for part in below.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        make_folder(&folder).map_err(failed)?;
    }
    // Under another name first: a link that is there is replaced, and not followed.
    let new = full.with_extension("tamma-new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
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

/// Makes a folder that only we can enter. What is there instead of one goes.
fn make_folder(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => std::fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tamma_core::rules::Rules;

    use super::*;

    fn words(through: bool, lists: &[String]) -> Words<'_> {
        Words {
            url: through.then_some("http://127.0.0.1:1/run"),
            token: through.then_some("a-token"),
            home: through.then_some(Path::new("/home/of/run")),
            worktree: Path::new("/worktree"),
            model: None,
            look: false,
            caged: false,
            protected: lists,
            forbidden: lists,
            asked: lists,
        }
    }

    fn agent(env: &[(&str, &str)]) -> Agent {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let inherited = [("HOME".to_owned(), "/home/ann".to_owned())].into();
        Agent { env: env.collect(), inherited, ..Agent::default() }
    }

    #[test]
    fn a_word_that_is_not_there_is_an_error_and_not_empty() {
        let agent = agent(&[("A", "{{ brand }}")]);
        for through in [true, false] {
            let told = fill(&agent, &words(through, &[])).expect_err("no such word").to_string();
            assert!(told.contains("the variable `A`"), "{told}");
        }
    }

    #[test]
    fn one_that_is_signed_in_keeps_its_home_and_is_pointed_nowhere() {
        let agent = agent(&[("URL", "{{ url }}/v1"), ("HERE", "{{ home }}"), ("PLAIN", "1")]);
        let (signed_in, files) = fill(&agent, &words(false, &[])).expect("filled in");
        let names: Vec<_> = signed_in.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "PLAIN"]);
        assert_eq!((signed_in.env["HOME"].as_str(), files.len()), ("/home/ann", 0));
        let (through, _) = fill(&agent, &words(true, &[])).expect("filled in");
        assert_eq!(through.env["URL"], "http://127.0.0.1:1/run/v1");
        assert_eq!(through.env["HOME"], "/home/of/run");
    }

    #[test]
    fn every_built_in_agent_can_be_filled_in_and_its_json_is_json() {
        let lists = ["secrets/**".to_owned(), "git push".to_owned()];
        for (name, rules) in Rules::default().agents {
            let agent = Agent::of(&rules, &BTreeMap::new());
            for (look, caged) in [(true, true), (true, false), (false, true), (false, false)] {
                let words = Words { look, caged, ..words(true, &lists) };
                let (_, files) = fill(&agent, &words).unwrap_or_else(|e| panic!("{name}: {e}"));
                for (path, text) in files.iter().filter(|(path, _)| path.contains(".json")) {
                    let parsed = serde_json::from_str::<serde_json::Value>(text);
                    assert!(parsed.is_ok(), "{name} {path}: {parsed:?}\n{text}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_written_outside_the_home_and_through_no_link() {
        let folder = tempfile::tempdir().expect("folder");
        let (home, aside) = (folder.path().join("home"), folder.path().join("aside"));
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(&aside).expect("made");
        for path in ["../aside/x", "/etc/x", "a/../../aside/x"] {
            assert!(matches!(write(&home, path, "x"), Err(Error::Outside(_))), "{path}");
        }
        std::os::unix::fs::symlink(aside.join("file"), home.join("file")).expect("linked");
        std::os::unix::fs::symlink(&aside, home.join("folder")).expect("linked");
        write(&home, "file", "text").expect("written");
        write(&home, "folder/file", "text").expect("written");
        assert_eq!(std::fs::read_dir(&aside).expect("read").count(), 0);
        let mode = std::fs::metadata(home.join("folder/file")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
