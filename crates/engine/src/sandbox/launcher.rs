//! Sandbox launcher: runs inside the sandbox before it executes the agent.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::Error;
use super::landlock::LandlockSandbox;

/// Maximum size of one file: 16 GiB. Total disk usage is limited by the disk quota.
const MAX_FILE_SIZE: u64 = 16 * 1024 * 1024 * 1024;

/// Arguments of the launcher.
#[derive(Debug, Default, PartialEq, Eq)]
struct LauncherArgs {
    forward: Option<(u16, PathBuf)>,
    /// Start the forwarder and exit, so that it is detached from the agent.
    detach: Option<PathBuf>,
    /// Forward connections of the listener on standard input to this socket.
    serve: Option<PathBuf>,
    create_dirs: Vec<PathBuf>,
    landlock: LandlockSandbox,
    command: Vec<OsString>,
}

/// Prepares the sandbox and executes the program after `--`.
///
/// Returns only if that fails. `args` must be the last arguments of this process, because the
/// launcher starts itself again to forward the gateway's port.
pub fn run_launcher(args: impl IntoIterator<Item = OsString>) -> Result<(), Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let own = std::env::args_os().count().saturating_sub(args.len()).max(1);
    let before: Vec<OsString> = std::env::args_os().take(own).skip(1).collect();
    let parsed = parse_args(args)?;
    if let Some(socket) = &parsed.serve {
        return forward_connections(socket);
    }
    if let Some(socket) = &parsed.detach {
        return spawn_self(&before, "--serve", socket, Stdio::inherit()).map(drop);
    }
    if let Some((port, socket)) = &parsed.forward {
        // Listen before the agent starts, and pass the listener on.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
            .map_err(launch_error("listen on the gateway's port"))?;
        let mut child = spawn_self(&before, "--detach", socket, OwnedFd::from(listener).into())?;
        child.wait().map_err(launch_error("start the forwarder"))?;
    }
    for folder in &parsed.create_dirs {
        std::fs::create_dir_all(folder).map_err(launch_error("create a temporary directory"))?;
    }
    set_limit(Resource::Core, 0)?;
    set_limit(Resource::Fsize, MAX_FILE_SIZE)?;
    parsed.landlock.enforce()?;
    let Some((program, args)) = parsed.command.split_first() else {
        return Err(Error::InvalidArgument("no program".to_owned()));
    };
    #[expect(clippy::disallowed_methods, reason = "replaces the recorded child process")]
    let error = Command::new(program).args(args).exec();
    Err(launch_error("start the program")(error))
}

fn launch_error(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Launch { what, source }
}

fn set_limit(resource: Resource, maximum: u64) -> Result<(), Error> {
    let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
    match setrlimit(resource, limit) {
        // The limit is already lower and must not be raised.
        Err(rustix::io::Errno::PERM) | Ok(()) => Ok(()),
        Err(error) => Err(launch_error("set a limit")(error.into())),
    }
}

/// Starts this program again, as a forwarder.
fn spawn_self(
    before: &[OsString],
    option: &str,
    socket: &Path,
    stdin: Stdio,
) -> Result<std::process::Child, Error> {
    let program = std::env::current_exe().map_err(launch_error("find this program"))?;
    #[expect(clippy::disallowed_methods, reason = "inherits the marker and ends with the sandbox")]
    Command::new(program)
        .args(before)
        .arg(option)
        .arg(socket)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(launch_error("start the forwarder"))
}

/// Forwards every connection to the gateway's socket until the sandbox ends.
fn forward_connections(socket: &Path) -> Result<(), Error> {
    let fd = io::stdin().as_fd().try_clone_to_owned().map_err(launch_error("take the listener"))?;
    let listener = TcpListener::from(fd);
    for inward in listener.incoming().flatten() {
        let Ok(outward) = UnixStream::connect(socket) else { continue };
        // Without a thread the connection is closed, and the agent retries.
        drop(thread::Builder::new().spawn(move || copy_both_ways(&inward, &outward)));
    }
    Ok(())
}

/// Copies in both directions. Either side may close first.
fn copy_both_ways(inward: &TcpStream, outward: &UnixStream) {
    thread::scope(|both| {
        both.spawn(|| {
            let _ = io::copy(&mut &*inward, &mut &*outward);
            let _ = outward.shutdown(Shutdown::Write);
        });
        let _ = io::copy(&mut &*outward, &mut &*inward);
        let _ = inward.shutdown(Shutdown::Write);
    });
}

fn parse_args(args: Vec<OsString>) -> Result<LauncherArgs, Error> {
    let mut parsed = LauncherArgs::default();
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        let name = name.to_string_lossy().into_owned();
        let mut next = || args.next().ok_or_else(|| Error::InvalidArgument(name.clone()));
        let port = |text: OsString| {
            text.to_str()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| Error::InvalidArgument(text.to_string_lossy().into_owned()))
        };
        match name.as_str() {
            "--forward" => parsed.forward = Some((port(next()?)?, next()?.into())),
            "--detach" => parsed.detach = Some(next()?.into()),
            "--serve" => parsed.serve = Some(next()?.into()),
            "--make" => parsed.create_dirs.push(next()?.into()),
            "--read" => parsed.landlock.readable.push(next()?.into()),
            "--write" => parsed.landlock.writable.push(next()?.into()),
            "--port" => parsed.landlock.ports.get_or_insert_default().push(port(next()?)?),
            "--no-port" => parsed.landlock.ports = Some(Vec::new()),
            "--scope" => parsed.landlock.scope = true,
            "--" => {
                parsed.command = args.collect();
                return Ok(parsed);
            }
            _ => return Err(Error::InvalidArgument(name)),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn launcher_parses_its_arguments_and_rejects_others() {
        let parsed = parse_args(arguments(
            "--forward 80 /s --read /a --write /b --port 1 --scope -- x --read",
        ))
        .expect("parses");
        assert_eq!(parsed.forward, Some((80, PathBuf::from("/s"))));
        let expected = LandlockSandbox {
            readable: vec![PathBuf::from("/a")],
            writable: vec![PathBuf::from("/b")],
            ports: Some(vec![1]),
            scope: true,
        };
        assert_eq!((parsed.landlock, parsed.command), (expected, arguments("x --read")));
        for line in ["--forward x /s", "--forward 80", "--port 99999", "--help", "x"] {
            assert!(parse_args(arguments(line)).is_err(), "{line}");
        }
    }
}
