"""A small notation for histories, one operation a line: for examples, tests, and witnesses that people read.

0 send t-0:17@4                    process 0 sends value 17 to partition t-0; acknowledged at offset 4
0 send t-0:18 info                 unknown outcome (also `fail`)
0 send t-0:18@5 acks=1             with other acks than the contract's
1 poll t-0:17@4 t-0:18@5/2         process 1 polls two records, the second of leader epoch 2
0 [10 20] send t-0:19@6            with times; `[10 -]` never ends. Without, line i lasts from 10·i to 10·i + 5
0 txn poll t-0:1@0 send u-0:2@0 commit g t-0@1      one whole transaction, its micro-operations in order
0 begin txn=a producer=p epoch=0
0 send t-0:3@1 txn=a
0 end txn=a commit=true
1 assign t-0 t-1                   also `subscribe` (group=g generation=1 member=m) and `seek`
1 drain t-0 start=0 end=3 position=3
1 list_offsets t-0 start=0 end=3
1 commit g t-0@5 generation=1 member=m
1 committed g t-0@5
9 state t-0 node=1 high_watermark=5 epoch=2
9 replica t-0 node=1 high_watermark=2 17@0/0 18@1/0      value@offset/epoch
0 write key=x value=3              also `read`, and `cas key=x value=3,4`
! fault name=kill node=1           a mark; also `heal`, `quiet`, `note`, `excuse number=1 cause=power-loss keys=t-0 nodes=1,2`
"""

from __future__ import annotations

import re
from typing import Any

from linearizability.history.operations import COMPLETIONS, MARKS, OPERATIONS
from linearizability.history.paired import Declaration, derive_events
from linearizability.history.streams import History

_LINE = re.compile(r"(?P<who>\d+|!)\s+(?:\[(?P<start>-?\d+)\s+(?P<end>-|-?\d+)\]\s+)?(?P<f>[\w-]+)\s*(?P<rest>.*)")
_RECORD = re.compile(r"(?:(?P<key>[^:@=]+):)?(?P<value>[^:@=]+)(?:@(?P<offset>-?\d+))?(?:/(?P<epoch>-?\d+))?")
_SWITCHES = ("send", "poll", "commit")
_NEVER = 1 << 62


def parse(text: str) -> list[dict[str, Any]]:
    """The events of a history in the notation, sorted by time."""
    events: list[tuple[int, int, dict[str, Any]]] = []
    for number, line in enumerate(line for line in map(str.strip, text.splitlines()) if line):
        match = _LINE.fullmatch(line)
        if match is None or match["f"] not in OPERATIONS | MARKS:
            raise ValueError(f"not an operation: {line}")
        start = int(match["start"]) if match["start"] else 10 * number
        end = start + 5 if match["end"] is None else _NEVER if match["end"] == "-" else int(match["end"])
        words = match["rest"].split()
        outcome = words.pop() if words and words[-1] in COMPLETIONS else "ok"
        fields = _fields(words)
        common = {"f": match["f"], "process": "nemesis" if match["who"] == "!" else int(match["who"])}
        if match["f"] in MARKS:
            fields |= {name: _listed(fields[name]) for name in ("keys", "nodes") if name in fields}
            events.append((start, 2 * number, common | fields | {"type": "mark", "time": start}))
            continue
        invoked, completed = _micro_operations(match["f"], words, fields)
        events.append((start, 2 * number, common | fields | {"type": "invoke", "time": start, "mops": invoked}))
        if end != _NEVER:
            event = common | fields | {"type": outcome, "time": end, "mops": completed}
            events.append((end, 2 * number + 1, event))
    events.sort(key=lambda item: item[:2])
    return [event | {"index": index} for index, (_, _, event) in enumerate(events)]


def history(text: str, contract: dict[str, Any] | None = None, identifier: str = "example") -> History:
    """A history in the notation, as facts."""
    return derive_events(identifier, parse(text), Declaration(contract))


def _fields(words: list[str]) -> dict[str, Any]:
    """Takes `name=value` words out of the list."""
    fields: dict[str, Any] = {}
    for word in [word for word in words if "=" in word]:
        words.remove(word)
        name, value = word.split("=", 1)
        fields[name] = _scalar(value)
    return fields


def _scalar(text: str) -> Any:
    if "," in text:
        return [_scalar(part) for part in text.split(",")]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _micro_operations(
    f: str, words: list[str], fields: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The micro-operations of the invocation and of the completion."""
    match f:
        case "send" | "poll" | "txn":
            done = _records(f, words)
            if "acks" in fields:
                acks = str(fields.pop("acks"))
                done = [mop | {"acks": acks} if mop["op"] == "send" else mop for mop in done]
            asked = [{k: v for k, v in mop.items() if k not in ("offset", "records", "ends")} for mop in done]
            return asked, done
        case "assign" | "subscribe" | "seek":
            fields["keys"] = list(words)
            return [], []
        case "commit" | "committed":
            offsets = {key: int(offset) for key, offset in (word.split("@") for word in words[1:])}
            mop: dict[str, Any] = {"op": f, "group": words[0], "offsets": offsets}
            return [{"op": f, "group": words[0], "offsets": {}} if f == "committed" else mop | fields], [mop | fields]
        case "list_offsets" | "drain":
            mop = {"op": f, "key": words[0], "start": None, "end": None} | fields
            return [{"op": "list_offsets", "key": words[0]}] if f == "list_offsets" else [], [mop]
        case "state":
            return [], [{"op": f, "key": words[0]} | fields]
        case "replica":
            records = [_RECORD.fullmatch(word) for word in words[1:]]
            triples = [[int(m["offset"]), _scalar(m["value"]), int(m["epoch"] or -1)] for m in records if m]
            return [], [{"op": f, "key": words[0], "records": triples} | fields]
        case _:
            return [], []


def _records(f: str, words: list[str]) -> list[dict[str, Any]]:
    mops: list[dict[str, Any]] = []
    switch = f
    if f == "poll":
        mops.append({"op": "poll", "records": []})
    group = ""
    for word in words:
        if word in _SWITCHES:
            switch, group = word, ""
            if word == "poll":
                mops.append({"op": "poll", "records": []})
            continue
        if switch == "commit":
            if not group:
                group = word
                mops.append({"op": "commit", "group": group, "offsets": {}})
            else:
                key, offset = word.split("@")
                mops[-1]["offsets"][key] = int(offset)
            continue
        if switch == "poll" and "^" in word:
            key, end = word.split("^")
            mops[-1].setdefault("ends", {})[key] = int(end)
            continue
        match = _RECORD.fullmatch(word)
        if match is None or match["key"] is None:
            raise ValueError(f"not a record: {word}")
        offset = int(match["offset"]) if match["offset"] else None
        record = {"key": match["key"], "value": _scalar(match["value"]), "offset": offset}
        if switch == "send":
            mops.append({"op": "send", **record})
        else:
            if match["epoch"] is not None:
                record["epoch"] = int(match["epoch"])
            mops[-1]["records"].append(record)
    return mops
