//! Filter of system calls (seccomp), as a classic BPF program for bubblewrap.
//!
//! It denies calls that neither agents nor builds need and that reach beyond a sandbox if the kernel
//! has a bug: debugging of processes, keys, mounts, namespaces, kernel modules, and rare kinds of
//! sockets. A denied call fails with an error, so that programs can do without it. Only programs of
//! another architecture are killed, because their calls have other numbers.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Loads a word of the call's data, at an offset.
const LOAD: u16 = 0x20;
/// Jumps if the word equals a value.
const IF_EQUAL: u16 = 0x15;
/// Jumps if the word is at least a value.
const IF_AT_LEAST: u16 = 0x35;
/// Jumps if the word has one of the bits of a value.
const IF_ANY_BIT: u16 = 0x45;
/// Ends the program with an action.
const RETURN: u16 = 0x06;

/// Allows the call.
const ALLOW: u32 = 0x7fff_0000;
/// Kills the process.
const KILL: u32 = 0x8000_0000;
/// Fails with `EPERM`.
const NOT_PERMITTED: u32 = 0x0005_0001;
/// Fails with `ENOSYS`, after which programs use an older call.
const NOT_IMPLEMENTED: u32 = 0x0005_0026;

/// Offsets in the data of a call: its number, the architecture, and the first two arguments.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

/// First number of the x32 calls, on x86-64 only.
const X32_CALLS: u32 = 0x4000_0000;

/// Flags of `clone` for new namespaces.
const NEW_NAMESPACES: [u32; 1] = [0x7e02_0000];
/// Requests of `ioctl` that write to another process's terminal: `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`.
const TERMINAL_REQUESTS: [u32; 3] = [0x5412, 0x541c, 0x5423];
/// Kinds of sockets: `AF_KEY`, `AF_PACKET`, `AF_RDS`, `AF_CAN`, `AF_TIPC`, `AF_BLUETOOTH`, `AF_ALG`,
/// and `AF_VSOCK`, which leads out of a virtual machine.
const SOCKET_FAMILIES: [u32; 8] = [15, 17, 21, 29, 30, 31, 38, 40];

/// Calls with the same number on all architectures since Linux 5.1: `io_uring_setup`,
/// `io_uring_enter`, `io_uring_register`, whose operations no filter sees, and `clone3`, whose flags
/// no filter sees.
const UNFILTERABLE: [u32; 4] = [425, 426, 427, 435];
/// The same for `open_tree`, `move_mount`, `fsopen`, `fsconfig`, `fsmount`, `fspick` and
/// `mount_setattr`.
const NEW_MOUNT_CALLS: [u32; 7] = [428, 429, 430, 431, 432, 433, 442];

/// Numbers of an architecture's calls.
struct CallNumbers {
    /// Identifier of the architecture.
    architecture: u32,
    has_x32: bool,
    clone: u32,
    ioctl: u32,
    socket: u32,
    /// Calls that are denied.
    denied: &'static [u32],
}

#[cfg(target_arch = "x86_64")]
const CALL_NUMBERS: Option<CallNumbers> = Some(CallNumbers {
    architecture: 0xc000_003e,
    has_x32: true,
    clone: 56,
    ioctl: 16,
    socket: 41,
    denied: &[
        101, 310, 311, // ptrace, process_vm_readv, process_vm_writev
        248, 249, 250, // add_key, request_key, keyctl
        165, 166, 155, // mount, umount2, pivot_root
        272, 308, // unshare, setns
        321, 298, 323, // bpf, perf_event_open, userfaultfd
        246, 320, // kexec_load, kexec_file_load
        175, 313, 176, // init_module, finit_module, delete_module
        169, 167, 168, // reboot, swapon, swapoff
        172, 173, // iopl, ioperm
        304, // open_by_handle_at
        163, 179, // acct, quotactl
        164, 227, // settimeofday, clock_settime
        170, 171, 103, // sethostname, setdomainname, syslog
    ],
});

#[cfg(target_arch = "aarch64")]
const CALL_NUMBERS: Option<CallNumbers> = Some(CallNumbers {
    architecture: 0xc000_00b7,
    has_x32: false,
    clone: 220,
    ioctl: 29,
    socket: 198,
    denied: &[
        117, 270, 271, // ptrace, process_vm_readv, process_vm_writev
        217, 218, 219, // add_key, request_key, keyctl
        40, 39, 41, // mount, umount2, pivot_root
        97, 268, // unshare, setns
        280, 241, 282, // bpf, perf_event_open, userfaultfd
        104, 294, // kexec_load, kexec_file_load
        105, 273, 106, // init_module, finit_module, delete_module
        142, 224, 225, // reboot, swapon, swapoff
        265, // open_by_handle_at
        89, 60, // acct, quotactl
        170, 112, // settimeofday, clock_settime
        161, 162, 116, // sethostname, setdomainname, syslog
    ],
});

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALL_NUMBERS: Option<CallNumbers> = None;

/// Instruction of a BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// Instructions to skip if a condition holds.
    if_true: u8,
    /// Instructions to skip if it does not.
    if_false: u8,
    value: u32,
}

/// Program under construction.
#[derive(Debug, Default)]
struct FilterProgram(Vec<Instruction>);

impl FilterProgram {
    /// Builds the filter of an architecture.
    fn new(numbers: &CallNumbers) -> Self {
        let mut program = Self::default();
        program.load(ARCHITECTURE);
        program.push(IF_EQUAL, (1, 0), numbers.architecture);
        program.end(KILL);
        program.load(NUMBER);
        if numbers.has_x32 {
            program.push(IF_AT_LEAST, (0, 1), X32_CALLS);
            program.end(NOT_IMPLEMENTED);
        }
        program.deny(numbers.denied, NOT_PERMITTED);
        program.deny(&NEW_MOUNT_CALLS, NOT_PERMITTED);
        program.deny(&UNFILTERABLE, NOT_IMPLEMENTED);
        program.deny_arguments(numbers.clone, FIRST_ARGUMENT, (IF_ANY_BIT, &NEW_NAMESPACES));
        program.deny_arguments(numbers.ioctl, SECOND_ARGUMENT, (IF_EQUAL, &TERMINAL_REQUESTS));
        program.deny_arguments(numbers.socket, FIRST_ARGUMENT, (IF_EQUAL, &SOCKET_FAMILIES));
        program.end(ALLOW);
        program
    }

    fn push(&mut self, code: u16, (if_true, if_false): (u8, u8), value: u32) {
        self.0.push(Instruction { code, if_true, if_false, value });
    }

    fn load(&mut self, offset: u32) {
        self.push(LOAD, (0, 0), offset);
    }

    fn end(&mut self, action: u32) {
        self.push(RETURN, (0, 0), action);
    }

    /// Ends calls with one of these numbers. The number is loaded.
    fn deny(&mut self, numbers: &[u32], action: u32) {
        for number in numbers {
            self.push(IF_EQUAL, (0, 1), *number);
            self.end(action);
        }
    }

    /// Decides a call by one of its arguments. The number is loaded.
    fn deny_arguments(&mut self, number: u32, offset: u32, (condition, values): (u16, &[u32])) {
        // Two instructions for each value, one before and one after them.
        let length = u8::try_from(2 * values.len() + 2).unwrap_or(u8::MAX);
        self.push(IF_EQUAL, (0, length), number);
        // Both supported architectures are little-endian: the lower half of an argument is first.
        self.load(offset);
        for value in values {
            self.push(condition, (0, 1), *value);
            self.end(NOT_PERMITTED);
        }
        self.end(ALLOW);
    }

    fn to_bytes(&self) -> Vec<u8> {
        let encode = |it: &Instruction| {
            let jumps = [it.if_true, it.if_false];
            [&it.code.to_ne_bytes()[..], &jumps, &it.value.to_ne_bytes()].concat()
        };
        self.0.iter().flat_map(encode).collect()
    }
}

/// Returns a path from which child processes of this process can read the filter, or `None` if there
/// is none for this machine.
pub(super) fn path() -> Option<PathBuf> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let program = FilterProgram::new(&CALL_NUMBERS?);
        write_to_memory(&program.to_bytes()).ok()
    });
    let descriptor = file.as_ref()?.as_raw_fd();
    Some(PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id())))
}

/// Writes a file in memory that nobody can change.
#[cfg(target_os = "linux")]
fn write_to_memory(bytes: &[u8]) -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("tamma-syscall-filter", flags)?);
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Writes a file in memory. This system has none that children could open.
#[cfg(not(target_os = "linux"))]
fn write_to_memory(_: &[u8]) -> std::io::Result<File> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: CallNumbers = CallNumbers {
        architecture: 7,
        has_x32: true,
        clone: 56,
        ioctl: 16,
        socket: 41,
        denied: &[101, 165],
    };

    /// Runs a program on a call, as the kernel does.
    fn action(program: &FilterProgram, architecture: u32, number: u32, arguments: [u32; 2]) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let Instruction { code, if_true, if_false, value } = program.0[at];
            at += 1;
            let holds = match code {
                LOAD => {
                    word = match value {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => arguments[0],
                        SECOND_ARGUMENT => arguments[1],
                        other => panic!("offset {other}"),
                    };
                    continue;
                }
                RETURN => return value,
                IF_EQUAL => word == value,
                IF_AT_LEAST => word >= value,
                IF_ANY_BIT => word & value != 0,
                other => panic!("instruction {other}"),
            };
            at += usize::from(if holds { if_true } else { if_false });
        }
    }

    #[test]
    fn filter_denies_listed_calls_and_kills_only_other_architectures() {
        let program = FilterProgram::new(&NUMBERS);
        let call = |number, arguments| action(&program, 7, number, arguments);
        assert_eq!(action(&program, 8, 0, [0, 0]), KILL);
        for number in [0, 1, 57, 59, 61, 257, 434, 436] {
            assert_eq!(call(number, [u32::MAX, u32::MAX]), ALLOW, "{number}");
        }
        for number in NUMBERS.denied.iter().chain(&NEW_MOUNT_CALLS) {
            assert_eq!(call(*number, [0, 0]), NOT_PERMITTED, "{number}");
        }
        for number in UNFILTERABLE.into_iter().chain([X32_CALLS, X32_CALLS + 101]) {
            assert_eq!(call(number, [0, 0]), NOT_IMPLEMENTED, "{number}");
        }
        // A thread, and a process in a user namespace.
        assert_eq!(call(NUMBERS.clone, [0x003d_0f00, 0]), ALLOW);
        assert_eq!(call(NUMBERS.clone, [0x1000_0011, 0]), NOT_PERMITTED);
        assert_eq!(call(NUMBERS.ioctl, [0, 0x5413]), ALLOW);
        assert_eq!(call(NUMBERS.ioctl, [0, 0x5412]), NOT_PERMITTED);
        // TCP over IPv4, a Unix socket, and the host of a virtual machine.
        assert_eq!(
            [1, 2, 40].map(|it| call(NUMBERS.socket, [it, 0])),
            [ALLOW, ALLOW, NOT_PERMITTED]
        );
    }

    #[test]
    fn program_has_the_layout_that_the_kernel_expects() {
        let mut program = FilterProgram::default();
        program.push(IF_EQUAL, (1, 2), 3);
        let expected = [&0x15_u16.to_ne_bytes()[..], &[1, 2], &3_u32.to_ne_bytes()[..]].concat();
        assert_eq!(program.to_bytes(), expected);
    }
}
