"""Who plays a score: the conductor of its chapter, and the clients that it prompts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from linearizability.simulation.conducting.conductor import Conductor
from linearizability.simulation.conducting.groups import GroupConductor
from linearizability.simulation.conducting.quorum import QuorumConductor
from linearizability.simulation.conducting.replication import ReplicationConductor
from linearizability.simulation.conducting.transactions import TransactionConductor
from linearizability.simulation.coordinator_scores import GroupScore, TransactionScore
from linearizability.simulation.prompting import PromptedProducer
from linearizability.simulation.prompting_groups import PromptedMember
from linearizability.simulation.prompting_transactions import PromptedTransactor
from linearizability.simulation.schedule import Producer
from linearizability.simulation.score import QuorumScore, Score

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster


def conductor_of(cluster: Cluster, score: Score | QuorumScore | TransactionScore | GroupScore) -> Conductor[Any]:
    """Cast the clients of a score, and whoever conducts."""
    match score:
        case Score():
            producer = partial(PromptedProducer, topic=score.topic, idempotent=score.idempotent)
            plan = Producer(idempotent=score.idempotent)
            return ReplicationConductor(cluster, score, cluster.add_prompted(producer, plan))
        case QuorumScore():
            return QuorumConductor(cluster, score)
        case TransactionScore():
            return TransactionConductor(cluster, score, cluster.add_prompted(partial(PromptedTransactor, score=score)))
        case GroupScore():
            cast = {name: partial(PromptedMember, score=score, id=name) for name in score.members}
            return GroupConductor(cluster, score, {name: cluster.add_prompted(each) for name, each in cast.items()})
