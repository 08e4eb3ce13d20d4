"""A running broker as these tests observe it: its memory, CPU time and log, and well-behaved clients beside the abuse."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from linearizability.client.requests import fetch_request, new_topic, produce_request, produced
from linearizability.targets import Target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.record import Record

ANSWERS_WITHIN_S = 60.0
"""The time within which every other client must get a response; a quiet machine needs a thousandth of it."""
MOST_CPU_S = 5.0
"""The CPU time that an abuse may cost the broker: one loop serves all clients, so a longer request would delay the others."""


class Broker:
    """The one node of a target."""

    def __init__(self, target: Target) -> None:
        assert isinstance(target, ClusterTarget)
        self.target = target
        self.member = target.member(1)
        self.ends: dict[str, int] = {}

    def wire(self) -> Wire:
        return Wire.connect(self.member.node.host, self.member.node.port, timeout_s=ANSWERS_WITHIN_S)

    def connect(self) -> socket.socket:
        """A raw socket."""
        return socket.create_connection((self.member.node.host, self.member.node.port), timeout=ANSWERS_WITHIN_S)

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.member.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def cpu_s(self) -> float:
        """Seconds of CPU that the broker's process has used so far."""
        fields = Path(f"/proc/{self.member.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        return self.member.process.log.read_text()

    def create(self, topic: str) -> None:
        """Create a topic of one partition, if there is none."""
        with self.wire() as wire:
            code = wire.call(CreateTopicsRequest(topics=[new_topic(topic)], timeout_ms=5000)).topics[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), ErrorCode(code).name

    def try_to_produce(self, topic: str, values: list[bytes]) -> tuple[int, int]:
        """Error code and base offset of one batch with acks=all."""
        with self.wire() as wire:
            answer = produced(wire.call(produce_request({(topic, 0): batch(values)}, timeout_ms=5000), 12))
        return answer.error_code, answer.base_offset

    def produce(self, topic: str, count: int) -> range:
        """Append `count` records, which must be acknowledged; their values contain their offsets. Return these offsets."""
        self.create(topic)
        first = self.ends.get(topic)
        if first is None:
            first = len(self.values(topic, 0))
        code, base = self.try_to_produce(topic, [f"{topic} {first + n}".encode() for n in range(count)])
        assert (code, base) == (0, first)
        self.ends[topic] = first + count
        return range(first, first + count)

    def values(self, topic: str, offset: int) -> list[str]:
        """All values from an offset to the high watermark."""
        found: list[str] = []
        with self.wire() as wire:
            while True:
                request = fetch_request({(topic, 0): offset}, max_wait_ms=0, min_bytes=0, partition_max_bytes=1 << 20)
                answer = wire.call(request, 12).responses[0].partitions[0]
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                if offset >= answer.high_watermark:
                    return found
                for each in read_batches(answer.records):
                    for record in records_of(each.data):
                        if record.offset >= offset:
                            found.append(bytes(record.value or b"").decode())
                    offset = max(offset, each.header.next_offset)


def batch(values: list[bytes]) -> bytes:
    """One plain record batch."""
    now_ms = TimestampMs(time.time_ns() // 1_000_000)
    return bytes(build([Record(Offset(n), now_ms, None, value, ()) for n, value in enumerate(values)]))


def frame(body: bytes, size: int | None = None) -> bytes:
    """A frame with its size, or with a false `size`."""
    return struct.pack(">i", len(body) if size is None else size) + body


def header(key: int, version: int, correlation: int = 7) -> bytes:
    """A request header version 1 with the client id `abuse`; version 2 adds one byte."""
    return struct.pack(">hhih", key, version, correlation, 5) + b"abuse"


def is_closed(connection: socket.socket, within_s: float = ANSWERS_WITHIN_S) -> bool:
    """Whether the broker closes the connection in time, without a response."""
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
