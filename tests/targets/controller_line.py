"""A proxy between brokers and their controller. It can hold up the metadata that one broker fetches, or lose one kind of that
broker's requests, and passes all else: AlterPartition and heartbeats have connections of their own, with Apache Kafka as with
the reference.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from conformance.broker import Broker
from conformance.host import addresses
from conformance.requirement import Requirement
from conformance.subject import Subject
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.wire import Wire
from reference.protocol.messages.fetch import FetchRequest

CONTROLLER = 3
"""The only voter; it is a broker, too. Nodes 1 and 2 are brokers alone."""
_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">h")
_CLIENT_ID = struct.Struct(">h")
_CLIENT_ID_AT = 8
"""API key and version, and the correlation id, come before it."""

RELEASES = os.environ.get("TIDEGAUGE_RELEASES", "4.3.1,4.4.0").split(",")
"""The releases of Kafka that are tried; `tidegauge findings reproduce` names one."""


class Line:
    """Listens in the controller's place and relays whole frames. Between brokers and a controller every Fetch is of the metadata
    log."""

    def __init__(self, delayed: int) -> None:
        """`delayed` is the broker whose metadata can be held up, and whose requests can be lost."""
        self._delayed = str(delayed).encode()
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.controller: tuple[str, int] = ("", 0)
        """Where the controller truly listens."""
        self.held = 0
        """How many responses were held up."""
        self.loses: int | None = None
        """The API key of the delayed broker's requests that are lost."""
        self.lost = 0
        """How many requests were lost."""

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_pass.set()
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def hold(self) -> None:
        """Hold up all metadata for the delayed broker from now on."""
        self._may_pass.clear()

    def release(self) -> None:
        self._may_pass.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self.controller)
                except OSError:
                    near.close()
                    continue
                self._ends += near, far
                questions: deque[bool] = deque()
                for pass_on in (self._pass_questions, self._pass_answers):
                    threading.Thread(target=pass_on, args=(near, far, questions), daemon=True).start()

    def _pass_questions(self, near: socket.socket, far: socket.socket, questions: deque[bool]) -> None:
        """Relay requests. `questions` gets, for each, whether its response is the delayed broker's metadata."""
        for frame in _frames(near):
            key = self._key_of_the_delayed(frame)
            if key is not None and key == self.loses:
                self.lost += 1
                continue
            questions.append(key == FetchRequest.KEY)
            _send(far, frame)
        _hang_up(far)

    def _pass_answers(self, near: socket.socket, far: socket.socket, questions: deque[bool]) -> None:
        """Relay responses, which come in the order of the connection's requests."""
        for frame in _frames(far):
            if questions.popleft() and not self._may_pass.is_set():
                self.held += 1
                self._may_pass.wait()
            _send(near, frame)
        _hang_up(near)

    def _key_of_the_delayed(self, frame: bytes) -> int | None:
        """The API key of a request of the delayed broker; None for another broker's. A broker is known by its client id, which is
        its node id or ends with it."""
        (key,) = _KEY.unpack_from(frame)
        (length,) = _CLIENT_ID.unpack_from(frame, _CLIENT_ID_AT)
        start = _CLIENT_ID_AT + _CLIENT_ID.size
        name = frame[start : start + max(0, length)].rpartition(b"-")[2]
        return key if name == self._delayed else None


def _frames(end: socket.socket) -> Iterator[bytes]:
    """Whole frames without their sizes, until the end."""
    with suppress(OSError), end.makefile("rb") as file:
        while len(start := file.read(_SIZE.size)) == _SIZE.size:
            (size,) = _SIZE.unpack(start)
            frame = file.read(size)
            if len(frame) < size:
                return
            yield frame


def _send(end: socket.socket, frame: bytes) -> None:
    with suppress(OSError):
        end.sendall(_SIZE.pack(len(frame)) + frame)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class OneController(ClusterTarget):
    """Three nodes, of which one is the controller; the others reach it through `line`."""

    line: Line

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        if self.size < CONTROLLER:  # the throw-away broker that a release's first start leaves its archive
            return given
        self.line.controller = self.members[CONTROLLER - 1].node.host, self.members[CONTROLLER - 1].controller_port
        entrance = f"127.0.0.1:{self.line.port}"
        given["controller.quorum.voters"] = f"{CONTROLLER}@{entrance}"
        if member.node.id == CONTROLLER:
            given["advertised.listeners"] += f",CONTROLLER://{entrance}"
        else:
            given["process.roles"] = "broker"
            given["listeners"] = given["advertised.listeners"]
        return given


class KafkaWithOneController(OneController, KafkaCluster):
    pass


class ReferenceWithOneController(OneController, ReferenceCluster):
    pass


@contextmanager
def judged(target: OneController, record: Requirement) -> Iterator[Broker]:
    """The running cluster as a requirement's code sees it; it is stopped afterwards."""
    with target:
        with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
            versions = wire.versions()
        subject = Subject(addresses(target.bootstrap), "4.3.1", versions, target, nodes=target.size)
        with Broker(subject, record) as broker:
            yield broker
