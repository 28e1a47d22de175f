//! Languages, and the changes that are reviewed in each.

use std::path::Path;

use strum::{Display, EnumIter};

/// Language with its gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Language {
    Rust,
    Python,
    Typescript,
}

/// Kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "title_case")]
pub(crate) enum Case {
    CleanChange,
    BreakingChange,
    LintError,
    TypeError,
    LeakedSecret,
    ProhibitedPattern,
    PreExistingFailure,
    FlakyTest,
}

/// Path and content of a file.
pub(crate) type SourceFile = (String, String);

impl Case {
    /// Returns `true` if the case is nondeterministic and therefore repeated.
    pub(crate) fn is_repeated(self) -> bool {
        matches!(self, Self::PreExistingFailure | Self::FlakyTest)
    }
}

impl Language {
    /// Returns the expected verdict: gates that did not pass, and other findings.
    pub(crate) fn expected(self, case: Case) -> &'static str {
        match (case, self) {
            (Case::CleanChange, _) => "passed",
            (Case::BreakingChange, _) => "test failed",
            (Case::LintError, _) => "lint failed",
            // Every tool that compiles the crate reports it.
            (Case::TypeError, Self::Rust) => "lint failed, test failed",
            (Case::TypeError, _) => "types failed",
            (Case::LeakedSecret, _) => "a security issue",
            (Case::ProhibitedPattern, _) => "a code issue",
            (Case::PreExistingFailure, _) => "test pre_existing, passed",
            (Case::FlakyTest, _) => "test flaky, passed",
        }
    }

    /// Returns the `gates` section of the configuration.
    pub(crate) fn gates(self, modules: &Path) -> String {
        match self {
            Self::Rust => "  test:\n    kind: tests\n    report: junit\n    command: |\n      \
                rm -f target/nextest/default/junit.xml\n      \
                code=0; cargo nextest run --offline --locked || code=$?\n      \
                cp target/nextest/default/junit.xml \"$REPORT\"\n      exit $code\n  \
                lint: { kind: lint, command: cargo clippy --offline --locked --all-targets -- -D warnings }\n  \
                format: { kind: format, command: cargo fmt --check }\n"
                .to_owned(),
            Self::Python => "  test: { kind: tests, report: junit, \
                command: 'python -m pytest -q --junitxml \"$REPORT\"' }\n  \
                lint: { kind: lint, report: sarif, \
                command: 'ruff check --output-format sarif --output-file \"$REPORT\" .' }\n  \
                types: { kind: types, command: mypy . }\n"
                .to_owned(),
            Self::Typescript => format!(
                "  install: {{ kind: build, command: 'ln -sfn {} node_modules' }}\n  \
                 make: {{ kind: build, command: 'rm -rf dist/src dist/test && \
                 node_modules/.bin/tsc --noCheck' }}\n  \
                 test: {{ kind: tests, report: junit, command: 'node --test \
                 --test-reporter=junit --test-reporter-destination=\"$REPORT\" dist/test/' }}\n  \
                 lint: {{ kind: lint, report: sarif, command: 'node_modules/.bin/eslint \
                 --format @microsoft/eslint-formatter-sarif --output-file \"$REPORT\" .' }}\n  \
                 types: {{ kind: types, command: node_modules/.bin/tsc --noEmit }}\n",
                modules.display()
            ),
        }
    }

    /// Returns additional files of the base commit.
    pub(crate) fn base_files(self, case: Case) -> Vec<SourceFile> {
        if case != Case::PreExistingFailure {
            return Vec::new();
        }
        let (name, text) = match self {
            Self::Rust => (
                "tests/broken.rs",
                "//! It has been so for years.\n\nuse shapes::area;\n\n#[test]\nfn \
                 nothing_has_no_area() {\n    assert_eq!(area(0, 1), 1);\n}\n",
            ),
            Self::Python => (
                "tests/test_broken.py",
                "from shapes import area\n\n\ndef test_nothing_has_no_area() -> None:\n    \
                 assert area(0, 1) == 1\n",
            ),
            Self::Typescript => (
                "test/broken.test.ts",
                "import assert from \"node:assert/strict\";\nimport { test } from \"node:test\";\n\n\
                 import { area } from \"../src/shapes.js\";\n\ntest(\"nothing has no area\", () => \
                 {\n  assert.equal(area(0, 1), 1);\n});\n",
            ),
        };
        vec![(name.to_owned(), text.to_owned())]
    }

    /// Returns the files that a change writes. `source` is the content of the source file.
    pub(crate) fn change(self, case: Case, source: &str) -> Vec<SourceFile> {
        let path = self.source_path().to_owned();
        match case {
            Case::BreakingChange => vec![(path, self.broken(source))],
            Case::FlakyTest => {
                let (name, text) = self.flaky();
                vec![(name.to_owned(), text.to_owned())]
            }
            _ => vec![(path, self.extended(source, &self.addition(case)))],
        }
    }

    /// Returns the path of the source file.
    pub(crate) fn source_path(self) -> &'static str {
        match self {
            Self::Rust => "src/lib.rs",
            Self::Python => "shapes/__init__.py",
            Self::Typescript => "src/shapes.ts",
        }
    }

    fn broken(self, source: &str) -> String {
        match self {
            Self::Typescript => source.replace("return width * height;", "return width + height;"),
            Self::Rust | Self::Python => source.replace("width * height", "width + height"),
        }
    }

    /// Returns the source with one more function.
    fn extended(self, source: &str, addition: &str) -> String {
        match self {
            // The tests come last.
            Self::Rust => source.replace("#[cfg(test)]", &format!("{addition}\n#[cfg(test)]")),
            Self::Python => format!("{source}\n\n{addition}"),
            Self::Typescript => format!("{source}\n{addition}"),
        }
    }

    fn addition(self, case: Case) -> String {
        let text = match (self, case) {
            (Self::Rust, Case::LintError) => {
                "/// Twice a number.\npub fn twice(number: u32) -> u32 {\n    return number * 2;\n}\n"
            }
            (Self::Rust, Case::TypeError) => {
                "/// Twice a number.\npub fn twice(number: u32) -> u32 {\n    \"two\"\n}\n"
            }
            (Self::Rust, Case::LeakedSecret) => {
                "/// Where it is kept.\npub const KEEPER: &str = \"@token@\";\n"
            }
            (Self::Rust, Case::ProhibitedPattern) => {
                "/// Twice a number.\npub fn twice(number: u32) -> u32 {\n    \
                 number.checked_mul(2).unwrap()\n}\n"
            }
            (Self::Rust, _) => {
                "/// Twice a number.\npub fn twice(number: u32) -> u32 {\n    number * 2\n}\n"
            }
            (Self::Python, Case::LintError) => {
                "def twice(number: int) -> int:\n    \"\"\"Twice a number.\"\"\"\n    import os\n\n    \
                 return number * 2\n"
            }
            (Self::Python, Case::TypeError) => {
                "def twice(number: int) -> int:\n    \"\"\"Twice a number.\"\"\"\n    return \
                 str(number * 2)\n"
            }
            (Self::Python, Case::LeakedSecret) => "KEEPER = \"@token@\"\n",
            (Self::Python, Case::ProhibitedPattern) => {
                "def twice(number: int) -> int:\n    \"\"\"Twice a number.\"\"\"\n    \
                 print(number)\n    return number * 2\n"
            }
            (Self::Python, _) => {
                "def twice(number: int) -> int:\n    \"\"\"Twice a number.\"\"\"\n    return number \
                 * 2\n"
            }
            (Self::Typescript, Case::LintError) => {
                "/** Twice a number. */\nexport function twice(number: number): number {\n  var two \
                 = 2;\n  return number * two;\n}\n"
            }
            (Self::Typescript, Case::TypeError) => {
                "/** Twice a number. */\nexport function twice(number: number): number {\n  return \
                 String(number * 2);\n}\n"
            }
            (Self::Typescript, Case::LeakedSecret) => "export const keeper = \"@token@\";\n",
            (Self::Typescript, Case::ProhibitedPattern) => {
                "/** Twice a number. */\nexport function twice(number: number): number {\n  \
                 console.log(number);\n  return number * 2;\n}\n"
            }
            (Self::Typescript, _) => {
                "/** Twice a number. */\nexport function twice(number: number): number {\n  return \
                 number * 2;\n}\n"
            }
        };
        // Assembled here, so that no scanner reports this file.
        text.replace("@token@", &format!("{}_{}", "ghp", "x7Rk2Lw9QbV4nT8sYc1mZd6Hf3Jp5Gu0Ae2W"))
    }

    /// Returns the regular expression of the prohibited pattern.
    pub(crate) fn prohibited(self) -> &'static str {
        match self {
            Self::Rust => r"\.unwrap\(\)",
            Self::Python => r"\bprint\(",
            Self::Typescript => r"console\.log\(",
        }
    }

    /// Returns a test that fails in the first run only. It leaves a file in an ignored folder.
    fn flaky(self) -> (&'static str, &'static str) {
        match self {
            Self::Rust => (
                "tests/sometimes.rs",
                "//! It depends.\n\nuse std::path::Path;\n\n#[test]\nfn it_is_there() {\n    let \
                 sign = Path::new(env!(\"CARGO_MANIFEST_DIR\")).join(\"target/sign\");\n    let \
                 is_there = sign.exists();\n    std::fs::write(&sign, \"\").expect(\"a sign\");\n    \
                 assert!(is_there);\n}\n",
            ),
            Self::Python => (
                "tests/test_sometimes.py",
                "from pathlib import Path\n\n\ndef test_it_is_there() -> None:\n    sign = \
                 Path(\".cache/sign\")\n    is_there = sign.exists()\n    \
                 sign.parent.mkdir(exist_ok=True)\n    sign.touch()\n    assert is_there\n",
            ),
            Self::Typescript => (
                "test/sometimes.test.ts",
                "import assert from \"node:assert/strict\";\nimport { existsSync, writeFileSync } \
                 from \"node:fs\";\nimport { test } from \"node:test\";\n\ntest(\"it is there\", () \
                 => {\n  const there = existsSync(\"dist/sign\");\n  \
                 writeFileSync(\"dist/sign\", \"\");\n  assert.ok(there);\n});\n",
            ),
        }
    }
}
