//! Section 13: agents and gates in `tamma.yaml`, and independence of the policy version from
//! secrets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use tamma_core::gate::GateKind;
use tamma_core::level::RiskLevel;
use tamma_core::rules::{
    self, AgentRules, AlertChannel, ChannelType, ConfigFile, ConfigProblem, ConfigProblems,
    DeliveryMode, Effort, GateRules, LoadedRules, Rules, ValueOrigin,
};
use tamma_core::tier::Tier;

fn load(text: &str, pairs: &[(&str, &str)]) -> Result<LoadedRules, ConfigProblems> {
    let variables =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    rules::load(Some(ConfigFile { name: "tamma.yaml", text }), &variables)
}

fn problems(text: &str, pairs: &[(&str, &str)]) -> Vec<ConfigProblem> {
    load(text, pairs).unwrap_err().iter().cloned().collect()
}

#[rstest]
#[case("claude-code", "claude-agent-acp", "anthropic", "ANTHROPIC_API_KEY")]
#[case("codex", "codex-acp", "openai", "OPENAI_API_KEY")]
#[case("gemini", "gemini", "google", "GEMINI_API_KEY")]
#[case("opencode", "opencode", "openai", "OPENAI_API_KEY")]
fn the_well_known_agents_are_built_in(
    #[case] name: &str,
    #[case] command: &str,
    #[case] provider: &str,
    #[case] key: &str,
) {
    let agents = Rules::default().agents;
    assert_eq!(agents.len(), 4);
    let agent = &agents[name];
    let settings = (agent.command.as_str(), agent.provider.as_str(), agent.key.as_str());
    assert_eq!(settings, (command, provider, key));
    assert_eq!(agent.inherit, ["PATH", "HOME", "LANG", "TERM"]);
    assert!(agent.upstream.starts_with("https://"), "{}", agent.upstream);
    assert!(!agent.modes.look.is_empty() && !agent.modes.work.is_empty());
    assert!(!agent.home.is_empty());
    // The address of its models is always our gateway, with the run's own token.
    let all: Vec<_> = agent.env.values().chain(agent.files.values()).collect();
    for word in ["{{ url }}", "{{ token }}"] {
        assert!(all.iter().any(|text| text.contains(word)), "{name} does not use {word}");
    }
}

#[test]
fn built_in_agents_are_valid_user_configuration() {
    let rules = Rules::default();
    for (name, agent) in &rules.agents {
        let text = serde_saphyr::to_string(&json!({ "agents": { name: agent } })).unwrap();
        assert_eq!(load(&text, &[]).unwrap().rules, rules, "{name}");
    }
}

#[rstest]
#[case("files: {/etc/passwd: x}")]
#[case("files: {../.bashrc: x}")]
#[case("files: {a/../../b: x}")]
#[case("files: {a//b: x}")]
#[case("home: [..]")]
#[case("home: [/home/ann/.ssh]")]
fn files_of_an_agent_must_be_below_its_home(#[case] key: &str) {
    let problems = problems(&format!("agents: {{codex: {{{key}}}}}"), &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(problems[0].to_string().contains("below the home"), "{}", problems[0]);
}

#[test]
fn any_other_agent_is_defined_without_code() {
    let text = "\
agents:
  goose:
    command: goose
    args: [acp]
    provider: openai
    upstream: https://api.openai.com
    key: OPENAI_API_KEY
    env: {OPENAI_HOST: '{{ url }}', OPENAI_API_KEY: '{{ token }}'}
    files: {.config/goose/config.yaml: 'GOOSE_MODEL: {{ model }}'}
    home: [.config/goose]
    modes: {look: [chat], work: [approve]}
";
    let rules = load(text, &[]).unwrap().rules;
    let goose = &rules.agents["goose"];
    assert_eq!(goose.modes.look, ["chat"]);
    assert_eq!(goose.files[".config/goose/config.yaml"], "GOOSE_MODEL: {{ model }}");
    assert_eq!(goose.key, "OPENAI_API_KEY");
}

#[test]
fn the_version_covers_files_of_an_agent_but_not_its_variables() {
    let version = |text: &str| load(text, &[]).unwrap().rules.version();
    let default_version = version("");
    assert_ne!(version("agents: {codex: {files: {.codex/config.toml: x}}}"), default_version);
    assert_ne!(version("agents: {codex: {upstream: 'https://example.org'}}"), default_version);
    let with = |value: &str| version(&format!("agents: {{codex: {{env: {{A: {value}}}}}}}"));
    assert_eq!(with("one"), with("two"));
}

#[test]
fn an_agent_is_merged_over_the_built_in_one_key_by_key() {
    let text = "\
agents:
  opencode: {env: {OPENCODE_CONFIG: here.json}}
  goose: {command: goose, args: [acp]}
";
    let mut expected = Rules::default();
    let opencode = expected.agents.get_mut("opencode").unwrap();
    opencode.env.insert("OPENCODE_CONFIG".to_owned(), "here.json".to_owned());
    let goose = AgentRules {
        command: "goose".to_owned(),
        args: vec!["acp".to_owned()],
        ..AgentRules::default()
    };
    expected.agents.insert("goose".to_owned(), goose);
    assert_eq!(load(text, &[]).unwrap().rules, expected);
}

#[test]
fn a_tier_finds_its_agent_and_provider() {
    let text = "\
tiers: {simple: {agent: goose}}
agents: {goose: {command: goose}}
";
    let rules = load(text, &[]).unwrap().rules;
    assert_eq!(rules.agent(Tier::Simple), Some(("goose", &rules.agents["goose"])));
    assert_eq!(rules.provider(Tier::Simple), "goose");
    assert_eq!(rules.agent(Tier::Complex), Some(("claude-code", &rules.agents["claude-code"])));
    assert_eq!(rules.provider(Tier::Complex), "anthropic");
}

#[test]
fn an_agent_named_by_a_variable_must_exist_and_its_value_is_not_shown() {
    let reported = problems("", &[("TAMMA_TIER_SIMPLE_AGENT", "codeks")]);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(reported[0].variable(), Some("TAMMA_TIER_SIMPLE_AGENT"));
    let reported =
        [reported, problems("tiers: {simple: {agent: '${IT}'}}", &[("IT", "codeks")])].concat();
    assert_eq!(reported.len(), 2, "{reported:#?}");
    for problem in reported {
        assert_eq!(problem.fault.code(), "unknown_name");
        let all = format!("{problem} {problem:?} {:?}", problem.fault.help());
        assert!(!all.contains("codeks") && !all.contains("did you mean"), "{all}");
    }
    let rules = load("", &[("TAMMA_TIER_SIMPLE_AGENT", "codex")]).unwrap().rules;
    assert_eq!(rules.tiers.simple.agent, "codex");
}

#[test]
fn an_invalid_definition_is_reported_once_and_its_references_are_not() {
    let text = "\
tiers: {simple: {agent: goose}}
agents: {goose: {command: 3}}
ceremony: {low: {gates: [test]}}
gates: {test: {command: ''}}
";
    let codes: Vec<_> = problems(text, &[])
        .iter()
        .map(|problem| (problem.fault.code(), problem.location().unwrap().line))
        .collect();
    assert_eq!(codes, [("wrong_type", 2), ("out_of_range", 4)]);
}

#[test]
fn roles_delivery_and_engines_have_defaults_and_can_be_set() {
    let rules = Rules::default();
    assert_eq!((rules.roles.planner, rules.roles.validator), (Tier::Moderate, Tier::Moderate));
    assert_eq!((rules.delivery.mode, rules.delivery.base), (DeliveryMode::Branch, None));
    assert_eq!(rules.engines.slots, 2);
    let text = "\
roles: {planner: complex, validator: moderate}
delivery: {base: main}
engines: {slots: 4}
";
    let rules = load(text, &[("TAMMA_ENGINES_SLOTS", "8")]).unwrap().rules;
    assert_eq!((rules.roles.planner, rules.roles.validator), (Tier::Complex, Tier::Moderate));
    assert_eq!(rules.delivery.base.as_deref(), Some("main"));
    assert_eq!(rules.engines.slots, 8);
    let rules = load(text, &[("TAMMA_DELIVERY_BASE", "next")]).unwrap().rules;
    assert_eq!(rules.delivery.base.as_deref(), Some("next"));
}

#[test]
fn a_planned_delivery_mode_is_refused_with_an_explanation() {
    let reported = problems("delivery: {mode: pull_request}", &[]);
    assert_eq!(
        reported[0].to_string(),
        "`delivery.mode` is invalid: `pull_request` is not supported yet: use `branch`, \
         then merge the branch yourself"
    );
}

#[test]
fn there_are_no_default_gates_and_a_gate_needs_only_a_command() {
    assert_eq!(Rules::default().gates, BTreeMap::new());
    let rules = load("gates: {all: {command: make check}}", &[]).unwrap().rules;
    let gate = GateRules {
        command: "make check".to_owned(),
        kind: GateKind::Command,
        timeout_seconds: 1_800,
        report: None,
        alone: false,
        network: false,
        paths: Vec::new(),
    };
    assert_eq!(rules.gates, BTreeMap::from([("all".to_owned(), gate)]));
}

#[test]
fn a_gate_with_paths_runs_only_for_changes_that_touch_them() {
    let text = "gates: {web: {command: a, paths: ['web/**', '*.json']}, all: {command: b}}";
    let rules = load(text, &[]).unwrap().rules;
    let (web, all) = (&rules.gates["web"], &rules.gates["all"]);
    assert!(web.applies_to(["README.md", "web/src/a.ts"]) && web.applies_to(["package.json"]));
    assert!(!web.applies_to(["api/main.go"]) && !web.applies_to([]));
    assert!(all.applies_to(["api/main.go"]) && all.applies_to([]));
}

#[test]
fn a_sparse_checkout_lists_folders() {
    let rules = load("checkout: {sparse: [web/app, lib/]}", &[]).unwrap().rules;
    assert_eq!(rules.checkout.sparse, ["web/app", "lib/"]);
    for bad in ["/web", "web/../api", "web/**", "''"] {
        let reported = problems(&format!("checkout: {{sparse: [{bad}]}}"), &[]);
        assert!(reported[0].to_string().contains("is not a folder of the repository"), "{bad}");
    }
}

#[test]
fn a_setup_needs_a_command_and_is_left_out_of_the_version_without_one() {
    let version = Rules::default().version();
    assert_eq!(load("setup:", &[]).unwrap().rules.version(), version);
    let rules = load("setup: {command: npm ci, lock_files: [web/package-lock.json]}", &[]);
    let rules = rules.unwrap().rules;
    assert_ne!(rules.version(), version);
    assert_eq!(
        (rules.setup.command.as_deref(), rules.setup.timeout_seconds),
        (Some("npm ci"), 900)
    );
    assert_eq!(rules.setup.lock_globs(), ["web/package-lock.json"]);
    assert!(Rules::default().setup.lock_globs().contains(&"**/uv.lock".to_owned()));
    let reported = problems("setup: {timeout_seconds: 5}", &[]);
    assert_eq!(
        reported[0].to_string(),
        "`setup.timeout_seconds` is invalid: it has no effect without `setup.command`: add the \
         command, such as `npm ci`, or remove this key"
    );
}

#[rstest]
#[case(RiskLevel::Low, &["lint", "test"])]
#[case(RiskLevel::Medium, &["audit", "lint", "test"])]
#[case(RiskLevel::High, &["audit", "fuzz", "lint", "test"])]
fn a_gate_runs_from_the_level_that_names_it_or_always(
    #[case] level: RiskLevel,
    #[case] names: &[&str],
) {
    let text = "\
gates:
  test: {command: a, kind: tests}
  lint: {command: b, kind: lint}
  audit: {command: c, kind: security}
  fuzz: {command: d}
ceremony:
  low: {gates: [lint]}
  medium: {gates: [audit]}
  high: {gates: [fuzz, audit]}
";
    let rules = load(text, &[]).unwrap().rules;
    let run: Vec<&str> = rules.gates_at(level).map(|(name, _)| name).collect();
    assert_eq!(run, names);
}

#[test]
fn a_secret_from_a_variable_is_in_the_rules_but_never_shown() {
    let text = "agents: {codex: {env: {OPENAI_API_KEY: '${KEY}'}}}";
    let loaded = load(text, &[("KEY", "hush")]).unwrap();
    assert_eq!(loaded.rules.agents["codex"].env["OPENAI_API_KEY"], "hush");
    let path = "agents.codex.env.OPENAI_API_KEY";
    let shown = loaded.settings().into_iter().find(|one| one.path == path).unwrap();
    assert_eq!(shown.value, json!("${KEY}"));
    assert!(matches!(shown.origin, ValueOrigin::File(_)));
}

/// Returns rules with these values in the places for secrets.
fn with_secrets(env: &BTreeMap<String, String>, config: &BTreeMap<String, String>) -> Rules {
    let mut rules = Rules::default();
    rules.agents.values_mut().for_each(|agent| agent.env.clear());
    rules.agents.get_mut("codex").unwrap().env.clone_from(env);
    let channel =
        AlertChannel { r#type: ChannelType::Webhook, enabled: true, config: config.clone() };
    rules.scrum_master.alerts.channels.push(channel);
    rules
}

fn emptied(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    values.keys().map(|name| (name.clone(), String::new())).collect()
}

proptest! {
    #[test]
    fn removing_secrets_keeps_names_and_version(
        env in prop::collection::btree_map("[A-Z_]{1,8}", any::<String>(), 0..4),
        config in prop::collection::btree_map("[a-z]{1,8}", any::<String>(), 0..4),
    ) {
        let rules = with_secrets(&env, &config);
        let redacted = rules.without_secrets();
        prop_assert_eq!(&redacted, &with_secrets(&emptied(&env), &emptied(&config)));
        prop_assert_eq!(redacted.version(), rules.version());
        prop_assert_eq!(redacted.without_secrets(), redacted);
    }
}

#[test]
fn the_version_covers_everything_but_the_values_of_secrets() {
    let none = BTreeMap::new();
    let env = |name: &str| BTreeMap::from([(name.to_owned(), "hush".to_owned())]);
    let version = with_secrets(&env("A"), &none).version();
    assert_ne!(version, with_secrets(&env("B"), &none).version());
    assert_ne!(version, with_secrets(&none, &none).version());
    assert_ne!(version, with_secrets(&env("A"), &env("A")).version());
    let mut other = with_secrets(&env("A"), &none);
    other.agents.get_mut("codex").unwrap().args.push("--fast".to_owned());
    assert_ne!(version, other.version());
}

#[test]
fn a_tier_requests_its_model_or_lets_the_agent_choose() {
    let model = |text: &str| {
        let rules = load(text, &[]).unwrap().rules;
        rules.model(Tier::Simple).map(str::to_owned)
    };
    let built_in = Rules::default();
    let built_in = built_in.tiers.get(Tier::Simple);
    assert_eq!(model("{}").as_deref(), Some(built_in.model.as_str()));
    assert_eq!(model("tiers: {simple: {agent: codex}}"), None);
    assert_eq!(model("tiers: {simple: {model: default}}"), None);
    let named = model("tiers: {simple: {agent: codex, model: gpt-5.5}}");
    assert_eq!(named.as_deref(), Some("gpt-5.5"));
}

#[test]
fn effort_and_prompts_are_optional_and_count_towards_the_version() {
    let rules = |text: &str| load(text, &[]).unwrap().rules;
    let default = rules("");
    let json = serde_json::to_string(&default).unwrap();
    for key in ["\"prompts\"", "\"effort\"", "\"context_tokens\""] {
        assert!(!json.contains(key), "{key} must not change the version of older rules");
    }
    let set = rules(
        "tiers: {complex: {effort: high}}\nroles: {effort: {validator: low}}\n\
         prompts: {plan: .tamma/plan.md}\nagents: {gemini: {context_tokens: 1000000}}\n",
    );
    assert_eq!(set.tiers.complex.effort, Some(Effort::High));
    assert_eq!(set.roles.effort.validator, Some(Effort::Low));
    assert_eq!(set.prompts.paths().collect::<Vec<_>>(), [("plan", ".tamma/plan.md")]);
    assert_eq!(set.agents["gemini"].context_tokens, 1_000_000);
    assert_ne!(set.version(), default.version());
    for text in [
        "tiers: {simple: {effort: extreme}}",
        "prompts: {plan: /etc/passwd}",
        "prompts: {plan: ../plan.md}",
        "prompts: {brief: brief.md}",
    ] {
        assert!(load(text, &[]).is_err(), "{text}");
    }
}
