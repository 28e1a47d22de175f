//! Structure of the crate.

use std::path::Path;

use crate::imports;

#[test]
fn worker_modules_have_no_import_cycle() {
    let imports = imports::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(imports["activities"].contains_key("services"), "the sources were read");
    assert_eq!(imports::describe_cycle(&imports), None, "modules of `worker` import each other");
}
