"""A schedule: everything that decides a simulated run, as a value that is written to a file and run again.

`seed` decides what is left to chance inside (delays, pieces, which un-fsynced bytes survive); the rest is said here. The
same schedule gives the same trace, byte for byte, in any process on any day.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from linearizability.history.contract import BOUND_AFTER_HEALING_MS, Acks, Contract

FORMAT = "tidegauge-schedule/1"

FAULTS: dict[str, str] = {
    "crash": "the process is killed and started again after `for_ms`; what was written stays",
    "power-loss": "the machine loses power and starts again after `for_ms`; of what was not fsynced the end may be gone, or any "
    "of it, with `amount` 1: earlier bytes of a file lost, later ones kept",
    "stop": "the process stops cleanly and is started again after `for_ms`",
    "pause": "the process stands still for `for_ms`",
    "disk-full": "for `for_ms` the disk takes no more than `amount` further bytes",
    "read-only": "for `for_ms` the disk refuses every change",
    "flush-fails": "for `for_ms` fsync fails, and what it was to make durable is in the page cache only",
    "clock-jump": "the machine's wall clock moves by `amount` milliseconds, forward or back",
    "reset": "`amount` percent of all connections are cut; what is under way on them is lost",
    "flaky": "for `for_ms` every message cuts its connection with a chance of `amount` percent",
    "slow": "for `for_ms` everything on the network takes `amount` ms longer",
    "crash-in-step": "within `for_ms` the process is killed before the change number `amount` that a step makes of its disks",
    "cut": "for `for_ms` nothing passes between the node and `others` (all other nodes where none are named)",
    "cut-out": "for `for_ms` nothing passes from the node to `others`; what they send arrives",
    "cut-in": "for `for_ms` nothing passes from `others` to the node; what it sends arrives",
    "isolate": "for `for_ms` nothing passes between the node and all others, clients too",
    "zookeeper-cut": "for `for_ms` nothing passes between the node and ZooKeeper",
    "zookeeper-expire": "ZooKeeper ends the node's session",
    "zookeeper-slow": "for `for_ms` everything to and from ZooKeeper takes `amount` ms longer",
    "zookeeper-change": "for `for_ms` ZooKeeper has no leader: connections and answers are lost, what it carried out is not",
    "zookeeper-depose": "an operator deletes /controller: a controller is elected again, and the former's session goes on",
    "zookeeper-reassign": "a tool writes into ZooKeeper: the partition shall have the replicas `others`, or all nodes, the last "
    "first (not where a former such request is left)",
    "zookeeper-elect": "a tool writes into ZooKeeper: preferred replicas shall lead (not where a former such request is left)",
    "halves": "for `for_ms` nothing passes between the nodes of `others` and all other nodes",
    "slow-node": "for `for_ms` everything to and from the node takes `amount` ms longer",
    "uneven": "for `for_ms` about half of the node's connections take `amount` ms longer, or those that it opened for `channel`",
    "hold": "for `for_ms` the `messages` that the node sends to `others`, or is sent (answers of `others`, what is produced, "
    "LeaderAndIsr), wait; where `amount` is given, only those that were sent in the first `amount` ms",
    "lose": "within `for_ms` the next of those messages is lost, with its connection",
    "send-late": "for `for_ms` the node sends no followers what it reads from files for them: the bytes are read when it is over",
    "reassign": "an operator gives the partition the replicas `others`, or calls its reassignment off where none are named",
    "config": "an operator sets `configs` of the topic",
    "elect-preferred": "an operator asks that preferred replicas lead again",
    "directory-fails": "the last of the node's log directories fails, and is offline until the process starts again",
    "move": "an operator moves the node's replica of the partition to the log directory `amount` of the node",
    "lead": "an operator reorders the partition's replicas to be `others` and asks that the first of them leads",
    "add-voter": "an operator asks that the node becomes a voter (KIP-853)",
    "remove-voter": "an operator asks that the node is no voter any more",
}
"""Kind of fault -> what it does. The first three end the node's process; those from `cut` on need several nodes."""

ANY_ORDER = 1
"""As the amount of a power loss: what was not fsynced survives in any order."""

HOLDING = frozenset({"hold", "lose"})
"""Faults of messages of one kind, which their `messages` names."""

VOTING = frozenset({"add-voter", "remove-voter"})
"""Faults that are an operator's work on the metadata quorum."""

ONE_NODE_FAULTS = tuple(FAULTS)[: [*FAULTS].index("cut")]

STEPS = (
    "BecomeLeader", "BecomeFollower", "ExpandIsr", "ShrinkIsr", "CommitIsr", "Produce", "AnswerFetch", "AppendFetched",
    "AdvanceHighWatermark", "AdoptHighWatermark", "Truncate", "Acknowledge", "Restart", "AppendRecord", "ApplyFetch",
    "BecomeProspective", "BecomeCandidate", "GrantVote", "LearnEpoch", "GiveUpReplica",
)  # fmt: skip
"""Steps of the specification that a fault may wait for."""

METADATA_TOPIC = "__cluster_metadata"
"""As the topic of a fault that waits for a step: the step is the metadata quorum's."""

GROUPS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
TRANSACTION_TIMEOUT_MS = 2_000
"""Whose only partitions are led by the coordinator of all groups, and of all transactions."""

CLIENTS = -1
"""Where clients are, in the geography of nodes."""

MOST_NODES = 9
MOST_REPLICAS = 3


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Topic(Value):
    """A topic of the workload and its settings."""

    name: str
    partitions: int = Field(default=1, ge=1, le=16)
    configs: dict[str, str] = {}
    is_output: bool = False
    """Whether only copiers write it; they read all the others."""
    deletes: bool = False
    """Whether seekers delete records of it (DeleteRecords)."""
    replicas: tuple[int, ...] = ()
    """The nodes of each partition's replicas, where the controller is not to choose."""

    @property
    def retains(self) -> bool:
        """Whether old records may leave the topic."""
        return self.deletes or self.configs.get("retention.bytes", "-1") != "-1" or "retention.ms" in self.configs


Partitioned = Literal["by-key", "round-robin", "sticky"]


class Producer(Value):
    """A client that sends `batches` batches of up to `records` records, a new one after every `pause_ms` or so."""

    kind: Literal["producer"] = "producer"
    acks: Acks = "all"
    idempotent: bool = True
    in_flight: int = Field(default=5, ge=1, le=5)
    batches: int = Field(default=20, ge=1, le=10_000)
    records: int = Field(default=3, ge=1, le=100)
    pause_ms: int = Field(default=20, ge=0, le=10_000)
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    version: int = Field(default=9, ge=7, le=12)
    partitioner: Literal["given"] | Partitioned = "given"
    """Who chooses a record's partition: the application, which fills a batch for one, or a partitioner, record by record."""
    linger_ms: int = Field(default=0, ge=0, le=1_000)
    """How long a record that a partitioner has placed waits for others of its partition."""


class Consumer(Value):
    """A client that reads all partitions of all topics, over and over from where it is."""

    kind: Literal["consumer"] = "consumer"
    start: Literal["earliest", "latest"] = "earliest"
    sessions: bool = False
    max_wait_ms: int = Field(default=100, ge=0, le=10_000)
    min_bytes: int = Field(default=1, ge=0, le=1 << 20)
    max_bytes: int = Field(default=1 << 16, ge=1, le=1 << 26)
    version: int = Field(default=12, ge=4, le=12)
    from_followers: bool = False
    """Whether it reads from any replica (KIP-392; Fetch v11 and later)."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"


class Administrator(Value):
    """A client that creates topics and asks for them again: what was confirmed must stay."""

    kind: Literal["administrator"] = "administrator"
    topics: int = Field(default=3, ge=1, le=100)
    pause_ms: int = Field(default=100, ge=1, le=10_000)


class Seeker(Value):
    """A client that asks for offsets by time, and deletes records of the topics of which it may."""

    kind: Literal["seeker"] = "seeker"
    pause_ms: int = Field(default=40, ge=1, le=10_000)
    deletes_percent: int = Field(default=20, ge=0, le=100)
    """Percentage of its requests that delete records."""


class Updater(Value):
    """A client that alone updates and deletes a few keys of a compacted topic, and reads the topic as a table."""

    kind: Literal["updater"] = "updater"
    topic: str
    keys: int = Field(default=4, ge=1, le=1_000)
    records: int = Field(default=4, ge=1, le=100)
    """Most records in a batch."""
    pause_ms: int = Field(default=10, ge=1, le=10_000)
    deletes_percent: int = Field(default=15, ge=0, le=100)
    """Percentage of records that are tombstones."""
    reads_percent: int = Field(default=10, ge=0, le=100)
    """Percentage of its steps that read the whole topic."""


class Recreator(Value):
    """A client that creates a topic `again`, gives it at most `batches`, reads and deletes it, and begins again."""

    kind: Literal["recreator"] = "recreator"
    configs: dict[str, str] = {}
    batches: int = Field(default=4, ge=1, le=1_000)
    pause_ms: int = Field(default=10, ge=1, le=10_000)


class Transactor(Value):
    """A transactional producer: transactions over a few partitions, most of them committed."""

    kind: Literal["transactor"] = "transactor"
    id: str = ""
    """Its transactional id; its own, where none is given. Who has the same one as another fences it."""
    transactions: int = Field(default=10, ge=1, le=10_000)
    aborts_percent: int = Field(default=30, ge=0, le=100)
    """How many of the transactions are aborted; of these a third is left behind by a producer that died."""
    pause_ms: int = Field(default=40, ge=0, le=10_000)
    patience_ms: int = Field(default=0, ge=0, le=10_000)
    """How long it waits for an answer to a batch before it gives the batch up and aborts, and to an end before it asks for it
    again; 0: as long as a request may take, and then it sends the batch again."""
    version: Literal[1, 2] = 2
    """transaction.version as the client speaks it (KIP-890)."""


Assignor = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]


class Member(Value):
    """A consumer of a group that commits what it has processed, and now and then fails, leaves or stalls."""

    kind: Literal["member"] = "member"
    group: str = "readers"
    protocol: Literal["classic", "consumer"] = "classic"
    """The second is that of KIP-848, in which the brokers' settings say how long a session lasts."""
    assignors: tuple[Assignor, ...] = ("roundrobin",)
    """Of the classic protocol: the assignors that it offers, the best first; one must be common to the group. Who offers the
    cooperative one alone rebalances incrementally."""
    instance: str = ""
    """The instance id of a static member; no two members of a group have the same."""
    session_timeout_ms: int = Field(default=500, ge=100, le=60_000)
    rebalance_timeout_ms: int = Field(default=700, ge=1, le=60_000)
    pause_ms: int = Field(default=20, ge=1, le=10_000)
    """How long it processes a poll's records."""
    faults_percent: int = Field(default=5, ge=0, le=100)
    """How often, after a poll, it dies, leaves, or stands still for longer than its session."""
    dies_after_ms: int = Field(default=0, ge=0, le=600_000)
    """When it dies for good; 0 for never."""
    commits_first: bool = False
    """Of KIP-848: whether it processes and commits what it has read before it gives a partition up; else it stops at once."""
    max_bytes: int = Field(default=2_000, ge=1, le=1 << 26)


class Copier(Member):
    """A member of a group that copies what it reads into the output topics: consume, transform, produce, and commit the
    offsets, in one transaction (KIP-447)."""

    kind: Literal["copier"] = "copier"  # pyright: ignore[reportIncompatibleVariableOverride]
    group: str = "copiers"
    id: str = ""
    """Its transactional id; its own, where none is given. Who has the same one as another fences it."""
    aborts_percent: int = Field(default=10, ge=0, le=100)
    """How many of its transactions it aborts by itself, and reads again what it had read."""
    version: Literal[1, 2] = 2
    """transaction.version as the client speaks it (KIP-890)."""


Client = Annotated[
    Producer | Consumer | Administrator | Seeker | Updater | Recreator | Transactor | Member | Copier,
    Field(discriminator="kind"),
]


class Fault(Value):
    """One fault at one time, or at one step; see FAULTS for what `for_ms` and `amount` mean."""

    at_ms: int = Field(ge=0)
    after: str = ""
    """A step of STEPS: the fault waits from `at_ms` on until some node makes it, and is never injected if none does."""
    wait_ms: int = Field(default=0, ge=0, le=10_000)
    """Delay after that step."""
    kind: Literal[
        "crash", "power-loss", "stop", "pause", "disk-full", "read-only", "flush-fails", "clock-jump", "reset", "flaky",
        "slow", "cut", "cut-out", "cut-in", "isolate", "halves", "slow-node", "reassign", "config", "elect-preferred",
        "lead", "uneven", "hold", "lose", "directory-fails", "move", "crash-in-step", "send-late", "zookeeper-cut",
        "zookeeper-expire", "zookeeper-slow", "zookeeper-change", "zookeeper-depose", "zookeeper-reassign", "zookeeper-elect",
        "add-voter", "remove-voter",
    ]  # fmt: skip
    node: int = Field(default=0, ge=0)
    """The target node, by its id."""
    role: Literal[
        "", "controller", "leader", "bystander", "coordinator", "transaction-coordinator", "actor", "other", "between",
    ] = ""  # fmt: skip
    """Instead of `node`: the node with this role at the time of the fault; if none has it, `node` after all. A bystander neither
    leads the partition nor is the active controller; where one is to lead, it comes first. The coordinator is the
    groups', unless it is said to be that of transactions. The actor is who made the step that the fault waited for, the other
    is the second node that the step names; between targets the actor, and the other takes the place of `others`."""
    topic: str = ""
    """With `partition`: whose leader, whose replicas, whose settings are meant."""
    partition: int = Field(default=0, ge=0)
    others: tuple[int, ...] = ()
    channel: Literal["", "fetch", "isr", "heartbeat", "quorum", "quorum-fetch"] = ""
    """What a node's connections to others are for: a follower's fetches, proposals of ISRs, heartbeats, votes, metadata."""
    for_ms: int = Field(default=0, ge=0, le=600_000)
    amount: int = 0
    configs: dict[str, str] = {}
    messages: Literal[
        "", "fetch", "fetch-answer", "metadata", "proposal", "proposal-answer", "registration", "heartbeat", "produce",
        "leader-and-isr", "stop-replica", "update-metadata",
    ] = ""  # fmt: skip
    """What is held up or lost: a follower's fetches; a leader's AlterPartition; what the controller sends a broker of the
    metadata, or with ZooKeeper its LeaderAndIsr, StopReplica or UpdateMetadata; a broker's registration and heartbeats; what
    clients produce. `node` is who asks, or is answered; of what is produced and of LeaderAndIsr, who is asked."""


class Schedule(Value):
    """One run of a cluster, its clients and its faults."""

    format: Literal["tidegauge-schedule/1"] = FORMAT
    seed: int = 0
    mutant: str | None = None
    """The planted bug that the nodes run with; none for the reference as it is."""
    nodes: int = Field(default=1, ge=1, le=MOST_NODES)
    """One node has the id 0; several have 1, 2, and so on, and are brokers and voters all."""
    log_directories: int = Field(default=1, ge=1, le=4)
    """Of each node, each on a disk of its own. Faults of disks concern the first, which has the metadata log."""
    first_start_dies_at: int = Field(default=0, ge=0)
    """The last node's first process is killed before so many changes of its disks, as it starts; 0 for never."""
    duration_ms: int = Field(default=2_000, ge=1, le=3_600_000)
    """How long clients work under faults; then everything is healed and read."""
    small_portions: bool = False
    """Whether nodes work in small portions (`portions`)."""
    properties: dict[str, str] = {}
    topics: tuple[Topic, ...] = (Topic(name="orders"),)
    compacted: tuple[Topic, ...] = ()
    """Topics of updaters, with one partition each, whose remains are judged by key, not as a history; and topics of coordinators,
    whose state must be what is left of their records."""
    clients: tuple[Client, ...] = ()
    faults: tuple[Fault, ...] = ()
    coordination: Literal["kraft", "zookeeper", "changing-voters"] = "kraft"
    """What coordinates several nodes: their own metadata quorum, with voters by configuration or in its log (KIP-853), or a
    ZooKeeper beside them."""
    voters: tuple[int, ...] = ()
    """The nodes that may be the active controller, the others are brokers only; all where none is named. Of voters that change
    the first: all nodes are controllers."""

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Schedule:
        topics = {topic.name: topic for topic in self.topics}
        for number, fault in enumerate(self.faults):
            if (fault.kind in HOLDING) != bool(fault.messages):
                raise ValueError(
                    f"fault {number}, {fault.kind}, and the messages {fault.messages!r} do not go together"
                )
            strangers = {fault.node, *fault.others} - {0, *self.node_ids}
            if strangers:
                raise ValueError(f"fault {number} names node {min(strangers)}, and there are {self.nodes} nodes")
            if fault.after and (fault.after not in STEPS or self.nodes == 1):
                raise ValueError(f"fault {number} waits for {fault.after}, which is no step of several nodes")
            if fault.after and fault.topic == METADATA_TOPIC:
                continue
            if fault.topic and fault.partition >= (topics[fault.topic].partitions if fault.topic in topics else 0):
                raise ValueError(f"fault {number} names {fault.topic}-{fault.partition}, which is not there")
            if self.nodes == 1 and fault.kind not in ONE_NODE_FAULTS:
                raise ValueError(f"fault {number}, {fault.kind}, needs several nodes")
            if self.coordination != "zookeeper" and fault.kind.startswith("zookeeper"):
                raise ValueError(f"fault {number}, {fault.kind}, needs a cluster that ZooKeeper coordinates")
            if self.coordination != "changing-voters" and fault.kind in VOTING:
                raise ValueError(f"fault {number}, {fault.kind}, needs a cluster whose voters are in its log")
        if self.coordination != "kraft" and self.nodes == 1:
            raise ValueError(f"a cluster with the coordination {self.coordination} has several nodes")
        return self

    @model_validator(mode="after")
    def _compacts_what_is_there(self) -> Schedule:
        names = [topic.name for topic in self.compacted]
        written = [client.topic for client in self.clients if isinstance(client, Updater)]
        if len({*written}) < len(written) or {*written} - {*names} or {*names} & {topic.name for topic in self.topics}:
            raise ValueError(
                f"each of the compacted topics {names} has one updater at most and no other use, not {written}"
            )
        return self

    @model_validator(mode="after")
    def _has_its_voters(self) -> Schedule:
        strangers = {*self.voters} - {*self.node_ids}
        if strangers:
            raise ValueError(f"node {min(strangers)} is to vote, and there are {self.nodes} nodes")
        return self

    @property
    def node_ids(self) -> tuple[int, ...]:
        return (0,) if self.nodes == 1 else tuple(range(1, self.nodes + 1))

    @property
    def is_traceable(self) -> bool:
        """Whether the specification knows all that happens. It knows no part of a step, after which a process is killed, no logs
        with gaps, no answers whose records change on their way, and no two topics of one name."""
        kinds = {each.kind for each in (*self.faults, *self.clients)}
        unknown = kinds & {"crash-in-step", "send-late", "recreator"}
        return not (self.compacted or self.first_start_dies_at or unknown)

    @property
    def holds_messages(self) -> bool:
        """Whether messages between brokers are distinguished by kind."""
        return any(fault.kind in HOLDING for fault in self.faults)

    @property
    def holds_what_is_produced(self) -> bool:
        """Whether messages of clients to brokers are distinguished by kind, too."""
        return any(fault.messages == "produce" for fault in self.faults)

    @property
    def replication_factor(self) -> int:
        return min(self.nodes, MOST_REPLICAS)

    def least_min_isr(self, topic: Topic) -> int:
        """The least min.insync.replicas that a topic has at any time."""
        default = self.properties.get("min.insync.replicas", "1")
        changes = [fault.configs for fault in self.faults if fault.topic == topic.name]
        first = topic.configs.get("min.insync.replicas", default)
        return min(int(value) for value in (first, *(each.get("min.insync.replicas", first) for each in changes)))

    @property
    def elects_uncleanly(self) -> bool:
        """Whether a replica out of sync may be elected at some time."""
        topics = (*self.topics, *self.compacted)
        settings = [self.properties, *(topic.configs for topic in topics), *(each.configs for each in self.faults)]
        return any(each.get("unclean.leader.election.enable") == "true" for each in settings)

    def to_json(self) -> str:
        """Return the schedule with all defaults, so that later versions' defaults do not change it."""
        return json.dumps(self.model_dump(mode="json"), indent=1)

    @property
    def transacts(self) -> bool:
        """Whether some client writes in transactions."""
        return any(client.kind in ("transactor", "copier") for client in self.clients)

    @property
    def has_groups(self) -> bool:
        """Whether some client is a member of a group."""
        return any(isinstance(client, Member) for client in self.clients)

    @property
    def retains(self) -> bool:
        """Whether some topic may drop old records."""
        return any(topic.retains for topic in self.topics)

    @property
    def always_flushed(self) -> bool:
        """Whether every append of every topic is fsynced before it is acknowledged; the coordinators' topics are not."""
        coordinates = self.transacts or self.has_groups
        return not coordinates and all(
            topic.configs.get("flush.messages") == "1" for topic in (*self.topics, *self.compacted)
        )

    @property
    def set_back_ms(self) -> int:
        """How far wall clocks are set back in all. Transactions time out by the wall clock, which their log remembers
        (TransactionStateManager.timedOutTransactions): those that are open then are given that much longer."""
        return sum(max(0, -fault.amount) for fault in self.faults if fault.kind == "clock-jump")

    def contract(self, client: Client | None = None) -> Contract:
        """What a client of this schedule may rely on.

        One node with `flush.messages=1` may lose nothing, ever; without it a power failure may take what was not yet
        fsynced. A killed process alone takes nothing. The history's marks say which losses are excused (`cluster_checker`).
        """
        producing: dict[str, Any] = {}
        if isinstance(client, Producer):
            producing = {"acks": client.acks, "idempotence": client.idempotent, "max_in_flight": client.in_flight}
        isolation = client.isolation if isinstance(client, Consumer) else "read_uncommitted"
        return Contract(
            **producing,
            isolation="read_committed" if isinstance(client, Copier) else isolation,
            reads_from_start=not isinstance(client, Consumer) or client.start == "earliest",
            replication_factor=self.replication_factor,
            min_isr=min(self.replication_factor, min((self.least_min_isr(topic) for topic in self.topics), default=1)),
            unclean_election=self.elects_uncleanly,
            cleanup="delete" if self.retains else "keep",
            bound_after_healing_ms=BOUND_AFTER_HEALING_MS + (self.set_back_ms if self.transacts else 0),
        )


class BadSchedule(ValueError):
    """The file holds no schedule. The message gives the reason in one line."""


FORMER_NAMES = {"score": "script", "cues": "steps", "misfortunes_percent": "faults_percent", "lane": "channel"}
"""Names in stored schedules that were written by earlier versions -> names of today."""


def _with_names_of_today(value: dict[str, Any]) -> dict[str, Any]:
    """An object of a stored schedule; a schedule without a script was written as `"score": null`."""
    return {FORMER_NAMES.get(name, name): each for name, each in value.items() if (name, each) != ("score", None)}


def read_schedule(path: Path, with_script: type[Schedule] = Schedule) -> Schedule:
    """Return a stored schedule, as a `with_script` if it has a script. Errors: BadSchedule, also for an unreadable file."""
    try:
        value = json.loads(path.read_bytes(), object_hook=_with_names_of_today)
        form = with_script if isinstance(value, dict) and "script" in value else Schedule
        if value == {}:
            raise ValueError("it is empty")
        return form.model_validate(value)
    except OSError as error:
        raise BadSchedule(f"{path}: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadSchedule(f"{path} is no schedule: {place + ': ' if place else ''}{first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise BadSchedule(f"{path} is no schedule: {error}") from error
