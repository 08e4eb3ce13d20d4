"""Jepsen's histories of its Kafka workload, in EDN: one operation a line, or one vector of all.

    {:type :invoke, :f :txn, :value [[:poll] [:send 3 10]], :process 0, :time 12, :index 4}
    {:type :ok, :f :txn, :value [[:poll {3 [[0 9]]}] [:send 3 [1 10]]], :process 0, :time 15, :index 5}

Values of `assign` and `subscribe` are keys; `:rebalance-log` names the keys that moved within an operation. Operations that
are none of the clients' (crash, debug-topic-partitions, the nemesis') are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.edn import EdnError, Keyword, read_all
from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.paired import NEMESIS, Declaration, EventStream

CLIENTS = {"send", "poll", "txn", "assign", "subscribe"}
REGISTERS = {"read", "write", "cas", "get", "put", "append"}
NOT_COUNTED = re.compile(r'"(?:[^"\\]|\\.)*"|\\.|;.*')
"""Strings, characters and comments: brackets in them do not count."""


def forms(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The maps of an EDN file with the lines on which they stand (1 where one form spans the file)."""
    for number, text in _documents(path):
        try:
            parsed = read_all(text)
        except EdnError as error:
            raise HistoryError(path, number, str(error)) from error
        for form in parsed:
            for item in form if isinstance(form, list) else [form]:
                if not isinstance(item, dict):
                    raise HistoryError(path, number, f"{item!r} is no operation")
                yield number, item


def _documents(path: Path) -> Iterator[tuple[int, str]]:
    """A line a document, or the whole file where the first line does not close what it opens."""
    lines = ((number, line.decode(errors="replace")) for number, line, _ in numbered_lines(path))
    for number, text in lines:
        if text.lstrip().startswith(";"):
            continue
        said = NOT_COUNTED.sub("", text)
        if sum(map(said.count, "{[(")) > sum(map(said.count, "}])")):
            yield number, text + "".join(more for _, more in lines)
            return
        yield number, text
        if text.strip():
            break
    yield from lines


def streams(path: Path, given: Contract = NOTHING_GIVEN) -> list[EventStream]:
    """The history of a file, line by line where each operation has a line of its own."""
    return [EventStream(path.stem, lambda: _events(path), Declaration(file=str(path)), given=given)]


def _events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, form in forms(path):
        if form.get("f") in CLIENTS and isinstance(form.get("process"), int):
            try:
                yield line, event(form)
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                raise HistoryError(path, line, f"not an operation of the Kafka workload: {error}") from error
        elif form.get("f") in REGISTERS and isinstance(form.get("process"), int):
            raise HistoryError(
                path, line, f"{form['f']!r} is an operation of a register, not of the Kafka workload (--format knossos)"
            )
        elif form.get("process") == NEMESIS:
            yield line, {"process": NEMESIS, "f": "note", "type": "mark", "time": form.get("time", 0)}


def event(form: dict[str, Any]) -> dict[str, Any]:
    """An operation map as a neutral event."""
    plain: dict[str, Any] = {name: form.get(name) for name in ("index", "time", "process")}
    plain |= {"type": str(form["type"]), "f": str(form["f"])}
    value = form.get("value") or []
    if plain["f"] in ("assign", "subscribe"):
        return plain | {"keys": list(value)}
    plain["mops"] = [micro_operation(mop) for mop in value]
    moved = [key for rebalance in form.get("rebalance-log") or [] for key in rebalance.get("keys") or []]
    return plain | ({"rebalanced": moved} if moved else {})


def micro_operation(mop: list[Any]) -> dict[str, Any]:
    if mop[0] == "send":
        _, key, value = mop
        offset, value = value if isinstance(value, list) else (None, value)
        return {"op": "send", "key": key, "value": value, "offset": offset}
    if mop[0] != "poll":
        raise ValueError(f"{mop[0]!r} is no micro-operation")
    polled = mop[1] if len(mop) > 1 and mop[1] else {}
    records = [{"key": key, "offset": pair[0], "value": pair[1]} for key, pairs in polled.items() for pair in pairs]
    return {"op": "poll", "records": records}


def operation(event: dict[str, Any], index: int) -> dict[Any, Any]:
    """A neutral event as an operation map, the inverse of `event`."""
    form: dict[Any, Any] = {
        Keyword("index"): index,
        Keyword("time"): event["time"],
        Keyword("type"): Keyword(event["type"]),
        Keyword("process"): event["process"],
        Keyword("f"): Keyword(event["f"]),
    }
    if event["f"] in ("assign", "subscribe"):
        return form | {Keyword("value"): [_key(key) for key in event.get("keys") or []]}
    form[Keyword("value")] = [
        _mop(mop, event["type"]) for mop in event.get("mops") or [] if mop["op"] in ("send", "poll")
    ]
    if event.get("rebalanced"):
        form[Keyword("rebalance-log")] = [{Keyword("keys"): [_key(key) for key in event["rebalanced"]]}]
    return form


def _mop(mop: dict[str, Any], kind: str) -> list[Any]:
    if mop["op"] == "send":
        known = kind != "invoke" and mop.get("offset") is not None
        return [Keyword("send"), _key(mop["key"]), [mop["offset"], mop["value"]] if known else mop["value"]]
    records = mop.get("records")
    if kind == "invoke" or records is None:
        return [Keyword("poll")]
    polled: dict[Any, list[Any]] = {}
    if isinstance(records, dict):
        polled = {_key(key): [list(pair[:2]) for pair in pairs] for key, pairs in records.items()}
    else:
        for record in records:
            polled.setdefault(_key(record["key"]), []).append([record["offset"], record["value"]])
    return [Keyword("poll"), polled]


def _key(key: Any) -> Any:
    return int(key) if isinstance(key, str) and key.isdigit() else key
