//! Views of the board that a person has saved.

use tamma_store::SavedView;

use super::{BoardQuery, ViewLink};
use crate::app::Error;
use crate::web::form_fields::FormFields;
use crate::web::layout::{Layout, Notice};
use crate::web::session::{Session, redirect_with_notice};
use crate::web::{PageError, PageResult, WebState};

/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 60;

/// Maximum length of a stored query, in bytes.
const MAX_QUERY_BYTES: usize = 2_000;

/// Returns links to the views of the person.
pub(super) async fn load(
    state: &WebState,
    session: &Session,
    current: &BoardQuery,
) -> Result<Vec<ViewLink>, Error> {
    let Some(person) = &session.person else { return Ok(Vec::new()) };
    let views = state.app.store.saved_views(person).await?;
    let link = |view: SavedView| {
        let query = BoardQuery::from_query_string(&view.query);
        ViewLink { name: view.name, href: query.href(), is_current: query == *current }
    };
    Ok(views.into_iter().map(link).collect())
}

/// Saves the filters, the order and the grouping under a name.
pub(in crate::web) async fn save(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    // Only what the board understands is stored, so a view leads nowhere else.
    let query = BoardQuery::from_query_string(&fields.text("query"));
    let saved = async {
        let view = SavedView { name: fields.text("name"), query: query.to_query_string() };
        check_view(&view)?;
        let by = session.acting_person()?;
        if !state.app.store.save_view(&by.name, &view).await? {
            return Err(Error::Refused("You have too many views. Remove one first.".to_owned()));
        }
        Ok(view.name)
    };
    let name = saved.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.text("name"))
    })?;
    redirect_with_notice(&query.href(), &Notice::success(format!("View “{name}” saved.")))
}

/// Removes a view.
pub(in crate::web) async fn remove(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let removed = async {
        let by = session.acting_person()?;
        state.app.store.remove_view(&by.name, &fields.text("name")).await?;
        Ok(())
    };
    let removed: Result<(), Error> = removed.await;
    removed.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    redirect_with_notice("/", &Notice::success("View removed."))
}

fn check_view(view: &SavedView) -> Result<(), Error> {
    let length = view.name.chars().count();
    if !(1..=MAX_NAME_CHARS).contains(&length) || view.name.contains(char::is_control) {
        let detail = format!("The name must be one line of 1 to {MAX_NAME_CHARS} characters.");
        return Err(Error::invalid(detail, "Choose another name."));
    }
    if view.query.len() > MAX_QUERY_BYTES {
        return Err(Error::invalid("The view is too long.", "Shorten the search text."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_a_short_name_on_one_line() {
        let view = |name: &str| SavedView { name: name.to_owned(), query: String::new() };
        assert!(check_view(&view("Mine")).is_ok());
        for name in ["", "a\nb", "x".repeat(61).as_str()] {
            assert!(matches!(check_view(&view(name)), Err(Error::Invalid { .. })), "{name}");
        }
    }
}
