"""The base class of faults, and the world that they act on."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar

from linearizability.faults.background import Background
from linearizability.faults.injection import Injection, Who
from linearizability.faults.network import Line, Lines, Links, groups_cut
from linearizability.history.excuses import EXCUSE, OVER
from linearizability.history.keys import join_key
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import DiskError, Node, Target, TargetError
from linearizability.targets.wire import Wire, WireError
from linearizability.targets.zookeeper import ByZooKeeper
from linearizability.workload.cluster import ClusterView, Coordinated, find_controller, find_coordinator, look
from linearizability.workload.profile import promised_copies
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.schema import Message

ASK_TIMEOUT_S = 5.0
INTERNAL = ("__consumer_offsets", "__transaction_state")

NodeOutcome = Literal["spared", "killed", "robbed"]
"""What a fault does to a node: it goes on, it ends uncleanly, it ends and loses what it had not fsynced."""


class World:
    """The target under faults: its leaders, and the nodes that are down or frozen."""

    def __init__(
        self,
        target: Target,
        topic: str,
        network: Links | None = None,
        least_doubted: int | None = None,
        coordinated: Sequence[Coordinated] = (),
    ) -> None:
        """`least_doubted` is how many nodes must never be in doubt at once, some robbed among them; None: any number may.

        `coordinated` are the groups and transactional ids whose coordinators may be aimed at.
        """
        self.target = target
        self.coordinated = coordinated
        self.least_doubted = least_doubted
        self.topic = topic
        self.network = network
        self.flickering: dict[int, list[Background]] = {}
        """Node -> the threads that switch its links."""
        self.writers: dict[str, Background] = {}
        """Doomed topic -> the thread that writes to it, or wrote to it."""
        self.failures: list[str] = []
        """Faults that are counted, and did not have their effect."""
        self.down: set[int] = set()
        self.frozen: set[int] = set()
        self.sick: set[int] = set()
        """Nodes whose disk refuses what they write: they may end by themselves."""
        self.mended: set[int] = set()
        """Nodes whose disk is mended, and that were not started since: a refused write may still end them."""
        self.wrong_clocks: set[int] = set()
        self.effects: Counter[str] = Counter()
        """The effects of faults that take effect only when the target answers."""
        self.operator: Background | None = None
        """The thread that changes the metadata quorum's voters, from the first injection that needs it on."""
        self.voters: dict[int, AddRaftVoterRequest] = {}
        """Node -> the request that adds it, of each controller that was seen among the voters."""
        self.unwanted_voters: set[int] = set()
        """Nodes that injections remove from the voters."""
        self.returning_voters: set[int] = set()
        """Those of them whose injection is over: they are added again as soon as they are removed."""
        self.missing_voters: set[int] = set()
        """Nodes that may be no voters any more, and that the operator adds again when no injection removes them."""
        self.doubted: set[int] = set()
        """Nodes that ended uncleanly, and have not been seen whole since: the controller cannot know what they lost."""
        self.robbed: set[int] = set()
        """Those of them that lost bytes."""
        self.view = ClusterView()
        self.mark: Callable[..., None] = lambda f, **fields: None
        """Records excuses in the history (see `history.excuses`)."""
        self._excuses = 0
        self._excused: tuple[set[str], set[int]] = (set(), set())
        """Keys and nodes of the present excuse."""
        self._robbed_since_ns = 0

    @property
    def nodes(self) -> Sequence[Node]:
        """The brokers."""
        return self.target.nodes

    @property
    def ids(self) -> list[int]:
        """All nodes: brokers, and controllers that are none."""
        return sorted(node.id for node in (*self.nodes, *self.target.controllers_alone))

    @property
    def up(self) -> list[int]:
        """Nodes that run and are not frozen."""
        return [node for node in self.ids if node not in self.down | self.frozen]

    @property
    def has_its_voters(self) -> bool:
        """Whether no change of the metadata quorum is asked for, or has yet to be undone."""
        return not self.unwanted_voters | self.missing_voters

    def want_all_voters(self) -> None:
        """End all removals of voters: the operator adds the removed ones again."""
        self.unwanted_voters.clear()
        self.returning_voters.clear()

    def look(self) -> ClusterView:
        """Ask the nodes that are up. When none answers, the last known leaders stay in the view, and `answered` is empty."""
        view = look(self._asked, self.topic)
        self.view = view if view.answered else replace(self.view, answered=view.answered)
        return self.view

    def choose(self, who: Who, pick: float, outcome: NodeOutcome = "spared") -> int | None:
        """One node of the wanted role that is up; any where the role is not held; None when all are down.

        With another outcome than `spared`, one of the nodes that may suffer it (`may_fall`).
        """
        candidates = [
            node for node in self.up if outcome == "spared" or self.may_fall([node], robbed=outcome == "robbed")
        ]
        if not candidates:
            return None
        wanted = [node for node in self._holders(who) if node in candidates] or candidates
        return wanted[int(pick * len(wanted))]

    def _holders(self, who: Who) -> list[int]:
        if who == "any" or len(self.nodes) == 1:
            return []
        leaders = sorted({partition.leader for partition in self.look().partitions.values()})
        match who:
            case "leader":
                return leaders
            case "follower":
                return [node.id for node in self.nodes if node.id not in leaders]
            case "controller":
                return [self.controller()]
            case "coordinator":
                return sorted({find_coordinator(self._asked, each) for each in self.coordinated})

    def controller(self) -> int:
        """The active controller; -1 where no node knows it."""
        return find_controller(self._asked, self.view.controller)

    @property
    def _asked(self) -> list[Node]:
        return [node for node in self.nodes if node.id in self.up]

    def may_fall(self, nodes: Collection[int], *, robbed: bool = False) -> bool:
        """Whether the promise still holds when these nodes end uncleanly, or lose power, now.

        A record acknowledged with acks=all survives as long as fewer nodes than min.insync.replicas are in doubt at once, once
        one of them has lost bytes. Source: KIP-966; `linearizability/simulation/partition_oracle.py` counts in the same way.
        """
        any_robbed = robbed or bool(self.robbed)
        return self.least_doubted is None or not any_robbed or len(self.doubted | {*nodes}) < self.least_doubted

    def trust(self) -> None:
        """End the doubt about all nodes: all replicas have been in sync since their nodes' last start."""
        self.doubted.clear()
        self.robbed.clear()
        self.mended.clear()
        if self._excused[0]:
            self.mark(OVER, number=self._excuses)
            self._excused = set(), set()

    def _fall(self, nodes: Collection[int], *, robbed: bool = False) -> None:
        """Note that these nodes are about to end uncleanly, and record the excuse before a loss can show."""
        self.doubted |= {*nodes}
        if robbed and not self.robbed:
            self._robbed_since_ns = time.monotonic_ns()
        self.robbed |= {*nodes} if robbed else set()
        keys = self._lost_keys() if self.robbed else set()
        if not keys <= self._excused[0] or (keys and not self.doubted <= self._excused[1]):
            self._excuses += not self._excused[0]
            self._excused = keys | self._excused[0], self.doubted | self._excused[1]
            named = {"keys": sorted(self._excused[0]), "nodes": sorted(self._excused[1])}
            self.mark(EXCUSE, number=self._excuses, cause="power-loss", begins=self._robbed_since_ns, **named)

    def _lost_keys(self) -> set[str]:
        """The partitions of which as many replicas are in doubt as promise to keep a record; internal topics as a whole."""
        promised = promised_copies(len(self.nodes))
        if len(self.doubted) < promised:
            return set()
        known = {
            join_key(self.topic, number)
            for number, view in self.view.partitions.items()
            if len(self.doubted & {*view.replicas}) >= min(promised, len(view.replicas))
        }
        return {*INTERNAL, *(known if self.view.partitions else {self.topic})}

    # ---- the network

    @property
    def places(self) -> list[int]:
        """Where nodes and their services live, by number; not the clients."""
        return self.ids + self.services

    @property
    def services(self) -> list[int]:
        """Places of services that the nodes need (ZooKeeper)."""
        return [] if self.network is None else self.network.places[len(self.ids) + 1 :]

    def cut(self, links: Sequence[tuple[int, int]]) -> None:
        assert self.network is not None
        for sender, receiver in links:
            self.network.cut(sender, receiver)

    def join(self, links: Sequence[tuple[int, int]]) -> None:
        assert self.network is not None
        for sender, receiver in links:
            self.network.join(sender, receiver)

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """Cut all links between the groups: by the network, or by the target's own hook."""
        if self.network is None:
            self.target.partition(groups)
        else:
            self.cut(groups_cut(groups))

    def unpartition(self, groups: Sequence[Collection[int]]) -> None:
        if self.network is None:
            self.target.heal()
        else:
            self.join(groups_cut(groups))

    def spoil(self, node: int, line: Line) -> bool:
        """Make the line of a node bad; False where it is already."""
        assert isinstance(self.network, Lines)
        return self.network.spoil(node, line)

    def mend(self, node: int) -> None:
        assert isinstance(self.network, Lines)
        self.network.mend(node)

    def heal_network(self) -> None:
        """Join all links that are still cut."""
        if self.network is not None:
            self.network.heal()
        elif "heal" in self.target.hooks:
            self.target.heal()

    # ---- what processes suffer, remembered

    def kill(self, node: int) -> None:
        self._fall([node])
        self.target.kill(node)
        self._is_down(node)

    def lose_power(self, nodes: Sequence[int], kept: float, *, journaled: bool = False) -> None:
        self._fall(nodes, robbed=True)
        self.target.power_loss(nodes, kept, journaled=journaled)
        for node in nodes:
            self._is_down(node)

    def _is_down(self, node: int) -> None:
        self.down.add(node)
        self.frozen.discard(node)

    def break_disk(self, node: int, error: DiskError, bytes_left: int) -> None:
        self.target.disk(node, error, bytes_left)
        self.sick.add(node)

    def mend_disk(self, node: int) -> None:
        self.target.disk(node, None)
        self.sick.discard(node)
        self.mended.add(node)

    def set_clock(self, node: int, seconds: float) -> None:
        self.target.clock(node, seconds)
        self.wrong_clocks.add(node)
        if not seconds:
            self.wrong_clocks.discard(node)

    def stop(self, node: int) -> None:
        self.target.stop(node)
        self.down.add(node)
        self.frozen.discard(node)

    def end(self, background: Background | None) -> None:
        """Stop a fault's thread; if it had ended by itself, note that as a failure."""
        if background is None:
            return
        background.end()
        if background.failure:
            self.failures.append(background.failure)

    def start(self, node: int) -> None:
        """Start a node that is down; it may still be starting when this returns."""
        if node in self.down:
            self.target.restart(node, wait=False)
            self.down.discard(node)
            self.mended.discard(node)

    def pause(self, node: int) -> None:
        self.target.pause(node)
        self.frozen.add(node)

    def resume(self, node: int) -> None:
        if node in self.frozen:
            self.target.resume(node)
            self.frozen.discard(node)

    def notice_deaths(self) -> list[int]:
        """Nodes that ended by themselves."""
        dead = [node for node in self.ids if node not in self.down and not self.target.running(node)]
        for node in dead:
            self._fall([node])
            self._is_down(node)
        return dead


def least_doubted(robbed: int, promised: int) -> int | None:
    """How many nodes must not be in doubt at once; None where the run is asked for a fault that robs as many by itself.

    It holds also where the topic's own configuration permits losses (acks=1, unclean elections): internal topics promise more.
    """
    return None if robbed >= promised else promised


class Fault(ABC):
    """One kind of fault. It keeps no state: `end` gets the result of `begin`."""

    name: ClassVar[str]
    hooks: ClassVar[Collection[str]] = ()
    """The target's hooks that it needs."""
    network: ClassVar[Literal["", "groups", "links", "lines"]] = ""
    """Whether it needs a network between the nodes: one that can be cut into groups, in every single link, or one whose
    lines can be made slow and lossy."""
    of_zookeeper: ClassVar[bool] = False
    """Whether it needs a ZooKeeper beside the nodes."""
    of_interposer: ClassVar[bool] = False
    """Whether it needs nodes whose disks are ours."""
    only_by_name: ClassVar[bool] = False
    """Whether it is left out of the faults that are in rotation by default."""
    nodes: ClassVar[int] = 1
    """How many nodes it needs."""
    aims: ClassVar[Sequence[Who]] = ("any",)
    """The roles that it may target."""
    apis: ClassVar[Sequence[type[Message]]] = ()
    """Requests that the brokers must serve."""

    def robs(self, nodes: int) -> int:
        """How many of so many nodes it robs, at once, of bytes that were not fsynced."""
        return 0

    @abstractmethod
    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        """Inject it. Returns the fields of its mark, which `end` gets too; None when no node could be its target."""

    @abstractmethod
    def end(self, world: World, done: dict[str, Any]) -> None:
        """Heal what `begin` did."""


AnyFault = TypeVar("AnyFault", bound=Fault)

FAULTS: dict[str, Fault] = {}
"""All faults by name."""


def register(kind: type[AnyFault]) -> type[AnyFault]:
    """Class decorator: put the fault into FAULTS."""
    FAULTS[kind.name] = kind()
    return kind


def select(names: Sequence[str], target: Target, network: Links | None) -> list[str]:
    """The faults asked for by name, or all that this target and backend offer, and after which the promise still holds.

    Errors: TargetError with the reason.
    """
    if list(names) == ["none"]:
        return []
    served = _served(target)
    if not names:
        count = len(target.nodes)
        drawn = {name: fault for name, fault in FAULTS.items() if not fault.only_by_name}
        harmless = [name for name, fault in drawn.items() if fault.robs(count) < promised_copies(count)]
        return [name for name in harmless if not _obstacle(FAULTS[name], target, network, served)]
    for name in names:
        if name not in FAULTS:
            raise TargetError(f"{name!r} is no fault; one of {', '.join(FAULTS)}")
        obstacle = _obstacle(FAULTS[name], target, network, served)
        if obstacle:
            raise TargetError(f"the fault {name} {obstacle}")
    return list(dict.fromkeys(names))


def _served(target: Target) -> Collection[int]:
    """API keys of the first node that answers; none where no node does."""
    for node in target.nodes:
        try:
            with Wire.connect(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as wire:
                return wire.versions().keys()
        except WireError:
            continue
    return ()


def _obstacle(fault: Fault, target: Target, network: Links | None, served: Collection[int]) -> str:
    missing = [hook for hook in fault.hooks if hook not in target.hooks]
    if missing:
        return f"needs the hook {missing[0]}, which {target.spec} does not offer"
    unserved = [request for request in fault.apis if request.KEY not in served]
    if unserved:
        return f"needs {unserved[0].__name__.removesuffix('Request')}, which {target.spec} does not serve"
    if fault.of_zookeeper and not isinstance(target, ByZooKeeper):
        return "needs a ZooKeeper beside the nodes: reference-zk:3, kafka-zk:3.9.2:3"
    if fault.of_interposer and not isinstance(target, ClusterTarget):
        return "needs a cluster that is started here: reference:3, kafka:4.3.1:3, mixed:KIND,KIND,..."
    by_hook = fault.network == "groups" and {"partition", "heal"} <= set(target.hooks)
    if fault.network and network is None and not by_hook:
        return "needs a network between the nodes: another --backend, or a target with the hooks partition and heal"
    if fault.network == "lines" and not isinstance(network, Lines):
        return "needs a network whose lines can be made bad: --backend netns"
    if len(target.nodes) < fault.nodes:
        return f"needs {fault.nodes} nodes; {target.spec} has {len(target.nodes)}"
    return ""
