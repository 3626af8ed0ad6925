"""Small programs as people write them over redis-py. Usage: programs.py NAME PORT

sessions  sessions of a web site: a hash each, gone after a while without a visit
limiter   at most so many requests a client and window
counter   page views of many threads, by day and page
"""

import secrets
import sys
import threading
import time

import redis


class Sessions:
    """What a web framework keeps of its visitors."""

    def __init__(self, client, seconds):
        self.client, self.seconds = client, seconds

    def begin(self, user):
        name = secrets.token_urlsafe(16)
        with self.client.pipeline(transaction=False) as pipe:
            pipe.hset(f"session:{name}", mapping={"user": user, "visits": 0})
            pipe.expire(f"session:{name}", self.seconds).execute()
        return name

    def visit(self, name):
        """The user and the number of visits, or nothing when the session is over."""
        key = f"session:{name}"
        with self.client.pipeline(transaction=False) as pipe:
            user, is_live = pipe.hget(key, "user").expire(key, self.seconds).execute()
        return (user, self.client.hincrby(key, "visits", 1)) if is_live else None

    def end(self, name):
        return self.client.unlink(f"session:{name}") == 1


def sessions(client):
    store = Sessions(client, 60)
    names = {store.begin(f"user{n}"): f"user{n}" for n in range(100)}
    for turn in range(1, 4):
        for name, user in names.items():
            assert store.visit(name) == (user.encode(), turn)
    ended = next(iter(names))
    assert store.end(ended) and not store.end(ended) and store.visit(ended) is None
    assert all(59 <= client.ttl(key) <= 60 for key in client.scan_iter("session:*"))
    for name in names:
        client.pexpire(f"session:{name}", 20)
    time.sleep(0.05)
    assert all(store.visit(name) is None for name in names), "a session outlived its time"
    assert client.dbsize() == 0


def is_allowed(client, who, limit, window_ms):
    """Counts a request in the window that now is in."""
    key = f"limit:{who}:{time.time_ns() // 1_000_000 // window_ms}"
    with client.pipeline(transaction=False) as pipe:
        count, _ = pipe.incr(key).pexpire(key, 2 * window_ms, nx=True).execute()
    return count <= limit


def limiter(client):
    # All in one window: wait for the next one to begin.
    window_ms, limit = 5000, 50
    time.sleep((window_ms - time.time_ns() // 1_000_000 % window_ms) / 1000)
    allowed = []

    def work():
        allowed.extend(is_allowed(client, "me", limit, window_ms) for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sum(allowed) == limit, f"{sum(allowed)} of {len(allowed)} were let through"
    assert is_allowed(client, "somebody else", limit, window_ms)
    assert all(0 < client.pttl(key) <= 2 * window_ms for key in client.scan_iter("limit:*"))


def counter(client):
    pages = [f"/page/{n}" for n in range(10)]

    def work():
        with client.pipeline(transaction=False) as pipe:
            for turn in range(100):
                pipe.incr("views").hincrby("views:today", pages[turn % 10], 1)
                if turn % 20 == 19:
                    pipe.execute()

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("views") == b"800"
    assert client.hgetall("views:today") == {page.encode(): b"80" for page in pages}
    assert client.set("views", 0, get=True) == b"800"


def main():
    programs = {"sessions": sessions, "limiter": limiter, "counter": counter}
    if len(sys.argv) != 3 or sys.argv[1] not in programs:
        sys.exit(__doc__)
    programs[sys.argv[1]](redis.Redis(port=int(sys.argv[2])))


main()
