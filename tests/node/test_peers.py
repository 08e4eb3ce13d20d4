"""Requests to other nodes: each caller gets one response, or one failure.

A node that its quorum refuses logs the refusal once for each peer.
"""

from __future__ import annotations

import pytest

from reference.controller import quorum_messages as messages
from reference.node.apis import ALTER_PARTITION_REASSIGNMENTS, LIST_OFFSETS, UPDATE_FEATURES, apis_of
from reference.node.effects import Effect, HangUp, Send
from reference.node.peers import PeerRefusals, Peers
from reference.node.properties import Address
from reference.node.release import BROKER, versions_of
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, encode_response
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import AT_ONCE, NEVER, NO_NODE, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message
from tests.node.three_nodes import ThreeNodes, joined

VOTE = 52
PEER, OTHER = NodeId(2), NodeId(3)


class Asker:
    """The peers of node 1, their effects, and the responses."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.answers: list[tuple[str, Message | None, int]] = []
        self.peers = Peers(NodeId(1), self.effects.append)

    def ask(
        self, name: str, peer: NodeId = PEER, purpose: str = "quorum", now: TimestampMs = AT_ONCE, timeout_ms: int = 100
    ) -> Send:
        self.peers.ask(
            peer,
            Address("127.0.0.1", 9093),
            purpose,
            VoteRequest(cluster_id=name),
            now,
            timeout_ms,
            lambda answer, then: self.answers.append((name, answer, then)),
        )
        sent = self.effects[-1]
        assert isinstance(sent, Send)
        return sent


def answer_to(sent: Send, error_code: int = 0) -> bytes:
    header, _, _, _ = decode_request(sent.frame[4:])
    parts = encode_response(
        VOTE, header.request_api_version, header.correlation_id, VoteResponse(error_code=error_code)
    )
    return joined(parts)[4:]


@pytest.mark.parametrize(("release", "version"), [("4.3.1", 2), ("3.9.2", 1)])
def test_a_question_has_the_newest_version_of_the_peers_release(release: str, version: int) -> None:
    effects: list[Effect] = []
    Peers(NodeId(1), effects.append, release).ask(
        PEER, Address("127.0.0.1", 9093), "quorum", VoteRequest(), AT_ONCE, 100, lambda answer, then: None
    )
    (sent,) = effects
    assert isinstance(sent, Send)
    assert decode_request(sent.frame[4:])[0].request_api_version == version


def test_each_question_gets_its_own_answer() -> None:
    asker = Asker()
    first, second = asker.ask("first"), asker.ask("second")
    asker.peers.answered(PEER, "quorum", answer_to(first, 1), now=TimestampMs(5))
    assert "quorum" in asker.peers.purposes_to(PEER)
    asker.peers.answered(PEER, "quorum", answer_to(second, 2), now=TimestampMs(6))
    assert [(name, getattr(answer, "error_code", None), now) for name, answer, now in asker.answers] == [
        ("first", 1, 5),
        ("second", 2, 6),
    ]
    assert "quorum" not in asker.peers.purposes_to(PEER)


def test_a_lost_connection_fails_the_requests_of_its_channel_and_nothing_else() -> None:
    asker = Asker()
    asker.ask("first")
    asker.ask("second")
    asker.ask("other channel", purpose="controller")
    asker.ask("other peer", peer=OTHER)
    asker.peers.unreachable(PEER, "quorum", now=TimestampMs(7))
    assert asker.answers == [("first", None, 7), ("second", None, 7)]
    asker.peers.unreachable(PEER, "quorum", now=TimestampMs(8))
    assert len(asker.answers) == 2


@pytest.mark.parametrize("damage", ["another correlation id", "rubbish", "trailing bytes"])
def test_an_answer_that_does_not_fit_ends_the_channel(damage: str) -> None:
    asker = Asker()
    asker.ask("first")
    fitting = answer_to(asker.ask("second"))
    frame = {"another correlation id": fitting, "rubbish": b"\x00", "trailing bytes": fitting + b"\x00"}[damage]
    asker.peers.answered(PEER, "quorum", frame, now=TimestampMs(9))
    assert asker.answers == [("first", None, 9), ("second", None, 9)]
    assert asker.effects[-1] == HangUp(PEER, "quorum")


def test_an_answer_without_an_open_request_ends_the_channel() -> None:
    asker = Asker()
    asker.peers.answered(PEER, "quorum", b"\x00" * 8, now=TimestampMs(1))
    assert asker.effects == [HangUp(PEER, "quorum")]


def test_what_waits_too_long_has_failed() -> None:
    asker = Asker()
    assert asker.peers.next_deadline() == NEVER
    asker.ask("slow", timeout_ms=100)
    asker.ask("patient", peer=OTHER, timeout_ms=500)
    assert asker.peers.next_deadline() == 100
    asker.peers.tick(TimestampMs(99))
    assert asker.answers == []
    asker.peers.tick(TimestampMs(100))
    assert asker.answers == [("slow", None, 100)]
    assert asker.effects[-1] == HangUp(PEER, "quorum")
    assert asker.peers.next_deadline() == 500


def test_a_caller_that_learns_of_a_failure_may_ask_again_at_once() -> None:
    asker = Asker()

    def again(answer: Message | None, now: TimestampMs) -> None:
        asker.ask("again", now=now)

    asker.peers.ask(PEER, Address("127.0.0.1", 9093), "quorum", VoteRequest(), AT_ONCE, 100, again)
    asker.peers.unreachable(PEER, "quorum", now=TimestampMs(50))
    assert "quorum" in asker.peers.purposes_to(PEER)
    assert asker.peers.next_deadline() == 150


@pytest.mark.parametrize(("release", "features", "reassignments"), [("4.3.1", 2, 1), ("3.9.2", 1, 0)])
def test_what_is_forwarded_is_offered_in_the_versions_of_the_controllers(
    release: str, features: int, reassignments: int
) -> None:
    """As Kafka's brokers do (ApiVersionsResponse.intersectForwardableApis): ListOffsets is theirs, and stays."""
    node = next(iter(ThreeNodes().nodes.values()))
    apis = apis_of(BROKER, node, release)
    assert (apis[UPDATE_FEATURES].highest, apis[ALTER_PARTITION_REASSIGNMENTS].highest) == (features, reassignments)
    assert apis[LIST_OFFSETS].highest == versions_of(LIST_OFFSETS)[1]


STRANGER = ErrorCode.INCONSISTENT_CLUSTER_ID
GRANTED = messages.vote_response(ErrorCode.NONE, LeaderEpoch(1), NodeId(1), granted=True)
NO_VOTER = messages.vote_response(ErrorCode.INCONSISTENT_VOTER_SET, LeaderEpoch(1), NO_NODE, granted=False)


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        ([GRANTED, FetchResponse()], []),
        ([FetchResponse(error_code=STRANGER)], ["another cluster"]),
        ([VoteResponse(error_code=STRANGER)] * 3, ["another cluster"]),
        ([NO_VOTER, NO_VOTER], ["controller.quorum.voters are others"]),
        ([NO_VOTER, GRANTED, NO_VOTER], ["voters are others", "voters are others"]),
        ([messages.vote_response(ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(9), NO_NODE, granted=False)], []),
    ],
)
def test_each_peer_is_quoted_once(answers: list[Message], lines: list[str]) -> None:
    said: list[str] = []
    refusals = PeerRefusals(lambda level, sentence: said.append(f"{level} {sentence}"))
    for answer in answers:
        refusals.take(NodeId(2), answer)
    assert len(said) == len(lines)
    for line, expected in zip(said, lines, strict=True):
        assert line.startswith("error node 2 refuses this node") and expected in line


def test_another_peer_is_quoted_too() -> None:
    said: list[str] = []
    refusals = PeerRefusals(lambda level, sentence: said.append(sentence))
    for peer in (1, 2, 1):
        refusals.take(NodeId(peer), FetchResponse(error_code=STRANGER))
    assert [sentence.split()[1] for sentence in said] == ["1", "2"]
