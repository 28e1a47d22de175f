//! One test per rule of the specification, by section. Each test is named after its rule.

mod s10_content_warnings;
mod s10_import_export;
mod s10_knowledge;
mod s10_learning;
mod s10_negation;
mod s10_retirement;
mod s11_pipeline;
mod s11_signal;
mod s12_events;
mod s13_agents;
mod s13_configuration;
mod s3_machine;
mod s3_people;
mod s4_plan;
mod s5_approve;
mod s6_implement;
mod s6_permissions;
mod s6_prices;
mod s6_questions;
mod s7_council;
mod s7_decision;
mod s7_fingerprint;
mod s7_patterns;
mod s7_stuck;
mod s7_verdict;
