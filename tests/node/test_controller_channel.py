"""Requests forwarded to the active controller: each is answered once, through changes of controller, or times out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node.access import Access
from reference.node.active_controller import Asked
from reference.node.apis import DECIDED_HANDLERS
from reference.node.controller_channel import RETRY_MS, TIMEOUT_MS, ControllerChannel
from reference.node.effects import Effect, Respond
from reference.node.principals import decode_host, decode_principal, encode_principal
from reference.node.properties import Address
from reference.node.quotas import Quotas
from reference.node.refusals import refusal
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.requests import Client, Request, Responder
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_response
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from reference.protocol.primitives import AT_ONCE, NodeId, TimestampMs
from reference.protocol.schema import Message
from tests.node.three_nodes import joined

CREATE_TOPICS, VERSION = 19, 7
BODY = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")])


class Broker:
    """The channel of broker 1; the test is the quorum, the active controller and node 2, which leads the quorum."""

    node, leader, epoch = NodeId(1), 2, 1
    decides: Any

    def __init__(self) -> None:
        self.is_active = False
        self.asked: list[tuple[Message, Any]] = []
        self.decided: list[tuple[Message, Any, Any]] = []
        self.effects: list[Effect] = []
        world: Any = self
        configuration = Configuration(self.node, {}, MetadataImage())
        access = Access(configuration, None, {}, lambda level, text: None)
        responder = Responder(self.effects.append)
        context: Any = SimpleNamespace(responder=responder, access=access, configuration=configuration)
        reach = {2: Address("host", 9)}.__getitem__
        self.channel = ControllerChannel(world, world, world, reach, context, Quotas(configuration))

    def ask(
        self, peer: int, address: object, purpose: str, body: Message, now: int, timeout_ms: int, answered: object
    ) -> None:
        self.asked.append((body, answered))

    def decide(self, asked: Asked, answer: object, abandon: object, now: int) -> None:
        self.decided.append((asked.body, answer, abandon))

    def carry(self, now: TimestampMs = AT_ONCE) -> None:
        request = Request(Client(1, "127.0.0.1", "PLAINTEXT"), CREATE_TOPICS, VERSION, 77, "client")
        self.channel.carry(request, BODY, b"frame", now)

    def answer(self, answer: Message | None, now: int = 0) -> None:
        self.asked.pop()[1](answer, now)

    def response(self) -> bytes:
        """The frame of the one response."""
        (effect,) = self.effects
        assert isinstance(effect, Respond) and effect.parts is not None
        return joined(effect.parts)


def test_an_answer_comes_back_under_the_clients_number() -> None:
    broker = Broker()
    broker.carry()
    envelope = broker.asked[0][0]
    assert isinstance(envelope, EnvelopeRequest) and envelope.request_data == b"frame"
    parts = encode_response(CREATE_TOPICS, VERSION, 5, CreateTopicsResponse())
    frame = joined(parts)
    broker.answer(EnvelopeResponse(response_data=frame[4:]))
    assert broker.response() == frame[:4] + (77).to_bytes(4, "big") + frame[8:]


def test_no_answer_and_no_controller_are_tried_again_until_the_time_is_over() -> None:
    broker = Broker()
    broker.carry()
    broker.answer(None, 10)
    assert broker.channel.next_deadline() == 10 + RETRY_MS and broker.asked == []
    broker.channel.tick(AT_ONCE + 10 + RETRY_MS)
    broker.answer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), 100)
    broker.channel.tick(AT_ONCE + TIMEOUT_MS)
    assert broker.asked == []
    _, refused = decode_response(CREATE_TOPICS, VERSION, broker.response()[4:])
    assert isinstance(refused, CreateTopicsResponse) and refused.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert broker.channel.next_deadline() is None


def test_a_broker_that_becomes_the_controller_decides_what_it_was_to_carry_on() -> None:
    broker = Broker()
    broker.carry()
    broker.answer(None, 0)
    broker.is_active = True
    broker.channel.tick(AT_ONCE + RETRY_MS)
    ((body, answer, _),) = broker.decided
    assert body is BODY
    answer(CreateTopicsResponse(), RETRY_MS)
    assert decode_response(CREATE_TOPICS, VERSION, broker.response()[4:]) == (77, CreateTopicsResponse())


def test_a_controller_that_is_deposed_asks_its_successor_and_one_that_is_busy_tries_again() -> None:
    broker = Broker()
    broker.is_active = True
    broker.carry()
    broker.decided.pop()[2](20)
    assert broker.asked == [] and broker.channel.next_deadline() == 20 + RETRY_MS
    broker.channel.tick(AT_ONCE + 20 + RETRY_MS)
    broker.is_active = False
    broker.decided.pop()[2](90)
    assert len(broker.asked) == 1 and broker.channel.next_deadline() is None


def test_everything_that_can_be_forwarded_can_be_refused_in_every_version() -> None:
    for key in DECIDED_HANDLERS:
        lowest, highest = versions_of(key)
        for version in range(lowest, highest + 1):
            answer = refusal(key, version, APIS[key].request(), ErrorCode.REQUEST_TIMED_OUT)
            encode_response(key, version, 1, answer)
    assert any(is_served_on(key, BROKER) for key in DECIDED_HANDLERS)


def test_a_forwarded_request_names_its_client() -> None:
    broker = Broker()
    alice = Client(1, "192.0.2.7", "PLAINTEXT", principal="User:alice", by_token=True)
    broker.channel.carry(Request(alice, CREATE_TOPICS, VERSION, 77, "client"), BODY, b"frame", AT_ONCE)
    envelope = broker.asked[0][0]
    assert isinstance(envelope, EnvelopeRequest) and envelope.request_principal is not None
    assert decode_principal(envelope.request_principal) == ("User:alice", True)
    assert decode_host(envelope.client_host_address) == "192.0.2.7"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\x00\x01\x05User"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\x00\x00\x05Us"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\x7f"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\x00\x13"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_envelope_without_a_readable_client_or_request_is_refused(changes: dict[str, Any], error: int) -> None:
    broker = Broker()
    broker.is_active = True
    broker.decides = lambda key: True
    given = {
        "request_principal": encode_principal("User:a", False),
        "client_host_address": b"\x7f\x00\x00\x01",
        **changes,
    }
    request = Request(Client(1, "127.0.0.1", "CONTROLLER"), 58, 0, 1, "node-2")
    answer = broker.channel.open_envelope(request, EnvelopeRequest(**given), AT_ONCE)
    assert answer is not None and answer.error_code == error and broker.decided == []
