"""Streams of numbered records: every client's producer at work in a process of its own, each in a partition of its own.

Java's producer is Kafka's VerifiableProducer, those of Python's libraries are `producers.py`, which prints the same. A record
counts as acknowledged at the moment when its line is read here, so all are timed by one clock.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from linearizability.bench.producers import (
    DELIVERY_TIMEOUT_MS,
    LAST_WITHIN_S,
    LIBRARIES,
    RECONNECT_BACKOFF_MAX_MS,
    REQUEST_TIMEOUT_MS,
    SEND_EVERY_S,
)
from linearizability.targets import TargetError, leash
from linearizability.targets.artifacts import ArtifactError, JavaMissing, ensure_java, java, kafka_jars
from linearizability.targets.kafka_start import class_path
from linearizability.workload.partitioning.murmur2 import partition_of

JAVA = "java"
CLIENTS = (*LIBRARIES, JAVA)
JAVA_RELEASE = "4.3.1"
JAVA_KEY = b"0"
"""The one key of VerifiableProducer's records when it repeats one key; it takes no partition."""
SMALL_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
JAVA_SETTINGS = {
    "enable.idempotence": "true",
    "retries": str(2**31 - 1),  # the tool's own default is none
    "linger.ms": "0",
    "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
    "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
    "reconnect.backoff.max.ms": str(RECONNECT_BACKOFF_MAX_MS),
}
ACKNOWLEDGED_WITHIN_S = 60.0
ENDED_WITHIN_S = LAST_WITHIN_S + 15.0
LOOK_EVERY_S = 0.02
COMPLAINT_CHARACTERS = 500
"""Characters of a producer's log that are shown with an error, from its end."""


def require(clients: Sequence[str]) -> None:
    """Errors: TargetError, for the first client that cannot run here."""
    for client in clients:
        if client == JAVA:
            try:
                ensure_java()
                kafka_jars(JAVA_RELEASE)
            except (ArtifactError, JavaMissing) as error:
                raise TargetError(f"the client {client}: {error}") from error
        elif find_spec(LIBRARIES[client].module) is None:
            raise TargetError(
                f"the client {client} is not installed: pip install {client}, or choose others by --client"
            )


def partitions(clients: Sequence[str]) -> dict[str, int]:
    """Return each client's partition of a topic with one for each client. Java's follows from its key."""
    if JAVA not in clients:
        return {client: number for number, client in enumerate(clients)}
    keyed = partition_of(JAVA_KEY, len(clients))
    others = iter(number for number in range(len(clients)) if number != keyed)
    return {client: keyed if client == JAVA else next(others) for client in clients}


def command(client: str, bootstrap: str, topic: str, partition: int, folder: Path) -> list[str]:
    """Return the command that starts a client's producer. Writes Java's settings into the folder."""
    if client != JAVA:
        return [sys.executable, "-m", "linearizability.bench.producers", client, bootstrap, topic, str(partition)]
    settings = folder / "java.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in JAVA_SETTINGS.items()))
    tool = [str(java()), *SMALL_JVM, "-cp", class_path(kafka_jars(JAVA_RELEASE))]
    tool += ["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic]
    tool += ["--acks", "-1", "--repeating-keys", "1", "--throughput", str(round(1 / SEND_EVERY_S))]
    return [*tool, "--command-config", str(settings)]


@dataclass
class Outcomes:
    """The outcomes of a stream's records, as its producer reports them."""

    sent: int | None = None
    """Number of sent records, known when the producer has ended properly."""
    acknowledged: list[int] = field(default_factory=list[int])
    times: list[float] = field(default_factory=list[float])
    """Acknowledgement times, by this process's monotonic clock."""
    complaint: str = ""
    """The last error of a record."""

    def record(self, said: dict[str, Any], at: float) -> None:
        """Take one line of the producer."""
        match said["name"]:
            case "producer_send_success":
                self.acknowledged.append(int(said["value"]))
                self.times.append(at)
            case "producer_send_error":
                self.complaint = f"{said.get('exception', '')} {said.get('message', '')}".strip()
            case "tool_data":
                self.sent = int(said["sent"])

    def acknowledged_since(self, since: float) -> bool:
        return bool(self.times) and self.times[-1] > since

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time between two successive acknowledgements, the second of which came after `since`."""
        return max(b - a for a, b in itertools.pairwise([*self.times]) if b > since)

    def count(self, stored: Sequence[int]) -> dict[str, int]:
        """Return the counts of acknowledged, unacknowledged, lost and duplicated records."""
        held = Counter(stored)
        assert self.sent is not None
        return {
            "acknowledged": len(self.acknowledged),
            "not_acknowledged": self.sent - len(self.acknowledged),
            "lost": sum(held[number] == 0 for number in self.acknowledged),
            "doubled": sum(count > 1 for count in held.values()),
        }


class Stream:
    """One client's producer. A context manager: on exit it sends no more, and its last records' outcomes are awaited."""

    def __init__(self, client: str, bootstrap: str, topic: str, partition: int, folder: Path) -> None:
        self.client = client
        self.partition = partition
        self.outcomes = Outcomes()
        self._command = command(client, bootstrap, topic, partition, folder)
        self._log = folder / f"{client}.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = leash.start(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._read, name=f"stream of {self.client}")
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(signal.SIGTERM if kind is None else signal.SIGKILL)
        if kind is None and self.outcomes.sent is None:
            raise TargetError(f"{self.client}: its producer did not end in good order{self._complaint()}")

    def await_acknowledgement(self, since: float) -> None:
        """Wait for a record that is acknowledged after `since`. Errors: TargetError."""
        until = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while not self.outcomes.acknowledged_since(since):
            if self._process.poll() is not None:
                raise TargetError(f"{self.client}: its producer ended by itself{self._complaint()}")
            if time.monotonic() > until:
                raise TargetError(
                    f"{self.client}: nothing was acknowledged within {ACKNOWLEDGED_WITHIN_S:.0f} s{self._complaint()}"
                )
            time.sleep(LOOK_EVERY_S)

    def _end(self, number: int) -> None:
        if self._process.poll() is None:
            leash.kill_group(self._process.pid, number)
        try:
            self._process.wait(ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            leash.kill_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        leash.let_go(self._process.pid)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{") and line.endswith("\n"):  # neither a line of a log, nor one that was cut short
                    self.outcomes.record(json.loads(line), time.monotonic())

    def _complaint(self) -> str:
        logged = self._log.read_text(errors="replace").strip()[-COMPLAINT_CHARACTERS:]
        return "".join(f": {text}" for text in (self.outcomes.complaint, logged) if text)
