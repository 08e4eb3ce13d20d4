"""A broker that answers every request without an error and does nothing: a requirement that passes on it can hardly fail.

It reads every request of every known API and answers with the defaults of the response: no error, nothing in it.
Metadata makes up every topic that is asked for, so that the suite's helpers get past their waits. `answers` replaces
answers by API name.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from reference.protocol.apis import APIS
from reference.protocol.codec import decode_from, encode
from reference.protocol.messages.header import RequestHeader
from reference.protocol.messages.metadata import MetadataResponse

Answer = Callable[[Any, Any, int], None]


class Parrot:
    """One listening socket, one thread a connection."""

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        itself: dict[str, Answer] = {
            "ApiVersions": self.api_versions, "Metadata": self.metadata, "FindCoordinator": self.coordinate,
        }  # fmt: skip
        self.answers = itself | YES | (answers or {})
        self.served: set[socket.socket] = set()
        threading.Thread(target=self._accept, args=(self.server,), daemon=True).start()

    def close(self) -> None:
        self.server.close()

    def refuse(self) -> None:
        """End as a killed process does: every connection is cut, and the port takes none."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.server.close()
        for connection in list(self.served):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def accept_again(self) -> None:
        """Be back at the same address."""
        self.server.close()
        self.server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self.server,), daemon=True).start()

    def ranges(self) -> dict[int, tuple[int, int]]:
        """API key -> versions that a broker of Kafka 4.3.1 advertises."""
        released = {key: api.releases["4.3.1"] for key, api in APIS.items() if "4.3.1" in api.releases}
        return {key: (low, high) for key, (low, high, _, listeners) in released.items() if "broker" in listeners}

    def api_versions(self, request: Any, response: Any, version: int) -> None:
        table = type(response).ApiVersion
        response.api_keys = [
            table(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges().items()
        ]

    def metadata(self, request: Any, response: Any, version: int) -> None:
        broker, topic, partition = (
            MetadataResponse.MetadataResponseBroker,
            MetadataResponse.MetadataResponseTopic,
            MetadataResponse.MetadataResponsePartition,
        )
        response.brokers = [broker(node_id=1, host="127.0.0.1", port=self.port)]
        response.cluster_id, response.controller_id = "parrot", 1
        response.topics = [
            topic(
                name=asked.name or "made-up",
                topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, asked.name or "made-up"),
                partitions=[
                    partition(partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
                    for index in range(5)
                ],
            )
            for asked in request.topics or []
        ]

    def coordinate(self, request: Any, response: Any, version: int) -> None:
        """This broker is the coordinator of every key."""
        table = type(response)
        if version < 4:
            response.node_id, response.host, response.port = 1, "127.0.0.1", self.port
            return
        response.coordinators = [
            table.Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port) for key in request.coordinator_keys
        ]

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.served.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, struct.error, LookupError):
            reader = connection.makefile("rb")
            while size := reader.read(4):
                connection.sendall(self._answer(memoryview(reader.read(struct.unpack(">i", size)[0]))))

    def _answer(self, payload: memoryview) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", payload)
        api = APIS[key]
        header_version = 2 if version in api.request.FLEXIBLE else 1
        _, start = decode_from(RequestHeader, header_version, payload, 0)
        request, _ = decode_from(api.request, version, payload, start)
        response = api.response()
        if api.name in self.answers:
            self.answers[api.name](request, response, version)
        flexible = version in api.response.FLEXIBLE and api.name != "ApiVersions"
        body = struct.pack(">i", correlation_id) + b"\x00" * flexible + encode(response, version)
        return struct.pack(">i", len(body)) + body


def _created(request: Any, response: Any, version: int) -> None:
    result = type(response).CreatableTopicResult
    response.topics = [result(name=topic.name) for topic in request.topics]


def _produced(request: Any, response: Any, version: int) -> None:
    table = type(response)
    response.responses = [
        table.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[table.PartitionProduceResponse(index=one.index) for one in topic.partition_data],
        )
        for topic in request.topic_data
    ]


def _fetched(request: Any, response: Any, version: int) -> None:
    table = type(response)
    response.responses = [
        table.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[table.PartitionData(partition_index=one.partition, records=b"") for one in topic.partitions],
        )
        for topic in request.topics
    ]


def _listed(request: Any, response: Any, version: int) -> None:
    table = type(response)
    response.topics = [
        table.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                table.ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=0)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]


YES: dict[str, Answer] = {
    "CreateTopics": _created,
    "Produce": _produced,
    "Fetch": _fetched,
    "ListOffsets": _listed,
}


class Flock(Parrot):
    """Three brokers that report the placement that was asked for, never end, and store no record."""

    def __init__(self) -> None:
        self.placed: dict[str, list[int]] = {}
        super().__init__({"CreateTopics": self._place})

    def _place(self, request: Any, response: Any, version: int) -> None:
        result = type(response).CreatableTopicResult
        for topic in request.topics:
            self.placed[topic.name] = list(topic.assignments[0].broker_ids) if topic.assignments else [1, 2, 3]
        response.topics = [result(name=topic.name) for topic in request.topics]

    def api_versions(self, request: Any, response: Any, version: int) -> None:
        super().api_versions(request, response, version)
        feature = type(response).FinalizedFeatureKey
        response.finalized_features = [feature(name="eligible.leader.replicas.version", max_version_level=1)]

    def metadata(self, request: Any, response: Any, version: int) -> None:
        super().metadata(request, response, version)
        response.brokers = [type(response.brokers[0])(node_id=n, host="127.0.0.1", port=self.port) for n in (1, 2, 3)]
        for topic in response.topics:
            for partition in topic.partitions:
                partition.replica_nodes = partition.isr_nodes = self.placed.get(topic.name, [1, 2, 3])
                partition.leader_id = partition.replica_nodes[0]
            del topic.partitions[1:]


@contextmanager
def parrot(answers: dict[str, Answer] | None = None) -> Iterator[Parrot]:
    bird = Parrot(answers)
    try:
        yield bird
    finally:
        bird.close()


def target_of(bootstrap: str, hooks: tuple[str, ...] = ()) -> Callable[..., Any]:
    """An `open_target` for a broker that runs already."""

    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(bootstrap=bootstrap, hooks=hooks)

    return open_target
