//! HTML that is written by code and not by a template.

use std::fmt;

/// HTML in which everything that somebody else wrote is escaped. Templates show it with `|safe`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::web) struct SafeHtml(String);

impl SafeHtml {
    /// Wraps HTML whose author has escaped all foreign text with [`push_escaped`].
    pub(in crate::web) fn from_escaped(html: String) -> Self {
        Self(html)
    }

    pub(in crate::web) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for SafeHtml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Appends text, escaped as templates do it, for content and for quoted attributes.
pub(in crate::web) fn push_escaped(html: &mut String, text: &str) {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'<' => "&#60;",
            b'>' => "&#62;",
            b'&' => "&#38;",
            b'"' => "&#34;",
            b'\'' => "&#39;",
            _ => continue,
        };
        // These bytes are never part of another character, so both ends are boundaries.
        html.push_str(text.get(plain..at).unwrap_or_default());
        html.push_str(escaped);
        plain = at + 1;
    }
    html.push_str(text.get(plain..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_never_becomes_markup() {
        let mut html = String::new();
        push_escaped(&mut html, "ä<b class='x'>\"&amp;\"</b>ö");
        let expected = "ä&#60;b class=&#39;x&#39;&#62;&#34;&#38;amp;&#34;&#60;/b&#62;ö";
        assert_eq!(html, expected);
    }
}
