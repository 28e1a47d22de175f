//! Imports between the modules of a package, to find cycles. Tests of other packages include this file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Imports between top-level modules, each with one file that contains it.
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// Reads the imports of a package. Comments and unit tests at the end of a file do not count.
pub(crate) fn read(package: &Path) -> Imports {
    let root = package.join("src");
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
pub(crate) fn named(source: &str) -> BTreeSet<String> {
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
pub(crate) fn cycle(imports: &Imports) -> Option<Vec<&str>> {
    fn visit<'a>(
        module: &'a str,
        imports: &'a Imports,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<&'a str>> {
        if let Some(at) = path.iter().position(|visited| *visited == module) {
            let mut cycle = path[at..].to_vec();
            cycle.push(module);
            return Some(cycle);
        }
        if done.contains(module) {
            return None;
        }
        path.push(module);
        for next in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            let cycle = visit(next, imports, path, done);
            if cycle.is_some() {
                return cycle;
            }
        }
        path.pop();
        done.insert(module);
        None
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}

/// Describes the first import cycle, with a file for each import.
pub(crate) fn describe_cycle(imports: &Imports) -> Option<String> {
    let modules = cycle(imports)?;
    let steps = modules.windows(2).map(|pair| {
        let file = imports[pair[0]][pair[1]].display();
        format!("{} -> {} ({file})", pair[0], pair[1])
    });
    Some(steps.collect::<Vec<_>>().join(", "))
}
