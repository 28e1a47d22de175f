//! Section 6: prices of models, and limits in dollars.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use proptest::prelude::*;
use rstest::rstest;
use tamma_core::cost::{Cost, LongContextPrice, Price, Tokens, Usd};
use tamma_core::operator::OperatorConfig;
use tamma_core::prices::{PriceTable, is_priced};
use tamma_core::rules::{self, ConfigFile, Rules};

/// Models of the built-in agents, by every way to name them.
const MODELS: [&str; 11] = [
    "haiku",
    "sonnet",
    "opus",
    "claude-haiku-5-5",
    "claude-sonnet-4-5",
    "claude-opus-5-5",
    "gpt-5.5",
    "gpt-5.2-codex",
    "gpt-6.1-sol",
    "gemini-2.5-pro",
    "gemini-3.1-pro-preview",
];

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

fn day(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn built_in() -> PriceTable {
    PriceTable::new(BTreeMap::new(), day("2026-11-16"))
}

fn own_price() -> Price {
    Price {
        input: usd("3"),
        cached: usd("0.3"),
        output: usd("15"),
        cache_write: None,
        cache_write_1h: None,
        long_context: None,
    }
}

fn load(text: &str) -> Result<Rules, String> {
    let file = ConfigFile { name: "tamma.yaml", text };
    rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default())
        .map(|loaded| loaded.rules)
        .map_err(|problems| problems.to_string())
}

// Cost of a call

#[test]
fn each_category_of_tokens_has_its_own_price() {
    let price =
        Price { cache_write: Some(usd("3.75")), cache_write_1h: Some(usd("6")), ..own_price() };
    let tokens = Tokens {
        input: 3_000_000,
        cached: 2_000_000,
        output: 100_000,
        cache_write: 1_000_000,
        cache_write_1h: 1_000_000,
    };
    // One million each: plain, written, written for an hour.
    assert_eq!(price.cost(&tokens), usd("14.85"));
    assert_eq!((tokens.total(), tokens.cached_percent()), (5_100_000, Some(40)));
    assert_eq!(Tokens::default().cached_percent(), None);
    // Without prices of their own, cache writes cost as much as other input.
    assert_eq!(own_price().cost(&tokens), usd("11.1"));
}

#[test]
fn a_long_input_has_its_own_prices_for_the_whole_call() {
    let long = LongContextPrice {
        above: 200_000,
        input: Some(usd("6")),
        output: Some(usd("22.5")),
        ..LongContextPrice::default()
    };
    let price = Price { long_context: Some(long), ..own_price() };
    let tokens = Tokens { input: 100_000, cached: 100_000, output: 1_000, ..Tokens::default() };
    assert_eq!(price.cost(&tokens), own_price().cost(&tokens), "the threshold itself is usual");
    let more = Tokens { input: 100_001, ..tokens };
    assert_eq!(price.cost(&more), usd("0.600006") + usd("0.03") + usd("0.0225"));
}

#[test]
fn cache_writes_are_left_out_of_stored_tokens_unless_there_are_some() {
    let old = r#"{"input":1,"cached":2,"output":3}"#;
    let tokens: Tokens = serde_json::from_str(old).unwrap();
    assert_eq!(serde_json::to_string(&tokens).unwrap(), old);
    let written = Tokens { cache_write: 1, ..tokens };
    assert!(serde_json::to_string(&written).unwrap().contains(r#""cache_write":1"#));
}

// Price of a model

#[test]
fn models_of_the_built_in_agents_have_prices() {
    for model in MODELS {
        assert!(built_in().find(model).is_some(), "{model}");
    }
    // Published prices, as a check of the generated file.
    let sonnet = built_in().find("claude-sonnet-4-5").unwrap();
    assert_eq!((sonnet.input, sonnet.cached, sonnet.output), (usd("3"), usd("0.3"), usd("15")));
    assert_eq!((sonnet.cache_write, sonnet.cache_write_1h), (Some(usd("3.75")), Some(usd("6"))));
    let long = sonnet.long_context.unwrap();
    assert_eq!((long.above, long.input, long.output), (200_000, Some(usd("6")), Some(usd("22.5"))));
}

#[rstest]
#[case("claude-sonnet-4-5-20250929", "claude-sonnet-4-5")]
#[case("claude-sonnet-4-5@20250929", "claude-sonnet-4-5")]
#[case("gpt-5.5-2026-04-23", "gpt-5.5")]
#[case("anthropic/claude-opus-5-5", "claude-opus-5-5")]
#[case("models/gemini-2.5-pro", "gemini-2.5-pro")]
#[case("opus[1m]", "claude-opus-5-5")]
#[case("haiku", "claude-haiku-5-5")]
fn a_model_is_found_by_documented_variants_of_its_name(#[case] name: &str, #[case] model: &str) {
    assert_eq!(built_in().find(name), built_in().find(model));
    assert!(is_priced(name, &BTreeMap::new()));
}

#[rstest]
#[case("unheard-of")]
#[case("claude-sonnet-4-5-turbo")]
#[case("my-claude-opus-5-5")]
#[case("claude-opus-5-5-20261399")]
#[case("gpt-5.5-99999999")]
#[case("-20260115")]
#[case("elsewhere/gpt-5.5")]
#[case("")]
fn a_price_is_never_guessed(#[case] name: &str) {
    let tokens = Tokens { input: 1, ..Tokens::default() };
    assert_eq!(built_in().cost(&tokens, name), Cost::Unknown);
    assert!(!is_priced(name, &BTreeMap::new()));
}

#[test]
fn prices_in_the_rules_come_first() {
    let own =
        BTreeMap::from([("gpt-5.5".to_owned(), own_price()), ("mine".to_owned(), own_price())]);
    assert!(is_priced("mine-20260115", &own));
    let table = PriceTable::new(own, day("2026-11-16"));
    assert_eq!(table.find("gpt-5.5-2026-04-23"), Some(own_price()));
    assert_eq!(table.find("mine"), Some(own_price()));
    assert_eq!(table.find("opus"), built_in().find("opus"));
}

#[test]
fn a_price_that_starts_later_applies_from_its_day() {
    let input =
        |on| PriceTable::new(BTreeMap::new(), day(on)).find("gemini-4-argon").unwrap().input;
    assert_eq!((input("2026-11-30"), input("2026-12-01")), (usd("2"), usd("4")));
}

// Limits in dollars

#[rstest]
#[case("tiers: {simple: {model: unheard-of}}", "`tiers.simple.model`")]
#[case("tiers: {complex: {agent: codex, model: unheard-of}}", "`tiers.complex.model`")]
#[case("council: {chair: {tier: complex, model: unheard-of}}", "`council.chair.model`")]
fn a_limit_in_dollars_needs_the_price_of_every_named_model(#[case] text: &str, #[case] path: &str) {
    let problem = load(text).unwrap_err();
    for part in [path, "model `unheard-of` has no price", "set `prices.unheard-of` in tamma.yaml"] {
        assert!(problem.contains(part), "{problem}");
    }
    for fix in [
        "prices: {unheard-of: {input: 1, cached: 1, output: 1}}",
        "budget: {task_usd: null}",
        "scrum_master: {task_loop: {cost_tracking: false}}",
    ] {
        let fixed = format!("{text}\n{fix}\n");
        assert!(load(&fixed).is_ok(), "{fixed}");
    }
    let limited = format!("{text}\nbudget: {{task_usd: null, day_usd: 5}}\n");
    assert!(load(&limited).is_err(), "the limit of a day is in dollars, too");
}

#[rstest]
#[case("tiers: {simple: {model: default}}")]
#[case("tiers: {simple: {agent: codex}}")]
#[case("agents: {own: {command: own}}\ntiers: {simple: {agent: own, model: unheard-of}}")]
fn a_model_that_is_unknown_before_the_run_is_left_to_the_gateway(#[case] text: &str) {
    assert!(load(text).is_ok(), "{text}");
}

#[test]
fn new_price_keys_leave_the_version_of_old_rules_alone() {
    let old = load("prices: {mine: {input: 1, cached: 1, output: 1}}").unwrap();
    let json = serde_json::to_value(&old).unwrap();
    assert_eq!(
        json["prices"]["mine"],
        serde_json::json!({ "input": "1", "cached": "1", "output": "1" })
    );
    let text = "prices: {mine: {input: 1, cached: 0.1, output: 1, cache_write: 1.25, \
                cache_write_1h: 2, long_context: {above: 100000, input: 2}}}";
    let price = load(text).unwrap().prices["mine"];
    assert_eq!((price.cache_write, price.cache_write_1h), (Some(usd("1.25")), Some(usd("2"))));
    let long = price.long_context.unwrap();
    assert_eq!((long.above, long.input, long.output), (100_000, Some(usd("2")), None));
}

// Properties

fn count() -> impl Strategy<Value = u64> {
    0_u64..5_000_000
}

/// Tokens whose cache writes are part of the input.
fn tokens() -> impl Strategy<Value = Tokens> {
    (count(), count(), count(), count(), count()).prop_map(
        |(plain, cached, output, cache_write, cache_write_1h)| Tokens {
            input: plain + cache_write + cache_write_1h,
            cached,
            output,
            cache_write,
            cache_write_1h,
        },
    )
}

fn any_price() -> impl Strategy<Value = Price> {
    let rate = || (0_u32..10_000).prop_map(Usd::from_cents);
    (rate(), rate(), rate(), proptest::option::of(rate()), proptest::option::of(rate())).prop_map(
        |(input, cached, output, cache_write, cache_write_1h)| Price {
            input,
            cached,
            output,
            cache_write,
            cache_write_1h,
            long_context: None,
        },
    )
}

proptest! {
    #[test]
    fn more_tokens_of_any_category_never_cost_less(
        tokens in tokens(),
        more in 0_u64..1_000_000,
        model in prop::sample::select(MODELS.to_vec()),
        own in any_price(),
    ) {
        let category = |change: fn(&mut Tokens, u64)| {
            let mut tokens = tokens;
            change(&mut tokens, more);
            tokens
        };
        let larger = [
            category(|tokens, more| tokens.input += more),
            category(|tokens, more| tokens.cached += more),
            category(|tokens, more| tokens.output += more),
            category(|tokens, more| {
                tokens.input += more;
                tokens.cache_write += more;
            }),
            category(|tokens, more| {
                tokens.input += more;
                tokens.cache_write_1h += more;
            }),
        ];
        for price in [built_in().find(model).unwrap(), own] {
            for larger in larger {
                prop_assert!(price.cost(&larger) >= price.cost(&tokens), "{price:?} {larger:?}");
            }
        }
    }

    #[test]
    fn calls_cost_together_what_they_cost_alone(
        one in tokens(),
        other in tokens(),
        price in any_price(),
    ) {
        prop_assert_eq!(price.cost(&(one + other)), price.cost(&one) + price.cost(&other));
    }

    #[test]
    fn an_unknown_price_is_never_zero(name in "[a-z]{1,12}(-[0-9a-z.]{1,8}){0,4}", tokens in tokens()) {
        let table = built_in();
        let expected =
            table.find(&name).map_or(Cost::Unknown, |price| Cost::Known(price.cost(&tokens)));
        prop_assert_eq!(table.cost(&tokens, &name), expected);
        prop_assert_eq!(is_priced(&name, &BTreeMap::new()), table.find(&name).is_some());
    }
}
