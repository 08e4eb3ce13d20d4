"""The topic and the clients of a run."""

from collections.abc import Container, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from linearizability.history.contract import Acks, Contract
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.join_group import JoinGroupRequest

PROCESSES_A_CLIENT = 1000
"""Process numbers of one client: each of its incarnations (a fatal error ends one) is a process of its own."""


class Producing(BaseModel):
    """One producer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    client: Literal["exact", "librdkafka"] = "exact"
    """The raw wire, with exact outcomes; or the library that most clients of other languages are made of."""
    acks: Acks = "all"
    idempotence: bool = True
    max_in_flight: int = 5
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    rate_per_s: float = Field(default=100, gt=0)
    partitioner: Literal["given", "by-key", "round-robin", "sticky"] = "given"
    """Who chooses a record's partition: the application, by chance, or a partitioner of `partitioning`. The exact producer
    names each partition itself."""
    linger_ms: int = Field(default=2, ge=0)
    """How long librdkafka keeps a record back for others of its partition."""

    @model_validator(mode="after")
    def _is_placed_by_who_can(self) -> "Producing":
        if self.client == "exact" and self.partitioner != "given":
            raise ValueError("the exact producer has a sender for each partition, and takes no partitioner")
        return self


class Transacting(BaseModel):
    """One producer of transactions, each over all partitions in turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    client: Literal["transactions"] = "transactions"
    records: int = Field(default=4, ge=1)
    """Records of a transaction."""
    abort_every: int = Field(default=4, ge=2)
    """Every so many transactions one is aborted on purpose."""
    rate_per_s: float = Field(default=100, gt=0)
    """Records, as of every producer."""


class Consuming(BaseModel):
    """One consumer: it reads everything by itself (assign), or shares a group's work (subscribe) and commits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    how: Literal["assign", "subscribe"] = "assign"
    group: str = ""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    commit_every_s: float = Field(default=1, gt=0)
    assignor: Literal["range", "roundrobin", "cooperative-sticky"] = "range"
    """How the group's leader shares out partitions; with the last one members keep theirs while they join again."""
    rest_s: float = Field(default=0, ge=0)
    """How long it rests after each poll: a slow consumer falls behind, and is served from files that are long closed."""
    protocol: Literal["classic", "consumer"] = "classic"
    """Who shares out partitions: the group's leader, or the coordinator (KIP-848), which asks for no assignor."""


class Profile(BaseModel):
    """A topic and the clients that work on it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: int = Field(default=2, ge=1)
    replication_factor: int = Field(default=1, ge=1)
    min_isr: int = Field(default=1, ge=1)
    unclean_election: bool = False
    producers: list[Producing | Transacting]
    consumers: list[Consuming]

    def contract(self, client: Producing | Transacting | Consuming | None = None) -> Contract:
        """What a client of this run may rely on; without a client, what the cluster promises.

        librdkafka's idempotent session ends unseen when it gives a record up, or when the broker has lost its place; what
        was in flight is then sent again under a new session. So its clients may rely neither on order nor on singleness,
        and only the exact producer is held to both.
        """
        promised: dict[str, Any] = {
            "replication_factor": self.replication_factor,
            "min_isr": self.min_isr,
            "unclean_election": self.unclean_election,
        }
        match client:
            case Producing():
                promised |= client.model_dump(include={"acks", "idempotence", "max_in_flight"})
                if client.client == "librdkafka":
                    promised["idempotence"] = False
            case Transacting():
                promised |= {"acks": "all", "idempotence": True}
            case Consuming():
                promised["isolation"] = client.isolation
            case None:
                plain = [producer for producer in self.producers if isinstance(producer, Producing)]
                promised["acks"] = plain[0].acks if plain else "all"
        return Contract.model_validate(promised)

    def at_work(self, counts: Mapping[str, int]) -> bool:
        """Whether clients of every kind have done their work once, as their reports say; acks=0 never gets an answer."""
        kinds = [producer for producer in self.producers if isinstance(producer, Transacting)]
        needed = {
            "ok": any(isinstance(producer, Producing) and producer.acks != "0" for producer in self.producers),
            "read": bool(self.consumers),
            "commits": any(consumer.how == "subscribe" for consumer in self.consumers),
            "committed": bool(kinds),
            "aborted": bool(kinds),
        }
        return all(counts.get(what, 0) > 0 for what, is_needed in needed.items() if is_needed)

    def topic_configs(self) -> dict[str, str]:
        """The topic's own configuration: explicit, because defaults differ between releases."""
        return {
            "min.insync.replicas": str(self.min_isr),
            "unclean.leader.election.enable": str(self.unclean_election).lower(),
        }


def promised_copies(nodes: int) -> int:
    """The min.insync.replicas of a run on so many nodes: how many replicas hold what was acknowledged."""
    return max(1, min(nodes, 3) - 1)


NEWEST_APIS = frozenset((InitProducerIdRequest.KEY, JoinGroupRequest.KEY))
"""The APIs that the mix does without where a broker is older than they are."""


def standard_profile(
    nodes: int,
    *,
    served: Container[int] = NEWEST_APIS,
    acks: Acks = "all",
    unclean_election: bool = False,
    rate_per_s: float = 400,
    transactions: bool = False,
    group_protocol: Literal["classic", "consumer"] = "classic",
) -> Profile:
    """The mix that hunts run with: three producers, one consumer that reads everything, two that share a group.

    `served` are the broker's APIs: idempotence came with 0.11, and needs acks=all; groups came with 0.9, and without them all
    consumers read everything. With `transactions` a fourth producer commits and aborts them. The rate is of all producers
    together. acks=0 has no answers, which is for librdkafka alone.
    """
    grouped = Consuming()
    if JoinGroupRequest.KEY in served:
        grouped = Consuming(how="subscribe", group="hunters", protocol=group_protocol)
    share = rate_per_s / (4 if transactions else 3)
    exact: Literal["exact", "librdkafka"] = "librdkafka" if acks == "0" else "exact"
    idempotent = InitProducerIdRequest.KEY in served and acks == "all"
    factor = min(nodes, 3)
    return Profile(
        partitions=2,
        replication_factor=factor,
        min_isr=promised_copies(nodes),
        unclean_election=unclean_election,
        producers=[
            Producing(client=exact, acks=acks, idempotence=idempotent, rate_per_s=share),
            Producing(client=exact, acks=acks, idempotence=False, compression="gzip", rate_per_s=share),
            Producing(
                client="librdkafka",
                acks=acks,
                idempotence=idempotent,
                compression="lz4",
                rate_per_s=share,
                partitioner="by-key",
            ),
            *([Transacting(rate_per_s=share)] if transactions else []),
        ],
        consumers=[Consuming(), *[grouped] * 2],
    )
