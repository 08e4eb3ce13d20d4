"""Bugs of replication that need several nodes: those of Kafka's history, named after the KIP that fixed each, and others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.controller.elections import NO_BROKER
from reference.controller.image import BROKER_RESOURCE
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.replication.follower import Following
from reference.replication.isr import NEVER_FETCHED
from reference.replication.proposal import ProposalOutcome

METADATA = "__cluster_metadata"
ACKS_ALL = -1

LOST = (
    "eligible-incomplete", "leader-incomplete", "committed-differs", "lost-write", "offset-out-of-range", "truncation-reported",
)  # fmt: skip
"""Promises of which one breaks when committed records are lost."""
DIVERGED = ("logs-differ", "replica-divergence", "inconsistent-offsets")
"""Promises of which one breaks when two logs hold different records at one offset."""

# ---- truncation and append of a follower's log


@mutant(
    "reference.node.properties:truncation_of",
    "Followers cut their logs to their own high watermarks, and lose what was committed.",
    fuzz=True, nodes=3, breaks=LOST, in_history=True,
)  # fmt: skip
def kip_101_loss(original: Any, properties: Any) -> str:
    return "high-watermark"


@mutant(
    "reference.node.properties:truncation_of",
    "Followers cut their logs to their own high watermarks, and keep what their leader has never had.",
    fuzz=True, nodes=3, breaks=DIVERGED, only_in_history=True,
)  # fmt: skip
def kip_101_divergence(original: Any, properties: Any) -> str:
    return "high-watermark"


@mutant(
    "reference.storage.log:Log.end_offset_for_epoch",
    "Of an epoch that it does not have, a leader reports where the next one begins, as if it had it.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def kip_279(original: Any, log: Any, epoch: int) -> Any:
    found = original(log, epoch)
    if log.topic == METADATA or found.leader_epoch < 0:
        return found
    return found._replace(leader_epoch=epoch)


@mutant(
    "reference.node.fetch:Serving._read_as_follower",
    "A follower's fetch names neither its leader's epoch nor that of its own last record.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def kip_320(original: Any, serving: Any, partition: Any, wanted: Any, *more: Any) -> Any:
    return original(serving, partition, replace(wanted, last_fetched_epoch=-1, current_leader_epoch=-1), *more)


@mutant(
    "reference.node.fetch:Serving._read_as_follower",
    "A follower's fetch shows where the logs part, but does not name its leader's epoch.",
    fuzz=True, nodes=3,
)  # fmt: skip
def fetch_without_fencing(original: Any, serving: Any, partition: Any, wanted: Any, *more: Any) -> Any:
    return original(serving, partition, replace(wanted, current_leader_epoch=-1), *more)


@mutant(
    "reference.storage.log:Log.append_as_follower",
    "A follower appends batches of a newer leader epoch than the one in which it fetched, from an answer that its former leader "
    "sent late (KAFKA-18723).",
    fuzz=True, nodes=3, breaks=("newer-epoch-appended",),
)  # fmt: skip
def newer_epochs_appended(original: Any, log: Any, records: Any, now: int, leader_epoch: int | None = None) -> Any:
    return original(log, records, now)


# ---- the leader's ISR and high watermark


@mutant(
    "reference.replication.leader:Leading._counted_ends",
    "The high watermark waits for the committed ISR only, not for the proposed one.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def kip_497(original: Any, leader: Any, now: int) -> Iterator[int]:
    return (progress.end for follower, progress in leader.followers.items() if follower in leader.replica.state.isr)


@mutant(
    "reference.replication.leader:Leading.is_in_maximal_isr",
    "A member that is proposed to leave does not count any more, before the controller has agreed.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def leaver_counted_out(original: Any, leader: Any, broker: int) -> bool:
    return broker in (leader.pending.isr if leader.pending is not None else leader.replica.state.isr)


@mutant(
    "reference.replication.proposal:outcome_of",
    "INVALID_UPDATE_VERSION undoes a proposal of which an earlier copy was accepted.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def stale_proposal_rolled_back(original: Any, error: Any) -> ProposalOutcome:
    return ProposalOutcome.ROLLED_BACK if error == ErrorCode.INVALID_UPDATE_VERSION else original(error)


@mutant(
    "reference.replication.isr:may_join",
    "A follower with what a new leader knows to be committed may join, whatever its predecessor had committed.",
    fuzz=True, nodes=3,
)  # fmt: skip
def epoch_start_unasked(original: Any, end: int, high_watermark: int, epoch_start: int) -> bool:
    return end >= high_watermark


@mutant(
    "reference.replication.leader:Leading.advance_high_watermark",
    "The high watermark moves on while the ISR is smaller than min.insync.replicas.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def committed_under_min_isr(original: Any, leader: Any, now: int) -> bool:
    min_isr, leader.replica.min_isr = leader.replica.min_isr, 1
    try:
        return original(leader, now)
    finally:
        leader.replica.min_isr = min_isr


@mutant(
    "reference.replication.leader:Leading._removed_pending_replay_after",
    "A smaller ISR counts as soon as the controller has answered, before the min.insync.replicas that it was written under is "
    "known, as in Apache Kafka 4.3 and 4.4.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def commit_before_min_isr(original: Any, leader: Any, isr: tuple[int, ...]) -> frozenset[int]:
    return frozenset()


@mutant(
    "reference.replication.leader:Leading.answer_to_produce",
    "Acks=all is answered as soon as all of the ISR have the record, however few they have become since the append.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def acknowledged_under_min_isr(original: Any, leader: Any, end: int) -> Any:
    code = original(leader, end)
    ends = [progress.end for follower, progress in leader.followers.items() if leader.is_in_maximal_isr(follower)]
    return ErrorCode.NONE if min(ends, default=end) >= end else code


@mutant(
    "reference.replication.isr:effective_min_isr",
    "min.insync.replicas is asked for neither before the append nor after it, nor by the high watermark.",
    fuzz=True, nodes=3,
)  # fmt: skip
def min_isr_ignored(original: Any, min_isr: int, replicas: int) -> int:
    return min(1, replicas)


@mutant(
    "reference.replication.leader:Leading.is_committed",
    "Acks=all is answered as soon as the leader has the record.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def acknowledged_before_commit(original: Any, leader: Any, end: int) -> bool:
    return leader.replica.log.log_end_offset >= end


@mutant(
    "reference.node.produce:_append_all",
    "Acks=all is answered as acks=1 is: as soon as the leader has the records.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def acks_all_as_one(original: Any, node: Any, request: Any, body: Any, verdicts: Any, now: int) -> Any:
    if body.acks == ACKS_ALL:
        body.acks = 1
    return original(node, request, body, verdicts, now)


@mutant(
    "reference.replication.partition:Partition.read",
    "A follower serves consumers up to the end of its log.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def follower_serves_ahead(original: Any, replica: Any, offset: int, **more: Any) -> Any:
    if not isinstance(replica.role, Following):
        return original(replica, offset, **more)
    high_watermark, replica.high_watermark = replica.high_watermark, replica.log.log_end_offset
    try:
        return original(replica, offset, **more)
    finally:
        replica.high_watermark = high_watermark


@mutant(
    "reference.replication.high_watermark:follower_high_watermark",
    "A follower's high watermark is what its leader said, also beyond its own log.",
    fuzz=True, nodes=3,
)  # fmt: skip
def follower_believes_its_leader(original: Any, leader_high_watermark: int, log_end: int) -> int:
    return leader_high_watermark


# ---- decisions of the controller


@mutant(
    "reference.controller.isr_proposals:_judge_member",
    "A broker's earlier incarnation counts for its present one: a stale broker epoch is admitted to the ISR.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def kip_903(original: Any, image: Any, member: Any) -> None:
    member.broker_epoch = -1
    original(image, member)


@mutant(
    "reference.controller.isr_proposals:_judge_member",
    "A fenced broker may join the ISR.",
    fuzz=True, nodes=3,
)  # fmt: skip
def fenced_broker_admitted(original: Any, image: Any, member: Any) -> None:
    return None


def _all_that_have_fetched(
    original: Any, fetched_epoch: int, registered_epoch: int, is_fenced: bool, is_shutting_down: bool
) -> bool:
    return fetched_epoch != NEVER_FETCHED


def _in_any_incarnation(original: Any, leader: Any, follower: int, broker_epoch: int) -> None:
    return None


@mutant(
    "reference.controller.isr_proposals:_judge_member",
    "Neither the controller nor the leader, which has replayed it, minds that a broker is fenced.",
    fuzz=True, nodes=3, also={"reference.replication.isr:is_admissible": _all_that_have_fetched},
)  # fmt: skip
def fencing_unnoticed(original: Any, image: Any, member: Any) -> None:
    return None


@mutant(
    "reference.controller.isr_proposals:_judge_member",
    "Neither the controller nor the leader, which has replayed it, minds that a broker has begun another incarnation.",
    fuzz=True, nodes=3,
    also={
        "reference.replication.isr:is_admissible": _all_that_have_fetched,
        "reference.replication.leader:Leading._require_present_incarnation": _in_any_incarnation,
    },
)  # fmt: skip
def former_incarnation_unnoticed(original: Any, image: Any, member: Any) -> None:
    return None


@mutant(
    "reference.controller.brokers:_end_incarnation",
    "A broker that comes back from an unclean end is as eligible to lead as before.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def kip_966(original: Any, image: Any, configuration: Any, broker: int, was_clean: bool) -> Any:
    return original(image, configuration, broker, True)


@mutant(
    "reference.controller.leadership_rules:stays_eligible",
    "A replica dropped by a reassignment stays eligible to lead, as in Apache Kafka 4.3.",
    fuzz=True, nodes=3,
)  # fmt: skip
def dropped_kept_eligible(original: Any, *sizes: int, **facts: bool) -> bool:
    return original(*sizes, **facts | {"has_replica": True})


@mutant(
    "reference.controller.elections:is_unclean_allowed",
    "A replica that is neither in the ISR nor eligible is elected, though unclean elections are off.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def unclean_election(original: Any, configuration: Any, topic: str) -> bool:
    return True


def _asks_to_serve(original: Any, membership: Any) -> Any:
    heartbeat = original(membership)
    heartbeat.want_fence = False
    return heartbeat


@mutant(
    "reference.controller.heartbeats:next_state",
    "A broker asks to be unfenced, and is, before it has replayed its own registration.",
    fuzz=True, nodes=3, breaks=("unfenced-too-early",),
    also={"reference.node.membership:Membership._heartbeat": _asks_to_serve},
)  # fmt: skip
def unfenced_before_replay(original: Any, state: Any, **known: Any) -> Any:
    return original(state, **(known | {"is_caught_up": True}))


@mutant(
    "reference.controller.partition_change:_complete_reassignment",
    "A reassignment ends when one of the added replicas is in sync.",
    fuzz=True, nodes=5, breaks=("reassigned-too-early",),
)  # fmt: skip
def reassigned_with_one_in_sync(original: Any, target: Any, terms: Any) -> None:
    if {*target.adding_replicas} & {*target.isr}:
        target.replicas = [each for each in target.replicas if each not in target.removing_replicas]
        target.isr = [each for each in target.isr if each not in target.removing_replicas]
        target.removing_replicas, target.adding_replicas = [], []
    original(target, terms)


# ---- state after a change of leader or a restart


@mutant(
    "reference.replication.partition:Partition.become_leader",
    "A new leader knows nothing of idempotent producers.",
    fuzz=True, nodes=3, breaks=("duplicate", "sequence-lost", "logs-differ", "producers-disagree"), in_history=True,
)  # fmt: skip
def producers_forgotten_by_new_leaders(original: Any, partition: Any, state: Any, now: int) -> None:
    original(partition, state, now)
    partition.log._producers.producers.clear()


@mutant(
    "reference.replication.partition:Partition.restart",
    "After a restart all that the log holds counts as committed.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def high_watermark_restored_wrongly(original: Any, partition: Any, checkpoint: int) -> None:
    original(partition, partition.log.log_end_offset)


@mutant(
    "reference.storage.log:Log.take_epochs",
    "A leader that has appended nothing and moves to another log directory forgets its leader epoch (KAFKA-20961).",
    fuzz=True, nodes=3, breaks=("own-epoch-forgotten",),
)  # fmt: skip
def idle_epoch_left_behind(original: Any, log: Any, former: Any) -> None:
    return None


@mutant(
    "reference.node.node:Node.has_caught_up",
    "A broker serves by the metadata of its earlier incarnation, before it has replayed what came after.",
    fuzz=True, nodes=3, in_history=True,
)  # fmt: skip
def replay_skipped(original: Any, node: Any) -> bool:
    return True


@mutant(
    "reference.controller.elections:move_leaders",
    "A broker that comes back leads no partition of internal topics that has no leader.",
    fuzz=True, nodes=3, workload="groups", breaks=("partition-not-led",),
)  # fmt: skip
def internal_topics_without_a_leader(
    original: Any, image: Any, configuration: Any, concerned: Any, broker: Any = NO_BROKER
) -> Any:
    kept = [place for place in concerned if broker.joining < 0 or not place[0].name.startswith("__")]
    return original(image, configuration, iter(kept), broker)


# ---- settings


@mutant(
    "reference.node.configs:refused_by_broker",
    "Only one broker of the cluster takes changes of its own settings: the others refuse theirs, as of another broker.",
    caught_by=("CFG-17",), nodes=3,
)  # fmt: skip
def own_settings_refused(original: Any, configuration: Any, body: Any) -> Any:
    refused = original(configuration, body)
    if configuration.node == 1 or not isinstance(body, IncrementalAlterConfigsRequest):
        return refused
    named = [one for one in body.resources if one.resource_type == BROKER_RESOURCE and one.resource_name]
    return [*refused, *((one, ErrorCode.INVALID_REQUEST, "Unexpected broker id") for one in named)]
