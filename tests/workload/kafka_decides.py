"""Kafka's own client classes, asked many questions in one run of a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.kafka_classes import answers_of

SOURCE = Path(__file__).parent / "java" / "Decide.java"


def kafka_decides(questions: Iterable[dict[str, Any]], source: Path = SOURCE) -> list[Any]:
    """One answer for each question; Decide.java, or another source, describes their form."""
    asked = [json.dumps(question) for question in questions]
    answers = answers_of(source, asked)
    assert len(answers) == len(asked)
    return answers
