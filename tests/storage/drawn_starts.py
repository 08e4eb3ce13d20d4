"""Drawn damages of a log directory, and the results of a start: the reference on a copy, Apache Kafka's `LogManager` on another.

    python -m tests.storage.drawn_starts 0 2000

Checkpoints, notes, indexes, snapshots and ids are damaged, or are those of another moment. Ours may do less harm than Kafka:
- It refuses, by an error that names the file or the folder, directories that Kafka 4.3.1 serves: a log file that is missing,
  shorter than its indexes or its checksum say, or damaged after a clean end; a log that lost flushed records; an id that
  `segment-checksums` does not confirm (Kafka puts the folder aside, and serves an empty log); a log start beyond the end after a
  clean end (Kafka removes all).
- It serves where Kafka takes the log directory offline, or ends by an exception that names no file: with unreadable recovery points
  everything is scanned, without high watermarks each begins at the log's start, epochs are read from the batches, and what is clean
  is compacted once more. Only where the log starts are unreadable ours refuses, too: deleted records would be served.
- Both accept a high watermark that is too high up to the log end; so they do with a log start that is too high after a kill.
- Producers and look-ups are compared with the log itself: after a stale note of a clean end, or with stale indexes, Kafka knows
  no producers, and finds records by wrong timestamps.
- Without `segment-checksums`, as in Kafka's folders, a transaction index that is missing, or has too few entries, is noticed by
  neither: records of aborted transactions are committed ones.
- A producer snapshot that is too old is noticed by the batches behind the last index entry alone.
- Neither knows after a start which markers are above the high watermark: the last stable offset may be higher than before.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from linearizability.damage.folder import Folder
from reference.protocol.primitives import TimestampMs
from reference.storage.checkpoints import LOG_START_OFFSETS, text_of_uuid
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS
from reference.storage.simulated_disk import SimulatedDisk
from tests.kafka_classes import answers_of
from tests.storage.drawn_folders import COMPACTED, TOPICS, Moment, Started, Writer, disk_of, faults, state
from tests.storage.folder_damages import draw

SOURCE = Path(__file__).parent / "java" / "Starts.java"
AT_ONCE = 250
STEPS = 60
AFTER_MS = 10_000


@dataclass
class Case:
    """A damaged directory, and the result of our start."""

    seed: int
    what: str
    folder: Folder
    held: dict[str, dict[str, Any]]
    """The contents of the logs at that moment."""
    whole: dict[str, dict[str, Any]]
    """The result of our start without the damage."""
    now: int
    ours: dict[str, Any]

    def names(self, text: str) -> bool:
        """Whether an error names a file of the directory, or the folder of a log."""
        names = {part for path in self.folder for part in PurePosixPath(path).parts}
        return any(name in text for name in names | {LOG_START_OFFSETS})


def make(seed: int) -> Case:
    chance = random.Random(seed)
    writer = Writer(chance)
    writer.run(chance.randrange(5, STEPS))
    earlier = writer.moment()
    writer.run(chance.randrange(1, STEPS))
    is_clean, is_kafkas, is_newer = (chance.random() < share for share in (0.5, 0.5, 0.25))
    later = writer.moment()
    if is_clean:
        writer.end()
        later = later._replace(folder=writer.files)
    moments = (earlier, later) if is_newer else (later, earlier)
    base, other = (_as_kafkas(each) for each in moments) if is_kafkas else moments
    folder, what = draw(base.folder, other.folder, chance)
    now = writer.now + AFTER_MS
    words = ["clean" if is_clean and not is_newer else "killed"]
    words += ["without checksums"] * is_kafkas + ["the other moment is newer"] * is_newer
    whole = start(base.folder, now)["topics"]
    return Case(seed, f"{', '.join(words)}: {what}", folder, base.held, whole, now, start(folder, now))


def _as_kafkas(moment: Moment) -> Moment:
    """The files without those that Kafka does not write."""
    return moment._replace(folder={path: data for path, data in moment.folder.items() if path != SEGMENT_CHECKSUMS})


def start(folder: Folder, now: int) -> dict[str, Any]:
    """The result of the reference's start, in the form of Starts.java, with its log messages."""
    disk = disk_of(folder)
    try:
        started = Started(disk, TimestampMs(now))
    except (CorruptFile, StorageError) as error:
        return {"refused": str(error), "then": _refused(disk, now)}
    found: dict[str, Any] = {topic: {"refused": text} for topic, text in started.refused.items()}
    for topic, log in started.logs.items():
        found[topic] = state(log, started.high_watermarks[topic]) | {"faults": [*faults(log)]}
    return {"topics": found, "said": started.said, "then": _refused(disk, now) if started.refused else set(TOPICS)}


def _refused(disk: SimulatedDisk, now: int) -> set[str]:
    """The logs that a second start refuses."""
    try:
        return {*Started(disk, TimestampMs(now)).refused}
    except (CorruptFile, StorageError):
        return set(TOPICS)


def kafkas(place: Path, cases: list[Case]) -> Iterator[dict[str, Any]]:
    steps: list[str] = []
    for case in cases:
        folder = place / str(case.seed)
        for path, data in case.folder.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        topics = {
            topic: {"id": text_of_uuid(id), "config": {"cleanup.policy": "compact" if topic == COMPACTED else "delete"}}
            for topic, id in TOPICS.items()
        }
        defaults = {"retention.ms": "-1", "segment.index.bytes": "2048", "index.interval.bytes": "100"}
        steps.append(json.dumps({"folder": str(folder), "now": case.now, "topics": topics, "defaults": defaults}))
    yield from answers_of(SOURCE, steps)


def differences(seeds: range) -> Iterator[str]:
    for first in range(seeds.start, seeds.stop, AT_ONCE):
        cases = [make(seed) for seed in range(first, min(first + AT_ONCE, seeds.stop))]
        with TemporaryDirectory() as place:
            for case, theirs in zip(cases, kafkas(Path(place), cases), strict=True):
                yield from compare(case, theirs)


def compare(case: Case, theirs: dict[str, Any]) -> Iterator[str]:
    """Cases in which ours serves less or more than the whole directory and Kafka do, or refuses without a name or only once."""
    head = f"seed {case.seed}, {case.what}: "
    refused = case.ours.get("refused")
    if refused is not None:
        if not case.names(refused):
            yield f"{head}refused by {refused!r}"
        if case.ours["then"] != set(TOPICS):
            yield f"{head}refused once by {refused!r}"
        return
    for topic in TOPICS:
        mine = case.ours["topics"][topic]
        if "refused" in mine:
            if topic not in mine["refused"] or topic not in case.ours["then"]:
                yield f"{head}{topic} is refused by {mine['refused']!r}, and then: {topic in case.ours['then']}"
            continue
        kafkas = theirs["topics"][topic] if "topics" in theirs else theirs
        is_reported = any(f"{topic}-0: recovered" in text and "cut off 0" not in text for text in case.ours["said"])
        for fault in _faults(mine, case.whole[topic], case.held[topic], kafkas, is_reported=is_reported):
            if not (fault.startswith("producer ") and ".snapshot" in case.what):
                yield f"{head}{topic}: {fault}; Kafka {kafkas.get('refused', 'serves')}; said {case.ours['said']}"


def _faults(
    mine: dict[str, Any], whole: dict[str, Any], held: dict[str, Any], kafkas: dict[str, Any], *, is_reported: bool
) -> Iterator[str]:
    """Compare a log's state with Kafka's, with `whole`, ours without the damage, and with `held`, its contents before."""
    if "refused" in kafkas:
        kafkas = whole
    less = {*whole["batches"], *kafkas["batches"]} - {*mine["batches"]}
    if less and not is_reported and not {*kafkas["batches"]} <= {*mine["batches"]}:
        yield f"batches {sorted(less)} are not served"
    if {*mine["batches"]} - {*whole["batches"]} - {*held["batches"]} - {*kafkas["batches"]}:
        yield f"other batches are served: {mine['batches']}"
    if not min(whole["start"], kafkas["start"]) <= mine["start"] <= max(whole["start"], kafkas["start"]):
        yield f"it begins at {mine['start']}, not at {whole['start']}, in Kafka at {kafkas['start']}"
    for name in ("high watermark", "last stable"):
        if mine[name] > max(whole[name], kafkas[name], mine["start"]):
            yield f"{name} {mine[name]}, not {whole[name]}, in Kafka {kafkas[name]}"
    if mine["high watermark"] > max(held["high watermark"], kafkas["high watermark"], mine["start"]):
        yield f"high watermark {mine['high watermark']}, and it was {held['high watermark']}"
    if mine["aborted"] != kafkas["aborted"]:
        yield from mine["faults"]
    else:
        yield from (fault for fault in mine["faults"] if not fault.startswith("what the marker"))


if __name__ == "__main__":
    first_seed, last_seed = map(int, sys.argv[1:])
    for difference in differences(range(first_seed, last_seed)):
        print(difference)
