//! GitHub's description of its API and its examples of webhooks, which `.ci/tools` installs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};
use tamma_connect::forge::webhook;
use tamma_core::forge::ForgeKind;
use tamma_testkit::forge::{Exchange, github_openapi, github_webhooks};

use crate::support::verdict::Verdict;

/// Operations whose responses the fake fills in only as far as our client reads them.
const PARTIAL: [&str; 3] = ["/compare/", "/branches/", "/meta"];

/// Secret of the examples.
const SECRET: &str = "secret-of-the-examples";

/// Compares exchanges with the description: the operation exists, and the request, the status and the
/// response follow it.
pub(crate) fn validate(exchanges: &[Exchange]) -> Result<Verdict> {
    let Some(path) = github_openapi() else {
        return Ok(Verdict::new(true, "GitHub's API description not installed"));
    };
    let mut root: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    allow_null(&mut root);
    let mut description = Description { root: &root, validators: BTreeMap::new() };
    let (mut compared, mut problems) = (0, BTreeSet::new());
    for exchange in exchanges.iter().filter(|it| it.path != "/graphql") {
        compared += 1;
        for problem in description.compare(exchange)? {
            problems.insert(format!("{} {}: {problem}", exchange.method, exchange.path));
        }
    }
    for problem in &problems {
        writeln!(std::io::stdout(), "OpenAPI: {problem}")?;
    }
    let figures = format!("{compared} REST exchanges, {} off the description", problems.len());
    Ok(Verdict::new(problems.is_empty(), figures))
}

/// Description, with the schemas that were compiled so far.
struct Description<'a> {
    root: &'a Value,
    validators: BTreeMap<String, Validator>,
}

impl Description<'_> {
    fn compare(&mut self, exchange: &Exchange) -> Result<Vec<String>> {
        let root = self.root;
        let method = exchange.method.to_lowercase();
        let Some(operation) = operation(root, &method, &exchange.path) else {
            return Ok(vec!["unknown operation".to_owned()]);
        };
        let mut problems = Vec::new();
        let request = operation.pointer("/requestBody/content/application~1json/schema");
        if let Some(schema) = request.filter(|_| !exchange.request.is_null()) {
            let found = self.check(schema, &exchange.request)?;
            problems.extend(found.map(|it| format!("request: {it}")));
        }
        let status = exchange.status.to_string();
        let Some(response) = operation.pointer(&format!("/responses/{status}")) else {
            // Missing objects are described for some operations only.
            if exchange.status != 404 {
                problems.push(format!("status {status} is not described"));
            }
            return Ok(problems);
        };
        let reference = response["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
        let response = reference.and_then(|it| root.pointer(it)).unwrap_or(response);
        let schema = response.pointer("/content/application~1json/schema");
        let is_partial = PARTIAL.iter().any(|it| exchange.path.contains(it));
        if let Some(schema) = schema.filter(|_| !is_partial) {
            let found = self.check(schema, &exchange.response)?;
            problems.extend(found.map(|it| format!("response {status}: {it}")));
        }
        Ok(problems)
    }

    /// Returns the first difference of a value.
    fn check(&mut self, schema: &Value, value: &Value) -> Result<Option<String>> {
        let key = schema.to_string();
        if !self.validators.contains_key(&key) {
            let validator = compile(self.root, schema)?;
            self.validators.insert(key.clone(), validator);
        }
        let validator = self.validators.get(&key).context("the schema was not compiled")?;
        let first = validator.iter_errors(value).next();
        Ok(first.map(|error| format!("{error} at `{}`", error.instance_path())))
    }
}

/// Compiles a schema with those that it refers to. The whole description takes seconds.
fn compile(root: &Value, schema: &Value) -> Result<Validator> {
    let mut schemas = Map::new();
    let mut pending = references(schema);
    while let Some(name) = pending.pop() {
        let Some(found) = root["components"]["schemas"].get(&name) else { continue };
        if schemas.insert(name, found.clone()).is_none() {
            pending.extend(references(found));
        }
    }
    let whole = json!({ "allOf": [schema], "components": { "schemas": schemas } });
    jsonschema::options()
        .with_draft(Draft::Draft4)
        .build(&whole)
        .map_err(|error| anyhow::anyhow!("cannot read the description: {error}"))
}

/// Returns the names of the schemas that a schema refers to itself.
fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(object) => {
            let own = object.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|it| it.strip_prefix("#/components/schemas/"));
            own.map(str::to_owned).into_iter().chain(object.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Returns the operation with the most fixed parts. A parameter at the end can contain slashes.
fn operation<'a>(description: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let wanted: Vec<&str> = path.split('/').collect();
    let paths = description["paths"].as_object()?;
    let fits = |template: &str| {
        let parts: Vec<&str> = template.split('/').collect();
        let has_rest = parts.last().is_some_and(|it| it.starts_with('{'));
        let has_length = parts.len() == wanted.len() || (has_rest && parts.len() < wanted.len());
        let is_equal =
            parts.iter().zip(&wanted).all(|(part, text)| part.contains('{') || part == text);
        (has_length && is_equal).then(|| parts.iter().filter(|it| !it.contains('{')).count())
    };
    let found = paths.iter().filter(|(_, methods)| methods.get(method).is_some());
    let best = found.filter_map(|(template, methods)| Some((fits(template)?, methods)));
    best.max_by_key(|(fixed, _)| *fixed).and_then(|(_, methods)| methods.get(method))
}

/// Writes `nullable` of a description as JSON Schema.
fn allow_null(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(allow_null);
            if object.get("nullable") == Some(&Value::Bool(true)) {
                object.remove("nullable");
                let schema = Value::Object(std::mem::take(object));
                object.insert("anyOf".to_owned(), json!([schema, { "type": "null" }]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(allow_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the signature of a webhook.
pub(crate) fn sign(secret: &str, body: &[u8]) -> Result<String> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut signature = "sha256=".to_owned();
    for byte in hmac::sign(&key, body).as_ref() {
        write!(signature, "{byte:02x}")?;
    }
    Ok(signature)
}

/// Sends every example through the receiver, signed and with a wrong signature.
pub(crate) fn receive_examples() -> Result<Verdict> {
    let Some(path) = github_webhooks() else {
        return Ok(Verdict::new(true, "GitHub's webhooks not installed"));
    };
    let events: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?)?;
    let (mut sent, mut refused, mut forged) = (0, 0, 0);
    for event in &events {
        let name = event["name"].as_str().context("an event has no name")?;
        for example in event["examples"].as_array().into_iter().flatten() {
            sent += 1;
            let body = serde_json::to_vec(example)?;
            let signature = sign(SECRET, &body)?;
            let receive = |secret: &str| {
                let header = |wanted: &str| match wanted {
                    "x-hub-signature-256" => Some(signature.as_str()),
                    "x-github-delivery" => Some("delivery"),
                    "x-github-event" => Some(name),
                    _ => None,
                };
                webhook::receive(ForgeKind::Github, secret, header, &body)
            };
            refused += usize::from(receive(SECRET).is_err());
            forged += usize::from(receive("another secret").is_ok());
        }
    }
    let figures = format!("{sent} webhooks, {refused} refused, {forged} forged ones accepted");
    Ok(Verdict::new(refused == 0 && forged == 0 && sent > 0, figures))
}
