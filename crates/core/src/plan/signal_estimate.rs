//! Estimates of complexity signals that a planner has not graded.
//!
//! They come from the plan, the paths of the repository and the task. Where the facts leave a doubt,
//! the estimate is the higher grade: a run that is too strong costs a little, one that is too weak
//! costs an iteration.

use std::collections::BTreeSet;

use super::{FileAction, FileChange, Plan};
use crate::complexity::{Grade, Signals};
use crate::task::Task;

/// Description shorter than this leaves questions open, in characters.
const SHORT_DESCRIPTION: usize = 80;

/// Test files in a plan from which on there is much to test.
const MANY_TEST_FILES: usize = 4;

/// Files that mark their folder as a module.
const MANIFESTS: [&str; 12] = [
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "CMakeLists.txt",
];

/// Folders that hold modules and are none themselves.
const SOURCE_FOLDERS: [&str; 9] =
    ["src", "lib", "app", "apps", "pkg", "packages", "crates", "internal", "modules"];

/// Parts of words that show closeness to secrets, permissions or personal data.
const SECURITY_WORDS: [&str; 18] = [
    "auth",
    "login",
    "password",
    "secret",
    "token",
    "permission",
    "session",
    "crypt",
    "oauth",
    "credential",
    "signature",
    "certificate",
    "payment",
    "billing",
    "privacy",
    "personal",
    "sandbox",
    "sanitiz",
];

/// Facts about the surroundings of a plan. By default, nothing is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct EstimateFacts<'a> {
    /// Files of the repository at the base commit.
    pub repository: Option<&'a BTreeSet<String>>,
    /// Task that the plan is for.
    pub task: Option<&'a Task>,
    /// Number of the plan's files that are configured as critical.
    pub critical_files: u16,
}

/// Estimates all signals of a plan.
pub fn estimate_signals(plan: &Plan, facts: &EstimateFacts<'_>) -> Signals {
    Signals {
        files: u16::try_from(plan.file_changes.len()).unwrap_or(u16::MAX),
        modules: estimate_modules(plan, facts),
        novelty: estimate_novelty(plan, facts),
        tests: estimate_tests(plan),
        security: estimate_security(plan, facts),
        ambiguity: estimate_ambiguity(plan, facts),
    }
}

/// Counts the modules that the plan touches. Tests belong to the module that they test.
fn estimate_modules(plan: &Plan, facts: &EstimateFacts<'_>) -> u16 {
    let manifests: BTreeSet<&str> = facts
        .repository
        .into_iter()
        .flatten()
        .filter_map(|path| path.rsplit_once('/'))
        .filter_map(|(folder, name)| MANIFESTS.contains(&name).then_some(folder))
        .collect();
    let code = plan.file_changes.iter().filter(|change| !is_test(&change.path));
    let modules: BTreeSet<&str> = code.map(|change| module_of(&change.path, &manifests)).collect();
    u16::try_from(modules.len()).unwrap_or(u16::MAX).max(1)
}

/// Returns the folder of a file's module: the nearest one with a manifest, or the first one that is
/// not just a folder for sources. Files at the root have none.
fn module_of<'a>(path: &'a str, manifests: &BTreeSet<&str>) -> &'a str {
    let mut folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = folder;
    while !folder.is_empty() {
        if manifests.contains(folder) {
            return folder;
        }
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
    let mut end = 0;
    for part in whole.split('/') {
        end += part.len();
        if !SOURCE_FOLDERS.contains(&part) {
            break;
        }
        end += usize::from(end < whole.len());
    }
    whole.get(..end).unwrap_or(whole)
}

/// Grades new files, folders and dependencies.
fn estimate_novelty(plan: &Plan, facts: &EstimateFacts<'_>) -> Grade {
    let is_new = |change: &&FileChange| change.action == FileAction::Create;
    let new_files = plan.file_changes.iter().filter(is_new);
    let new_folder = new_files.clone().any(|change| {
        let Some((folder, _)) = change.path.rsplit_once('/') else { return false };
        let is_below =
            |path: &String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        facts.repository.is_some_and(|paths| !paths.iter().any(is_below))
    });
    let (new_files, new_dependency) = (new_files.count(), !plan.dependencies.is_empty());
    let mostly_new = new_files * 2 > plan.file_changes.len();
    match (new_files > 0 || new_dependency, new_folder || new_dependency) {
        (true, true) if mostly_new => Grade::Much,
        (true, _) => Grade::Some,
        (false, _) => Grade::None,
    }
}

/// Grades the tests that the plan names. Only documents need none.
fn estimate_tests(plan: &Plan) -> Grade {
    let test_files = plan.file_changes.iter().filter(|change| is_test(&change.path)).count();
    let is_document = |change: &FileChange| {
        let extension = change.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        ["md", "txt", "rst", "adoc"].contains(&extension)
    };
    if test_files >= MANY_TEST_FILES || plan.test_changes.len() >= MANY_TEST_FILES {
        Grade::Much
    } else if test_files == 0 && plan.file_changes.iter().all(is_document) {
        Grade::None
    } else {
        Grade::Some
    }
}

/// Grades closeness to secrets and permissions, by words in paths and texts and by critical files.
fn estimate_security(plan: &Plan, facts: &EstimateFacts<'_>) -> Grade {
    let has_word = |text: &str| {
        let text = text.to_lowercase();
        SECURITY_WORDS.iter().any(|word| text.contains(word))
    };
    let in_paths = plan.file_changes.iter().any(|change| has_word(&change.path));
    let task = facts.task.map(|task| [&task.title, &task.description]);
    let mut texts = [&plan.summary, &plan.approach].into_iter().chain(task.into_iter().flatten());
    let in_texts = texts.any(|text| has_word(text));
    match (in_paths, in_texts || facts.critical_files > 0) {
        (true, true) => Grade::Much,
        (true, false) | (false, true) => Grade::Some,
        (false, false) => Grade::None,
    }
}

/// Grades open points: a short description, missing criteria, and questions in the plan.
fn estimate_ambiguity(plan: &Plan, facts: &EstimateFacts<'_>) -> Grade {
    let open_points = [
        facts.task.is_some_and(|task| task.description.trim().chars().count() < SHORT_DESCRIPTION),
        facts.task.map_or(!plan.criteria.is_empty(), |task| task.acceptance_criteria.is_empty()),
        !plan.questions.is_empty(),
    ];
    match open_points.into_iter().filter(|is_open| *is_open).count() {
        0 => Grade::None,
        1 => Grade::Some,
        _ => Grade::Much,
    }
}

fn is_test(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or_default();
    folders.split('/').any(|part| ["test", "tests", "spec", "specs", "__tests__"].contains(&part))
        || ["test_", "spec_"].iter().any(|prefix| stem.starts_with(prefix))
        || ["_test", "_tests", "_spec", "Test", "Tests", "Spec"]
            .iter()
            .any(|suffix| stem.ends_with(suffix))
        || name.contains(".test.")
        || name.contains(".spec.")
}
