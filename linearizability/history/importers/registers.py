"""Histories of one register (read, write, cas), or of several: Knossos' EDN maps and Jepsen's log lines.

    {:process 0, :type :invoke, :f :write, :value 3}                      also :get and :put with a :key
    INFO  jepsen.util - 4    :invoke    :cas    [1 4]

An operation whose completion is `:info` may or may not have happened; its process does nothing afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.edn import EdnError, read
from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.importers.jepsen import forms
from linearizability.history.paired import Declaration, EventStream

FUNCTIONS = {"read": "read", "write": "write", "cas": "cas", "get": "read", "put": "write"}
LOG_LINE = re.compile(rb"INFO\s+jepsen\.util - (\d+)\s+:(invoke|ok|fail|info)\s+:(\S+)\s+(.*?)\s*")
OF_A_CLIENT = re.compile(rb"jepsen\.util - \d")


def edn_streams(path: Path, given: Contract = NOTHING_GIVEN) -> list[EventStream]:
    """Maps, one a line or in one vector."""
    return [EventStream(path.stem, lambda: _edn_events(path), Declaration(file=str(path)), given=given)]


def log_streams(path: Path, given: Contract = NOTHING_GIVEN) -> list[EventStream]:
    """Lines of a log; those that are of no client are left out."""
    return [EventStream(path.stem, lambda: _log_events(path), Declaration(file=str(path)), given=given)]


def _edn_events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, form in forms(path):
        if isinstance(form.get("process"), int):
            yield line, event(path, line, form["process"], form["type"], form["f"], form.get("value"), form)


def _log_events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line, whole in numbered_lines(path):
        if not OF_A_CLIENT.search(line):
            continue
        match = LOG_LINE.fullmatch(line.rstrip(b"\n"))
        if match is None or not whole:
            raise HistoryError(path, number, "an operation's line is damaged" if whole else "the last line is torn")
        try:
            value = read(match[4].decode())
        except (EdnError, UnicodeDecodeError) as error:
            raise HistoryError(path, number, str(error)) from error
        yield number, event(path, number, int(match[1]), match[2].decode(), match[3].decode(), value, {})


def event(
    path: Path, line: int, process: int, kind: str, function: str, value: Any, form: dict[str, Any]
) -> dict[str, Any]:
    """A neutral event; the completion of what may not have happened keeps the value of its invocation."""
    if function == "append":
        raise HistoryError(path, line, "'append' makes a value grow: of a key-value store only get and put are read")
    if function not in FUNCTIONS:
        raise HistoryError(path, line, f"{function!r} is no function of a register")
    plain: dict[str, Any] = {"process": process, "type": str(kind), "f": FUNCTIONS[function], "time": form.get("time")}
    if form.get("key") is not None:
        plain["key"] = form["key"]
    if kind in ("invoke", "ok") and not (kind == "ok" and FUNCTIONS[function] != "read"):
        plain["value"] = value
    return plain
