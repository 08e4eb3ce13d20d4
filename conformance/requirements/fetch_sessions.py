"""FSS: fetch sessions (KIP-227). The broker stores a client's partitions, and both sides send changes only."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from conformance.answers import only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.requirement import requirement, untestable
from linearizability.client.requests import Topic, fetch_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest

NO_SESSION = 0
"""The session id of a fetch without a session."""
FIRST, FINAL = 0, -1
"""Session epochs of a request for a new session, and of one without a session, which closes the one that it names."""
BY_ID = 13
"""The first version of Fetch with topic ids."""
SINCE = 7
"""The first version of Fetch with sessions."""

Offsets = Mapping[tuple[Topic, int], int]


class Session:
    """The client side of a session, which counts the session epochs."""

    def __init__(self, broker: Broker, offsets: Offsets, version: int | None = None, **fields: Any) -> None:
        """Request a new session. Skips if the broker creates none, which is correct if its session cache is full."""
        self.broker = broker
        self.version = broker.version_for(FetchRequest, version)
        self.leader = broker.leader(*next(iter(offsets)))
        self.id, self.epoch = NO_SESSION, FIRST
        self.partitions: set[tuple[Topic, int]] = set()
        self.first = self.ask(offsets, **fields)
        broker.expect_error(self.first.error_code, ErrorCode.NONE, what="a request for a session")
        broker.expect_equal("partitions in the first answer", sorted(served(self.first)), sorted(p for _, p in offsets))
        self.id = self.first.session_id
        if self.id == NO_SESSION:
            broker.skip("the target made no fetch session")

    def ask(
        self, offsets: Offsets | None = None, *, epoch: int | None = None, version: int | None = None, **fields: Any
    ) -> Any:
        """Send the session's next fetch; return the whole response. With `epoch` the session's own epoch is not advanced.

        Skips if the partitions of the session may have different leaders.
        """
        self.partitions |= (offsets or {}).keys()
        self.broker.needs_one_leader(topic for topic, _ in self.partitions)
        request = fetch_request(
            offsets or {}, session_id=self.id, session_epoch=self.epoch if epoch is None else epoch, **fields
        )
        answer = self.broker.call(request, self.version if version is None else version, to=self.leader)
        if epoch is None and answer.error_code == ErrorCode.NONE:
            self.epoch += 1
        return answer

    def serves(
        self, what: str, wanted: Mapping[int, list[bytes]], offsets: Offsets | None = None, **fields: Any
    ) -> Any:
        """Send the next fetch, and expect exactly these partitions and values; return the response."""
        answer = self.ask(offsets, **fields)
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)
        self.broker.expect_equal(f"{what}: the records by partition", served(answer), dict(wanted))
        self.broker.expect_equal(f"{what}: the session id", answer.session_id, self.id)
        return answer

    def is_gone(self, what: str) -> None:
        """Expect that the broker no longer has the session."""
        answer = self.ask(epoch=max(self.epoch, 1))
        self.broker.expect_error(answer.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, what=what)

    def close(self) -> None:
        """Close the session at the broker, which frees its slot in the cache."""
        self.ask(epoch=FINAL)


@contextmanager
def session(broker: Broker, offsets: Offsets, version: int | None = None, **fields: Any) -> Generator[Session]:
    """A session that is closed at the end."""
    opened = Session(broker, offsets, version, **fields)
    yield opened
    opened.close()


def served(answer: Any) -> dict[int, list[bytes | None]]:
    """Partition -> values, in the answer's order."""
    return {
        partition.partition_index: values(partition.records or b"")
        for topic in answer.responses
        for partition in topic.partitions
    }


def only_partition(answer: Any) -> Any:
    """The only partition of an answer."""
    return only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")


def everything(topic: Topic, offset: int = 0) -> dict[tuple[Topic, int], int]:
    """All partitions of the topic, from an offset."""
    return {(topic, partition): offset for partition in range(topic.partitions)}


def first_alone(topic: Topic) -> dict[int, list[bytes]]:
    """The expected values by partition: one record in the first, none in the others."""
    return {partition: [] if partition else [b"x"] for partition in range(topic.partitions)}


@requirement(
    "FSS-01",
    apis={"Fetch": SINCE},
    since="1.1",
    notices="stuck: librdkafka and sarama always fetch like this, Java and franz-go where they get no session",
    source="KIP-227; FetchManager.newContext (SessionlessFetchContext)",
    sentence="Session id 0 with epoch -1 is a fetch without a session: all partitions are answered, and the session id is 0.",
    accepted="session id 0 and every partition, also those without news or beyond max_bytes, each time, in v7 and later",
)
def without_a_session(broker: Broker) -> None:
    topic = broker.topic(3)
    for partition in range(topic.partitions):
        broker.append(topic, batch(b"x"), partition=partition)
    busy = {partition: [b"x"] for partition in range(topic.partitions)}
    for version in range(SINCE, broker.version_for(FetchRequest) + 1):

        def fetched(offsets: Offsets, version: int = version, **fields: Any) -> dict[int, list[bytes | None]]:
            request = fetch_request(offsets, session_id=NO_SESSION, session_epoch=FINAL, **fields)
            answer = broker.call(request, version, to=broker.leader(topic))
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"v{version}")
            broker.expect_equal("the session id", answer.session_id, NO_SESSION)
            return served(answer)

        for _ in range(2):
            broker.expect_equal(f"v{version}: the records by partition", fetched(everything(topic)), busy)
        idle = fetched(everything(topic, 1) | {(topic, 0): 0})
        broker.expect_equal(f"v{version}, without news but in the first", idle, first_alone(topic))
        limited = fetched(everything(topic), max_bytes=1)
        broker.expect_equal(f"v{version}, max_bytes 1: the partitions", sorted(limited), sorted(busy))


@requirement(
    "FSS-02",
    since="1.1",
    notices="client: Java and franz-go send and get all partitions in each fetch where they get no session",
    source="KIP-227; FetchSession.FullFetchContext",
    sentence="Session id 0 with epoch 0 makes a new session: the answer has all partitions and an id that no other session has.",
    accepted="ids above 0, all different, in v7 and later",
    tolerated="0: the broker makes no session, as Kafka does when its cache of them is full",
    apis={"Fetch": SINCE},
)
def new_session(broker: Broker) -> None:
    ids: list[int]
    topic, ids = broker.topic(2), []
    broker.append(topic, batch(b"x"))
    for version in range(SINCE, broker.version_for(FetchRequest) + 1):
        request = fetch_request(everything(topic), session_id=NO_SESSION, session_epoch=FIRST)
        answer = broker.call(request, version, to=broker.leader(topic))
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"v{version}")
        broker.expect_equal("the records by partition", served(answer), first_alone(topic))
        ids.append(answer.session_id)
        broker.call(fetch_request({}, session_id=answer.session_id, session_epoch=FINAL), version)
    if NO_SESSION in ids:
        broker.tolerate(f"the session ids are {ids}: no session was made")
    else:
        broker.expect(len(set(ids)) == len(ids) and min(ids) > 0, f"the session ids are {ids}")


@requirement(
    "FSS-03",
    since="1.1",
    notices="client: Java and franz-go make a new session on this code; a stale request would change theirs unseen",
    source="KIP-227; FetchManager.newContext",
    sentence="Each request of a session must carry the epoch after the last one's, beginning with 1; any other is "
    "INVALID_FETCH_SESSION_EPOCH without partitions, and the session goes on as if it had not been asked.",
    accepted="INVALID_FETCH_SESSION_EPOCH(71) for the epoch before, the same again and the one after next; then NONE(0)",
)
def epochs_count_up(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    with session(broker, everything(topic)) as opened:
        for expected in (1, 2, 3):
            for wrong in {expected - 1 or 7, expected + 1, expected + 100, 2_147_483_647}:
                answer = opened.ask(epoch=wrong)
                broker.expect_error(
                    answer.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH, what=f"epoch {wrong} for {expected}"
                )
                broker.expect_equal("its partitions", served(answer), {})
            opened.serves(f"epoch {expected}", {0: [b"x"]})


@requirement(
    "FSS-04",
    since="1.1",
    notices="stuck: after a restart Java sends only what changed; without this code it is given nothing any more",
    source="KIP-227; FetchManager.newContext",
    sentence="A session id that the broker does not know is FETCH_SESSION_ID_NOT_FOUND, without partitions.",
    accepted="FETCH_SESSION_ID_NOT_FOUND(70) for an id that no client was given, for id 0, and for a closed session",
    tolerated="all that was asked for, and session id 0: Java begins again; INVALID_FETCH_SESSION_EPOCH(71) for id 0, with "
    "which no client sends an epoch above 0",
    apis={"Fetch": SINCE},
)
def unknown_session(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    for id, epoch in ((123_456_789, 1), (-5, 1), (NO_SESSION, 1), (123_456_789, 2_147_483_647)):
        request = fetch_request(everything(topic), session_id=id, session_epoch=epoch)
        answer = broker.call(request, to=broker.leader(topic))
        what = f"session id {id}, epoch {epoch}"
        if (answer.error_code, answer.session_id) == (ErrorCode.NONE, NO_SESSION) and served(answer):
            broker.tolerate(f"{what}: a full answer, without a session")
            continue
        again = {ErrorCode.INVALID_FETCH_SESSION_EPOCH} if id == NO_SESSION else ()
        broker.expect_error(answer.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, tolerated=again, what=what)
        broker.expect_equal("its partitions", served(answer), {})
    opened = Session(broker, everything(topic))
    opened.close()
    opened.is_gone("a closed session")


@requirement(
    "FSS-05",
    since="1.1",
    notices="stuck: Java and franz-go name only what changed; a partition that is dropped gets no records any more",
    source="KIP-227; FetchSession.update",
    sentence="A request of a session names what changed: partitions that it does not name stay as they were and are served, "
    "named ones take the new offset and limits or join.",
    accepted="unnamed partitions are served from their last offset, a new offset holds from then on, a new partition joins",
)
def unnamed_partitions_stay(broker: Broker) -> None:
    topic = broker.topic(3)
    for partition in range(3):
        broker.append(topic, batch(b"a%d" % partition), partition=partition)
    with session(broker, {(topic, 0): 1, (topic, 1): 1}) as opened:
        opened.serves("nothing new", {})
        broker.append(topic, batch(b"b0"))
        broker.append(topic, batch(b"b1"), partition=1)
        opened.serves("nothing named", {0: [b"b0"], 1: [b"b1"]})
        opened.serves("nothing named again", {0: [b"b0"], 1: [b"b1"]})
        opened.serves("a new offset", {1: [b"b1"]}, {(topic, 0): 2})
        broker.append(topic, batch(b"c0"))
        opened.serves("the new offset holds", {0: [b"c0"], 1: [b"b1"]})
        opened.serves("a new partition", {0: [b"c0"], 1: [b"b1"], 2: [b"a2"]}, {(topic, 2): 0})
        opened.serves("an offset may go back", {0: [b"a0", b"b0", b"c0"], 1: [b"b1"], 2: [b"a2"]}, {(topic, 0): 0})


@requirement(
    "FSS-06",
    since="1.1",
    notices="client: Java takes what did not change too; it is bytes for nothing with thousands of partitions",
    source="KIP-227; FetchSession.PartitionIterator, CachedPartition.maybeUpdateResponseData",
    sentence="The answer to a session's request leaves out partitions without news: no records, and the same high watermark and "
    "log start offset as were last reported. Partitions with an error are always in it.",
    accepted="only partitions with records, a new high watermark (once), a new log start offset (once), an error (each time)",
    apis={"DeleteRecords": 0},
)
def only_news(broker: Broker) -> None:
    topic = broker.topic(3)
    for partition in range(3):
        broker.append(topic, batch(b"a", b"b"), partition=partition)
    with session(broker, everything(topic, 2)) as opened:
        opened.serves("nothing new", {})
        broker.append(topic, batch(b"c"), partition=1)
        opened.serves("records", {1: [b"c"]})
        opened.serves("read on", {}, {(topic, 1): 3})
        broker.append(topic, batch(b"c"), partition=2)
        answer = opened.serves("a new high watermark, past it", {2: []}, {(topic, 2): 3})
        broker.expect_equal("the high watermark", only_partition(answer).high_watermark, 3)
        opened.serves("reported already", {})
        broker.delete_records(topic, 1)
        answer = opened.serves("a new log start offset", {0: []})
        broker.expect_equal("the log start offset", only_partition(answer).log_start_offset, 1)
        opened.serves("reported already", {})
        for what in ("out of range", "still out of range"):
            answer = opened.serves(what, {0: []}, {(topic, 0): 99})
            broker.expect_error(only_partition(answer).error_code, ErrorCode.OFFSET_OUT_OF_RANGE, what=what)
        opened.serves("in range again", {0: []}, {(topic, 0): 2})
        opened.serves("in range and reported", {})


@requirement(
    "FSS-07",
    since="1.1",
    notices="client: Java throws away a whole answer that has a partition which it forgot, and makes a new session",
    source="KIP-227; FetchSession.update (toForget)",
    sentence="Forgotten partitions leave the session; with the last of them the session ends, and the answer is one without a "
    "session.",
    accepted="a forgotten partition is not served any more and may come back; after the last: session id 0, no partitions, and "
    "the id is unknown",
)
def forgotten_partitions(broker: Broker) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.append(topic, batch(b"%d" % partition), partition=partition)
    opened = Session(broker, {(topic, 0): 0, (topic, 1): 0})
    opened.serves("one is forgotten", {1: [b"1"]}, forgotten={topic: [0]})
    opened.serves("and stays so", {1: [b"1"]})
    opened.serves("it comes back", {1: [b"1"], 0: [b"0"]}, {(topic, 0): 0})
    opened.serves("the other is forgotten", {0: [b"0"]}, forgotten={topic: [1]})
    answer = opened.ask(forgotten={topic: [0, 1]})
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="the last is forgotten")
    broker.expect_equal("its session id", answer.session_id, NO_SESSION)
    broker.expect_equal("its partitions", served(answer), {})
    opened.is_gone("the session")


@requirement(
    "FSS-08",
    since="1.1",
    notices="none seen: Java and franz-go forget the old id; a broker that keeps it wastes memory",
    source="KIP-227; FetchManager.newContext",
    sentence="A full request (epoch 0 or -1) that names a session closes it; with epoch 0 a new one takes its place.",
    accepted="the old id is unknown afterwards; epoch -1 is answered in full with session id 0, epoch 0 with another id",
)
def full_request_closes(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.append(topic, batch(b"x"))
    replaced = Session(broker, everything(topic))
    answer = replaced.ask(everything(topic), epoch=FIRST)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="epoch 0")
    broker.expect_equal("the records by partition", served(answer), first_alone(topic))
    broker.expect(answer.session_id != replaced.id, f"session {replaced.id} was replaced by {answer.session_id}")
    replaced.is_gone("the replaced session")
    for offsets, wanted in ((everything(topic), first_alone(topic)), ({}, {})):
        closed = Session(broker, everything(topic))
        answer = closed.ask(offsets, epoch=FINAL)
        broker.expect_error(answer.error_code, ErrorCode.NONE, what="epoch -1")
        broker.expect_equal("its session id", answer.session_id, NO_SESSION)
        broker.expect_equal("its records by partition", served(answer), wanted)
        closed.is_gone("the closed session")


@requirement(
    "FSS-09",
    notices="client: Java renews its metadata on this code, and makes a new session on others",
    source="KIP-516; FetchManager.newContext",
    sentence="A session that was made with topic names and is used in a version with topic ids, or the reverse, is "
    "FETCH_SESSION_TOPIC_ID_ERROR; it goes on in versions of its own kind.",
    accepted="FETCH_SESSION_TOPIC_ID_ERROR(106) without partitions, both ways; then NONE(0)",
    since="3.1",
    apis={"Fetch": BY_ID},
)
def names_and_ids_do_not_mix(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    broker.id_of(topic)
    highest = broker.version_for(FetchRequest)
    for own, other in ((BY_ID - 1, highest), (highest, BY_ID - 1)):
        with session(broker, everything(topic), own) as opened:
            answer = opened.ask(epoch=1, version=other)
            broker.expect_error(
                answer.error_code, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, what=f"made in v{own}, used in v{other}"
            )
            broker.expect_equal("its partitions", served(answer), {})
            opened.serves(f"used in v{own} again", {0: [b"x"]})


@requirement(
    "FSS-10",
    since="1.1",
    notices="client: partitions behind a busy one in a session get their records late",
    source="KIP-227; FetchSession.PartitionIterator (partitions with data move to the end)",
    sentence="Partitions that were given records move to the end of the session's order, so that none starves when max_bytes "
    "lets only one through.",
    accepted="of five partitions with records, five requests with max_bytes 1 serve each once",
)
def nobody_starves(broker: Broker) -> None:
    topic = broker.topic(5)
    for partition in range(5):
        broker.append(topic, batch(b"%d" % partition), partition=partition)
    opened = Session(broker, everything(topic), max_bytes=1)
    turns: list[list[int]] = []
    for _ in range(5):
        answer = opened.ask(max_bytes=1)
        broker.expect_error(answer.error_code, ErrorCode.NONE)
        turns.append([partition for partition, read in served(answer).items() if read])
    opened.close()
    broker.expect_equal("the partitions served", sorted(turns), [[partition] for partition in range(5)])


@requirement(
    "FSS-11",
    since="1.1",
    notices="misread: a consumer whose session another one changes is given other partitions than it reads",
    source="KIP-227; FetchManager.newContext",
    sentence="A session is the broker's, not the connection's: another connection goes on with it, and two sessions do not touch "
    "each other.",
    accepted="the next epoch on a new connection is served; each of two sessions keeps its own partitions, offsets and epoch",
)
def sessions_stand_alone(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.needs_one_leader([topic, topic])
    for partition in range(2):
        broker.append(topic, batch(b"%d" % partition), partition=partition)
    with session(broker, {(topic, 0): 0}) as one, session(broker, {(topic, 1): 0}) as other:
        one.serves("the one", {0: [b"0"]})
        one.serves("the one reads on", {}, {(topic, 0): 1})
        broker.connection(one.leader).close()
        one.serves("the one on a new connection", {})
        other.serves("the other", {1: [b"1"]})
        broker.append(topic, batch(b"more"))
        other.serves("the other has no part in it", {1: [b"1"]})
        one.serves("the one gets it", {0: [b"more"]})


untestable(
    "FSS-12",
    since="1.1",
    notices="none seen: Java makes a new session on any error, once in two thousand million fetches",
    source="KIP-227; FetchMetadata.nextEpoch",
    sentence="After session epoch 2147483647 comes 1.",
    reason="a session has to be asked 2147483647 times first: weeks, and no request can set the epoch",
)


@requirement(
    "FSS-13",
    since="1.1",
    notices="client: what a fetch that was given up would have shown counts as shown, and later answers leave it out",
    source="KIP-227; IncrementalFetchContext.updateAndGenerateResponseData",
    sentence="A fetch that waits while its session goes on with the next epoch is refused in the end with "
    "INVALID_FETCH_SESSION_EPOCH, and the session goes on.",
    accepted="INVALID_FETCH_SESSION_EPOCH(71) without partitions for the one that waited; the next fetch has the records",
)
def superseded_while_waiting(broker: Broker) -> None:
    topic = broker.topic()
    with session(broker, {(topic, 0): 0}) as opened:
        waiting = broker.connect(opened.leader)
        request = fetch_request({}, session_id=opened.id, session_epoch=opened.epoch, max_wait_ms=10_000, min_bytes=1)
        waiting.send(request, opened.version)
        opened.epoch += 1
        broker.eventually(
            lambda: opened.ask().error_code == ErrorCode.NONE,
            "the next epoch is served on another connection",
        )
        broker.append(topic, batch(b"x"))
        answer = waiting.receive()
        broker.expect_error(answer.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH, what="the fetch that waited")
        broker.expect_equal("its partitions", served(answer), {})
        opened.serves("the session goes on", {0: [b"x"]})
