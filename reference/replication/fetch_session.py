"""The follower's side of a fetch session: after a full request, each request names changed partitions only (KIP-227).

A session begins with a full request (epoch 0). The leader answers with a session id, or without one if it has no room.
Each later request has the next epoch, and omits partitions that the leader remembers. An error, a lost response, or a
response that does not fit ends the session. The next request is then a full one, with the old id, so that the leader
can remove the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import LeaderEpoch, Offset, TopicId

NO_SESSION = 0
FIRST_EPOCH = 0
LAST_EPOCH = 0x7FFFFFFF

Key = tuple[TopicId, int]
"""A partition: its topic's id, and its index."""


class Wanted(NamedTuple):
    """The fetch of one partition."""

    fetch_offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start: Offset


@dataclass(slots=True)
class FetchSession:
    """One session with one leader, and the partitions that the leader remembers for it."""

    id: int = NO_SESSION
    epoch: int = FIRST_EPOCH
    partitions: dict[Key, Wanted] = field(default_factory=dict[Key, Wanted])

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self.epoch == FIRST_EPOCH

    def request(self, wanted: Mapping[Key, Wanted], partition_max_bytes: int, left: Iterable[Key] = ()) -> FetchRequest:
        """The next request, without the fields that do not belong to the session.

        `wanted` has the partitions whose fields may have changed; for a full request all partitions, in order. `left`
        has the partitions to drop from the session.
        """
        forgotten = [key for key in left if self.partitions.pop(key, None) is not None]
        is_full = self.is_full
        known = {} if is_full else self.partitions
        news = {key: each for key, each in wanted.items() if known.get(key) != each}
        self.partitions = known
        known.update(news)
        return FetchRequest(
            session_id=self.id,
            session_epoch=self.epoch,
            topics=_topics(news, partition_max_bytes),
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index])
                for topic_id, index in (() if is_full else forgotten)
            ],
        )

    def answered(self, response: FetchResponse) -> str | None:
        """Apply a response to the session; return the reason if the response cannot be used."""
        if response.error_code != ErrorCode.NONE:
            self.begin_again(forget_id=response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return f"the fetch session was refused with error {response.error_code}"
        named = [(topic.topic_id, each.partition_index) for topic in response.responses for each in topic.partitions]
        wrong = self._wrong_partitions(named)
        if wrong is not None:
            self.begin_again()
        elif response.session_id == NO_SESSION:
            self.begin_again(forget_id=True)
        else:
            self.id = response.session_id
            self.epoch = self.epoch + 1 if self.epoch < LAST_EPOCH else FIRST_EPOCH + 1
        return wrong

    def _wrong_partitions(self, named: Collection[Key]) -> str | None:
        strange = [key for key in named if key not in self.partitions]
        if strange:
            return f"the answer names partitions that were not asked for: {strange[:3]}"
        if len(named) > 1 and len(set(named)) != len(named):
            return "the answer names a partition twice"
        if len(named) != len(self.partitions) and self.is_full:
            return f"the answer to a full fetch of {len(self.partitions)} partitions names {len(named)}"
        return None

    def begin_again(self, *, forget_id: bool = False) -> None:
        """Make the next request a full one; with `forget_id` there is no session for the leader to close."""
        self.epoch = FIRST_EPOCH
        if forget_id:
            self.id = NO_SESSION


def _topics(wanted: Mapping[Key, Wanted], partition_max_bytes: int) -> list[FetchRequest.FetchTopic]:
    """The fetch topics in the order of `wanted`, in which the leader serves them."""
    topics: list[FetchRequest.FetchTopic] = []
    for (topic_id, index), each in wanted.items():
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchRequest.FetchTopic(topic_id=topic_id))
        topics[-1].partitions.append(
            FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch,
                log_start_offset=each.log_start,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return topics
