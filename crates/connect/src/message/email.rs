//! A mail, handed to the server that was named.

use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message as Mail, Tokio1Executor};

use super::{Error, Message, PATIENCE};

pub(super) async fn send(smtp: &str, from: &str, to: &str, message: &Message) -> Result<(), Error> {
    let mailbox = |what: &str, text: &str| -> Result<Mailbox, Error> {
        let wrong = |_| Error::Refused(format!("`{what}` is not an address such as a@example.org"));
        text.parse().map_err(wrong)
    };
    let from = mailbox("from", from)?;
    // The same for each attempt, so that a mail box that got it twice shows it once.
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
        .map_err(|error| Error::Refused(format!("the mail cannot be written: {error}")))?;
    let server = AsyncSmtpTransport::<Tokio1Executor>::from_url(smtp)
        .map_err(|_| {
            let words = "the channel's `smtp` is not an address such as smtps://user:password@host";
            Error::Refused(words.to_owned())
        })?
        .timeout(Some(PATIENCE))
        .build();
    server.send(mail).await.map(drop).map_err(|error| in_words(&error))
}

fn in_words(error: &smtp::Error) -> Error {
    if error.is_permanent() {
        return Error::Refused(format!("the mail server refused it: {error}"));
    }
    if error.is_transient() || error.is_response() {
        return Error::Away(format!("the mail server put it off: {error}"));
    }
    if error.is_client() {
        let words = format!("the mail server does not take what `smtp` asks of it: {error}");
        return Error::Refused(words);
    }
    let why = std::error::Error::source(error).map(|why| format!(" ({why})")).unwrap_or_default();
    Error::Away(format!(
        "the mail server cannot be reached{why}: is `smtp` right, with smtps:// or \
         smtp://…?tls=required as the server wants it?"
    ))
}
