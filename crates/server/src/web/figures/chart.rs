//! A chart: bars over time, drawn here, with its table beside it.

/// One bar.
pub(super) struct Mark {
    pub(super) name: String,
    /// How high it is; nothing where there is no case.
    pub(super) value: Option<f64>,
    pub(super) words: String,
}

/// How large a chart is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Large,
    Small,
}

pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) goal: String,
    pub(super) verdict: &'static str,
    pub(super) tone: &'static str,
    pub(super) size: &'static str,
    pub(super) note: String,
    pub(super) any: bool,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) left: u32,
    pub(super) tick_x: u32,
    pub(super) ticks: Vec<Tick>,
    pub(super) bars: Vec<Bar>,
    pub(super) line: String,
    pub(super) goal_y: String,
    pub(super) label_y: u32,
    pub(super) labels: Vec<Label>,
    pub(super) unit_x: &'static str,
    pub(super) unit_y: &'static str,
    pub(super) words: String,
    /// The value at the top.
    top: f64,
}

pub(super) struct Tick {
    pub(super) y: String,
    pub(super) text_y: String,
    pub(super) text: String,
}

pub(super) struct Bar {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) tone: &'static str,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) title: String,
}

pub(super) struct Label {
    pub(super) x: String,
    pub(super) text: String,
}

/// How many labels stand under a chart.
const LABELS: usize = 5;

/// What is above the highest bar, and below the lowest line.
const ABOVE: f64 = 10.0;
const BELOW: f64 = 20.0;

impl Chart {
    pub(super) fn bars(size: Size, id: &'static str, name: &'static str, marks: Vec<Mark>) -> Self {
        let (size, width, height, left) = match size {
            Size::Large => ("large", 1080, 240, 66),
            Size::Small => ("", 360, 120, 42),
        };
        let mut chart = Self {
            id,
            name,
            value: String::new(),
            goal: String::new(),
            verdict: "",
            tone: "good",
            size,
            note: String::new(),
            any: marks.iter().any(|mark| mark.value.is_some()),
            width,
            height,
            left,
            tick_x: left - 5,
            ticks: Vec::new(),
            bars: Vec::new(),
            line: String::new(),
            goal_y: String::new(),
            label_y: height - 3,
            labels: Vec::new(),
            unit_x: "From",
            unit_y: "Value",
            words: String::new(),
            top: 0.0,
        };
        chart.draw(marks);
        chart
    }

    fn draw(&mut self, marks: Vec<Mark>) {
        let highest = marks.iter().filter_map(|mark| mark.value).fold(0.0, f64::max);
        self.top = if highest > 0.0 { highest * 1.1 } else { 1.0 };
        #[expect(clippy::cast_precision_loss, reason = "a few bars")]
        let slot = f64::from(self.width - self.left) / marks.len().max(1) as f64;
        let every = marks.len().div_ceil(LABELS).max(1);
        let first = marks.first().map(|mark| mark.name.clone()).unwrap_or_default();
        let last = marks.last().map(|mark| mark.name.clone()).unwrap_or_default();
        self.words = format!("{}, {first} to {last}", self.name);
        // The highest is told in its own words, with its unit.
        let mut told =
            marks.iter().filter(|mark| mark.value == Some(highest)).map(|mark| &mark.words);
        let told = told.next_back().filter(|_| highest > 0.0).cloned();
        self.ticks = [(0.0, Some("0".to_owned())), (highest, told)]
            .into_iter()
            .filter_map(|(value, text)| {
                let y = self.y(value);
                Some(Tick { y: short(y), text_y: short(y + 4.0), text: text? })
            })
            .collect();
        for (at, mark) in marks.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "a few bars")]
            let x = f64::from(self.left) + slot * at as f64;
            if at % every == 0 {
                self.labels.push(Label { x: short(x + slot / 2.0), text: mark.name.clone() });
            }
            let value = mark.value.unwrap_or_default();
            let y = self.y(value);
            self.bars.push(Bar {
                x: short(x + slot * 0.14),
                y: short(y),
                width: short(slot * 0.72),
                height: short(self.y(0.0) - y),
                tone: "acc",
                title: format!("{}: {}", mark.name, mark.words),
                name: mark.name,
                value: mark.words,
            });
        }
    }

    /// How far down a value is.
    fn y(&self, value: f64) -> f64 {
        let room = f64::from(self.height) - ABOVE - BELOW;
        ABOVE + room * (1.0 - (value / self.top).clamp(0.0, 1.0))
    }

    pub(super) fn valued(mut self, value: String) -> Self {
        self.words = format!("{}: {value}", self.words);
        self.value = value;
        self
    }

    pub(super) fn noted(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// With a goal, and whether it is met, if that can be told.
    pub(super) fn held_to(mut self, goal: f64, words: String, met: Option<bool>) -> Self {
        if goal <= self.top {
            self.goal_y = short(self.y(goal));
        }
        (self.verdict, self.tone) = match met {
            Some(true) => ("met", "good"),
            Some(false) => ("missed", "bad"),
            None => ("no case", "wait"),
        };
        self.goal = words;
        self
    }
}

/// A number as a picture needs it.
fn short(number: f64) -> String {
    format!("{number:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_inside_and_the_highest_is_the_highest() {
        let words = |value: Option<f64>| value.map(|it| format!("${it:.2}")).unwrap_or_default();
        let mark = |value| Mark { name: "x".to_owned(), value, words: words(value) };
        let marks = vec![mark(Some(1.0)), mark(None), mark(Some(4.0))];
        let chart = Chart::bars(Size::Small, "a", "A", marks);
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
