//! Critical files: which paths raise the risk of a plan.

use globset::{Glob, GlobSetBuilder};

use super::Rules;

/// How many of some paths the configuration calls critical.
pub fn critical_files<'a>(paths: impl IntoIterator<Item = &'a str>, rules: &Rules) -> u16 {
    let mut set = GlobSetBuilder::new();
    for glob in &rules.scrum_master.risk_thresholds.critical_files {
        // The rules were validated when they were loaded, so every glob is one.
        if let Ok(glob) = Glob::new(glob) {
            set.add(glob);
        }
    }
    let paths = paths.into_iter();
    let count = match set.build() {
        Ok(set) => paths.filter(|path| set.is_match(path)).count(),
        // Without a matcher nothing can be called harmless.
        Err(_) => paths.count(),
    };
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Whether the configuration calls one path critical.
pub fn is_critical(path: &str, rules: &Rules) -> bool {
    critical_files([path], rules) > 0
}
