"""Folders of Apache Kafka, and starts on them: a sample to compare the reference's campaign with.

One node is started on each damaged folder, in the place of the undamaged one, so that paths and ports do not change. A start
that does not serve within `PATIENCE_S` counts as refused, and its log has the reason.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from linearizability.damage.content import Observation, Producer, create_topics, fill, find_coordinators, observe
from linearizability.damage.folder import Folder
from linearizability.damage.trials import Broker
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import TargetError
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.schema import Message

CHECKPOINT_MS = 1_000
CONFIG = {
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "log.index.size.max.bytes": "2048",
    "metadata.log.max.record.bytes.between.snapshots": "3000", "log.retention.ms": "-1",
    "log.flush.offset.checkpoint.interval.ms": str(CHECKPOINT_MS),
    "log.flush.start.offset.checkpoint.interval.ms": str(CHECKPOINT_MS),
    "replica.high.watermark.checkpoint.interval.ms": str(CHECKPOINT_MS),
}  # fmt: skip
RESTARTS = 2
PATIENCE_S = 300.0
"""How long a start may take while its process runs; a refused start ends the process."""
ANSWER_WITHIN_S = 30.0
LINE = re.compile(r"\[[^]]*\] (WARN|ERROR|FATAL) (.*)")
PASSING = re.compile(r"NOT_LEADER_OR_FOLLOWER|LEADER_NOT_AVAILABLE|OFFSET_NOT_AVAILABLE|COORDINATOR|UNSTABLE_OFFSET")
LEVELS = {"WARN": "warning", "ERROR": "error", "FATAL": "error"}


class _Node:
    """The one node of a target, whose folder is replaced between two starts."""

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target
        (self._member,) = target.members
        self.now = int(time.time() * 1_000)

    def ask(self, body: Message, version: int) -> Any:
        """Send a request to the node. Errors: WireError."""
        node = self._member.node
        with Wire.connect(node.host, node.port, timeout_s=ANSWER_WITHIN_S) as wire:
            return wire.call(body, version)

    def stop(self, is_clean: bool) -> None:
        (self._target.stop if is_clean else self._target.kill)(self._member.node.id)

    def start(self) -> None:
        """Start the node, and wait until it answers. Errors: TargetError, with the end of the log."""
        self._target.restart(self._member.node.id, wait=False)
        self._target.await_answers([self._member], PATIENCE_S)

    @property
    def log(self) -> str:
        return self._target.logs(self._member.node.id)[0].read_text(errors="replace")

    @property
    def folder(self) -> Folder:
        data = self._member.data
        return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file()}

    def replace(self, folder: Folder) -> None:
        shutil.rmtree(self._member.data)
        for path, content in folder.items():
            place = self._member.data / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def await_leaders(self) -> None:
        """Wait, for a limited time, until every partition has a leader; a damaged one may never get one."""
        until = time.monotonic() + ANSWER_WITHIN_S
        while time.monotonic() < until:
            answer = self.ask(MetadataRequest(topics=None), 12)
            if answer.topics and all(
                each.error_code == ErrorCode.NONE for topic in answer.topics for each in topic.partitions
            ):
                return
            time.sleep(0.2)


@contextmanager
def kafka(spec: str) -> Iterator[Broker]:
    """A target of one node, such as `kafka:4.3.1:1`, in the form of the campaign's brokers."""
    with (
        tempfile.TemporaryDirectory() as place,
        open_target(spec, folder=Path(place), config=CONFIG) as target,
    ):
        if not isinstance(target, ClusterTarget) or len(target.members) != 1:
            raise TargetError(f"{spec} is no target of one node whose folder is known")
        node = _Node(target)

        def make_folder(is_clean: bool) -> tuple[Folder, Producer]:
            return _fill(node, is_clean)

        def observe_folder(folder: Folder, producer: Producer) -> tuple[Observation, Sequence[tuple[str, str]]]:
            node.stop(is_clean=False)
            node.replace(folder)
            before = len(node.log)
            try:
                node.start()
                node.await_leaders()
                seen = _observe(node, producer)
            except (TargetError, WireError) as error:
                raise TargetError(f"{error}\n{_said(node.log[before:])}") from error
            return seen, _said(node.log[before:])

        yield Broker(spec, make_folder, observe_folder)


def _observe(node: _Node, producer: Producer) -> Observation:
    """Observe the node until transient errors have ended: Metadata names leaders before they serve."""
    until, before = time.monotonic() + ANSWER_WITHIN_S, None
    while True:
        seen = observe(node.ask, producer, node.now)
        errors = {name: value for name, value in seen.items() if PASSING.search(str(value))}
        if not errors or (errors == before and time.monotonic() > until):
            return seen
        before = errors
        time.sleep(1)


def _said(log: str) -> list[tuple[str, str]]:
    """The warnings and errors of a log, each with the lines of its stack trace."""
    entries: list[list[str]] = []
    is_open = False
    for line in log.splitlines():
        if found := LINE.match(line):
            entries.append([LEVELS[found[1]], found[2]])
        elif is_open and not line.startswith("["):
            entries[-1][1] += f"\n{line}"
        is_open = bool(found) or (is_open and not line.startswith("["))
    return [(level, text) for level, text in entries]


def _fill(node: _Node, is_clean: bool) -> tuple[Folder, Producer]:
    """Fill the node's folder as `reference.make_folder` does, and return it. Creates the topics only once."""
    if not _has_topics(node):
        create_topics(node.ask)
        find_coordinators(node.ask, lambda: time.sleep(0.2))
        fill(node.ask, 0, node.now)
        time.sleep(3 * CHECKPOINT_MS / 1_000)
        for _ in range(RESTARTS):
            node.stop(is_clean=True)
            node.start()
            node.await_leaders()
        find_coordinators(node.ask, lambda: time.sleep(0.2))
    producer = fill(node.ask, 1, node.now)
    time.sleep(3 * CHECKPOINT_MS / 1_000)
    node.stop(is_clean)
    return node.folder, producer


def _has_topics(node: _Node) -> bool:
    node.start()
    return bool(node.ask(MetadataRequest(topics=None), 12).topics)
