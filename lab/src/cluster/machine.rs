//! What the machine allows: a small disk, another clock, and links that can be cut.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tamma_testkit::Cluster;
use tokio::process::Command;

use super::strike::{Strike, StrikeNeed};

/// Size of the small disk.
const DISK_SIZE: &str = "512m";

/// Folders in which distributions keep libfaketime.
const CLOCK_FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
];

/// Small file system, which is unmounted when it is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a small file system on a new folder. Only root can.
    pub(crate) async fn mount(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let options = format!("size={DISK_SIZE},mode=755");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder)
            .stdin(Stdio::null())
            .output()
            .await
            .context("cannot start `mount`")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot mount a small disk: {}", stderr.trim());
        Ok(Self { folder: folder.to_owned() })
    }

    /// Writes a file until nothing fits any more.
    pub(crate) fn fill(&self) -> Result<()> {
        let (mut file, block) = (fs::File::create(self.filler())?, vec![0_u8; 1 << 16]);
        while file.write_all(&block).is_ok() {}
        Ok(())
    }

    /// Removes that file.
    pub(crate) fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

impl Drop for SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "unmounted synchronously, when it is dropped")]
    fn drop(&mut self) {
        let mut command = std::process::Command::new("umount");
        drop(command.arg("--lazy").arg(&self.folder).stderr(Stdio::null()).status());
    }
}

/// Abilities of the machine.
#[derive(Debug)]
pub(crate) struct MachineAbilities {
    /// Disk of the last worker.
    pub(crate) disk: Result<SmallDisk, String>,
    /// libfaketime.
    pub(crate) clock: Result<PathBuf, String>,
}

impl MachineAbilities {
    /// Mounts the small disk on the data folder of a worker, and looks for libfaketime.
    pub(crate) async fn prepare(disk: &Path) -> Self {
        let disk = SmallDisk::mount(disk).await.map_err(|error| format!("{error:#}"));
        let mut libraries = CLOCK_FOLDERS.iter().map(|it| Path::new(it).join("libfaketimeMT.so.1"));
        let clock = libraries.find(|it| it.is_file());
        let clock = clock.ok_or_else(|| {
            "a process can only be given another time with libfaketime, which is not installed"
                .to_owned()
        });
        Self { disk, clock }
    }

    /// Returns why a strike is not possible; `None` if it is.
    pub(crate) fn why_not(&self, strike: Strike, cluster: &Cluster) -> Result<Option<String>> {
        let network = cluster.network()?;
        Ok(match strike.need() {
            None => None,
            Some(StrikeNeed::Cuts) => network.why_no_cuts().map(str::to_owned),
            Some(StrikeNeed::Delay) => network.why_no_delay().map(str::to_owned),
            Some(StrikeNeed::Clock) => self.clock.as_ref().err().cloned(),
            Some(StrikeNeed::SmallDisk) => self.disk.as_ref().err().cloned(),
        })
    }
}
