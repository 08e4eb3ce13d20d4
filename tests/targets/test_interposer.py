"""The interposer, by small programs: what a loss of power leaves, what a full disk refuses, what a wrong clock shows."""

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets.interposer import building
from linearizability.targets.interposer.handle import Interposer
from linearizability.targets.target import TargetError

PROGRAM = """
import json, mmap, os, sys, time
open_files, maps = {}, {}
def run(word, *arguments):
    if word == "open":
        name, flags = arguments
        open_files[name] = os.open(name, os.O_RDWR | os.O_CREAT | sum(getattr(os, flag) for flag in flags), 0o644)
    elif word == "write":
        return os.write(open_files[arguments[0]], arguments[1].encode())
    elif word == "pwrite":
        return os.pwrite(open_files[arguments[0]], arguments[1].encode(), arguments[2])
    elif word == "append":
        descriptor = open_files[arguments[0]]
        return os.pwritev(descriptor, [b"", *(part.encode() for part in arguments[1])], os.fstat(descriptor).st_size)
    elif word == "truncate":
        os.ftruncate(open_files[arguments[0]], arguments[1])
    elif word == "fsync":
        os.fsync(open_files[arguments[0]])
    elif word == "fdatasync":
        os.fdatasync(open_files[arguments[0]])
    elif word == "close":
        os.close(open_files.pop(arguments[0]))
    elif word == "rename":
        os.replace(*arguments)
    elif word == "unlink":
        os.unlink(arguments[0])
    elif word == "map":
        maps[arguments[0]] = mmap.mmap(open_files[arguments[0]], 0)
    elif word == "store":
        name, text, at = arguments
        maps[name][at:at + len(text)] = text.encode()
    elif word == "msync":
        maps[arguments[0]].flush()
    elif word == "clocks":
        return [time.time(), time.clock_gettime(time.CLOCK_REALTIME), time.monotonic()]
reported = []
for step in json.loads(sys.argv[1]):
    try:
        reported.append(run(*step))
    except OSError as error:
        reported.append(error.strerror)
print(json.dumps(reported))
"""


@pytest.fixture
def node(tmp_path):
    reason = building.obstacle()
    if reason:
        pytest.skip(reason)
    data = tmp_path / "data"
    data.mkdir()
    return Interposer(tmp_path / "interposer", data)


def run(node: Interposer, *steps: Any, folder: Path | None = None) -> list[Any]:
    """Do the steps in an interposed process; the result of each, or its error's text."""
    import os

    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, json.dumps(steps)],
        cwd=folder or node.data,
        env=os.environ | node.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def content(node: Interposer, name: str) -> str:
    return (node.data / name).read_text()


def test_a_path_that_the_loader_would_split_is_no_obstacle(tmp_path):
    """It parts LD_PRELOAD at colons and blanks, as in the name of a folder of results."""
    if reason := building.obstacle():
        pytest.skip(reason)
    data = tmp_path / "reference:3 run" / "data"
    data.mkdir(parents=True)
    node = Interposer(data.parent / "interposer", data)
    run(node, ("open", "a", []), ("write", "a", "never flushed"))
    assert node.lose_power() == len("never flushed")


@pytest.mark.parametrize("flush", ["fsync", "fdatasync"])
def test_what_was_appended_after_the_flush_is_lost(node, flush):
    run(node, ("open", "a", []), ("write", "a", "durable"), (flush, "a"), ("write", "a", " lost"))
    assert content(node, "a") == "durable lost"
    assert node.lose_power() == len(" lost")
    assert content(node, "a") == "durable"


def test_a_share_of_it_may_be_kept_and_is_durable_then(node):
    run(node, ("open", "a", []), ("write", "a", "durable"), ("fsync", "a"), ("append", "a", ["0123", "456789"]))
    node.lose_power(kept=0.5)
    assert content(node, "a") == "durable01234"
    node.lose_power()
    assert content(node, "a") == "durable01234"


def test_bytes_of_an_earlier_incarnation_are_lost_too(node):
    run(node, ("open", "a", []), ("write", "a", "never flushed"))
    run(node, ("open", "a", ["O_APPEND"]), ("write", "a", ", in two runs"))
    assert content(node, "a") == "never flushed, in two runs"
    node.lose_power()
    assert content(node, "a") == ""


def test_durable_bytes_that_were_changed_come_back(node):
    made = [("open", name, []) for name in "abc"]
    made += [step for name in "abc" for step in (("write", name, "durable"), ("fsync", name))]
    run(node, *made, ("pwrite", "a", "xx", 2), ("truncate", "b", 3), ("open", "c", ["O_TRUNC"]), ("write", "c", "new"))
    assert [content(node, name) for name in "abc"] == ["duxxble", "dur", "new"]
    node.lose_power()
    assert [content(node, name) for name in "abc"] == ["durable"] * 3


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_with_a_journal_a_truncation_stays_and_what_was_written_after_it_is_lost(node, kept):
    """With the place of a truncation the old bytes come back, unless the file was flushed since."""
    made = [("open", name, []) for name in "abcd"]
    made += [step for name in "abcd" for step in (("write", name, "durable"), ("fsync", name))]
    cut = [("truncate", name, length) for name, length in zip("abc", (3, 5, 4), strict=True)]
    run(node, *made, *cut, ("append", "a", ["new"]), ("truncate", "b", 2), ("truncate", "b", 9), ("fsync", "c"))
    run(node, ("open", "d", []), ("pwrite", "d", "xx", 2))
    node.lose_power(kept, journaled=True)
    left = "dur" if not kept else "durnew"
    assert [content(node, name) for name in "acd"] == [left, "dura", "durable"]
    assert content(node, "b").rstrip("\0") == "du"


def test_a_name_is_durable_at_once_and_what_it_names_is_not(node):
    run(
        node,
        ("open", "a", []),
        ("write", "a", "old"),
        ("fsync", "a"),
        ("open", "new", []),
        ("write", "new", "not flushed"),
        ("rename", "new", "a"),
        ("open", "b", []),
        ("write", "b", "flushed"),
        ("fsync", "b"),
        ("rename", "b", "c"),
    )
    node.lose_power()
    assert {path.name: path.read_text() for path in node.data.iterdir()} == {"a": "", "c": "flushed"}


def test_what_was_stored_in_mapped_memory_is_lost_unless_it_was_flushed(node):
    steps = [("open", "a", []), ("truncate", "a", 16), ("fsync", "a"), ("map", "a")]
    run(node, *steps, ("store", "a", "flushed", 0), ("msync", "a"), ("store", "a", "lost", 8))
    assert content(node, "a") == "flushed\0lost\0\0\0\0"
    node.lose_power()
    assert content(node, "a") == "flushed" + "\0" * 9


def test_files_in_other_places_are_left_alone(node, tmp_path):
    node.break_disk("full")
    assert run(node, ("open", "a", []), ("write", "a", "elsewhere"), folder=tmp_path)[1] == len("elsewhere")
    node.lose_power()
    assert (tmp_path / "a").read_text() == "elsewhere"


def test_a_full_disk_takes_a_little_and_tears_the_write(node):
    run(node, ("open", "a", []), ("write", "a", "before "), ("fsync", "a"))
    node.break_disk("full", bytes_left=4)
    full = "No space left on device"
    assert run(node, ("open", "a", ["O_APPEND"]), ("write", "a", "torn off"), ("write", "a", "more")) == [None, 4, full]
    assert run(node, ("open", "a", []), ("pwrite", "a", "B", 0), ("pwrite", "a", "x", 11)) == [None, 1, full]
    assert run(node, ("open", "b", [])) == [full] and not (node.data / "b").exists()
    assert content(node, "a") == "Before torn"
    node.mend_disk()
    assert run(node, ("open", "a", ["O_APPEND"]), ("write", "a", " and mended")) == [None, 11]


def test_a_broken_disk_fails_writes_and_flushes(node):
    node.break_disk("broken")
    broken = "Input/output error"
    run(node, ("open", "elsewhere", []), folder=node.folder)
    assert run(node, ("open", "a", [])) == [broken]
    node.mend_disk()
    run(node, ("open", "a", []))
    node.break_disk("broken")
    steps = [("open", "a", []), ("write", "a", "x"), ("truncate", "a", 9), ("fsync", "a"), ("fdatasync", "a")]
    assert run(node, *steps)[1:] == [broken] * 4


@pytest.mark.parametrize("seconds", [3600.0, -90.25])
def test_the_wall_clock_is_wrong_and_the_monotonic_one_is_not(node, seconds):
    node.set_clock(0)
    wall, precise, monotonic = run(node, ("clocks",))[0]
    node.set_clock(seconds)
    later_wall, later_precise, later_monotonic = run(node, ("clocks",))[0]
    passed = later_monotonic - monotonic
    assert 0 < passed < 60
    assert later_wall - wall == pytest.approx(passed + seconds, abs=1)
    assert later_precise - precise == pytest.approx(passed + seconds, abs=1)


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_a_disk_ends_as_the_model_says(node, seed):
    """Random steps on three names, against the model that interposer.c states, in several runs."""
    chance = random.Random(seed)
    files: dict[str, list[str]] = {}  # name -> what it holds, what is durable of it
    for _ in range(3):
        steps: list[Any] = []
        opened: set[str] = set()
        for _ in range(120):
            name = chance.choice("abc")
            if name not in opened:
                steps.append(("open", name, []))
                opened.add(name)
                files.setdefault(name, ["", ""])
            held = files[name][0]
            text = "".join(chance.choices("xyz", k=chance.randint(1, 9)))
            match chance.choice(["append", "append", "pwrite", "truncate", "fsync", "rename", "unlink", "close"]):
                case "append":
                    steps.append(("append", name, [text, text]))
                    files[name][0] = held + text + text
                case "pwrite":
                    at = chance.randint(0, len(held))
                    steps.append(("pwrite", name, text, at))
                    files[name][0] = held[:at] + text + held[at + len(text) :]
                case "truncate":
                    length = chance.randint(0, len(held))
                    steps.append(("truncate", name, length))
                    files[name][0] = held[:length]
                case "fsync":
                    steps.append(("fsync", name))
                    files[name][1] = held
                case "rename":
                    to = chance.choice([other for other in "abc" if other != name])
                    steps += [("close", each) for each in opened & {name, to}]
                    steps.append(("rename", name, to))
                    opened -= {name, to}
                    files[to] = files.pop(name)
                case "unlink":
                    steps += [("close", name), ("unlink", name)]
                    opened.discard(name)
                    del files[name]
                case _:
                    steps.append(("close", name))
                    opened.discard(name)
        assert not [reported for reported in run(node, *steps) if isinstance(reported, str)]
        assert {path.name: path.read_text() for path in node.data.iterdir()} == {
            n: held for n, (held, _) in files.items()
        }
    node.lose_power()
    assert {path.name: path.read_text() for path in node.data.iterdir()} == {n: kept for n, (_, kept) in files.items()}
    assert list(node.copies.iterdir()) == []


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert "there is no C compiler" in building.obstacle() and "apt-get install gcc" in building.obstacle()
    with pytest.raises(TargetError, match="there is no C compiler"):
        building.library()


def test_a_compiler_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    assert "false failed" in building.obstacle()


def test_is_compiled_by_several_runs_at_once(tmp_path, monkeypatch):
    """Each in its namespace has the process id 1: their unfinished libraries may not be one file."""
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    with ThreadPoolExecutor() as pool:
        made = {future.result() for future in [pool.submit(building.library) for _ in range(3)]}
    assert [*tmp_path.glob("interposer/*")] == [*made]
