//! Search text of a person as a query of PostgreSQL's full-text search.

/// Number of characters of a search text. Thousands of words exceed PostgreSQL's stack.
const MAX_SEARCH_TEXT: usize = 400;

/// Converts a search text into the syntax of `to_tsquery`.
///
/// A word matches the start of words. A phrase in quotes, and a word or phrase after `-`, which must
/// not occur, match whole words. `or` between two of them requires one of both. Every text gives a
/// query that PostgreSQL accepts.
pub(crate) fn search_query(text: &str) -> String {
    let text: String = text.chars().filter(|char| *char != '\0').take(MAX_SEARCH_TEXT).collect();
    let mut query = String::new();
    let mut is_alternative = false;
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let excluded = rest
            .strip_prefix('-')
            .filter(|after| after.starts_with(|char: char| char != '-' && !char.is_whitespace()));
        let term = excluded.unwrap_or(rest);
        let phrase = term.strip_prefix('"');
        let (words, after) = if let Some(phrase) = phrase {
            phrase.split_once('"').unwrap_or((phrase, ""))
        } else {
            let end = term.find(|char: char| char == '"' || char.is_whitespace());
            term.split_at(end.unwrap_or(term.len()))
        };
        rest = after.trim_start();
        let is_start_of_word = excluded.is_none() && phrase.is_none();
        let is_between = !query.is_empty() && !is_alternative && !rest.is_empty();
        if is_start_of_word && is_between && words.eq_ignore_ascii_case("or") {
            is_alternative = true;
            continue;
        }
        // PostgreSQL refuses an empty term, and finds no words in punctuation.
        if words.chars().all(|char| char.is_ascii() && !char.is_ascii_alphanumeric()) {
            continue;
        }
        if !query.is_empty() {
            query.push_str(if is_alternative { " | " } else { " & " });
        }
        is_alternative = false;
        if excluded.is_some() {
            query.push('!');
        }
        query.push('\'');
        query.push_str(&words.replace('\\', r"\\").replace('\'', "''"));
        query.push('\'');
        if is_start_of_word {
            query.push_str(":*");
        }
    }
    query
}

#[cfg(test)]
mod tests {
    use super::search_query;

    #[test]
    fn only_a_word_outside_quotes_and_exclusions_matches_the_start_of_words() {
        for (text, expected) in [
            ("gre", "'gre':*"),
            ("  greet   peo ", "'greet':* & 'peo':*"),
            ("\"gre\"", "'gre'"),
            ("\"greet peo\" na", "'greet peo' & 'na':*"),
            ("gre -peo", "'gre':* & !'peo'"),
            ("-\"by name\" gre", "!'by name' & 'gre':*"),
            ("follow-u", "'follow-u':*"),
            ("round\"to main\"", "'round':* & 'to main'"),
            ("\"not closed", "'not closed'"),
        ] {
            assert_eq!(search_query(text), expected, "{text}");
        }
    }

    #[test]
    fn or_is_an_operator_between_two_terms_only() {
        for (text, expected) in [
            ("a or b", "'a':* | 'b':*"),
            ("a OR \"b c\" d", "'a':* | 'b c' & 'd':*"),
            ("or a or", "'or':* & 'a':* & 'or':*"),
            ("a or or b", "'a':* | 'or':* & 'b':*"),
            ("a \"or\" b", "'a':* & 'or' & 'b':*"),
            ("a or !!!", "'a':*"),
        ] {
            assert_eq!(search_query(text), expected, "{text}");
        }
    }

    #[test]
    fn operators_and_quotes_of_postgresql_are_part_of_a_word() {
        for (text, expected) in [
            ("don't", "'don''t':*"),
            ("c:\\new", "'c:\\\\new':*"),
            ("gre':* | 'a", "'gre'':*':* & '''a':*"),
            ("fix - crash", "'fix':* & 'crash':*"),
            ("--search", "'--search':*"),
            ("\0a", "'a':*"),
            ("! & ( ) \"\" -\"\" - --", ""),
            ("Ümlaut", "'Ümlaut':*"),
        ] {
            assert_eq!(search_query(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(search_query(&"x".repeat(5_000)), format!("'{}':*", "x".repeat(400)));
    }
}
