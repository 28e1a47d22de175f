//! Plans, verdicts and results of agents as documents.

use serde_json::Value;

use crate::web::html::SafeHtml;
use crate::web::markdown::code_spans_to_html;

/// Document that an agent submitted.
pub(in crate::web) struct DocumentView {
    pub(in crate::web) title: &'static str,
    pub(in crate::web) sections: Vec<DocumentSection>,
}

/// Section of a document: paragraphs, then a list.
pub(in crate::web) struct DocumentSection {
    pub(in crate::web) heading: &'static str,
    pub(in crate::web) paragraphs: Vec<String>,
    pub(in crate::web) items: Vec<String>,
}

impl DocumentSection {
    /// Returns the paragraphs, with code between backticks marked.
    pub(in crate::web) fn paragraphs_html(&self) -> Vec<SafeHtml> {
        self.paragraphs.iter().map(|text| code_spans_to_html(text)).collect()
    }

    /// Returns the items of the list, with code between backticks marked.
    pub(in crate::web) fn items_html(&self) -> Vec<SafeHtml> {
        self.items.iter().map(|text| code_spans_to_html(text)).collect()
    }
}

impl DocumentView {
    /// Reads a document from the data of its log line; `None` for an unknown kind.
    pub(super) fn from_data(data: &Value) -> Option<Self> {
        let content = &data["content"];
        let (title, sections) = match data["document"].as_str()? {
            "plan" => ("Plan", plan_sections(content)),
            "verdict" => ("Verdict", verdict_sections(content)),
            "result" => ("Result", result_sections(content)),
            _ => return None,
        };
        let is_empty =
            |section: &DocumentSection| section.paragraphs.is_empty() && section.items.is_empty();
        let sections = sections.into_iter().filter(|section| !is_empty(section)).collect();
        Some(Self { title, sections })
    }
}

fn plan_sections(plan: &Value) -> Vec<DocumentSection> {
    let file = |file: &Value| {
        let text = |name: &str| file[name].as_str().unwrap_or_default().to_owned();
        format!("{} ({}): {}", text("path"), text("action"), text("description"))
    };
    let files = plan["file_changes"].as_array().into_iter().flatten().map(file).collect();
    vec![
        text_section("Summary", &plan["summary"]),
        text_section("Approach", &plan["approach"]),
        DocumentSection { heading: "Files", paragraphs: Vec::new(), items: files },
        text_section("Testing", &plan["testing_strategy"]),
        list_section("Acceptance criteria", &plan["criteria"]),
        list_section("Questions", &plan["questions"]),
        list_section("Risks", &plan["risks"]),
        list_section("Assumptions", &plan["assumptions"]),
        list_section("Tests that will change", &plan["test_changes"]),
    ]
}

fn verdict_sections(verdict: &Value) -> Vec<DocumentSection> {
    let criteria = verdict["criteria"].as_object().into_iter().flatten();
    let criteria = criteria.map(|(id, judgement)| {
        if let Some(met) = judgement.get("met") {
            format!("{id} is met: {}", met["evidence"].as_str().unwrap_or_default())
        } else if let Some(unmet) = judgement.get("unmet") {
            format!("{id} is not met: {}", unmet["why"].as_str().unwrap_or_default())
        } else {
            format!("{id} was not judged")
        }
    });
    let issues = verdict["issues"].as_array().into_iter().flatten();
    let issues = issues.map(|issue| {
        let text = |name: &str| issue[name].as_str().unwrap_or_default();
        let location = match (issue["file"].as_str(), issue["line"].as_u64()) {
            (Some(file), Some(line)) => format!(" ({file}:{line})"),
            (Some(file), None) => format!(" ({file})"),
            (None, _) => String::new(),
        };
        format!("{}: {}{location}", text("severity"), text("message"))
    });
    vec![
        DocumentSection { heading: "Criteria", paragraphs: Vec::new(), items: criteria.collect() },
        DocumentSection { heading: "Issues", paragraphs: Vec::new(), items: issues.collect() },
        list_section("Suggestions", &verdict["suggestions"]),
    ]
}

fn result_sections(result: &Value) -> Vec<DocumentSection> {
    vec![
        text_section("Summary (unverified)", &result["summary"]),
        list_section("Deviations from the plan", &result["deviations"]),
        list_section("Not verified", &result["unverified"]),
    ]
}

fn text_section(heading: &'static str, text: &Value) -> DocumentSection {
    let paragraphs = text.as_str().unwrap_or_default().split("\n\n").map(str::trim);
    let paragraphs = paragraphs.filter(|text| !text.is_empty()).map(str::to_owned).collect();
    DocumentSection { heading, paragraphs, items: Vec::new() }
}

fn list_section(heading: &'static str, list: &Value) -> DocumentSection {
    let items = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    DocumentSection { heading, paragraphs: Vec::new(), items: items.map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sections(data: &Value) -> Vec<(&'static str, Vec<String>)> {
        let view = DocumentView::from_data(data).expect("a document");
        let text = |it: DocumentSection| (it.heading, [it.paragraphs, it.items].concat());
        view.sections.into_iter().map(text).collect()
    }

    #[test]
    fn a_plan_has_its_sections_and_no_empty_ones() {
        let plan = json!({
            "summary": "Greet.", "approach": "One.\n\nTwo.", "risks": [],
            "file_changes": [{ "path": "a.rs", "action": "change", "description": "b" }],
        });
        let shown = sections(&json!({ "document": "plan", "content": plan }));
        let expected = [
            ("Summary", vec!["Greet.".to_owned()]),
            ("Approach", vec!["One.".to_owned(), "Two.".to_owned()]),
            ("Files", vec!["a.rs (change): b".to_owned()]),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn code_in_a_document_is_marked_and_everything_is_escaped() {
        let section = DocumentSection {
            heading: "Summary",
            paragraphs: vec!["Use `a<b>` & <i>".to_owned()],
            items: vec!["`x`".to_owned()],
        };
        let html: String = section.paragraphs_html().iter().map(ToString::to_string).collect();
        assert_eq!(html, "Use <code>a&#60;b&#62;</code> &#38; &#60;i&#62;");
        let html: String = section.items_html().iter().map(ToString::to_string).collect();
        assert_eq!(html, "<code>x</code>");
    }

    #[test]
    fn a_verdict_has_each_criterion_with_its_judgement() {
        let verdict = json!({
            "criteria": {
                "C1": { "met": { "evidence": "a test" } }, "C2": { "unmet": { "why": "no" } },
                "C3": "unjudged",
            },
            "issues": [{ "severity": "error", "message": "wrong", "file": "a.rs", "line": 3 }],
        });
        let shown = sections(&json!({ "document": "verdict", "content": verdict }));
        let criteria = ["C1 is met: a test", "C2 is not met: no", "C3 was not judged"];
        assert_eq!(shown[0], ("Criteria", criteria.map(str::to_owned).to_vec()));
        assert_eq!(shown[1], ("Issues", vec!["error: wrong (a.rs:3)".to_owned()]));
        assert!(DocumentView::from_data(&json!({ "document": "song" })).is_none());
        assert!(DocumentView::from_data(&json!([1])).is_none());
    }
}
