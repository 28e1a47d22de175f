//! Sandboxes on a real machine: visible files, writable files and reachable addresses.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::operator::ResourceLimits;
use tamma_core::rules::SandboxMode;
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::egress::EgressProxy;
use tamma_engine::process::{self, ExceededLimit, Launch, SupervisedProcess};
use tamma_engine::sandbox::{self, Launcher, Network, Sandbox, SandboxKind};
use tamma_engine::shell_command::ShellCommand;
use tamma_engine::submission::Submission;
use tamma_engine::worktree::Worktree;
use tamma_testkit::agent::{AgentStep, SCRIPT_VARIABLE, Script};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, environment, is_alive, noon};

fn launcher() -> Launcher {
    Launcher { program: PathBuf::from(env!("CARGO_BIN_EXE_sandbox-launcher")), args: Vec::new() }
}

fn new_sandbox(fixture: &Fixture, tree: &Worktree, kind: SandboxKind) -> Sandbox {
    let home = fixture.data().join("homes").join("this");
    std::fs::create_dir_all(&home).unwrap();
    Sandbox {
        kind,
        launcher: launcher(),
        worktree: tree.path().to_owned(),
        read_only: false,
        repository: Some(mirror(fixture)),
        git: None,
        home,
        readable: Vec::new(),
        writable: Vec::new(),
        protected: Vec::new(),
        hidden: Vec::new(),
        network: Network::Disabled,
        limits: ResourceLimits::default(),
    }
}

fn mirror(fixture: &Fixture) -> PathBuf {
    let mirrors = std::fs::read_dir(fixture.data().join("mirrors")).unwrap();
    mirrors.flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap()
}

fn launch(fixture: &Fixture, tree: &Worktree, script: &str) -> Launch {
    Launch {
        program: PathBuf::from("sh"),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: environment(),
        working_dir: tree.path().to_owned(),
        run: fixture.run(),
        now: noon(),
    }
}

/// Runs a script in a sandbox, and returns its exit code and output.
async fn run(
    fixture: &Fixture,
    tree: &Worktree,
    sandbox: &Sandbox,
    script: &str,
) -> (Option<i32>, String) {
    let launch = sandbox.wrap(launch(fixture, tree, script));
    fixture.run_to_end(&launch).await
}

fn kinds() -> [SandboxKind; 2] {
    // Both are required; a machine without them must fail these tests.
    [SandboxMode::Bubblewrap, SandboxMode::Landlock]
        .map(|sandbox| sandbox::choose(sandbox).unwrap())
}

#[tokio::test]
async fn only_the_worktree_and_the_home_are_writable() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let secret = fixture.scratch_path("secret.txt");
    std::fs::write(&secret, "hush").unwrap();
    let other = fixture.data().join("homes/other");
    std::fs::create_dir_all(&other).unwrap();
    for kind in kinds() {
        let sandbox = new_sandbox(&fixture, &tree, kind);
        let (mirror, home) = (mirror(&fixture), sandbox.home.display().to_string());
        let script = format!(
            "echo in > here.txt; echo in > {home}/x; echo tmp > $TMPDIR/x && cat $TMPDIR/x
             (echo out > {aside}) 2>/dev/null
             for f in /etc/x /usr/x {mirror}/x {mirror}/refs/heads/x {other}/x ~/x; do
               echo out > $f && echo WROTE $f; done 2>/dev/null
             cat {secret} /etc/shadow 2>/dev/null | head -c 300; 
             git status --short; git log --oneline | wc -l; exit 7",
            aside = fixture.scratch_path("out.txt").display(),
            mirror = mirror.display(),
            other = other.display(),
            secret = secret.display(),
        );
        let (code, output) = run(&fixture, &tree, &sandbox, &script).await;
        assert_eq!((code, output.as_str()), (Some(7), "tmp\n?? here.txt\n1\n"), "{kind}");
        assert_eq!(std::fs::read_to_string(sandbox.home.join("x")).unwrap(), "in\n");
        assert!(!fixture.scratch_path("out.txt").exists());
        std::fs::remove_file(tree.path().join("here.txt")).unwrap();
    }
}

#[tokio::test]
async fn read_only_runs_cannot_write_and_protected_files_stay() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    for kind in kinds() {
        let read_only_sandbox = Sandbox { read_only: true, ..new_sandbox(&fixture, &tree, kind) };
        let script = "echo x > README.md; echo x > new; rm -f src/old.txt; cat README.md";
        let (_, output) = run(&fixture, &tree, &read_only_sandbox, script).await;
        assert!(output.starts_with("a project\n"), "{kind}: {output}");
        assert!(tree.path().join("src/old.txt").exists() && !tree.path().join("new").exists());
    }
    let protected = vec![tree.path().join("src"), tree.path().join("not/there")];
    let sandbox = Sandbox { protected, ..new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap) };
    let script = "echo x > src/old.txt; echo x > src/new; mv src gone; rm -rf .git; mv .git x
                  echo gitdir: /x > .git; echo ok > README.md";
    let (_, output) = run(&fixture, &tree, &sandbox, script).await;
    assert_eq!(std::fs::read_to_string(tree.path().join("src/old.txt")).unwrap(), "old\n");
    assert!(!tree.path().join("src/new").exists(), "{output}");
    assert_eq!(std::fs::read_to_string(tree.path().join("README.md")).unwrap(), "ok\n");
    assert_eq!(tree.head().await.unwrap(), fixture.base().await, "git finds its repository");
}

#[tokio::test]
async fn only_the_gateway_is_reachable_at_its_port() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let socket = fixture.scratch_path("gateway.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let gateway = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request_bytes = [0; 5];
        stream.read_exact(&mut request_bytes).unwrap();
        stream.write_all(b"world").unwrap();
        request_bytes
    });
    // Another listener on loopback, which must not be reachable.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let spare = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = spare.local_addr().unwrap().port();
    let network = Network::Gateway { port, socket };
    let sandbox = Sandbox { network, ..new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap) };
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf hello >&3 && head -c 5 <&3; echo
         exec 4<>/dev/tcp/127.0.0.1/{} && echo REACHED",
        other.local_addr().unwrap().port()
    );
    let script = format!("exec bash -c '{script}' 2>/dev/null");
    let (_, output) = run(&fixture, &tree, &sandbox, &script).await;
    assert_eq!(output, "world\n");
    assert_eq!(&gateway.join().unwrap(), b"hello");
    let sandbox = Sandbox {
        kind: SandboxKind::Landlock,
        network: Network::Gateway { port, socket: fixture.scratch_path("none") },
        ..sandbox
    };
    let (_, output) =
        run(&fixture, &tree, &sandbox, &script.replace("head -c 5 <&3", "echo in")).await;
    assert_eq!(output, "in\n\n");
    assert!(other.accept().is_err(), "nobody came");
    drop(spare);
}

#[tokio::test]
async fn network_access_reaches_no_service_of_this_machine_unless_the_operator_lists_it() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |listener: &std::net::TcpListener| listener.local_addr().unwrap().port();
    let (closed, listed) = (listen(), listen());
    closed.set_nonblocking(true).unwrap();
    let (closed_port, listed_port) = (port(&closed), port(&listed));
    let service = std::thread::spawn(move || {
        // One connection in each sandbox.
        for _ in 0..2 {
            let (mut stream, _) = listed.accept().unwrap();
            stream.write_all(b"listed\n").unwrap();
        }
    });
    let hosts = [format!("127.0.0.1:{listed_port}")];
    let egress = EgressProxy::open(&fixture.data(), &hosts, None).await.unwrap();
    let network = egress.network(None);
    let Network::Egress { proxy, .. } = &network else { panic!("no proxy") };
    let request = format!("CONNECT localhost:{closed_port} HTTP/1.1\\r\\n\\r\\n");
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{listed_port} && cat <&3
         exec 4<>/dev/tcp/127.0.0.1/{} && printf \"{request}\" >&4 && head -n 1 <&4
         echo $HTTPS_PROXY $NO_PROXY
         exec 5<>/dev/tcp/127.0.0.1/{closed_port} && echo REACHED",
        proxy.port
    );
    let script = format!("exec bash -c '{script}' 2>/dev/null");
    let url = format!("http://127.0.0.1:{} 127.0.0.1,localhost,::1", proxy.port);
    for kind in kinds() {
        let sandbox = Sandbox { network: network.clone(), ..new_sandbox(&fixture, &tree, kind) };
        let (_, output) = run(&fixture, &tree, &sandbox, &script).await;
        assert_eq!(output, format!("listed\nHTTP/1.1 403 Forbidden\r\n{url}\n"), "{kind}");
    }
    service.join().unwrap();
    assert!(closed.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn no_datagram_and_no_socket_leaves_a_sandbox_with_network_access() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let service = fixture.scratch_path("service.sock");
    let _listener = UnixListener::bind(&service).unwrap();
    let egress = EgressProxy::open(&fixture.data(), &[], None).await.unwrap();
    let network = egress.network(None);
    let sandbox = Sandbox { network, ..new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap) };
    let script = format!(
        "bash -c 'echo x > /dev/udp/127.0.0.1/{}' 2>/dev/null
         test -e {} && echo SOCKET; wc -l < /proc/net/route",
        datagrams.local_addr().unwrap().port(),
        service.display()
    );
    let (_, output) = run(&fixture, &tree, &sandbox, &script).await;
    assert_eq!(output, "1\n", "there is no route to another network");
    assert!(datagrams.recv(&mut [0; 8]).is_err(), "nothing arrived");
}

#[tokio::test]
async fn run_over_a_limit_is_stopped_with_the_reason() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let limits = ResourceLimits { memory_mb: 200, processes: 40, ..ResourceLimits::default() };
    // Two processes that are within the limit on their own.
    let memory = "for i in 1 2; do \
                  head -c 150M /dev/zero | tail -c 150M | sleep 600 & done; wait";
    let processes = "for i in $(seq 60); do sleep 600 & done; wait";
    for kind in kinds() {
        let sandbox = Sandbox { limits, ..new_sandbox(&fixture, &tree, kind) };
        for (line, exceeded) in
            [(memory, ExceededLimit::Memory(200)), (processes, ExceededLimit::Processes(40))]
        {
            let command = ShellCommand {
                line: line.to_owned(),
                env: environment(),
                time_limit: Duration::from_mins(1),
                sandbox: sandbox.clone(),
            };
            let (records, cancel) = (fixture.records().await, CancellationToken::new());
            let ended = command.run(&tree, (fixture.run(), noon()), &records, &cancel).await;
            let ended = ended.unwrap().unwrap();
            // In bubblewrap, the kernel may refuse the processes first, unless we are root.
            let is_refused = ended.code.is_some() && ended.output.contains("fork");
            if !is_refused {
                assert_eq!(ended.exceeded, Some(exceeded), "{kind}: {}", ended.output);
                assert!(ended.output.ends_with(&format!("{exceeded}\n")), "{}", ended.output);
            }
        }
    }
}

#[tokio::test]
async fn agent_over_a_limit_ends_with_the_reason() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let mut request = fixture.run_request(tree.path(), RunMode::Implement);
    let sandbox = new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap);
    let limits = ResourceLimits { memory_mb: 200, ..ResourceLimits::default() };
    let script = Script::new([
        AgentStep::Spawn {
            command: "python3 -c 'import signal; x = b\"x\" * (300 << 20); signal.pause()'"
                .to_owned(),
            new_session: true,
            pid_file: sandbox.home.join("pid"),
        },
        AgentStep::Hang,
    ]);
    let path = sandbox.home.join("script.json");
    script.write(&path).unwrap();
    let mut agent = fixture.agent(&script);
    agent.env.insert(SCRIPT_VARIABLE.to_owned(), path.display().to_string());
    request.sandbox = Some(Sandbox { limits, ..sandbox });
    let (updates, cancel) = (crate::fixture::RecordedUpdates::default(), CancellationToken::new());
    let report =
        agent.run(&request, &fixture.records().await, &updates.observer(), &cancel).await.unwrap();
    let reason = ExceededLimit::Memory(200).to_string();
    assert_eq!(report.end, RunEnd::Crashed { reason }, "{}", report.stderr);
}

#[tokio::test]
async fn system_calls_that_reach_beyond_a_sandbox_are_denied_and_threads_work() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let sandbox = new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap);
    // PTRACE_TRACEME; then AF_VSOCK, AF_PACKET and AF_UNIX.
    let program = "\
import ctypes, socket, threading
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())
for family in (40, 17, 1):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        print(family)
    except OSError as error:
        print(family, error.errno)
thread = threading.Thread(target=print, args=(\"thread\",))
thread.start()
thread.join()
";
    let script = format!("grep ^Seccomp: /proc/self/status; python3 -c '{program}'");
    let (code, output) = run(&fixture, &tree, &sandbox, &script).await;
    assert_eq!(output, "Seccomp:\t2\n-1 1\n40 1\n17 1\n1\nthread\n");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn single_file_over_its_limit_is_refused() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let limits = ResourceLimits { file_mb: 1, ..ResourceLimits::default() };
    for kind in kinds() {
        let sandbox = Sandbox { limits, ..new_sandbox(&fixture, &tree, kind) };
        // The shell says which signal ended the command.
        let script = "{ (head -c 2000000 /dev/zero > large); true; } 2>/dev/null; \
                      wc -c < large; ulimit -c";
        let (_, output) = run(&fixture, &tree, &sandbox, script).await;
        assert_eq!(output, "1048576\n0\n", "{kind}");
    }
}

#[tokio::test]
async fn other_processes_are_hidden_and_none_is_left() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let mut request = fixture.run_request(tree.path(), RunMode::Implement);
    let sandbox = new_sandbox(&fixture, &tree, SandboxKind::Bubblewrap);
    let file = sandbox.home.join("pid");
    // Without an environment the process has no marker, but its command line has the directory.
    let home = sandbox.home.display().to_string();
    let command = format!(
        "(env -i setsid sh -c 'sleep 3600; :' {home} &) ; ls /proc | grep -c '^[0-9]' > {home}/new; \
         mv {home}/new {home}/count; sleep 3600"
    );
    let script = Script::new([
        AgentStep::Spawn { command, new_session: true, pid_file: file },
        AgentStep::AwaitFile(sandbox.home.join("count")),
        AgentStep::End { tokens: None },
    ]);
    let path = sandbox.home.join("script.json");
    script.write(&path).unwrap();
    let mut agent = fixture.agent(&script);
    agent.env.insert(SCRIPT_VARIABLE.to_owned(), path.display().to_string());
    request.sandbox = Some(sandbox.clone());
    let (updates, cancel) =
        (crate::fixture::RecordedUpdates::default(), tokio_util::sync::CancellationToken::new());
    let report =
        agent.run(&request, &fixture.records().await, &updates.observer(), &cancel).await.unwrap();
    let (stop_reason, submission) = ("end_turn".to_owned(), Submission::NotRequired);
    assert_eq!(report.end, RunEnd::Finished { stop_reason, submission }, "{}", report.stderr);
    let inside: u32 =
        std::fs::read_to_string(sandbox.home.join("count")).unwrap().trim().parse().unwrap();
    assert!(inside < 12, "{inside} processes are in sight");
    assert_eq!(processes_with(&home), Vec::<u32>::new());
}

/// Returns processes that have this text in their command line.
fn processes_with(text: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let call = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&call).contains(text)
        })
        .filter(|pid| is_alive(*pid))
        .collect()
}

#[tokio::test]
async fn missing_program_is_reported_instead_of_the_sandbox() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    for kind in kinds() {
        let mut launch = launch(&fixture, &tree, "");
        launch.program = PathBuf::from("no-such-agent");
        let launch = new_sandbox(&fixture, &tree, kind).wrap(launch);
        let error =
            SupervisedProcess::start(&launch, &fixture.records().await, |_| {}).await.unwrap_err();
        let process::Error::Start { program, .. } = error else { panic!("{error}") };
        assert_eq!(program, Path::new("no-such-agent"));
    }
}

#[tokio::test]
async fn credentials_of_forges_are_invisible_below_a_readable_home() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    // The data folder as in `tamma up`, with the folder of the worker in it.
    let forges = fixture.data().join("forges");
    std::fs::create_dir_all(&forges).unwrap();
    std::fs::write(forges.join("hub.yaml"), "token: t0ken-of-tamma\n").unwrap();
    let above = fixture.data().parent().unwrap().to_owned();
    for kind in kinds() {
        let sandbox = Sandbox {
            readable: vec![above.clone()],
            hidden: vec![fixture.data()],
            ..new_sandbox(&fixture, &tree, kind)
        };
        let script = format!(
            "cat README.md; ls -R {0} 2>/dev/null; cat {0}/hub.yaml 2>/dev/null; env; \
             cat /proc/*/environ 2>/dev/null",
            forges.display()
        );
        let (_, output) = run(&fixture, &tree, &sandbox, &script).await;
        assert!(output.starts_with("a project\n"), "{kind}: {output}");
        assert!(!output.contains("t0ken") && !output.contains("hub.yaml"), "{kind}: {output}");
    }
}

#[tokio::test]
async fn hidden_path_is_invisible_below_a_readable_one() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    std::fs::create_dir_all(fixture.scratch_path("shop/back")).unwrap();
    std::fs::write(fixture.scratch_path("shop/front.txt"), "front\n").unwrap();
    std::fs::write(fixture.scratch_path("shop/back/key.txt"), "key\n").unwrap();
    for kind in kinds() {
        let sandbox = Sandbox {
            readable: vec![fixture.scratch_path("shop")],
            hidden: vec![fixture.scratch_path("shop/back"), fixture.scratch_path("elsewhere")],
            ..new_sandbox(&fixture, &tree, kind)
        };
        let shop = fixture.scratch_path("shop");
        let script = format!("cat {0}/front.txt {0}/back/key.txt 2>/dev/null", shop.display());
        assert_eq!(run(&fixture, &tree, &sandbox, &script).await.1, "front\n", "{kind}");
    }
}
