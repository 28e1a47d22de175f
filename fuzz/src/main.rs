//! Fuzz targets of the parsers of foreign bytes (README.md).
//!
//! One program has all targets, because linking it takes longer than anything else. The variable
//! `FUZZ_TARGET` selects one.

#![no_main]

mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use crate::targets::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let Some((_, target)) = TARGETS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("error: no target `{name}`; set FUZZ_TARGET to one of: {}", names.join(", "));
            std::process::exit(2);
        };
        TARGET.get_or_init(|| *target);
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            target(data);
        }
    }
);
