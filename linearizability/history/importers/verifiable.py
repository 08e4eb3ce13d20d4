"""The output of Kafka's VerifiableProducer and VerifiableConsumer (with --verbose): JSON lines of events.

    {"timestamp":…,"name":"producer_send_success","key":null,"value":"7","topic":"t","partition":0,"offset":7}
    {"timestamp":…,"name":"record_data","key":null,"value":"7","topic":"t","partition":0,"offset":7}

One file holds the lines of one tool, or a folder those of many. The producer does not say when a send began, so each is
taken to have begun when the tool started: rules that compare with the clock see overlapping sends and stay silent. A send
error is `info`, because the tool does not tell which errors are definite. Values must be unique (--value-prefix).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linearizability.history.reader import History, HistoryError, derive_events, numbered_lines

NAMES = frozenset(
    (
        *("startup_complete", "shutdown_complete", "producer_send_success", "producer_send_error", "tool_data"),
        *("records_consumed", "record_data", "partitions_assigned", "partitions_revoked", "offsets_committed"),
    )
)
"""The events of the two tools."""


def read(path: Path) -> Iterator[History]:
    """One history of all the files."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    events: list[dict[str, Any]] = []
    for process, file in enumerate(files):
        events += _events(file, process, len(events))
    events.sort(key=lambda event: event["time"])
    yield derive_events(path.stem, events, file=str(path))


def _events(file: Path, process: int, first: int) -> Iterator[dict[str, Any]]:
    started = None
    number = first
    for line, text, _ in numbered_lines(file):
        try:
            said = json.loads(text)
            time, name = int(said["timestamp"]) * 1_000_000, said["name"]
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryError(file, line, f"not a line of Kafka's verifiable tools: {error}") from error
        started = time if started is None else started
        common = {"process": process, "operation": process << 20 | number}
        key = f"{said.get('topic')}-{said.get('partition')}"
        if name in ("producer_send_success", "producer_send_error"):
            asked = {"op": "send", "key": key, "value": said["value"]}
            if name == "producer_send_error":
                asked["key"] = f"{said.get('topic')}-0"  # the tool does not say for which partition it was meant
            yield common | {"type": "invoke", "f": "send", "time": started, "mops": [asked]}
            kind = "ok" if name == "producer_send_success" else "info"
            yield common | {"type": kind, "f": "send", "time": time, "mops": [asked | {"offset": said.get("offset")}]}
            number += 1
        elif name == "record_data":
            record = {"key": key, "offset": said["offset"], "value": said["value"]}
            yield common | {"type": "invoke", "f": "poll", "time": time, "mops": [{"op": "poll"}]}
            yield common | {"type": "ok", "f": "poll", "time": time, "mops": [{"op": "poll", "records": [record]}]}
            number += 1
        elif name == "partitions_assigned":
            keys = [f"{item['topic']}-{item['partition']}" for item in said["partitions"]]
            for kind in ("invoke", "ok"):
                yield common | {"type": kind, "f": "assign", "time": time, "keys": keys}
            number += 1
