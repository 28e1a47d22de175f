//! What a repository says about itself: its languages, and how it is tested and checked.
//!
//! This is pure: the names and texts of the files in the repository's root come in. What is found
//! is a proposal for `tamma.yaml`, so a wrong guess costs a line of editing, and each says what it
//! was guessed from.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tamma_core::gate::Kind;
use tamma_core::rules::Report;

/// Files of a root whose text is looked at.
pub(crate) const READ: &[&str] = &[
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

/// The root of a repository: the names of what is in it, with the texts of those in [`READ`].
#[derive(Debug, Default)]
pub(crate) struct Root(pub(crate) BTreeMap<String, String>);

impl Root {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The first of some names that is there.
    fn first<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// The first of some files that has a line with this beginning.
    fn line<'a>(&self, names: &[&'a str], beginning: &str) -> Option<&'a str> {
        names
            .iter()
            .copied()
            .find(|name| self.text(name).lines().any(|line| line.trim().starts_with(beginning)))
    }
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) languages: Vec<Language>,
    pub(crate) checks: Vec<Check>,
}

/// A language, and the file that told it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Language {
    pub(crate) name: &'static str,
    pub(crate) because: String,
}

/// A command that checks the project. It becomes a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) command: String,
    /// What it was guessed from, as a sentence.
    pub(crate) because: String,
    /// The form of the report that it writes, where the tool is known to write one.
    pub(crate) report: Option<Report>,
    /// Whether it needs the network.
    pub(crate) network: bool,
}

/// Looks at a root.
pub(crate) fn look(root: &Root) -> Survey {
    let mut survey = Survey::default();
    let mut found: Vec<(&str, Vec<Check>)> = Vec::new();
    for (short, name, look) in [
        ("rust", "Rust", rust as fn(&Root) -> Option<Found>),
        ("node", "JavaScript", node),
        ("python", "Python", python),
        ("go", "Go", go),
    ] {
        if let Some(Found { because, checks }) = look(root) {
            survey.languages.push(Language { name, because });
            found.push((short, checks));
        }
    }
    // With several languages, each check says whose it is.
    let several = found.iter().filter(|(_, checks)| !checks.is_empty()).count() > 1;
    for (short, checks) in found {
        for mut check in checks {
            if several {
                check.name = format!("{short}-{}", check.name);
            }
            survey.checks.push(check);
        }
    }
    // The project's own verbs fill what its languages leave open. They do not stand over them:
    // often they are the same commands, and need a program that the worker may not have.
    let kinds: BTreeSet<Kind> = survey.checks.iter().map(|check| check.kind).collect();
    survey.checks.extend(verbs(root).into_iter().filter(|check| !kinds.contains(&check.kind)));
    survey
}

/// What one language was told by, and what it brings.
struct Found {
    because: String,
    checks: Vec<Check>,
}

fn check(name: &str, kind: Kind, command: impl Into<String>, because: impl Into<String>) -> Check {
    let (name, command, because) = (name.to_owned(), command.into(), because.into());
    Check { name, kind, command, because, report: None, network: false }
}

/// What the project depends on is not in a fresh checkout, and only this gate reaches the network.
fn install(command: &str, because: impl Into<String>) -> Check {
    Check { network: true, ..check("install", Kind::Build, command, because) }
}

fn rust(root: &Root) -> Option<Found> {
    let file = root.first(&["Cargo.toml"])?;
    let (of, because) = match root.line(&[file], "[workspace") {
        Some(_) => (" --workspace", "Cargo.toml is that of a workspace."),
        None => ("", "There is a Cargo.toml."),
    };
    let checks = vec![
        check("test", Kind::Tests, format!("cargo test{of}"), because),
        check("lint", Kind::Lint, format!("cargo clippy{of} -- -D warnings"), because),
        check("format", Kind::Format, "cargo fmt --all --check", because),
    ];
    Some(Found { because: file.to_owned(), checks })
}

fn node(root: &Root) -> Option<Found> {
    let file = root.first(&["package.json"])?;
    // A file that is not JSON is still that of a JavaScript project.
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
    // The newer yarn has another word for it.
    if manager == "yarn" && root.has(".yarnrc.yml") {
        command = "yarn install --immutable";
    }
    let any = |key: &str| package[key].as_object().is_some_and(|map| !map.is_empty());
    let by = lock.map_or(String::new(), |(lock, ..)| format!(", and {lock} is {manager}'s"));
    let mut checks = Vec::new();
    if any("dependencies") || any("devDependencies") {
        checks.push(install(command, format!("package.json has dependencies{by}.")));
    }
    for (name, kind, scripts) in [
        ("test", Kind::Tests, &["test"][..]),
        ("lint", Kind::Lint, &["lint"]),
        ("types", Kind::Types, &["typecheck", "type-check", "types"]),
    ] {
        let given = |script: &&&str| {
            let text = package["scripts"][**script].as_str().unwrap_or_default();
            // npm writes this one into every new project, and it always fails.
            !text.is_empty() && !text.contains("no test specified")
        };
        if let Some(script) = scripts.iter().find(given) {
            let because = format!("package.json has the script `{script}`{by}.");
            let mut found = check(name, kind, format!("{manager} run {script}"), because);
            // Only where nothing else is in the script that could take the arguments for its own.
            let text = package["scripts"][*script].as_str().unwrap_or_default();
            if manager == "npm" && ["vitest", "vitest run"].contains(&text) {
                let more = "--reporter=default --reporter=junit --outputFile.junit=\"$REPORT\"";
                found.command = format!("npm run {script} -- {more}");
                found.report = Some(Report::Junit);
            }
            checks.push(found);
        }
    }
    // Nothing is installed for nobody.
    checks.retain({
        let alone = checks.len() == 1;
        move |check| !(alone && check.network)
    });
    Some(Found { because: file.to_owned(), checks })
}

fn python(root: &Root) -> Option<Found> {
    const MANIFESTS: &[&str] =
        &["pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "tox.ini"];
    let file = root.first(MANIFESTS)?;
    let (run, first, by) = if root.has("uv.lock") {
        ("uv run --no-sync ", Some("uv sync"), ", and uv.lock is uv's")
    } else if root.has("poetry.lock") {
        ("poetry run ", Some("poetry install"), ", and poetry.lock is poetry's")
    } else {
        ("python3 -m ", None, "")
    };
    let pytest = root
        .first(&["pytest.ini", "conftest.py"])
        .or_else(|| root.line(&["pyproject.toml"], "[tool.pytest"))
        .or_else(|| root.line(&["setup.cfg"], "[tool:pytest]"))
        .or_else(|| root.line(&["tox.ini"], "[pytest]"))
        .or_else(|| root.line(&["requirements-dev.txt", "requirements.txt"], "pytest"))
        .or_else(|| root.line(&["pyproject.toml"], "\"pytest"));
    let ruff = root
        .first(&["ruff.toml", ".ruff.toml"])
        .or_else(|| root.line(&["pyproject.toml"], "[tool.ruff"));
    let mypy = root
        .first(&["mypy.ini", ".mypy.ini"])
        .or_else(|| root.line(&["pyproject.toml"], "[tool.mypy"))
        .or_else(|| root.line(&["setup.cfg"], "[mypy"));
    let ruff_says = "ruff check --output-format sarif --output-file \"$REPORT\" .";
    let pytest_says = "pytest --junitxml \"$REPORT\"";
    let mut checks: Vec<Check> = [
        ("test", Kind::Tests, "pytest", pytest_says, Some(Report::Junit), pytest),
        ("lint", Kind::Lint, "ruff", ruff_says, Some(Report::Sarif), ruff),
        ("types", Kind::Types, "mypy", "mypy .", None, mypy),
    ]
    .into_iter()
    .filter_map(|(name, kind, tool, command, report, file)| {
        let because = format!("{} speaks of {tool}{by}.", file?);
        Some(Check { report, ..check(name, kind, format!("{run}{command}"), because) })
    })
    .collect();
    if let Some(command) = first.filter(|_| !checks.is_empty()) {
        checks.insert(0, install(command, format!("There is a {file}{by}.")));
    }
    Some(Found { because: file.to_owned(), checks })
}

fn go(root: &Root) -> Option<Found> {
    let file = root.first(&["go.mod"])?;
    let linter = root.first(&[".golangci.yml", ".golangci.yaml", ".golangci.toml"]);
    let checks = vec![
        check("test", Kind::Tests, "go test ./...", "There is a go.mod."),
        match linter {
            Some(file) => {
                check("lint", Kind::Lint, "golangci-lint run", format!("There is a {file}."))
            }
            None => check("lint", Kind::Lint, "go vet ./...", "There is a go.mod."),
        },
    ];
    Some(Found { because: file.to_owned(), checks })
}

/// What a `justfile` or a `Makefile` can do by the names that everybody uses.
fn verbs(root: &Root) -> Vec<Check> {
    let runners = [
        ("just", &["justfile", "Justfile", ".justfile"][..]),
        ("make", &["GNUmakefile", "makefile", "Makefile"][..]),
    ];
    let mut checks: Vec<Check> = Vec::new();
    for (runner, files) in runners {
        let Some(file) = root.first(files) else {
            continue;
        };
        for (verb, kind) in
            [("test", Kind::Tests), ("lint", Kind::Lint), ("typecheck", Kind::Types)]
        {
            let there = root.text(file).lines().any(|line| is_target(line, verb));
            if there && checks.iter().all(|one| one.kind != kind) {
                let name = if kind == Kind::Types { "types" } else { verb };
                let because = format!("{file} has `{verb}`.");
                checks.push(check(name, kind, format!("{runner} {verb}"), because));
            }
        }
    }
    checks
}

/// Whether a line begins a target or a recipe of this name that needs no argument.
fn is_target(line: &str, verb: &str) -> bool {
    let Some(rest) = line.strip_prefix('@').unwrap_or(line).strip_prefix(verb) else {
        return false;
    };
    let Some((parameters, after)) = rest.split_once(':') else {
        return false;
    };
    let optional = |one: &str| one.starts_with('*') || one.contains('=');
    (parameters.is_empty() || parameters.starts_with(' '))
        && parameters.split_whitespace().all(optional)
        // `test := x` sets a variable.
        && !after.starts_with('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> Root {
        Root(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }

    /// Names and commands of what is found.
    fn commands(files: &[(&str, &str)]) -> Vec<(String, Kind, String)> {
        let checks = look(&root(files)).checks;
        checks.into_iter().map(|check| (check.name, check.kind, check.command)).collect()
    }

    fn one(name: &str, kind: Kind, command: &str) -> (String, Kind, String) {
        (name.to_owned(), kind, command.to_owned())
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        assert_eq!(look(&root(&[])), Survey::default());
        assert_eq!(look(&root(&[("README.md", "")])), Survey::default());
    }

    #[test]
    fn a_crate_is_tested_and_linted_and_a_workspace_as_a_whole() {
        assert_eq!(
            commands(&[("Cargo.toml", "[package]\nname = \"a\"\n")]),
            [
                one("test", Kind::Tests, "cargo test"),
                one("lint", Kind::Lint, "cargo clippy -- -D warnings"),
                one("format", Kind::Format, "cargo fmt --all --check"),
            ]
        );
        assert_eq!(
            commands(&[("Cargo.toml", "[workspace]\n")]),
            [
                one("test", Kind::Tests, "cargo test --workspace"),
                one("lint", Kind::Lint, "cargo clippy --workspace -- -D warnings"),
                one("format", Kind::Format, "cargo fmt --all --check"),
            ]
        );
    }

    #[test]
    fn scripts_are_run_by_the_package_manager_of_the_lock_file() {
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
                    one("test", Kind::Tests, &format!("{manager} run test")),
                    one("lint", Kind::Lint, &format!("{manager} run lint")),
                    one("types", Kind::Types, &format!("{manager} run typecheck")),
                ]
            );
        }
    }

    #[test]
    fn dependencies_are_installed_first_because_a_checkout_has_none() {
        let package = r#"{"scripts": {"test": "x"}, "devDependencies": {"x": "1"}}"#;
        let found = |more: &[(&str, &str)]| {
            look(&root(&[&[("package.json", package)], more].concat())).checks
        };
        let checks = found(&[("package-lock.json", "")]);
        let shown: Vec<_> = checks
            .iter()
            .map(|check| (check.name.as_str(), check.command.as_str(), check.network))
            .collect();
        assert_eq!(shown, [("install", "npm ci", true), ("test", "npm run test", false)]);
        assert_eq!(checks[0].kind, Kind::Build);
        assert_eq!(found(&[])[0].command, "npm install --no-package-lock");
        let yarn = found(&[("yarn.lock", ""), (".yarnrc.yml", "")]);
        assert_eq!(yarn[0].command, "yarn install --immutable");
        // Where nothing is checked, nothing is installed.
        let bare = r#"{"devDependencies": {"x": "1"}}"#;
        assert_eq!(look(&root(&[("package.json", bare)])).checks, []);
        let locked = [("pyproject.toml", "[tool.mypy]\n"), ("poetry.lock", "")];
        let expected = [
            one("install", Kind::Build, "poetry install"),
            one("types", Kind::Types, "poetry run mypy ."),
        ];
        assert_eq!(commands(&locked), expected);
    }

    #[test]
    fn a_tool_that_can_report_is_asked_to() {
        let package = r#"{"scripts": {"test": "vitest run", "lint": "eslint ."}}"#;
        let reports = |files: &[(&str, &str)]| {
            look(&root(files)).checks.into_iter().map(|check| check.report).collect::<Vec<_>>()
        };
        assert_eq!(reports(&[("package.json", package)]), [Some(Report::Junit), None]);
        assert_eq!(reports(&[("package.json", package), ("yarn.lock", "")]), [None, None]);
        let tools = "[tool.pytest]\n[tool.ruff]\n[tool.mypy]\n";
        let expected = [Some(Report::Junit), Some(Report::Sarif), None];
        assert_eq!(reports(&[("pyproject.toml", tools)]), expected);
    }

    #[test]
    fn a_script_that_only_says_that_there_is_none_is_no_test() {
        let package =
            r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1", "lint": ""}}"#;
        let survey = look(&root(&[("package.json", package)]));
        assert_eq!(survey.checks, []);
        assert_eq!(survey.languages[0].name, "JavaScript");
        assert_eq!(look(&root(&[("package.json", "not json")])).checks, []);
    }

    #[test]
    fn python_tools_count_where_they_are_configured() {
        let all = "[tool.pytest.ini_options]\n[tool.ruff]\nline-length = 100\n[tool.mypy]\n";
        assert_eq!(
            commands(&[("pyproject.toml", all)]),
            [
                one("test", Kind::Tests, "python3 -m pytest --junitxml \"$REPORT\""),
                one(
                    "lint",
                    Kind::Lint,
                    "python3 -m ruff check --output-format sarif --output-file \"$REPORT\" ."
                ),
                one("types", Kind::Types, "python3 -m mypy ."),
            ]
        );
        assert_eq!(
            commands(&[("pyproject.toml", "[tool.ruff.lint]\n"), ("uv.lock", "")]),
            [
                one("install", Kind::Build, "uv sync"),
                one(
                    "lint",
                    Kind::Lint,
                    "uv run --no-sync ruff check --output-format sarif --output-file \"$REPORT\" ."
                )
            ]
        );
        assert_eq!(
            commands(&[("requirements.txt", "requests\npytest>=8\n")]),
            [one("test", Kind::Tests, "python3 -m pytest --junitxml \"$REPORT\"")]
        );
        assert_eq!(commands(&[("pyproject.toml", "[project]\nname = \"a\"\n")]), []);
    }

    #[test]
    fn go_is_vetted_unless_it_has_a_linter() {
        assert_eq!(
            commands(&[("go.mod", "")]),
            [one("test", Kind::Tests, "go test ./..."), one("lint", Kind::Lint, "go vet ./..."),]
        );
        assert_eq!(
            commands(&[("go.mod", ""), (".golangci.yml", "")])[1],
            one("lint", Kind::Lint, "golangci-lint run")
        );
    }

    #[test]
    fn with_several_languages_a_check_says_whose_it_is() {
        let package = r#"{"scripts": {"test": "x"}}"#;
        let names: Vec<String> = commands(&[("Cargo.toml", ""), ("package.json", package)])
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(names, ["rust-test", "rust-lint", "rust-format", "node-test"]);
    }

    #[test]
    fn the_projects_own_verbs_fill_what_the_languages_leave_open() {
        assert_eq!(
            commands(&[("Makefile", "test: build\n\tx\n\nlint:\n\ty\n")]),
            [one("test", Kind::Tests, "make test"), one("lint", Kind::Lint, "make lint")]
        );
        let package = r#"{"scripts": {"test": "x"}}"#;
        assert_eq!(
            commands(&[("package.json", package), ("justfile", "@test:\n  x\nlint *args:\n  y\n")]),
            [one("test", Kind::Tests, "npm run test"), one("lint", Kind::Lint, "just lint")]
        );
    }

    #[test]
    fn a_target_is_one_that_can_be_run_without_an_argument() {
        for line in ["test:", "test: build", "@test:", "test *args:", "test filter='':"] {
            assert!(is_target(line, "test"), "{line}");
        }
        for line in ["tests:", "test := x", "test:= x", "test name:", "\ttest:", "test", "test-a:"]
        {
            assert!(!is_target(line, "test"), "{line}");
        }
    }
}
