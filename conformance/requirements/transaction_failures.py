"""TXV: transactions while nodes fail. All partitions get the same outcome, whether a coordinator or a leader fails."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from conformance.batches import CONTROL, batches
from conformance.broker import Broker
from conformance.cluster import NO_ID, PATIENT, QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.read_committed import aborted_of, committed_values, expect_ended
from conformance.requirement import requirement
from conformance.requirements.transactional_ids import expect_fenced
from conformance.transaction_client import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    TRANSACTIONS,
    TransactionalClient,
    expect_agreed,
    served_protocols,
)
from conformance.wire import Failed, NoAnswer
from linearizability.client.requests import READ_COMMITTED, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode

DEADLINE_S = 300.0
FREEZES = ("pause", "resume")
ENDS = ("kill", "restart")
PATIENT_WITHIN_S = 90.0
"""The time for the election of another coordinator, where a node counts as dead after half a minute of silence."""
EARLY_S = 5.0
"""How long the suite waits for a transaction without all markers to be described as complete, which is wrong."""
HELD_UP_S = 15.0
"""With all nodes alive, a partition whose transaction is open for longer does not get its marker any more."""
LATE_MS = 15_000
"""The timeout of a transaction whose coordinator fails before it: long enough for the transaction to be open then."""
LATE_WITHIN_S = 90.0
"""The time for LATE_MS, ten seconds between two checks for late transactions, and the election of a new coordinator."""
BACK_SOON = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TIMEOUTS_S = (4, 6, 7, 8, 9, 10, 12)
"""Transaction timeouts that end before, while and after a broker with this session timeout restarts."""
DEAD_S = 3.0
MARKED_WITHIN_S = 40.0
"""How long to wait for a marker if no state is described: by then all these timeouts have ended and the broker is back."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transaction and its requested outcome."""

    client: TransactionalClient
    committed: bool

    @property
    def value(self) -> bytes:
        """The value that the transaction writes."""
        return f"{self.client.protocol.name} {'commit' if self.committed else 'abort'}".encode()

    @property
    def complete(self) -> str:
        """The final state."""
        return COMPLETE_COMMIT if self.committed else COMPLETE_ABORT


def through(broker: Broker, probe: Callable[[], Any], what: str, within_s: float = STATE_WITHIN_S) -> Any:
    """Repeat `probe` until its result is true; failures, such as dead nodes and lost connections, are ignored meanwhile."""

    def answered() -> Any:
        with suppress(Failed):
            return probe()
        return None

    return broker.eventually(answered, what, within_s=within_s)


def coordinator_of(nodes: JudgedCluster, name: str) -> int:
    """The node that coordinates a transactional id; -1 if it is none of the cluster."""
    address = nodes.broker.coordinator(name, TRANSACTION)
    return next((node for node, other in nodes.addresses.items() if other == address), -1)


def cast(nodes: JudgedCluster) -> tuple[int, int, int]:
    """A node that coordinates transactions, and the two others; the active controller is the last one if possible."""
    last = nodes.cast()[2]

    def found() -> int | None:
        node = coordinator_of(nodes, nodes.broker.unused_name("txn"))
        return node if node not in (-1, last) else None

    coordinator = last
    with suppress(Failed):  # where the active controller coordinates everything, it must be the coordinator
        coordinator = nodes.broker.eventually(found, "another coordinator than the active controller", within_s=2.0)
    one, other = (node for node in nodes.cast() if node != coordinator)
    return coordinator, one, other


def name_at(nodes: JudgedCluster, wanted: Callable[[int], bool]) -> str:
    """An unused transactional id whose coordinator meets the condition."""

    def found() -> str | None:
        name = nodes.broker.unused_name("txn")
        return name if wanted(coordinator_of(nodes, name)) else None

    return nodes.broker.eventually(found, "a transactional id with the wanted coordinator", within_s=STATE_WITHIN_S)


def each_outcome(nodes: JudgedCluster, at: Callable[[int], bool]) -> list[Wanted]:
    """A commit and an abort in each protocol, with coordinators that meet the condition."""
    return [
        Wanted(TransactionalClient(nodes.broker, protocol, name_at(nodes, at)), committed)
        for protocol in served_protocols(nodes.broker)
        for committed in (True, False)
    ]


def expect_outcomes(broker: Broker, cases: list[Wanted], topic: Topic, times: int) -> None:
    """Expect that no transaction is open, and that exactly the committed records are visible, `times` of each."""
    through(
        broker,
        lambda: broker.end_offset(topic, isolation=READ_COMMITTED) == broker.end_offset(topic),
        f"nothing is open in {topic.name}",
    )
    wanted = sorted(case.value for case in cases if case.committed for _ in range(times))
    seen = through(
        broker,
        lambda: [value or b"" for value in committed_values(broker, topic)] or None,
        "the committed records can be read",
    )
    broker.expect_equal(f"the committed records of {topic.name}", sorted(seen), wanted)


def await_complete(broker: Broker, case: Wanted, *, within_s: float = STATE_WITHIN_S) -> None:
    """Wait until the transaction is complete, with the requested outcome."""
    state = through(
        broker,
        lambda: state if (state := case.client.state()).startswith("Complete") else None,
        f"{case.value.decode()} is complete",
        within_s,
    )
    broker.expect_equal(f"{case.value.decode()}: the state", state, case.complete)


@requirement(
    "TXV-10",
    notices="data: one partition shows a commit, the others an abort or nothing",
    source="TransactionStateManager.loadTransactionMetadata (PrepareCommit, PrepareAbort); KIP-98",
    sentence="A coordinator that dies after it agreed to the end of a transaction, and before its markers are written, is "
    "followed by one that writes them: the outcome is the one that was agreed to, in every partition.",
    accepted="CompleteCommit or CompleteAbort, and all records or none, in the partition whose leader did not answer and in the "
    "one whose did",
    nodes=3, hooks=(*FREEZES, *ENDS), configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def an_agreed_end(broker: Broker) -> None:
    with cluster(broker) as nodes:
        coordinator, frozen, living = cast(nodes)
        held, free = nodes.topic(frozen), nodes.topic(living)
        cases = each_outcome(nodes, lambda node: node == coordinator)
        for case in cases:
            case.client.write(held, case.value)
            case.client.write(free, case.value)
        nodes.pause(frozen)
        for case in cases:
            expect_agreed("EndTxn", case.client.end(committed=case.committed).error_code)
            if case.client.is_described:  # else only the partitions show it, and the leader of one of them is frozen
                broker.expect_equal("the state", case.client.state().startswith("Prepare"), True)
        nodes.kill(coordinator)
        nodes.resume(frozen)
        for case in cases:
            await_complete(broker, case, within_s=PATIENT_WITHIN_S)
        for topic in (held, free):
            expect_outcomes(broker, cases, topic, times=1)


@requirement(
    "TXV-11",
    notices="data: a new leader shows aborted records, or hides committed ones",
    source="ProducerStateManager (rebuilt from the log); TransactionIndex; KIP-98",
    sentence="When a partition's leader dies in the midst of transactions, the next one knows which are open and which were "
    "aborted, takes their next records and ends them.",
    accepted="the last stable offset and the list of aborted transactions of the old leader; then all records of what is "
    "committed, before and after, and none of what is aborted, whichever replica leads",
    nodes=3, hooks=ENDS, configs=QUICK, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_leader_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        one, leader, other = cast(nodes)
        topic = nodes.topic(leader, one, other, in_sync=2)
        cases = each_outcome(nodes, lambda node: node not in (leader, -1))
        for case in cases:
            case.client.write(topic, b"before")
            case.client.finish(committed=False)
        for case in cases:
            case.client.write(topic, case.value)
        before = reported_of(broker, topic)
        state = nodes.state(topic)
        nodes.kill(leader)
        nodes.await_leader(topic, one, other, above=state.epoch)
        broker.expect_equal("the last stable offset and the aborted ones", through_reported(broker, topic), before)
        for case in cases:
            case.client.write(topic, case.value)
            expect_agreed("EndTxn", case.client.end(committed=case.committed).error_code)
            await_complete(broker, case)
        expect_outcomes(broker, cases, topic, times=2)
        nodes.restart(leader)
        nodes.await_isr(topic, leader, one, other)
        for node in (leader, one, other):
            if nodes.state(topic).leader != node:
                nodes.lead(topic, node)
            expect_outcomes(broker, cases, topic, times=2)


def reported_of(broker: Broker, topic: Topic) -> tuple[int, list[tuple[int, int]]]:
    """The last stable offset, and the aborted transactions below it."""
    found = broker.fetch(topic, 0, isolation=READ_COMMITTED)
    expect_agreed("Fetch", found.error_code)
    return found.last_stable_offset, sorted(aborted_of(found))


def through_reported(broker: Broker, topic: Topic) -> tuple[int, list[tuple[int, int]]]:
    """The same at a new leader; waits until it responds."""
    return through(broker, lambda: reported_of(broker, topic), "the new leader reports transactions")


@requirement(
    "TXV-19",
    notices="data: a transaction ends in some of its partitions only, or never",
    source="TransactionStateManager.loadTransactionMetadata (Ongoing)",
    sentence="A transaction that is open when its coordinator dies stays open: the next coordinator knows it with its "
    "partitions, takes further ones, and ends it.",
    accepted="Ongoing with the same producer id, epoch, timeout and partitions; then records in an old and in a new partition "
    "count, or not, as the end says",
    nodes=3, hooks=ENDS, configs=QUICK, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_coordinator_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        coordinator, one, other = cast(nodes)
        old, new = nodes.topic(one), nodes.topic(other)
        cases = each_outcome(nodes, lambda node: node == coordinator)
        for case in cases:
            case.client.write(old, case.value)
        before = [description(case) for case in cases]
        nodes.kill(coordinator)
        for case, wanted in zip(cases, before, strict=True):
            at = partial(coordinator_of, nodes, case.client.name)
            through(broker, lambda at=at: at() in nodes.reachable, "another broker coordinates it")
            reported = through(broker, lambda case=case: description(case), f"{case.value.decode()} is described")
            broker.expect_equal(case.value.decode(), reported, wanted)
            broker.expect_equal("the state", reported[0], ONGOING)
            case.client.write(old, case.value)
            case.client.write(new, case.value)
            expect_agreed("EndTxn", case.client.end(committed=case.committed).error_code)
            await_complete(broker, case)
        expect_outcomes(broker, cases, old, times=2)
        expect_outcomes(broker, cases, new, times=1)


def description(case: Wanted) -> tuple[object, ...]:
    """The description by DescribeTransactions, the state first; if it is not served, only the state that the partitions show."""
    if not case.client.is_described:
        return (case.client.state(),)
    found = case.client.described()
    expect_agreed("DescribeTransactions", found.error_code)
    partitions = sorted((one.topic, tuple(one.partitions)) for one in found.topics)
    identity = found.producer_id, found.producer_epoch
    return found.transaction_state, *identity, found.transaction_timeout_ms, found.transaction_start_time_ms, partitions


@requirement(
    "TXV-20",
    notices="stuck: read_committed consumers wait for ever behind a producer that died",
    source="TransactionCoordinator.abortTimedOutTransactions; TransactionStateManager.timedOutTransactions",
    sentence="A transaction that is open when its coordinator dies, and longer than its timeout, is aborted by the next "
    "coordinator.",
    accepted="CompleteAbort, and INVALID_PRODUCER_EPOCH(47) for its next write; nothing counts, and nothing is held up",
    tolerated="PRODUCER_FENCED(90) and INVALID_TXN_STATE(48), as in TXV-12: refused all the same",
    nodes=3, hooks=ENDS, configs=QUICK, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def late_at_the_next_coordinator(broker: Broker) -> None:
    with cluster(broker) as nodes:
        coordinator, one, _ = cast(nodes)
        topic = nodes.topic(one)
        protocol = served_protocols(broker)[-1]
        name = name_at(nodes, lambda node: node == coordinator)
        client = TransactionalClient(broker, protocol, name, timeout_ms=LATE_MS)
        old = client.identity
        client.write(topic, b"late")
        nodes.kill(coordinator)
        through(broker, lambda: client.state() == COMPLETE_ABORT, "the transaction is aborted", LATE_WITHIN_S)
        result = client.produce(topic, b"later", identity=old, sequence=1)
        expect_fenced(broker, result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "its next write")
        expect_ended(broker, topic, b"late", committed=False)


@requirement(
    "TXV-23",
    notices="stuck: read_committed consumers of that partition wait for ever (KAFKA-20734)",
    source="KIP-98; KAFKA-20734; TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue",
    sentence="A transaction that ends while no replica leads one of its partitions ends there too, when the partition has a "
    "leader again.",
    accepted="the markers in that partition once it is led; all records of the commits, none of the aborts, and nothing held up",
    tolerated="what Kafka 4.3.1 does (KAFKA-20734): it takes a partition without a leader for a deleted one, reports that the "
    "transaction is complete, and never writes the marker; read_committed is held up there for ever",
    nodes=3, hooks=FREEZES, configs=QUICK, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def while_nobody_leads(broker: Broker) -> None:
    with cluster(broker) as nodes:
        living, frozen, _ = cast(nodes)
        held, free = nodes.topic(frozen), nodes.topic(living)
        cases = each_outcome(nodes, lambda node: node not in (frozen, NO_ID))
        for case in cases:
            case.client.write(held, case.value)
            case.client.write(free, case.value)
        nodes.pause(frozen)
        nodes.await_leaderless(held)
        for case in cases:
            expect_agreed("EndTxn", case.client.end(committed=case.committed).error_code)
        expect_outcomes(broker, cases, free, times=1)
        early = are_complete_early(cases)
        nodes.resume(frozen)
        nodes.await_leader(held, frozen)
        for case in cases:
            await_complete(broker, case)
        if early and is_held_up(broker, held):
            broker.tolerate(
                "KAFKA-20734: complete without a marker in a partition without a leader; read_committed waits there"
            )
            return
        expect_outcomes(broker, cases, held, times=1)


def are_complete_early(cases: list[Wanted]) -> bool:
    """Whether all are described as complete within EARLY_S, although one of their partitions has no leader."""
    until = time.monotonic() + EARLY_S
    while all(case.client.is_described for case in cases) and time.monotonic() < until:
        if all(case.client.state().startswith("Complete") for case in cases):
            return True
        time.sleep(0.2)
    return False


def is_held_up(broker: Broker, topic: Topic) -> bool:
    """Whether a transaction stays open in the partition for HELD_UP_S."""
    until = time.monotonic() + HELD_UP_S
    while time.monotonic() < until:
        if broker.end_offset(topic, isolation=READ_COMMITTED) == broker.end_offset(topic):
            return False
        time.sleep(0.5)
    return True


@requirement(
    "TXV-24",
    notices="data: records of a transaction that timed out are committed with the next one (KAFKA-20734)",
    source="KIP-98; KAFKA-20734; TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue",
    sentence="A transaction that is open when its coordinator and its partition's leader die together is aborted when its time "
    "is over: its records never count, also if it ends while the broker is coming back.",
    accepted="for timeouts from four to twelve seconds, by both protocols, and a death of three: the state CompleteAbort, a "
    "marker before whatever its next producer writes, and only that counts",
    tolerated="what Kafka 4.3.1 and 4.4.0 do (KAFKA-20734): a broker that comes back leads on as before until its session "
    "is over; a transaction that ends as it is fenced gets no marker, and its records count with those of the next one; 2.2.2 "
    "does so where its coordinator, back again, ends the transaction before it knows the partition's leader",
    hooks=ENDS, configs=BACK_SOON, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
    draft="not in the draft: found by the hunts of HIS",
)  # fmt: skip
def open_at_a_death(broker: Broker) -> None:
    ways = [(protocol, seconds) for protocol in served_protocols(broker) for seconds in TIMEOUTS_S]
    topic = broker.topic(len(ways))
    left = [TransactionalClient(broker, protocol, timeout_ms=1000 * seconds) for protocol, seconds in ways]
    for partition, client in enumerate(left):
        client.write(topic, b"open", partition=partition)
    broker.kill_leader(topic, dead_s=DEAD_S)
    marked_until = time.monotonic() + MARKED_WITHIN_S
    for partition, client in enumerate(left):
        if client.is_described:
            await_state(client, COMPLETE_ABORT)
        else:
            await_marker(client, max(1.0, marked_until - time.monotonic()))
        following = TransactionalClient(broker, client.protocol, client.name)
        following.write(topic, b"next", partition=partition)
        following.end(committed=True)
        await_state(following, COMPLETE_COMMIT)
        log = batches(broker.log(topic, partition=partition))
        kinds = [bool(one.attributes & CONTROL) for one in log]
        counting = committed_values(broker, topic, partition=partition)
        if counting == [b"open", b"next"] and kinds == [False, False, True]:
            broker.tolerate(f"KAFKA-20734: no marker for {client.timeout_ms} ms by {client.protocol.name}")
        else:
            broker.expect_equal(
                f"the committed records ({client.timeout_ms} ms, {client.protocol.name})", counting, [b"next"]
            )


def await_marker(client: TransactionalClient, within_s: float) -> None:
    """Wait for the marker of a transaction that must be aborted; return also if none comes."""
    with suppress(NoAnswer):
        through(client.broker, lambda: client.state() == COMPLETE_ABORT, f"{client.name} has a marker", within_s)


def await_state(client: TransactionalClient, state: str) -> None:
    """Wait for a transaction's state; lost connections are ignored meanwhile."""
    through(client.broker, lambda: client.state() == state, f"{client.name} is in state {state}", LATE_WITHIN_S)
