"""The output of Kafka's VerifiableProducer and VerifiableConsumer (with --verbose): JSON lines of events.

    {"timestamp":…,"name":"producer_send_success","key":null,"value":"7","topic":"t","partition":0,"offset":7}
    {"timestamp":…,"name":"record_data","key":null,"value":"7","topic":"t","partition":0,"offset":7}

One file holds the lines of one tool, or a folder those of many. The producer does not say when a send began, so each is
taken to have begun when the tool started: rules that compare with the clock see overlapping sends and stay silent. A send
error is `info` in every partition, because the tool does not report which errors are definite, nor where the record was meant
to go. Values must be unique (--value-prefix). A tool that was killed does not say `shutdown_complete`: what it had sent last
is then missing, and the verdict is no longer valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.files import HistoryError, numbered_lines, reason
from linearizability.history.paired import Declaration, EventStream

NAMES = frozenset(
    (
        *("startup_complete", "shutdown_complete", "producer_send_success", "producer_send_error", "tool_data"),
        "shutdown_requested",
        *("records_consumed", "record_data", "partitions_assigned", "partitions_revoked", "offsets_committed"),
    )
)
"""The events of the two tools."""
AFTER_THE_END = frozenset(("tool_data", "shutdown_requested"))
"""What a tool may say after `shutdown_complete`: the producer its sums, the consumer's hook that it was asked to end."""


def streams(path: Path, given: Contract = NOTHING_GIVEN) -> list[EventStream]:
    """One history of all the files, each a process of its own."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not files:
        raise HistoryError(path, 0, "holds no files")
    keys = cache(lambda: sorted(set().union(*map(_keys, files))))
    return [
        EventStream(
            path.stem, partial(_events, file, process, keys), Declaration(file=str(file)), timed=("ok",), given=given
        )
        for process, file in enumerate(files)
    ]


def _events(file: Path, process: int, keys: Callable[[], list[str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """An invocation and a completion for each record. The tool does not report when a send began."""
    started, line, ended = None, 0, False
    held: set[str] = set()
    operations = count()
    for line, said in _said(file):
        time, name = int(said["timestamp"]) * 1_000_000, said["name"]
        started = time if started is None else started
        begun = time
        ended = name == "shutdown_complete" or (ended and name in AFTER_THE_END)
        if name == "producer_send_success":
            begun, operation = started, _send(_key(said), said["value"], said["offset"])
        elif name == "record_data":
            operation = _poll(_key(said), said["value"], said["offset"])
        elif name in ("partitions_assigned", "partitions_revoked"):
            named = {_key(each) for each in said["partitions"]}
            held = held | named if name == "partitions_assigned" else held - named
            assigned = {"f": "assign", "keys": sorted(held)}
            operation = (assigned, assigned)
        elif name == "producer_send_error":
            # It may be stored after all, and the tool does not say for which partition it was meant.
            for key in keys():
                if key.startswith(f"{said['topic']}-"):
                    yield from _pair(line, process, next(operations), started, time, "info", _send(key, said["value"]))
            continue
        else:
            continue
        yield from _pair(line, process, next(operations), begun, time, "ok", operation)
    if not ended:
        raise HistoryError(file, line, "the tool did not say shutdown_complete: what it did last is not known")


def _said(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text, _ in numbered_lines(file):
        try:
            said = from_json(text)
            _ = int(said["timestamp"]), said["name"]
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryError(file, line, f"not a line of Kafka's verifiable tools: {reason(error)}") from error
        yield line, said


def _keys(file: Path) -> set[str]:
    """All partitions that a file names."""
    keys: set[str] = set()
    with suppress(HistoryError):  # reported when the file's events are read
        for _, said in _said(file):
            keys.update(_key(each) for each in [said, *said.get("partitions", ())] if "partition" in each)
    return keys


def _key(said: dict[str, Any]) -> str:
    return f"{said['topic']}-{said['partition']}"


Asked = tuple[dict[str, Any], dict[str, Any]]
"""An operation when it begins and when it ends."""


def _send(key: str, value: Any, offset: int | None = None) -> Asked:
    asked = {"op": "send", "key": key, "value": value}
    return {"f": "send", "mops": [asked]}, {"f": "send", "mops": [asked | {"offset": offset}]}


def _poll(key: str, value: Any, offset: int) -> Asked:
    record = {"key": key, "offset": offset, "value": value}
    return {"f": "poll", "mops": [{"op": "poll"}]}, {"f": "poll", "mops": [{"op": "poll", "records": [record]}]}


def _pair(
    line: int, process: int, number: int, begun: int, ended: int, outcome: str, asked: Asked
) -> Iterator[tuple[int, dict[str, Any]]]:
    common = {"process": process, "operation": number}
    yield line, common | asked[0] | {"type": "invoke", "time": begun}
    yield line, common | asked[1] | {"type": outcome, "time": ended}
