//! Tests of the chat: its grammar on labelled messages, and its rules one by one.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod grammar;
mod s8_chat;
