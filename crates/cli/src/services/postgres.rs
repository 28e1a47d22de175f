//! Private PostgreSQL server in the data folder.
//!
//! `<data>/postgres` contains `cluster` (its files), `password`, `pg_hba.conf`, `postgres.log`, and the
//! socket that it listens on. Other users cannot enter the folder, and every connection needs the
//! password. A socket path is limited to about 100 bytes; if the data folder's is longer, the server
//! listens on a free port of 127.0.0.1 instead.
//!
//! PostgreSQL refuses to run as root. For root, it runs as `postgres`, or as `nobody` if that user does
//! not exist. That user owns this folder only.
//!
//! If the package of Tamma brings a newer major version than the data has, the data is upgraded first.

mod upgrade;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Command;

use super::process::{self, ServiceProcess, ServiceSpec, ServiceUser};
use super::programs;
use super::{DataFolderLock, Error, ProgramSearch, ProgramVersion, ServiceExit};
use crate::progress::Progress;

/// Display name.
const NAME: &str = "PostgreSQL";

/// Name of the database user and of the database.
const TAMMA: &str = "tamma";

/// Name prefix of incomplete cluster folders.
const PARTIAL: &str = "cluster.partial-";

/// Port in the name of the socket.
const SOCKET_PORT: u16 = 5432;

/// Maximum length of a socket path, in bytes, on all supported systems.
const MAX_SOCKET_PATH: usize = 103;

/// Time limit for becoming ready, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Stop signals with their time limits: fast shutdown, then immediate shutdown.
const STOP_SIGNALS: [(Signal, Duration); 2] =
    [(Signal::INT, Duration::from_secs(30)), (Signal::QUIT, Duration::from_secs(5))];

/// Time limit for backends to exit after their postmaster is gone.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Rules for connections. They replace those of the cluster, because older clusters trusted their
/// socket.
const CONNECTION_RULES: &str = "\
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
";

/// Number of ports to try if another process takes the chosen one.
const MAX_PORT_ATTEMPTS: usize = 3;

/// Running private PostgreSQL server.
#[derive(Debug)]
pub(crate) struct PostgresService {
    cluster: PostgresCluster,
    address: PostgresAddress,
    process: ServiceProcess,
}

/// Files, programs and user of the server.
#[derive(Debug, Clone)]
struct PostgresCluster {
    /// `<data>/postgres`.
    folder: PathBuf,
    /// Installed programs.
    installation: programs::PostgresInstallation,
    /// User that it runs as; `None` for the current one.
    user: Option<ServiceUser>,
}

/// Address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PostgresAddress {
    /// Unix socket in this folder.
    Socket { folder: PathBuf, password: String },
    /// Port of 127.0.0.1.
    Port { port: u16, password: String },
}

impl PostgresService {
    /// Starts the server. Creates its files and the database if needed.
    pub(crate) async fn start(
        lock: &DataFolderLock,
        search: &ProgramSearch,
        progress: Progress,
    ) -> Result<Self, Error> {
        let folder = lock.folder().join("postgres");
        upgrade::undo_interrupted(&folder)?;
        let data_version = cluster_version(&folder.join("cluster"))?;
        let choice = search.choose_postgres(lock.folder(), data_version).await?;
        let version = choice.programs.version();
        let step = progress.start(match data_version {
            Some(_) => "starting PostgreSQL",
            None => "copying and checking the programs of PostgreSQL (first run)",
        });
        let installation = choice.programs.prepare(lock.folder()).await?;
        let user = prepare_folder(lock.folder(), &folder)?;
        let cluster = PostgresCluster { folder, installation, user };
        if let Some(old) = choice.upgrade_from {
            let from = old.version().major;
            step.update(&format!("upgrading PostgreSQL {from} to {}", version.major));
            cluster.upgrade_from(old.prepare(lock.folder()).await?).await?;
        }
        if data_version.is_none() {
            step.update("creating the database (first run)");
            cluster.initialise().await?;
            step.update("starting PostgreSQL");
        }
        let (address, process) = cluster.start_on_free_address().await?;
        let postgres = Self { cluster, address, process };
        postgres.create_database().await?;
        step.finish(&format!("{NAME} {} ready", version.major));
        Ok(postgres)
    }

    /// Returns the version that would start, and its user if not the current one. Changes nothing.
    pub(crate) async fn planned_start(
        data: &Path,
        search: &ProgramSearch,
    ) -> Result<(ProgramVersion, Option<String>), Error> {
        let data_version = cluster_version(&data.join("postgres/cluster"))?;
        let version = search.choose_postgres(data, data_version).await?.programs.version();
        Ok((version, service_user(data)?.map(|user| user.name)))
    }

    /// URL of the database, for `tamma_store`.
    pub(crate) fn url(&self) -> String {
        self.address.url(TAMMA)
    }

    /// Version of the server.
    pub(crate) fn version(&self) -> ProgramVersion {
        self.cluster.installation.version
    }

    /// Waits for an unexpected exit.
    pub(crate) async fn wait_for_exit(&mut self) -> ServiceExit {
        self.process.wait_for_exit().await
    }

    /// Restarts the server at the same address. A running one is stopped first.
    pub(crate) async fn restart(&mut self, progress: Progress) -> Result<(), Error> {
        let step = progress.start("restarting PostgreSQL");
        self.process.stop().await?;
        self.process = self.cluster.start_process(&self.address).await?;
        self.create_database().await?;
        step.finish(&format!("{NAME} {} ready", self.version().major));
        Ok(())
    }

    /// Stops the server gracefully. Its data is kept.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
    }

    /// Process ID.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    async fn create_database(&self) -> Result<(), Error> {
        let server = self.address.url("postgres");
        tamma_store::create_database(&server, TAMMA, None).await.map_err(Error::Database)?;
        Ok(())
    }
}

impl PostgresAddress {
    /// Chooses a socket in the folder, or a port if the path is too long for a socket.
    fn choose(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("password");
        let password = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let password = password.trim().to_owned();
        let socket = folder.join(format!(".s.PGSQL.{SOCKET_PORT}"));
        // A path that is not UTF-8 cannot be part of a URL.
        if socket.as_os_str().len() <= MAX_SOCKET_PATH && folder.to_str().is_some() {
            return Ok(Self::Socket { folder: folder.to_owned(), password });
        }
        Ok(Self::Port { port: super::free_port()?, password })
    }

    /// URL of a database. It is complete, because libpq variables would fill any gaps.
    fn url(&self, database: &str) -> String {
        match self {
            Self::Socket { folder, password } => {
                let host = url_encode(&folder.to_string_lossy());
                format!(
                    "postgres:///{database}?host={host}&port={SOCKET_PORT}&user={TAMMA}\
                     &password={password}&sslmode=disable"
                )
            }
            Self::Port { port, password } => {
                format!("postgres://{TAMMA}:{password}@127.0.0.1:{port}/{database}?sslmode=disable")
            }
        }
    }
}

impl PostgresCluster {
    fn data_path(&self) -> PathBuf {
        self.folder.join("cluster")
    }

    fn rules_path(&self) -> PathBuf {
        self.folder.join("pg_hba.conf")
    }

    /// Creates the server's files under a temporary name and renames them, so that an incomplete
    /// cluster is never used.
    async fn initialise(&self) -> Result<(), Error> {
        let partial = self.partial_path().await?;
        let password = self.folder.join("password");
        self.write_password(&password).map_err(Error::io("write", &password))?;
        self.run_initdb(&partial).await?;
        let cluster = self.data_path();
        fs::rename(&partial, &cluster).map_err(Error::io("create", &cluster))?;
        self.sync_folder()
    }

    /// Removes incomplete clusters of killed processes, and returns the path for a new one.
    async fn partial_path(&self) -> Result<PathBuf, Error> {
        let failed = Error::io("clean up", &self.folder);
        let entries: Vec<_> = fs::read_dir(&self.folder).map_err(failed)?.flatten().collect();
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
                // `pg_upgrade` starts servers that survive it.
                for pid in cluster_pids(&entry.path()) {
                    process::terminate(NAME, pid, &[]).await?;
                }
                // Best effort. If our own name remains, `initdb` reports it.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        // A unique name, because the `initdb` of a killed process may still be writing.
        Ok(self.folder.join(format!("{PARTIAL}{}", std::process::id())))
    }

    /// Creates the files of an empty cluster, with the password of this one.
    async fn run_initdb(&self, partial: &Path) -> Result<(), Error> {
        let initdb = self.installation.folder.join("initdb");
        let mut command = self.command(&initdb);
        command.arg("-D").arg(partial).arg("--pwfile").arg(self.folder.join("password"));
        command.args(["-U", TAMMA, "-E", "UTF8", "--no-locale", "--data-checksums"]);
        command.args([
            "--auth-local=scram-sha-256",
            "--auth-host=scram-sha-256",
            "--no-instructions",
        ]);
        let output = command.output().await;
        let output = output.map_err(Error::io("start", &initdb))?;
        if !output.status.success() {
            let stderr = process::last_lines(&String::from_utf8_lossy(&output.stderr));
            return Err(Error::Initdb { stderr });
        }
        Ok(())
    }

    /// Returns a command that runs as the server's user, with a minimal environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(service_environment()).current_dir("/").stdin(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Makes renames in the folder durable, before the server writes to it.
    fn sync_folder(&self) -> Result<(), Error> {
        let synced = fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::io("write", &self.folder))
    }

    /// Generates a password and stores it, readable only by the server's user.
    fn write_password(&self, path: &Path) -> io::Result<()> {
        let mut random = [0; 24];
        fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let mut password = String::new();
        for byte in random {
            // Writing to a `String` cannot fail.
            let _ = write!(password, "{byte:02x}");
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        writeln!(file, "{password}")?;
        chown_to(path, self.user.as_ref())?;
        file.sync_all()
    }

    /// Starts the server on the socket or a free port, and returns its address.
    async fn start_on_free_address(&self) -> Result<(PostgresAddress, ServiceProcess), Error> {
        let mut attempt = 1;
        loop {
            let address = PostgresAddress::choose(&self.folder)?;
            match (self.start_process(&address).await, &address) {
                (Ok(process), _) => return Ok((address, process)),
                // Another process took the port in the meantime.
                (Err(Error::Exited(died)), PostgresAddress::Port { .. })
                    if attempt < MAX_PORT_ATTEMPTS
                        && died.output.contains("Address already in use") => {}
                (Err(error), _) => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Starts the server and waits until it is ready.
    async fn start_process(&self, address: &PostgresAddress) -> Result<ServiceProcess, Error> {
        // Orphans are found by the cluster's own files here, and by the record in `start`.
        self.stop_orphans().await?;
        let rules = self.rules_path();
        fs::write(&rules, CONNECTION_RULES)
            .and_then(|()| chown_to(&rules, self.user.as_ref()))
            .map_err(Error::io("write", &rules))?;
        let mut process = ServiceProcess::start(self.service_spec(address)).await?;
        let status = self.data_path().join("postmaster.pid");
        process.wait_until_ready(START_TIMEOUT, async |pid| is_ready(&status, pid)).await?;
        Ok(process)
    }

    fn service_spec(&self, address: &PostgresAddress) -> ServiceSpec {
        let (port, sockets, listen) = match address {
            PostgresAddress::Socket { folder, .. } => {
                (SOCKET_PORT, folder.as_os_str().to_owned(), "")
            }
            PostgresAddress::Port { port, .. } => (*port, OsString::new(), "127.0.0.1"),
        };
        let mut args: Vec<OsString> = vec!["-D".into(), self.data_path().into()];
        let mut set = |name: &str, value: OsString| {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(value);
            args.extend(["-c".into(), setting]);
        };
        set("port", port.to_string().into());
        set("hba_file", self.rules_path().into());
        // The setting is a list, so a path with a comma or a space must be quoted.
        if sockets.is_empty() {
            set("unix_socket_directories", sockets);
        } else {
            let quoted = sockets.to_string_lossy().replace('"', "\"\"");
            set("unix_socket_directories", format!("\"{quoted}\"").into());
        }
        set("listen_addresses", listen.into());
        for (name, value) in [
            // Durability, even if the cluster's own configuration disables it.
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("full_page_writes", "on"),
            // Enough for several connection pools and manual access.
            ("max_connections", "200"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
            // The last log lines appear in error messages.
            ("lc_messages", "C"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
        ] {
            set(name, value.into());
        }
        ServiceSpec {
            service: NAME,
            program: self.installation.folder.join("postgres"),
            args,
            marker: self.data_path(),
            env: service_environment(),
            user: self.user.clone(),
            log: self.folder.join("postgres.log"),
            record: self.folder.join("process.json"),
            stop_signals: &STOP_SIGNALS,
            orphan_signal: "INT",
        }
    }

    /// Ensures that no other server uses these files.
    ///
    /// Stops a running postmaster, since this process holds the lock on the data folder. Backends
    /// without a postmaster normally exit by themselves; otherwise they are killed, and the server
    /// runs crash recovery when it starts.
    async fn stop_orphans(&self) -> Result<(), Error> {
        let cluster = self.data_path();
        let file = cluster.join("postmaster.pid");
        let postmaster = leading_number(&file);
        if let Some(pid) = postmaster {
            if is_serving(pid, &cluster).await {
                process::terminate(NAME, pid, &STOP_SIGNALS).await?;
            } else if has_proc() && process::start_time(pid).await.is_some() {
                // Another process has this ID now, for example after a reboot. PostgreSQL would
                // refuse to start because of the file.
                match fs::remove_file(&file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &file)(error));
                    }
                    _ => {}
                }
            }
        }
        if !process::poll_until(ORPHAN_TIMEOUT, async || cluster_pids(&cluster).is_empty()).await {
            for pid in cluster_pids(&cluster) {
                process::terminate(NAME, pid, &[]).await?;
            }
        }
        Ok(())
    }
}

/// Returns `true` if a process is a PostgreSQL server on these files.
async fn is_serving(pid: u32, cluster: &Path) -> bool {
    if has_proc() {
        return cluster_pids(cluster).contains(&pid);
    }
    process::command_line(pid)
        .await
        .is_some_and(|line| line.contains("postgres") && line.contains(&*cluster.to_string_lossy()))
}

/// Returns the IDs of all PostgreSQL processes whose working folder is the cluster. Linux only.
fn cluster_pids(cluster: &Path) -> Vec<u32> {
    let Ok(cluster) = cluster.canonicalize() else { return Vec::new() };
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == cluster)
                && fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| matches!(name.trim(), "postgres" | "postmaster"))
        })
        .collect()
}

/// Returns `true` if processes can be found by their working folder.
fn has_proc() -> bool {
    Path::new("/proc/self/cwd").exists()
}

/// Parses the first line of a file as a number.
fn leading_number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}

/// Returns `true` if `postmaster.pid` names this process and reports that it accepts connections.
fn is_ready(file: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

/// Returns the PostgreSQL major version of the files; `None` if there are none.
fn cluster_version(cluster: &Path) -> Result<Option<u32>, Error> {
    let path = cluster.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().split('.').next().unwrap_or_default().parse() {
            Ok(version) => Ok(Some(version)),
            Err(error) => Err(Error::io("read", &path)(io::Error::other(error))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && !cluster.exists() => Ok(None),
        Err(error) => Err(Error::io("read", &path)(error)),
    }
}

/// Returns the minimal environment for the server, which can run as another user.
fn service_environment() -> Vec<(OsString, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    vec![("PATH".into(), path), ("LC_ALL".into(), "C".into())]
}

/// Creates `<data>/postgres`, private to the server's user. Returns that user; `None` for the current one.
fn prepare_folder(data: &Path, folder: &Path) -> Result<Option<ServiceUser>, Error> {
    super::create_folder(folder, 0o700)?;
    let Some(user) = service_user(data)? else { return Ok(None) };
    chown_to(folder, Some(&user)).map_err(Error::io("change the owner of", folder))?;
    // Other users need to pass through the data folder. Its parents are not changed.
    let failed = || Error::io("set the permissions of", data);
    let mode = fs::metadata(data).map_err(failed())?.mode();
    if mode & 0o001 == 0 {
        let permissions = Permissions::from_mode((mode & 0o7777) | 0o111);
        fs::set_permissions(data, permissions).map_err(failed())?;
    }
    Ok(Some(user))
}

/// Returns the user that the server runs as for root. It must be able to reach the data folder.
fn service_user(data: &Path) -> Result<Option<ServiceUser>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = ["postgres", "nobody"].iter().find_map(|name| find_user(&users, name));
    let user = user.ok_or(Error::NoServiceUser)?;
    let mut above = data.ancestors().skip(1).filter(|folder| folder.exists());
    match above.find(|folder| !can_enter(&user, folder)) {
        Some(closed) => Err(Error::Unreachable { user: user.name, folder: closed.to_owned() }),
        None => Ok(Some(user)),
    }
}

/// Returns `true` if a user can pass through a folder.
fn can_enter(user: &ServiceUser, folder: &Path) -> bool {
    let Ok(folder) = fs::metadata(folder) else { return false };
    let bit = match (folder.uid() == user.uid, folder.gid() == user.gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    folder.mode() & bit != 0
}

/// Changes the owner of a path, if a user is given.
fn chown_to(path: &Path, user: Option<&ServiceUser>) -> io::Result<()> {
    match user {
        Some(user) => std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

/// Finds a user in the content of `/etc/passwd`.
fn find_user(users: &str, name: &str) -> Option<ServiceUser> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_match = fields.next()? == name;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_match.then(|| ServiceUser { name: name.to_owned(), uid, gid })
    })
}

/// Percent-encodes a path for the query of a URL.
fn url_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_complete_and_escape_unusual_paths() {
        let (folder, password) = (PathBuf::from("/home/a b/ü&?"), "abc".to_owned());
        let socket = PostgresAddress::Socket { folder, password };
        assert_eq!(
            socket.url("tamma"),
            "postgres:///tamma?host=/home/a%20b/%C3%BC%26%3F&port=5432&user=tamma&password=abc\
             &sslmode=disable"
        );
        let port = PostgresAddress::Port { port: 4321, password: "abc".to_owned() };
        assert_eq!(port.url("x"), "postgres://tamma:abc@127.0.0.1:4321/x?sslmode=disable");
    }

    #[test]
    fn users_are_found_by_their_full_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:101:104::/:\n";
        let user = ServiceUser { name: "postgres".to_owned(), uid: 101, gid: 104 };
        assert_eq!(find_user(users, "postgres"), Some(user));
        assert_eq!(find_user(users, "nobody"), None);
    }
}
