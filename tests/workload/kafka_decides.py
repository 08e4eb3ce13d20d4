"""Kafka's own client classes, asked many questions in one short incarnation of a JVM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linearizability.targets.artifacts import java, kafka_jars

SOURCE = Path(__file__).parent / "java" / "Decide.java"
RELEASE = "4.3.1"
TIMEOUT_S = 240


def kafka_decides(questions: Iterable[dict[str, Any]], source: Path = SOURCE) -> list[Any]:
    """One answer a question (see Decide.java, or what another source says of itself)."""
    asked = [json.dumps(question) for question in questions]
    jars = ":".join(str(jar) for jar in kafka_jars(RELEASE))
    command = [
        str(java()),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dlog4j2.level=OFF",
        "-cp",
        jars,
        str(source),
    ]
    text = "".join(f"{line}\n" for line in asked)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), done.stderr
    return answers
