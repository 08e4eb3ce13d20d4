"""The trace of a partition in a cluster with ZooKeeper, as the module TraceZooKeeper reads it.

Such a trace is a file of JSON lines. The first is Begin, with all brokers and an empty ZooKeeper; each other is a step of
`spec/historical`, written by `node`:

    {"action": "Begin", "zookeeper": [1, 2, 3], "partition": "t-0"}
    {"action": "RegisterBroker", "node": 1, "args": {"broker": 1, "brokerEpoch": 25}}
    {"action": "ElectController", "node": 1, "args": {"controllerEpoch": 1}, "zxid": 27}
    {"action": "CreateTopic", "node": 1, "partition": "t-0", "args": {"controller": 1, "controllerEpoch": 1,
     "state": {"leader": 1, "leaderEpoch": 0, "isr": [1, 2, 3], "version": 0, "replicas": [1, 2, 3]}}}
    {"action": "TakeLeaderAndIsr", "node": 2, "args": {"broker": 2, "controllerEpoch": 1, "brokerEpoch": 31}}
    {"action": "BecomeFollower", "node": 2, "partition": "t-0", "args": {"leaderEpoch": 0, "partitionEpoch": 0}}

A row WriteState has a decision that a node sent to ZooKeeper, with its arguments; the decision's own row follows when ZooKeeper
responds. `controller` and `broker` may be left out if they are the node. `state` is the state that a decision wrote; `version`
and `partitionEpoch` are the version of its znode. Rows of one transaction of ZooKeeper may carry its `zxid`, and are put in that
order, because a response may reach its node after another node's later transaction. A broker knows its broker epoch from the row
RegisterBroker on; its znode exists from that zxid on (`brokerEpoch`). Steps of ZooKeeper that no node traced are added:

- the end of a session before another registration of its broker, and before another broker creates /controller;
- a new session before a registration;
- an election whose response never reached its broker: a controller epoch is missing, and that broker's session ended;
- a registration whose response never reached its broker: a request has its broker epoch, and the broker registers again;
- the end of the session of a broker that a controller did not find (`brokers` of OnControllerFailover), if it registers again.

Restart, Crash and ShutDown without a partition are the process's; with one they are of this replica, which then has no role.
A trace ends where the topic is deleted or created again. Rows of replication without a part in the coordination are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spec import trace_form
from spec.trace_form import Event, TraceError, data_module, events_of, lacking_arguments, record, strings

MODULE = "TraceZooKeeper"

DECISIONS = (
    "CreateTopic",
    "ElectLeader",
    "ElectPreferredLeader",
    "ElectUncleanLeader",
    "RemoveReplicaFromIsr",
    "AlterPartition",
    "AddReplica",
    "RemoveReplica",
    "Reassign",
)
"""Steps that write the partition's state to ZooKeeper."""

TAKES = ("TakeLeaderAndIsr", "TakeStopReplica", "TakeUpdateMetadata")
ROLES = ("BecomeLeader", "BecomeFollower", "CommitIsr")
PROCESSES = ("Restart", "Crash", "ShutDown")

ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("SessionExpired", "OpenSession", "DeposeController", *PROCESSES), ()),
    "RegisterBroker": ("brokerEpoch",),
    "ElectController": ("controllerEpoch",),
    "ResignController": (),
    "OnControllerFailover": ("controllerEpoch",),
    "BrokerFailure": ("broker",),
    "BrokerStartup": ("broker", "brokerEpoch"),
    "ControlledShutdown": ("broker",),
    "UpdateLeaderAndIsrCache": (),
    **dict.fromkeys(DECISIONS, ("controllerEpoch", "state")),
    "WriteState": ("decision", "controllerEpoch", "state"),
    **dict.fromkeys(("DeleteTopic", "CompleteTopicDeletion"), ()),
    **dict.fromkeys(TAKES, ("controllerEpoch", "brokerEpoch")),
    "RefuseRequest": ("controllerEpoch", "brokerEpoch", "request", "error"),
    "BecomeLeader": ("leaderEpoch", "partitionEpoch"),
    "BecomeFollower": ("leaderEpoch", "partitionEpoch"),
    "ExpandIsr": ("follower",),
    "ShrinkIsr": ("follower",),
    "CommitIsr": ("partitionEpoch",),
    "RollBackIsr": (),
    "GiveUpReplica": (),
}
"""Step -> its arguments, all required; other steps are not in this book."""

STATE = ("leader", "leaderEpoch", "isr", "version")
"""Fields of the state that a decision wrote."""

OWN = ("ElectController", "OnControllerFailover", "TakeLeaderAndIsr", "TakeUpdateMetadata")
"""Steps that only clusters with ZooKeeper trace."""


@dataclass(frozen=True)
class ZooKeeperTrace:
    """The trace of one partition."""

    name: str
    brokers: tuple[int, ...]
    events: tuple[Event, ...]

    book = "historical"

    @property
    def run(self) -> tuple[tuple[int, ...]]:
        """Traces in which this is equal may share a run of TLC."""
        return (self.brokers,)


# ---- from the rows of a cluster


def is_of_zookeeper(rows: Sequence[Event]) -> bool:
    """Whether these are rows of nodes of a cluster with ZooKeeper, and not yet a trace."""
    return any(row.get("action") in OWN for row in rows) and rows[0].get("action") != "Begin"


def in_order_of_zookeeper(rows: Sequence[Event]) -> list[Event]:
    """The rows, with those that have a zxid in the order of their zxids. The broker learns its epoch (LearnBrokerEpoch) at the
    former place of its RegisterBroker. A registration that its broker never learned of is added."""
    order: list[Event] = []
    for row in _with_unlearned_registrations(rows):
        zxid = _zxid(row)
        is_learned = row["action"] == "RegisterBroker" and row.get("is_learned", True)
        if is_learned:
            order.append({**row, "action": "LearnBrokerEpoch"})
        place = len(order) - is_learned
        if zxid is not None:
            later = (at for at, other in enumerate(order) if (_zxid(other) or 0) > zxid or _knows(other, row))
            place = min(place, next(later, place))
        order.insert(place, row)
    return order


def _with_unlearned_registrations(rows: Sequence[Event]) -> Iterator[Event]:
    """The rows, and each registration that its broker never learned of, before the first request with its broker epoch."""
    known = {(_broker(row), row["args"]["brokerEpoch"]) for row in rows if row["action"] == "RegisterBroker"}
    for row in rows:
        if row["action"] in (*TAKES, "RefuseRequest", "BrokerStartup") and "brokerEpoch" in row["args"]:
            broker, epoch = named = _broker(row), row["args"]["brokerEpoch"]
            if named not in known and _registers_after(rows, broker, epoch):
                known.add(named)
                arguments = {"broker": broker, "brokerEpoch": epoch}
                yield {"node": broker, "action": "RegisterBroker", "args": arguments, "is_learned": False}
        yield row


def _registers_after(rows: Sequence[Event], broker: int, epoch: int) -> bool:
    """Whether a broker registered with smaller broker epochs and with larger ones."""
    own = [row["args"]["brokerEpoch"] for row in rows if row["action"] == "RegisterBroker" and _broker(row) == broker]
    return bool(own) and min(own) < epoch < max(own)


def _knows(other: Event, row: Event) -> bool:
    """Whether in the other row a controller notices this registration, or a later one."""
    is_startup = other["action"] == "BrokerStartup" and row["action"] == "RegisterBroker"
    return is_startup and other["args"]["brokerEpoch"] >= row["args"]["brokerEpoch"]


def _zxid(row: Event) -> int | None:
    return row["args"]["brokerEpoch"] if row["action"] == "RegisterBroker" else row.get("zxid")


def zookeeper_traces(rows: Sequence[Event]) -> dict[str, list[Event]]:
    """The traces of all partitions in the rows of a cluster, by name; for a later topic of the name with `~` and a number."""
    if not rows or not is_of_zookeeper(rows):
        return {}
    own = [row for row in rows if row.get("action") in ARGUMENTS]
    brokers = sorted({row["node"] for row in own if row["node"] > 0})
    found: dict[str, list[Event]] = {}
    for name in dict.fromkeys(row["partition"] for row in own if row["action"] == "CreateTopic"):
        shares = [row for row in own if row.get("partition", name) == name]
        first = {"action": "Begin", "zookeeper": brokers, "partition": name}
        for number, share in enumerate(_topics(shares)):
            found[f"{name} and ZooKeeper" if not number else f"{name}~{number} and ZooKeeper"] = [
                first,
                *_settled(share),
            ]
    return found


def _settled(rows: Sequence[Event]) -> list[Event]:
    """One partition's rows, with each decision at the place of its request: the response may be late or missing.

    A row WriteState is the request, the decision's own row is the response. A request without a response was written if later
    rows have a version that is not older, and no other decision wrote its version.
    """
    asked = {_key(row) for row in rows if row["action"] == "WriteState"}
    answered = {_key(row) for row in rows if row["action"] in DECISIONS}
    written = {version for version, _ in answered}
    found: list[Event] = []
    newest = -1
    for row in reversed(rows):
        if row["action"] == "WriteState":
            version, _ = key = _key(row)
            if key in answered or (version not in written and version <= newest):
                answered.discard(key)
                written.add(version)
                found.append({**row, "action": row["args"]["decision"]})
            continue
        if row["action"] in DECISIONS:
            newest = max(newest, row["args"]["state"]["version"])
            if _key(row) in asked:
                continue
        elif row["action"] in ROLES:
            newest = max(newest, row["args"]["partitionEpoch"])
        found.append(row)
    return found[::-1]


def _key(row: Event) -> tuple[int, int]:
    """(version that a decision writes, its controller epoch)."""
    return row["args"]["state"]["version"], row["args"]["controllerEpoch"]


def _topics(rows: Sequence[Event]) -> Iterator[list[Event]]:
    """For each topic of the name in turn, the rows of its partition, and the rows of the cluster up to its deletion."""
    ends = [at for at, row in enumerate(rows) if row["action"] == "CompleteTopicDeletion"] or [len(rows)]
    begin = 0
    for end in ends:
        yield [row for at, row in enumerate(rows[: end + 1]) if at >= begin or "partition" not in row]
        begin = end + 1


# ---- one trace


def trace_of(rows: Sequence[Event], name: str) -> ZooKeeperTrace:
    """The trace of a partition's rows. Errors: TraceError."""
    try:
        brokers = tuple(int(broker) for broker in rows[0]["zookeeper"])
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}:1: Begin has no brokers: {error}") from error
    for number, row in enumerate(rows[1:], 2):
        where = f"{name}:{number}"
        lacks = lacking_arguments(row, ARGUMENTS, where, " of a cluster with ZooKeeper")
        lacks += [
            field for field in STATE if row["action"] in DECISIONS and field not in row["args"].get("state", STATE)
        ]
        lacks += [] if "node" in row else ["node"]
        if lacks:
            raise TraceError(f"{where}: {row['action']} lacks {', '.join(lacks)}")
        strangers = {row["node"], *_named(row)} - {0, *brokers}
        if strangers:
            raise TraceError(f"{where}: no broker is called {min(strangers)}")
    events = tuple(_whole(in_order_of_zookeeper(rows[1:])))
    return ZooKeeperTrace(name, brokers, events)


def _named(row: Event) -> set[int]:
    return {row["args"][role] for role in ("broker", "controller", "follower") if role in row.get("args", {})}


def _broker(row: Event) -> int:
    return row.get("args", {}).get("broker", row["node"])


def _is_of_replica(row: Event) -> bool:
    return row["action"] in PROCESSES and "partition" in row


def _whole(rows: Sequence[Event]) -> Iterator[Event]:
    """The rows, each after the missing steps of ZooKeeper and processes that must precede it, up to the topic's deletion."""
    known = _Known()
    for at, row in enumerate(rows):
        if row["action"] == "ElectController":
            yield from known.unlearned(row, rows[at + 1 :])
        if row["action"] == "OnControllerFailover":
            yield from known.gone(row, rows[at + 1 :])
        yield from known.before(row)
        if row["action"] == "CompleteTopicDeletion":
            return
        if known.is_new(row):
            yield row


@dataclass
class _Known:
    """The state of processes, sessions and registrations after the rows so far."""

    running: set[int] = field(default_factory=set[int])
    sessions: set[int] = field(default_factory=set[int])
    left: set[int] = field(default_factory=set[int])
    """Brokers whose process ended while its session still lasts."""
    registered: dict[int, int] = field(default_factory=dict[int, int])
    learned: dict[int, int] = field(default_factory=dict[int, int])
    controller: int = 0
    epoch: int = 0
    """The newest controller epoch."""

    def unlearned(self, row: Event, later: Sequence[Event]) -> Iterator[Event]:
        """Earlier elections that the elected broker never learned of: their epochs are missing, and its session ended."""
        for epoch in range(self.epoch + 1, row["args"]["controllerEpoch"]):
            silent = sorted(self.sessions & self.registered.keys() - {row["node"], self.controller})
            winner = next((broker for broker in silent if self._session_ends(broker, later)), None)
            if winner is None:
                return
            if self.controller:
                yield self._made("SessionExpired", self.controller)
            arguments = {"controller": winner, "controllerEpoch": epoch}
            elected: Event = {"node": winner, "action": "ElectController", "args": arguments}
            self.is_new(elected)
            yield elected
            yield self._made("SessionExpired", winner)
            yield {"node": winner, "action": "ResignController", "args": {"controller": winner}}

    def gone(self, row: Event, later: Sequence[Event]) -> Iterator[Event]:
        """The ends of the sessions of brokers that a new controller does not find, and that register again later."""
        found = row["args"].get("brokers", [*self.registered])
        for broker in sorted(self.registered.keys() - {*found}):
            if self._session_ends(broker, later):
                yield self._made("SessionExpired", broker)

    def _session_ends(self, broker: int, later: Sequence[Event]) -> bool:
        """Whether a broker's next steps show that its session ends before it becomes the controller."""
        for row in later:
            if row["node"] == broker and row["action"] in ("ElectController", "OnControllerFailover"):
                return False
            if _broker(row) == broker and row["action"] == "RegisterBroker":
                return row["args"]["brokerEpoch"] != self.registered[broker]
        return False

    def before(self, row: Event) -> Iterator[Event]:
        broker, action = _broker(row), row["action"]
        if action in ("OpenSession", "RegisterBroker") and broker not in self.running:
            yield self._made("Restart", broker)
        if action == "Restart" and "partition" not in row and broker in self.running:
            yield self._made("Crash", broker)
        if (
            action == "RegisterBroker"
            and self.registered.get(broker, row["args"]["brokerEpoch"]) != row["args"]["brokerEpoch"]
        ):
            yield self._made("SessionExpired", broker)
        if action == "RegisterBroker" and broker not in self.sessions:
            yield self._made("OpenSession", broker)
        if action == "ElectController" and self.controller:
            is_deposed = self.controller == broker  # else its session would be over, too
            yield self._made("DeposeController" if is_deposed else "SessionExpired", self.controller)

    def _made(self, action: str, broker: int) -> Event:
        row: Event = {"node": 0, "action": action, "args": {"broker": broker}}
        self.is_new(row)
        return row

    def is_new(self, row: Event) -> bool:
        """Apply a row to the state; return whether it changed something, or is no step of this state."""
        broker = _broker(row)
        match row["action"]:
            case _ if _is_of_replica(row):
                new = True
            case "Restart":
                new = broker not in self.running
                self.running.add(broker)
            case "Crash" | "ShutDown":
                new = broker in self.running
                self.left |= {broker} & self.sessions
                self.running.discard(broker)
                self.sessions.discard(broker)
                self.learned.pop(broker, None)
            case "OpenSession":
                new = broker not in self.sessions
                self.sessions.add(broker)
            case "SessionExpired":
                new = broker in self.left | self.sessions
                (self.left if broker in self.left else self.sessions).discard(broker)
                self.registered.pop(broker, None)
                self.controller = 0 if self.controller == broker else self.controller
            case "DeposeController":
                new, self.controller = self.controller != 0, 0
            case "RegisterBroker":
                new = broker not in self.registered
                self.registered[broker] = row["args"]["brokerEpoch"]
            case "LearnBrokerEpoch":
                new = self.learned.get(broker) != row["args"]["brokerEpoch"]
                self.learned[broker] = row["args"]["brokerEpoch"]
            case "ElectController":
                new, self.controller, self.epoch = True, broker, row["args"]["controllerEpoch"]
            case _:
                new = True
        return new


# ---- as TLA+


def _name(number: int) -> str:
    return f'"n{number}"' if number > 0 else '"none"'


def _set(numbers: Sequence[int]) -> str:
    return strings(f"n{number}" for number in sorted(numbers))


class _Epochs:
    """Broker epochs as small numbers: 1 for a broker's first registration, 2 for its second, …"""

    def __init__(self, events: Sequence[Event]) -> None:
        self._of: dict[int, list[int]] = {}
        for event in events:
            if event["action"] == "RegisterBroker":
                self._of.setdefault(_broker(event), []).append(event["args"]["brokerEpoch"])

    def small(self, broker: int, epoch: int) -> int:
        """The small number of a broker epoch; 0 if the broker never registered with it."""
        known = self._of.get(broker, [])
        return known.index(epoch) + 1 if epoch in known else 0


def _event(event: Event, epochs: _Epochs) -> str:
    action, arguments = event["action"], event.get("args", {})
    broker = _broker(event)
    name = "CloseReplica" if _is_of_replica(event) else action
    fields = {"action": f'"{name}"', "broker": _name(broker)}
    fields["controller"] = _name(arguments.get("controller", event["node"]))
    if "controllerEpoch" in arguments:
        fields["controllerEpoch"] = str(arguments["controllerEpoch"])
    if "brokerEpoch" in arguments:
        fields["brokerEpoch"] = str(epochs.small(broker, arguments["brokerEpoch"]))
    if "follower" in arguments:
        fields["follower"] = _name(arguments["follower"])
    if action in TAKES or action == "RefuseRequest":
        kind = arguments.get("request", action.removeprefix("Take"))
        fields |= {"request": f'"{kind}"', "error": f'"{arguments.get("error", "NONE")}"'}
        fields["leaderEpoch"] = str(arguments["leaderEpoch"] + 1) if arguments.get("leaderEpoch", -2) >= 0 else "-2"
    if action in ROLES:
        fields |= {
            "version": str(arguments["partitionEpoch"] + 1),
            "leaderEpoch": str(arguments.get("leaderEpoch", -1) + 1),
        }
    if action in DECISIONS:
        fields |= _state(arguments["state"])
        fields["proposer"] = _name(arguments.get("leader", arguments["state"]["leader"]))
    return record(fields)


def _state(state: Event) -> dict[str, str]:
    """The fields of a partition's state in TLA+, where leader epochs and versions begin with 1."""
    return {
        "leader": _name(state["leader"]),
        "leaderEpoch": str(state["leaderEpoch"] + 1),
        "isr": _set(state["isr"]),
        "version": str(state["version"] + 1),
        "replicas": _set(state.get("replicas", ())),
    }


RATIONS = (
    *(f"{name} = 1000000" for name in ("Expiries", "Crashes", "Stops", "Shrinks")),
    *(f"{name} = 0" for name in ("Records", "Moves", "Elections", "Deletions", "Copies")),
    "AlterPartitions = TRUE",
    "Metadata = FALSE",
    "RecordSteps = FALSE",
    "Bugs = {}",
)
"""Constants that limit models, and do not limit traces."""


def modules(traces: Sequence[ZooKeeperTrace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    texts = [
        events_of(_event(event, epochs) for event in trace.events)
        for trace in traces
        for epochs in [_Epochs(trace.events)]
    ]
    constants = [f"Brokers = {_set(traces[0].brokers)}", "None = None", *RATIONS]
    return (
        data_module("Integers, Sequences", [], texts),
        trace_form.configuration(
            "TraceZooKeeper: traces of partitions that ZooKeeper coordinates", constants, deadlock
        ),
    )
