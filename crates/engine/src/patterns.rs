//! Prohibited code: ast-grep rules, applied to the files of a commit.
//!
//! A rule is applied to the whole file, because a single line cannot be parsed. Matches count only
//! if they touch a line that the change adds. Patterns for single lines are in
//! [`tamma_core::review::patterns`].

use std::str::FromStr as _;

use ast_grep_config::{DeserializeEnv, RuleCore, SerializableRuleCore};
use ast_grep_core::Language as _;
use ast_grep_core::matcher::Pattern;
use ast_grep_core::tree_sitter::LanguageExt as _;
use ast_grep_language::SupportLang;
use globset::{Glob, GlobSet, GlobSetBuilder};
use tamma_core::issue::Issue;
use tamma_core::review::patterns::{pattern_issue, undecidable_issue};
use tamma_core::rules::{PatternRule, ReviewRules};

/// Error in a rule.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unsupported language.
    #[error("unsupported language `{0}`")]
    Language(String),
    /// Neither a pattern of the language nor a rule in YAML.
    #[error("invalid ast-grep pattern or rule: {0}")]
    Rule(String),
}

/// Compiled code patterns of a project.
pub struct CodePatterns<'a> {
    patterns: Vec<CodePattern<'a>>,
    invalid: Vec<Issue>,
}

struct CodePattern<'a> {
    name: &'a str,
    pattern: &'a PatternRule,
    paths: GlobSet,
    /// Matchers, one for each grammar of the language.
    matchers: Vec<(SupportLang, RuleCore)>,
}

impl<'a> CodePatterns<'a> {
    /// Compiles the patterns that have `code`.
    pub fn from_rules(rules: &'a ReviewRules) -> Self {
        let mut all = Self { patterns: Vec::new(), invalid: Vec::new() };
        for (name, pattern) in &rules.patterns {
            match CodePattern::compile(name, pattern) {
                Ok(rule) => all.patterns.extend(rule),
                Err(error) => all.invalid.push(undecidable_issue(name, &error.to_string())),
            }
        }
        all
    }

    /// Returns issues for patterns that could not be compiled. They prevent a review from passing.
    pub fn invalid(&self) -> &[Issue] {
        &self.invalid
    }

    /// Returns `true` if any pattern applies to a file, so that its content is needed.
    pub fn applies_to(&self, path: &str) -> bool {
        let language = SupportLang::from_path(path);
        self.patterns.iter().any(|rule| rule.matcher(path, language).is_some())
    }

    /// Returns issues in the lines that a change adds to a file.
    pub fn issues(&self, path: &str, text: &str, added: &[(u32, String)]) -> Vec<Issue> {
        let Some(language) = SupportLang::from_path(path) else { return Vec::new() };
        let tree = language.ast_grep(text);
        let mut issues = Vec::new();
        for rule in &self.patterns {
            let Some(matcher) = rule.matcher(path, Some(language)) else { continue };
            for node in tree.root().find_all(matcher) {
                let number = |line: usize| u32::try_from(line + 1).unwrap_or(u32::MAX);
                let lines = number(node.start_pos().line())..=number(node.end_pos().line());
                let Some((line, _)) = added.iter().find(|(line, _)| lines.contains(line)) else {
                    continue;
                };
                let text = node.text();
                let first: String =
                    text.lines().next().unwrap_or_default().chars().take(80).collect();
                issues.push(pattern_issue(rule.name, rule.pattern, path, *line, &first));
            }
        }
        issues.sort_by_key(|issue| issue.line);
        issues.dedup();
        issues
    }
}

impl<'a> CodePattern<'a> {
    fn compile(name: &'a str, pattern: &'a PatternRule) -> Result<Option<Self>, Error> {
        let Some(code) = &pattern.code else { return Ok(None) };
        let language = pattern.language.as_deref().unwrap_or_default();
        let language =
            SupportLang::from_str(language).map_err(|_| Error::Language(language.to_owned()))?;
        // TypeScript has a second grammar for TSX.
        let languages = match language {
            SupportLang::TypeScript => vec![SupportLang::TypeScript, SupportLang::Tsx],
            language => vec![language],
        };
        let matchers = languages
            .into_iter()
            .map(|language| Ok((language, matcher(code, language)?)))
            .collect::<Result<_, Error>>()?;
        // Globs were validated when the rules were loaded.
        let mut paths = GlobSetBuilder::new();
        for glob in pattern.paths.iter().filter_map(|glob| Glob::new(glob).ok()) {
            paths.add(glob);
        }
        let paths = paths.build().unwrap_or_default();
        Ok(Some(Self { name, pattern, paths, matchers }))
    }

    fn matcher(&self, path: &str, language: Option<SupportLang>) -> Option<&RuleCore> {
        if !self.paths.is_empty() && !self.paths.is_match(path) {
            return None;
        }
        self.matchers.iter().find(|(it, _)| Some(*it) == language).map(|(_, matcher)| matcher)
    }
}

/// Compiles a pattern, or a rule in YAML.
fn matcher(code: &str, language: SupportLang) -> Result<RuleCore, Error> {
    // A rule is a map with keys of ast-grep. A pattern that parses as a map has none of them.
    let rule: Option<serde_json::Value> = ast_grep_config::from_str(code).ok();
    let rule_keys = [
        "pattern", "kind", "regex", "nthChild", "range", "inside", "has", "precedes", "follows",
        "all", "any", "not", "matches",
    ];
    let is_rule = |value: &serde_json::Value| {
        value.as_object().is_some_and(|map| map.keys().any(|key| rule_keys.contains(&key.as_str())))
    };
    let rule = match rule.filter(is_rule) {
        Some(rule) => rule,
        // The pattern would be accepted, but never match.
        None if Pattern::try_new(code, language).is_ok_and(|pattern| pattern.has_error()) => {
            return Err(Error::Rule(format!("`{code}` is not valid {language}")));
        }
        None => serde_json::json!({ "pattern": code }),
    };
    let rule_error = |error: &dyn std::error::Error| {
        let mut reasons = vec![error.to_string()];
        let mut source = error.source();
        while let Some(error) = source {
            reasons.push(error.to_string());
            source = error.source();
        }
        Error::Rule(reasons.join(" "))
    };
    let rule: SerializableRuleCore = serde_json::from_value(serde_json::json!({ "rule": rule }))
        .map_err(|error| rule_error(&error))?;
    let matcher =
        rule.get_matcher(DeserializeEnv::new(language)).map_err(|error| rule_error(&error))?;
    Ok(matcher)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::operator::OperatorConfig;

    use super::*;

    fn rules(pattern: &str) -> ReviewRules {
        let text = format!("review:\n  patterns:\n    p:\n      message: no\n{pattern}");
        let file = tamma_core::rules::ConfigFile { name: "tamma.yaml", text: &text };
        let loaded =
            tamma_core::rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default());
        loaded.expect("rules").rules.review
    }

    fn issues_in(pattern: &str, path: &str, text: &str, added: &[u32]) -> Vec<(u32, String)> {
        let rules = rules(pattern);
        let patterns = CodePatterns::from_rules(&rules);
        assert_eq!(patterns.invalid(), []);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let added: Vec<_> =
            added.iter().map(|&line| (line, lines[line as usize - 1].clone())).collect();
        let issues = patterns.issues(path, text, &added);
        issues.into_iter().map(|it| (it.line.expect("a line"), it.message)).collect()
    }

    const UNWRAP: &str = "      code: $A.unwrap()\n      language: rust\n";
    const RUST: &str = "fn a() {\n    // x.unwrap() in words\n    let b = c\n        .d()\n        \
                        .unwrap();\n    let e = \"f.unwrap()\";\n    g.unwrap();\n}\n";

    #[test]
    fn code_is_found_only_in_code_on_added_lines() {
        // Excludes comments, strings and lines that existed before.
        let all = issues_in(UNWRAP, "src/a.rs", RUST, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(all.iter().map(|it| it.0).collect::<Vec<_>>(), [3, 7]);
        assert_eq!(all[1].1, "`p` is prohibited here: no (found: `g.unwrap()`)");
        assert_eq!(issues_in(UNWRAP, "src/a.rs", RUST, &[5]).len(), 1, "partly added");
        assert_eq!(issues_in(UNWRAP, "src/a.rs", RUST, &[2, 6, 8]), []);
        assert_eq!(issues_in(UNWRAP, "src/a.py", RUST, &[7]), [], "another language");
    }

    #[test]
    fn rule_can_be_written_in_yaml() {
        let rule = "      language: python\n      code: |\n        any:\n          - pattern: \
                    eval($$$)\n          - pattern: exec($$$)\n        not:\n          inside: { kind: \
                    class_definition, stopBy: end }\n";
        let text = "eval(x)\nexec(y)\nclass A:\n    def b(self):\n        eval(z)\nevaluate(x)\n";
        let lines: Vec<_> =
            issues_in(rule, "a.py", text, &[1, 2, 3, 4, 5, 6]).iter().map(|it| it.0).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn typescript_is_found_in_both_grammars_and_only_under_its_paths() {
        let rule =
            "      code: 'console.log($$$)'\n      language: typescript\n      paths: ['src/**']\n";
        let text =
            "export const a = (b: number): number => {\n  console.log(b);\n  return b;\n};\n";
        assert_eq!(issues_in(rule, "src/a.ts", text, &[2]).len(), 1);
        assert_eq!(issues_in(rule, "src/a.tsx", text, &[2]).len(), 1);
        assert_eq!(issues_in(rule, "test/a.ts", text, &[2]), []);
        assert_eq!(issues_in(rule, "src/a.ts", text, &[1, 3]), []);
    }

    #[test]
    fn every_supported_language_has_a_grammar() {
        for (language, path, text) in [
            ("go", "a.go", "package a\nfunc b() { c() }\n"),
            ("java", "A.java", "class A { void b() { c(); } }\n"),
            ("javascript", "a.js", "c();\n"),
            ("javascript", "a.mjs", "c();\n"),
            ("python", "a.py", "c()\n"),
            ("rust", "a.rs", "fn b() { c() }\n"),
            ("tsx", "a.tsx", "c();\n"),
            ("typescript", "a.ts", "c();\n"),
        ] {
            let rule = format!("      code: c()\n      language: {language}\n");
            let last = u32::try_from(text.lines().count()).expect("few");
            assert_eq!(issues_in(&rule, path, text, &[last]).len(), 1, "{language}: {path}");
        }
    }

    #[test]
    fn invalid_pattern_is_reported_as_an_issue() {
        for code in ["      code: 'fn (('\n", "      code: 'kind: no_such_kind'\n"] {
            let rules = rules(&format!("{code}      language: rust\n"));
            let patterns = CodePatterns::from_rules(&rules);
            let [issue] = patterns.invalid() else { panic!("{code}: {:?}", patterns.invalid()) };
            assert!(issue.message.contains("pattern `p` cannot be evaluated"), "{issue:?}");
        }
    }
}
