"""redis-py with its defaults. Usage: sdk.py MODE PORT [ARGUMENT...]

basics PORT                        what most programs do
basics-resp2 PORT                  the same in RESP2
async  PORT                        many tasks, each with pipelines of its own
pool   PORT                        threads that share a pool of connections
transactions PORT                  MULTI by pipelines, WATCH, scripts; many threads at once
listen PORT                        messages by channel and by pattern, RESP2 and RESP3
tls    PORT TLS-PORT FOLDER        what most programs do, with ca.pem, one.pem and one.key
write  PORT CORPUS PLAN SHIFT      sets every key of the plan
read   PORT CORPUS PLAN SHIFT      compares every key of the plan
write-huge PORT CORPUS BYTES       one value of the corpus repeated
read-huge  PORT CORPUS BYTES
"""

import asyncio
import sys
import threading
import time

import redis
import redis.asyncio

BATCH_BYTES = 4 << 20


def check(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def plan(path):
    with open(path) as lines:
        for line in lines:
            key, offset, size = line.split()
            yield key, int(offset), int(size)


def batches(path):
    """Groups of keys whose values come to a few MiB."""
    group, size = [], 0
    for entry in plan(path):
        group.append(entry)
        size += entry[2]
        if size >= BATCH_BYTES or len(group) == 500:
            yield group
            group, size = [], 0
    if group:
        yield group


def basics(client, protocol):
    check(client.connection_pool.connection_kwargs.get("protocol") in (None, protocol), True)
    check(client.ping(), True)
    check(client.set("py:a", "1"), True)
    check(client.get("py:a"), b"1")
    check(client.set("py:a", b"\x00\xff\r\n"), True)
    check(client.get("py:a"), b"\x00\xff\r\n")
    check(client.get("py:none"), None)
    check(client.set("py:a", "2", nx=True), None)
    check(client.set("py:a", "2", xx=True, get=True), b"\x00\xff\r\n")
    check(client.incr("py:n"), 1)
    check(client.incrby("py:n", 41), 42)
    check(client.decr("py:n"), 41)
    check(client.incrbyfloat("py:f", 0.5), 0.5)
    check(client.append("py:a", "3"), 2)
    check(client.strlen("py:a"), 2)
    check(client.setnx("py:lock", "me"), True)
    check(client.getdel("py:lock"), b"me")
    check(client.mset({"py:m1": "1", "py:m2": "2"}), True)
    check(client.mget("py:m1", "py:none", "py:m2"), [b"1", None, b"2"])
    check(client.type("py:m1"), b"string")
    check(client.exists("py:m1", "py:m2", "py:none"), 2)
    check(client.expire("py:m1", 100), True)
    check(client.ttl("py:m1"), 100)
    check(client.persist("py:m1"), True)
    check(client.ttl("py:m1"), -1)
    check(client.ttl("py:none"), -2)
    check(client.set("py:short", "x", px=30), True)
    time.sleep(0.06)
    check(client.get("py:short"), None)
    check(client.getex("py:m2", ex=50), b"2")
    check(client.ttl("py:m2"), 50)
    check(client.delete("py:m1", "py:none"), 1)
    check(client.unlink("py:m2"), 1)

    pipe = client.pipeline(transaction=False)
    for number in range(1000):
        pipe.set(f"py:p:{number}", number)
        pipe.get(f"py:p:{number}")
    replies = pipe.execute()
    check(replies, [reply for n in range(1000) for reply in (True, str(n).encode())])
    check(len(set(client.scan_iter("py:p:*", count=100))), 1000)
    check(sorted(client.keys("py:p:99?")), [b"py:p:99%d" % n for n in range(10)])

    try:
        client.set("py:a", "text")
        client.incr("py:a")
        raise AssertionError("INCR of text succeeded")
    except redis.ResponseError as error:
        check("not an integer" in str(error), True)
    check(client.info()["role"], "master")
    check(client.client_setname("suite"), True)
    check(client.client_getname() in ("suite", b"suite"), True)

    other = redis.Redis(
        connection_pool=redis.ConnectionPool(
            client.connection_pool.connection_class,
            **{**client.connection_pool.connection_kwargs, "db": 3},
        )
    )
    check(other.set("py:a", "three"), True)
    check(client.get("py:a"), b"text")
    check(other.dbsize(), 1)
    check(other.flushdb(), True)
    check(other.dbsize(), 0)
    check(client.get("py:a"), b"text")

    check(client.hset("py:h", mapping={"a": 1, "b": 2}), 2)
    check(client.hgetall("py:h"), {b"a": b"1", b"b": b"2"})
    check(client.hincrbyfloat("py:h", "a", 0.5), 1.5)
    check(dict(client.hscan_iter("py:h")), {b"a": b"1.5", b"b": b"2"})
    check(client.config_get("maxmemory-policy"), {"maxmemory-policy": "noeviction"})
    check(client.object("encoding", "py:n"), b"int")
    check(client.memory_usage("py:n") > 0, True)
    check(client.setbit("py:bits", 7, 1), 0)
    check(client.bitcount("py:bits"), 1)
    check([entry["db"] for entry in client.client_list() if entry["name"] == "suite"], ["0"])


async def tasks(port):
    client = redis.asyncio.Redis(port=port)

    async def one(number):
        key = f"as:{number}"
        for turn in range(20):
            check(await client.incr(key), turn * 2 + 1)
            async with client.pipeline(transaction=False) as pipe:
                check(await pipe.incr(key).get(key).execute(), [turn * 2 + 2, b"%d" % (turn * 2 + 2)])

    check(await client.ping(), True)
    await asyncio.gather(*(one(number) for number in range(50)))
    check(sum(int(value) for value in await client.mget([f"as:{n}" for n in range(50)])), 2000)
    async with client.pubsub() as listener:
        await listener.subscribe("as:news")
        check((await listener.get_message(timeout=5))["type"], "subscribe")
        check(await client.publish("as:news", "hello"), 1)
        check((await listener.get_message(timeout=5))["data"], b"hello")
    await client.aclose()


def pool(port):
    """Eight threads on four connections; every increment counts once."""
    shared = redis.Redis(
        connection_pool=redis.BlockingConnectionPool(port=port, max_connections=4, timeout=20)
    )
    failures = []

    def work():
        try:
            for _ in range(250):
                shared.incr("pool:n")
        except Exception as error:  # for the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    check(failures, [])
    check(shared.get("pool:n"), b"2000")
    # A connection that ended while it was idle is replaced without an error.
    for client in shared.client_list():
        redis.Redis(port=port).client_kill_filter(_id=client["id"])
    check(shared.get("pool:n"), b"2000")


def transactions(port, protocol):
    client = redis.Redis(port=port, protocol=protocol)
    client.flushall()
    # A pipeline is a transaction unless it is told not to be.
    pipe = client.pipeline()
    check(pipe.set("tx:a", 1).incr("tx:a").hset("tx:h", "f", 1).get("tx:a").execute(), [True, 2, 1, b"2"])
    try:
        client.pipeline().set("tx:a", "text").incr("tx:a").set("tx:b", 1).execute()
        raise AssertionError("INCR of text succeeded")
    except redis.ResponseError as error:
        check("not an integer" in str(error), True)
    check(client.mget("tx:a", "tx:b"), [b"text", b"1"])
    check(client.pipeline().incr("tx:n").incr("tx:a").execute(raise_on_error=False)[0], 1)
    try:
        client.pipeline().set("tx:c", 1).execute_command("NOSUCH").execute()
        raise AssertionError("a transaction with an unknown command was run")
    except redis.exceptions.ResponseError:
        check(client.exists("tx:c"), 0)
    watching = client.pipeline()
    watching.watch("tx:n")
    client.incr("tx:n")
    watching.multi()
    watching.set("tx:n", "lost")
    try:
        watching.execute()
        raise AssertionError("a watched key was changed and EXEC ran")
    except redis.WatchError:
        check(client.get("tx:n"), b"2")
    watching.watch("tx:n")
    watching.unwatch()
    client.incr("tx:n")
    check(watching.get("tx:n").execute(), [b"3"])
    watching.reset()

    # Many move money between two accounts, by WATCH and by a script; none is lost.
    client.mset({"tx:from": 400, "tx:to": 0})
    script = "local n=redis.call('decr',KEYS[1]) redis.call('incr',KEYS[2]) return n"
    move_by_script = client.register_script(script)

    def move(pipe):
        left = int(pipe.get("tx:from"))
        got = int(pipe.get("tx:to"))
        pipe.multi()
        pipe.set("tx:from", left - 1).set("tx:to", got + 1)

    failures = []

    def work(number):
        try:
            for _ in range(25):
                if number % 2:
                    client.transaction(move, "tx:from", "tx:to", watch_delay=0.001)
                else:
                    move_by_script(keys=["tx:from", "tx:to"])
        except BaseException as error:  # for the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    check(failures, [])
    check(client.mget("tx:from", "tx:to"), [b"200", b"200"])
    check(client.script_exists(move_by_script.sha), [True])
    check(client.script_flush(), True)
    check(move_by_script(keys=["tx:from", "tx:to"]), 199)
    check(client.eval("return {KEYS[1],ARGV[1],1.9}", 1, "k", "a"), [b"k", b"a", 1])


def listen(port, protocol):
    client = redis.Redis(port=port, protocol=protocol)
    listener = client.pubsub()
    listener.subscribe("news")
    listener.psubscribe("n?ws")
    check([listener.get_message(timeout=5)["type"] for _ in range(2)], ["subscribe", "psubscribe"])
    check(client.publish("news", b"\x00\xff"), 2)
    got = [listener.get_message(timeout=5) for _ in range(2)]
    check([(m["type"], m["data"]) for m in got], [("message", b"\x00\xff"), ("pmessage", b"\x00\xff")])
    check(client.pubsub_numsub("news"), [(b"news", 1)])
    check(client.pubsub_channels(), [b"news"])
    listener.unsubscribe()
    listener.punsubscribe()
    check([listener.get_message(timeout=5)["type"] for _ in range(2)], ["unsubscribe", "punsubscribe"])
    check(client.publish("news", "nobody"), 0)


def write(client, corpus, path, shift):
    for group in batches(path):
        pipe = client.pipeline(transaction=False)
        for key, offset, size in group:
            pipe.set(key, corpus[offset + shift : offset + shift + size])
        check(all(pipe.execute()), True)


def read(client, corpus, path, shift):
    for group in batches(path):
        values = client.mget([key for key, _, _ in group])
        for (key, offset, size), value in zip(group, values):
            if value != corpus[offset + shift : offset + shift + size]:
                sys.exit(f"{key} of {size} bytes came back changed: {value and len(value)}")


def huge(corpus, size):
    return (corpus * (size // len(corpus) + 1))[:size]


def main():
    mode, port = sys.argv[1], int(sys.argv[2])
    client = redis.Redis(port=port)
    if mode == "basics":
        return basics(client, 3)
    if mode == "basics-resp2":
        return basics(redis.Redis(port=port, protocol=2), 2)
    if mode == "tls":
        folder = sys.argv[4]
        return basics(
            redis.Redis(
                port=int(sys.argv[3]),
                ssl=True,
                ssl_ca_certs=f"{folder}/ca.pem",
                ssl_certfile=f"{folder}/one.pem",
                ssl_keyfile=f"{folder}/one.key",
            ),
            3,
        )
    if mode == "async":
        return asyncio.run(tasks(port))
    if mode == "pool":
        return pool(port)
    if mode == "transactions":
        transactions(port, 2)
        return transactions(port, 3)
    if mode == "listen":
        listen(port, 2)
        return listen(port, 3)
    with open(sys.argv[3], "rb") as file:
        corpus = file.read()
    if mode == "write":
        write(client, corpus, sys.argv[4], int(sys.argv[5]))
    elif mode == "read":
        read(client, corpus, sys.argv[4], int(sys.argv[5]))
    elif mode == "write-huge":
        check(client.set("huge", huge(corpus, int(sys.argv[4]))), True)
    elif mode == "read-huge":
        check(client.get("huge") == huge(corpus, int(sys.argv[4])), True)
    else:
        sys.exit(__doc__)


main()
