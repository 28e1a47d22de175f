//! Environment variables of programs that the worker starts.

use std::collections::BTreeMap;

/// Variables that every program needs.
pub(crate) const BASE_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

/// Selects variables from an environment.
pub(crate) fn select_variables<'a>(
    environment: &BTreeMap<String, String>,
    names: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> BTreeMap<String, String> {
    let pair = |name: &str| Some((name.to_owned(), environment.get(name)?.clone()));
    names.into_iter().filter_map(|name| pair(name.as_ref())).collect()
}
