//! Purity of `core` and `chat`: no dependency can wait, read a clock, generate random numbers, or
//! access files or sockets. The modules of `core` import each other without cycles.
#![expect(clippy::disallowed_methods, reason = "it runs `cargo tree` and reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pure crates.
const PURE: [&str; 2] = ["tamma-core", "tamma-chat"];

/// Crates that would break purity, and features of other crates that would.
const FORBIDDEN: [&str; 24] = [
    "async-io",
    "async-std",
    "futures",
    "futures-core",
    "getrandom",
    "hyper",
    "iana-time-zone",
    "libc",
    "mio",
    "notify",
    "polling",
    "rand",
    "rand_core",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tracing",
    "ureq",
    "walkdir",
    "windows-sys",
];

fn tree(package: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", package, "-e", "normal", "--prefix", "none"])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn no_dependency_can_wait_or_do_io() {
    for package in PURE {
        let tree = tree(package, &["--format", "{p}"]);
        let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(&"serde"), "the tree was read");
        let found: Vec<_> = names.iter().filter(|name| FORBIDDEN.contains(name)).collect();
        assert!(found.is_empty(), "{package} must not depend on {found:?}");
    }
}

#[test]
fn clock_and_random_features_are_off() {
    for package in PURE {
        let tree = tree(package, &["--format", "{p} [{f}]"]);
        for (name, features) in [
            ("chrono ", ["clock", "now", "wasmbind"]),
            ("uuid ", ["v4", "v7", "rng"]),
            ("rust_decimal ", ["rand", "db-postgres", "tokio-pg"]),
        ] {
            let line = tree.lines().find(|line| line.starts_with(name)).expect("it is there");
            let (_, on) = line.split_once('[').expect("features");
            let on: Vec<_> = on.trim_end_matches(" (*)").trim_end_matches(']').split(',').collect();
            assert!(features.iter().all(|feature| !on.contains(feature)), "{package}: {line}");
        }
    }
}

/// Imports between top-level modules, each with one file that contains it.
type Imports = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// Reads the imports of `core`. Comments and unit tests at the end of a file do not count.
fn imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut imports = Imports::new();
    for file in files {
        let path = file.strip_prefix(&root).expect("a path under the root");
        let first = path.iter().next().and_then(|part| part.to_str()).expect("a name");
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let used = imports.entry(module.to_owned()).or_default();
        let text = fs::read_to_string(&file).expect("a source");
        for name in named(&text) {
            if name != module {
                used.entry(name).or_insert_with(|| path.to_owned());
            }
        }
    }
    let modules: BTreeSet<_> = imports.keys().cloned().collect();
    for used in imports.values_mut() {
        used.retain(|name, _| modules.contains(name));
    }
    imports
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the names that follow `crate::` in a source, including those in `crate::{a, b::C}`.
fn named(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let Some(group) = after.strip_prefix('{') else {
            names.insert(leading_name(after));
            continue;
        };
        let mut depth = 1;
        let mut start = 0;
        for (at, sign) in group.char_indices() {
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && sign == ',') {
                names.insert(leading_name(&group[start..at]));
                start = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn leading_name(text: &str) -> String {
    text.trim_start().chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect()
}

/// Returns the first import cycle, with its first module repeated at the end.
fn cycle(imports: &Imports) -> Option<Vec<&str>> {
    fn visit<'a>(
        module: &'a str,
        imports: &'a Imports,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<&'a str>> {
        if let Some(at) = way.iter().position(|it| *it == module) {
            let mut found = way[at..].to_vec();
            found.push(module);
            return Some(found);
        }
        if done.contains(module) {
            return None;
        }
        way.push(module);
        for next in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            let found = visit(next, imports, way, done);
            if found.is_some() {
                return found;
            }
        }
        way.pop();
        done.insert(module);
        None
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}

#[test]
fn core_modules_have_no_import_cycle() {
    let imports = imports();
    assert!(imports["task_loop"].contains_key("rules"), "the sources were read");
    let found = cycle(&imports).map(|modules| {
        let steps = modules.windows(2).map(|pair| {
            let file = imports[pair[0]][pair[1]].display();
            format!("{} -> {} ({file})", pair[0], pair[1])
        });
        steps.collect::<Vec<_>>().join(", ")
    });
    assert_eq!(found, None, "modules of `core` import each other in a cycle");
}

#[test]
fn import_cycles_are_found_and_named() {
    let source =
        "use crate::b::C;\n// crate::c\nuse crate::{d, e::{F, G}, h};\n#[cfg(test)]\ncrate::i";
    assert_eq!(named(source).iter().map(String::as_str).collect::<Vec<_>>(), ["b", "d", "e", "h"]);
    let of = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in pairs {
            let used = imports.entry((*from).to_owned()).or_default();
            used.insert((*to).to_owned(), PathBuf::from("x.rs"));
        }
        imports
    };
    assert_eq!(cycle(&of(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    let circle = of(&[("a", "b"), ("b", "c"), ("c", "b")]);
    assert_eq!(cycle(&circle), Some(vec!["b", "c", "b"]));
}
