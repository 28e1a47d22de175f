//! Selectable settings of a session: model and mode.
//!
//! Agents offer them in three ways: as session options with a category, as a list of modes, and as
//! a list of models. The last was removed from the protocol, but one agent still uses it.

use serde_json::{Value, json};

/// Setting that a session offers, with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionOption {
    /// Current value.
    pub(super) current: Option<String>,
    /// Available values.
    pub(super) values: Vec<String>,
    set_method: SetMethod,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SetMethod {
    /// `session/set_config_option`, with the ID of the option.
    Option(String),
    /// `session/set_mode`.
    Mode,
    /// `session/set_model`.
    Model,
}

impl SessionOption {
    /// Returns the models from the response that created the session.
    pub(super) fn models(session: &Value) -> Option<Self> {
        Self::from_config_options(session, "model").or_else(|| {
            Self::from_list(
                &session["models"],
                "availableModels",
                "modelId",
                "currentModelId",
                SetMethod::Model,
            )
        })
    }

    /// Returns the modes from the response that created the session.
    pub(super) fn modes(session: &Value) -> Option<Self> {
        Self::from_config_options(session, "mode").or_else(|| {
            Self::from_list(
                &session["modes"],
                "availableModes",
                "id",
                "currentModeId",
                SetMethod::Mode,
            )
        })
    }

    fn from_config_options(session: &Value, category: &str) -> Option<Self> {
        let options = session["configOptions"].as_array()?;
        let option = options.iter().find(|one| one["category"] == category)?;
        let mut all = Vec::new();
        for one in option["options"].as_array().into_iter().flatten() {
            // Values may be grouped.
            let group = one["options"].as_array().into_iter().flatten();
            all.extend(group.chain([one]).filter_map(|one| text(&one["value"])));
        }
        let set_method = SetMethod::Option(text(&option["id"])?);
        Some(Self { current: text(&option["currentValue"]), values: all, set_method })
    }

    fn from_list(
        section: &Value,
        list: &str,
        id: &str,
        now: &str,
        set_method: SetMethod,
    ) -> Option<Self> {
        let list = section[list].as_array()?;
        let all = list.iter().filter_map(|one| text(&one[id])).collect();
        Some(Self { current: text(&section[now]), values: all, set_method })
    }

    /// Finds a value by its exact name, or by a unique suffix after a `/`.
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        let mut ends = self.values.iter().filter(|one| {
            one.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        });
        let exact = self.values.iter().chain(&self.current).find(|one| *one == name);
        exact.or_else(|| ends.next().filter(|_| ends.next().is_none())).map(String::as_str)
    }

    /// Returns method and parameters of the request that sets a value.
    pub(super) fn set_request(&self, session: &str, value: &str) -> (&'static str, Value) {
        match &self.set_method {
            SetMethod::Option(id) => (
                "session/set_config_option",
                json!({ "sessionId": session, "configId": id, "value": value }),
            ),
            SetMethod::Mode => {
                ("session/set_mode", json!({ "sessionId": session, "modeId": value }))
            }
            SetMethod::Model => {
                ("session/set_model", json!({ "sessionId": session, "modelId": value }))
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_every_format() {
        let value = |name: &str| json!({ "value": name });
        let options =
            json!([value("a"), { "group": "g", "options": [value("p/b"), value("q/b")] }]);
        let option =
            json!({ "id": "m", "category": "model", "currentValue": "a", "options": options });
        let offer = SessionOption::models(&json!({ "configOptions": [option] })).expect("an offer");
        assert_eq!(offer.values, ["a", "p/b", "q/b"]);
        assert_eq!((offer.find("a"), offer.find("p/b")), (Some("a"), Some("p/b")));
        assert_eq!((offer.find("b"), offer.find("c")), (None, None), "ambiguous, and missing");
        assert_eq!(offer.set_request("s", "a").1["configId"], "m");
        let models = json!({ "availableModels": [{ "modelId": "x/y" }], "currentModelId": "z" });
        let offer = SessionOption::models(&json!({ "models": models })).expect("an offer");
        assert_eq!((offer.find("y"), offer.find("z")), (Some("x/y"), Some("z")));
        assert_eq!(offer.set_request("s", "z").0, "session/set_model");
        assert_eq!(SessionOption::modes(&json!({ "models": models })), None);
    }
}
