//! Section 13: `tamma.yaml`, its variables, the environment, and messages about problems.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tamma_core::level::RiskLevel;
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::{
    self, ChannelType, ConfigFile, ConfigProblem, ConfigProblems, DeliveryMode, LoadedRules, Rules,
    VARIABLES, ValueOrigin, VariableTarget,
};

const SCHEMA: &str = include_str!("../../../../../docs/reference/tamma.schema.json");
const REFERENCE: &str = include_str!("../../../../../docs/reference/configuration.md");
const EXAMPLE: &str = include_str!("../../../../../examples/tamma.yaml");

/// File of a founding document, unchanged.
const SEEDS: &str = include_str!("../../fixtures/founding/implementation-plan.yaml");

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(text: &str, pairs: &[(&str, &str)]) -> Result<LoadedRules, ConfigProblems> {
    let file = ConfigFile { name: "tamma.yaml", text };
    rules::load(Some(file), &variables(pairs), &operator())
}

/// Operator who lets projects use some variables.
fn operator() -> OperatorConfig {
    let names = ["A", "B", "COUNT", "EMPTY", "HOOK_URL", "NAME", "NOT_THERE", "SECRET", "TWO"];
    OperatorConfig { variables: names.map(str::to_owned).to_vec(), ..OperatorConfig::default() }
}

fn problems(text: &str, pairs: &[(&str, &str)]) -> Vec<ConfigProblem> {
    load(text, pairs).unwrap_err().iter().cloned().collect()
}

/// Returns the only problem of a file: code, line, column, message and help.
fn only_problem(text: &str) -> (&'static str, usize, usize, String, String) {
    let problems = problems(text, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let (problem, location) = (&problems[0], problems[0].location().unwrap());
    let help = problem.fault.help().unwrap_or_default();
    (problem.fault.code(), location.line, location.column, problem.to_string(), help)
}

fn at(loaded: &LoadedRules, path: &str) -> Value {
    loaded.settings().into_iter().find(|setting| setting.path == path).unwrap().value
}

#[rstest]
#[case("")]
#[case("# nothing but a comment\n")]
#[case("---\n")]
#[case("scrum_master:\n  # all commented out\n")]
fn an_empty_file_means_the_defaults(#[case] text: &str) {
    assert_eq!(load(text, &[]).unwrap().rules, Rules::default());
}

#[test]
fn no_file_means_the_defaults() {
    assert_eq!(rules::load(None, &BTreeMap::new(), &operator()).unwrap().rules, Rules::default());
}

#[rstest]
#[case("task_loop.max_retries", json!(3))]
#[case("task_loop.auto_approve_low_risk", json!(true))]
#[case("task_loop.require_approval_high_risk", json!(true))]
#[case("task_loop.timeout_ms", json!(3_600_000))]
#[case("task_loop.progress_update_interval_ms", json!(30_000))]
#[case("risk_thresholds.low.max_files", json!(5))]
#[case("risk_thresholds.low.max_complexity", json!("low"))]
#[case("risk_thresholds.low.max_estimated_cost_usd", json!(1.0))]
#[case("risk_thresholds.medium.max_files", json!(10))]
#[case("risk_thresholds.medium.max_complexity", json!("medium"))]
#[case("risk_thresholds.medium.max_estimated_cost_usd", json!(5.0))]
#[case("learning_capture.capture_success", json!(true))]
#[case("learning_capture.capture_failure", json!(true))]
#[case("learning_capture.require_approval", json!(true))]
#[case("learning_capture.min_relevance_score", json!(0.7))]
#[case("alerts.on_block", json!(true))]
#[case("alerts.on_max_retries", json!(true))]
#[case("alerts.on_approval_needed", json!(true))]
#[case("alerts.on_review_failed", json!(true))]
#[case("alerts.channels[0].type", json!("cli"))]
#[case("alerts.channels[0].enabled", json!(true))]
#[case("user_interaction.proactive_updates", json!(true))]
#[case("user_interaction.update_interval_seconds", json!(30))]
#[case("user_interaction.auto_timeout_minutes", json!(60))]
fn every_key_of_the_seeds_exists_with_its_default(#[case] key: &str, #[case] value: Value) {
    let path = format!("scrum_master.{key}");
    assert_eq!(at(&load("", &[]).unwrap(), &path), value);
    let both = [("TAMMA_ALERT_WEBHOOK_URL", "https://x"), ("TAMMA_ALERT_SLACK_CHANNEL", "#x")];
    let from_file = load(SEEDS, &both).unwrap();
    assert_eq!(at(&from_file, &path), value);
    assert!(matches!(from_file.origin(&path), ValueOrigin::File(_)));
}

#[test]
fn a_file_is_merged_over_the_defaults_key_by_key() {
    let text = "scrum_master: {risk_thresholds: {low: {max_files: 3}}}";
    let mut expected = Rules::default();
    expected.scrum_master.risk_thresholds.low.max_files = 3;
    assert_eq!(load(text, &[]).unwrap().rules, expected);
}

#[test]
fn a_list_replaces_the_whole_list() {
    let loaded = load("scrum_master: {risk_thresholds: {critical_files: [a/**]}}", &[]).unwrap();
    assert_eq!(loaded.rules.scrum_master.risk_thresholds.critical_files, ["a/**"]);
}

#[test]
fn null_removes_a_limit() {
    assert_eq!(load("budget: {task_usd: null}", &[]).unwrap().rules.budget.task_usd, None);
}

#[test]
fn a_misspelt_key_is_reported_with_line_column_and_correction() {
    let text = "scrum_master:\n  task_loop:\n    max_retrys: 5\n";
    assert_eq!(
        only_problem(text),
        (
            "unknown_key",
            3,
            5,
            "unknown key `max_retrys` in `scrum_master.task_loop`".to_owned(),
            "did you mean `max_retries`?".to_owned(),
        )
    );
}

#[test]
fn an_unknown_key_is_reported_with_the_valid_keys() {
    let (code, line, column, _, help) = only_problem("weather: sunny\n");
    assert_eq!((code, line, column), ("unknown_key", 1, 1));
    assert_eq!(
        help,
        "use one of `scrum_master`, `tiers`, `agents`, `roles`, `prompts`, `checkout`, `setup`, `gates`, `review`, `council`, \
         `pipelines`, `delivery`, `engines`, `permissions`, `people`, `budget`, `ceremony`, `prices`, `task_loop`"
    );
}

#[test]
fn several_problems_are_reported_in_one_run() {
    let text = "\
scrum_master:
  task_loop:
    max_retrys: 5
    timeout_ms: 12
  alerts:
    channels:
      - type: webhook
        config:
          url: ${HOOK_URL}
";
    let codes: Vec<_> = problems(text, &[])
        .iter()
        .map(|problem| {
            let location = problem.location().unwrap();
            (problem.fault.code(), location.line, location.column)
        })
        .collect();
    assert_eq!(
        codes,
        [("unknown_key", 3, 5), ("out_of_range", 4, 17), ("undefined_variable", 9, 16),]
    );
}

#[rstest]
// Values that are too large, too small or too short.
#[case("budget: {warn_percent: 101}", "out_of_range", 24, "use an integer from 1 to 100")]
#[case(
    "budget: {task_usd: -1}",
    "out_of_range",
    20,
    "use a number from 0 to 1000000000, or `null`"
)]
#[case("tiers: {simple: {model: \"\"}}", "out_of_range", 25, "use a string of 1 to 100 characters")]
// Values of the wrong type.
#[case("budget: {warn_percent: \"80\"}", "wrong_type", 24, "write it without quotes: `80`")]
#[case("budget: {warn_percent: 8.5}", "wrong_type", 24, "")]
#[case("tiers: {simple: {model: 4}}", "wrong_type", 25, "put the value in quotes")]
#[case("ceremony: {low: {human_review: yes}}", "wrong_type", 32, "write `true`")]
#[case("ceremony: {low: {gates: lint}}", "wrong_type", 25, "write a list with one item: `[lint]`")]
#[case("ceremony: {low: {approvers: ~}}", "wrong_type", 29, "remove the key to use the default")]
#[case("budget: 3", "wrong_type", 9, "put its keys on separate, indented lines below it")]
#[case("just words", "wrong_type", 1, "put its keys on separate, indented lines below it")]
// Values that are not one of the choices.
#[case(
    "ceremony: {low: {first_tier: complx}}",
    "unknown_choice",
    30,
    "did you mean `complex`? Use one of `simple`, `moderate`, `complex`"
)]
#[case(
    "ceremony: {low: {first_tier: gigantic}}",
    "unknown_choice",
    30,
    "use one of `simple`, `moderate`, `complex`"
)]
// Duplicate and missing keys.
#[case("budget: {task_usd: 1, task_usd: 2}", "duplicate_key", 23, "remove one of them")]
#[case(
    "scrum_master: {alerts: {channels: [{enabled: true}]}}",
    "missing_key",
    36,
    "add `type`: one of `cli`, `webhook`, `slack`, `email`, `desktop`"
)]
#[case(
    "prices: {opus: {input: 1, output: 2}}",
    "missing_key",
    16,
    "add `cached`: a number from 0 to 1000000000"
)]
#[case(
    "gates: {test: {kind: tests}}",
    "missing_key",
    15,
    "add `command`: a string of 1 to 10000 characters"
)]
#[case(
    "agents: {goose: {args: [acp]}}",
    "missing_key",
    17,
    "add `command`: program to start, such as `goose`"
)]
#[case(
    "agents: {codex: {command: \"\"}}",
    "out_of_range",
    27,
    "use a string of 1 to 1000 characters"
)]
#[case("engines: {slots: 0}", "out_of_range", 18, "use an integer from 1 to 1000")]
#[case(
    "gates: {t: {command: x, kind: test}}",
    "unknown_choice",
    31,
    "did you mean `tests`? Use one of `tests`, `types`, `lint`, `security`, `secrets`, \
     `format`, `build`, `command`"
)]
// Undefined references.
#[case(
    "tiers: {simple: {agent: claude_cod}}",
    "unknown_name",
    25,
    "did you mean `claude-code`? Otherwise, add it to `agents`"
)]
#[case(
    "tiers: {complex: {agent: goose}}",
    "unknown_name",
    26,
    "add it to `agents`, or use one of `claude-code`, `codex`, `gemini`, `opencode`"
)]
#[case(
    "ceremony: {high: {gates: [fuzz]}}",
    "unknown_name",
    27,
    "add it to `gates`, which is empty"
)]
// Invalid names.
#[case("gates: {a b: {command: x}}", "refused", 14, "")]
#[case("agents: {\"\": {command: x}}", "refused", 14, "")]
#[case("agents: {codex: {env: {\"A=B\": x}}}", "refused", 23, "")]
#[case("engines: {readable: [cache]}", "refused", 22, "")]
#[case("engines: {readable: [/]}", "refused", 22, "")]
#[case("permissions: {planner: {allow: [cargo]}}", "refused", 33, "")]
#[case("permissions: {council: {deny: ['write: ../x']}}", "refused", 32, "")]
// Checks of the types.
#[case("scrum_master: {risk_thresholds: {critical_files: [\"a[\"]}}", "refused", 51, "")]
#[case("scrum_master: {task_loop: {require_approval_high_risk: false}}", "refused", 56, "")]
#[case("scrum_master: {learning_capture: {require_approval: false}}", "refused", 53, "")]
// Invalid YAML, or more than one document.
#[case("budget: [", "syntax", 9, "")]
#[case("a: *nowhere", "syntax", 4, "")]
// Malformed variable references.
#[case(
    "tiers: {simple: {model: \"${a b}\"}}",
    "broken_variable",
    25,
    "write `${NAME}` or `${NAME:-fallback}`; for a literal `${`, write `$${`"
)]
fn each_mistake_is_told_with_its_place_and_what_would_be_right(
    #[case] text: &str,
    #[case] code: &str,
    #[case] column: usize,
    #[case] help: &str,
) {
    let problem = only_problem(text);
    assert_eq!((problem.0, problem.1, problem.2, problem.4.as_str()), (code, 1, column, help));
}

#[test]
fn a_risk_level_can_have_its_own_delivery_mode() {
    let text = "delivery: {mode: pull_request, by_risk: {low: merge}}";
    let delivery = load(text, &[]).unwrap().rules.delivery;
    assert_eq!(delivery.mode_for(RiskLevel::Low), DeliveryMode::Merge);
    assert_eq!(delivery.mode_for(RiskLevel::High), DeliveryMode::PullRequest);
}

#[test]
fn a_second_document_is_refused() {
    let (code, line, ..) = only_problem("budget: {}\n---\nbudget: {}\n");
    assert_eq!((code, line), ("syntax", 3));
}

#[test]
fn a_variable_in_braces_without_quotes_is_explained() {
    let (code, .., help) = only_problem("tiers: {simple: {model: ${MODEL}, agent: a}}");
    assert_eq!(code, "syntax");
    assert!(help.contains("in quotes"), "{help}");
}

#[test]
fn variables_are_expanded_with_fallbacks_and_escapes() {
    let text = "\
tiers:
  complex: {model: 'costs $5'}
budget: {task_usd: null}
agents:
  codex:
    command: '$${NAME}'
    args: ['x$']
    env:
      ONE: 'a-${NAME}'
      TWO: '${NOT_THERE:-sonnet}'
      THREE: '${EMPTY:-claude}-${COUNT}'
";
    let pairs = [("NAME", "haiku"), ("EMPTY", ""), ("COUNT", "2")];
    let rules = load(text, &pairs).unwrap().rules;
    assert_eq!(rules.tiers.complex.model, "costs $5");
    let codex = &rules.agents["codex"];
    assert_eq!((codex.command.as_str(), &codex.args[..]), ("${NAME}", &["x$".to_owned()][..]));
    let values = ["ONE", "TWO", "THREE"].map(|name| codex.env[name].as_str());
    assert_eq!(values, ["a-haiku", "sonnet", "claude-2"]);
}

#[test]
fn the_value_of_a_variable_is_never_shown() {
    let text = "\
scrum_master:
  alerts:
    channels: [{type: webhook, config: {url: 'https://x/${SECRET}', secret: '${TWO}'}}]
";
    let pairs = [
        ("SECRET", " hush"),
        ("TWO", "hush"),
        ("TAMMA_SCRUM_MASTER_MAX_RETRIES", "hush"),
        ("TAMMA_SCRUM_MASTER_AUTO_APPROVE_LOW_RISK", "hush"),
        ("TAMMA_ENGINES_SANDBOX", "hush"),
    ];
    let refused = load(text, &pairs).unwrap_err();
    let codes: Vec<_> = refused.iter().map(|problem| problem.fault.code()).collect();
    assert_eq!(codes, ["not_allowed", "unknown_choice", "wrong_type", "wrong_type"]);
    for problem in refused.iter() {
        let all = format!("{problem} {problem:?} {:?}", problem.fault.help());
        assert!(!all.contains("hush"), "{all}");
    }

    let text = "\
scrum_master:
  alerts:
    channels: [{type: webhook, config: {url: 'https://x/${SECRET}'}}]
";
    let pairs = [
        ("SECRET", "hush"),
        ("TAMMA_ALERT_SLACK_CHANNEL", "hush"),
        ("TAMMA_ALERT_SLACK_TOKEN", "hush"),
    ];
    let loaded = load(text, &pairs).unwrap();
    assert!(!format!("{:?}", loaded.settings()).contains("hush"));
    assert_eq!(
        at(&loaded, "scrum_master.alerts.channels[0].config.url"),
        json!("https://x/${SECRET}")
    );
}

#[test]
fn the_environment_overrides_the_file() {
    let text = "scrum_master:\n  task_loop:\n    max_retries: 1\n    max_iterations: 4\n";
    let name = "TAMMA_SCRUM_MASTER_MAX_RETRIES";
    let loaded = load(text, &[(name, "7")]).unwrap();
    assert_eq!(loaded.rules.scrum_master.task_loop.max_retries, 7);
    assert_eq!(loaded.rules.scrum_master.task_loop.max_iterations, 4);
    let path = "scrum_master.task_loop.max_retries";
    assert_eq!(*loaded.origin(path), ValueOrigin::Variable { name: name.to_owned() });
    assert_eq!(*loaded.origin("budget.task_usd"), ValueOrigin::Default);
}

#[test]
fn seeds_variable_names_work() {
    let rules = load(
        "",
        &[
            ("TAMMA_SCRUM_MASTER_MAX_RETRIES", "5"),
            ("TAMMA_SCRUM_MASTER_AUTO_APPROVE_LOW_RISK", "false"),
            ("TAMMA_SCRUM_MASTER_TIMEOUT_MS", "60000"),
            ("TAMMA_ALERT_WEBHOOK_URL", "https://hooks.example.com/tamma"),
            ("TAMMA_ALERT_SLACK_CHANNEL", "#tamma-alerts"),
            ("TAMMA_ALERT_SLACK_TOKEN", "xoxb-1"),
        ],
    )
    .unwrap()
    .rules;
    assert_eq!(rules.scrum_master.task_loop.max_retries, 5);
    assert!(!rules.scrum_master.task_loop.auto_approve_low_risk);
    assert_eq!(rules.scrum_master.task_loop.timeout_ms, 60_000);
    let channels = &rules.scrum_master.alerts.channels;
    let kinds: Vec<_> = channels.iter().map(|channel| channel.r#type).collect();
    assert_eq!(kinds, [ChannelType::Cli, ChannelType::Webhook, ChannelType::Slack]);
    assert_eq!(channels[1].config["url"], "https://hooks.example.com/tamma");
    assert_eq!(channels[2].config["channel"], "#tamma-alerts");
    assert!(channels.iter().all(|channel| channel.enabled));
}

#[test]
fn a_variable_enables_its_channel_unless_the_file_disables_it() {
    let text = "scrum_master: {alerts: {channels: [{type: slack, config: {token: t}}]}}";
    let loaded = load(text, &[("TAMMA_ALERT_SLACK_CHANNEL", "b")]).unwrap();
    assert!(loaded.rules.scrum_master.alerts.channels[0].enabled);

    let text = "\
scrum_master:
  alerts:
    channels: [{type: slack, enabled: false, config: {channel: a, as: bot}}]
";
    let loaded = load(text, &[("TAMMA_ALERT_SLACK_CHANNEL", "b")]).unwrap();
    let channels = &loaded.rules.scrum_master.alerts.channels;
    assert_eq!(channels.len(), 1);
    assert!(!channels[0].enabled);
    assert_eq!(channels[0].config, variables(&[("channel", "b"), ("as", "bot")]));
}

#[rstest]
#[case::webhook_without_secret("{type: webhook, config: {url: 'https://x'}}", None)]
#[case::webhook_without_url("{type: webhook}", Some("has no `url`"))]
#[case::slack_webhook("{type: slack, config: {url: 'https://x'}}", None)]
#[case::slack_bot("{type: slack, config: {channel: '#a', token: t}}", None)]
#[case::slack_channel_alone(
    "{type: slack, config: {channel: '#a'}}",
    Some("TAMMA_ALERT_SLACK_TOKEN")
)]
#[case::slack_token_alone("{type: slack, config: {token: t}}", Some("has no `url`"))]
#[case::incomplete_email(
    "{type: email, config: {smtp: 'smtp://h', to: 'a@b.c'}}",
    Some("has no `from`")
)]
#[case::unused_setting("{type: cli, config: {url: 'https://x'}}", Some("does not use `url`"))]
#[case::disabled("{type: slack, enabled: false, config: {channel: '#a'}}", None)]
fn an_enabled_channel_can_deliver_or_is_refused(
    #[case] channel: &str,
    #[case] expected: Option<&str>,
) {
    let text = format!("scrum_master: {{alerts: {{channels: [{channel}]}}}}");
    match (load(&text, &[]), expected) {
        (Ok(_), None) => {}
        (Err(problems), Some(expected)) => {
            let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
            assert!(all.iter().any(|it| it.contains(expected)), "{all:?}");
        }
        (loaded, _) => panic!("{expected:?}: {loaded:?}"),
    }
}

#[test]
fn a_variable_that_cannot_deliver_is_named() {
    let problem = problems("", &[("TAMMA_ALERT_SLACK_CHANNEL", "#tamma-alerts")]).remove(0);
    assert_eq!(problem.variable(), Some("TAMMA_ALERT_SLACK_CHANNEL"), "{problem:?}");
}

#[test]
fn the_configuration_and_the_variables_of_the_founding_documents_are_accepted() {
    let loaded = load(
        SEEDS,
        &[
            ("TAMMA_ALERT_WEBHOOK_URL", "https://hooks.example.com/tamma"),
            ("TAMMA_ALERT_SLACK_CHANNEL", "#tamma-alerts"),
        ],
    )
    .unwrap();
    let channels = &loaded.rules.scrum_master.alerts.channels;
    let enabled = channels.iter().map(|channel| (channel.r#type, channel.enabled));
    let expected =
        [(ChannelType::Cli, true), (ChannelType::Webhook, true), (ChannelType::Slack, false)];
    assert!(enabled.eq(expected));
    assert!(channels.iter().filter(|it| it.enabled).all(|it| it.problem().is_none()));
}

#[test]
fn an_invalid_variable_is_reported_with_its_name_and_the_expected_value() {
    let pairs = [("TAMMA_SCRUM_MASTER_MAX_RETRIES", "many"), ("TAMMA_BUDGET_TASK_USD", "-2")];
    let problems = problems("weather: 1", &pairs);
    let codes: Vec<_> =
        problems.iter().map(|problem| (problem.fault.code(), problem.variable())).collect();
    assert_eq!(
        codes,
        [
            ("unknown_key", None),
            ("out_of_range", Some("TAMMA_BUDGET_TASK_USD")),
            ("wrong_type", Some("TAMMA_SCRUM_MASTER_MAX_RETRIES")),
        ]
    );
    assert_eq!(
        problems[2].to_string(),
        "`scrum_master.task_loop.max_retries` must be an integer from 0 to 10, \
         not the value of `TAMMA_SCRUM_MASTER_MAX_RETRIES`"
    );
}

#[test]
fn a_misspelt_variable_is_reported_with_the_correction() {
    let problems = problems("", &[("TAMMA_SCRUM_MASTER_MAXRETRIES", "3")]);
    assert_eq!(problems[0].fault.code(), "unknown_variable");
    assert_eq!(problems[0].fault.help().unwrap(), "did you mean `TAMMA_SCRUM_MASTER_MAX_RETRIES`?");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let loaded = load("", &[("TAMMA_SCRUM_MASTER_MAX_RETRIES", "")]).unwrap();
    assert_eq!(loaded.rules, Rules::default());
}

#[test]
fn every_variable_overrides_its_setting() {
    for variable in VARIABLES {
        let VariableTarget::Key(path) = variable.target else {
            continue;
        };
        let value = match at(&load("", &[]).unwrap(), path) {
            Value::Bool(value) => (!value).to_string(),
            Value::String(_) => "other".to_owned(),
            _ => "1001".to_owned(),
        };
        // The number may be out of range, but then the problem must name the path.
        match load("", &[(variable.name, &value)]) {
            Ok(loaded) => assert_ne!(*loaded.origin(path), ValueOrigin::Default, "{path}"),
            Err(problems) => assert!(problems.to_string().contains(path), "{problems}"),
        }
    }
}

#[test]
fn the_example_has_every_key_at_its_default() {
    let loaded = load(EXAMPLE, &[]).unwrap();
    assert_eq!(loaded.rules, Rules::default());
    for setting in loaded.settings() {
        // The settings of built-in agents are in their own files and are not repeated in the
        // example.
        if setting.path.starts_with("agents.") {
            continue;
        }
        assert_ne!(setting.origin, ValueOrigin::Default, "{} is not in the example", setting.path);
    }
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let current: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
    assert!(
        current == rules::schema(),
        "docs/reference/tamma.schema.json is out of date; run: just gen"
    );
}

#[test]
fn the_reference_in_the_repository_is_current() {
    assert!(
        REFERENCE == rules::reference(),
        "docs/reference/configuration.md is out of date; run: just gen"
    );
}

#[test]
fn the_schema_and_the_loader_agree() {
    let schema = rules::schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let is_valid = |value: Value| validator.is_valid(&value);
    assert!(is_valid(json!({})));
    assert!(is_valid(
        json!({ "scrum_master": { "risk_thresholds": { "low": { "max_files": 3 } } } })
    ));
    assert!(is_valid(json!({ "budget": { "task_usd": null } })));
    assert!(!is_valid(json!({ "budget": { "task_usd": -1 } })));
    assert!(!is_valid(json!({ "weather": 1 })));
    assert!(!is_valid(json!({ "scrum_master": { "alerts": { "channels": [{}] } } })));
    assert!(!is_valid(json!({ "prices": { "opus": { "input": 1 } } })));
}

#[test]
fn every_default_in_the_schema_is_valid() {
    fn check(root: &Value, schema: &Value) {
        if let (Some(default), Some(map)) = (schema.get("default"), schema.as_object()) {
            let mut alone = map.clone();
            alone.insert("$defs".to_owned(), root["$defs"].clone());
            let validator = jsonschema::validator_for(&Value::Object(alone)).unwrap();
            assert!(validator.is_valid(default), "{schema}");
        }
        match schema {
            Value::Object(map) => map.values().for_each(|inner| check(root, inner)),
            Value::Array(list) => list.iter().for_each(|inner| check(root, inner)),
            _ => {}
        }
    }
    let schema = rules::schema();
    check(&schema, &schema);
}

/// Text similar to a configuration: our words and YAML punctuation in any order.
fn nearly_yaml() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        "[a-z_]{1,8}",
        "-?[0-9]{1,30}",
        prop::sample::select(vec![
            "scrum_master",
            "task_loop",
            "max_retries",
            "alerts",
            "channels",
            "budget",
            "prices",
            "task_usd",
            "critical_files",
            "ceremony",
            "tiers",
            "simple",
            "type",
            "webhook",
            ": ",
            ":\n  ",
            ":\n    ",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            ", ",
            "${A}",
            "${B:-",
            "${",
            "$${",
            "}",
            "&x ",
            "*x",
            "<<: ",
            "!!int ",
            "? ",
            "|\n",
            ">-\n",
            "\"",
            "'",
            "#",
            "~",
            "null",
            "true",
            "1e999",
            ".nan",
            "---\n",
            "...",
            "\t",
            "é",
            "\u{0}",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in any::<String>(), value in any::<String>()) {
        let _ = load(&text, &[("A", &value), ("TAMMA_SCRUM_MASTER_MAX_RETRIES", &value)]);
    }

    #[test]
    fn no_yaml_like_text_makes_the_loader_panic(text in nearly_yaml(), value in any::<String>()) {
        match load(&text, &[("A", &value), ("TAMMA_ALERT_WEBHOOK_URL", &value)]) {
            Ok(loaded) => drop(loaded.settings()),
            Err(problems) => {
                prop_assert!(problems.len() > 0);
                for problem in problems.iter() {
                    let location = problem.location();
                    prop_assert!(location.is_none_or(|at| at.line > 0 && at.column > 0));
                    let _ = (problem.to_string(), problem.fault.help());
                }
            }
        }
    }

    #[test]
    fn any_number_is_accepted_or_reported(number in any::<i64>()) {
        let text = format!("scrum_master:\n  task_loop:\n    max_iterations: {number}\n");
        match load(&text, &[]) {
            Ok(loaded) => prop_assert_eq!(
                i64::from(loaded.rules.scrum_master.task_loop.max_iterations), number
            ),
            Err(problems) => {
                prop_assert!(!(1..=100).contains(&number));
                let codes: Vec<_> = problems.iter().map(|one| one.fault.code()).collect();
                prop_assert_eq!(codes, ["out_of_range"]);
            }
        }
    }
}

#[test]
fn all_problems_can_be_printed_on_one_line() {
    let problems = load("weather: 1\nbudget:\n  warn_percent: 0\n", &[]).unwrap_err();
    let text = problems.to_string();
    assert!(text.starts_with("1:1: unknown key `weather`"), "{text}");
    assert!(text.contains("; 3:17: `budget.warn_percent` cannot be 0"), "{text}");
}

#[test]
fn user_defined_tables_are_shown_with_amounts_as_numbers() {
    let settings = load("", &[]).unwrap().settings();
    assert!(settings.iter().any(|one| one.path == "prices" && one.value == json!({})));
    let text = "prices:\n  opus:\n    input: 1.5\n    cached: 0.5\n    output: 2\n";
    let settings = load(text, &[]).unwrap().settings();
    assert!(settings.iter().any(|one| one.path == "prices.opus.input" && one.value == json!(1.5)));
}
