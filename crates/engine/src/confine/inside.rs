//! The launcher: what of us runs inside a cage, before it becomes the agent.

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
use super::fence::Fence;

/// How large one file may become: 16 GiB. What all of them take is the business of the disk's quota.
const FILE: u64 = 16 * 1024 * 1024 * 1024;

/// What a launcher is told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    forward: Option<(u16, PathBuf)>,
    /// Only starts the forwarder, which is nobody's child then.
    detach: Option<PathBuf>,
    /// Forwards what comes in on the standard input, which is a listener.
    serve: Option<PathBuf>,
    make: Vec<PathBuf>,
    fence: Fence,
    command: Vec<OsString>,
}

/// Does what a launcher is told, and becomes the program that is named after `--`.
///
/// It returns only when that fails. `args` are the last arguments of this very process: the launcher
/// starts itself again to forward the gateway's port.
pub fn inside(args: impl IntoIterator<Item = OsString>) -> Result<(), Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let own = std::env::args_os().count().saturating_sub(args.len()).max(1);
    let before: Vec<OsString> = std::env::args_os().take(own).skip(1).collect();
    let told = read(args)?;
    if let Some(socket) = &told.serve {
        return serve(socket);
    }
    if let Some(socket) = &told.detach {
        return again(&before, "--serve", socket, Stdio::inherit()).map(drop);
    }
    if let Some((port, socket)) = &told.forward {
        // It listens before anybody can connect, and is handed on as it is.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
            .map_err(failed("listen on the gateway's port"))?;
        let mut child = again(&before, "--detach", socket, OwnedFd::from(listener).into())?;
        child.wait().map_err(failed("start the forwarder"))?;
    }
    for folder in &told.make {
        std::fs::create_dir_all(folder).map_err(failed("make a folder for temporary files"))?;
    }
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, FILE)?;
    told.fence.put_up()?;
    let Some((program, args)) = told.command.split_first() else {
        return Err(Error::Told("no program".to_owned()));
    };
    #[expect(clippy::disallowed_methods, reason = "it becomes the child that the engine recorded")]
    let error = Command::new(program).args(args).exec();
    Err(failed("start the program")(error))
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Launch { what, source }
}

fn limit(resource: Resource, most: u64) -> Result<(), Error> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    match setrlimit(resource, limit) {
        // It is lower already, and may not be raised.
        Err(rustix::io::Errno::PERM) | Ok(()) => Ok(()),
        Err(error) => Err(failed("set a limit")(error.into())),
    }
}

/// Starts this program once more.
fn again(
    before: &[OsString],
    what: &str,
    socket: &Path,
    stdin: Stdio,
) -> Result<std::process::Child, Error> {
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    #[expect(clippy::disallowed_methods, reason = "it has the mark, and ends with the cage")]
    Command::new(program)
        .args(before)
        .arg(what)
        .arg(socket)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed("start the forwarder"))
}

/// Hands every connection on to the gateway's socket, until the cage is gone.
fn serve(socket: &Path) -> Result<(), Error> {
    let taken = io::stdin().as_fd().try_clone_to_owned().map_err(failed("take the listener"))?;
    let listener = TcpListener::from(taken);
    for inward in listener.incoming().flatten() {
        let Ok(outward) = UnixStream::connect(socket) else { continue };
        // A connection that gets no thread is closed, and the agent tries again.
        drop(thread::Builder::new().spawn(move || carry(&inward, &outward)));
    }
    Ok(())
}

/// Copies both ways. Either side may close its half first.
fn carry(inward: &TcpStream, outward: &UnixStream) {
    thread::scope(|both| {
        both.spawn(|| {
            let _ = io::copy(&mut &*inward, &mut &*outward);
            let _ = outward.shutdown(Shutdown::Write);
        });
        let _ = io::copy(&mut &*outward, &mut &*inward);
        let _ = inward.shutdown(Shutdown::Write);
    });
}

fn read(args: Vec<OsString>) -> Result<Told, Error> {
    let mut told = Told::default();
    let mut args = args.into_iter();
    while let Some(word) = args.next() {
        let word = word.to_string_lossy().into_owned();
        let mut next = || args.next().ok_or_else(|| Error::Told(word.clone()));
        let port = |text: OsString| {
            text.to_str()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| Error::Told(text.to_string_lossy().into_owned()))
        };
        match word.as_str() {
            "--forward" => told.forward = Some((port(next()?)?, next()?.into())),
            "--detach" => told.detach = Some(next()?.into()),
            "--serve" => told.serve = Some(next()?.into()),
            "--make" => told.make.push(next()?.into()),
            "--read" => told.fence.readable.push(next()?.into()),
            "--write" => told.fence.writable.push(next()?.into()),
            "--port" => told.fence.ports.get_or_insert_default().push(port(next()?)?),
            "--no-port" => told.fence.ports = Some(Vec::new()),
            "--scope" => told.fence.scope = true,
            "--" => {
                told.command = args.collect();
                return Ok(told);
            }
            _ => return Err(Error::Told(word)),
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_launcher_understands_what_it_is_told_and_nothing_else() {
        let told = read(words("--forward 80 /s --read /a --write /b --port 1 --scope -- x --read"))
            .expect("understood");
        assert_eq!(told.forward, Some((80, PathBuf::from("/s"))));
        let fence = Fence {
            readable: vec![PathBuf::from("/a")],
            writable: vec![PathBuf::from("/b")],
            ports: Some(vec![1]),
            scope: true,
        };
        assert_eq!((told.fence, told.command), (fence, words("x --read")));
        for line in ["--forward x /s", "--forward 80", "--port 99999", "--help", "x"] {
            assert!(read(words(line)).is_err(), "{line}");
        }
    }
}
