"""The declared contract: what the clients asked for and what the cluster was configured to promise.

A rule finds anomalies; the contract decides what they mean. A lost record that was acknowledged with `acks=1` is permitted,
one with `acks=all` is not. Every history carries its contract, so that its verdict can be repeated.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EXCUSED = "excused: "
"""Prefix of the reason of an anomaly that an excuse explains."""
Acks = Literal["0", "1", "all"]
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
SETTINGS = {
    "enable.idempotence": "idempotence",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "isolation.level": "isolation",
    "min.insync.replicas": "min_isr",
    "unclean.leader.election.enable": "unclean_election",
    "cleanup.policy": "cleanup",
}
"""Kafka's names of some terms."""
BOUND_AFTER_HEALING_MS = 60_000


class Contract(BaseModel):
    """What a history's clients may rely on. The defaults are those of Kafka 4 with three replicas.

    A file's header declares the contract of its process; the cluster's part must be equal in all files of a run. A single
    send can name other `acks` (see `operations.send`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    acks: Acks = "all"
    """The producer's acks. Only `all` promises that an acknowledged record survives the leader."""
    idempotence: bool = True
    """The producer's `enable.idempotence`: its retries make no duplicates and keep their order."""
    max_in_flight: Positive = 5
    """Requests in flight on one connection; above one, a producer without idempotence may reorder its records."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    """The consumer's isolation level."""

    replication_factor: Positive = 3
    min_isr: Positive = 2
    """`min.insync.replicas`: how many replicas hold a record that was acknowledged with acks=all."""
    unclean_election: bool = False
    """`unclean.leader.election.enable`: a replica out of sync may lead, and what it lacks is lost."""
    replicas_losing_unflushed_data: NotNegative = 0
    """How many replicas at once the faults may rob of bytes that were not yet fsynced (power loss). From `min_isr` on, an
    acknowledged record may legally vanish: Kafka's promise rests on replication, not on fsync. It excuses the whole run: declare
    it only for a history without the marks of `excuses`."""
    cleanup: Literal["keep", "delete", "compact"] = "keep"
    """Whether records may leave the log during the run: by retention or DeleteRecords (`delete`), or by compaction."""

    reads_from_start: bool = True
    """Consumers without a committed offset begin at the log start (`auto.offset.reset=earliest`). Where they do not, a
    record below what was read need not have been looked for; then only a final drain proves a loss."""
    strict_recency: bool = False
    """Also judge stale reads invalid. Off by default: a leader that was cut off may legally serve old reads and old end offsets
    until it learns of its successor."""
    bound_after_healing_ms: NotNegative = BOUND_AFTER_HEALING_MS
    """Within this time after the last fault ended, every operation must succeed again (rule `progress`)."""

    def permits_loss(self, acks: str | None = None) -> str:
        """Why an acknowledged record may be lost under this contract; empty where it may not."""
        acks = self.acks if acks is None else acks
        if acks != "all":
            return f"acks={acks} acknowledges before the in-sync replicas have the record"
        if self.unclean_election:
            return "unclean leader election may drop what the elected replica lacks"
        if self.replicas_losing_unflushed_data >= self.min_isr:
            return (
                f"{EXCUSED}power was lost on {self.replicas_losing_unflushed_data} replicas at once, and acks=all with "
                f"min.insync.replicas={self.min_isr} promises no more than {self.min_isr} unflushed copies"
            )
        return ""

    @classmethod
    def from_json(cls, value: Any) -> "Contract":
        return cls.model_validate(value if value is not None else {})

    @classmethod
    def from_terms(cls, terms: Iterable[str]) -> "Contract":
        """The contract that terms NAME=VALUE declare, and nothing else. Errors: ValueError, which names the known terms."""
        named: dict[str, str] = {}
        for term in terms:
            said, _, value = term.partition("=")
            name = SETTINGS.get(said, said)
            if name not in cls.model_fields:
                raise ValueError(f"{said!r} is none of {', '.join(cls.model_fields)}")
            if named.setdefault(name, value) != value:
                raise ValueError(f"{name} is given twice, as {named[name]} and as {value}")
        return cls.model_validate(named)

    def contradicts(self, other: "Contract") -> str:
        """The first term that both declare with different values, in words; empty where there is none."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name in self.model_fields_set & other.model_fields_set and mine != theirs:
                return f"{name}={mine}, not {theirs}"
        return ""

    def completed(self, given: "Contract") -> "Contract":
        """This contract, with the values of `given` for terms that it does not declare itself."""
        missing = given.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(given, name) for name in missing})


NOTHING_GIVEN = Contract()
"""Declares no term."""
