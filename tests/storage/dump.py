"""Kafka's own DumpLogSegments, run on files."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.artifacts import kafka_jars
from linearizability.targets.java import java

RELEASE = "4.3.1"
COMPLAINTS = (
    "Found ",
    "corrupt",
    "Mismatches",
    "Index timestamp",
    "Non-secutive",
    "Non-consecutive",
    "isvalid: false",
    "rror",
)
"""Texts by which the tool reports errors."""


def dump(files: Sequence[Path], *options: str) -> str:
    """The tool's output for these files."""
    class_path = ":".join(str(jar) for jar in kafka_jars(RELEASE))
    done = subprocess.run(
        [
            str(java()),
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path,
            "org.apache.kafka.tools.DumpLogSegments",
            *options,
            "--files",
            ",".join(str(file) for file in files),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def complaints(text: str) -> list[str]:
    """Lines that report errors, without the one about the first offset that the tool prints for every file, Kafka's too."""
    text = re.sub(r"Non-consecutive offsets in .*\n\s*-1 is followed by \d+\n", "", text)
    return [line for line in text.splitlines() if any(word in line for word in COMPLAINTS)]
