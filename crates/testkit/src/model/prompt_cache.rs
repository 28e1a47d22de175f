//! Token counts of prompts, and what a provider's prompt cache would have held of them.
//!
//! A prompt is the canonical text of a request: tools, system prompt and messages, in this order. A
//! token is [`BYTES_PER_TOKEN`] bytes of that text. Real tokenisers differ, but shares and
//! comparisons hold. Only earlier requests to the same model count, and the cache never expires.
//!
//! - Anthropic caches up to a block that is marked `cache_control`, and finds earlier entries up to
//!   [`LOOK_BACK`] blocks before a mark.
//! - OpenAI caches every prefix of at least 1024 tokens, in steps of 128.
//! - Gemini caches prefixes implicitly, from a size on that depends on the model.

use serde_json::{Value, json};
use tamma_core::cost::Tokens;

use super::Dialect;

/// Bytes of canonical text that count as one token.
const BYTES_PER_TOKEN: usize = 4;

/// Blocks before a mark in which Anthropic searches for an earlier entry.
const LOOK_BACK: usize = 20;

/// Smallest cached prefix of Anthropic and Gemini, in tokens: the largest minimum of their models.
const MINIMUM: usize = 4096;

/// Smallest cached prefix of OpenAI, in tokens.
const OPENAI_MINIMUM: usize = 1024;

/// Step in which cached prefixes of OpenAI grow, in tokens.
const OPENAI_STEP: usize = 128;

/// Lifetime of a cache entry that Anthropic is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheLifetime {
    FiveMinutes,
    OneHour,
}

/// Canonical text of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompt {
    text: String,
    blocks: Vec<PromptBlock>,
}

/// Part of a prompt that a mark can follow.
#[derive(Debug, Clone, Copy)]
struct PromptBlock {
    /// End of the block in the text.
    end: usize,
    mark: Option<CacheLifetime>,
}

impl Prompt {
    /// Reads the prompt of a request.
    pub(super) fn of(dialect: Dialect, request: &Value) -> Self {
        let mut prompt = Self::default();
        let fields: &[&str] = match dialect {
            Dialect::Anthropic => &["tools", "system", "messages"],
            Dialect::Chat => &["tools", "messages"],
            Dialect::Responses => &["tools", "instructions", "input"],
            Dialect::Gemini => &["tools", "systemInstruction", "contents"],
        };
        for field in fields {
            match request.get(*field) {
                Some(Value::Array(all)) => all.iter().for_each(|value| prompt.add(value)),
                Some(value) => prompt.add(value),
                None => {}
            }
        }
        prompt
    }

    /// Adds a tool, a part of the system prompt or a message. The blocks of a message count alone,
    /// and a text is the same as one block with it.
    fn add(&mut self, value: &Value) {
        match (value.get("role"), value.get("content")) {
            (Some(_), Some(Value::Array(blocks))) => {
                self.text.push_str(&without(value, "content"));
                for block in blocks {
                    self.add_block(block);
                }
            }
            (Some(_), Some(Value::String(text))) => {
                self.text.push_str(&without(value, "content"));
                self.add_block(&json!({ "type": "text", "text": text }));
            }
            _ => self.add_block(value),
        }
    }

    fn add_block(&mut self, value: &Value) {
        let mark = value.get("cache_control").map(|control| match control.get("ttl") {
            Some(ttl) if ttl == "1h" => CacheLifetime::OneHour,
            _ => CacheLifetime::FiveMinutes,
        });
        // The mark moves with the conversation and is not part of the text.
        self.text.push_str(&without(value, "cache_control"));
        self.text.push('\n');
        self.blocks.push(PromptBlock { end: self.text.len(), mark });
    }

    /// Returns the length of the longest common prefix with another prompt, in bytes.
    fn common_prefix(&self, other: &Self) -> usize {
        let pairs = self.text.bytes().zip(other.text.bytes());
        pairs.take_while(|(one, other)| one == other).count()
    }

    /// Returns the ends of the prefixes that this prompt writes to the cache (Anthropic).
    fn written(&self) -> impl Iterator<Item = usize> {
        self.blocks.iter().filter(|block| block.mark.is_some()).map(|block| block.end)
    }

    /// Returns the end of the longest prefix that is cached up to a block (Anthropic).
    fn cached_block(&self, earlier: &[Self]) -> usize {
        let known = |end: usize| {
            earlier.iter().any(|it| {
                it.written().any(|written| written == end) && it.common_prefix(self) >= end
            })
        };
        let marks = self.blocks.iter().enumerate().filter(|(_, block)| block.mark.is_some());
        let candidates = marks
            .flat_map(|(index, _)| self.blocks.iter().take(index + 1).rev().take(LOOK_BACK + 1));
        let hits = candidates.map(|block| block.end).filter(|end| count(*end) >= MINIMUM);
        hits.filter(|end| known(*end)).max().unwrap_or_default()
    }
}

/// Returns the text of a value without one of its fields.
fn without(value: &Value, field: &str) -> String {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
    value.to_string()
}

/// Returns the tokens of a text with this number of bytes.
pub(super) fn count(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Returns the input tokens of a prompt after earlier prompts of the same model. `input` contains
/// the cache writes.
pub(super) fn input_tokens(dialect: Dialect, prompt: &Prompt, earlier: &[Prompt]) -> Tokens {
    let all = count(prompt.text.len());
    let common = || {
        let longest = earlier.iter().map(|it| prompt.common_prefix(it)).max().unwrap_or_default();
        longest / BYTES_PER_TOKEN
    };
    let (cached, writes) = match dialect {
        Dialect::Anthropic => {
            let read = prompt.cached_block(earlier);
            (count(read), anthropic_writes(prompt, read))
        }
        Dialect::Chat | Dialect::Responses => {
            let longest = common() / OPENAI_STEP * OPENAI_STEP;
            (if longest < OPENAI_MINIMUM { 0 } else { longest }, [0, 0])
        }
        Dialect::Gemini => (Some(common()).filter(|it| *it >= MINIMUM).unwrap_or_default(), [0, 0]),
    };
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Tokens {
        input: number(all.saturating_sub(cached)),
        cached: number(cached),
        output: 0,
        cache_write: number(writes[0]),
        cache_write_1h: number(writes[1]),
    }
}

/// Returns the tokens that are written for five minutes and for an hour, after the read prefix.
fn anthropic_writes(prompt: &Prompt, read: usize) -> [usize; 2] {
    let (mut writes, mut from) = ([0, 0], count(read));
    for block in prompt.blocks.iter().filter(|block| count(block.end) >= MINIMUM) {
        let Some(lifetime) = block.mark else { continue };
        let tokens = count(block.end).saturating_sub(from);
        from = from.max(count(block.end));
        writes[usize::from(lifetime == CacheLifetime::OneHour)] += tokens;
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of about this number of tokens.
    fn text(tokens: usize) -> String {
        "word".repeat(tokens)
    }

    fn tokens(dialect: Dialect, requests: &[Value]) -> Tokens {
        let mut prompts: Vec<_> = requests.iter().map(|it| Prompt::of(dialect, it)).collect();
        let last = prompts.pop().expect("a request");
        input_tokens(dialect, &last, &prompts)
    }

    fn anthropic(marked: &[(usize, Option<&str>)]) -> Value {
        let blocks: Vec<_> = marked
            .iter()
            .enumerate()
            .map(|(index, (size, ttl))| {
                let mut block =
                    json!({ "type": "text", "text": format!("{index}{}", text(*size)) });
                if let Some(ttl) = ttl {
                    block["cache_control"] = json!({ "type": "ephemeral", "ttl": ttl });
                }
                block
            })
            .collect();
        json!({ "messages": [{ "role": "user", "content": blocks }] })
    }

    fn openai(texts: &[String]) -> Value {
        let messages: Vec<_> =
            texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
        json!({ "messages": messages, "input": messages, "contents": messages })
    }

    #[test]
    fn anthropic_caches_only_up_to_marks() {
        let first = anthropic(&[(5_000, Some("5m")), (1_000, None)]);
        let alone = tokens(Dialect::Anthropic, std::slice::from_ref(&first));
        assert_eq!((alone.cached, alone.cache_write_1h), (0, 0));
        assert!((5_000..5_100).contains(&alone.cache_write), "{alone:?}");
        assert!((6_000..6_100).contains(&alone.input), "{alone:?}");
        let second = anthropic(&[(5_000, None), (1_000, None), (500, Some("1h"))]);
        let next = tokens(Dialect::Anthropic, &[first, second.clone()]);
        assert_eq!(next.cached, alone.cache_write, "the second block was never marked");
        assert!((1_500..1_600).contains(&next.cache_write_1h), "{next:?}");
        assert_eq!((next.input, next.cache_write), (next.cache_write_1h, 0));
        let unmarked = anthropic(&[(5_000, None), (1_000, None)]);
        let without = tokens(Dialect::Anthropic, &[second, unmarked]);
        assert_eq!((without.cached, without.cache_write), (0, 0), "nothing is marked");
    }

    #[test]
    fn text_is_the_same_as_one_block() {
        let message =
            |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        let marked = json!([{
            "type": "text", "text": text(5_000), "cache_control": { "type": "ephemeral" },
        }]);
        let next = json!({ "messages": [
            { "role": "user", "content": text(5_000) },
            { "role": "user", "content": marked.clone() },
        ] });
        let counted = tokens(Dialect::Anthropic, &[message(marked), next]);
        assert!(counted.cached > 5_000, "{counted:?}");
    }

    #[test]
    fn calls_of_a_message_with_text_count() {
        let request = |arguments: String| {
            let call = json!({ "function": { "name": "bash", "arguments": arguments } });
            json!({ "messages": [{ "role": "assistant", "content": "", "tool_calls": [call] }] })
        };
        let [short, long] = [1, 501].map(|size| tokens(Dialect::Chat, &[request(text(size))]));
        assert_eq!(long.input - short.input, 500);
    }

    #[test]
    fn anthropic_looks_back_a_limited_number_of_blocks() {
        let request = |more: usize| {
            let mut blocks = vec![(5_000, Some("5m")), (1, None)];
            if more > 0 {
                blocks[0].1 = None;
                blocks.extend(vec![(1, None); more - 1]);
                blocks.push((1, Some("5m")));
            }
            anthropic(&blocks)
        };
        let cached = |more| tokens(Dialect::Anthropic, &[request(0), request(more)]).cached;
        assert!(cached(LOOK_BACK - 1) > 5_000);
        assert_eq!(cached(LOOK_BACK), 0);
    }

    #[test]
    fn small_prefixes_are_not_cached() {
        let small = anthropic(&[(1_000, Some("5m"))]);
        let again = tokens(Dialect::Anthropic, &[small.clone(), small]);
        assert_eq!((again.cached, again.cache_write), (0, 0));
        for (dialect, minimum) in [
            (Dialect::Chat, OPENAI_MINIMUM),
            (Dialect::Responses, OPENAI_MINIMUM),
            (Dialect::Gemini, MINIMUM),
        ] {
            for (size, is_cached) in [(minimum - 50, false), (minimum + 50, true)] {
                let request = openai(&[text(size)]);
                let again = tokens(dialect, &[request.clone(), request]);
                assert_eq!(again.cached > 0, is_cached, "{dialect:?} {size}");
            }
        }
    }

    #[test]
    fn openai_caches_the_longest_common_prefix_in_steps() {
        for dialect in [Dialect::Chat, Dialect::Responses] {
            let one = openai(&[text(2_000), "one".to_owned()]);
            let longer = openai(&[text(2_000), text(1_000), "two".to_owned()]);
            let next = openai(&[text(2_000), text(1_000), "three".to_owned()]);
            let first = tokens(dialect, std::slice::from_ref(&next));
            assert_eq!(first.cached, 0);
            let counted = tokens(dialect, &[one, longer, next]);
            assert_eq!((counted.cached, counted.cached % 128), (2_944, 0), "{counted:?}");
            assert_eq!(counted.input + counted.cached, first.input);
        }
    }

    #[test]
    fn changed_start_of_a_prompt_loses_the_cache() {
        let request = |system: &str| {
            json!({ "systemInstruction": { "parts": [{ "text": system }] },
                "contents": [{ "role": "user", "parts": [{ "text": text(9_000) }] }] })
        };
        let same = tokens(Dialect::Gemini, &[request("a"), request("a")]);
        assert!(same.cached > 9_000 && same.input <= 1, "{same:?}");
        assert_eq!(tokens(Dialect::Gemini, &[request("a"), request("b")]).cached, 0);
    }
}
