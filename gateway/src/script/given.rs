//! Functions of the host that scripts call: they take arguments and fail as functions of
//! Lua's own libraries do.

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

/// Why a function fails.
pub(super) enum Failure {
    /// With this text, which Lua puts behind the place of the call.
    Text(String),
    /// By itself.
    Lua(mlua::Error),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// What a function is called with; places begin at 1.
pub(super) struct Given<'a> {
    pub(super) lua: &'a Lua,
    name: &'static str,
    values: Vec<Value>,
}

impl Given<'_> {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value at a place, nil where there is none.
    pub(super) fn get(&self, place: usize) -> &Value {
        self.values.get(place - 1).unwrap_or(&Value::Nil)
    }

    /// The text at a place; a number becomes one.
    pub(super) fn text(&self, place: usize) -> Result<LuaString, Failure> {
        match self.get(place) {
            Value::String(text) => Ok(text.clone()),
            number @ (Value::Integer(_) | Value::Number(_)) => {
                let text = self.lua.coerce_string(number.clone())?;
                text.ok_or_else(|| self.not_a("string", place))
            }
            _ => Err(self.not_a("string", place)),
        }
    }

    /// The number at a place; a text becomes one.
    pub(super) fn number(&self, place: usize) -> Result<f64, Failure> {
        let number = self.lua.coerce_number(self.get(place).clone())?;
        number.ok_or_else(|| self.not_a("number", place))
    }

    /// The number at a place without its fraction.
    pub(super) fn integer(&self, place: usize) -> Result<i64, Failure> {
        // A cast of what an integer cannot hold is the nearest that it can.
        Ok(self.number(place)? as i64)
    }

    /// What is said of an argument that is not what it has to be.
    pub(super) fn wrong(&self, place: usize, why: &str) -> Failure {
        Failure::Text(format!("bad argument #{place} to '{}' ({why})", self.name))
    }

    fn not_a(&self, wanted: &str, place: usize) -> Failure {
        let found = self.values.get(place - 1).map_or("no value", type_of);
        self.wrong(place, &format!("{wanted} expected, got {found}"))
    }
}

/// Adds a function to a library.
pub(super) fn add<R: IntoLuaMulti>(
    lua: &Lua,
    library: &Table,
    name: &'static str,
    run: impl Fn(&Given<'_>) -> Result<R, Failure> + 'static,
) -> mlua::Result<()> {
    let function = move |lua: &Lua, values: MultiValue| {
        let given = Given { lua, name, values: values.into_iter().collect() };
        run(&given).map_err(|failure| match failure {
            Failure::Text(text) => mlua::Error::runtime(place_of_call(lua) + &text),
            Failure::Lua(error) => error,
        })
    };
    library.raw_set(name, lua.create_function(function)?)
}

/// What Lua calls the type of a value.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// `source:line: ` of who calls the function that runs, if that is Lua.
fn place_of_call(lua: &Lua) -> String {
    let place = lua.inspect_stack(1, |debug| {
        let source = debug.source().short_src.map(|source| source.into_owned());
        source.zip(debug.current_line())
    });
    place.flatten().map_or_else(String::new, |(source, line)| format!("{source}:{line}: "))
}
