//! What a session lets us choose: its model and its mode.
//!
//! Agents offer it in three ways: as options of the session by their category, as a list of modes, and
//! as a list of models, which the protocol no longer has and one agent still does.

use serde_json::{Value, json};

/// What a session offers of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// Which one it is now.
    pub(super) now: Option<String>,
    /// All that there are.
    pub(super) all: Vec<String>,
    way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// By an option of the session, with this id.
    Option(String),
    /// By `session/set_mode`.
    Mode,
    /// By `session/set_model`.
    Model,
}

impl Offer {
    /// The models of a session, by the answer that began it.
    pub(super) fn models(session: &Value) -> Option<Self> {
        Self::option(session, "model").or_else(|| {
            Self::list(
                &session["models"],
                "availableModels",
                "modelId",
                "currentModelId",
                Way::Model,
            )
        })
    }

    /// Its modes.
    pub(super) fn modes(session: &Value) -> Option<Self> {
        Self::option(session, "mode").or_else(|| {
            Self::list(&session["modes"], "availableModes", "id", "currentModeId", Way::Mode)
        })
    }

    fn option(session: &Value, category: &str) -> Option<Self> {
        let options = session["configOptions"].as_array()?;
        let option = options.iter().find(|one| one["category"] == category)?;
        let mut all = Vec::new();
        for one in option["options"].as_array().into_iter().flatten() {
            // They may be in groups.
            let group = one["options"].as_array().into_iter().flatten();
            all.extend(group.chain([one]).filter_map(|one| text(&one["value"])));
        }
        let way = Way::Option(text(&option["id"])?);
        Some(Self { now: text(&option["currentValue"]), all, way })
    }

    fn list(section: &Value, list: &str, id: &str, now: &str, way: Way) -> Option<Self> {
        let list = section[list].as_array()?;
        let all = list.iter().filter_map(|one| text(&one[id])).collect();
        Some(Self { now: text(&section[now]), all, way })
    }

    /// What is offered under this name: exactly that, or the one that has it after a `/`.
    pub(super) fn find(&self, wanted: &str) -> Option<&str> {
        let mut ends = self.all.iter().filter(|one| {
            one.strip_suffix(wanted)
                .is_some_and(|before| before.is_empty() || before.ends_with('/'))
        });
        let exact = self.all.iter().chain(&self.now).find(|one| *one == wanted);
        exact.or_else(|| ends.next().filter(|_| ends.next().is_none())).map(String::as_str)
    }

    /// The request that chooses it.
    pub(super) fn choose(&self, session: &str, value: &str) -> (&'static str, Value) {
        match &self.way {
            Way::Option(id) => (
                "session/set_config_option",
                json!({ "sessionId": session, "configId": id, "value": value }),
            ),
            Way::Mode => ("session/set_mode", json!({ "sessionId": session, "modeId": value })),
            Way::Model => ("session/set_model", json!({ "sessionId": session, "modelId": value })),
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
    fn what_is_offered_is_found_in_every_form() {
        let value = |name: &str| json!({ "value": name });
        let options =
            json!([value("a"), { "group": "g", "options": [value("p/b"), value("q/b")] }]);
        let option =
            json!({ "id": "m", "category": "model", "currentValue": "a", "options": options });
        let offer = Offer::models(&json!({ "configOptions": [option] })).expect("an offer");
        assert_eq!(offer.all, ["a", "p/b", "q/b"]);
        assert_eq!((offer.find("a"), offer.find("p/b")), (Some("a"), Some("p/b")));
        assert_eq!((offer.find("b"), offer.find("c")), (None, None), "two, and none");
        assert_eq!(offer.choose("s", "a").1["configId"], "m");
        let models = json!({ "availableModels": [{ "modelId": "x/y" }], "currentModelId": "z" });
        let offer = Offer::models(&json!({ "models": models })).expect("an offer");
        assert_eq!((offer.find("y"), offer.find("z")), (Some("x/y"), Some("z")));
        assert_eq!(offer.choose("s", "z").0, "session/set_model");
        assert_eq!(Offer::modes(&json!({ "models": models })), None);
    }
}
