//! Server's token in the data folder, created at the first start.
//!
//! It survives restarts, so that browsers stay signed in. The command line reads it from the endpoint
//! file of the running server.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

const FILE_NAME: &str = "operator-token";

/// Returns the token of a data folder, and creates it if there is none. Only its owner can read it.
pub(crate) fn load_or_create(data: &Path) -> Result<String> {
    let path = data.join(FILE_NAME);
    let failed = || {
        let path = path.display();
        format!(
            "cannot use the server token in {path}; set another one with --token or TAMMA_TOKEN"
        )
    };
    if let Some(token) = read(&path).with_context(failed)? {
        return Ok(token);
    }
    std::fs::create_dir_all(data).with_context(failed)?;
    let unfinished = data.join(format!("{FILE_NAME}.{}", std::process::id()));
    let token = tamma_server::new_token();
    let mut options = std::fs::File::options();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&unfinished).and_then(|mut out| {
        out.write_all(token.as_bytes())?;
        out.sync_all()
    });
    written.with_context(failed)?;
    // Unlike a rename, a link never replaces the token of another process.
    let linked = std::fs::hard_link(&unfinished, &path);
    std::fs::remove_file(&unfinished).with_context(failed)?;
    match linked {
        Ok(()) => Ok(token),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(&path).with_context(failed)?.with_context(failed)
        }
        Err(error) => Err(error).with_context(failed),
    }
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!(
                "other users can read it\n  help: delete the file, so that the next start creates \
                 a new token"
            );
        }
    }
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_created_once_and_only_its_owner_can_read_it() {
        let data = tempfile::tempdir().expect("a folder");
        let data = data.path().join("new");
        let token = load_or_create(&data).expect("created");
        assert!(token.starts_with("tamma_") && token.len() > 64, "{token}");
        assert_eq!(load_or_create(&data).expect("read"), token);
        assert_eq!(std::fs::read_dir(&data).expect("files").count(), 1, "nothing is left over");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let path = data.join(FILE_NAME);
            let mode = std::fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let open = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(&path, open).expect("changed");
            let error = format!("{:#}", load_or_create(&data).expect_err("readable by others"));
            assert!(error.contains("other users can read it"), "{error}");
        }
    }
}
