//! Detection of a repository's languages, tests and linters.
//!
//! Pure: the input is the names and texts of files in the repository's root. The result is a proposal
//! for `tamma.yaml`, so a wrong guess costs one line of editing. Each proposal names the file that it
//! is based on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tamma_core::gate::GateKind;
use tamma_core::rules::ReportFormat;

/// Files in the root whose content is inspected.
pub(crate) const INSPECTED_FILES: &[&str] = &[
    "Cargo.toml",
    "GNUmakefile",
    "Justfile",
    "Makefile",
    ".justfile",
    "justfile",
    "makefile",
    "package.json",
    "pyproject.toml",
    "requirements-dev.txt",
    "requirements.txt",
    "setup.cfg",
    "tox.ini",
];

/// Names in the root of a repository, with the content of [`INSPECTED_FILES`].
#[derive(Debug, Default)]
pub(crate) struct RootFiles(pub(crate) BTreeMap<String, String>);

impl RootFiles {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the first name that exists.
    fn first_existing<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Returns the first file that has a line with this prefix.
    fn first_with_line<'a>(&self, names: &[&'a str], beginning: &str) -> Option<&'a str> {
        names
            .iter()
            .copied()
            .find(|name| self.text(name).lines().any(|line| line.trim().starts_with(beginning)))
    }
}

/// Detected languages, proposed setup and gates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) languages: Vec<DetectedLanguage>,
    pub(crate) setup: Option<ProposedSetup>,
    pub(crate) gates: Vec<ProposedGate>,
}

/// Language, with the file that it was detected from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DetectedLanguage {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// Command that installs dependencies, which a fresh checkout lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposedSetup {
    pub(crate) command: String,
    /// Reason for the proposal, as a sentence.
    pub(crate) reason: String,
}

/// Command that checks the project. It becomes a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposedGate {
    pub(crate) name: String,
    pub(crate) kind: GateKind,
    pub(crate) command: String,
    /// Reason for the proposal, as a sentence.
    pub(crate) reason: String,
    /// Format of the report that the tool writes, if known.
    pub(crate) report: Option<ReportFormat>,
}

/// Detects languages and gates.
pub(crate) fn survey_root(root: &RootFiles) -> Survey {
    let mut survey = Survey::default();
    let mut by_language: Vec<(&str, Vec<ProposedGate>)> = Vec::new();
    for (short, name, detect) in [
        ("rust", "Rust", detect_rust as fn(&RootFiles) -> Option<LanguageFindings>),
        ("node", "JavaScript", detect_node),
        ("python", "Python", detect_python),
        ("go", "Go", detect_go),
    ] {
        if let Some(LanguageFindings { reason, setup, gates }) = detect(root) {
            survey.languages.push(DetectedLanguage { name, reason });
            by_language.push((short, gates));
            survey.setup = match (survey.setup.take(), setup) {
                (Some(first), Some(second)) => Some(ProposedSetup {
                    command: format!("{} && {}", first.command, second.command),
                    reason: format!("{} {}", first.reason, second.reason),
                }),
                (first, second) => first.or(second),
            };
        }
    }
    // With several languages, the name of a gate starts with its language.
    let several = by_language.iter().filter(|(_, gates)| !gates.is_empty()).count() > 1;
    for (short, gates) in by_language {
        for mut gate in gates {
            if several {
                gate.name = format!("{short}-{}", gate.name);
            }
            survey.gates.push(gate);
        }
    }
    // Task runner targets fill gaps only. They often run the same commands, and need a program that
    // the worker may not have.
    let kinds: BTreeSet<GateKind> = survey.gates.iter().map(|gate| gate.kind).collect();
    survey
        .gates
        .extend(task_runner_gates(root).into_iter().filter(|gate| !kinds.contains(&gate.kind)));
    survey
}

/// Findings for one language.
struct LanguageFindings {
    reason: String,
    setup: Option<ProposedSetup>,
    gates: Vec<ProposedGate>,
}

fn proposed_gate(
    name: &str,
    kind: GateKind,
    command: impl Into<String>,
    reason: impl Into<String>,
) -> ProposedGate {
    let (name, command, reason) = (name.to_owned(), command.into(), reason.into());
    ProposedGate { name, kind, command, reason, report: None }
}

fn proposed_setup(command: &str, reason: impl Into<String>) -> ProposedSetup {
    ProposedSetup { command: command.to_owned(), reason: reason.into() }
}

fn detect_rust(root: &RootFiles) -> Option<LanguageFindings> {
    let file = root.first_existing(&["Cargo.toml"])?;
    let (of, reason) = match root.first_with_line(&[file], "[workspace") {
        Some(_) => (" --workspace", "Cargo.toml defines a workspace."),
        None => ("", "Found Cargo.toml."),
    };
    let gates = vec![
        proposed_gate("test", GateKind::Tests, format!("cargo test{of}"), reason),
        proposed_gate("lint", GateKind::Lint, format!("cargo clippy{of} -- -D warnings"), reason),
        proposed_gate("format", GateKind::Format, "cargo fmt --all --check", reason),
    ];
    // A crate without dependencies needs no download.
    let sections = ["[dependencies", "[dev-dependencies", "[build-dependencies", "[workspace"];
    let has_dependencies = root.has("Cargo.lock")
        || sections.iter().any(|it| root.first_with_line(&[file], it).is_some());
    let command = if root.has("Cargo.lock") { "cargo fetch --locked" } else { "cargo fetch" };
    let setup = has_dependencies.then(|| proposed_setup(command, reason));
    Some(LanguageFindings { reason: file.to_owned(), setup, gates })
}

fn detect_node(root: &RootFiles) -> Option<LanguageFindings> {
    let file = root.first_existing(&["package.json"])?;
    // Invalid JSON still indicates a JavaScript project.
    let package: Value = serde_json::from_str(root.text(file)).unwrap_or_default();
    let locks = [
        ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
        ("bun.lock", "bun", "bun install --frozen-lockfile"),
        ("bun.lockb", "bun", "bun install --frozen-lockfile"),
        ("package-lock.json", "npm", "npm ci"),
        ("npm-shrinkwrap.json", "npm", "npm ci"),
    ];
    let lock = locks.into_iter().find(|(lock, ..)| root.has(lock));
    let (manager, mut command) = match lock {
        Some((_, manager, command)) => (manager, command),
        None => ("npm", "npm install --no-package-lock"),
    };
    // Yarn 2 and later renamed the flag.
    if manager == "yarn" && root.has(".yarnrc.yml") {
        command = "yarn install --immutable";
    }
    let any = |key: &str| package[key].as_object().is_some_and(|map| !map.is_empty());
    let by = lock.map_or(String::new(), |(lock, ..)| format!(" and {lock} ({manager})"));
    let setup = (any("dependencies") || any("devDependencies"))
        .then(|| proposed_setup(command, format!("Found dependencies in package.json{by}.")));
    let mut gates = Vec::new();
    for (name, kind, scripts) in [
        ("test", GateKind::Tests, &["test"][..]),
        ("lint", GateKind::Lint, &["lint"]),
        ("types", GateKind::Types, &["typecheck", "type-check", "types"]),
    ] {
        let is_defined = |script: &&&str| {
            let text = package["scripts"][**script].as_str().unwrap_or_default();
            // Placeholder that `npm init` writes; it always fails.
            !text.is_empty() && !text.contains("no test specified")
        };
        if let Some(script) = scripts.iter().find(is_defined) {
            let reason = format!("Found script `{script}` in package.json{by}.");
            let mut gate = proposed_gate(name, kind, format!("{manager} run {script}"), reason);
            // Only for a bare vitest script, which passes the arguments on.
            let text = package["scripts"][*script].as_str().unwrap_or_default();
            if manager == "npm" && ["vitest", "vitest run"].contains(&text) {
                let more = "--reporter=default --reporter=junit --outputFile.junit=\"$REPORT\"";
                gate.command = format!("npm run {script} -- {more}");
                gate.report = Some(ReportFormat::Junit);
            }
            gates.push(gate);
        }
    }
    Some(LanguageFindings { reason: file.to_owned(), setup, gates })
}

fn detect_python(root: &RootFiles) -> Option<LanguageFindings> {
    const MANIFESTS: &[&str] =
        &["pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "tox.ini"];
    let file = root.first_existing(MANIFESTS)?;
    let requirements = ["requirements.txt", "requirements-dev.txt"];
    let requirements: Vec<&str> = requirements.into_iter().filter(|it| root.has(it)).collect();
    let (run, first, by) = if root.has("uv.lock") {
        ("uv run --no-sync ", Some("uv sync".to_owned()), " and uv.lock (uv)".to_owned())
    } else if root.has("poetry.lock") {
        ("poetry run ", Some("poetry install".to_owned()), " and poetry.lock (poetry)".to_owned())
    } else if !requirements.is_empty() {
        let lists = requirements.join(" -r ");
        let install = format!("python3 -m venv .venv && .venv/bin/pip install -r {lists}");
        (".venv/bin/python -m ", Some(install), format!(" and {} (pip)", requirements.join(", ")))
    } else {
        ("python3 -m ", None, String::new())
    };
    let pytest = root
        .first_existing(&["pytest.ini", "conftest.py"])
        .or_else(|| root.first_with_line(&["pyproject.toml"], "[tool.pytest"))
        .or_else(|| root.first_with_line(&["setup.cfg"], "[tool:pytest]"))
        .or_else(|| root.first_with_line(&["tox.ini"], "[pytest]"))
        .or_else(|| root.first_with_line(&["requirements-dev.txt", "requirements.txt"], "pytest"))
        .or_else(|| root.first_with_line(&["pyproject.toml"], "\"pytest"));
    let ruff = root
        .first_existing(&["ruff.toml", ".ruff.toml"])
        .or_else(|| root.first_with_line(&["pyproject.toml"], "[tool.ruff"));
    let mypy = root
        .first_existing(&["mypy.ini", ".mypy.ini"])
        .or_else(|| root.first_with_line(&["pyproject.toml"], "[tool.mypy"))
        .or_else(|| root.first_with_line(&["setup.cfg"], "[mypy"));
    let ruff_says = "ruff check --output-format sarif --output-file \"$REPORT\" .";
    let pytest_says = "pytest --junitxml \"$REPORT\"";
    let gates: Vec<ProposedGate> = [
        ("test", GateKind::Tests, "pytest", pytest_says, Some(ReportFormat::Junit), pytest),
        ("lint", GateKind::Lint, "ruff", ruff_says, Some(ReportFormat::Sarif), ruff),
        ("types", GateKind::Types, "mypy", "mypy .", None, mypy),
    ]
    .into_iter()
    .filter_map(|(name, kind, tool, command, report, file)| {
        let reason = format!("Found {tool} in {}{by}.", file?);
        Some(ProposedGate {
            report,
            ..proposed_gate(name, kind, format!("{run}{command}"), reason)
        })
    })
    .collect();
    let setup = first.map(|command| proposed_setup(&command, format!("Found {file}{by}.")));
    Some(LanguageFindings { reason: file.to_owned(), setup, gates })
}

fn detect_go(root: &RootFiles) -> Option<LanguageFindings> {
    let file = root.first_existing(&["go.mod"])?;
    let setup = root.has("go.sum").then(|| proposed_setup("go mod download", "Found go.sum."));
    let linter = root.first_existing(&[".golangci.yml", ".golangci.yaml", ".golangci.toml"]);
    let gates = vec![
        proposed_gate("test", GateKind::Tests, "go test ./...", "Found go.mod."),
        match linter {
            Some(file) => {
                proposed_gate("lint", GateKind::Lint, "golangci-lint run", format!("Found {file}."))
            }
            None => proposed_gate("lint", GateKind::Lint, "go vet ./...", "Found go.mod."),
        },
    ];
    Some(LanguageFindings { reason: file.to_owned(), setup, gates })
}

/// Proposes gates for conventional targets of a `justfile` or `Makefile`.
fn task_runner_gates(root: &RootFiles) -> Vec<ProposedGate> {
    let runners = [
        ("just", &["justfile", "Justfile", ".justfile"][..]),
        ("make", &["GNUmakefile", "makefile", "Makefile"][..]),
    ];
    let mut gates: Vec<ProposedGate> = Vec::new();
    for (runner, files) in runners {
        let Some(file) = root.first_existing(files) else {
            continue;
        };
        for (verb, kind) in
            [("test", GateKind::Tests), ("lint", GateKind::Lint), ("typecheck", GateKind::Types)]
        {
            let is_defined = root.text(file).lines().any(|line| is_target(line, verb));
            if is_defined && gates.iter().all(|one| one.kind != kind) {
                let name = if kind == GateKind::Types { "types" } else { verb };
                let reason = format!("Found `{verb}` in {file}.");
                gates.push(proposed_gate(name, kind, format!("{runner} {verb}"), reason));
            }
        }
    }
    gates
}

/// Returns `true` if a line starts a target or recipe of this name without required arguments.
fn is_target(line: &str, verb: &str) -> bool {
    let Some(rest) = line.strip_prefix('@').unwrap_or(line).strip_prefix(verb) else {
        return false;
    };
    let Some((parameters, after)) = rest.split_once(':') else {
        return false;
    };
    let optional = |parameter: &str| parameter.starts_with('*') || parameter.contains('=');
    (parameters.is_empty() || parameters.starts_with(' '))
        && parameters.split_whitespace().all(optional)
        // `test := x` assigns a variable.
        && !after.starts_with('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> RootFiles {
        RootFiles(
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        )
    }

    /// Names, kinds and commands of the proposed gates.
    fn commands(files: &[(&str, &str)]) -> Vec<(String, GateKind, String)> {
        let gates = survey_root(&root(files)).gates;
        gates.into_iter().map(|gate| (gate.name, gate.kind, gate.command)).collect()
    }

    fn proposed(name: &str, kind: GateKind, command: &str) -> (String, GateKind, String) {
        (name.to_owned(), kind, command.to_owned())
    }

    #[test]
    fn an_unknown_repository_has_no_gates() {
        assert_eq!(survey_root(&root(&[])), Survey::default());
        assert_eq!(survey_root(&root(&[("README.md", "")])), Survey::default());
    }

    #[test]
    fn rust_gates_cover_the_crate_or_the_workspace() {
        assert_eq!(
            commands(&[("Cargo.toml", "[package]\nname = \"a\"\n")]),
            [
                proposed("test", GateKind::Tests, "cargo test"),
                proposed("lint", GateKind::Lint, "cargo clippy -- -D warnings"),
                proposed("format", GateKind::Format, "cargo fmt --all --check"),
            ]
        );
        assert_eq!(
            commands(&[("Cargo.toml", "[workspace]\n")]),
            [
                proposed("test", GateKind::Tests, "cargo test --workspace"),
                proposed("lint", GateKind::Lint, "cargo clippy --workspace -- -D warnings"),
                proposed("format", GateKind::Format, "cargo fmt --all --check"),
            ]
        );
    }

    #[test]
    fn scripts_run_with_the_package_manager_of_the_lock_file() {
        let package = r#"{"scripts": {"test": "jest", "lint": "eslint .", "typecheck": "tsc"}}"#;
        for (lock, manager) in [
            ("package-lock.json", "npm"),
            ("pnpm-lock.yaml", "pnpm"),
            ("yarn.lock", "yarn"),
            ("bun.lockb", "bun"),
            ("README.md", "npm"),
        ] {
            assert_eq!(
                commands(&[("package.json", package), (lock, "")]),
                [
                    proposed("test", GateKind::Tests, &format!("{manager} run test")),
                    proposed("lint", GateKind::Lint, &format!("{manager} run lint")),
                    proposed("types", GateKind::Types, &format!("{manager} run typecheck")),
                ]
            );
        }
    }

    #[test]
    fn dependencies_are_installed_by_the_setup() {
        let setup = |files: &[(&str, &str)]| survey_root(&root(files)).setup.map(|it| it.command);
        let package = r#"{"scripts": {"test": "x"}, "devDependencies": {"x": "1"}}"#;
        let node = |more: &[(&str, &str)]| setup(&[&[("package.json", package)], more].concat());
        assert_eq!(node(&[("package-lock.json", "")]).as_deref(), Some("npm ci"));
        assert_eq!(node(&[]).as_deref(), Some("npm install --no-package-lock"));
        let yarn = node(&[("yarn.lock", ""), (".yarnrc.yml", "")]);
        assert_eq!(yarn.as_deref(), Some("yarn install --immutable"));
        assert_eq!(setup(&[("package.json", r#"{"scripts": {"test": "x"}}"#)]), None);
        let python = |name| setup(&[("pyproject.toml", ""), (name, "")]);
        assert_eq!(python("poetry.lock").as_deref(), Some("poetry install"));
        assert_eq!(python("uv.lock").as_deref(), Some("uv sync"));
        let pip = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
        assert_eq!(python("requirements.txt").as_deref(), Some(pip));
        assert_eq!(python("README.md"), None);
        assert_eq!(setup(&[("Cargo.toml", "[package]\n")]), None);
        assert_eq!(setup(&[("Cargo.toml", "[dependencies]\n")]).as_deref(), Some("cargo fetch"));
        let both = [("Cargo.toml", ""), ("Cargo.lock", ""), ("package.json", package)];
        let joined = "cargo fetch --locked && npm install --no-package-lock";
        assert_eq!(setup(&both).as_deref(), Some(joined));
    }

    #[test]
    fn tools_with_reports_are_configured_to_write_them() {
        let package = r#"{"scripts": {"test": "vitest run", "lint": "eslint ."}}"#;
        let reports = |files: &[(&str, &str)]| {
            survey_root(&root(files)).gates.into_iter().map(|gate| gate.report).collect::<Vec<_>>()
        };
        assert_eq!(reports(&[("package.json", package)]), [Some(ReportFormat::Junit), None]);
        assert_eq!(reports(&[("package.json", package), ("yarn.lock", "")]), [None, None]);
        let tools = "[tool.pytest]\n[tool.ruff]\n[tool.mypy]\n";
        let expected = [Some(ReportFormat::Junit), Some(ReportFormat::Sarif), None];
        assert_eq!(reports(&[("pyproject.toml", tools)]), expected);
    }

    #[test]
    fn a_placeholder_test_script_is_ignored() {
        let package =
            r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1", "lint": ""}}"#;
        let survey = survey_root(&root(&[("package.json", package)]));
        assert_eq!(survey.gates, []);
        assert_eq!(survey.languages[0].name, "JavaScript");
        assert_eq!(survey_root(&root(&[("package.json", "not json")])).gates, []);
    }

    #[test]
    fn python_tools_are_detected_by_their_configuration() {
        let all = "[tool.pytest.ini_options]\n[tool.ruff]\nline-length = 100\n[tool.mypy]\n";
        assert_eq!(
            commands(&[("pyproject.toml", all)]),
            [
                proposed("test", GateKind::Tests, "python3 -m pytest --junitxml \"$REPORT\""),
                proposed(
                    "lint",
                    GateKind::Lint,
                    "python3 -m ruff check --output-format sarif --output-file \"$REPORT\" ."
                ),
                proposed("types", GateKind::Types, "python3 -m mypy ."),
            ]
        );
        assert_eq!(
            commands(&[("pyproject.toml", "[tool.ruff.lint]\n"), ("uv.lock", "")]),
            [proposed(
                "lint",
                GateKind::Lint,
                "uv run --no-sync ruff check --output-format sarif --output-file \"$REPORT\" ."
            )]
        );
        assert_eq!(
            commands(&[("requirements.txt", "requests\npytest>=8\n")]),
            [proposed(
                "test",
                GateKind::Tests,
                ".venv/bin/python -m pytest --junitxml \"$REPORT\""
            )]
        );
        assert_eq!(commands(&[("pyproject.toml", "[project]\nname = \"a\"\n")]), []);
    }

    #[test]
    fn go_uses_vet_unless_a_linter_is_configured() {
        assert_eq!(
            commands(&[("go.mod", "")]),
            [
                proposed("test", GateKind::Tests, "go test ./..."),
                proposed("lint", GateKind::Lint, "go vet ./..."),
            ]
        );
        assert_eq!(
            commands(&[("go.mod", ""), (".golangci.yml", "")])[1],
            proposed("lint", GateKind::Lint, "golangci-lint run")
        );
    }

    #[test]
    fn gates_are_prefixed_if_there_are_several_languages() {
        let package = r#"{"scripts": {"test": "x"}}"#;
        let names: Vec<String> = commands(&[("Cargo.toml", ""), ("package.json", package)])
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(names, ["rust-test", "rust-lint", "rust-format", "node-test"]);
    }

    #[test]
    fn task_runner_targets_fill_gaps() {
        assert_eq!(
            commands(&[("Makefile", "test: build\n\tx\n\nlint:\n\ty\n")]),
            [
                proposed("test", GateKind::Tests, "make test"),
                proposed("lint", GateKind::Lint, "make lint")
            ]
        );
        let package = r#"{"scripts": {"test": "x"}}"#;
        assert_eq!(
            commands(&[("package.json", package), ("justfile", "@test:\n  x\nlint *args:\n  y\n")]),
            [
                proposed("test", GateKind::Tests, "npm run test"),
                proposed("lint", GateKind::Lint, "just lint")
            ]
        );
    }

    #[test]
    fn targets_must_not_require_arguments() {
        for line in ["test:", "test: build", "@test:", "test *args:", "test filter='':"] {
            assert!(is_target(line, "test"), "{line}");
        }
        for line in ["tests:", "test := x", "test:= x", "test name:", "\ttest:", "test", "test-a:"]
        {
            assert!(!is_target(line, "test"), "{line}");
        }
    }
}
