//! What a repository says about itself: its languages, and how it is tested and checked.
//!
//! This is pure: the names and texts of the files in the repository's root come in. What is found
//! is a proposal for `tamma.yaml`, so a wrong guess costs a line of editing, and each says what it
//! was guessed from.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tamma_core::review::gate::Kind;

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
    Check { name: name.to_owned(), kind, command: command.into(), because: because.into() }
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
    let (manager, mut install) = match lock {
        Some((_, manager, install)) => (manager, install),
        None => ("npm", "npm install --no-package-lock"),
    };
    // The newer yarn has another word for it.
    if manager == "yarn" && root.has(".yarnrc.yml") {
        install = "yarn install --immutable";
    }
    let any = |key: &str| package[key].as_object().is_some_and(|map| !map.is_empty());
    // A worktree is a fresh checkout: what the project depends on is not there yet.
    let before = if any("dependencies") || any("devDependencies") {
        format!("{install} && ")
    } else {
        String::new()
    };
    let by = lock.map_or(String::new(), |(lock, ..)| format!(", and {lock} is {manager}'s"));
    let mut checks = Vec::new();
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
            let command = format!("{before}{manager} run {script}");
            checks.push(check(name, kind, command, because));
        }
    }
    Some(Found { because: file.to_owned(), checks })
}

fn python(root: &Root) -> Option<Found> {
    const MANIFESTS: &[&str] =
        &["pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "tox.ini"];
    let file = root.first(MANIFESTS)?;
    let (run, by) = if root.has("uv.lock") {
        ("uv run ", ", and uv.lock is uv's")
    } else if root.has("poetry.lock") {
        ("poetry install && poetry run ", ", and poetry.lock is poetry's")
    } else {
        ("python3 -m ", "")
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
    let checks = [
        ("test", Kind::Tests, "pytest", "pytest", pytest),
        ("lint", Kind::Lint, "ruff", "ruff check .", ruff),
        ("types", Kind::Types, "mypy", "mypy .", mypy),
    ]
    .into_iter()
    .filter_map(|(name, kind, tool, command, file)| {
        let because = format!("{} speaks of {tool}{by}.", file?);
        Some(check(name, kind, format!("{run}{command}"), because))
    })
    .collect();
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
            ]
        );
        assert_eq!(
            commands(&[("Cargo.toml", "[workspace]\n")]),
            [
                one("test", Kind::Tests, "cargo test --workspace"),
                one("lint", Kind::Lint, "cargo clippy --workspace -- -D warnings"),
            ]
        );
    }

    #[test]
    fn scripts_are_run_by_the_package_manager_of_the_lock_file() {
        let package = r#"{"scripts": {"test": "vitest", "lint": "eslint .", "typecheck": "tsc"}}"#;
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
    fn dependencies_are_installed_first_because_a_worktree_has_none() {
        let package = r#"{"scripts": {"test": "x"}, "devDependencies": {"vitest": "1"}}"#;
        let command = |more: &[(&str, &str)]| {
            let files = [&[("package.json", package)], more].concat();
            commands(&files)[0].2.clone()
        };
        assert_eq!(command(&[("package-lock.json", "")]), "npm ci && npm run test");
        assert_eq!(command(&[]), "npm install --no-package-lock && npm run test");
        assert_eq!(
            command(&[("yarn.lock", ""), (".yarnrc.yml", "")]),
            "yarn install --immutable && yarn run test"
        );
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
                one("test", Kind::Tests, "python3 -m pytest"),
                one("lint", Kind::Lint, "python3 -m ruff check ."),
                one("types", Kind::Types, "python3 -m mypy ."),
            ]
        );
        assert_eq!(
            commands(&[("pyproject.toml", "[tool.ruff.lint]\n"), ("uv.lock", "")]),
            [one("lint", Kind::Lint, "uv run ruff check .")]
        );
        assert_eq!(
            commands(&[("requirements.txt", "requests\npytest>=8\n")]),
            [one("test", Kind::Tests, "python3 -m pytest")]
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
        assert_eq!(names, ["rust-test", "rust-lint", "node-test"]);
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
