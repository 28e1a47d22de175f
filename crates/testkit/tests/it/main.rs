//! Tests of the test kit itself.

mod kit;
mod scripted_agent;
