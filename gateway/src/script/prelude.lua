-- What scripts find in their world: Redis's library on top of functions of the host;
-- `where` tells who has failed.
local where, host = ...

local READONLY = "Attempt to modify a readonly table"
local protected = setmetatable({}, { __mode = "k" })
local pcall, xpcall, error, type, tostring, rawget, rawset, select, pairs =
    pcall, xpcall, error, type, tostring, rawget, rawset, select, pairs
local setmetatable, getmetatable = setmetatable, getmetatable

local function readonly(table, missing)
    local meta = {
        __index = missing or table,
        __newindex = function() error(READONLY, 2) end,
    }
    local front = setmetatable({}, {
        __index = meta.__index,
        __newindex = meta.__newindex,
        __metatable = setmetatable({}, { __newindex = meta.__newindex, __metatable = false }),
    })
    protected[front] = true
    return front
end

-- What a script sees of a failure: the host's are none of Lua's values.
local function caught(failure)
    if type(failure) == "userdata" then return host.caught(failure) end
    return failure
end

local function outcome(done, ...)
    if done then return true, ... end
    return false, caught((...))
end

-- As Redis's: the text of an error table, not the table.
local function text_of(done, failure, ...)
    if not done and type(failure) == "table" and type(rawget(failure, "err")) == "string" then
        return false, rawget(failure, "err")
    end
    return done, failure, ...
end

local function pcall_caught(...) return text_of(outcome(pcall(...))) end
local function xpcall_caught(run, handler)
    return xpcall(run, function(failure) return handler(caught(failure)) end)
end

local coroutine = {
    create = coroutine.create, running = coroutine.running, status = coroutine.status,
    wrap = coroutine.wrap, yield = coroutine.yield,
}
local resume = _G.coroutine.resume
function coroutine.resume(...) return outcome(resume(...)) end

local redis = { call = host.call, pcall = host.pcall, acl_check_cmd = host.acl_check_cmd }

local function refuse(text) error({ err = "ERR " .. text }, 0) end

-- The code at the beginning stays, what follows is one line.
function redis.error_reply(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    if text:sub(1, 1) == "-" then text = text:sub(2) end
    local code, message = text:match("^([^ ]*) (.*)$")
    if not code then code, message = "ERR", text end
    message = message:gsub("^[\r\n]+", ""):gsub("[\r\n]+$", "")
    return { err = code .. " " .. message }
end

function redis.status_reply(...)
    if select("#", ...) ~= 1 or type((...)) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = (...) }
end

function redis.sha1hex(...)
    if select("#", ...) ~= 1 then refuse("wrong number of arguments") end
    return host.sha1hex(tostring((...)))
end

function redis.log(...)
    if select("#", ...) < 2 then refuse("redis.log() requires two arguments or more.") end
    local level = tonumber((...))
    if not level then refuse("First argument must be a number (log level).") end
    if level < 0 or level > 3 then refuse("Invalid debug level.") end
    local words = {}
    for n = 2, select("#", ...) do words[n - 1] = tostring((select(n, ...))) end
    host.log(level, table.concat(words, " "))
end

function redis.setresp(...)
    if select("#", ...) ~= 1 then refuse("redis.setresp() requires one argument.") end
    local version = tonumber((...))
    if version ~= 2 and version ~= 3 then refuse("RESP version must be 2 or 3.") end
    host.setresp(version)
end

function redis.replicate_commands() return true end
function redis.set_repl(...)
    if select("#", ...) ~= 1 then refuse("redis.set_repl() requires two arguments.") end
    local flags = tonumber((...))
    if not flags or flags < 0 or flags > 3 then
        refuse("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
    end
end
function redis.breakpoint() return false end
function redis.debug() end

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = host.version, host.version_number

local function guarded(set)
    return function(table, ...)
        if protected[table] then error(READONLY, 2) end
        return set(table, ...)
    end
end

local world = {
    assert = assert, collectgarbage = collectgarbage, error = error,
    getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
    pcall = pcall_caught, rawequal = rawequal, rawget = rawget, rawset = guarded(rawset),
    select = select, setmetatable = guarded(setmetatable), tonumber = tonumber,
    tostring = tostring, type = type, unpack = unpack, xpcall = xpcall_caught,
    coroutine = readonly(coroutine), _VERSION = _VERSION,
    string = readonly(string), table = readonly(table), math = readonly(math),
    os = readonly({ clock = os.clock }),
    redis = readonly(redis), server = readonly(redis),
    cjson = readonly(host.cjson), cmsgpack = readonly(host.cmsgpack),
    struct = readonly(host.struct), bit = readonly(host.bit),
}
local texts = getmetatable("")
texts.__index = world.string
texts.__metatable = readonly({ __index = world.string })
local load_text = loadstring
local function loaded(text, name)
    if type(text) == "string" and text:byte(1) == 27 then
        return nil, "attempt to load chunk with wrong mode"
    end
    return load_text(text, name)
end
local front
function world.loadstring(text, name)
    local chunk, failed = loaded(text, name)
    if chunk then setfenv(chunk, front) end
    return chunk, failed
end
function world.load(piece, name)
    if type(piece) == "function" then
        local pieces = {}
        for text in piece do
            if text == "" then break end
            pieces[#pieces + 1] = text
        end
        piece = table.concat(pieces)
    end
    return world.loadstring(piece, name)
end

local function found(value, name)
    if value == nil then
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 3)
    end
    return value
end

front = readonly(world, function(_, name)
    local value = found(world[name], name)
    return value
end)
world._G = front

-- What a library finds instead of `redis` while it is loaded, and what it registers.
local registered
local api = { log = redis.log }
for name, value in pairs(redis) do
    if type(value) ~= "function" then api[name] = value end
end

local named = {
    function_name = { "name", "string", "function_name argument given to redis.register_function must be a string" },
    description = { "description", "string", "description argument given to redis.register_function must be a string" },
    callback = { "callback", "function", "callback argument given to redis.register_function must be a function" },
    flags = { "flags", "table", "flags argument to redis.register_function must be a table representing function flags" },
}
local flags_known = {
    ["no-writes"] = true, ["allow-oom"] = true, ["allow-stale"] = true,
    ["no-cluster"] = true, ["allow-cross-slot-keys"] = true,
}

local function by_names(given)
    if type(given) ~= "table" then
        refuse("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
    end
    local made = { flags = {} }
    for name, value in pairs(given) do
        if type(name) ~= "string" then
            refuse("named argument key given to redis.register_function is not a string")
        end
        local wanted = named[name:lower()]
        if not wanted then refuse("unknown argument given to redis.register_function") end
        if type(value) ~= wanted[2] then refuse(wanted[3]) end
        made[wanted[1]] = value
    end
    if not made.name then refuse("redis.register_function must get a function name argument") end
    if not made.callback then refuse("redis.register_function must get a callback argument") end
    local flags = {}
    for place, flag in ipairs(made.flags) do
        if type(flag) ~= "string" or not flags_known[flag:lower()] then refuse("unknown flag given") end
        flags[place] = flag:lower()
    end
    made.flags = flags
    return made
end

function api.register_function(...)
    if not registered then
        refuse("redis.register_function can only be called on FUNCTION LOAD command")
    end
    local count = select("#", ...)
    if count < 1 or count > 2 then
        refuse("wrong number of arguments to redis.register_function")
    end
    local name, callback = ...
    local made
    if count == 1 then
        made = by_names(name)
    elseif type(name) ~= "string" then
        refuse("first argument to redis.register_function must be a string")
    elseif type(callback) ~= "function" then
        refuse("second argument to redis.register_function must be a function")
    else
        made = { name = name, callback = callback, flags = {} }
    end
    if not made.name:find("^[%w_]+$") then
        refuse("Library names can only contain letters, numbers, or underscores(_) and must be at least one character long")
    end
    for _, other in ipairs(registered) do
        if other.name == made.name then refuse("Function already exists in the library") end
    end
    registered[#registered + 1] = made
end

local registrar = readonly(api, function(_, name)
    local value = found(api[name], name)
    return value
end)

local shelf = readonly(world, function(_, name)
    if registered and (name == "redis" or name == "server") then return registrar end
    local value = found(world[name], name)
    return value
end)

local function handler(failure)
    failure = caught(failure)
    if type(failure) ~= "table" then
        failure = { err = "ERR " .. tostring(failure) }
    elseif rawget(failure, "err") == nil then
        failure = { err = "ERR unknown error" }
    end
    local source, line = where()
    if source then failure.source, failure.line = source, line end
    return failure
end

-- Makes a script out of a function.
local function make(chunk) return setfenv(chunk, front) end

-- Runs one, or a library's function.
local function run(chunk, keys, arguments, is_function)
    if is_function then
        return xpcall(function()
            local result = chunk(keys, arguments)
            return result
        end, handler)
    end
    world.KEYS, world.ARGV = keys, arguments
    local done, result = xpcall(chunk, handler)
    world.KEYS, world.ARGV = nil, nil
    return done, result
end

-- Loads a library: what it registers, or what has failed.
local function load(chunk)
    registered = {}
    local done, failure = xpcall(setfenv(chunk, shelf), handler)
    local all = registered
    registered = nil
    if done then return all end
    return failure.err
end

return make, run, load
