"""Requests on their way to the active controller: answered once, whoever comes to be it, and refused when their time is over."""

from __future__ import annotations

from reference.node.apis import DECIDED_HANDLERS
from reference.node.forwarding import RETRY_MS, TIMEOUT_MS, Forwarding
from reference.node.refusals import refusal
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.requests import Client, Request
from reference.protocol.apis import APIS
from reference.protocol.codec import Part
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import encode_response
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from reference.protocol.schema import Message

CREATE_TOPICS = 19
BODY = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")])


class Broker:
    """Forwarding, and the controller that the test plays."""

    def __init__(self) -> None:
        self.is_controller = False
        self.asked: list[tuple[Message, object]] = []
        self.decided: list[tuple[Message, object]] = []
        self.responses: list[Message] = []
        self.raw: list[bytes] = []
        self.forwarding = Forwarding(self, lambda request, answer: self.responses.append(answer), self._raw)

    def _raw(self, request: Request, parts: list[Part]) -> None:
        self.raw.append(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]

    def ask(self, lane: str, body: Message, answered: object, now: int) -> None:
        self.asked.append((body, answered))

    def decide_here(self, request: Request, body: Message, answered: object, now: int) -> bool:
        if self.is_controller:
            self.decided.append((body, answered))
        return self.is_controller

    def forward(self, now: int = 0) -> None:
        request = Request(Client(1, "127.0.0.1", "PLAINTEXT"), CREATE_TOPICS, 7, 77, "client")
        self.forwarding.forward(request, BODY, b"frame", now)

    def answer(self, answer: Message | None, now: int = 0) -> None:
        _, answered = self.asked.pop()
        answered(answer, now)  # type: ignore[operator]


def test_an_answer_comes_back_under_the_clients_number() -> None:
    broker = Broker()
    broker.forward()
    envelope = broker.asked[0][0]
    assert isinstance(envelope, EnvelopeRequest) and envelope.request_data == b"frame"
    frame = b"".join(bytes(part) for part in encode_response(CREATE_TOPICS, 7, 5, CreateTopicsResponse()))  # type: ignore[arg-type]
    broker.answer(EnvelopeResponse(response_data=frame[4:]))
    assert broker.raw == [frame[:4] + (77).to_bytes(4, "big") + frame[8:]]


def test_no_answer_and_no_controller_are_tried_again_until_the_time_is_over() -> None:
    broker = Broker()
    broker.forward()
    broker.answer(None, 10)
    assert broker.forwarding.next_deadline() == 10 + RETRY_MS and broker.asked == []
    broker.forwarding.tick(10 + RETRY_MS)
    broker.answer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), 100)
    broker.forwarding.tick(TIMEOUT_MS)
    assert broker.asked == []
    (refused,) = broker.responses
    assert isinstance(refused, CreateTopicsResponse) and refused.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert broker.forwarding.next_deadline() is None


def test_who_becomes_the_controller_decides_what_it_was_to_carry_on() -> None:
    broker = Broker()
    broker.forward()
    broker.answer(None, 0)
    broker.is_controller = True
    broker.forwarding.tick(RETRY_MS)
    ((body, answered),) = broker.decided
    assert body is BODY
    answered(CreateTopicsResponse(), RETRY_MS)  # type: ignore[operator]
    assert broker.responses == [CreateTopicsResponse()]


def test_who_ceases_to_be_the_controller_carries_it_on_again() -> None:
    broker = Broker()
    broker.is_controller = True
    broker.forward()
    broker.is_controller = False
    broker.decided[0][1](None, 20)  # type: ignore[operator]
    broker.forwarding.tick(20 + RETRY_MS)
    assert len(broker.asked) == 1


def test_everything_that_can_be_forwarded_can_be_refused_in_every_version() -> None:
    for key in DECIDED_HANDLERS:
        lowest, highest = versions_of(key)
        for version in range(lowest, highest + 1):
            answer = refusal(key, version, APIS[key].request(), ErrorCode.REQUEST_TIMED_OUT)
            encode_response(key, version, 1, answer)
    assert any(is_served_on(key, BROKER) for key in DECIDED_HANDLERS)
