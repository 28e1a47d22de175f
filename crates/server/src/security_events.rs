//! Security events. Each kind is recorded at one place in the code, through this function.

use strum::Display;

use crate::audit;

/// Kind of a security event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SecurityEvent {
    /// Somebody signed in.
    SignedIn,
    /// Sign-in with an identity provider was refused.
    SignInRefused,
    /// Person signed out.
    SignedOut,
    /// Session was revoked.
    SessionRevoked,
    /// Identity provider reported a logout.
    ProviderLogout,
    /// Login ended at a check, because the provider or the missing group ended it.
    LoginEnded,
    /// Access token was created.
    TokenCreated,
    /// Access token was revoked.
    TokenRevoked,
    /// Service account was created.
    AccountCreated,
    /// Account was deactivated.
    AccountDeactivated,
    /// Account was activated again.
    AccountActivated,
    /// Subject at a provider was linked to a person.
    IdentityLinked,
}

/// Records a security event: the person it is about, the person who caused it, and a detail without
/// secrets.
pub(crate) fn record(event: SecurityEvent, person: &str, by: &str, detail: &str) {
    // Part of the audit entry of the request, if there is one.
    audit::note_action(event, person);
    match event {
        SecurityEvent::SignInRefused | SecurityEvent::LoginEnded => {
            tracing::warn!(%event, person, by, detail, "security event");
        }
        _ => tracing::info!(%event, person, by, detail, "security event"),
    }
}
