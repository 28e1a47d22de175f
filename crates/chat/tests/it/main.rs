//! Tests of the chat: its grammar on labelled messages and its rules one by one.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod grammar;
mod s8_chat;
