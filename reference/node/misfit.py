"""What the other members of the quorum say of a node that does not fit in: told once, not with every request.

A node of another cluster, or a voter that the others do not count among theirs, asks and is refused for ever. Kafka's own
nodes say so in their logs; without a word the node would merely be silent. Source: KIP-595, errors of its requests.
"""

from __future__ import annotations

from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

SENTENCES: dict[int, str] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster",
    ErrorCode.INCONSISTENT_VOTER_SET: "its controller.quorum.voters are others than this node's",
}
"""Error -> what it says of the node that gave it."""


class Misfit:
    """Hears the answers of other members, and says what they find wrong with this node."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._said: dict[NodeId, int] = {}

    def heard(self, peer: NodeId, answer: Message) -> None:
        """An answer has come; a refusal that is new from this peer is worth a line."""
        error = _refusal(answer)
        if error != self._said.get(peer, ErrorCode.NONE):
            self._said[peer] = error
            if error in SENTENCES:
                self._log("error", f"node {peer} refuses this node with {name_of(error)}: {SENTENCES[error]}")


def _refusal(answer: Message) -> int:
    """The answer's error, or that of its one partition: a quorum has one log."""
    error: int = getattr(answer, "error_code", ErrorCode.NONE)
    for topic in getattr(answer, "topics", ()) if error == ErrorCode.NONE else ():
        for partition in topic.partitions:
            return partition.error_code
    return error
