"""Any sequence of decisions keeps what the specification says of the controller (spec/replication/Properties.tla).

Three brokers, one partition, min.insync.replicas 2. The model beside the image is only who may have lost a tail: the rest
is judged by the image itself.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference.controller import elections
from reference.controller.elections import PREFERRED_ELECTION, UNCLEAN_ELECTION
from reference.controller.heartbeats import Heartbeats
from reference.controller.image import NO_LEADER, RECOVERING, PartitionImage
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from tests.controller.cluster import SESSION_MS, TOPIC, ControlledCluster

BROKERS = (0, 1, 2, 3)
MIN_ISR = 2

brokers = st.sampled_from(BROKERS)
isrs = st.lists(brokers, min_size=1, max_size=4, unique=True)

Reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic
Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition


class Decisions(RuleBasedStateMachine):
    """Brokers that live and die, leaders that propose, administrators that wish."""

    has_elr = True

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ControlledCluster(has_elr=self.has_elr)
        self.cluster.start(*BROKERS)
        self.cluster.create(TOPIC, [0, 1, 2])
        self.before = self.partition
        self.epochs = {broker: self.cluster.image.brokers[broker].epoch for broker in BROKERS}
        self.complete = {0, 1, 2}
        """Who has every record that may be committed: members of ISR and ELR must be among them."""
        self.joined: set[int] = set()
        """Who has joined the ISR in this step."""
        self.stopping: set[int] = set()
        """Who asked leave to stop: it asks again in each heartbeat of that incarnation."""

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.partition()

    def settle(self) -> None:
        """Who leads without having been eligible decides what is committed: from then on only it is complete."""
        eligible = {*self.before.isr, *self.before.eligible_leader_replicas, NO_LEADER} | self.joined
        if self.partition.leader not in eligible:
            assert self.partition.leader_recovery_state == RECOVERING
            self.complete = {self.partition.leader}
        self.joined = set[int]()

    # ---- brokers

    @rule()
    def heartbeat_of_all(self) -> None:
        for broker in BROKERS:
            self.heartbeat(broker)

    @rule(broker=brokers)
    def heartbeat(self, broker: int) -> None:
        self.cluster.heartbeat(broker, want_shut_down=broker in self.stopping)

    @rule(broker=brokers, wants_fence=st.booleans())
    def stop(self, broker: int, wants_fence: bool) -> None:
        self.stopping.add(broker)
        self.cluster.heartbeat(broker, want_shut_down=True, want_fence=wants_fence)

    @rule(broker=brokers)
    def fall_silent(self, broker: int) -> None:
        self.cluster.now += SESSION_MS
        for other in BROKERS:
            if other != broker:
                known = self.cluster.image.brokers[other]
                self.cluster.heartbeats.receive(self.cluster.image, other, known.epoch, self.cluster.now)
        self.cluster.now += 1
        while (overdue := self.cluster.heartbeats.overdue(self.cluster.image, self.cluster.now)) is not None:
            self.cluster.fence(overdue)

    @rule(broker=brokers, is_clean=st.booleans())
    def come_back(self, broker: int, is_clean: bool) -> None:
        self.fall_silent(broker)
        self.cluster.register(self.cluster.registration(broker, is_clean=is_clean))
        self.stopping.discard(broker)
        if not is_clean:
            self.complete.discard(broker)

    @rule()
    def change_the_controller(self) -> None:
        self.cluster.heartbeats = Heartbeats(SESSION_MS, self.cluster.image, self.cluster.now)

    # ---- the leader

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(wanted=st.sets(brokers), lag=st.sampled_from([0, 0, 1]))
    def propose_what_lives(self, wanted: set[int], lag: int) -> None:
        """What a leader that knows the metadata proposes; with a lag it does not know the newest."""
        alive = [each for each in self.partition.replicas if self.cluster.image.is_active(each)]
        self.propose([each for each in alive if each in wanted or each == self.partition.leader], lag)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(isr=isrs)
    def propose_anything(self, isr: list[int]) -> None:
        self.propose(isr, 0)

    def propose(self, isr: list[int], lag: int) -> None:
        before = self.partition
        request = self.cluster.proposal(isr)
        request.topics[0].partitions[0].partition_epoch -= lag
        answer = self.cluster.alter(request).topics[0].partitions[0]
        if answer.error_code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            assert before.leader in isr and {*isr} <= {*before.replicas} and not lag
            assert all(self.cluster.image.is_active(each) for each in isr)
            self.complete |= {*isr}
            self.joined = {*isr}
        else:
            assert self.partition == before

    # ---- administrators

    @rule(kind=st.sampled_from([PREFERRED_ELECTION, UNCLEAN_ELECTION]))
    def elect(self, kind: int) -> None:
        self.cluster.elect(ElectLeadersRequest(election_type=kind, topic_partitions=None))

    @rule()
    def balance(self) -> None:
        self.cluster.write(elections.balance_leaders(self.cluster.image, self.cluster.configuration).records)

    @rule(replicas=st.none() | isrs)
    def reassign(self, replicas: list[int] | None) -> None:
        wanted = Wanted(partition_index=0, replicas=replicas)
        topic = Reassignable(name=TOPIC, partitions=[wanted])
        self.cluster.reassign(AlterPartitionReassignmentsRequest(topics=[topic]))

    # ---- what must hold

    @invariant()
    def epochs_never_decrease(self) -> None:
        before, after = self.before, self.partition
        assert after.partition_epoch >= before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader or not {*before.replicas} <= {*after.replicas}:
            assert after.leader_epoch > before.leader_epoch
        if after.leader_epoch > before.leader_epoch or after.isr != before.isr:
            assert after.partition_epoch > before.partition_epoch
        for broker, epoch in self.epochs.items():
            self.epochs[broker] = self.cluster.image.brokers[broker].epoch
            assert self.epochs[broker] >= epoch
        self.settle()
        self.before = after

    @invariant()
    def no_inactive_member_is_in_the_isr_unless_it_is_the_last(self) -> None:
        inactive = {each for each in self.partition.isr if not self.cluster.image.is_active(each)}
        if self.has_elr:
            assert not inactive
        else:
            assert not inactive or len(self.partition.isr) == 1

    @invariant()
    def isr_and_elr_are_disjoint(self) -> None:
        assert not {*self.partition.isr} & {*self.partition.eligible_leader_replicas}
        if not self.has_elr:
            assert not self.partition.eligible_leader_replicas

    @invariant()
    def the_leader_is_active_and_in_the_isr(self) -> None:
        leader = self.partition.leader
        if leader != NO_LEADER:
            assert leader in self.partition.isr and self.cluster.image.is_active(leader)

    @invariant()
    def a_partition_has_a_leader_while_a_member_of_the_isr_or_the_elr_is_alive(self) -> None:
        electable = self.partition.isr or self.partition.eligible_leader_replicas
        if self.partition.leader == NO_LEADER:
            assert not [each for each in electable if self.cluster.image.is_active(each)]

    @invariant()
    def no_replica_is_eligible_once_the_isr_is_large_enough(self) -> None:
        smallest = min(MIN_ISR, len(self.partition.replicas))
        assert len(self.partition.isr) < smallest or not self.partition.eligible_leader_replicas

    @invariant()
    def who_may_lead_is_complete(self) -> None:
        may_lead = {*self.partition.isr, *self.partition.eligible_leader_replicas}
        if self.has_elr:
            assert may_lead <= self.complete
            assert may_lead or self.partition.last_known_elr

    @invariant()
    def replicas_hold_together(self) -> None:
        partition = self.partition
        replicas = {*partition.replicas}
        assert len(replicas) == len(partition.replicas) == len(partition.directories) > 0
        assert {*partition.isr, *partition.eligible_leader_replicas} <= replicas and len({*partition.isr}) == len(
            partition.isr
        )
        assert {*partition.adding_replicas} <= replicas and {*partition.removing_replicas} <= replicas


class DecisionsWithoutElr(Decisions):
    """The last member of the ISR stays in it, whatever becomes of it."""

    has_elr = False


Decisions.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
DecisionsWithoutElr.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDecisions = Decisions.TestCase
TestDecisionsWithoutElr = DecisionsWithoutElr.TestCase
