"""Apache Kafka's own classes, driven by one Java source that reads a step a line and answers each with a line of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linearizability.targets.artifacts import java, kafka_jars

RELEASE = "4.3.1"
TIMEOUT_S = 600
LONGEST_ERROR = 3_000


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
