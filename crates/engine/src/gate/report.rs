//! Reading what tools report: JUnit's XML and SARIF.
//!
//! Both formats are written a little differently by every tool, so only what is needed is read, and
//! the rest may be as it likes. JUnit is read from the beginning on: of a report that breaks off,
//! everything before that is there.
//!
//! A name must be the same for the same test or finding on another commit and in another checkout, so
//! the checkout's own path is cut out, and a finding has no line in its name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde::Deserialize;

/// The longest name that is kept, in bytes.
const LONGEST: usize = 500;

/// What a report names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// What failed.
    pub(super) failures: BTreeSet<String>,
    /// What fails only where the tool itself says that it failed: warnings.
    pub(super) warnings: BTreeSet<String>,
    /// The tests that passed.
    pub(super) passed: BTreeSet<String>,
    /// The tests that were not run.
    pub(super) skipped: BTreeSet<String>,
}

/// Reads test results. With them comes why no more could be read, if the report is not whole.
pub(super) fn junit(text: &str, checkout: &Path) -> (Named, Option<String>) {
    let mut cases = Cases::at(checkout);
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => cases.open(&tag),
            Ok(Event::Empty(tag)) => {
                cases.open(&tag);
                cases.close(tag.name().as_ref());
            }
            Ok(Event::End(tag)) => cases.close(tag.name().as_ref()),
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(error) => return (cases.named(), Some(error.to_string())),
        }
    }
    let why = match (cases.is_junit, cases.depth) {
        (false, _) => Some("it has no test suite in it".to_owned()),
        (true, 0) => None,
        (true, _) => Some("it breaks off".to_owned()),
    };
    (cases.named(), why)
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Passed,
    Failed,
    /// Also where it failed: a test that is still to be done may.
    Skipped,
}

/// The test cases of a report, being read.
struct Cases<'a> {
    checkout: &'a Path,
    is_junit: bool,
    /// How many elements are open.
    depth: usize,
    /// The names of the suites that are open.
    suites: Vec<String>,
    /// The case that is open.
    case: Option<(String, End)>,
    named: Named,
}

impl<'a> Cases<'a> {
    fn at(checkout: &'a Path) -> Self {
        let (suites, case, named) = (Vec::new(), None, Named::default());
        Self { checkout, is_junit: false, depth: 0, suites, case, named }
    }

    fn open(&mut self, tag: &BytesStart<'_>) {
        self.depth += 1;
        match (tag.name().as_ref(), &mut self.case) {
            (b"testsuites", _) => self.is_junit = true,
            (b"testsuite", _) => {
                self.is_junit = true;
                self.suites.push(attribute(tag, "name").unwrap_or_default());
            }
            (b"testcase", _) => self.case = Some((self.name_of(tag), End::Passed)),
            (b"failure" | b"error", Some((_, end))) => *end = (*end).max(End::Failed),
            (b"skipped", Some((_, end))) => *end = End::Skipped,
            _ => {}
        }
    }

    fn close(&mut self, tag: &[u8]) {
        self.depth = self.depth.saturating_sub(1);
        match tag {
            b"testsuite" => drop(self.suites.pop()),
            b"testcase" => {
                let Some((name, end)) = self.case.take() else { return };
                let set = match end {
                    End::Passed => &mut self.named.passed,
                    End::Failed => &mut self.named.failures,
                    End::Skipped => &mut self.named.skipped,
                };
                set.insert(name);
            }
            _ => {}
        }
    }

    /// The class or the file of a test, and its name. Where neither is said, the suites stand for it.
    fn name_of(&self, tag: &BytesStart<'_>) -> String {
        let name = attribute(tag, "name").unwrap_or_default();
        // Node's runner calls the class of every test so.
        let class =
            attribute(tag, "classname").filter(|class| !class.is_empty() && class != "test");
        let name = if let Some(class) = class {
            format!("{class}::{name}")
        } else {
            let file = attribute(tag, "file").into_iter();
            let parts: Vec<_> =
                file.chain(self.suites.iter().cloned()).filter(|part| !part.is_empty()).collect();
            if parts.is_empty() { name } else { format!("{}::{name}", parts.join(" > ")) }
        };
        plain(&name, self.checkout)
    }

    /// What was read. A name that several tests have stands for all of them.
    fn named(self) -> Named {
        let Named { failures, passed, skipped, .. } = self.named;
        let skipped = &(&skipped - &passed) - &failures;
        Named { passed: &passed - &failures, skipped, failures, ..Named::default() }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = tag.try_get_attribute(name).ok()??;
    match found.normalized_value(XmlVersion::Implicit1_0) {
        Ok(value) => Some(value.into_owned()),
        Err(_) => Some(String::from_utf8_lossy(&found.value).into_owned()),
    }
}

/// Reads findings.
pub(super) fn sarif(text: &str, checkout: &Path) -> Result<Named, String> {
    let log: Log = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut named = Named::default();
    let mut seen = BTreeMap::<String, usize>::new();
    for run in &log.runs {
        for found in run.results.iter().filter(|found| found.counts()) {
            let times = seen.entry(found.name(checkout)).or_default();
            *times += 1;
            let mut name = found.name(checkout);
            if *times > 1 {
                // One more of the same in a file is one more.
                name = format!("{name} ({times})");
            }
            match found.level(run) {
                "error" => drop(named.failures.insert(name)),
                "warning" => drop(named.warnings.insert(name)),
                _ => {}
            }
        }
    }
    Ok(named)
}

#[derive(Deserialize)]
struct Log {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(default)]
    results: Vec<Found>,
    #[serde(default)]
    tool: Tool,
}

#[derive(Default, Deserialize)]
struct Tool {
    #[serde(default)]
    driver: Driver,
}

#[derive(Default, Deserialize)]
struct Driver {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    id: String,
    #[serde(default)]
    default_configuration: Configuration,
}

#[derive(Default, Deserialize)]
struct Configuration {
    level: Option<String>,
}

/// One result of a SARIF log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    rule_id: Option<String>,
    level: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    message: Message,
    #[serde(default)]
    locations: Vec<Location>,
    #[serde(default)]
    suppressions: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct Message {
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(default)]
    physical_location: Physical,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    #[serde(default)]
    artifact_location: Artifact,
}

#[derive(Default, Deserialize)]
struct Artifact {
    uri: Option<String>,
}

impl Found {
    fn counts(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "fail") && self.suppressions.is_empty()
    }

    /// Its own level, or that of its rule, or the one that the format says is meant.
    fn level<'a>(&'a self, run: &'a Run) -> &'a str {
        let rule =
            || run.tool.driver.rules.iter().find(|rule| Some(&rule.id) == self.rule_id.as_ref());
        let of_rule = || rule().and_then(|rule| rule.default_configuration.level.as_deref());
        self.level.as_deref().or_else(of_rule).unwrap_or("warning")
    }

    fn name(&self, checkout: &Path) -> String {
        let uri = self
            .locations
            .first()
            .and_then(|at| at.physical_location.artifact_location.uri.as_ref());
        let rule = self.rule_id.as_deref().unwrap_or("finding");
        let message = self.message.text.as_deref().unwrap_or_default();
        let message = message.lines().next().unwrap_or_default();
        // Lines and columns move, and messages name them.
        let message =
            message.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty());
        let message = message.collect::<Vec<_>>().join("#");
        plain(&format!("{rule}: {}: {message}", uri.map_or("", String::as_str)), checkout)
    }
}

/// A name without the path of the checkout, and not without end.
fn plain(name: &str, checkout: &Path) -> String {
    let checkout = checkout.display().to_string();
    let name =
        name.replace(&format!("file://{checkout}/"), "").replace(&format!("{checkout}/"), "");
    let end = (0..=name.len().min(LONGEST)).rev().find(|at| name.is_char_boundary(*at));
    name[..end.unwrap_or_default()].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests;
