"""Apache Kafka's own classes, driven by one Java source that reads a step a line and answers each with a line of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from linearizability.targets.artifacts import java, kafka_jars

RELEASE = "4.3.1"
TIMEOUT_S = 600
LONGEST_ERROR = 3_000
FOLDERS = Path("/dev/shm") if Path("/dev/shm").exists() else None
"""Where Kafka keeps its files: it flushes often."""


class Pair(Protocol):
    """One of ours, with the steps for Kafka's."""

    @property
    def steps(self) -> Sequence[str]: ...


AnyPair = TypeVar("AnyPair", bound=Pair)


def answers_of(source: Path, steps: Iterable[str], *arguments: str) -> list[Any]:
    """What the source prints as JSON when it has read all the steps; lines of Kafka's logging are left out."""
    class_path = ":".join(str(jar) for jar in kafka_jars(RELEASE))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF"]
    done = subprocess.run(
        [str(java()), *options, "-cp", class_path, str(source), *arguments],
        input="".join(f"{step}\n" for step in steps),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-LONGEST_ERROR:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def differences(
    source: Path,
    seeds: range,
    drawn: Callable[[Path, int], AnyPair],
    first_difference: Callable[[AnyPair, list[Any]], str | None],
    at_once: int,
) -> Iterator[str]:
    """The first difference of each drawn pair that differs; `at_once` pairs share a process of Kafka's, and a folder."""
    for first in range(seeds.start, seeds.stop, at_once):
        some = range(first, min(first + at_once, seeds.stop))
        with TemporaryDirectory(dir=FOLDERS) as folder:
            pairs = [drawn(Path(folder), seed) for seed in some]
            answers = iter(answers_of(source, (step for pair in pairs for step in pair.steps), folder))
        for seed, pair in zip(some, pairs, strict=True):
            found = first_difference(pair, [next(answers) for _ in pair.steps])
            if found is not None:
                yield f"seed {seed}, {found}"
        assert next(answers, None) is None
