//! Diagnosis of a `bwrap` that does not work: names the settings of the machine or the container that
//! prevent it.

use std::fs;

/// Settings that allow user namespaces to every program of the machine.
const USER_NAMESPACES: &str = "the kernel allows no user namespaces: raise \
                               `user.max_user_namespaces`, and set \
                               `kernel.unprivileged_userns_clone=1` where it exists";

/// Setting that allows namespaces to the processes of a container.
const SECCOMP: &str = "a seccomp filter denies namespaces: use the profile \
                       `packaging/container/seccomp.json` (Kubernetes: `seccompProfile`; Docker \
                       and Podman: `--security-opt seccomp=…`), or relax `SystemCallFilter` and \
                       `RestrictNamespaces` of the systemd unit";

/// Setting that shows the whole `/proc` to a container.
const PROC: &str = "parts of `/proc` are masked, so that no other `/proc` can be mounted: unmask \
                    them (Kubernetes: `procMount: Unmasked` with `hostUsers: false`; Docker: \
                    `--security-opt systempaths=unconfined`; Podman: `--security-opt unmask=ALL`; \
                    systemd: `ProtectKernelTunables=no`)";

/// Setting of `AppArmor` that lets a container mount file systems in its own namespaces.
const APPARMOR: &str = "AppArmor confines this process: use a profile that allows `userns` and \
                        `mount` (Kubernetes: `appArmorProfile`; Docker: `--security-opt \
                        apparmor=…`), or set `kernel.apparmor_restrict_unprivileged_userns=0`";

/// Obstacle that bubblewrap's own error does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Kernel allows no user namespaces.
    NoUserNamespaces,
    /// `AppArmor` confines this process, or denies user namespaces to unconfined ones.
    AppArmor,
    /// Seccomp filter applies to this process.
    SeccompFilter,
    /// Other mounts cover parts of `/proc`.
    MaskedProc,
}

/// Returns the obstacles of this process. What cannot be read counts as none.
fn find_obstacles() -> Vec<Obstacle> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is = |path: &str, value: &str| read(path).trim() == value;
    let no_user_namespaces = is("/proc/sys/user/max_user_namespaces", "0")
        || is("/proc/sys/kernel/unprivileged_userns_clone", "0");
    let confined = read("/proc/self/attr/current").trim_end().ends_with("(enforce)")
        || is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
    let obstacles = [
        (Obstacle::NoUserNamespaces, no_user_namespaces),
        (Obstacle::AppArmor, confined),
        (Obstacle::SeccompFilter, has_filter(&read("/proc/self/status"))),
        (Obstacle::MaskedProc, is_proc_masked(&read("/proc/self/mountinfo"))),
    ];
    obstacles.into_iter().filter_map(|(obstacle, applies)| applies.then_some(obstacle)).collect()
}

/// Returns the settings that explain an error of `bwrap`, in the order to change them.
fn missing_settings(error: &str, obstacles: &[Obstacle]) -> Vec<&'static str> {
    // `No permissions to create new namespace`, and with AppArmor `setting up uid map`.
    let no_namespace = error.contains("namespace") || error.contains("uid map");
    let no_mount = error.contains("mount") || error.contains("make / slave");
    let setting = |obstacle: &Obstacle| match obstacle {
        Obstacle::NoUserNamespaces => no_namespace.then_some(USER_NAMESPACES),
        Obstacle::AppArmor => (no_namespace || no_mount).then_some(APPARMOR),
        // Our own profile is a filter, too, and does not prevent mounts.
        Obstacle::SeccompFilter => no_namespace.then_some(SECCOMP),
        Obstacle::MaskedProc => (no_namespace || no_mount).then_some(PROC),
    };
    obstacles.iter().filter_map(setting).collect()
}

/// Adds the settings that explain an error of `bwrap` to it.
pub(super) fn explain(error: &str) -> String {
    let mut parts = vec![error];
    parts.extend(missing_settings(error, &find_obstacles()));
    parts.join("; ")
}

/// Returns `true` if `/proc/<pid>/status` shows a seccomp filter.
fn has_filter(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Returns `true` if `/proc/<pid>/mountinfo` has mounts below `/proc`, as container runtimes make them.
fn is_proc_masked(mounts: &str) -> bool {
    // Machines mount this one on demand; it hides nothing.
    let is_mask = |point: &str| point.starts_with("/proc/") && point != "/proc/sys/fs/binfmt_misc";
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(is_mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_NAMESPACE: &str = "bwrap: No permissions to create new namespace, likely because the \
                                kernel does not allow non-privileged user namespaces.";
    const NO_PROC: &str = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted";

    #[test]
    fn a_container_without_a_setting_names_this_setting() {
        use Obstacle::{AppArmor, MaskedProc, NoUserNamespaces, SeccompFilter};
        let masked = [SeccompFilter, MaskedProc];
        let cases: [(&[Obstacle], &str, &[&str]); 7] = [
            (&[], NO_NAMESPACE, &[]),
            (&[SeccompFilter], NO_NAMESPACE, &[SECCOMP]),
            (&masked, NO_NAMESPACE, &[SECCOMP, PROC]),
            (&masked, NO_PROC, &[PROC]),
            (&[NoUserNamespaces], NO_NAMESPACE, &[USER_NAMESPACES]),
            (&[AppArmor], NO_PROC, &[APPARMOR]),
            (&masked, "bwrap: Unknown option --disable-userns", &[]),
        ];
        for (obstacles, error, expected) in cases {
            assert_eq!(missing_settings(error, obstacles), expected, "{obstacles:?}: {error}");
        }
    }

    #[test]
    fn obstacles_are_read_from_the_files_of_the_kernel() {
        assert!(has_filter("Name:\ttamma\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_filter("Name:\ttamma\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        let machine = "24 1 0:22 / /proc rw,nosuid - proc proc rw\n\
                       31 24 0:27 / /proc/sys/fs/binfmt_misc rw - binfmt_misc binfmt_misc rw\n";
        assert!(!is_proc_masked(machine));
        let container = "610 580 0:60 / /proc rw,nosuid - proc proc rw\n\
                         620 610 0:60 /sys /proc/sys ro,nosuid - proc proc rw\n";
        assert!(is_proc_masked(container));
    }
}
