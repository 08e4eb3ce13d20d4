"""FRM: framing, headers, malformed input: rules for requests and responses of every API."""

import socket
import struct
import time

from conformance.batches import batch
from conformance.broker import Broker
from conformance.conversation import CLOSED_WITHIN_S
from conformance.requirement import requirement
from conformance.wire import BrokerConnection, Closed, frame, request_header, tagged_fields
from linearizability.client.requests import fetch_request, produce_request
from reference.protocol.apis import APIS
from reference.protocol.codec import encode
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message

METADATA, API_VERSIONS = 3, 18
FLEXIBLE_METADATA = 9
"""The first flexible version of Metadata."""
SIZE_BYTES = 4
IDLE_MS, EARLY_MS = 1500, 100
"""How long a connection may be idle, and by how much a timer may expire earlier."""
UNKNOWN_TAG = tagged_fields((9999, b"no broker knows this"))


def no_topics() -> MetadataRequest:
    """The smallest request with a body."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=True)


def about_one_topic(broker: Broker) -> MetadataRequest:
    """A request with an answer that other topics do not change: some brokers list all for none, also those of illegal names."""
    name = broker.unused_name()
    broker.subject.topics.append(name)  # some make it
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)


def expect_rejected(broker: Broker, data: bytes, what: str) -> None:
    """Expect that the broker closes the connection on which these bytes are sent, without a response, and serves others.

    Tolerated are brokers that check the size only after the frame's first byte, and brokers that respond to a size before they
    close the connection: neither allocates memory for the frame.
    """
    connection, is_size = broker.connect(), len(data) == SIZE_BYTES
    connection.send_bytes(data, note=what)
    if late := is_size and connection.is_silent(CLOSED_WITHIN_S):
        connection.send_bytes(b"\x00", note="the frame's first byte")
    broker.expect_closed(connection, what=f"{what}, of which one was sent," if late else what, may_answer=is_size)
    if late:
        broker.tolerate(f"{what} is refused at its first byte, not at its size")
    broker.expect_served(what=f"after {what} another connection is served")


@requirement(
    "FRM-01",
    notices="stuck: Java, franz-go, sarama and aiokafka take another correlation id for a broken connection, and close it",
    source="Protocol guide, Common Request and Response Structure",
    sentence="Every response is a 32-bit size and that many bytes, and carries the request's correlation id unchanged.",
    accepted="the response ends where its size says, and bears correlation ids 0, 1, -1, 2147483647, -2147483648",
)
def correlation_id_returns(broker: Broker) -> None:
    request, connection = about_one_topic(broker), broker.connect()
    for correlation_id in (0, 1, -1, 2147483647, -2147483648):
        connection.send(request, broker.version_for(MetadataRequest), correlation_id=correlation_id)
        connection.receive()  # refuses another correlation id, missing bytes and bytes after the end
        broker.saw(f"correlation id {correlation_id} came back")
    broker.expect(connection.is_silent(0.1), "nothing follows the last response")


@requirement(
    "FRM-02",
    notices="stuck: Java, franz-go, sarama and aiokafka match answers by order, and close the connection on any other one",
    source="Protocol guide, Network; SocketServer.processCompletedReceives",
    sentence="Requests pipelined on one connection are answered in the order in which they were sent.",
    accepted="20 answers in the order of their requests, a slow one (a waiting fetch) among them",
)
def pipelined_in_order(broker: Broker) -> None:
    fetch = fetch_request({(broker.topic(), 0): 0}, max_wait_ms=300)
    version = broker.version_for(fetch)
    request, connection = about_one_topic(broker), broker.connect()
    for number in range(20):
        connection.send(*((fetch, version) if number == 5 else (request, broker.version_for(MetadataRequest))))
    for _ in range(20):
        connection.receive()  # refuses an answer that bears another request's correlation id
    broker.saw("20 answers came in the order of their requests")


@requirement(
    "FRM-03",
    notices="stuck: TCP cuts requests where it likes; every client's requests arrive in pieces on a slow or busy network",
    source="NetworkReceive.readFrom",
    sentence="A request that arrives in many segments, even of one byte each, is answered as if it came whole.",
    accepted="an answer to a request sent byte by byte, and to one cut in the middle of its size field",
)
def request_in_pieces(broker: Broker) -> None:
    request, connection = about_one_topic(broker), broker.connect()
    version = broker.version_for(MetadataRequest)
    for pieces in (1, 2, 3):
        data = connection.encode(request, version)
        connection.send_bytes(data, api_key=METADATA, version=version, awaited=True, pieces=pieces)
        connection.receive()
        broker.saw(f"a request in segments of {pieces} bytes was answered")


@requirement(
    "FRM-04",
    notices="security: any client holds a connection and its memory for ever, or ends a broker that reads this size",
    source="NetworkReceive.readFrom (InvalidReceiveException)",
    sentence="A frame that announces a negative size closes the connection without an answer.",
    accepted="closed without an answer, for sizes -1 and -2147483648; other connections are served",
    tolerated="the connection is closed at the frame's first byte, not at its size, or after an answer",
)
def negative_size(broker: Broker) -> None:
    for size in (-1, -2147483648):
        expect_rejected(broker, struct.pack(">i", size), f"a frame of {size} bytes")


@requirement(
    "FRM-05",
    notices="security: a client that can connect makes the broker keep 2 GiB for a frame (kfake waits for all of it)",
    source="NetworkReceive.readFrom; socket.request.max.bytes, default 104857600",
    sentence="A frame larger than socket.request.max.bytes closes the connection without an answer; others are served.",
    accepted="closed without an answer, for 104857601 and for 2147483647 announced bytes",
    tolerated="the connection is closed at the frame's first byte, not at its size, or after an answer",
)
def too_large(broker: Broker) -> None:
    for size in (104_857_601, 2_147_483_647):
        expect_rejected(broker, struct.pack(">i", size), f"a frame of {size} bytes")


@requirement(
    "FRM-06",
    notices="client: one newer than the broker waits for its request timeout where the close is an answer at once",
    source="RequestHeader.parse (InvalidRequestException); SocketServer",
    sentence="A request with an unknown API key closes the connection without an answer.",
    accepted="closed without an answer, for API keys 999, 32767 and -1",
)
def unknown_api_key(broker: Broker) -> None:
    for key in (999, 32767, -1):
        header = request_header(key, 0, 7, "tidegauge", flexible=False)
        expect_rejected(broker, frame(header), f"a request with API key {key}")


@requirement(
    "FRM-07",
    notices="client: a client without ApiVersions learns by the close, not by its timeout, that the version is too new",
    source="SocketServer.processCompletedReceives (UnsupportedVersionException)",
    sentence="A known API in a version that is not advertised closes the connection: there is no layout for the refusal.",
    accepted="closed without an answer, for Metadata one version and 1000 versions above the highest",
    apis={"Metadata": 0},
)
def unsupported_version(broker: Broker) -> None:
    highest = broker.subject.api_versions[METADATA][1]
    for version in (highest + 1, highest + 1000):
        header = request_header(METADATA, version, 7, "tidegauge", flexible=True)
        body = encode(no_topics(), MetadataRequest.VERSIONS.highest)
        expect_rejected(broker, frame(header + body), f"Metadata v{version}")


def unreadable_bodies() -> dict[str, bytes]:
    """Metadata v1 bodies that cannot be parsed."""
    return {
        "an empty body": b"",
        "an array cut off": struct.pack(">i", 3) + struct.pack(">h", 1) + b"a",
        "an array of 2147483647 elements": struct.pack(">i", 2147483647),
        "a string longer than the body": struct.pack(">ih", 1, 32767) + b"a",
        "a string of length -2": struct.pack(">ih", 1, -2),
    }


@requirement(
    "FRM-08",
    notices="client: one whose request is damaged waits for its timeout, or reads an answer to what it did not ask",
    source="RequestContext.parseRequest (InvalidRequestException)",
    sentence="A body that cannot be parsed closes the connection without an answer, and the next connection works.",
    accepted="closed without an answer, for five damaged Metadata v1 bodies",
)
def unreadable_body(broker: Broker) -> None:
    header = request_header(METADATA, 1, 7, "tidegauge", flexible=False)
    for name, body in unreadable_bodies().items():
        with broker.case(name):
            expect_rejected(broker, frame(header + body), name)


@requirement(
    "FRM-09",
    notices="none seen: generated encoders of all clients refuse to write such a null",
    source="Message schemas, nullableVersions; generated readers throw on null",
    sentence="A null where the schema knows none is refused like a body that cannot be parsed.",
    accepted="closed without an answer, for a null topic name in Metadata v1 and a null topic array in v0",
)
def null_where_not_nullable(broker: Broker) -> None:
    cases = {
        "a null topic name in v1": (1, struct.pack(">ih", 1, -1)),
        "a null topic array in v0": (0, struct.pack(">i", -1)),
    }
    for name, (version, body) in cases.items():
        with broker.case(name):
            broker.version_for(MetadataRequest, version)
            header = request_header(METADATA, version, 7, "tidegauge", flexible=False)
            expect_rejected(broker, frame(header + body), name)


@requirement(
    "FRM-10",
    notices="stuck: clients may send tagged fields that the broker does not know yet (KIP-482), and would get no answer",
    source="KIP-482; message schemas, flexibleVersions",
    sentence="In flexible versions an unknown tagged field in the header or in the body is ignored: the request succeeds.",
    accepted="the same answer as without the field",
    apis={"Metadata": FLEXIBLE_METADATA},
)
def unknown_tagged_fields(broker: Broker) -> None:
    connection = broker.connect()
    version = max(FLEXIBLE_METADATA, broker.versions_of(MetadataRequest)[0])
    plain = connection.call(no_topics(), version)
    in_header = connection.call(no_topics(), version, header_tags=UNKNOWN_TAG)
    tagged = no_topics()
    tagged.unknown_tagged_fields = ((9999, b"no broker knows this"),)  # pyright: ignore[reportAttributeAccessIssue]
    in_body = connection.call(tagged, version)
    for answer in (plain, in_header, in_body):
        answer.controller_id = 0  # any broker at random, where brokers are no controllers themselves
        answer.topics = []  # a broker that reports all of them has more from moment to moment
    broker.expect(plain == in_header, "a tagged field in the header changes nothing")
    broker.expect(plain == in_body, "a tagged field in the body changes nothing")


@requirement(
    "FRM-11",
    notices="stuck: rskafka 0.3 sends null and could not talk to Redpanda (redpanda issue 6570); KIP-1313 makes it common",
    source="RequestHeader schema, ClientId nullable",
    sentence="A null client id in the request header is accepted.",
    accepted="an answer, in a flexible version and in one that is not; the same for an empty client id",
)
def null_client_id(broker: Broker) -> None:
    request, connection = about_one_topic(broker), broker.connect()
    for version in {broker.versions_of(MetadataRequest)[0], broker.version_for(MetadataRequest)}:
        connection.call(request, version, client_id=None)
        broker.saw(f"Metadata v{version} with a null client id was answered")
    broker.connect(client_id="").call(request, broker.version_for(MetadataRequest))
    broker.saw("an empty client id was answered")


@requirement(
    "FRM-12",
    notices="misread: every client takes the header's length from the API and version, and reads the body at a wrong byte",
    source="KIP-482; KIP-511; ApiVersionsResponse (header v0 in every version)",
    sentence="The response header has tagged fields exactly in flexible versions, except for ApiVersions, which never has them.",
    accepted="Metadata below and from v9 on, and ApiVersions v3, are read to their last byte with these headers",
    apis={"Metadata": FLEXIBLE_METADATA, "ApiVersions": 3},
)
def response_header_versions(broker: Broker) -> None:
    connection = broker.connect()
    requests: list[Message] = [
        no_topics(),
        APIS[API_VERSIONS].request(client_software_name="a", client_software_version="1"),
    ]
    for request in requests:
        lowest, highest = broker.advertised(type(request))
        for version in range(lowest, highest + 1):
            connection.call(request, version)  # a header of the other form leaves bytes over or too few
        broker.saw(f"{APIS[type(request).KEY].name} v{lowest} to v{highest} have the header of their version")


@requirement(
    "FRM-13",
    notices="operator: connections that clients forgot add up until the broker has no file descriptors left",
    source="connections.max.idle.ms, default 600000",
    sentence="A connection on which nothing is said for connections.max.idle.ms is closed; one in use is not.",
    accepted="with 1500 ms configured: the idle connection is closed within 8 s and not before 1500 ms, the busy one is served "
    "all the time",
    configs={"connections.max.idle.ms": str(IDLE_MS)},
    alone=True,
)
def idle_connection(broker: Broker) -> None:
    idle, busy = broker.connect(), broker.connect()
    version = broker.version_for(MetadataRequest)
    began_s = used_s = time.monotonic()
    idle.call(no_topics(), version)

    def closed() -> bool:
        nonlocal busy, used_s
        sent_s = time.monotonic()
        try:
            busy.call(no_topics(), version)
        except Closed:
            if time.monotonic() - used_s < IDLE_MS / 1000:
                raise
            busy = broker.connect()  # this machine was too slow to use it in time
        used_s = sent_s
        return not idle.is_silent(0.05)

    broker.eventually(closed, "the idle connection is closed", within_s=8, every_s=0.2)
    idle_ms = (time.monotonic() - began_s) * 1000
    broker.expect_equal("what the idle connection gives before it is closed", idle.wait_closed(), b"")
    broker.expect(idle_ms >= IDLE_MS - EARLY_MS, f"it was closed after {idle_ms:.0f} ms, not before {IDLE_MS} ms")
    broker.saw("the idle connection was closed, the busy one was served")


@requirement(
    "FRM-14",
    notices="security: a port scanner or one broken client stops the service for all others",
    source="SocketServer (a bad connection is closed alone)",
    sentence="Garbage on a connection (random bytes, a TLS hello, HTTP, half a frame) never keeps others from being served.",
    accepted="a well-formed client on another connection is served after each, and while half frames lie open",
)
def garbage_is_contained(broker: Broker) -> None:
    garbage = {
        "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(range(189)),
        "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        "bytes that are no frame": bytes((number * 197 + 31) % 256 for number in range(997)),
        "a frame without a header": frame(b""),
        "half a header": frame(b"\x00\x03\x00"),
    }
    open_ones: list[BrokerConnection] = []
    for name, data in garbage.items():
        connection = broker.connect()
        connection.send_bytes(data, note=name)
        connection.hang_up_sending()
        open_ones.append(connection)
        broker.expect_served(what=f"after {name} another connection is served")
    for _ in range(50):
        half = broker.connect()
        half.send_bytes(struct.pack(">i", 100) + bytes(10), note="half a frame")
        half.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        open_ones.append(half)
    broker.expect_served(what="while 50 half frames lie open another connection is served")


@requirement(
    "FRM-15",
    notices="none seen: all clients give up a connection's requests when it closes, and send them again on another",
    source="SocketServer.processCompletedReceives (one request in flight on a connection)",
    sentence="What follows a request that closes the connection is not executed; what came before it is answered first.",
    accepted="the first answer, then the close; the produce that follows is not appended",
)
def nothing_after_the_error(broker: Broker) -> None:
    topic = broker.topic()
    connection = broker.connect()
    asked = broker.version_for(MetadataRequest)
    connection.send(no_topics(), asked)
    header = request_header(METADATA, asked, 8, "tidegauge", flexible=asked in MetadataRequest.FLEXIBLE)
    bad = frame(header + (b"" if asked in MetadataRequest.FLEXIBLE else struct.pack(">i", 2147483647)))
    produce = produce_request({(topic, 0): batch(b"must not be appended")})
    version = broker.version_for(ProduceRequest)
    connection.send_bytes(bad + connection.encode(produce, version), note="a damaged request, then a produce")
    connection.receive()
    broker.expect_closed(connection, what="the connection after its first answer")
    broker.expect_equal("the log end offset", broker.end_offset(topic), 0)
