//! Prices by model name: built-in ones with their date, and those of `tamma.yaml`, which come
//! first.
//!
//! A model is found by its exact name. A name that is not listed is tried again without the prefix
//! of a provider (`anthropic/`, `openai/`, `google/`, `models/`), without `[1m]`, and without the
//! date of a snapshot (`-20260115`, `@20260115`, `-2026-01-15`). Other names have no price: a
//! guess could be wrong by a factor of ten.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use chrono::NaiveDate;
use serde::Deserialize;

use crate::cost::{Cost, Price, Tokens};

/// Prefixes that name a provider or a collection instead of a model.
const PREFIXES: [&str; 4] = ["anthropic/", "openai/", "google/", "models/"];

/// Suffix by which Claude Code requests a context of one million tokens.
const LONG_CONTEXT_SUFFIX: &str = "[1m]";

/// Built-in prices. Written by `.ci/prices.py`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceList {
    /// Date of the prices.
    date: NaiveDate,
    /// Origin of the prices.
    source: String,
    /// Models by the short names that agents accept for them.
    aliases: BTreeMap<String, String>,
    /// Prices by model, in the order in which they apply.
    models: BTreeMap<String, Vec<DatedPrice>>,
}

/// Price from a date on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatedPrice {
    /// First day of the price; `None` if it applies already.
    #[serde(default)]
    from: Option<NaiveDate>,
    price: Price,
}

// A test fails if the file cannot be parsed.
static BUILT_IN: LazyLock<PriceList> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("prices.yaml")).unwrap_or_default());

/// Prices that apply on a day.
#[derive(Debug, Clone)]
pub struct PriceTable {
    overrides: BTreeMap<String, Price>,
    day: NaiveDate,
}

impl PriceTable {
    /// Creates the table from the prices in the rules, which override built-in ones.
    pub fn new(overrides: BTreeMap<String, Price>, day: NaiveDate) -> Self {
        Self { overrides, day }
    }

    /// Returns the price of a model, if it is known.
    pub fn find(&self, model: &str) -> Option<Price> {
        let own = spellings(model).into_iter().find_map(|name| self.overrides.get(name).copied());
        own.or_else(|| {
            let dated = built_in(model)?;
            let applies = |dated: &&DatedPrice| dated.from.is_none_or(|from| from <= self.day);
            dated.iter().rev().find(applies).map(|dated| dated.price)
        })
    }

    /// Computes the cost of a call. It is unknown without a price.
    pub fn cost(&self, tokens: &Tokens, model: &str) -> Cost {
        self.find(model).map_or(Cost::Unknown, |price| Cost::Known(price.cost(tokens)))
    }
}

/// Returns true if a model has a built-in price or one in the rules.
pub fn is_priced(model: &str, overrides: &BTreeMap<String, Price>) -> bool {
    spellings(model).into_iter().any(|name| overrides.contains_key(name))
        || built_in(model).is_some()
}

/// Returns true if two names mean the same model: the names under which they can be listed overlap.
pub fn is_same_model(one: &str, other: &str) -> bool {
    names(one).any(|name| names(other).any(|other| name == other))
}

/// Returns the names under which a model can be listed, and those that they are aliases of.
fn names(model: &str) -> impl Iterator<Item = &str> {
    spellings(model).into_iter().flat_map(|name| {
        let meant = BUILT_IN.aliases.get(name).map(String::as_str);
        std::iter::once(name).chain(meant)
    })
}

/// Explains that the spend on a model without a price cannot be limited, and the fix.
pub fn unpriced_reason(model: &str) -> String {
    let PriceList { date, source, .. } = &*BUILT_IN;
    format!(
        "model `{model}` has no price, so no dollar limit can be enforced: set `prices.{model}` in \
         tamma.yaml, or limit tokens instead (`budget.task_usd: null`, `budget.task_tokens`); \
         built-in prices are those of {source}, {date}"
    )
}

fn built_in(model: &str) -> Option<&'static [DatedPrice]> {
    let list = &*BUILT_IN;
    spellings(model).into_iter().find_map(|name| {
        let name = list.aliases.get(name).map_or(name, String::as_str);
        list.models.get(name).map(Vec::as_slice)
    })
}

/// Returns the names under which a model can be listed, the exact one first.
fn spellings(model: &str) -> Vec<&str> {
    let (mut names, mut name) = (vec![model], model);
    let steps: [fn(&str) -> Option<&str>; 3] = [without_prefix, without_long_context, without_date];
    for shorten in steps {
        if let Some(shorter) = shorten(name) {
            names.push(shorter);
            name = shorter;
        }
    }
    names
}

fn without_prefix(name: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

fn without_long_context(name: &str) -> Option<&str> {
    name.strip_suffix(LONG_CONTEXT_SUFFIX)
}

/// Removes the date of a snapshot.
fn without_date(name: &str) -> Option<&str> {
    ["-%Y%m%d", "@%Y%m%d", "-%Y-%m-%d"].into_iter().find_map(|format| {
        let length = if format.ends_with("%m-%d") { 11 } else { 9 };
        let (rest, date) = name.split_at_checked(name.len().checked_sub(length)?)?;
        let is_date = NaiveDate::parse_from_str(date, format).is_ok();
        (is_date && !rest.is_empty()).then_some(rest)
    })
}
