"""Recording a history while it happens: one file of JSON lines a process, on disk before the caller goes on.

    from linearizability.history.contract import Contract
    from linearizability.history.operations import poll, send
    from linearizability.history.recorder import Recorder

    with Recorder.open(folder, process=3, contract=Contract(acks="all")) as recorder:
        operation = recorder.invoke("send", [send("orders-0", 17)])
        recorder.ok(operation, [send("orders-0", 17, offset=4)])      # or
        recorder.fail(operation, error="MESSAGE_TOO_LARGE")           # certainly not appended, or
        recorder.info(operation, error="REQUEST_TIMED_OUT")           # unknown

        operation = recorder.invoke("poll", [poll()])
        recorder.ok(operation, [poll({"orders-0": [(4, 17)]})])
        recorder.mark("fault", name="kill", node=2)                   # later: recorder.mark("heal", name="kill", node=2)

Rules for the one who records:

- `invoke` before the call leaves the client, the completion after its answer is known. Operations of one process may
  overlap (pipelined sends); they are paired by the number that `invoke` returns.
- Only an error that proves that nothing was appended is `fail`. A timeout, a lost connection, NOT_ENOUGH_REPLICAS_AFTER_APPEND
  and every error that you do not know are `info`.
- A value is unique in its partition for the whole run: a pair like (process << 32 | counter) is.
- A process number belongs to one file of a run; a client that is started again takes a new number.
- A consumer records `assign` with all its partitions when they change (also from the rebalance callback), `seek` when it
  jumps, and with `drain` that it has read a partition up to its end after the last fault. Without a drain, acknowledged
  records that no client read leave the verdict unknown.
- A virtual clock is passed as `clock`; one recorder may serve many processes (`invoke(..., process=7)`).

Each line is one `write` on an unbuffered descriptor: a killed client loses nothing that it recorded, at most its last line
is torn. The closing line says that the file is complete; a file without it never gives the verdict "valid". Nor does a
folder from which a file is gone that `files.txt` names.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from linearizability.history.contract import Contract
from linearizability.history.operations import COMPLETIONS, FAIL, INFO, INVOKE, MARKS, OK, OPERATIONS, MicroOperation

FORMAT = "tidegauge-history/1"
"""The format's name and version, in each file's header."""

FILE_PATTERN = "history-*.jsonl"
"""The files of a history folder."""
LISTED = "files.txt"
"""The names of all files that were opened in a history folder, one a line, so that it shows when one is gone."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RecordingError(Exception):
    """The history could not be written (a full disk), or the recorder was used wrongly (our fault, not the broker's)."""


class Recorder:
    """Writes one file of a history. Threads may share it; each event is one line, in the order of the calls."""

    def __init__(
        self,
        path: Path,
        *,
        process: int = 0,
        contract: Contract | None = None,
        run: str = "",
        listed: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create `path` (it must not exist) and write its header. `run` is the history's id.

        `listed` says that a list beside it names all files of the run: a history without this list is then not whole.
        """
        self.path = path
        self.process = process
        self._clock = clock
        self._lock = threading.Lock()
        self._lines = 0
        self._operations = 0
        self._outstanding: dict[int, tuple[str, int]] = {}
        self._broken: str = ""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        declared = (contract or Contract()).model_dump()
        header = {"type": "header", "format": FORMAT, "run": run, "process": process, "contract": declared}
        self._write(header | ({"listed": True} if listed else {}) | {"time": clock()})

    @classmethod
    def open(
        cls, folder: Path, *, process: int = 0, contract: Contract | None = None, run: str = "", **more: Any
    ) -> Self:
        """Create the file of one process in a run's history folder (which is created too)."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"history-{process:05d}.jsonl"
        with (folder / LISTED).open("ab", buffering=0) as listed:  # one write at the end: processes may do it at once
            listed.write(f"{path.name}\n".encode())
        return cls(path, process=process, contract=contract, run=run, listed=True, **more)

    def invoke(self, f: str, mops: Sequence[MicroOperation] = (), *, process: int | None = None, **fields: Any) -> int:
        """An operation begins; returns the number that its completion names.

        `fields` are the operation's own: `keys` (assign, subscribe, seek), `txn` (the transaction's name), `commit` (end),
        `producer` and `epoch` (a producer's id and epoch), `node`, `key` and `value` (registers).
        """
        if f not in OPERATIONS:
            raise RecordingError(f"{f!r} is no operation; one of {', '.join(sorted(OPERATIONS))}")
        with self._lock:
            number = self._operations
            self._operations += 1
            who = self.process if process is None else process
            self._outstanding[number] = (f, who)
            self._event(INVOKE, number, f, who, mops, fields)
        return number

    def ok(self, operation: int, mops: Sequence[MicroOperation] | None = None, **fields: Any) -> None:
        """The operation happened; `mops` are its micro-operations with what was seen."""
        self._complete(OK, operation, mops, fields)

    def fail(
        self, operation: int, mops: Sequence[MicroOperation] | None = None, *, error: str = "", **fields: Any
    ) -> None:
        """The operation certainly did not happen."""
        self._complete(FAIL, operation, mops, fields | ({"error": error} if error else {}))

    def info(
        self, operation: int, mops: Sequence[MicroOperation] | None = None, *, error: str = "", **fields: Any
    ) -> None:
        """It is unknown whether the operation happened or will happen."""
        self._complete(INFO, operation, mops, fields | ({"error": error} if error else {}))

    def mark(self, f: str, **fields: Any) -> None:
        """An event that is no client's operation: `fault` and `heal` (with equal `name` and `node`), `quiet`, `note`."""
        if f not in MARKS:
            raise RecordingError(f"{f!r} is no mark; one of {', '.join(sorted(MARKS))}")
        with self._lock:
            self._write({"type": "mark", "n": self._next_line(), "time": self._clock(), "f": f, **fields})

    def outstanding(self) -> list[int]:
        """The operations that have no completion yet."""
        with self._lock:
            return list(self._outstanding)

    def close(self) -> None:
        """Say that the history is complete and close the file. Operations without a completion count as `info`."""
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                if not self._broken:
                    self._write({"type": "end", "n": self._next_line()})
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _complete(
        self, outcome: str, operation: int, mops: Sequence[MicroOperation] | None, fields: dict[str, Any]
    ) -> None:
        assert outcome in COMPLETIONS
        with self._lock:
            known = self._outstanding.pop(operation, None)
            if known is None:
                raise RecordingError(f"operation {operation} was never invoked, or has a completion already")
            f, who = known
            self._event(outcome, operation, f, who, mops, fields)

    def _event(
        self, kind: str, number: int, f: str, who: int, mops: Sequence[MicroOperation] | None, fields: dict[str, Any]
    ) -> None:
        event: dict[str, Any] = {
            "type": kind,
            "n": self._next_line(),
            "time": self._clock(),
            "process": who,
            "operation": number,
            "f": f,
        }
        if mops:
            event["mops"] = list(mops)
        self._write(event | fields)

    def _next_line(self) -> int:
        self._lines += 1
        return self._lines

    def _write(self, event: dict[str, Any]) -> None:
        if self._descriptor < 0:
            raise RecordingError(f"{self.path} is closed")
        if self._broken:
            raise RecordingError(f"{self.path}: {self._broken}")
        line = (_encode(event) + "\n").encode()
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            self._broken = str(error)
            raise RecordingError(f"{self.path}: {error}") from error
        if written != len(line):
            self._broken = "the disk took only a part of a line"
            raise RecordingError(f"{self.path}: {self._broken}")
