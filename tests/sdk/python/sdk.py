"""redis-py with its defaults. Usage: sdk.py MODE PORT [ARGUMENT...]

basics PORT                        what most programs do
write  PORT CORPUS PLAN SHIFT      sets every key of the plan
read   PORT CORPUS PLAN SHIFT      compares every key of the plan
write-huge PORT CORPUS BYTES       one value of the corpus repeated
read-huge  PORT CORPUS BYTES
"""

import sys
import time

import redis

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


def basics(client):
    check(client.connection_pool.connection_kwargs.get("protocol") in (None, 3), True)
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

    other = redis.Redis(port=client.connection_pool.connection_kwargs["port"], db=3)
    check(other.set("py:a", "three"), True)
    check(client.get("py:a"), b"text")
    check(other.dbsize(), 1)
    check(other.flushdb(), True)
    check(other.dbsize(), 0)
    check(client.get("py:a"), b"text")

    resp2 = redis.Redis(port=client.connection_pool.connection_kwargs["port"], protocol=2)
    check(resp2.mget("py:a", "py:none"), [b"text", None])


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
        basics(client)
        return
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
