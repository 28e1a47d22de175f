//! Critical files: paths that raise the risk of a plan.

use globset::{Glob, GlobSetBuilder};

use super::Rules;

/// Counts the paths that match `risk_thresholds.critical_files`.
pub fn count_critical_files<'a>(paths: impl IntoIterator<Item = &'a str>, rules: &Rules) -> u16 {
    u16::try_from(critical_paths(paths, rules).len()).unwrap_or(u16::MAX)
}

/// Returns the paths that match `risk_thresholds.critical_files`, in their order.
pub fn critical_paths<'a>(paths: impl IntoIterator<Item = &'a str>, rules: &Rules) -> Vec<&'a str> {
    let mut set = GlobSetBuilder::new();
    for glob in &rules.scrum_master.risk_thresholds.critical_files {
        // Globs were validated when the rules were loaded.
        if let Ok(glob) = Glob::new(glob) {
            set.add(glob);
        }
    }
    let paths = paths.into_iter();
    match set.build() {
        Ok(set) => paths.filter(|path| set.is_match(path)).collect(),
        // Without a matcher, every path counts as critical.
        Err(_) => paths.collect(),
    }
}

/// Returns true if `path` matches `risk_thresholds.critical_files`.
pub fn is_critical(path: &str, rules: &Rules) -> bool {
    count_critical_files([path], rules) > 0
}
