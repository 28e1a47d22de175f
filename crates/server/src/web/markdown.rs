//! Markdown of people and agents as safe HTML.
//!
//! Only elements that this file writes reach a page. Raw HTML is shown as text, an image becomes a
//! link, and a link leads to a web address or is plain text.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::highlight::{self, Language};
use super::html::{SafeHtml, push_escaped};

/// Converts Markdown to HTML.
pub(in crate::web) fn to_html(text: &str) -> SafeHtml {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = MarkdownWriter::default();
    for event in Parser::new_ext(text.trim(), options) {
        writer.event(event);
    }
    SafeHtml::from_escaped(writer.html)
}

/// Escapes a line of text, and shows what stands between backticks as code. For lists, where blocks have
/// no place.
pub(in crate::web) fn code_spans_to_html(text: &str) -> SafeHtml {
    let mut html = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        let Some((code, next)) = after.split_once('`').filter(|(code, _)| !code.is_empty()) else {
            break;
        };
        push_escaped(&mut html, before);
        html.push_str("<code>");
        push_escaped(&mut html, code);
        html.push_str("</code>");
        rest = next;
    }
    push_escaped(&mut html, rest);
    SafeHtml::from_escaped(html)
}

#[derive(Default)]
struct MarkdownWriter {
    html: String,
    /// Language and text of the open code block.
    code: Option<(Language, String)>,
    /// For each open link or image, whether it has an element.
    links: Vec<bool>,
    in_table_head: bool,
}

impl MarkdownWriter {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => push_escaped(&mut self.html, &text),
            },
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.html.push_str("<code>");
                push_escaped(&mut self.html, &text);
                self.html.push_str("</code>");
            }
            Event::Html(text) | Event::InlineHtml(text) | Event::FootnoteReference(text) => {
                push_escaped(&mut self.html, &text);
            }
            // People break lines where they mean it, as in the comments of forges.
            Event::SoftBreak | Event::HardBreak => self.html.push_str("<br>\n"),
            Event::Rule => self.html.push_str("<hr>\n"),
            Event::TaskListMarker(done) => self.html.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.html.push_str("<p>"),
            Tag::Heading { level, .. } => self.html.push_str(heading(level, false)),
            Tag::BlockQuote(_) => self.html.push_str("<blockquote>"),
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(name) => {
                        let name = name.split([',', ' ', '{']).next().unwrap_or_default();
                        Language::from_name(name)
                    }
                    CodeBlockKind::Indented => Language::Plain,
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(None) => self.html.push_str("<ul>"),
            Tag::List(Some(_)) => self.html.push_str("<ol>"),
            Tag::Item => self.html.push_str("<li>"),
            Tag::Table(_) => self.html.push_str(
                "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\
                 <table class=\"tab\">",
            ),
            Tag::TableHead => {
                self.in_table_head = true;
                self.html.push_str("<thead><tr>");
            }
            Tag::TableRow => self.html.push_str("<tr>"),
            Tag::TableCell if self.in_table_head => self.html.push_str("<th scope=\"col\">"),
            Tag::TableCell => self.html.push_str("<td>"),
            Tag::Emphasis => self.html.push_str("<em>"),
            Tag::Strong => self.html.push_str("<strong>"),
            Tag::Strikethrough => self.html.push_str("<del>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.open_link(&dest_url),
            // Extensions that are off.
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.html.push_str("</p>\n"),
            TagEnd::Heading(level) => self.html.push_str(heading(level, true)),
            TagEnd::BlockQuote(_) => self.html.push_str("</blockquote>\n"),
            TagEnd::CodeBlock => {
                if let Some((language, code)) = self.code.take() {
                    self.html.push_str("<pre class=\"out\" tabindex=\"0\"><code>");
                    highlight::push_highlighted(&mut self.html, language, &code);
                    self.html.push_str("</code></pre>\n");
                }
            }
            TagEnd::List(false) => self.html.push_str("</ul>\n"),
            TagEnd::List(true) => self.html.push_str("</ol>\n"),
            TagEnd::Item => self.html.push_str("</li>\n"),
            TagEnd::Table => self.html.push_str("</tbody></table></div>\n"),
            TagEnd::TableHead => {
                self.in_table_head = false;
                self.html.push_str("</tr></thead><tbody>\n");
            }
            TagEnd::TableRow => self.html.push_str("</tr>\n"),
            TagEnd::TableCell if self.in_table_head => self.html.push_str("</th>"),
            TagEnd::TableCell => self.html.push_str("</td>"),
            TagEnd::Emphasis => self.html.push_str("</em>"),
            TagEnd::Strong => self.html.push_str("</strong>"),
            TagEnd::Strikethrough => self.html.push_str("</del>"),
            TagEnd::Link | TagEnd::Image => {
                if self.links.pop() == Some(true) {
                    self.html.push_str("</a>");
                }
            }
            TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Opens a link to a web address. Any other address, and a link in a link, is plain text.
    fn open_link(&mut self, address: &str) {
        let lower = address.to_ascii_lowercase();
        let is_web = lower.starts_with("https://") || lower.starts_with("http://");
        let has_element = is_web && !self.links.contains(&true);
        if has_element {
            self.html.push_str("<a rel=\"noopener noreferrer nofollow\" href=\"");
            push_escaped(&mut self.html, address);
            self.html.push_str("\">");
        }
        self.links.push(has_element);
    }
}

/// Returns the tag of a heading. Pages use the levels above.
fn heading(level: HeadingLevel, is_end: bool) -> &'static str {
    use HeadingLevel as H;
    match (level, is_end) {
        (H::H1, false) => "<h4>",
        (H::H1, true) => "</h4>\n",
        (H::H2, false) => "<h5>",
        (H::H2, true) => "</h5>\n",
        (H::H3 | H::H4 | H::H5 | H::H6, false) => "<h6>",
        (H::H3 | H::H4 | H::H5 | H::H6, true) => "</h6>\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str) -> String {
        to_html(text).to_string()
    }

    #[test]
    fn code_in_a_line_is_marked_and_everything_is_escaped() {
        for (text, expected) in [
            (
                "`greet <b>` prints `Hello`.",
                "<code>greet &#60;b&#62;</code> prints <code>Hello</code>.",
            ),
            ("1. **not** a <list>", "1. **not** a &#60;list&#62;"),
            ("one ` alone", "one ` alone"),
            ("``` fence", "``` fence"),
            ("", ""),
        ] {
            assert_eq!(code_spans_to_html(text).to_string(), expected);
        }
    }

    #[test]
    fn markdown_becomes_elements() {
        assert_eq!(
            html("**One** `two`\nthree"),
            "<p><strong>One</strong> <code>two</code><br>\nthree</p>\n"
        );
        assert_eq!(html("# Title"), "<h4>Title</h4>\n");
        assert_eq!(html("1. a\n2. b"), "<ol><li>a</li>\n<li>b</li>\n</ol>\n");
        assert!(html("- [x] done").contains("<li>☑ "));
        let table = html("| a | b |\n|---|---|\n| 1 | 2 |");
        assert!(table.contains("<th scope=\"col\">a</th>"), "{table}");
        assert!(table.contains("<tbody>\n<tr><td>1</td><td>2</td></tr>"), "{table}");
        let link = html("[docs](https://example.org/?a=1&b=\"2\")");
        assert!(link.contains("href=\"https://example.org/?a=1&#38;b="), "{link}");
    }

    #[test]
    fn hostile_markdown_adds_no_element_and_no_address() {
        for hostile in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "![x](//evil.example/a.png)",
            "<javascript:alert(1)>",
            "```html\n<script>alert(1)</script>\n```",
            "`<script>`",
            "[x]\n\n[x]: javascript:alert(1)",
            "[\"onmouseover=\"alert(1)](https://a.example/\"onmouseover=\"alert(1))",
            "<a href=\"x\" onclick=\"alert(1)\">y</a>",
        ] {
            let html = html(hostile);
            for forbidden in ["<script", "<img", "href=\"j", "href=\"d", "href=\"/", " onclick=\""]
            {
                assert!(!html.to_lowercase().contains(forbidden), "{hostile}: {html}");
            }
            assert!(!html.contains("\" onmouseover") && !html.contains("\"onmouseover"), "{html}");
        }
        // A link in a link would end the outer one.
        let nested = html("[![a](https://b.example/c.png)](https://d.example)");
        assert_eq!(nested.matches("<a ").count(), 1, "{nested}");
    }
}
