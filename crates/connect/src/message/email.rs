//! E-mail through the configured SMTP server.

use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message as Mail, Tokio1Executor};

use super::{AlertMessage, Error, RESPONSE_TIMEOUT};

pub(super) async fn send(
    smtp: &str,
    from: &str,
    to: &str,
    message: &AlertMessage,
) -> Result<(), Error> {
    let mailbox = |key: &str, text: &str| -> Result<Mailbox, Error> {
        let invalid =
            |_| Error::Rejected(format!("`{key}` is not an e-mail address such as a@example.org"));
        text.parse().map_err(invalid)
    };
    let from = mailbox("from", from)?;
    // The message ID is the same for every attempt, so mailboxes show a repeated mail once.
    let domain = from.email.domain().to_owned();
    let mail = Mail::builder()
        .from(from)
        .to(mailbox("to", to)?)
        .subject(&message.subject)
        .message_id(Some(format!("<{}@{domain}>", message.id)))
        .date(message.at.into())
        .header(ContentType::TEXT_PLAIN)
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ))
        .body(message.text())
        .map_err(|error| Error::Rejected(format!("cannot build the mail: {error}")))?;
    let server = AsyncSmtpTransport::<Tokio1Executor>::from_url(smtp)
        .map_err(|_| {
            let message = "the channel's `smtp` is not a URL such as smtps://user:password@host";
            Error::Rejected(message.to_owned())
        })?
        .timeout(Some(RESPONSE_TIMEOUT))
        .build();
    server.send(mail).await.map(drop).map_err(|error| smtp_error(&error))
}

fn smtp_error(error: &smtp::Error) -> Error {
    if error.is_permanent() {
        return Error::Rejected(format!("the mail server rejected the mail: {error}"));
    }
    if error.is_transient() || error.is_response() {
        return Error::Unreachable(format!("the mail server deferred the mail: {error}"));
    }
    if error.is_client() {
        let text = format!("the mail server does not support the settings in `smtp`: {error}");
        return Error::Rejected(text);
    }
    let cause =
        std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    Error::Unreachable(format!(
        "cannot reach the mail server{cause}: check `smtp`, and use smtps:// or \
         smtp://…?tls=required as the server requires"
    ))
}
