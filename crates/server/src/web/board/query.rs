//! Query of the board: filters, order and grouping.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, IntoEnumIterator as _};
use tamma_core::format::{capitalize, humanize};
use tamma_core::level::RiskLevel;
use tamma_core::task::{Priority, TaskType};
use tamma_store::{TaskFilter, TaskOrder};

use super::{BoardFilters, serialized_name};
use crate::app::{App, Error};
use crate::web::layout::{SelectField, SelectOption};

/// Query parameters of the board.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(in crate::web) struct BoardQuery {
    pub(super) text: String,
    pub(super) project: String,
    pub(super) r#type: String,
    pub(super) priority: String,
    pub(super) risk: String,
    pub(super) label: String,
    pub(super) waits: String,
    pub(super) phase: String,
    pub(super) group: String,
    pub(super) sort: String,
    /// Cursor of the next page of a single column.
    pub(super) after: String,
}

/// Property that the columns of the board stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display, EnumIter)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum BoardGroup {
    #[default]
    Phase,
    Project,
    /// Person that the task waits on.
    Person,
    /// Priority. Cards can be moved between these columns.
    Priority,
}

/// Parses a serialised name from a URL; `None` if it is unknown.
fn parse_name<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

impl BoardQuery {
    /// Returns the URL of a project's board.
    pub(in crate::web) fn project_href(name: &str) -> String {
        Self { project: name.to_owned(), ..Self::default() }.href()
    }

    /// Returns the URL of the tasks with a label.
    pub(super) fn label_href(label: &str) -> String {
        Self { label: label.to_owned(), ..Self::default() }.href()
    }

    /// Returns whether the board shows everything in its usual form.
    pub(in crate::web) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether no filter is set. Order and grouping hide no task.
    pub(super) fn is_unfiltered(&self) -> bool {
        let (group, sort) = (String::new(), String::new());
        Self { group, sort, ..self.clone() }.is_default()
    }

    pub(super) fn group(&self) -> BoardGroup {
        parse_name(&self.group).unwrap_or_default()
    }

    pub(super) fn order(&self) -> TaskOrder {
        parse_name(&self.sort).unwrap_or_default()
    }

    pub(super) async fn store_filter(&self, app: &App) -> Result<TaskFilter, Error> {
        let project = match self.project.as_str() {
            "" => None,
            name => Some(app.resolve_project(Some(name)).await?.id),
        };
        let (labels, terms): (Vec<&str>, Vec<&str>) =
            self.text.split_whitespace().partition(|word| word.starts_with("label:"));
        let typed = labels.first().map(|label| label["label:".len()..].to_owned());
        Ok(TaskFilter {
            project,
            r#type: parse_name(&self.r#type),
            priority: parse_name(&self.priority),
            risk: parse_name(&self.risk),
            phase: parse_name(&self.phase),
            waits: (self.waits == "person").then_some(true),
            label: Some(self.label.clone()).filter(|label| !label.is_empty()).or(typed),
            text: Some(terms.join(" ")).filter(|text| !text.is_empty()),
            ..TaskFilter::default()
        })
    }

    /// Reads a stored query string. Unknown parameters are left out.
    pub(super) fn from_query_string(query: &str) -> Self {
        let mut read = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let field = match &*name {
                "text" => &mut read.text,
                "project" => &mut read.project,
                "type" => &mut read.r#type,
                "priority" => &mut read.priority,
                "risk" => &mut read.risk,
                "label" => &mut read.label,
                "waits" => &mut read.waits,
                "phase" => &mut read.phase,
                "group" => &mut read.group,
                "sort" => &mut read.sort,
                _ => continue,
            };
            *field = value.into_owned();
        }
        read
    }

    /// Returns the query string, without the question mark.
    pub(super) fn to_query_string(&self) -> String {
        let fields = [
            ("text", &self.text),
            ("project", &self.project),
            ("type", &self.r#type),
            ("priority", &self.priority),
            ("risk", &self.risk),
            ("label", &self.label),
            ("waits", &self.waits),
            ("phase", &self.phase),
            ("group", &self.group),
            ("sort", &self.sort),
            ("after", &self.after),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        query.finish()
    }

    /// Returns the URL of this board.
    pub(super) fn href(&self) -> String {
        match self.to_query_string().as_str() {
            "" => "/".to_owned(),
            query => format!("/?{query}"),
        }
    }

    pub(super) fn phase_href(&self, phase: &str) -> String {
        Self { phase: phase.to_owned(), after: String::new(), ..self.clone() }.href()
    }

    pub(super) fn filter_form(&self, projects: impl Iterator<Item = String>) -> BoardFilters {
        fn choices<T: Serialize + ToString>(
            any: &str,
            all: impl Iterator<Item = T>,
            chosen: &str,
        ) -> Vec<SelectOption> {
            let first = SelectOption::new("", any, chosen);
            let rest =
                all.map(|one| SelectOption::new(serialized_name(&one), humanize(&one), chosen));
            std::iter::once(first).chain(rest).collect()
        }
        /// Options without one for the default, which is the first.
        fn settings<T: Serialize + ToString>(
            all: impl Iterator<Item = T>,
            chosen: &str,
        ) -> Vec<SelectOption> {
            let options = all.enumerate().map(|(index, one)| {
                let value = if index == 0 { String::new() } else { serialized_name(&one) };
                SelectOption::new(value, capitalize(&humanize(&one)), chosen)
            });
            options.collect()
        }
        let select = |name, label, options| SelectField { name, label, options };
        let levels = [RiskLevel::Low, RiskLevel::Medium, RiskLevel::High].into_iter();
        let selects = vec![
            select("project", "Project", choices("All", projects, &self.project)),
            select("type", "Type", choices("Any", TaskType::iter(), &self.r#type)),
            select("priority", "Priority", choices("Any", Priority::iter(), &self.priority)),
            select("risk", "Risk", choices("Any", levels, &self.risk)),
            select("waits", "Waiting on", choices("Anyone", ["person"].into_iter(), &self.waits)),
            select("group", "Group by", settings(BoardGroup::iter(), &self.group)),
            select("sort", "Sort by", settings(TaskOrder::iter(), &self.sort)),
        ];
        BoardFilters {
            text: self.text.clone(),
            label: self.label.clone(),
            selects,
            is_active: !self.is_unfiltered(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_query_leads_back_to_the_same_board() {
        let query = BoardQuery {
            text: "log in & out".to_owned(),
            label: "good first issue".to_owned(),
            group: "priority".to_owned(),
            sort: "cost".to_owned(),
            ..BoardQuery::default()
        };
        let stored = query.to_query_string();
        assert_eq!(BoardQuery::from_query_string(&stored), query);
        assert_eq!((query.group(), query.order()), (BoardGroup::Priority, TaskOrder::Cost));
        let foreign = BoardQuery::from_query_string("to=https%3A%2F%2Fevil.test&after=x");
        assert_eq!(foreign.href(), "/", "only filters, order and grouping are kept");
    }

    #[test]
    fn order_and_grouping_are_not_filters() {
        let grouped = BoardQuery { group: "person".to_owned(), ..BoardQuery::default() };
        assert!(grouped.is_unfiltered() && !grouped.is_default());
        let unknown = BoardQuery { group: "colour".to_owned(), ..BoardQuery::default() };
        assert_eq!((unknown.group(), unknown.order()), (BoardGroup::Phase, TaskOrder::Newest));
    }
}
