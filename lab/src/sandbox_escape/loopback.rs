//! Network attempts: local services by every kind of address, with a metered and with a signed-in
//! agent.

use super::attempt::Attempt;
use super::machine::{connect, connect_socket};

pub(crate) fn all() -> Vec<Attempt> {
    metered().into_iter().chain(signed_in()).chain(proxied()).collect()
}

/// Creates an attempt to connect to one of the listeners.
fn reaches(name: &str, host: &'static str, which: usize) -> Attempt {
    Attempt::script(
        name,
        "sandbox",
        move |fixture| connect(host, fixture.port(which)),
        move |result| result.fixture.was_reached(which),
    )
}

/// Creates an attempt to connect to PostgreSQL's socket.
fn reaches_postgres_socket(name: &str) -> Attempt {
    Attempt::script(
        name,
        "sandbox",
        |fixture| connect_socket(&fixture.at("postgres/.s.PGSQL.5432").display().to_string()),
        |result| result.fixture.was_socket_reached(3),
    )
}

fn metered() -> Vec<Attempt> {
    vec![
        Attempt::script(
            "calls Tamma's API without a token",
            "sandbox",
            |fixture| {
                format!(
                    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}; printf \"GET /api/v1/tasks \
                     HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n\" >&3'",
                    fixture.port(0)
                )
            },
            |result| result.fixture.was_reached(0),
        ),
        reaches("connects to the loopback address of IPv6", "::1", 3),
        reaches("connects to the unspecified address", "0.0.0.0", 2),
        reaches("connects to an IPv4 address in IPv6 form", "::ffff:127.0.0.1", 0),
        reaches("connects to another loopback address", "127.0.0.2", 2),
        reaches_postgres_socket("connects to the socket of PostgreSQL"),
    ]
}

fn signed_in() -> Vec<Attempt> {
    vec![
        reaches("signed in: connects to the port of PostgreSQL", "127.0.0.1", 0),
        reaches("signed in: connects to the port of Temporal", "localhost", 1),
        reaches("signed in: connects to the loopback address of IPv6", "::1", 3),
        reaches("signed in: connects to the unspecified address", "0.0.0.0", 2),
        reaches_postgres_socket("signed in: connects to the socket of PostgreSQL"),
        Attempt::script(
            "signed in: connects to an abstract socket",
            "sandbox",
            |fixture| connect_socket(&format!("\\0{}", fixture.at("nameless").display())),
            |result| result.fixture.was_socket_reached(2),
        ),
        Attempt::script(
            "signed in: sends a datagram",
            "sandbox",
            |fixture| {
                let port = fixture.datagrams.local_addr().map(|address| address.port());
                format!("bash -c 'echo x > /dev/udp/127.0.0.1/{}'", port.unwrap_or_default())
            },
            |result| {
                let socket = &result.fixture.datagrams;
                socket.set_nonblocking(true).is_ok() && socket.recv(&mut [0; 8]).is_ok()
            },
        ),
    ]
    .into_iter()
    .map(Attempt::signed_in)
    .collect()
}

/// Requests to the egress proxy. Without a sandbox there is none, and the attempt connects directly.
fn proxied() -> Vec<Attempt> {
    let asks = |name: &str, request: &'static str, which: usize| {
        Attempt::script(
            name,
            "egress proxy",
            move |fixture| {
                let port = fixture.port(which);
                let request = request.replace("PORT", &port.to_string());
                let direct = connect(if which == 3 { "::1" } else { "127.0.0.1" }, port);
                format!(
                    "if [ -z \"${{http_proxy:-}}\" ]; then {direct}; exit; fi\n\
                     bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
                     printf \"{request} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n\" >&3; head -n 1 <&3'"
                )
            },
            move |result| result.fixture.was_reached(which),
        )
        .signed_in()
    };
    vec![
        asks("asks the proxy for the port of PostgreSQL", "CONNECT 127.0.0.1:PORT", 0),
        asks("asks the proxy for the port of Temporal by name", "CONNECT localhost:PORT", 1),
        asks("asks the proxy for the loopback address of IPv6", "CONNECT [::1]:PORT", 3),
        asks("asks the proxy for the unspecified address", "CONNECT 0.0.0.0:PORT", 2),
        asks(
            "asks the proxy for an IPv4 address in IPv6 form",
            "CONNECT [::ffff:127.0.0.1]:PORT",
            0,
        ),
        asks("asks the proxy for an address as a number", "CONNECT 2130706433:PORT", 0),
        asks("asks the proxy for a short address", "CONNECT 127.1:PORT", 0),
        asks("asks the proxy for a page of a local service", "GET http://127.0.0.1:PORT/", 0),
    ]
}
