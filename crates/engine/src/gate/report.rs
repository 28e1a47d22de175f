//! Parsers for JUnit XML and SARIF reports.
//!
//! Tools write both formats differently, so the parsers read only the necessary fields. JUnit is
//! parsed as a stream: a truncated report yields everything before the end.
//!
//! Names of tests and findings must be the same on other commits and in other checkouts. The path
//! of the checkout is therefore removed, and names of findings contain no line numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde::Deserialize;

use crate::sanitize;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 500;

/// Tests and findings in a report.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ReportResults {
    /// Failed tests, and findings of level error.
    pub(super) failures: BTreeSet<String>,
    /// Findings of level warning. They count only if the tool's exit code reports a failure.
    pub(super) warnings: BTreeSet<String>,
    /// Tests that passed.
    pub(super) passed: BTreeSet<String>,
    /// Tests that were skipped.
    pub(super) skipped: BTreeSet<String>,
}

/// Parses test results. The second value is the reason if the report is incomplete.
pub(super) fn junit(text: &str, checkout: &Path) -> (ReportResults, Option<String>) {
    let mut cases = JunitParser::new(checkout);
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
            Err(error) => return (cases.into_results(), Some(error.to_string())),
        }
    }
    let reason = match (cases.is_junit, cases.depth) {
        (false, _) => Some("it contains no test suite".to_owned()),
        (true, 0) => None,
        (true, _) => Some("it is truncated".to_owned()),
    };
    (cases.into_results(), reason)
}

/// Status of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TestStatus {
    Passed,
    Failed,
    /// Takes precedence over a failure, because unfinished tests may fail.
    Skipped,
}

/// Streaming parser for test cases.
struct JunitParser<'a> {
    checkout: &'a Path,
    is_junit: bool,
    /// Number of open elements.
    depth: usize,
    /// Names of the open suites.
    suites: Vec<String>,
    /// Open test case.
    case: Option<(String, TestStatus)>,
    results: ReportResults,
}

impl<'a> JunitParser<'a> {
    fn new(checkout: &'a Path) -> Self {
        let (suites, case, results) = (Vec::new(), None, ReportResults::default());
        Self { checkout, is_junit: false, depth: 0, suites, case, results }
    }

    fn open(&mut self, tag: &BytesStart<'_>) {
        self.depth += 1;
        match (tag.name().as_ref(), &mut self.case) {
            (b"testsuites", _) => self.is_junit = true,
            (b"testsuite", _) => {
                self.is_junit = true;
                self.suites.push(attribute(tag, "name").unwrap_or_default());
            }
            (b"testcase", _) => self.case = Some((self.name_of(tag), TestStatus::Passed)),
            (b"failure" | b"error", Some((_, end))) => *end = (*end).max(TestStatus::Failed),
            (b"skipped", Some((_, end))) => *end = TestStatus::Skipped,
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
                    TestStatus::Passed => &mut self.results.passed,
                    TestStatus::Failed => &mut self.results.failures,
                    TestStatus::Skipped => &mut self.results.skipped,
                };
                set.insert(name);
            }
            _ => {}
        }
    }

    /// Returns class or file of a test, and its name. Without either, suites are used.
    fn name_of(&self, tag: &BytesStart<'_>) -> String {
        let name = attribute(tag, "name").unwrap_or_default();
        // Node's test runner uses this class for every test.
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
        normalize_name(&name, self.checkout)
    }

    /// Returns the results. A name that several tests share has the worst status of them.
    fn into_results(self) -> ReportResults {
        let ReportResults { failures, passed, skipped, .. } = self.results;
        let skipped = &(&skipped - &passed) - &failures;
        ReportResults { passed: &passed - &failures, skipped, failures, ..ReportResults::default() }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = tag.try_get_attribute(name).ok()??;
    match attribute.normalized_value(XmlVersion::Implicit1_0) {
        Ok(value) => Some(value.into_owned()),
        Err(_) => Some(String::from_utf8_lossy(&attribute.value).into_owned()),
    }
}

/// Parses findings.
pub(super) fn sarif(text: &str, checkout: &Path) -> Result<ReportResults, String> {
    let log: SarifLog = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut named = ReportResults::default();
    let mut counts = BTreeMap::<String, usize>::new();
    for run in &log.runs {
        for finding in run.results.iter().filter(|finding| finding.is_failure()) {
            let times = counts.entry(finding.name(checkout)).or_default();
            *times += 1;
            let mut name = finding.name(checkout);
            if *times > 1 {
                // Further findings with the same name are numbered.
                name = format!("{name} ({times})");
            }
            match finding.level(run) {
                "error" => drop(named.failures.insert(name)),
                "warning" => drop(named.warnings.insert(name)),
                _ => {}
            }
        }
    }
    Ok(named)
}

#[derive(Deserialize)]
struct SarifLog {
    runs: Vec<SarifRun>,
}

#[derive(Deserialize)]
struct SarifRun {
    #[serde(default)]
    results: Vec<SarifResult>,
    #[serde(default)]
    tool: SarifTool,
}

#[derive(Default, Deserialize)]
struct SarifTool {
    #[serde(default)]
    driver: SarifDriver,
}

#[derive(Default, Deserialize)]
struct SarifDriver {
    #[serde(default)]
    rules: Vec<SarifRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifRule {
    #[serde(default)]
    id: String,
    #[serde(default)]
    default_configuration: RuleConfiguration,
}

#[derive(Default, Deserialize)]
struct RuleConfiguration {
    level: Option<String>,
}

/// Result in a SARIF log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: Option<String>,
    level: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    message: SarifMessage,
    #[serde(default)]
    locations: Vec<SarifLocation>,
    #[serde(default)]
    suppressions: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct SarifMessage {
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifLocation {
    #[serde(default)]
    physical_location: PhysicalLocation,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    #[serde(default)]
    artifact_location: ArtifactLocation,
}

#[derive(Default, Deserialize)]
struct ArtifactLocation {
    uri: Option<String>,
}

impl SarifResult {
    fn is_failure(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "fail") && self.suppressions.is_empty()
    }

    /// Returns the level of the result, or of its rule, or the default of the format.
    fn level<'a>(&'a self, run: &'a SarifRun) -> &'a str {
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
        // Replace line and column numbers, because they change.
        let message =
            message.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty());
        let message = message.collect::<Vec<_>>().join("#");
        normalize_name(&format!("{rule}: {}: {message}", uri.map_or("", String::as_str)), checkout)
    }
}

/// Removes the path of the checkout from a name and limits its length.
fn normalize_name(name: &str, checkout: &Path) -> String {
    let checkout = checkout.display().to_string();
    let name =
        name.replace(&format!("file://{checkout}/"), "").replace(&format!("{checkout}/"), "");
    let end = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(|at| name.is_char_boundary(*at));
    let name = name[..end.unwrap_or_default()].replace('\0', "\u{fffd}");
    sanitize::text(&name).into_owned()
}

#[cfg(test)]
mod tests;
