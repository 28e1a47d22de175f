//! Picture of the state machine as SVG: the main path from top to bottom, returns on its left, rework on its
//! right.
//!
//! States that nearly every other state leads to have no arrows, because these would hide the rest.

use strum::IntoEnumIterator as _;

use super::{EVERYWHERE, push_line};
use crate::format::pluralize;
use crate::state::{State, Trigger};
use crate::task_loop::table;

const WIDTH: i32 = 930;
const HEIGHT: i32 = 820;

/// Centre of the first row, and the distance between rows.
const TOP: i32 = 40;
const ROW: i32 = 62;

/// Centre of the main path, its edges, and the centre of rework. All boxes of both have the same size.
const MAIN: i32 = 430;
const LEFT: i32 = MAIN - HALF_WIDTH;
const RIGHT: i32 = MAIN + HALF_WIDTH;
const REWORK: i32 = 745;
const HALF_WIDTH: i32 = 80;
const HALF_HEIGHT: i32 = 16;

/// Column of arrows that skip rows of the main path.
const SKIP: i32 = RIGHT + 130;

/// Distance of the first lane of returns from the main path, and between lanes.
const FIRST_LANE: i32 = 28;
const LANE: i32 = 108;

/// The picture has a background of its own: a site's theme need not be that of the system.
const STYLE: &str = "<style>
.page{fill:#fff}.box{fill:#eef2f7;stroke:#57606a}.rework{fill:#fff4d6;stroke:#9a6700}
.apart{fill:#fff;stroke:#57606a;stroke-dasharray:4 3}.end{fill:#dafbe1;stroke:#1a7f37}
.arrow{fill:none;stroke:#57606a;stroke-width:1.5}.head{fill:#57606a}
text{font:12px system-ui,sans-serif;fill:#424a53}
.state{font:600 13px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}
.note{font-size:11px;text-anchor:middle}.left{text-anchor:end}
@media(prefers-color-scheme:dark){
.page{fill:#161b22}.box{fill:#21262d;stroke:#8b949e}.rework{fill:#3a2d0c;stroke:#d29922}
.apart{fill:#161b22;stroke:#8b949e}.end{fill:#12331d;stroke:#3fb950}
.arrow{stroke:#8b949e}.head{fill:#8b949e}text{fill:#c9d1d9}.state{fill:#f0f6fc}}
</style>
<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" \
                     orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>";

/// Place of a state in the picture.
#[derive(Clone, Copy)]
enum Place {
    /// Row of the main path.
    Main(i32),
    /// Row beside the main path.
    Rework(i32),
    /// Number among the states without arrows.
    Apart(i32),
}

fn place(state: State) -> Place {
    match state {
        State::Pending => Place::Main(0),
        State::Assigned => Place::Main(1),
        State::Planning => Place::Main(2),
        State::AwaitingApproval => Place::Main(3),
        State::Validated => Place::Main(4),
        State::InProgress => Place::Main(5),
        State::Testing => Place::Main(6),
        State::QualityReview => Place::Main(7),
        State::Approved => Place::Main(8),
        State::Committing => Place::Main(9),
        State::AwaitingMerge => Place::Main(10),
        State::Learning => Place::Main(11),
        State::Completed => Place::Main(12),
        State::Adjusting => Place::Rework(7),
        State::CtoIntervention => Place::Apart(0),
        State::HumanEscalation => Place::Apart(1),
        State::Cancelled => Place::Apart(2),
        State::Failed => Place::Apart(3),
    }
}

/// Draws the state machine.
pub fn draw() -> String {
    let mut picture = Picture::default();
    picture.add(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"State machine of a task\">"
    ));
    picture.add(STYLE);
    picture.add(&format!("<rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>"));
    for from in State::iter() {
        for to in State::iter() {
            let labels = drawn_labels(from, to);
            if !labels.is_empty() {
                picture.add_arrow(place(from), place(to), labels);
            }
        }
    }
    picture.add_rework_arrows();
    picture.add_returns();
    for state in State::iter() {
        picture.add_state(state);
    }
    picture.add("</svg>");
    picture.out
}

/// Returns the triggers on the arrow between two states. A pull request can change in nearly every state.
fn drawn_labels(from: State, to: State) -> Vec<String> {
    Trigger::iter()
        .filter(|on| !EVERYWHERE.contains(on) && *on != Trigger::PullRequestChanged)
        .filter(|on| table::allows(from, *on, to))
        .map(|on| on.to_string())
        .collect()
}

/// Returns the centre of a row.
fn centre(row: i32) -> i32 {
    TOP + row * ROW
}

#[derive(Default)]
struct Picture {
    out: String,
    /// Arrows up the main path: number of rows, first row, last row and triggers.
    returns: Vec<(i32, i32, i32, Vec<String>)>,
    /// Arrows between the main path and rework, above and below it.
    above: Vec<ReworkArrow>,
    below: Vec<ReworkArrow>,
}

/// Arrow between the main path and rework. The nearest row comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ReworkArrow {
    distance: i32,
    main_row: i32,
    rework_row: i32,
    is_to_rework: bool,
    text: String,
}

impl Picture {
    fn add(&mut self, element: &str) {
        push_line(&mut self.out, element);
    }

    fn add_path(&mut self, path: &str) {
        self.add(&format!("<path class=\"arrow\" marker-end=\"url(#head)\" d=\"{path}\"/>"));
    }

    fn add_text(&mut self, class: &str, x: i32, y: i32, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.add(&format!("<text{class} x=\"{x}\" y=\"{y}\">{text}</text>"));
    }

    /// Adds an arrow, or keeps it until all arrows are known that it has to avoid.
    fn add_arrow(&mut self, from: Place, to: Place, labels: Vec<String>) {
        let text = labels.join(", ");
        match (from, to) {
            (Place::Main(from), Place::Main(to)) if to == from + 1 => {
                let (start, end) = (centre(from) + HALF_HEIGHT, centre(to) - HALF_HEIGHT);
                self.add_path(&format!("M{MAIN} {start}V{end}"));
                self.add_text("", MAIN + 8, i32::midpoint(centre(from), centre(to)) + 4, &text);
            }
            (Place::Main(from), Place::Main(to)) if to > from => {
                let (start, end) = (centre(from) + 9, centre(to));
                self.add_path(&format!("M{RIGHT} {start}H{SKIP}V{end}H{RIGHT}"));
                self.add_text("", SKIP + 6, end - 26, &text);
            }
            (Place::Main(from), Place::Main(to)) if to == from => {
                self.add_path(&format!("M{RIGHT} {}h24v14h-24", centre(from) - 7));
                self.add_text("", RIGHT + 30, centre(from) + 4, &text);
            }
            (Place::Main(from), Place::Main(to)) => {
                self.returns.push((from - to, from, to, labels));
            }
            (Place::Rework(row), Place::Rework(_)) => {
                let right = REWORK + HALF_WIDTH;
                self.add_path(&format!("M{right} {}h24v14h-24", centre(row) - 7));
                self.add_text("", right - 4, centre(row) + 34, &text);
            }
            (Place::Main(main), Place::Rework(rework)) => self.keep(main, rework, true, text),
            (Place::Rework(rework), Place::Main(main)) => self.keep(main, rework, false, text),
            (Place::Apart(_), _) | (_, Place::Apart(_)) => {}
        }
    }

    /// Adds an arrow between the main path and rework if it is straight, and keeps it otherwise.
    fn keep(&mut self, main_row: i32, rework_row: i32, is_to_rework: bool, text: String) {
        if main_row == rework_row {
            let (y, edge) = (centre(main_row), REWORK - HALF_WIDTH);
            let (start, end) = if is_to_rework { (RIGHT, edge) } else { (edge, RIGHT) };
            self.add_path(&format!("M{start} {y}H{end}"));
            self.add_text("", RIGHT + 8, y - 5, &text);
            return;
        }
        let distance = (main_row - rework_row).abs();
        let arrow = ReworkArrow { distance, main_row, rework_row, is_to_rework, text };
        let side = if main_row < rework_row { &mut self.above } else { &mut self.below };
        side.push(arrow);
    }

    /// Adds the arrows around rework. A nearer row has the inner one, so that they do not cross.
    fn add_rework_arrows(&mut self) {
        let (above, below) = (std::mem::take(&mut self.above), std::mem::take(&mut self.below));
        for (mut arrows, edge) in [(above, -HALF_HEIGHT), (below, HALF_HEIGHT)] {
            arrows.sort();
            for (number, arrow) in (0..).zip(arrows) {
                let (x, y) = (REWORK - 50 + number * 50, centre(arrow.main_row));
                let edge = centre(arrow.rework_row) + edge;
                self.add_path(&if arrow.is_to_rework {
                    format!("M{RIGHT} {y}H{x}V{edge}")
                } else {
                    format!("M{x} {edge}V{y}H{RIGHT}")
                });
                self.add_text("", RIGHT + 8, y - 5, &arrow.text);
            }
        }
    }

    /// Adds the arrows up the main path, each in the first lane in which no other one is beside it.
    fn add_returns(&mut self) {
        let mut returns = std::mem::take(&mut self.returns);
        returns.sort();
        let mut taken: Vec<(i32, i32, i32)> = Vec::new();
        for (_, from, to, labels) in returns {
            let is_free = |lane: i32| {
                let is_beside = |it: &(i32, i32, i32)| it.0 == lane && it.2 < from && to < it.1;
                !taken.iter().any(is_beside)
            };
            let lanes = i32::try_from(taken.len()).unwrap_or_default();
            let lane = (0..=lanes).find(|lane| is_free(*lane)).unwrap_or_default();
            taken.push((lane, from, to));
            let x = LEFT - FIRST_LANE - lane * LANE;
            let (start, end) = (centre(from) - 8 + lane * 8, centre(to) + 8 - lane * 8);
            self.add_path(&format!("M{LEFT} {start}H{x}V{end}H{LEFT}"));
            let text = labels.join(",\n");
            let above = i32::try_from(labels.len() - 1).unwrap_or_default() * 7;
            let first = i32::midpoint(centre(from), centre(to)) + 4 - above;
            for (number, line) in (0..).zip(text.lines()) {
                self.add_text("left", x - 6, first + number * 14, line);
            }
        }
    }

    fn add_state(&mut self, state: State) {
        let (x, y, class) = match place(state) {
            Place::Main(row) if state.is_terminal() => (MAIN, centre(row), "end"),
            Place::Main(row) => (MAIN, centre(row), "box"),
            Place::Rework(row) => (REWORK, centre(row), "rework"),
            Place::Apart(number) => {
                self.add_state_apart(state, 615 + number % 2 * 205, centre(number / 2));
                return;
            }
        };
        let (left, top) = (x - HALF_WIDTH, y - HALF_HEIGHT);
        let (width, height) = (2 * HALF_WIDTH, 2 * HALF_HEIGHT);
        self.add(&format!(
            "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
             rx=\"6\"/>"
        ));
        self.add_text("state", x, y + 4, &state.to_string());
    }

    /// Adds a state with the number of states that lead to it, and that it leads to.
    fn add_state_apart(&mut self, state: State, x: i32, y: i32) {
        let leads = |from: State, to: State| {
            from != to && Trigger::iter().any(|on| table::allows(from, on, to))
        };
        let from = State::iter().filter(|from| leads(*from, state)).count();
        let to = State::iter().filter(|to| leads(state, *to)).count();
        let onward =
            if to == 0 { String::new() } else { format!(", to {}", pluralize(to, "state")) };
        let note = format!("from {}{onward}", pluralize(from, "state"));
        let (left, top) = (x - 95, y - 22);
        self.add(&format!(
            "<rect class=\"apart\" x=\"{left}\" y=\"{top}\" width=\"190\" height=\"44\" rx=\"6\"/>"
        ));
        self.add_text("state", x, y - 3, &state.to_string());
        self.add_text("note", x, y + 14, &note);
    }
}
