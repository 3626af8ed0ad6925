//! Who may do what: users with passwords, and the commands, keys and channels that
//! each may use. Written and told as Redis writes and tells it.
//!
//! Users belong to a gateway process. Several gateways agree on them by being
//! given the same file, which ACL SAVE writes and ACL LOAD reads.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod access;
mod log;
mod selector;
mod user;

pub(crate) use access::Access;
pub(crate) use log::{Context, Log, Reason};
pub(crate) use selector::{Denied, Selector, commands_of};
pub(crate) use user::{User, is_user_name, merged};

/// The user that connections are until they say otherwise.
pub(crate) const DEFAULT: &[u8] = b"default";

type Users = BTreeMap<Vec<u8>, Arc<User>>;

/// All users of this process.
#[derive(Debug)]
pub(crate) struct Acl {
    users: RwLock<Users>,
    /// Counts changes, so that connections know when to look again. Release after
    /// a change, Acquire before a look.
    version: AtomicU64,
    file: Option<PathBuf>,
    log: Mutex<Log>,
}

impl Acl {
    /// The default user with a password, unless that is empty, and what `file` says.
    ///
    /// # Errors
    /// With what is wrong in the file.
    pub(crate) fn new(password: &str, file: Option<&Path>) -> Result<Self, String> {
        let default = Arc::new(User::all_powerful(password.as_bytes()));
        let acl = Self {
            users: RwLock::new(BTreeMap::from([(DEFAULT.to_vec(), default)])),
            version: AtomicU64::new(1),
            file: file.map(Path::to_owned),
            log: Mutex::default(),
        };
        if file.is_some() {
            acl.load()?;
        }
        Ok(acl)
    }

    fn read(&self) -> RwLockReadGuard<'_, Users> {
        self.users.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Users> {
        self.users.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts changes of users.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// The user that a new connection is.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.user(DEFAULT).expect("nobody can remove the default user")
    }

    /// All users, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// The user of these words, if they are right.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.user(name).filter(|user| user.is_enabled && user.accepts(password))
    }

    /// Changes a user, or makes one, by all of these rules or by none.
    pub(crate) fn change(&self, name: &[u8], rules: &[Vec<u8>]) -> Result<(), String> {
        let mut users = self.write();
        let mut user = users.get(name).map_or_else(|| User::new(name), |user| (**user).clone());
        for rule in rules {
            user.apply(rule).map_err(|why| {
                let rule = String::from_utf8_lossy(rule);
                format!("Error in ACL SETUSER modifier '{rule}': {why}")
            })?;
        }
        users.insert(name.to_vec(), Arc::new(user));
        drop(users);
        self.changed();
        Ok(())
    }

    /// What CONFIG SET requirepass does: the default user's only password, or none.
    pub(crate) fn set_default_password(&self, password: &str) {
        let mut users = self.write();
        let default = users.get_mut(DEFAULT).expect("nobody can remove the default user");
        Arc::make_mut(default).set_password(password.as_bytes());
        drop(users);
        self.changed();
    }

    /// Removes a user; false if there is none.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let removed = self.write().remove(name).is_some();
        self.changed();
        removed
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Takes all users from the file, or none of them and tells what is wrong.
    pub(crate) fn load(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Ok(()) };
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| {
            format!("cannot read the ACL file {shown}: {error}; check the path after --aclfile")
        })?;
        let mut users = parse(&text).map_err(|why| format!("{shown}:{why}"))?;
        // A file that says nothing of it leaves the default user as it is: nobody
        // means to open the door by leaving out a line.
        users.entry(DEFAULT.to_vec()).or_insert_with(|| self.default_user());
        *self.write() = users;
        self.changed();
        Ok(())
    }

    /// Writes all users to the file: whoever reads it sees the old ones or these.
    pub(crate) fn save(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Ok(()) };
        let mut text = Vec::new();
        for user in self.all() {
            user.describe(&mut text);
            text.push(b'\n');
        }
        let beside = path.with_extension("new");
        let write = || {
            let mut file = std::fs::File::create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|error| format!("cannot write the ACL file {}: {error}", path.display()))
    }
}

/// Users by the lines of a file; an error begins with the number of its line.
fn parse(text: &[u8]) -> Result<Users, String> {
    let mut users = Users::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = number + 1;
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        if first.starts_with(b"#") {
            continue;
        }
        let (b"user", Some(name)) = (first, words.next()) else {
            return Err(format!(
                "{number}: should start with user keyword followed by the username"
            ));
        };
        if users.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("{number}: duplicate user '{name}' found"));
        }
        let rules: Vec<&[u8]> = words.collect();
        let rules = merged(&rules).map_err(|why| format!("{number}: {why}"))?;
        let mut user = User::new(name);
        for rule in rules {
            user.apply(&rule)
                .map_err(|why| format!("{number}: {why}: '{}'", String::from_utf8_lossy(&rule)))?;
        }
        users.insert(name.to_vec(), Arc::new(user));
    }
    Ok(users)
}

#[cfg(test)]
mod tests;
