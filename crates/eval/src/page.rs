//! Page of an evaluation: one HTML file without scripts, styles or images from elsewhere.

use std::fmt::{self, Write as _};

use tamma_core::cost::Usd;

use crate::case::{CaseOutcome, CaseResult};
use crate::measures::{ArmMeasures, EvalReport};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%;margin:1rem 0 2rem}\
caption{text-align:left;font-weight:600;padding-bottom:.5rem}\
th,td{border-bottom:1px solid;border-color:color-mix(in srgb,currentColor 25%,transparent);\
padding:.35rem .6rem;text-align:left;vertical-align:top}\
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}\
.scroll{overflow-x:auto}\
pre{white-space:pre-wrap;font-size:.85rem}";

/// Text with the characters of markup escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Renders the page of an evaluation.
pub fn render_page(report: &EvalReport) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(page: &mut String, report: &EvalReport) -> fmt::Result {
    let model = report.model.as_deref().map_or(String::new(), |model| format!(", model {model}"));
    let title = format!("Evaluation {}: {}{model}", report.set, report.agent);
    let title = Escaped(&title);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n<p>Tamma {}. Hidden tests decide; no agent has seen \
         them.</p>\n",
        Escaped(&report.tamma)
    )?;
    write_measures(page, &report.arms)?;
    write_cases(page, &report.cases)?;
    write_outputs(page, &report.cases)?;
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

/// Writes one row per measure and one column per arm.
fn write_measures(page: &mut String, arms: &[ArmMeasures]) -> fmt::Result {
    type Measure = (&'static str, fn(&ArmMeasures) -> Option<String>);
    let rows: [Measure; 16] = [
        ("Solved", |it| Some(format!("{} of {}", it.solved, it.cases))),
        ("Tasks solved in every trial", |it| {
            Some(format!("{} of {}", it.solved_every_trial, it.tasks))
        }),
        ("False completions", |it| Some(it.false_completions.to_string())),
        ("Unsolved", |it| Some(it.unsolved.to_string())),
        ("Not run (failure outside the agent)", |it| Some(it.not_run.to_string())),
        ("Cost", |it| Some(dollars(it.usd)).filter(|_| it.usd > Usd::ZERO)),
        ("Cost per solved case", |it| it.usd_per_solved.map(dollars)),
        ("Cases with an incomplete cost", |it| positive(wide(it.usd_incomplete_cases))),
        ("Minutes per solved case", |it| it.seconds_per_solved.map(minutes)),
        ("Implementation runs per case", |it| Some(hundredths(it.iterations_per_100_cases))),
        ("First commits with passing gates", |it| it.first_pass_gate_percent.map(percent)),
        ("Planned files that changed", |it| it.plan_precision_percent.map(percent)),
        ("Changed files that were planned", |it| it.plan_recall_percent.map(percent)),
        ("Gates run by the agent", |it| positive(u64::from(it.gate_calls))),
        ("Denied permission requests", |it| Some(it.denials.to_string())),
        ("Input tokens from a cache", |it| it.cached_input_percent.map(percent)),
    ];
    page.push_str(
        "<div class=\"scroll\"><table>\n<caption>Measures</caption>\n<thead><tr><th>Measure</th>",
    );
    for arm in arms {
        write!(page, "<th class=\"number\" scope=\"col\">{}</th>", arm.arm)?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (name, value) in rows {
        let values: Vec<_> = arms.iter().map(value).collect();
        // A measure that no arm has is left out.
        if values.iter().all(Option::is_none) {
            continue;
        }
        write!(page, "<tr><th scope=\"row\">{name}</th>")?;
        for value in values {
            write!(page, "<td class=\"number\">{}</td>", value.unwrap_or_else(|| "–".to_owned()))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    Ok(())
}

fn write_cases(page: &mut String, cases: &[CaseResult]) -> fmt::Result {
    page.push_str(
        "<div class=\"scroll\"><table>\n<caption>Cases</caption>\n<thead><tr><th scope=\"col\">Task</th>\
         <th scope=\"col\">Arm</th><th class=\"number\" scope=\"col\">Trial</th><th scope=\"col\">Result</th>\
         <th scope=\"col\">Reason</th><th class=\"number\" scope=\"col\">Runs</th>\
         <th class=\"number\" scope=\"col\">Minutes</th><th class=\"number\" scope=\"col\">Cost</th></tr>\
         </thead>\n<tbody>\n",
    );
    for case in cases {
        writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            Escaped(&case.key.task),
            case.key.arm,
            case.key.trial,
            label(case.outcome),
            Escaped(&case.reason),
            case.runs,
            minutes(case.seconds),
            cost(case),
        )?;
    }
    page.push_str("</tbody>\n</table></div>\n");
    Ok(())
}

/// Writes the output of failed hidden tests.
fn write_outputs(page: &mut String, cases: &[CaseResult]) -> fmt::Result {
    let failed: Vec<_> = cases.iter().filter(|case| !case.hidden_output.is_empty()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>Failed hidden tests</h2>\n");
    for case in failed {
        let key = case.key.to_string();
        writeln!(
            page,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            Escaped(&key),
            Escaped(&case.hidden_output)
        )?;
    }
    Ok(())
}

fn label(outcome: CaseOutcome) -> &'static str {
    match outcome {
        CaseOutcome::Solved => "✓ solved",
        CaseOutcome::FalseCompletion => "✗ false completion",
        CaseOutcome::Unsolved => "– unsolved",
        CaseOutcome::NotRun => "! not run",
    }
}

/// Formats a cost. An unknown cost is not zero.
fn cost(case: &CaseResult) -> String {
    match (case.usd, case.usd_incomplete) {
        (None, _) => "unknown".to_owned(),
        (Some(usd), true) => format!("at least {}", dollars(usd)),
        (Some(usd), false) => dollars(usd),
    }
}

fn dollars(usd: Usd) -> String {
    usd.to_string()
}

fn minutes(seconds: u64) -> String {
    format!("{}.{}", seconds / 60, seconds % 60 / 6)
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

fn percent(number: u64) -> String {
    format!("{number}%")
}

fn positive(number: u64) -> Option<String> {
    (number > 0).then(|| number.to_string())
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::tests::result;

    #[test]
    fn the_page_has_every_case_and_escapes_texts() {
        let mut failed = result("b", 1, CaseOutcome::FalseCompletion);
        failed.hidden_output = "<script>alert(1)</script>".to_owned();
        failed.usd_incomplete = true;
        let cases = vec![result("a", 1, CaseOutcome::Solved), failed];
        let page = render_page(&EvalReport::new(("starter", "a<b", None), "0.1.0", cases));
        assert!(page.contains("<td class=\"number\">1 of 2</td>"), "{page}");
        assert!(page.contains("a&lt;b") && !page.contains("<script>"), "{page}");
        assert!(page.contains("at least $0.5") && page.contains("✗ false completion"), "{page}");
        assert!(!page.contains("Gates run by the agent"), "a measure without data is left out");
        assert!(!page.contains("http"), "nothing is loaded from elsewhere");
    }

    #[test]
    fn durations_have_tenths_of_minutes() {
        assert_eq!(minutes(90), "1.5");
        assert_eq!(minutes(5), "0.0");
        assert_eq!(hundredths(205), "2.05");
    }
}
