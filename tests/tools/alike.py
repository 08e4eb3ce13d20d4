"""One tool's output about two brokers, made alike where it must differ: ids, addresses, folders, times."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.tools.jvm import Ran
from tests.waiting import EVERY_S

LOOKS = {"--describe", "--list", "--verify", "describe", "list"}
"""Words of a call that changes nothing."""
APPLIED_WITHIN_S = 60.0
"""How long a call may show an old state: the controller acknowledges a change before each broker has applied it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a tool. The node's own values replace `{boot}`, `{controller}`, `{data}` and `{file}`; `stdin` is its input."""

    tool: str
    arguments: str
    stdin: str = ""
    files: Mapping[str, Any] | None = None
    """The contents of `{file}`, as JSON."""
    is_short: bool = False
    """Whether CI has time for it."""
    needs: str = "--bootstrap-server {boot}"

    @property
    def name(self) -> str:
        return f"{self.tool} {self.arguments}".strip()

    @property
    def changes_nothing(self) -> bool:
        return self.tool == "kafka-get-offsets" or not LOOKS.isdisjoint(self.arguments.split())


class Runs(Protocol):
    """A broker or a cluster that steps are run on."""

    def run(self, step: Step) -> list[str]: ...


STACK = re.compile(r"\s+at |\s+\.\.\. \d+ more")
LIKE = [
    (re.compile(r"\b\d{13}\b"), "TIME"),
    (re.compile(r"\b(adminclient|producer|consumer)-\d+"), r"\1-N"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:]?\d*"), "DATE"),
    (re.compile(r"\d+(\.\d+)? (ms|MB/sec|records/sec)"), r"N \2"),
    (re.compile(r"(\"?(?:avg_throughput|target_throughput|timestamp)\"?:)[^,}]+"), r"\1N"),
    (re.compile(r"(Epoch: |HighWatermark: |\"size\":|size: |lastTimestamp: )\d+"), r"\1N"),
    (re.compile(r"^(\d+)\t\d+\.\d+$", re.M), r"\1 N"),
    (re.compile(r"(th = )\d+"), r"\1N"),
    (re.compile(r"^DATE, DATE, .*", re.M), "DATES AND RATES"),
    (re.compile(r"^1\s+UUID\s+\d+", re.M), "1 UUID N"),
    (re.compile(r"(ProducerId: ?|producerId: |baseSequence: |CRC: |crc: )-?\d+"), r"\1N"),
    (re.compile(r"^\d+(\t| +)(0 +\t?\d)", re.M), r"N\1\2"),
]
SETTINGS = re.compile(r"( are |\bConfigs: )(.*)")
"""Settings of a user, client or topic, which the tools print in the order of a hash map."""


def alike(ran: Ran, names: Mapping[str, str], ports: Iterable[int]) -> list[str]:
    """The lines of a run, without what differs from broker to broker; `names` are texts that become their names."""
    errors = [line for line in ran.errors.splitlines() if not STACK.match(line)]
    text = "\n".join([f"exit code {ran.code}", ran.out, *errors])
    for name, own in names.items():
        text = text.replace(own, name.upper())
    for port in ports:
        text = re.sub(rf"\b{port}\b", "PORT", text)
    for pattern, word in LIKE:
        text = pattern.sub(word, text)
    text = SETTINGS.sub(lambda found: found[1] + ",".join(sorted(re.split(", ?", found[2]))), text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def difference(both: Sequence[Runs], step: Step) -> list[str]:
    theirs, ours = (sorted(each.run(step)) for each in both)
    return [*difflib.unified_diff(theirs, ours, "kafka", "reference", lineterm="", n=0)]


def compare(both: Sequence[Runs], steps: Iterable[Step], differs: Mapping[str, str]) -> None:
    """Run the steps on Kafka and on the reference, and compare their lines. Errors: AssertionError.

    A call that changes nothing is repeated until both have applied what was changed before.
    """
    wrong: list[str] = []
    for step in steps:
        until = time.monotonic() + APPLIED_WITHIN_S
        found = difference(both, step)
        while bool(found) != (step.name in differs) and step.changes_nothing and time.monotonic() < until:
            time.sleep(EVERY_S)
            found = difference(both, step)
        if bool(found) != (step.name in differs):
            wrong.append("\n".join([step.name, *(found or ["is alike, and is listed as different"])]))
    assert not wrong, "\n\n".join(wrong)
