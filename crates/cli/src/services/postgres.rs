//! A PostgreSQL of our own, in the data folder.
//!
//! In `<data>/postgres`: `cluster` (its files), `password`, `postgres.log`, and the socket that it
//! listens on. The folder is closed to everybody else, so whoever reaches the socket is trusted. A
//! socket's path may have about a hundred bytes; where the data folder's is too long, the server
//! listens on a free port of 127.0.0.1 and asks for the password.
//!
//! PostgreSQL refuses to run as root, so for root it runs as `postgres` or, where there is no such
//! user, `nobody`, who owns that folder and nothing else here.

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

use super::process::{self, Launch, Process, User};
use super::programs;
use super::{Died, Error, Lock, Search, Version};
use crate::progress::Progress;

/// What people call it.
const NAME: &str = "PostgreSQL";

/// The user and the database.
const TAMMA: &str = "tamma";

/// How the name of unfinished files begins.
const PARTIAL: &str = "cluster.partial-";

/// The port that names the socket.
const SOCKET_PORT: u16 = 5432;

/// How long the path of a socket may be, on the system that allows the least.
const SOCKET_PATH: usize = 103;

/// How long it may take to become ready. After a crash it reads its log first.
const START: Duration = Duration::from_mins(2);

/// How it is asked to end: at once but in order, and then without order.
const FAREWELL: [(Signal, Duration); 2] =
    [(Signal::INT, Duration::from_secs(30)), (Signal::QUIT, Duration::from_secs(5))];

/// How long processes without their postmaster may take to notice that.
const ORPHANS: Duration = Duration::from_secs(10);

/// How often another port is tried, when somebody else was faster.
const PORTS: usize = 3;

/// The private PostgreSQL, running.
#[derive(Debug)]
pub(crate) struct Postgres {
    place: Place,
    address: Address,
    process: Process,
}

/// Where it is and who it is.
#[derive(Debug, Clone)]
struct Place {
    /// `<data>/postgres`.
    folder: PathBuf,
    /// Which programs.
    programs: programs::Postgres,
    /// Whom it runs as, if not as us.
    user: Option<User>,
}

/// Where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    /// On a socket in a folder.
    Socket(PathBuf),
    /// On a port of 127.0.0.1, for whoever knows the password.
    Port { port: u16, password: String },
}

impl Postgres {
    /// Starts it, and makes its files and its database where they are not there yet.
    pub(crate) async fn start(
        lock: &Lock,
        search: &Search,
        progress: Progress,
    ) -> Result<Self, Error> {
        let folder = lock.data().join("postgres");
        let made = version_of(&folder.join("cluster"))?;
        let programs = search.postgres(made).await?;
        let version = programs.version;
        let step = progress.begin(match made {
            Some(_) => "starting PostgreSQL",
            None => "starting PostgreSQL (first time: making its data folder)",
        });
        let user = prepare(lock.data(), &folder)?;
        let place = Place { folder, programs, user };
        if made.is_none() {
            place.initialise().await?;
        }
        let (address, process) = place.first_run().await?;
        let postgres = Self { place, address, process };
        postgres.make_database().await?;
        step.done(&format!("{NAME} {} ready", version.major));
        Ok(postgres)
    }

    /// What would be started: which version, and as whom, if not as us. Changes nothing.
    pub(crate) async fn outlook(
        data: &Path,
        search: &Search,
    ) -> Result<(Version, Option<String>), Error> {
        let made = version_of(&data.join("postgres/cluster"))?;
        let version = search.postgres(made).await?.version;
        Ok((version, substitute(data)?.map(|user| user.name)))
    }

    /// The URL of the database, for `tamma_store`.
    pub(crate) fn url(&self) -> String {
        self.address.url(TAMMA)
    }

    /// Which version it is.
    pub(crate) fn version(&self) -> Version {
        self.place.programs.version
    }

    /// Waits until it ends by itself, which it should not.
    pub(crate) async fn died(&mut self) -> Died {
        self.process.died().await
    }

    /// Starts it again at the same address. If it still runs, it is stopped first.
    pub(crate) async fn restart(&mut self, progress: Progress) -> Result<(), Error> {
        let step = progress.begin("starting PostgreSQL again");
        self.process.stop().await?;
        self.process = self.place.run(&self.address).await?;
        self.make_database().await?;
        step.done(&format!("{NAME} {} ready", self.version().major));
        Ok(())
    }

    /// Stops it in order. Its data stays.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
    }

    /// Its process.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    async fn make_database(&self) -> Result<(), Error> {
        let server = self.address.url("postgres");
        tamma_store::create_database(&server, TAMMA, None).await.map_err(Error::Database)?;
        Ok(())
    }
}

impl Address {
    /// A socket in the folder, or a port where the folder's path is too long for one.
    fn choose(folder: &Path) -> Result<Self, Error> {
        let socket = folder.join(format!(".s.PGSQL.{SOCKET_PORT}"));
        // A path that is not text cannot stand in a URL.
        if socket.as_os_str().len() <= SOCKET_PATH && folder.to_str().is_some() {
            return Ok(Self::Socket(folder.to_owned()));
        }
        let path = folder.join("password");
        let password = fs::read_to_string(&path).map_err(Error::system("read", &path))?;
        Ok(Self::Port { port: super::free_port()?, password: password.trim().to_owned() })
    }

    /// The URL of a database. It says everything, since the environment fills what it leaves out.
    fn url(&self, database: &str) -> String {
        match self {
            Self::Socket(folder) => {
                let host = encoded(&folder.to_string_lossy());
                format!(
                    "postgres:///{database}?host={host}&port={SOCKET_PORT}&user={TAMMA}&sslmode=disable"
                )
            }
            Self::Port { port, password } => {
                format!("postgres://{TAMMA}:{password}@127.0.0.1:{port}/{database}?sslmode=disable")
            }
        }
    }
}

impl Place {
    fn cluster(&self) -> PathBuf {
        self.folder.join("cluster")
    }

    /// Makes the server's files, beside their place and then in it, so that half of them is never
    /// taken for all.
    async fn initialise(&self) -> Result<(), Error> {
        // Under a name of our own: the `initdb` of a killed predecessor may still be writing.
        let partial = self.folder.join(format!("{PARTIAL}{}", std::process::id()));
        let failed = || Error::system("clean up", &self.folder);
        for entry in fs::read_dir(&self.folder).map_err(failed())?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
                // What stays is not in the way, unless it has our name; then `initdb` says so.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let password = self.folder.join("password");
        self.write_password(&password).map_err(Error::system("write", &password))?;
        let initdb = self.programs.folder.join("initdb");
        let mut command = Command::new(&initdb);
        command.arg("-D").arg(&partial).arg("--pwfile").arg(&password);
        command.args(["-U", TAMMA, "-E", "UTF8", "--no-locale", "--data-checksums"]);
        command.args(["--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions"]);
        command.env_clear().envs(environment()).current_dir("/").stdin(Stdio::null());
        command.process_group(0);
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let output = command.kill_on_drop(true).output().await;
        let output = output.map_err(Error::system("start", &initdb))?;
        if !output.status.success() {
            let said = process::end_of(&String::from_utf8_lossy(&output.stderr));
            return Err(Error::Initdb { said });
        }
        let cluster = self.cluster();
        fs::rename(&partial, &cluster).map_err(Error::system("make", &cluster))?;
        // The new name is on the disk before anything is written under it.
        let synced = fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::system("write", &self.folder))
    }

    /// Draws a password and keeps it where only the server's user and we can read it.
    fn write_password(&self, path: &Path) -> io::Result<()> {
        let mut random = [0; 24];
        fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let mut password = String::new();
        for byte in random {
            // Writing to a text does not fail.
            let _ = write!(password, "{byte:02x}");
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        writeln!(file, "{password}")?;
        own(path, self.user.as_ref())?;
        file.sync_all()
    }

    /// Starts it where it has never been asked for yet: at a port that is free.
    async fn first_run(&self) -> Result<(Address, Process), Error> {
        let mut attempt = 1;
        loop {
            let address = Address::choose(&self.folder)?;
            match (self.run(&address).await, &address) {
                (Ok(process), _) => return Ok((address, process)),
                // Somebody took the port between our looking and its listening.
                (Err(Error::Ended(died)), Address::Port { .. })
                    if attempt < PORTS && died.said.contains("Address already in use") => {}
                (Err(error), _) => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Starts it and waits until it is ready.
    async fn run(&self, address: &Address) -> Result<Process, Error> {
        // What a predecessor left is stopped by its record, and then by what the system shows.
        self.clear().await?;
        let mut process = Process::start(self.launch(address)).await?;
        let status = self.cluster().join("postmaster.pid");
        process.ready(START, async |pid| is_ready(&status, pid)).await?;
        Ok(process)
    }

    fn launch(&self, address: &Address) -> Launch {
        let (port, sockets, listen) = match address {
            Address::Socket(folder) => (SOCKET_PORT, folder.as_os_str().to_owned(), ""),
            Address::Port { port, .. } => (*port, OsString::new(), "127.0.0.1"),
        };
        let mut args: Vec<OsString> = vec!["-D".into(), self.cluster().into()];
        let mut set = |name: &str, value: OsString| {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(value);
            args.extend(["-c".into(), setting]);
        };
        set("port", port.to_string().into());
        // A list of folders, so one with a comma or a space in it is quoted.
        if sockets.is_empty() {
            set("unix_socket_directories", sockets);
        } else {
            let quoted = sockets.to_string_lossy().replace('"', "\"\"");
            set("unix_socket_directories", format!("\"{quoted}\"").into());
        }
        set("listen_addresses", listen.into());
        for (name, value) in [
            // What was said to be written is written, whatever somebody has set in its files.
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("full_page_writes", "on"),
            // Several pools of ours, and people who look.
            ("max_connections", "200"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
            // Read by us, at the end of its log.
            ("lc_messages", "C"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
        ] {
            set(name, value.into());
        }
        Launch {
            service: NAME,
            program: self.programs.folder.join("postgres"),
            args,
            mark: self.cluster(),
            env: environment(),
            user: self.user.clone(),
            log: self.folder.join("postgres.log"),
            record: self.folder.join("process.json"),
            farewell: &FAREWELL,
            orphaned: "INT",
        }
    }

    /// Makes sure that no server runs on these files: never two at once.
    ///
    /// A running postmaster is stopped, whoever started it, for we hold the data folder. What its
    /// death left behind notices that by itself; if it does not, it is killed, and the server
    /// mends its files when it starts, as after any crash.
    async fn clear(&self) -> Result<(), Error> {
        let cluster = self.cluster();
        let file = cluster.join("postmaster.pid");
        let postmaster = first_line(&file);
        if let Some(pid) = postmaster {
            if serves(pid, &cluster).await {
                process::end(NAME, pid, &FAREWELL).await?;
            } else if is_linux() && process::started(pid).await.is_some() {
                // Its number is somebody else's now, as after a start of the machine. PostgreSQL
                // does not look any closer and would refuse.
                match fs::remove_file(&file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(Error::system("remove", &file)(error));
                    }
                    _ => {}
                }
            }
        }
        if !process::until(ORPHANS, async || living(&cluster).is_empty()).await {
            for pid in living(&cluster) {
                process::end(NAME, pid, &[]).await?;
            }
        }
        Ok(())
    }
}

/// Whether a process is a PostgreSQL on these files.
async fn serves(pid: u32, cluster: &Path) -> bool {
    if is_linux() {
        return living(cluster).contains(&pid);
    }
    process::command_line(pid)
        .await
        .is_some_and(|line| line.contains("postgres") && line.contains(&*cluster.to_string_lossy()))
}

/// Every process of a PostgreSQL on these files: they work in that folder. Only Linux tells.
fn living(cluster: &Path) -> Vec<u32> {
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

/// Whether processes can be looked up by their folder.
fn is_linux() -> bool {
    Path::new("/proc/self/cwd").exists()
}

/// The number at the beginning of a file.
fn first_line(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}

/// Whether `postmaster.pid` is of this process and says that it takes connections.
fn is_ready(file: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

/// The version of PostgreSQL that made the files, if there are any.
fn version_of(cluster: &Path) -> Result<Option<u32>, Error> {
    let path = cluster.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().split('.').next().unwrap_or_default().parse() {
            Ok(version) => Ok(Some(version)),
            Err(error) => Err(Error::system("read", &path)(io::Error::other(error))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && !cluster.exists() => Ok(None),
        Err(error) => Err(Error::system("read", &path)(error)),
    }
}

/// What it needs of the environment, and nothing else: it may run as somebody else.
fn environment() -> Vec<(OsString, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    vec![("PATH".into(), path), ("LC_ALL".into(), "C".into())]
}

/// Makes `<data>/postgres`, closed to others. Returns whom the server must run as, if not as us.
fn prepare(data: &Path, folder: &Path) -> Result<Option<User>, Error> {
    super::folder(folder, 0o700)?;
    let Some(user) = substitute(data)? else { return Ok(None) };
    own(folder, Some(&user)).map_err(Error::system("hand over", folder))?;
    // The data folder is ours, so others are let through it. Nothing above it is ours to open.
    let failed = || Error::system("open", data);
    let mode = fs::metadata(data).map_err(failed())?.mode();
    if mode & 0o001 == 0 {
        let through = Permissions::from_mode((mode & 0o7777) | 0o111);
        fs::set_permissions(data, through).map_err(failed())?;
    }
    Ok(Some(user))
}

/// Whom the server runs as where we are root. They must get to the data folder.
fn substitute(data: &Path) -> Result<Option<User>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = ["postgres", "nobody"].iter().find_map(|name| find_user(&users, name));
    let user = user.ok_or(Error::OnlyRoot)?;
    let mut above = data.ancestors().skip(1).filter(|folder| folder.exists());
    match above.find(|folder| !enters(&user, folder)) {
        Some(closed) => Err(Error::Unreachable { user: user.name, folder: closed.to_owned() }),
        None => Ok(Some(user)),
    }
}

/// Whether a user may go through a folder.
fn enters(user: &User, folder: &Path) -> bool {
    let Ok(folder) = fs::metadata(folder) else { return false };
    let bit = match (folder.uid() == user.uid, folder.gid() == user.gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    folder.mode() & bit != 0
}

/// Gives a path to a user, if there is one.
fn own(path: &Path, user: Option<&User>) -> io::Result<()> {
    match user {
        Some(user) => std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

/// Finds a user in the text of `/etc/passwd`.
fn find_user(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        found.then(|| User { name: name.to_owned(), uid, gid })
    })
}

/// A path as it stands in the query of a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything_and_survives_odd_folders() {
        let socket = Address::Socket(PathBuf::from("/home/a b/ü&?"));
        assert_eq!(
            socket.url("tamma"),
            "postgres:///tamma?host=/home/a%20b/%C3%BC%26%3F&port=5432&user=tamma&sslmode=disable"
        );
        let port = Address::Port { port: 4321, password: "abc".to_owned() };
        assert_eq!(port.url("x"), "postgres://tamma:abc@127.0.0.1:4321/x?sslmode=disable");
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:101:104::/:\n";
        let user = User { name: "postgres".to_owned(), uid: 101, gid: 104 };
        assert_eq!(find_user(users, "postgres"), Some(user));
        assert_eq!(find_user(users, "nobody"), None);
    }
}
