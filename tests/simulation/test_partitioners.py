"""The order of a customer's records under each partitioner, as consumers see it."""

from collections import defaultdict

import pytest

from linearizability.simulation.outbox import CUSTOMERS, Outbox, customer_of
from linearizability.simulation.run import SimulatedRun
from linearizability.simulation.schedule import Fault, Partitioned, Producer, Schedule, Topic

ORDERS = Topic(name="orders", partitions=3)


def acknowledged(producer: Producer, *faults: Fault) -> list[tuple[int, str, int]]:
    """Value, partition and offset of each record that one producer sent, in the order of sending."""
    run = SimulatedRun(Schedule(seed=5, duration_ms=1_500, topics=(ORDERS,), clients=(producer,), faults=faults))
    run.run()
    oks = [event for recorder in run.cluster.recorders for event in recorder.events if event["type"] == "ok"]
    sent = [mop for event in oks if event["f"] == "send" for mop in event["mops"]]
    return sorted((mop["value"], mop["key"], mop["offset"]) for mop in sent)


def customers_in_order(sent: list[tuple[int, str, int]]) -> int:
    """The number of customers whose records are all in one partition, in the order of sending."""
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    for value, key, offset in sent:
        places[customer_of(value)].append((key, offset))
    return sum(found == sorted(found) and len({key for key, _ in found}) == 1 for found in places.values())


def producer(partitioner: Partitioned, **changes: int) -> Producer:
    return Producer(batches=60, records=4, pause_ms=10, partitioner=partitioner).model_copy(update=changes)


@pytest.mark.parametrize("linger_ms", [0, 40])
@pytest.mark.parametrize(("partitioner", "in_order"), [("by-key", CUSTOMERS), ("round-robin", 0), ("sticky", 0)])
def test_only_the_key_keeps_a_customers_records_in_order(partitioner: Partitioned, in_order: int, linger_ms: int):
    sent = acknowledged(producer(partitioner, linger_ms=linger_ms))
    assert len(sent) > 100 and len({key for _, key, _ in sent}) == ORDERS.partitions
    assert customers_in_order(sent) == in_order


def test_the_key_keeps_the_order_through_lost_connections():
    resets = [Fault(at_ms=at, kind="reset", amount=100) for at in (200, 400, 600)]
    sent = acknowledged(producer("by-key", linger_ms=5), *resets)
    assert len(sent) > 100 and customers_in_order(sent) == CUSTOMERS


def test_records_that_linger_travel_together():
    import random

    outbox = Outbox("by-key", 5, 3, {"orders": 1}, random.Random(1))
    for value in range(4):
        outbox.put(value, now_ms=10)
    assert outbox.take(10) == [(("orders", 0), [0, 1, 2])], "three fill a batch"
    assert outbox.next_deadline_ms() == 15 and outbox.take(15) == [(("orders", 0), [3])]
