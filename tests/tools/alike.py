"""One tool's output about two brokers, made alike where it must differ: ids, addresses, folders, times."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.tools.jvm import Ran


@dataclass(frozen=True, slots=True)
class Step:
    """One call; `{boot}`, `{controller}`, `{data}` and `{file}` are the node's own. `stdin` goes to the tool."""

    tool: str
    arguments: str
    stdin: str = ""
    files: Mapping[str, Any] | None = None
    """What `{file}` holds, as JSON."""
    is_short: bool = False
    """Whether CI has time for it."""
    needs: str = "--bootstrap-server {boot}"


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
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def compare(both: Sequence[Runs], steps: Iterable[Step], differs: Mapping[str, str]) -> None:
    """Run the steps on Kafka and on the reference, and hold their lines against each other. Errors: AssertionError."""
    wrong: list[str] = []
    for step in steps:
        name = f"{step.tool} {step.arguments}".strip()
        theirs, ours = (sorted(each.run(step)) for each in both)
        found = [*difflib.unified_diff(theirs, ours, "kafka", "reference", lineterm="", n=0)]
        if bool(found) != (name in differs):
            wrong.append("\n".join([name, *(found or ["is alike, and is listed as different"])]))
    assert not wrong, "\n\n".join(wrong)
