"""Small programs as people write them over redis-py. Usage: programs.py NAME PORT

sessions  sessions of a web site: a hash each, gone after a while without a visit
limiter   at most so many requests a client and window
counter   page views of many threads, by day and page
lock      a resource that one of many may use, by redis-py's Lock, which is made of scripts
cache     Django's cache over Redis, as a web site uses it
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


def lock(client):
    port = client.connection_pool.connection_kwargs["port"]
    inside, most, turns = 0, 0, 0

    def work():
        nonlocal inside, most, turns
        own = redis.Redis(port=port)
        for _ in range(10):
            with own.lock("lock:door", timeout=20, blocking_timeout=60, sleep=0.002):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                turns += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (most, turns) == (1, 80), f"{most} were inside at once, in {turns} turns"
    assert client.dbsize() == 0, "a lock was left behind"

    held = client.lock("lock:door", timeout=60)
    other = client.lock("lock:door", timeout=60, blocking=False)
    assert held.acquire() and held.locked() and held.owned()
    assert not other.acquire() and not other.owned()
    assert held.extend(60) and 60 < client.ttl("lock:door") <= 120
    assert held.reacquire() and client.ttl("lock:door") <= 60
    held.release()
    assert other.acquire()
    # Who was too slow has lost it, and takes it from nobody.
    other.release()
    slow = client.lock("lock:door", timeout=0.02)
    assert slow.acquire()
    time.sleep(0.05)
    assert other.acquire()
    for attempt in (slow.release, lambda: slow.extend(1), slow.reacquire):
        try:
            attempt()
            raise AssertionError("it was used by who had lost it")
        except (redis.exceptions.LockNotOwnedError, redis.exceptions.LockError):
            pass
    assert other.owned()


def cache(client):
    from django.conf import settings

    port = client.connection_pool.connection_kwargs["port"]
    backend = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{port}/2",
        "KEY_PREFIX": "site",
    }
    settings.configure(CACHES={"default": backend})
    from django.core.cache import cache as pages

    assert pages.get("front") is None and pages.get("front", "none") == "none"
    pages.set("front", {"title": "Front", "links": [1, 2, 3]}, timeout=60)
    assert pages.get("front") == {"title": "Front", "links": [1, 2, 3]}
    assert "front" in pages and "back" not in pages
    assert not pages.add("front", "other") and pages.add("back", "other", timeout=None)
    pages.set_many({f"page{n}": n for n in range(100)}, timeout=60)
    assert pages.get_many([f"page{n}" for n in range(0, 200, 2)]) == {
        f"page{n}": n for n in range(0, 100, 2)
    }
    assert pages.incr("page1", 41) == 42 and pages.decr("page1") == 41
    assert pages.get_or_set("made", lambda: "once", 60) == "once"
    assert pages.get_or_set("made", lambda: "twice", 60) == "once"
    assert pages.touch("made", 1000) and not pages.touch("nosuch")
    assert pages.delete("made") and not pages.delete("made")
    pages.set("front", "new", version=2)
    assert pages.get("front", version=2) == "new" and pages.get("front")["title"] == "Front"
    assert pages.incr_version("page2") == 2 and pages.get("page2", version=2) == 2
    pages.set("gone", 1, timeout=0)
    assert pages.get("gone") is None
    pages.set("short", 1, timeout=1)
    time.sleep(1.1)
    assert pages.get("short") is None
    pages.delete_many([f"page{n}" for n in range(100)])
    assert pages.get_many([f"page{n}" for n in range(100)]) == {}
    client.set("other", "stays")
    pages.clear()
    assert pages.get("front") is None and client.get("other") == b"stays"


def main():
    programs = {
        "sessions": sessions,
        "limiter": limiter,
        "counter": counter,
        "lock": lock,
        "cache": cache,
    }
    if len(sys.argv) != 3 or sys.argv[1] not in programs:
        sys.exit(__doc__)
    programs[sys.argv[1]](redis.Redis(port=int(sys.argv[2])))


main()
