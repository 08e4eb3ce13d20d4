"""A node that its quorum refuses logs the refusal once for each peer."""

from __future__ import annotations

import pytest

from reference.controller import quorum_messages as messages
from reference.node.peers import PeerRefusals
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.vote import VoteResponse
from reference.protocol.primitives import NO_NODE, LeaderEpoch, NodeId
from reference.protocol.schema import Message

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
