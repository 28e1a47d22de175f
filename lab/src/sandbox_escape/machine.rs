//! System attempts: ports, sockets, processes and privileges.

use std::net::UdpSocket;

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

pub(crate) fn all() -> Vec<Attempt> {
    network().into_iter().chain(processes()).chain(privileges()).collect()
}

/// Returns a script that connects to a port.
pub(super) fn connect(host: &str, port: u16) -> String {
    format!("bash -c 'echo x > /dev/tcp/{host}/{port}' && echo REACHED")
}

/// Returns a script that connects to a Unix socket.
pub(super) fn connect_socket(path: &str) -> String {
    format!("perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => \"{path}\")'")
}

/// Returns a non-loopback address of this machine, if it has one.
fn own_address() -> String {
    UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| {
            // This sends nothing; it only selects the outgoing address.
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        })
        .map_or_else(|_| "127.0.0.2".to_owned(), |address| address.ip().to_string())
}

fn network() -> Vec<Attempt> {
    let unix = |name: &str, which: usize, path: fn(&EscapeFixture) -> String| {
        Attempt::script(
            name,
            "sandbox",
            move |fixture| connect_socket(&path(fixture)),
            move |result| result.fixture.was_socket_reached(which),
        )
    };
    vec![
        Attempt::script(
            "connects to the port of PostgreSQL",
            "sandbox",
            |fixture| connect("127.0.0.1", fixture.port(0)),
            |result| result.fixture.was_reached(0),
        ),
        Attempt::script(
            "connects to the port of Temporal",
            "sandbox",
            |fixture| connect("localhost", fixture.port(1)),
            |result| result.fixture.was_reached(1),
        ),
        Attempt::script(
            "connects to a non-loopback address",
            "sandbox",
            |fixture| connect(&own_address(), fixture.port(2)),
            |result| result.fixture.was_reached(2),
        ),
        Attempt::script(
            "sends a datagram",
            "sandbox",
            |fixture| {
                let port = fixture
                    .datagrams
                    .local_addr()
                    .map(|address| address.port())
                    .unwrap_or_default();
                format!(
                    "bash -c 'echo x > /dev/udp/127.0.0.1/{port}; echo x > /dev/udp/{}/{port}'",
                    own_address()
                )
            },
            |result| {
                let socket = &result.fixture.datagrams;
                socket.set_nonblocking(true).is_ok() && socket.recv(&mut [0; 8]).is_ok()
            },
        ),
        unix("connects to a socket like that of a container engine", 0, |fixture| {
            fixture.at("docker.sock").display().to_string()
        }),
        unix("connects to the socket of another gateway", 1, |fixture| {
            fixture.at("other-gateway.sock").display().to_string()
        }),
        unix("connects to an abstract socket", 2, |fixture| {
            format!("\\0{}", fixture.at("nameless").display())
        }),
    ]
}

/// Returns `true` if a process with this text in its command line runs. Kills it.
pub(super) fn survives(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids: Vec<String> = processes
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(text))
        })
        .collect();
    for pid in &pids {
        #[expect(clippy::disallowed_methods, reason = "cleans up after a control run")]
        let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
    }
    !pids.is_empty()
}

fn processes() -> Vec<Attempt> {
    // The process has neither Tamma's mark in its environment nor its process group.
    let stay = |seconds: u32| {
        move |_: &EscapeFixture| {
            format!("(env -i setsid sleep {seconds} >/dev/null 2>&1 &) ; echo started")
        }
    };
    vec![
        Attempt::script("outlives the run in its own session", "sandbox", stay(98_761), |_| {
            survives("sleep 98761")
        }),
        Attempt::script("survives cancellation", "sandbox", stay(98_762), |_| {
            survives("sleep 98762")
        })
        .cancelled(),
        Attempt::script(
            "survives cancellation by ignoring signals",
            "process record",
            |_| {
                "(trap '' TERM HUP INT; exec sleep 98763 >/dev/null 2>&1) & echo started".to_owned()
            },
            |_| survives("sleep 98763"),
        )
        .cancelled(),
        Attempt::script(
            "sends the worker a signal",
            "sandbox",
            |_| format!("kill -CONT {} && echo SIGNALLED", std::process::id()),
            |result| result.fixture.output().contains("SIGNALLED"),
        ),
        Attempt::script(
            "writes to the worker's memory",
            "sandbox",
            |_| {
                let pid = std::process::id();
                format!("perl -e 'open(F, \"+<\", \"/proc/{pid}/mem\") and print \"OPENED\"'")
            },
            |result| result.fixture.output().contains("OPENED"),
        ),
    ]
}

fn privileges() -> Vec<Attempt> {
    let says = |name: &str, script: &'static str, word: &'static str| {
        Attempt::script(
            name,
            "sandbox",
            move |_| script.to_owned(),
            move |result: &AttemptResult<'_>| result.fixture.output().contains(word),
        )
    };
    vec![
        says(
            "mounts a file system",
            "mkdir m; mount -t tmpfs none m && echo MOUNTED; umount m",
            "MOUNTED",
        ),
        Attempt::script(
            "mounts in its own user namespace",
            "sandbox",
            |fixture| {
                format!(
                    "unshare -Urm sh -c 'umount -l {0}; mount -o remount,rw,bind {1}; echo x > \
                     {1}/loot-here'; unshare -Ur sh -c 'echo IN A NAMESPACE'; unshare -Urm sh -c \
                     'echo out > {2}'",
                    fixture.at("data").display(),
                    fixture.mirror.display(),
                    fixture.loot().display()
                )
            },
            |result| {
                result.fixture.loot().exists() || result.fixture.mirror.join("loot-here").exists()
            },
        ),
        Attempt::script(
            "changes its root to that of another process",
            "sandbox",
            |fixture| {
                format!(
                    "for p in /proc/[0-9]*/root; do chroot $p /bin/sh -c 'echo out > {}'; done",
                    fixture.loot().display()
                )
            },
            |result| result.fixture.loot().exists(),
        ),
        says(
            "creates a device and reads the disk",
            "dev=$(stat -c '%d' /usr); mknod d b $((dev / 256)) $((dev % 256)) && head -c 512 d \
             > block && test -s block && echo READ",
            "READ",
        ),
        says(
            "writes to the kernel log",
            "test -c /dev/kmsg && echo escape > /dev/kmsg && echo WROTE",
            "WROTE",
        ),
        says(
            "changes a kernel setting",
            "now=$(cat /proc/sys/vm/swappiness); echo $now > /proc/sys/vm/swappiness && echo WROTE",
            "WROTE",
        ),
        says(
            "reaches the sysrq trigger",
            // Checks only the permission.
            "test -w /proc/sysrq-trigger && echo WRITABLE",
            "WRITABLE",
        ),
        says(
            "writes into a system program folder",
            "f=$(mktemp -p /usr/local/bin) && echo WROTE; rm -f $f",
            "WROTE",
        ),
    ]
}
