//! Percentiles and tables.

use std::fmt;
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

/// Estimate with its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    /// Geometric mean.
    pub(crate) mean: f64,
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

/// Quantiles of Student's t distribution for a two-sided interval of 95%, from one degree of freedom.
const T_QUANTILES: [f64; 29] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
];

impl Interval {
    /// Returns the interval of a ratio that was measured several times, from the t distribution of its
    /// logarithms. A single measurement has no interval.
    pub(crate) fn of_ratios(ratios: &[f64]) -> Option<Self> {
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let count = f64::from(u32::try_from(logs.len()).ok()?);
        let mean = logs.iter().sum::<f64>() / count;
        let quantile = T_QUANTILES.get(logs.len().checked_sub(2)?)?;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = quantile * (variance / count).sqrt();
        Some(Self { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.mean, self.low, self.high)
    }
}

/// Returns the geometric mean of ratios.
pub(crate) fn mean_ratio(ratios: &[f64]) -> Option<f64> {
    Interval::of_ratios(ratios).map(|it| it.mean).or(ratios.first().copied())
}

/// Formats a ratio with its interval, or a single measurement without one.
pub(crate) fn show_ratio(ratios: &[f64]) -> String {
    match (Interval::of_ratios(ratios), ratios) {
        (Some(interval), _) => interval.to_string(),
        (None, [one]) => format!("{one:.2}"),
        (None, _) => "-".to_owned(),
    }
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
    fn the_interval_of_a_ratio_contains_its_mean_and_shrinks_with_more_runs() {
        let few = Interval::of_ratios(&[0.8, 0.9, 1.0]).expect("three runs");
        let many = Interval::of_ratios(&[0.8, 0.9, 1.0, 0.8, 0.9, 1.0]).expect("six runs");
        assert!((few.mean - many.mean).abs() < 1e-9 && few.low < many.low && many.high < few.high);
        // Twice as fast and half as fast are equally far from equal.
        let even = Interval::of_ratios(&[0.5, 2.0]).expect("two runs");
        assert!((even.mean - 1.0).abs() < 1e-9 && (even.low * even.high - 1.0).abs() < 1e-9);
        let same = Interval::of_ratios(&[0.9; 5]).expect("five runs");
        assert_eq!(same.to_string(), "0.90 (0.90 to 0.90)");
    }

    #[test]
    fn a_single_run_has_no_interval() {
        assert_eq!(Interval::of_ratios(&[0.9]), None);
        assert_eq!(Interval::of_ratios(&[]), None);
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["name", "n"]), row(["a", "123"])]);
        assert_eq!(text, "| name |   n |\n|------|----:|\n| a    | 123 |\n");
    }
}
