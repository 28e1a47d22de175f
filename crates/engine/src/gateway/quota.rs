//! Parsing of rate-limit responses: the time at which a provider accepts calls again.

use std::time::Duration;

use axum::http::HeaderMap;
use chrono::DateTime;
use serde_json::Value;
use tamma_core::task_loop::Timestamp;

use super::clock::saturating_add;

/// Smallest number that is a Unix timestamp instead of a delay in seconds. It is in 2001, or 30
/// years from now.
const MIN_UNIX_TIME: i64 = 1_000_000_000;

/// Returns the time at which the provider accepts calls again, if it says so.
pub(super) fn reset_time(headers: &HeaderMap, body: &str, now: Timestamp) -> Option<Timestamp> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let after = header("retry-after-ms")
        .and_then(|ms| ms.parse().ok())
        .map(|ms| saturating_add(now, Duration::from_millis(ms)))
        .or_else(|| header("retry-after").and_then(|text| parse_time(text, now)));
    let from_body =
        serde_json::from_str(body).ok().and_then(|body: Value| reset_from_body(&body, now));
    let from_text = || reset_from_text(body, now);
    // Data about this call takes precedence over headers with all limits, most of which are not
    // reached.
    after.max(from_body).or_else(from_text).or_else(|| reset_from_headers(headers, now))
}

/// Returns the latest reset of the exhausted limits in the headers.
fn reset_from_headers(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let resets = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str();
        let remaining = if name.starts_with("anthropic-ratelimit-") {
            format!("{}-remaining", name.strip_suffix("-reset")?)
        } else if let Some(limit) = name.strip_prefix("x-ratelimit-reset") {
            format!("x-ratelimit-remaining{limit}")
        } else {
            return None;
        };
        let reached = text(&remaining).is_none_or(|left| left.trim() == "0");
        parse_time(value.to_str().ok()?, now).filter(|_| reached)
    });
    resets.max()
}

/// Returns the latest time anywhere in a JSON body.
fn reset_from_body(body: &Value, now: Timestamp) -> Option<Timestamp> {
    match body {
        Value::Array(all) => all.iter().filter_map(|value| reset_from_body(value, now)).max(),
        Value::Object(all) => {
            let times = all.iter().filter_map(|(key, value)| match key.as_str() {
                "resets_at" | "resetsAt" | "reset_at" | "resetAt" | "retryDelay"
                | "retry_after" | "resets_in_seconds" => match value {
                    Value::String(text) => parse_time(text, now),
                    Value::Number(number) => parse_time(&number.to_string(), now),
                    _ => None,
                },
                _ => reset_from_body(value, now),
            });
            times.max()
        }
        _ => None,
    }
}

/// Parses texts such as "Please try again in 6m0s."
fn reset_from_text(body: &str, now: Timestamp) -> Option<Timestamp> {
    let (_, rest) = body.split_once("try again in ")?;
    let span_text = rest.split(|c: char| c.is_whitespace() || c == '"').next()?;
    parse_duration(span_text.trim_end_matches(['.', ','])).map(|span| saturating_add(now, span))
}

/// Parses a time: a date, a Unix timestamp, or a delay from now.
fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    let date = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    if let Ok(date) = date {
        return Some(date.to_utc());
    }
    match text.parse::<i64>() {
        Ok(seconds) if seconds >= MIN_UNIX_TIME => DateTime::from_timestamp_secs(seconds),
        _ => parse_duration(text).map(|span| saturating_add(now, span)),
    }
}

/// Parses a duration such as `90`, `1.5s`, `20ms`, `6m0s` or `1h2m`.
fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(digits);
        let length = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, next) = unit.split_at(length);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = next;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn wait(headers: &[(&'static str, &'static str)], body: &str) -> Option<f64> {
        let now = DateTime::from_timestamp_secs(1_800_000_000).expect("a time");
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let reset = reset_time(&headers.collect(), body, now)?;
        Some((reset - now).as_seconds_f64())
    }

    #[test]
    fn reset_time_is_read_from_headers() {
        assert_eq!(wait(&[("retry-after", "90")], ""), Some(90.0));
        assert_eq!(wait(&[("retry-after", "Fri, 15 Jan 2027 09:00:00 GMT")], ""), Some(3600.0));
        assert_eq!(wait(&[("retry-after-ms", "1500")], ""), Some(1.5));
        let anthropic = "anthropic-ratelimit-tokens-reset";
        assert_eq!(wait(&[(anthropic, "2027-01-15T08:10:00Z")], ""), Some(600.0));
        assert_eq!(wait(&[("anthropic-ratelimit-unified-reset", "1800000060")], ""), Some(60.0));
        assert_eq!(wait(&[("x-ratelimit-reset-requests", "6m0.5s")], ""), Some(360.5));
        assert_eq!(wait(&[], "{}"), None);
    }

    #[test]
    fn limits_that_are_not_reached_are_ignored() {
        let headers = [
            ("x-ratelimit-reset-requests", "24h"),
            ("x-ratelimit-remaining-requests", "17"),
            ("x-ratelimit-reset-tokens", "20ms"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(wait(&headers, ""), Some(0.02));
        let both = [("retry-after", "5"), ("anthropic-ratelimit-requests-reset", "1800009999")];
        assert_eq!(wait(&both, ""), Some(5.0), "data about the call takes precedence");
    }

    #[test]
    fn reset_time_is_read_from_the_body() {
        assert_eq!(wait(&[], r#"{"error":{"resets_at":1800000030}}"#), Some(30.0));
        assert_eq!(wait(&[], r#"{"error":{"resets_in_seconds":45}}"#), Some(45.0));
        assert_eq!(wait(&[], r#"{"resetAt":"2027-01-15T08:01:00Z"}"#), Some(60.0));
        let gemini = r#"{"error":{"code":429,"details":[{"@type":"x/google.rpc.RetryInfo",
            "retryDelay":"34.5s"}]}}"#;
        assert_eq!(wait(&[], gemini), Some(34.5));
        let message = r#"{"error":{"message":"Rate limit. Please try again in 1m2s. Thanks."}}"#;
        assert_eq!(wait(&[], message), Some(62.0));
        assert_eq!(wait(&[], r#"{"error":{"message":"Please try again in 20ms"}}"#), Some(0.02));
    }
}
