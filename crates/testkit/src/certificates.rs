//! Certificates of tests, for `localhost` and `127.0.0.1`, for servers and clients. They are public, so
//! nobody may trust them.

/// Certificate authority of both certificates, in PEM.
pub const AUTHORITY: &str = include_str!("certificates/ca.pem");

/// First certificate and its key, in PEM.
pub const FIRST: (&str, &str) =
    (include_str!("certificates/first.pem"), include_str!("certificates/first.key"));

/// Second certificate and its key, in PEM.
pub const SECOND: (&str, &str) =
    (include_str!("certificates/second.pem"), include_str!("certificates/second.key"));
