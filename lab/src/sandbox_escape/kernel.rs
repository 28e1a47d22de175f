//! Kernel attempts: system calls and devices that reach other processes or the machine.

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;
use super::repository::wrote_loot;

/// Numbers of system calls: of x86-64, and of other architectures.
struct SyscallNumber(u32, u32);

impl SyscallNumber {
    const PTRACE: Self = Self(101, 117);
    const ADD_KEY: Self = Self(248, 217);
    const BPF: Self = Self(321, 280);
    const PERF_EVENT_OPEN: Self = Self(298, 241);
    const PIDFD_OPEN: Self = Self(434, 434);
    const PIDFD_GETFD: Self = Self(438, 438);

    fn get(&self) -> u32 {
        if cfg!(target_arch = "x86_64") { self.0 } else { self.1 }
    }
}

pub(crate) fn all() -> Vec<Attempt> {
    processes().into_iter().chain(calls()).chain(namespaces()).chain(machine()).collect()
}

fn says(name: &str, script: impl Fn(&EscapeFixture) -> String + 'static) -> Attempt {
    let escaped = |result: &AttemptResult<'_>| result.fixture.output().contains("DONE");
    Attempt::script(name, "sandbox", script, escaped)
}

fn processes() -> Vec<Attempt> {
    let pid = std::process::id();
    vec![
        says("traces the worker", move |_| {
            // PTRACE_SEIZE, which does not stop the process.
            let call = SyscallNumber::PTRACE.get();
            format!("perl -e 'print \"DONE\" if syscall({call}, 0x4206, {pid}, 0, 0) == 0'")
        }),
        says("takes a descriptor of the worker", move |_| {
            let (open, get) = (SyscallNumber::PIDFD_OPEN.get(), SyscallNumber::PIDFD_GETFD.get());
            format!(
                "perl -e '$p = syscall({open}, {pid}, 0); print \"DONE\" if $p >= 0 && \
                 syscall({get}, $p, 1, 0) >= 0'"
            )
        }),
        Attempt::script(
            "writes through the root of the first process",
            "sandbox",
            |fixture| format!("echo out > /proc/1/root{}", fixture.loot().display()),
            wrote_loot,
        ),
    ]
}

fn calls() -> Vec<Attempt> {
    // Keys outlive a run, so each experiment has its own.
    let key = format!("tamma-escape-{}", std::process::id());
    let added = key.clone();
    vec![
        Attempt::script(
            "adds a key to the user's keyring",
            "sandbox",
            move |_| {
                // -4 is the keyring of the user.
                let call = SyscallNumber::ADD_KEY.get();
                format!(
                    "perl -e '($t, $d, $v) = (\"user\", \"{key}\", \"x\"); \
                     syscall({call}, $t, $d, $v, 1, -4)'"
                )
            },
            move |_| std::fs::read_to_string("/proc/keys").is_ok_and(|keys| keys.contains(&added)),
        ),
        says("creates a BPF map", |_| {
            // BPF_MAP_CREATE of an array with one element.
            let call = SyscallNumber::BPF.get();
            format!(
                "perl -e '$a = pack(\"L4x112\", 2, 4, 4, 1); print \"DONE\" if \
                 syscall({call}, 0, $a, 128) >= 0'"
            )
        }),
        says("measures all processes of a CPU", |_| {
            // A software event of 112 bytes, for every process on the first CPU.
            let call = SyscallNumber::PERF_EVENT_OPEN.get();
            format!(
                "perl -e '$a = pack(\"L2x104\", 1, 112); print \"DONE\" if \
                 syscall({call}, $a, -1, 0, -1, 0) >= 0'"
            )
        }),
        says("types into the terminal", |_| {
            "perl -e '$c = \"\\n\"; open(T, \"+<\", \"/dev/tty\") and ioctl(T, 0x5412, $c) and \
             print \"DONE\"'"
                .to_owned()
        }),
    ]
}

fn namespaces() -> Vec<Attempt> {
    vec![
        says("creates a user namespace", |_| "unshare -Ur true && echo DONE".to_owned()),
        says("creates a network namespace", |_| "unshare -n true && echo DONE".to_owned()),
        Attempt::script(
            "enters the namespaces of the first process",
            "sandbox",
            |fixture| {
                let loot = fixture.loot();
                format!("nsenter -t 1 -m -- sh -c 'echo out > {}'", loot.display())
            },
            wrote_loot,
        ),
        Attempt::script(
            "enters the namespaces of the worker",
            "sandbox",
            |fixture| {
                let (pid, loot) = (std::process::id(), fixture.loot());
                format!("nsenter -t {pid} -m -- sh -c 'echo out > {}'", loot.display())
            },
            wrote_loot,
        ),
    ]
}

/// Changes of the machine. Each sets the current value, so that a control run changes nothing.
fn machine() -> Vec<Attempt> {
    vec![
        says("sets the clock", |_| "date -s \"@$(date +%s.%N)\" && echo DONE".to_owned()),
        says("sets the name of the machine", |_| {
            "hostname \"$(hostname)\" && echo DONE".to_owned()
        }),
        says("sets the program that gets core dumps", |_| {
            "f=/proc/sys/kernel/core_pattern; v=$(cat $f) && echo \"$v\" > $f && echo DONE"
                .to_owned()
        }),
        says("raises its priority", |_| "renice -n -5 $$ && echo DONE".to_owned()),
        says("creates a control group", |_| {
            "mkdir /sys/fs/cgroup/tamma-escape && echo DONE; rmdir /sys/fs/cgroup/tamma-escape"
                .to_owned()
        }),
        says("opens a device of the machine", |_| {
            "for d in mem port kvm fuse loop-control net/tun vhost-net; do \
             (exec 3< /dev/$d) 2>/dev/null && echo DONE; done"
                .to_owned()
        }),
    ]
}
