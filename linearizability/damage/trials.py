"""One trial: a damaged folder, and the outcome of a start on it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from linearizability.damage.content import ERROR, Observation, Producer, observe
from linearizability.damage.folder import HOW_NAMES, SWAPPED, Damage, Folder, damage, kind_of

CLEAN, KILLED = "clean", "killed"


class Verdict(StrEnum):
    """The outcome of a start on a damaged folder, the worst last."""

    RIGHT = "right"
    """The broker serves the same as before."""
    MORE = "more"
    """Deleted records are served again, and nothing is missing."""
    REFUSED = "refused by name"
    """The start, or the partition, is refused, and the log names the file or folder."""
    CHECKSUM = "checksum"
    """A client gets bytes with a wrong checksum, which its library detects."""
    REPORTED = "less, reported"
    """Less is served, and a warning in the log names the partition."""
    UNNAMED = "refused, unnamed"
    """The start, or a request, fails, and the log does not name the file."""
    LESS = "silently less"
    """Less, or something else, is served, and the log does not report it."""


FAILURES = (Verdict.UNNAMED, Verdict.LESS)


class Trial(NamedTuple):
    """A trial's damage and its outcome."""

    number: int
    end: str
    kind: str
    damage: str
    how: str
    verdict: Verdict
    why: str


class Broker(NamedTuple):
    """The functions that make a folder, and observe a broker that is started on one."""

    name: str
    make_folder: Callable[[bool], tuple[Folder, Producer]]
    observe: Callable[[Folder, Producer], tuple[Observation, Sequence[tuple[str, str]]]]
    """Start on a folder and read everything. Errors: the exception of the start, or of a request."""


class Ground(NamedTuple):
    """The starting point of trials."""

    folder: Folder
    producer: Producer
    expected: Observation
    kinds: dict[str, list[str]]


def ground_of(broker: Broker, end: str) -> Ground:
    """The folder after one kind of end, and the observation of an undamaged start on it."""
    folder, producer = broker.make_folder(end == CLEAN)
    expected, _ = broker.observe(folder, producer)
    refused = {name: value for name, value in expected.items() if _is_error(value)}
    if refused:
        raise RuntimeError(f"{broker.name} does not serve its own folder: {refused}")
    kinds: dict[str, list[str]] = {}
    for path in sorted(folder):
        if kind := kind_of(path):
            kinds.setdefault(kind, []).append(path)
    return Ground(folder, producer, expected, kinds)


def draw(ground: Ground, end: str, number: int) -> tuple[Folder, Damage]:
    """Draw the damage of a trial: a kind of file, evenly, then the file, then the way of the damage."""
    chance = Random(f"{end}/{number}")
    while True:
        kind = chance.choice(sorted(ground.kinds))
        path = chance.choice(ground.kinds[kind])
        found = damage(ground.folder, path, chance.choice(HOW_NAMES), chance)
        if found is not None:
            return found


def run(broker: Broker, ground: Ground, end: str, number: int) -> Trial:
    """Run one trial: damage the folder, start a broker on it, read everything, and judge."""
    folder, done = draw(ground, end, number)
    try:
        seen, said = broker.observe(folder, ground.producer)
    except Exception as error:
        verdict, why = _judge_refusal(done, error)
    else:
        verdict, why = judge(ground.expected, seen, said)
    return Trial(number, end, kind_of(done.path), str(done), done.how, verdict, why)


def _judge_refusal(done: Damage, error: Exception) -> tuple[Verdict, str]:
    why = "".join(traceback.format_exception_only(error)).strip()
    paths = [Path(done.path), *([Path(done.detail.removeprefix("with "))] if done.how == SWAPPED else [])]
    named = any(path.name in why or (path.parent.name and path.parent.name in why) for path in paths)
    return (Verdict.REFUSED if named else Verdict.UNNAMED), why[:MOST_TEXT]


MOST_TEXT = 300


def judge(expected: Observation, seen: Observation, said: Sequence[tuple[str, str]]) -> tuple[Verdict, str]:
    """Compare an observation with that before the damage; `said` is the broker's log."""
    warnings = [text for level, text in said if level in ("warning", "error")]
    worst, why = Verdict.RIGHT, ""
    for name, value in expected.items():
        verdict = _judge_one(name, value, seen.get(name), warnings)
        if ORDER.index(verdict) > ORDER.index(worst):
            worst, why = verdict, f"{name}: {_short(value)} -> {_short(seen.get(name))}"
    return worst, f"{why} {warnings[:1] if why else ''}".strip()[:MOST_TEXT]


ORDER = [*Verdict]


def _judge_one(name: str, value: Any, found: Any, warnings: Sequence[str]) -> Verdict:
    if found == value:
        return Verdict.RIGHT
    if "CorruptBatch" in str(found) or "CRC" in str(found):
        return Verdict.CHECKSUM
    about = name.rpartition(" ")[2]
    is_named = any(each in text for text in warnings for each in FOLDERS.get(about, (about, METADATA)))
    if _is_error(found):
        return Verdict.REFUSED if is_named else Verdict.UNNAMED
    if _is_more(name, value, found):
        return Verdict.MORE
    return Verdict.REPORTED if is_named else Verdict.LESS


METADATA = "__cluster_metadata-0"
"""The metadata log's folder. A loss in it can affect every other observation."""
FOLDERS = {
    "transactions-0": ("transactions-0", "__transaction_state-0", METADATA),
    "offsets": ("__consumer_offsets-0", METADATA),
    "retry": ("plain-0", METADATA),
    "topics": (METADATA,),
}
"""Subject of an observation -> its folders; for other subjects the folder of the same name, and the metadata log's."""


def _is_error(found: Any) -> bool:
    if isinstance(found, list):
        return any(isinstance(each, str) for each in found)
    return isinstance(found, str) and found.startswith(ERROR)


def _is_more(name: str, value: Any, found: Any) -> bool:
    if name.startswith("start of"):
        return found < value
    if name.startswith(("records of", "committed records of")):
        return found[len(found) - len(value) :] == value
    return name.startswith("times of") and all(new <= old for new, old in zip(found, value, strict=True) if old >= 0)


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 14:
        return f"{len(value)} records"
    return str(value)[:120]


@cache
def reference() -> Broker:
    """The reference, in this process."""
    from linearizability.damage import reference as own

    def observe_folder(folder: Folder, producer: Producer) -> tuple[Observation, Sequence[tuple[str, str]]]:
        started = own.start(folder)
        return observe(started.ask, producer, own.NOW), started.said

    return Broker("reference", own.make_folder, observe_folder)
