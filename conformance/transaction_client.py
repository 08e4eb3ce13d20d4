"""A client of the transaction coordinator that sends each request separately, with any producer id and epoch. It does not
judge the responses.

    client = TransactionalClient(broker, CLASSIC)         # an unused transactional id; sends InitProducerId
    client.add(topic)                                     # AddPartitionsToTxn: returns the partition's error code
    client.produce(topic, b"x")                           # one record; returns the partition's result
    client.end(committed=True)                            # EndTxn: returns the response
    client.write(topic, b"x"); client.finish(committed=True)   # the same, where each step must succeed

Every request is repeated while the coordinator is loading or unknown, and, unless `patient=False`, while it completes the
transaction before (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from conformance.answers import AnswerParts, error_name, only
from conformance.batches import CONTROL, TRANSACTIONAL, Record, batch, batches
from conformance.batches import NONE as UNCOMPRESSED
from conformance.broker import Broker
from conformance.markers import COMMIT, marker_of
from conformance.results import Lack
from conformance.steps import built_on, refused, refused_by_epoch
from conformance.wire import Failed
from linearizability.client.errors import LOADING
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import TRANSACTION, Topic
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message

TIMEOUT_MS = 60_000
"""The default transaction timeout: longer than any requirement takes."""
NO_ID = -1
"""The producer id and epoch of a client without them."""
COMPLETING = {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The error while the coordinator completes the transaction before."""
UNVERIFIED = {ErrorCode.NOT_ENOUGH_REPLICAS}
"""The error of Produce below v12 when the coordinator could not verify the partition at once (KIP-890)."""
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
"""States as DescribeTransactions names them."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One of the two client protocols: the versions of its requests."""

    name: str
    produce: int
    add_offsets: int
    commit_offsets: int
    end: int
    adds: bool
    """Whether partitions and groups are added by separate requests."""


CLASSIC = Protocol("TV1", produce=11, add_offsets=3, commit_offsets=4, end=4, adds=True)
"""Before KIP-890: partitions and groups are added first, and the epoch does not change. Older targets get their highest
versions."""
IMPLICIT = Protocol("TV2", produce=12, add_offsets=4, commit_offsets=5, end=5, adds=False)
"""KIP-890: the first write adds its partition, and each end of a transaction raises the epoch."""
ADD_PARTITIONS_VERSION = 3
"""The last version of AddPartitionsToTxn for clients."""
ANSWERED_WITHIN_S = 30.0
"""How long a coordinator may take to respond. It waits until a frozen follower leaves its ISR, which comes before the
fencing."""
TRANSACTIONS_TOPIC = "__transaction_state"
TRANSACTIONS = {"AddPartitionsToTxn": 0, "EndTxn": 0}
"""The `apis` of requirements about transactions. One that reads a state also needs DescribeTransactions, and is not judged
without it."""


def served_protocols(broker: Broker) -> list[Protocol]:
    """The protocols that the target serves. Skips where it has no transactions at all."""
    broker.versions_of(AddPartitionsToTxnRequest)
    _, newest = broker.versions_of(EndTxnRequest)
    implicit = newest >= IMPLICIT.end and broker.version_for(ProduceRequest) >= IMPLICIT.produce
    return [CLASSIC, IMPLICIT] if implicit else [CLASSIC]


def at_most(broker: Broker, request: Message | type[Message], version: int) -> int:
    """The version, or the highest below it that the target serves. Skips where it does not advertise the API.

    Uses the advertised version of an API that answered no probe: probes name no existing transaction.
    """
    lowest, highest = broker.versions_of(request if isinstance(request, type) else type(request))
    served = broker.subject.profile.served(APIS[request.KEY].name, lowest, highest)[1]
    return min(version, served if served >= lowest else highest)


def is_switched_off(broker: Broker) -> bool:
    """Whether the broker serves only the protocol before KIP-890, because its feature transaction.version is below 2."""
    return APIS[EndTxnRequest.KEY].name in broker.subject.profile.switched_off


def expect_switched_on(broker: Broker) -> None:
    """Skips where the feature transaction.version is below 2, so that the coordinator behaves as before KIP-890 for all
    clients."""
    if is_switched_off(broker):
        broker.skip("needs transaction.version 2, and the target's feature is switched off", Lack.CONFIGURATION)


def expect_verified(broker: Broker) -> None:
    """Skips where partition leaders do not verify with the coordinator that a write belongs to a transaction (KIP-890)."""
    broker.needs_config("transaction.partition.verification.enable", "true")


def in_each_protocol(broker: Broker, judge: Callable[[Protocol], None], what: str = "") -> None:
    """Run `judge` for each protocol that the target serves, each as a separate case."""
    for protocol in served_protocols(broker):
        with broker.case(f"{protocol.name}, {what}" if what else protocol.name):
            judge(protocol)


class BatchHeader(TypedDict, total=False):
    """The fields of a batch's header that replace the producer's own values."""

    identity: tuple[int, int]
    """Producer id and epoch."""
    sequence: int
    """The base sequence."""
    attributes: int
    """Without the codec; by default the transactional bit."""
    codec: int


class TransactionalClient:
    """One transactional id with the producer id and epoch that the coordinator returned last."""

    def __init__(
        self,
        broker: Broker,
        protocol: Protocol,
        name: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        initialised: bool = True,
    ) -> None:
        if protocol is IMPLICIT and broker.version_for(ProduceRequest) < IMPLICIT.produce:
            broker.skip(f"needs Produce v{IMPLICIT.produce}, which adds partitions to transactions", Lack.API)
        self.broker, self.protocol, self.timeout_ms = broker, protocol, timeout_ms
        self.name = broker.unused_name("txn") if name is None else name
        self.session = ProducerSession(self.name)
        self._written: set[tuple[Topic, int, int]] = set()
        """The partitions that the last transaction wrote, with the producer id. A new epoch does not clear them."""
        self._has_ended = False
        self.asked: tuple[str, int] | None = None
        """The address of a broker that gets the requests instead of the coordinator. Its responses are returned without a
        retry."""
        self._added: set[tuple[Topic, int]] = set()
        if initialised:
            expect_agreed("InitProducerId", self.init().error_code)

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.session.identity

    @property
    def id(self) -> int:
        """The producer id."""
        return self.identity[0]

    @property
    def epoch(self) -> int:
        """The producer's epoch."""
        return self.identity[1]

    # ---- the coordinator

    @built_on("BAS-10")
    def init(
        self,
        producer_id: int = NO_ID,
        epoch: int = NO_ID,
        *,
        timeout_ms: int | None = None,
        patient: bool = True,
        version: int | None = None,
    ) -> Any:
        """Send InitProducerId, and return the response. A success sets this client's producer id and epoch, and resets all
        sequences."""
        asking = ProducerSession(self.name, timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms)
        request = asking.begin((producer_id, epoch))
        answer = self._answered(request, version, _error, patient=patient)
        if answer.error_code == ErrorCode.NONE:
            self.become(answer.producer_id, answer.producer_epoch)
        return answer

    def add_all(
        self,
        partitions: Mapping[str, Sequence[int]],
        *,
        identity: tuple[int, int] | None = None,
        patient: bool = True,
        version: int | None = None,
    ) -> dict[tuple[str, int], int]:
        """Send AddPartitionsToTxn for partitions by topic name, and return the error code of each."""
        listed = [(name, index) for name, indexes in partitions.items() for index in indexes]
        request = self.session.add_partitions(listed, identity)
        version = at_most(self.broker, request, ADD_PARTITIONS_VERSION) if version is None else version
        return _added(self._answered(request, version, lambda answer: set(_added(answer).values()), patient=patient))

    def add(self, topic: Topic, partition: int = 0, **options: Any) -> int:
        """Send AddPartitionsToTxn for one partition, and return its error code."""
        errors = self.add_all({topic.name: [partition]}, **options)
        if (topic.name, partition) not in errors:
            raise Failed(f"AddPartitionsToTxn does not answer for {topic.name}-{partition}")
        return errors[topic.name, partition]

    def add_offsets(
        self, group: str, *, identity: tuple[int, int] | None = None, patient: bool = True, version: int | None = None
    ) -> int:
        """Send AddOffsetsToTxn, and return the error code."""
        request = self.session.add_offsets(group, identity)
        version = at_most(self.broker, request, self.protocol.add_offsets) if version is None else version
        return self._answered(request, version, _error, patient=patient).error_code

    def end(
        self,
        *,
        committed: bool,
        identity: tuple[int, int] | None = None,
        patient: bool = True,
        version: int | None = None,
    ) -> Any:
        """Send EndTxn, and return the response. A success of v5 or later sets this client's producer id and epoch."""
        request = self.session.end(committed, identity)
        version = at_most(self.broker, request, self.protocol.end) if version is None else version
        answer = self._answered(request, version, _error, patient=patient)
        if answer.error_code == ErrorCode.NONE:
            self._added.clear()
            self._has_ended = True
            if version >= IMPLICIT.end:
                self._expect_identity(answer)
                self.become(answer.producer_id, answer.producer_epoch)
        return answer

    @built_on("TXN-14")
    def _expect_identity(self, answer: Any) -> None:
        """Fail where the response has no producer id or epoch: every later request of the client would fail."""
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise Failed(f"EndTxn gives producer id {answer.producer_id} and epoch {answer.producer_epoch}")

    @built_on("TXN-22")
    def described(self) -> Any:
        """The transactional id's entry in the DescribeTransactions response, also an error."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = self._answered(request, None, lambda answer: _error(_described(answer)), patient=False)
        return _described(answer)

    @property
    def is_described(self) -> bool:
        """Whether DescribeTransactions is advertised (Kafka 3.0, KIP-664)."""
        return DescribeTransactionsRequest.KEY in self.broker.subject.api_versions

    def state(self) -> str:
        """The transaction's state by name: from DescribeTransactions, else derived from the partitions that this client
        wrote."""
        if not self.is_described:
            return self._state_in_partitions()
        found = self.described()
        expect_agreed("DescribeTransactions", found.error_code)
        if found.transaction_state == EMPTY and self.session.sequences:
            self._expect_none_open()
        return found.transaction_state

    @built_on("TXN-22")
    def _expect_none_open(self) -> None:
        """Fail where a transaction that is described as Empty is open in the partitions that this client wrote."""
        if self._state_in_partitions() == ONGOING:
            raise Failed(f"{self.name} is described as Empty, and its transaction is open")

    def _state_in_partitions(self) -> str:
        """The state by the logs: Ongoing while this producer's last batch in a partition is no marker, or the markers differ;
        else their outcome."""
        kinds: set[bool] = set()
        for topic, partition, id in self._written:
            if id != self.id:
                continue
            log = self.broker.log(topic, partition=partition, offset=self.broker.start_offset(topic, partition))
            own = [one for one in batches(log) if one.producer_id == self.id]
            if not own or not own[-1].attributes & CONTROL:
                return ONGOING
            kinds.add(marker_of(own[-1]).kind == COMMIT)
        if len(kinds) > 1:
            return ONGOING
        return (COMPLETE_COMMIT if kinds.pop() else COMPLETE_ABORT) if kinds else EMPTY

    def expect_empty(self) -> None:
        """Require that no transaction has begun: the state is Empty, or EndTxn before KIP-890 returns INVALID_TXN_STATE."""
        if self.is_described:
            self.broker.expect_equal("the state", self.state(), EMPTY)
        else:
            self._expect_nothing_to_end()

    @built_on("TXN-11")
    def _expect_nothing_to_end(self) -> None:
        version = at_most(self.broker, EndTxnRequest, CLASSIC.end)
        error = self.end(committed=True, version=version).error_code
        if error == ErrorCode.NONE:
            fresh = TransactionalClient(self.broker, CLASSIC).end(committed=True, version=version)
            if fresh.error_code == ErrorCode.NONE:
                self.broker.saw("EndTxn is agreed to for a new id, too: whether a transaction had begun is not known")
                return
        self.broker.expect_error(error, ErrorCode.INVALID_TXN_STATE, what="EndTxn before a transaction")

    def await_state(self, *states: str, within_s: float = 0.0) -> str:
        """Wait until the transaction is in one of these states.

        Empty counts as complete: kfake reports it of a completed transaction. TXN-22 judges the name.
        """
        wanted = {*states, EMPTY} if {*states} & {COMPLETE_COMMIT, COMPLETE_ABORT} else {*states}

        def reached() -> str | None:
            state = self.state()
            return state if state in wanted else None

        return self.broker.eventually(reached, f"{self.name} is in state {' or '.join(states)}", within_s=within_s)

    # ---- partitions and groups

    def produce(
        self,
        topic: Topic,
        *values: Record | bytes,
        partition: int = 0,
        patient: bool = True,
        version: int | None = None,
        transactional_id: str | None = "",
        **header: Unpack[BatchHeader],
    ) -> Any:
        """Produce one batch, and return the partition's result. A success advances this client's sequence, unless `sequence`
        was given.

        An empty transactional id is this client's. Also retries NOT_ENOUGH_REPLICAS, which a partition below v12 returns when
        its verification must be repeated (KIP-890).
        """
        id, epoch = header.get("identity") or self.identity
        codec = header.get("codec", UNCOMPRESSED)
        data = batch(
            *values,
            codec=codec,
            attributes=header.get("attributes", TRANSACTIONAL) | codec,
            producer_id=id,
            producer_epoch=epoch,
            base_sequence=header.get("sequence", self.session.sequences.get((topic, partition), 0)),
        )
        version = at_most(self.broker, ProduceRequest, self.protocol.produce) if version is None else version
        name = self.name if transactional_id == "" else transactional_id
        result = answered_for_good(
            self.broker,
            lambda: self.broker.produce(topic, data, partition=partition, version=version, transactional_id=name),
            _error,
            f"a batch of {self.name}",
            waited_out=LOADING | COMPLETING | UNVERIFIED if patient else LOADING,
        )
        if result.error_code == ErrorCode.NONE and "sequence" not in header:
            self.session.appended((topic, partition), len(values))
            self._written = {(topic, partition, self.id)} | (set() if self._has_ended else self._written)
            self._has_ended = False
        return result

    @built_on("BAS-10")
    def write(self, topic: Topic, *values: Record | bytes, partition: int = 0, codec: int = UNCOMPRESSED) -> int:
        """Produce in a transaction, which must succeed, after adding the partition where the protocol needs it. Returns the
        base offset."""
        if self.protocol.adds and (topic, partition) not in self._added:
            with refused_by_epoch("TXN-29"):
                expect_agreed("AddPartitionsToTxn", self.add(topic, partition))
            self._added.add((topic, partition))
        result = self.produce(topic, *values, partition=partition, codec=codec)
        with refused_by_epoch("TXN-01"):
            expect_agreed("Produce in a transaction", result.error_code)
        return result.base_offset

    @built_on("TXN-22")
    def expect_open(self, topic: Topic) -> None:
        """Require that the transaction is described as Ongoing, with partition 0 of this topic alone."""
        found = self.described()
        seen = found.transaction_state, [(one.topic, list(one.partitions)) for one in found.topics]
        self.broker.expect_equal("what is open", seen, (ONGOING, [(topic.name, [0])]))

    @built_on("TXN-28")
    def finish(self, *, committed: bool) -> None:
        """End the transaction, which must succeed, and wait until it is complete.

        Without DescribeTransactions it repeats the same EndTxn, which succeeds once the transaction is complete.
        """
        expect_agreed("EndTxn", self.end(committed=committed).error_code)
        if self.is_described:
            self.await_state(COMPLETE_COMMIT if committed else COMPLETE_ABORT)
        else:
            self.end(committed=committed)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[Topic, int], int],
        *,
        identity: tuple[int, int] | None = None,
        patient: bool = True,
        version: int | None = None,
        generation: int = -1,
        member: str = "",
    ) -> dict[tuple[str, int], int]:
        """Send TxnOffsetCommit to the group's coordinator, and return the error code of each partition."""
        request = self.session.commit_offsets(
            group, offsets, identity, generation_id_or_member_epoch=generation, member_id=member
        )
        version = at_most(self.broker, request, self.protocol.commit_offsets) if version is None else version
        return answered_for_good(
            self.broker,
            lambda: _offset_errors(self.broker.call(request, version, to=self.broker.coordinator(group))),
            lambda errors: set(errors.values()),
            f"TxnOffsetCommit of {self.name}",
            waited_out=LOADING | COMPLETING if patient else LOADING,
        )

    def write_offsets(self, group: str, offsets: Mapping[tuple[Topic, int], int]) -> None:
        """Commit offsets in the transaction, which must succeed, after adding the group where the protocol needs it."""
        if self.protocol.adds:
            with refused_by_epoch("TXN-29"):
                expect_agreed("AddOffsetsToTxn", self.add_offsets(group))
        for (name, partition), error in self.commit_offsets(group, offsets).items():
            expect_agreed(f"TxnOffsetCommit of {name}-{partition}", error)

    # ---- own state

    def become(self, producer_id: int, epoch: int) -> None:
        """Adopt another producer id and epoch, and reset all sequences."""
        self.session.become(producer_id, epoch)
        self._added.clear()

    def _answered(self, request: Any, version: int | None, errors: Callable[[Any], set[int]], *, patient: bool) -> Any:
        def ask() -> Any:
            address = self.asked or self.broker.coordinator(self.name, TRANSACTION)
            return self.broker.call(request, version, to=address, timeout_s=ANSWERED_WITHIN_S)

        if self.asked:
            return ask()
        waited_out = LOADING | COMPLETING if patient else LOADING
        return answered_for_good(
            self.broker, ask, errors, f"{type(request).__name__} of {self.name}", waited_out=waited_out
        )


def answered_for_good(
    broker: Broker,
    ask: Callable[[], Any],
    errors: Callable[[Any], set[int]],
    what: str,
    *,
    waited_out: Collection[int] = LOADING,
) -> Any:
    """Repeat a request until its response has none of the errors in `waited_out`, and return that response."""

    def answered() -> Any:
        answer = ask()
        return None if errors(answer) & set(waited_out) else answer

    return broker.eventually(answered, f"{what} is answered for good")


def expect_agreed(what: str, error: int) -> None:
    """Require the success of a step that prepares a judged one. Errors: Failed, with the error code."""
    if error != ErrorCode.NONE:
        raise refused(f"{what} was answered with {error_name(error)}", error)


def _error(answer: Any) -> set[int]:
    return {answer.error_code}


def _added(answer: Any) -> dict[tuple[str, int], int]:
    """The error codes of an AddPartitionsToTxn response below v4."""
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }


def _offset_errors(answer: Any) -> dict[tuple[str, int], int]:
    return AnswerParts(
        {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}
    )


def _described(answer: Any) -> Any:
    return only(answer.transaction_states, "transaction in the answer")
