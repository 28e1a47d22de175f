//! Percentiles and tables.

use std::time::Duration;

/// Returns the smallest value that at least `percent` of the values do not exceed.
///
/// Returns `None` without values.
pub(crate) fn percentile(values: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Formats milliseconds, with one decimal below 100.
pub(crate) fn ms(value: Option<Duration>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let ms = value.as_secs_f64() * 1000.0;
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// Formats rows as an aligned Markdown table. The first row is the heading.
///
/// The first column is left-aligned, the others right-aligned.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, width) in widths.iter().copied().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let cell = if column == 0 {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            };
            text.push_str(&cell);
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, width) in widths.iter().copied().enumerate() {
                let (line, colon) = ("-".repeat(width), if column == 0 { "-" } else { ":" });
                text.extend(["|-", &line, colon]);
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed() {
        let values: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&values, 99), Some(Duration::from_millis(198)));
        assert_eq!(percentile(&values[..1], 99), Some(Duration::from_millis(200)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["name", "n"]), row(["a", "123"])]);
        assert_eq!(text, "| name |   n |\n|------|----:|\n| a    | 123 |\n");
    }
}
