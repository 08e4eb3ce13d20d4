"""The record that follows from a change of a partition, compared with Apache Kafka's."""

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from linearizability.targets.artifacts import java, kafka_jars
from reference.controller import partition_change
from reference.controller.image import NO_LEADER, RECOVERED, RECOVERING, PartitionImage, TopicImage
from reference.controller.image_records import partition_as_record
from reference.controller.leadership_rules import stays_eligible
from reference.controller.metadata_records import encode_metadata_record
from reference.controller.partition_change import Election, Target, Terms, change_partition
from reference.protocol.primitives import LeaderEpoch, NodeId, PartitionEpoch
from tests.controller.cluster import nodes

SOURCE = Path(__file__).parent / "java" / "Changes.java"
TOPIC = UUID(int=1000)
CASES = 20_000
BROKERS = nodes(*range(6))


def some(chance: random.Random, items: Sequence[NodeId], least: int = 0) -> list[NodeId]:
    return chance.sample(items, chance.randint(min(least, len(items)), len(items)))


def random_partition(chance: random.Random) -> PartitionImage:
    """Any partition that decisions could lead to, and some that they could not."""
    replicas = some(chance, BROKERS, 1)
    adding = some(chance, replicas) if chance.random() < 0.3 else []
    removing = some(chance, [each for each in replicas if each not in adding]) if chance.random() < 0.3 else []
    isr = some(chance, replicas, chance.choice([0, 1, 1]))
    elr = sorted(some(chance, [each for each in replicas if each not in isr])) if chance.random() < 0.5 else []
    leader = chance.choice([*isr, NO_LEADER]) if isr else NO_LEADER
    return PartitionImage(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=LeaderEpoch(7),
        partition_epoch=PartitionEpoch(11),
        removing_replicas=removing,
        adding_replicas=adding,
        eligible_leader_replicas=elr,
        last_known_elr=[chance.choice(replicas)] if chance.random() < 0.3 else [],
        directories=[UUID(int=chance.choice([1, 200 + each])) for each in replicas],
        leader_recovery_state=chance.choice([RECOVERED, RECOVERED, RECOVERING]),
    )


def random_target(chance: random.Random, partition: PartitionImage) -> Target:
    target = Target.unchanged(partition)
    if chance.random() < 0.6:
        target.isr = some(chance, partition.replicas)
    if chance.random() < 0.3:
        wanted = some(chance, BROKERS, 1)
        target.removing_replicas = sorted({*partition.replicas} - {*wanted})
        target.adding_replicas = sorted({*wanted} - {*partition.replicas})
        target.replicas = [*wanted, *target.removing_replicas]
    elif {*partition.replicas} - {*partition.adding_replicas} and chance.random() < 0.1:
        target.replicas = [each for each in partition.replicas if each not in partition.adding_replicas]
        target.removing_replicas, target.adding_replicas = [], []
    if chance.random() < 0.1:
        target.leader_recovery_state = RECOVERED
    return target


def random_terms(chance: random.Random, partition: PartitionImage) -> tuple[Terms, list[NodeId]]:
    alive = some(chance, BROKERS)
    terms = Terms(
        min_isr=chance.randint(1, 3),
        has_elr=chance.random() < 0.6,
        is_alive=alive.__contains__,
        directory_for_new_replica=lambda broker: UUID(int=500 + broker),
        election=chance.choice(list(Election)),
        lost_its_tail=chance.choice(partition.replicas) if chance.random() < 0.2 else NO_LEADER,
    )
    return terms, alive


def as_json(partition: PartitionImage, target: Target, terms: Terms, alive: Sequence[int]) -> str:
    return json.dumps(
        {
            "partition": {
                "replicas": partition.replicas,
                "directories": [each.int for each in partition.directories],
                "isr": partition.isr,
                "removing": partition.removing_replicas,
                "adding": partition.adding_replicas,
                "elr": partition.eligible_leader_replicas,
                "last_known_elr": partition.last_known_elr,
                "leader": partition.leader,
                "recovery": partition.leader_recovery_state,
            },
            "target": {
                "isr": target.isr,
                "replicas": target.replicas,
                "removing": target.removing_replicas,
                "adding": target.adding_replicas,
                "recovery": target.leader_recovery_state,
            },
            "alive": alive,
            "min_isr": terms.min_isr,
            "has_elr": terms.has_elr,
            "election": terms.election.name,
            "lost_its_tail": terms.lost_its_tail,
        }
    )


def our_answer(partition: PartitionImage, target: Target, terms: Terms) -> str:
    record = change_partition(TOPIC, 3, partition, target, terms)
    if record is None:
        return "-"
    after = partition_as_record(TopicImage("t", TOPIC), 3, partition.after(record))
    return f"{encode_metadata_record(record).hex()} {encode_metadata_record(after).hex()}"


def as_kafka_keeps_them(
    isr_size: int,
    min_isr: int,
    was_in_isr: bool,
    was_eligible: bool,
    is_in_isr: bool,
    lost_its_tail: bool,
    has_replica: bool,
) -> bool:
    """Kafka's rule, which ignores whether the broker still has a replica."""
    return stays_eligible(isr_size, min_isr, was_in_isr, was_eligible, is_in_isr, lost_its_tail, has_replica=True)


def test_a_replica_that_a_reassignment_drops_leaves_the_elr() -> None:
    """The known deviation: a dropped replica misses records that are committed later, and must not be elected."""
    partition = random_partition(random.Random(1))
    partition.replicas, partition.isr, partition.leader = BROKERS[:3], BROKERS[:3], BROKERS[0]
    partition.adding_replicas, partition.removing_replicas = [], []
    partition.eligible_leader_replicas, partition.last_known_elr = [], []
    partition.directories = [UUID(int=200 + each) for each in partition.replicas]
    target = Target.unchanged(partition)
    target.replicas, target.removing_replicas = nodes(1, 0, 2), nodes(0, 2)
    terms = Terms(2, has_elr=True, is_alive=lambda _: True, directory_for_new_replica=lambda _: UUID(int=1))
    record = change_partition(TOPIC, 3, partition, target, terms)
    assert record is not None
    assert (record.replicas, record.isr, record.leader) == ([1], [1], 1)
    assert record.eligible_leader_replicas is None


@pytest.mark.java
def test_changes_are_kafkas_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_change, "stays_eligible", as_kafka_keeps_them)
    chance = random.Random(966)
    lines: list[str] = []
    ours: list[str] = []
    for _ in range(CASES):
        partition = random_partition(chance)
        target = random_target(chance, partition)
        terms, alive = random_terms(chance, partition)
        lines.append(as_json(partition, target, terms, alive))
        ours.append(our_answer(partition, target, terms))
    class_path = ":".join(str(jar) for jar in kafka_jars("4.3.1"))
    done = subprocess.run(
        [str(java()), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCE)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == CASES
    assert sum(each != "-" for each in answers) > CASES // 2
    wrong = [(line, mine, kafkas) for line, mine, kafkas in zip(lines, ours, answers, strict=True) if mine != kafkas]
    assert not wrong, f"{len(wrong)} of {CASES} differ, the first: {wrong[0]}"
