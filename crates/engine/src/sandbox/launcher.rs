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

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tamma_core::operator::ResourceLimits;

use super::Error;
use super::landlock::LandlockSandbox;

/// Arguments of the launcher.
#[derive(Debug, Default, PartialEq, Eq)]
struct LauncherArgs {
    forwards: Vec<(u16, PathBuf)>,
    /// Start the forwarder and exit, so that it is detached from the agent.
    detach: Option<PathBuf>,
    /// Forward connections of the listener on standard input to this socket.
    serve: Option<PathBuf>,
    create_dirs: Vec<PathBuf>,
    limits: Vec<(ProcessLimit, u64)>,
    landlock: LandlockSandbox,
    command: Vec<OsString>,
}

/// Limit that the kernel enforces on each process, except that `Processes` counts all processes and
/// threads of the user in the user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum ProcessLimit {
    FileBytes,
    OpenFiles,
    CpuSeconds,
    Processes,
}

impl ProcessLimit {
    fn resource(self) -> Resource {
        match self {
            Self::FileBytes => Resource::Fsize,
            Self::OpenFiles => Resource::Nofile,
            Self::CpuSeconds => Resource::Cpu,
            Self::Processes => Resource::Nproc,
        }
    }
}

/// Returns the launcher arguments for resource limits. The number of processes is only limited in a
/// user namespace of its own, because others would count too.
pub(super) fn limit_args(limits: &ResourceLimits, has_user_namespace: bool) -> Vec<String> {
    let processes = has_user_namespace.then_some((ProcessLimit::Processes, limits.processes));
    [
        (ProcessLimit::FileBytes, limits.file_mb.saturating_mul(1024 * 1024)),
        (ProcessLimit::OpenFiles, limits.open_files),
        (ProcessLimit::CpuSeconds, limits.cpu_seconds),
    ]
    .into_iter()
    .chain(processes)
    .flat_map(|(limit, value)| ["--limit".to_owned(), limit.to_string(), value.to_string()])
    .collect()
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
    for (port, socket) in &parsed.forwards {
        // Listen before the agent starts, and pass the listener on.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
            .map_err(launch_error("listen on a port that leads out of the sandbox"))?;
        let mut child = spawn_self(&before, "--detach", socket, OwnedFd::from(listener).into())?;
        child.wait().map_err(launch_error("start the forwarder"))?;
    }
    for folder in &parsed.create_dirs {
        std::fs::create_dir_all(folder).map_err(launch_error("create a temporary directory"))?;
    }
    set_limit(Resource::Core, 0)?;
    for (limit, value) in &parsed.limits {
        set_limit(limit.resource(), *value)?;
    }
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

/// Lowers a limit. One that is already lower is kept.
fn set_limit(resource: Resource, maximum: u64) -> Result<(), Error> {
    let now = getrlimit(resource);
    let lower = |now: Option<u64>| Some(now.map_or(maximum, |now| now.min(maximum)));
    let limit = Rlimit { current: lower(now.current), maximum: lower(now.maximum) };
    setrlimit(resource, limit).map_err(|error| launch_error("set a limit")(error.into()))
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
            "--forward" => parsed.forwards.push((port(next()?)?, next()?.into())),
            "--limit" => {
                let (limit, value) = (next()?, next()?);
                let limit = limit.to_str().and_then(|text| text.parse().ok());
                let value = value.to_str().and_then(|text| text.parse().ok());
                let both = limit.zip(value).ok_or_else(|| Error::InvalidArgument(name.clone()))?;
                parsed.limits.push(both);
            }
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
            "--forward 80 /s --forward 81 /t --limit file_bytes 9 --read /a --write /b --no-port \
             --port 1 --scope -- x --read",
        ))
        .expect("parses");
        assert_eq!(parsed.forwards, [(80, PathBuf::from("/s")), (81, PathBuf::from("/t"))]);
        assert_eq!(parsed.limits, [(ProcessLimit::FileBytes, 9)]);
        let expected = LandlockSandbox {
            readable: vec![PathBuf::from("/a")],
            writable: vec![PathBuf::from("/b")],
            ports: Some(vec![1]),
            scope: true,
        };
        assert_eq!((parsed.landlock, parsed.command), (expected, arguments("x --read")));
        let limits = ["--limit cpu 1", "--limit processes", "--limit processes -1"];
        let others = ["--forward x /s", "--forward 80", "--port 99999", "--help", "x"];
        for line in limits.into_iter().chain(others) {
            assert!(parse_args(arguments(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn launcher_understands_the_limits_that_it_is_given() {
        let limits = ResourceLimits { file_mb: 2, ..ResourceLimits::default() };
        let args = limit_args(&limits, true).into_iter().map(OsString::from).collect();
        let parsed = parse_args(args).expect("parses").limits;
        assert_eq!(parsed.len(), 4);
        assert!(parsed.contains(&(ProcessLimit::FileBytes, 2 * 1024 * 1024)), "{parsed:?}");
        assert!(parsed.contains(&(ProcessLimit::Processes, limits.processes)), "{parsed:?}");
        assert_eq!(limit_args(&limits, false).len(), 9, "other processes of the user would count");
    }
}
