//! Libraries of functions: FUNCTION LOAD's, as they stand in the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::Permission;
use super::store::{Script, sha_of};

/// What a library says of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FunctionInfo {
    pub(crate) name: Vec<u8>,
    pub(crate) description: Option<Vec<u8>>,
    /// In lower case, each known.
    pub(crate) flags: Vec<String>,
}

impl FunctionInfo {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// What the function may do.
    pub(crate) fn permission(&self) -> Permission {
        Permission { writes: !self.has("no-writes"), grows: self.has("allow-oom") }
    }
}

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: Vec<u8>,
    pub(crate) code: Script,
    /// None where this gateway cannot load it: another may.
    pub(crate) functions: Vec<FunctionInfo>,
}

impl Library {
    /// A library of this code, whose functions `load` finds.
    ///
    /// # Errors
    ///
    /// What Redis says of it.
    pub(crate) fn new(
        code: &[u8],
        load: impl FnOnce(&Script) -> Result<Vec<FunctionInfo>, String>,
    ) -> Result<Self, String> {
        let name = name_of(code)?;
        let code = Script { sha: sha_of(code), text: code.into() };
        let functions = load(&code)?;
        if functions.is_empty() {
            return Err("No functions registered".into());
        }
        Ok(Self { name, code, functions })
    }
}

/// All libraries, as one version of the pool's has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// Chosen by chance with every change; 0 is the version without any.
    pub(crate) version: u64,
    pub(crate) libraries: BTreeMap<Vec<u8>, Arc<Library>>,
}

impl Functions {
    /// Those that stand in these bytes.
    pub(crate) fn parse(
        version: u64,
        mut bytes: &[u8],
        load: impl Fn(&Script) -> Result<Vec<FunctionInfo>, String>,
    ) -> Self {
        let mut libraries = BTreeMap::new();
        while let Some((code, rest)) = next_code(bytes) {
            bytes = rest;
            let library = Library::new(code, &load).unwrap_or_else(|error| {
                let name = name_of(code).unwrap_or_default();
                let shown = name.escape_ascii();
                tracing::warn!("the library {shown} cannot be loaded by this gateway: {error}");
                let code = Script { sha: sha_of(code), text: code.into() };
                Library { name, code, functions: Vec::new() }
            });
            libraries.insert(library.name.clone(), Arc::new(library));
        }
        if !bytes.is_empty() {
            tracing::error!("the pool's list of libraries is damaged: FUNCTION LOAD them again");
        }
        Self { version, libraries }
    }

    /// Each code behind its length in bytes, 4 bytes in little-endian order.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for library in self.libraries.values() {
            let code = &library.code.text;
            bytes.extend_from_slice(&(code.len() as u32).to_le_bytes());
            bytes.extend_from_slice(code);
        }
        bytes
    }

    /// The function of this name, in whatever case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(&Library, &FunctionInfo)> {
        self.libraries.values().find_map(|library| {
            let is_named = |function: &&FunctionInfo| function.name.eq_ignore_ascii_case(name);
            let function = library.functions.iter().find(is_named)?;
            Some((&**library, function))
        })
    }

    /// Adds a library.
    ///
    /// # Errors
    ///
    /// What Redis says if there is one of its name and it shall not be replaced, or
    /// if another has a function of the same name.
    pub(crate) fn add(&mut self, library: Library, replace: bool) -> Result<(), String> {
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        if !replace && self.libraries.contains_key(&library.name) {
            return Err(format!("Library '{}' already exists", shown(&library.name)));
        }
        for function in &library.functions {
            let other = self.find(&function.name).filter(|(other, _)| other.name != library.name);
            if other.is_some() {
                return Err(format!("Function {} already exists", shown(&function.name)));
            }
        }
        self.libraries.insert(library.name.clone(), Arc::new(library));
        Ok(())
    }

    /// Adds all libraries of another, which go with each other.
    ///
    /// # Errors
    ///
    /// What Redis says if there is one of the same name and none shall be replaced, or
    /// if one that stays has a function of the same name.
    pub(crate) fn join(&mut self, other: Self, replace: bool) -> Result<(), String> {
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for name in other.libraries.keys() {
            if self.libraries.remove(name).is_some() && !replace {
                return Err(format!("Library {} already exists", shown(name)));
            }
        }
        for function in other.libraries.values().flat_map(|library| &library.functions) {
            if self.find(&function.name).is_some() {
                return Err(format!("Function {} already exists", shown(&function.name)));
            }
        }
        self.libraries.extend(other.libraries);
        Ok(())
    }
}

fn next_code(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The name in a library's first line, or what Redis says if there is none.
fn name_of(code: &[u8]) -> Result<Vec<u8>, String> {
    let line = code.strip_prefix(b"#!").ok_or("Missing library metadata")?;
    let end = line.iter().position(|&byte| byte == b'\n').ok_or("Invalid library metadata")?;
    let line = String::from_utf8_lossy(&line[..end]).into_owned();
    let mut words = line.split_whitespace();
    let engine = if line.starts_with(char::is_whitespace) { Some("") } else { words.next() };
    let engine = engine.ok_or("Invalid library metadata")?;
    let mut name = None;
    for word in words {
        match word.split_at_checked(5) {
            Some((option, value)) if option.eq_ignore_ascii_case("name=") => {
                if name.replace(value).is_some() {
                    let text = "Invalid metadata value, name argument was given multiple times";
                    return Err(text.into());
                }
            }
            _ => return Err(format!("Invalid metadata value given: {word}")),
        }
    }
    let name = name.ok_or("Library name was not given")?;
    // Words may stand in quotes there.
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    let name = quoted.unwrap_or(name);
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_known) {
        return Err("Library names can only contain letters, numbers, or underscores(_) and must \
                    be at least one character long"
            .into());
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("Engine '{engine}' not found"));
    }
    Ok(name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(code: &Script) -> Result<Vec<FunctionInfo>, String> {
        let text = String::from_utf8_lossy(&code.text).into_owned();
        let names = text.lines().skip(1).map(|name| name.as_bytes().to_vec());
        let info = |name| FunctionInfo { name, description: None, flags: Vec::new() };
        Ok(names.map(info).collect())
    }

    #[test]
    fn libraries_come_back_as_they_were_stored() {
        let mut functions = Functions::default();
        for code in ["#!lua name=a\nf\ng", "#!LUA NAME=b\nh"] {
            functions.add(Library::new(code.as_bytes(), load).unwrap(), false).unwrap();
        }
        let bytes = functions.to_bytes();
        let again = Functions::parse(7, &bytes, load);
        assert_eq!(again.libraries.keys().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(again.find(b"h").map(|(library, _)| &library.name[..]), Some(&b"b"[..]));
        // Cut anywhere, it is what is whole.
        for end in 0..bytes.len() {
            assert!(Functions::parse(7, &bytes[..end], load).libraries.len() < 2, "{end}");
        }
        // What cannot be loaded here is kept for those who can.
        let kept = Functions::parse(7, &bytes, |_| Err("no".into()));
        assert_eq!((kept.to_bytes(), kept.find(b"h").is_none()), (bytes, true));
    }

    #[test]
    fn a_name_is_given_once() {
        let mut functions = Functions::default();
        let mut add = |code: &str, replace| {
            functions.add(Library::new(code.as_bytes(), load).unwrap(), replace)
        };
        assert_eq!(add("#!lua name=a\nf", false), Ok(()));
        assert_eq!(add("#!lua name=a\nf", false), Err("Library 'a' already exists".into()));
        assert_eq!(add("#!lua name=a\nf\ng", true), Ok(()));
        assert_eq!(add("#!lua name=b\ng", true), Err("Function g already exists".into()));
    }

    #[test]
    fn a_first_line_that_is_wrong_is_refused_as_redis_does() {
        for (code, error) in [
            ("abc", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!\n", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            (
                "#!lua name=a name=b\n",
                "Invalid metadata value, name argument was given multiple times",
            ),
            ("#!lua name=a b=c\n", "Invalid metadata value given: b=c"),
            ("#!js name=a\n", "Engine 'js' not found"),
            ("#! name=a\n", "Engine '' not found"),
        ] {
            assert_eq!(name_of(code.as_bytes()), Err(error.into()), "{code}");
        }
        assert_eq!(name_of(b"#!lua name=\"a\"\n"), Ok(b"a".to_vec()));
        assert!(name_of(b"#!lua name=a-b\n").unwrap_err().starts_with("Library names can only"));
    }
}
