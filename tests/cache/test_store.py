"""The file of remembered proofs: damaged, foreign, full, and written by killed processes."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pitcheck.cache.store import FILE, Store

HEADER = b"SQLite format 3\x00" + b"x" * 5000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "folder" / FILE)
    for number in range(3):
        store.put("stage", f"key {number}", f"content {number}".encode())
    return store


def _changed(store: Store, statement: str, *values: object) -> None:
    with sqlite3.connect(store.path) as database:
        database.execute(statement, values)
    database.close()


def test_what_was_put_is_there_until_it_is_replaced(store: Store) -> None:
    assert store.get("stage", "key 1") == b"content 1"
    assert store.get("report", "key 1") is None
    store.put("stage", "key 1", b"other")
    assert Store(store.path).get("stage", "key 1") == b"other"
    assert store.contents().entries == {"stage": 3}
    assert not store.trouble


def test_to_look_into_nothing_makes_no_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "folder" / FILE)
    assert store.get("stage", "key") is None
    assert (store.contents().entries, store.verified().damaged) == ({}, 0)
    assert not store.path.parent.exists()


def test_the_folder_is_kept_out_of_git(store: Store) -> None:
    assert "*" in (store.path.parent / ".gitignore").read_text().splitlines()


def test_a_changed_content_is_not_believed(store: Store) -> None:
    _changed(store, "UPDATE entries SET content = ? WHERE key = ?", b"content 9", "key 1")
    assert store.get("stage", "key 1") is None
    assert "damaged" in store.trouble
    found = Store(store.path).verified()
    assert (found.damaged, found.entries) == (1, {"stage": 2})


def test_an_entry_under_another_key_is_not_believed(store: Store) -> None:
    _changed(store, "UPDATE entries SET key = 'moved' WHERE key = 'key 1'")
    assert store.get("stage", "moved") is None
    _changed(store, "UPDATE entries SET kind = 'report' WHERE key = 'key 2'")
    assert store.get("report", "key 2") is None
    assert Store(store.path).verified().damaged == 2


@pytest.mark.parametrize("content", [b"", b"no database" * 1000, HEADER])
def test_a_file_that_is_no_database_is_set_aside(store: Store, content: bytes) -> None:
    store.path.write_bytes(content)
    again = Store(store.path)
    assert again.get("stage", "key 1") is None
    again.put("stage", "key 1", b"new")
    assert Store(store.path).get("stage", "key 1") == b"new"
    aside = store.path.with_name(f"{FILE}.damaged")
    assert not content or aside.read_bytes() == content
    assert bool(again.trouble) == bool(content)


def test_a_database_with_damaged_pages_is_set_aside_or_answers_rightly(store: Store) -> None:
    for number in range(200):
        store.put("stage", f"long {number}", f"{number} ".encode() * 400)
    whole, rng = store.path.read_bytes(), random.Random(1)
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 60)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        store.path.write_bytes(damaged)
        again = Store(store.path)
        for number in range(0, 200, 20):
            assert again.get("stage", f"long {number}") in (None, f"{number} ".encode() * 400)
        again.verified()
        again.put("stage", "new", b"content")
    store.path.unlink()
    Store(store.path).put("stage", "new", b"content")
    assert Store(store.path).get("stage", "new") == b"content"


def test_a_database_of_somebody_else_is_set_aside_whole(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (n)")
    database.close()
    store = Store(path)
    store.put("stage", "key", b"content")
    assert "version" in store.trouble
    with sqlite3.connect(path.with_name(f"{FILE}.damaged")) as database:
        assert database.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    database.close()
    assert Store(path).get("stage", "key") is None, "the entry that found it is not kept"


@pytest.mark.parametrize("used", ["abc", b"x", 1.5])
def test_an_entry_whose_last_use_is_no_number_is_damaged(store: Store, used: object) -> None:
    _changed(store, "UPDATE entries SET used = ? WHERE key = 'key 1'", used)
    assert store.get("stage", "key 1") is None
    assert Store(store.path).verified().damaged == 1


def test_a_database_without_its_table_is_set_aside(store: Store) -> None:
    _changed(store, "DROP TABLE entries")
    assert Store(store.path).get("stage", "key 1") is None
    store.put("stage", "key 1", b"new")
    assert Store(store.path).get("stage", "key 1") == b"new"


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / FILE)
    store.put("stage", "key", b"content")
    assert store.get("stage", "key") is None
    assert store.trouble


def test_a_database_that_another_process_holds_stops_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pitcheck.cache.store.WAIT", 0.05)
    with sqlite3.connect(store.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert store.get("stage", "key 1") is None
        store.put("stage", "key 4", b"content")
        other.execute("ROLLBACK")
    other.close()
    assert "locked" in store.trouble
    assert Store(store.path).get("stage", "key 1") == b"content 1"


def test_the_oldest_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE, most_bytes=100_000)
    for number in range(40):
        store.put("stage", f"{number:02}", bytes(3500))
        _changed(store, "UPDATE entries SET used = ? WHERE key = ?", number, f"{number:02}")
    assert store.contents().size <= 100_000
    assert store.get("stage", "00") is None
    assert store.get("stage", "39") == bytes(3500)
    store.put("stage", "huge", bytes(9 << 20))
    assert store.get("stage", "huge") is None


def test_what_is_cleared_is_gone(store: Store) -> None:
    store.clear()
    assert not store.path.exists()
    assert store.get("stage", "key 1") is None
    store.clear()


WRITER = """
import sys
from pathlib import Path
from pitcheck.cache.store import Store
store, name = Store(Path(sys.argv[1])), sys.argv[2]
for number in range(100_000):
    store.put("stage", f"{name} {number}", f"{name} {number} ".encode() * 50)
    if store.trouble:
        print("trouble", store.trouble, flush=True)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_two_writers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """Entries that a writer said to be written are there after any kill; nothing else is wrong."""
    rng = random.Random(5)
    for turn in range(20):
        path = tmp_path / FILE
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), f"{turn}{name}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in "ab"
        ]
        time.sleep(0.25 + rng.random() * 0.2)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        said = [writer.communicate()[0].splitlines() for writer in writers]
        store = Store(path)
        assert store.verified().damaged == 0
        for name, lines in zip("ab", said, strict=True):
            assert not any("trouble" in line for line in lines)
            for number in map(int, lines[-50:]):
                key = f"{turn}{name} {number}"
                assert store.get("stage", key) == f"{key} ".encode() * 50
        assert not store.trouble
    shutil.rmtree(tmp_path)
