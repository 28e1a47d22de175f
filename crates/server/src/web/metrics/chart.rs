//! Bar charts over time, rendered as SVG with a table.

/// Bar of a chart.
pub(super) struct ChartPoint {
    pub(super) name: String,
    /// Value; `None` without data.
    pub(super) value: Option<f64>,
    pub(super) label: String,
}

/// Size of a chart.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChartSize {
    Large,
    Small,
}

pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) target: String,
    pub(super) verdict: &'static str,
    pub(super) tone: &'static str,
    pub(super) size: &'static str,
    pub(super) note: String,
    pub(super) has_data: bool,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) plot_left: u32,
    pub(super) tick_x: u32,
    pub(super) ticks: Vec<AxisTick>,
    pub(super) bars: Vec<ChartBar>,
    pub(super) line: String,
    pub(super) target_y: String,
    pub(super) label_y: u32,
    pub(super) labels: Vec<AxisLabel>,
    pub(super) unit_x: &'static str,
    pub(super) unit_y: &'static str,
    pub(super) aria_label: String,
    /// Value at the top of the chart.
    max_value: f64,
}

pub(super) struct AxisTick {
    pub(super) y: String,
    pub(super) text_y: String,
    pub(super) text: String,
}

pub(super) struct ChartBar {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) tone: &'static str,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) title: String,
}

pub(super) struct AxisLabel {
    pub(super) x: String,
    pub(super) text: String,
}

/// Maximum number of labels on the time axis.
const MAX_LABELS: usize = 5;

/// Margins above the highest bar and below the axis, in pixels.
const TOP_MARGIN: f64 = 10.0;
const BOTTOM_MARGIN: f64 = 20.0;

impl Chart {
    pub(super) fn bars(
        size: ChartSize,
        id: &'static str,
        name: &'static str,
        points: Vec<ChartPoint>,
    ) -> Self {
        let (size, width, height, left) = match size {
            ChartSize::Large => ("large", 1080, 240, 104),
            ChartSize::Small => ("", 360, 120, 58),
        };
        let mut chart = Self {
            id,
            name,
            value: String::new(),
            target: String::new(),
            verdict: "",
            tone: "good",
            size,
            note: String::new(),
            has_data: points.iter().any(|point| point.value.is_some()),
            width,
            height,
            plot_left: left,
            tick_x: left - 5,
            ticks: Vec::new(),
            bars: Vec::new(),
            line: String::new(),
            target_y: String::new(),
            label_y: height - 3,
            labels: Vec::new(),
            unit_x: "From",
            unit_y: "Value",
            aria_label: String::new(),
            max_value: 0.0,
        };
        chart.draw(points);
        chart
    }

    fn draw(&mut self, points: Vec<ChartPoint>) {
        let highest = points.iter().filter_map(|point| point.value).fold(0.0, f64::max);
        self.max_value = if highest > 0.0 { highest * 1.1 } else { 1.0 };
        #[expect(clippy::cast_precision_loss, reason = "a few bars")]
        let slot = f64::from(self.width - self.plot_left) / points.len().max(1) as f64;
        let every = points.len().div_ceil(MAX_LABELS).max(1);
        let first = points.first().map(|point| point.name.clone()).unwrap_or_default();
        let last = points.last().map(|point| point.name.clone()).unwrap_or_default();
        self.aria_label = format!("{}, {first} to {last}", self.name);
        // The highest value keeps its formatted text, with its unit.
        let mut max_label =
            points.iter().filter(|point| point.value == Some(highest)).map(|point| &point.label);
        let max_label = max_label.next_back().filter(|_| highest > 0.0).cloned();
        self.ticks = [(0.0, Some("0".to_owned())), (highest, max_label)]
            .into_iter()
            .filter_map(|(value, text)| {
                let y = self.y(value);
                Some(AxisTick { y: svg_number(y), text_y: svg_number(y + 4.0), text: text? })
            })
            .collect();
        for (at, point) in points.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "a few bars")]
            let x = f64::from(self.plot_left) + slot * at as f64;
            if at % every == 0 {
                self.labels
                    .push(AxisLabel { x: svg_number(x + slot / 2.0), text: point.name.clone() });
            }
            let value = point.value.unwrap_or_default();
            let y = self.y(value);
            self.bars.push(ChartBar {
                x: svg_number(x + slot * 0.14),
                y: svg_number(y),
                width: svg_number(slot * 0.72),
                height: svg_number(self.y(0.0) - y),
                tone: "acc",
                title: format!("{}: {}", point.name, point.label),
                name: point.name,
                value: point.label,
            });
        }
    }

    /// Returns the vertical position of a value.
    fn y(&self, value: f64) -> f64 {
        let plot_height = f64::from(self.height) - TOP_MARGIN - BOTTOM_MARGIN;
        TOP_MARGIN + plot_height * (1.0 - (value / self.max_value).clamp(0.0, 1.0))
    }

    pub(super) fn with_value(mut self, value: String) -> Self {
        self.aria_label = format!("{}: {value}", self.aria_label);
        self.value = value;
        self
    }

    pub(super) fn with_note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// Adds a target; `met` is `None` without data.
    pub(super) fn with_target(mut self, value: f64, label: String, met: Option<bool>) -> Self {
        if value <= self.max_value {
            self.target_y = svg_number(self.y(value));
        }
        (self.verdict, self.tone) = match met {
            Some(true) => ("met", "good"),
            Some(false) => ("missed", "bad"),
            None => ("", "wait"),
        };
        self.target = label;
        self
    }
}

/// Formats a number for SVG, with one decimal.
fn svg_number(number: f64) -> String {
    format!("{number:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_inside_the_chart_and_keep_their_order() {
        let label = |value: Option<f64>| value.map(|it| format!("${it:.2}")).unwrap_or_default();
        let point = |value| ChartPoint { name: "x".to_owned(), value, label: label(value) };
        let points = vec![point(Some(1.0)), point(None), point(Some(4.0))];
        let chart = Chart::bars(ChartSize::Small, "a", "A", points);
        let number = |text: &str| text.parse::<f64>().expect("a number");
        for bar in &chart.bars {
            assert!(number(&bar.y) >= 0.0);
            assert!(number(&bar.y) + number(&bar.height) <= f64::from(chart.height));
        }
        assert!(number(&chart.bars[2].height) > number(&chart.bars[0].height));
        assert_eq!(chart.bars[1].height, "0.0");
        let ticks: Vec<_> = chart.ticks.iter().map(|tick| tick.text.as_str()).collect();
        assert_eq!(ticks, ["0", "$4.00"]);
    }
}
