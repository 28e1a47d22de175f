//! Approval, review and rework of a task in a browser without JavaScript. Everything is real except the
//! agent, which follows a script.

use rustix::process::Signal;
use tamma_core::plan::{FileAction, Plan};
use tamma_testkit::agent::{PromptCase, Script};
use tamma_testkit::sample::{sample_change, sample_plan};

use crate::machine::Machine;
use crate::support::write_names;

/// Agent that plans a change of six files and writes another version in each run.
fn script() -> Script {
    let names = ["names.txt", "a.txt", "b.txt", "c.txt", "d.txt", "e.txt"];
    let action = |name| if name == "names.txt" { FileAction::Modify } else { FileAction::Create };
    let changes = names.map(|name| sample_change(name, action(name)));
    let plan = Plan { file_changes: changes.into(), ..sample_plan(1) };
    let mut script = Script::planned(plan, [write_names("ann\nbo\ncy\n")]);
    // The first matching case applies, so this one precedes the general one.
    let rework = PromptCase::new("Cyrus is the whole name", [write_names("ann\nbo\ncyrus\n")]);
    script.cases.insert(1, rework);
    script
}

/// Browser without JavaScript.
struct Browser {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    url: String,
    cookie: String,
}

impl Browser {
    fn new(machine: &Machine) -> Self {
        let text = std::fs::read_to_string(machine.path("data").join("server.json")).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let url = file["url"].as_str().unwrap().to_owned();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let none = reqwest::redirect::Policy::none();
        let http = reqwest::Client::builder().no_proxy().redirect(none).build().unwrap();
        let mut it = Self { runtime, http, url, cookie: String::new() };
        // The link that `tamma sign-in` prints.
        let link = machine.run(0, &["sign-in"]);
        let first = it.runtime.block_on(it.http.get(link.trim()).send()).unwrap();
        it.cookie = Self::cookie_of(&first);
        let html = it.runtime.block_on(first.text()).unwrap();
        let value = |name: &str| {
            let rest = html.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let body = format!("csrf={}&code={}&to=%2F", value("csrf"), value("code"));
        let request = it.http.post(format!("{}/hello", it.url)).header("cookie", &it.cookie);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let signed_in = it.runtime.block_on(request.body(body).send()).unwrap();
        it.cookie = Self::cookie_of(&signed_in);
        it
    }

    fn cookie_of(response: &reqwest::Response) -> String {
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    fn page(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.url)).header("cookie", &self.cookie);
        self.runtime.block_on(async { request.send().await.unwrap().text().await.unwrap() })
    }

    /// Posts fields with the CSRF token of a page.
    fn post(&self, page: &str, path: &str, fields: &str) -> u16 {
        let html = self.page(page);
        let csrf = html.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("csrf={csrf}&{fields}"));
        self.runtime.block_on(async { request.send().await.unwrap().status().as_u16() })
    }

    /// Fills in and submits the form of an action on a page.
    fn send(&self, page: &str, action: &str, inputs: &[(&str, &str)]) -> (u16, String) {
        let html = self.page(page);
        let form = html
            .split("<form")
            .find(|form| form.contains(&format!("name=\"action\" value=\"{action}\"")))
            .unwrap_or_else(|| panic!("no form for {action}: {html}"));
        let path = form.split("action=\"").nth(1).unwrap().split('"').next().unwrap();
        let hidden = form.split("type=\"hidden\" name=\"").skip(1).map(|field| {
            let (name, rest) = field.split_once("\" value=\"").unwrap();
            (name, rest.split('"').next().unwrap())
        });
        let fields: Vec<(&str, &str)> = hidden.chain(inputs.iter().copied()).collect();
        let body = fields.iter().fold(String::new(), |body, (name, value)| {
            let value = value.replace('%', "%25").replace(' ', "+").replace('&', "%26");
            format!("{body}&{name}={value}")
        });
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.trim_start_matches('&').to_owned());
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }
}

#[test]
fn a_task_can_be_completed_with_forms_alone() {
    let config = "ceremony:\n  medium: { human_review: true }\n";
    let machine = Machine::with_config(&script(), config);
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy"]);
    let task = added["task"]["id"].as_str().unwrap();
    let path = format!("/tasks/{task}");
    machine.run(3, &["task", "watch", task, "--until-asked"]);
    let browser = Browser::new(&machine);
    // Approve the plan on the page.
    let html = browser.page(&path);
    assert!(html.contains("Approve plan 1") && html.contains("Cy is greeted"), "{html}");
    let (status, html) = browser.send(&path, "approve", &[("reason", "Go on")]);
    assert_eq!(status, 303, "{html}");
    // Request changes with a line comment.
    machine.run(3, &["task", "watch", task, "--until-asked"]);
    let change = format!("{path}/change");
    assert!(browser.page(&change).contains("cy"), "the change is shown");
    let (status, html) = browser.send(&change, "rework", &[("lines", "names.txt: no line")]);
    assert_eq!(status, 422);
    assert!(html.contains("is not a line comment") && html.contains("no line"), "{html}");
    // A line that the change does not show is refused.
    let (status, html) =
        browser.send(&change, "rework", &[("lines", "names.txt:99: no such line")]);
    assert_eq!(status, 422);
    assert!(html.contains("does not show line 99"), "{html}");
    // A draft is sent with the decision.
    let draft = "file=names.txt&side=new&line=3&text=Cyrus+is+the+whole+name&how=draft";
    assert_eq!(browser.post(&change, &format!("{change}/comments"), draft), 303);
    let (status, html) = browser.send(&change, "rework", &[("comments", "Nearly")]);
    assert_eq!(status, 303, "{html}");
    machine.run(3, &["task", "watch", task, "--until-asked"]);
    // The words can be read again, wherever they matter.
    for part in ["review", "events"] {
        let html = browser.page(&format!("{path}/{part}"));
        assert!(html.contains("Nearly") && html.contains("Cyrus is the whole name"), "{html}");
    }
    let history = machine.json(&["task", "history", task]);
    let texts = history.as_array().unwrap().iter().filter_map(|entry| entry["text"].as_str());
    assert_eq!(texts.filter(|text| text.contains("Nearly")).count(), 1);
    // The next change follows the comment, which is shown beside it, and is compared with the last one.
    let html = browser.page(&change);
    assert!(html.contains("Changes since your review of"), "{html}");
    assert!(!html.contains("not sent"), "the draft was sent: {html}");
    let since = browser.page(&format!("{change}?since=true"));
    assert!(since.contains("Show the whole change") && since.contains("cyrus"), "{since}");
    let html = browser.page(&change);
    assert!(html.contains("cyrus") && html.contains("Cyrus is the whole name"), "{html}");
    assert!(html.contains("<b>Grace</b>"), "{html}");
    let (status, html) = browser.send(&change, "accept", &[]);
    assert_eq!(status, 303, "{html}");
    machine.run(0, &["task", "watch", task]);
    // A closed task can only be rated.
    let html = browser.page(&path);
    assert!(html.contains("This task is closed") && html.contains("Rate task"), "{html}");
    let done = machine.json(&["task", "show", task]);
    let branch = done["branch"].as_str().unwrap();
    assert!(html.contains(&format!("<code id=\"branch\">{branch}</code>")), "{html}");
    assert_eq!(html.matches("name=\"action\"").count(), 1, "{html}");
    let approved = machine.json(&["task", "history", task]);
    let approved = approved.as_array().unwrap().iter().find(|it| it["reason"] == "Go on").unwrap();
    assert_eq!(approved["actor"]["person"], "Grace");
    assert_eq!(approved["auth"]["via"], "web");
    // The worker is listed with its slots.
    let html = browser.page("/engines");
    assert!(html.contains("0 of ") && !html.contains("No workers online"), "{html}");
    assert!(up.signal(Signal::TERM).success());
}
