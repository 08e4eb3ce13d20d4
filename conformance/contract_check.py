"""Tests an adapter (`exec:PATH`) alone, against linearizability/targets/CONTRACT.md: one line for each promise.

Each hook that the adapter lists is used once, and a client observes its effect from outside. Afterwards `restart`, or a fresh
start of the adapter, repairs the nodes. An effect that cannot be observed is reported as unseen, never assumed.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from conformance.batches import batch
from linearizability.client.requests import list_offsets_request, produce_request, produced
from linearizability.targets import TargetError, open_target
from linearizability.targets.adapter import Adapter
from linearizability.targets.target import HOOKS, Node
from linearizability.targets.wire import Wire, WireError, answers, listed_brokers, silence
from linearizability.workload.cluster import create_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message

ENDS_WITHIN_S = 10.0
ANSWERS_WITHIN_S = 20.0
FROZEN_FOR_S = 1.0
LATEST, BROKER_RESOURCE = -1, 4
NAMED_TOPICS: dict[type[Message], int] = {ProduceRequest: 12, ListOffsetsRequest: 11}
"""The last versions that name topics, and do not use topic ids."""
CLOCK_OFF_BY_S, CLOCK_TOLERANCE_S = 3600, 120
CONFIG = {"message.max.bytes": "1048000"}


class Check(BaseModel):
    """The outcome of one check."""

    name: str
    state: Literal["ok", "missing", "broken"]
    """broken: nothing can be judged; missing: some targets, commands or requirements cannot be used."""
    found: str = ""
    advice: str = ""


class Wrong(Exception):
    """The adapter does not keep a promise."""


def check_contract(spec: str, folder: Path, opening: Callable[..., Any] | None = None) -> Iterator[Check]:
    """Check describe and start, each hook, then stop and the end of input; one `Check` each."""
    contract = _Contract((opening or open_target)(spec, folder=folder))
    try:
        yield contract.line("describe and start", contract.start, mended=False)
        if not contract.usable:
            return
        for hook, effect in contract.effects().items():
            if hook in contract.target.hooks:
                yield contract.line(f"hook {hook}", effect)
            else:
                yield Check(name=f"hook {hook}", state="missing", advice=f"{HOOKS[hook]}: {cost(hook)}")
        yield contract.line("stop", contract.stop_all, mended=False)
        yield contract.line("end of input", contract.end_of_input, mended=False)
    finally:
        contract.target.close()


def cost(hook: str) -> str:
    """A sentence about the requirements that are not judged without a hook."""
    from conformance.requirement import catalogue

    areas = Counter(entry.requirement.area for entry in catalogue().values() if hook in entry.requirement.needs.hooks)
    if not areas:
        return "no requirement needs it; hunts use it"
    named = ", ".join(f"{area} {count}" for area, count in areas.most_common())
    count = "1 requirement is" if areas.total() == 1 else f"{areas.total()} requirements are"
    return f"without it {count} not judged ({named})"


class _Contract:
    """An adapter under test. Methods return what they found, or raise Wrong or TargetError."""

    def __init__(self, target: Any) -> None:
        assert isinstance(target, Adapter)
        self.target = target
        self.usable = False
        self.unwritable = ""

    def line(self, name: str, look: Callable[[], str], *, mended: bool = True) -> Check:
        """Run one check; `mended` makes every node answer again afterwards, where possible."""
        try:
            return Check(name=name, state="ok", found=look())
        except (Wrong, TargetError) as error:
            return Check(name=name, state="broken", found=str(error))
        finally:
            if mended:
                self._mend()

    def effects(self) -> dict[str, Callable[[], str]]:
        """Hook -> the method that uses it and observes its effect; hooks with the smallest lasting effect come first."""
        return {
            "logs": self.logs, "pause": self.pause, "resume": self.resume, "partition": self.partition,
            "heal": self.heal, "restart": self.restart, "kill": self.kill, "stop": self.stop, "config": self.config,
            "clock": self.clock, "disk": self.disk, "power-loss": self.power_loss,
        }  # fmt: skip

    @property
    def node(self) -> Node:
        return self.target.nodes[0]

    # ---- describe, start, end

    def start(self) -> str:
        self.target.open()
        for node in self.target.nodes:
            if reason := silence(node.host, node.port, timeout_s=5):
                raise Wrong(f"start was answered, but no broker answers as node {node.id} at {node.address}: {reason}")
        self.usable = True
        reported = {node.id for node in self.target.nodes}
        with suppress(WireError, ValueError):
            listed = {broker.node_id for broker in listed_brokers(self.node.host, self.node.port)}
            if listed and not reported <= listed:
                raise Wrong(f"start names the nodes {sorted(reported)}, Metadata the brokers {sorted(listed)}")
        described = self.target.description
        assert described is not None
        config = "broker properties are honoured" if described.config else "broker properties are unknown to it"
        return f"{self.target.software}, {len(reported)} of at most {described.max_nodes} nodes; {config}"

    def stop_all(self) -> str:
        nodes = list(self.target.nodes)
        self.target.close()
        self._require_gone(nodes, "stop was answered")
        return "every node is gone"

    def end_of_input(self) -> str:
        self.target.open()
        nodes = list(self.target.nodes)
        if not self.target.end_input():
            raise Wrong("the adapter, or what it started, still runs ten seconds after the end of its standard input")
        self._require_gone(nodes, "the adapter ended")
        return "the adapter ends, with all that it started"

    # ---- hooks

    def logs(self) -> str:
        paths = self.target.logs(self.node.id)
        lacking = [str(path) for path in paths if not path.is_file()]
        if lacking or not paths:
            raise Wrong(f"no such file: {', '.join(lacking)}" if lacking else "no path is given")
        return ", ".join(str(path) for path in paths)

    def pause(self) -> str:
        with closing(self._connected()) as held:
            self.target.pause(self.node.id)
            until = time.monotonic() + ENDS_WITHIN_S  # threads of a frozen process stop when they are next scheduled
            while answers(self.node.host, self.node.port, timeout_s=FROZEN_FOR_S):
                if time.monotonic() > until:
                    raise Wrong("the paused node still answers")
            if _is_closed(held, FROZEN_FOR_S):
                raise Wrong("the paused node closed its connections: it ended instead")
        if "resume" in self.target.hooks:
            self.target.resume(self.node.id)
        return "the node is silent, and its connections stay open"

    def resume(self) -> str:
        if "pause" not in self.target.hooks:
            raise Wrong("without the hook pause nothing can be resumed")
        self.target.pause(self.node.id)
        self.target.resume(self.node.id)
        self._require_answers("resume was answered")
        return "the node answers again"

    def kill(self) -> str:
        return self._ending("kill", lambda: self.target.kill(self.node.id))

    def stop(self) -> str:
        return self._ending("stop", lambda: self.target.stop(self.node.id))

    def restart(self) -> str:
        topic = self._stored()
        with closing(self._connected()) as held:
            self.target.restart(self.node.id)
            if not _is_closed(held, ENDS_WITHIN_S):
                raise Wrong("the node was not stopped: its connections outlived the restart")
        self._require_answers("restart was answered")
        if not topic:
            return f"the node answers; whether it kept its data was not seen: nothing could be written{self.unwritable}"
        end = self._eventually_end(topic)
        if end != 1:
            return f"the node answers, WITHOUT ITS DATA: of one record written before, its log holds {end}"
        return "the node answers, with its data"

    def config(self) -> str:
        self.target.config(self.node.id, CONFIG)
        self._require_answers("config was answered")
        (name, value), *_ = CONFIG.items()
        seen = self._described(name)
        if seen is None:
            return "the node answers; whether the property is in force was not seen: it is not described"
        if seen != value:
            raise Wrong(f"{name} was set to {value}, and DescribeConfigs gives {seen}")
        return f"the node answers, with {name}={value}"

    def partition(self) -> str:
        return self._cut(healed=False)

    def heal(self) -> str:
        return self._cut(healed=True)

    def power_loss(self) -> str:
        return self._ending("power-loss", lambda: self.target.power_loss([self.node.id]))

    def disk(self) -> str:
        topic = self._stored()
        self.target.disk(self.node.id, "full", 0)
        if not topic:
            return f"done; its effect was not seen: nothing could be written before either{self.unwritable}"
        if self._append(topic) == "":
            raise Wrong("a record was acknowledged while the disk was full")
        self.target.disk(self.node.id, None)
        return "no record is acknowledged while the disk is full"

    def clock(self) -> str:
        topic = self._stored({"message.timestamp.type": "LogAppendTime"})
        self.target.clock(self.node.id, CLOCK_OFF_BY_S)
        stamp = self._stamp(topic) if topic else None
        if stamp is None:
            return "done; its effect was not seen: the broker gives no log append time"
        off_by_s = stamp / 1000 - time.time()
        self.target.clock(self.node.id, 0)
        if abs(off_by_s - CLOCK_OFF_BY_S) > CLOCK_TOLERANCE_S:
            raise Wrong(
                f"the clock was set off by {CLOCK_OFF_BY_S} s, and a log append time is off by {off_by_s:.0f} s"
            )
        return f"log append times are off by {off_by_s:.0f} s"

    # ---- looking

    def _ending(self, hook: str, end: Callable[[], None]) -> str:
        with closing(self._connected()) as held:
            end()
            if not _is_closed(held, ENDS_WITHIN_S):
                raise Wrong(f"{hook} was answered, but the node's connections stay open")
        self._require_gone([self.node], f"{hook} was answered")
        others = [node for node in self.target.nodes[1:] if not answers(node.host, node.port, timeout_s=5)]
        if others:
            raise Wrong(f"{hook} of node {self.node.id} took node {others[0].id} as well")
        return "the node is gone" + (", the others answer" if len(self.target.nodes) > 1 else "")

    def _cut(self, *, healed: bool) -> str:
        """Require that the cut prevents acknowledgement of acks=all, or, with `healed`, that healing restores it."""
        first, *rest = [node.id for node in self.target.nodes]
        if not rest:
            raise Wrong("a cluster of one node has no network between its nodes")
        topic = self._stored(replicas=[first, rest[0]])
        self.target.partition([[first], rest])
        silent = [node.id for node in self.target.nodes if not answers(node.host, node.port, timeout_s=5)]
        if silent:
            raise Wrong(f"clients do not reach node {silent[0]} while the network between nodes is cut")
        if topic and not healed and self._append(topic) == "":
            raise Wrong("acks=all was acknowledged beyond the cut: replicas still reach their leader")
        if "heal" in self.target.hooks:
            self.target.heal()
        if topic and healed and (refusal := self._eventually_appended(topic)):
            raise Wrong(f"acks=all is not acknowledged after the cut was healed: {refusal}")
        if not topic:
            return "clients reach every node; the cut was not seen: no topic with two replicas could be written"
        return "acks=all is acknowledged again" if healed else "acks=all waits beyond the cut; clients reach every node"

    def _connected(self) -> socket.socket:
        try:
            return socket.create_connection((self.node.host, self.node.port), timeout=5)
        except OSError as error:
            raise Wrong(f"{self.node.address} takes no connection: {error}") from error

    def _stored(self, configs: dict[str, str] | None = None, replicas: list[int] | None = None) -> str:
        """The name of a new topic that the node leads, with one record; empty where none could be created."""
        topic = f"tidegauge-contract-{uuid.uuid4().hex[:8]}"
        if self.unwritable:
            return ""
        placed = replicas or ([self.node.id] if len(self.target.nodes) > 1 else [])
        try:
            create_topic(
                self.target.nodes,
                topic,
                partitions=1,
                replication_factor=1,
                configs=configs or {},
                replicas=placed,
                within_s=ANSWERS_WITHIN_S,
            )
        except TargetError as error:
            self.unwritable = "" if configs or replicas else f" ({error})"
            return ""
        refusal = self._eventually_appended(topic)
        self.unwritable = f" (the topic {topic} was made, and takes no record: {refusal})" if refusal else ""
        return "" if refusal else topic

    def _append(self, topic: str) -> str:
        """Append one record. The reason why it was not acknowledged; empty where it was."""
        try:
            answer = self._produce(topic)
        except (WireError, ValueError) as error:
            return str(error)
        return "" if answer.error_code == ErrorCode.NONE else f"error {answer.error_code}"

    def _eventually_appended(self, topic: str) -> str:
        until = time.monotonic() + ANSWERS_WITHIN_S
        while (refusal := self._append(topic)) and time.monotonic() < until:
            time.sleep(0.2)
        return refusal

    def _stamp(self, topic: str) -> int | None:
        with suppress(WireError, ValueError):
            answer = self._produce(topic)
            if answer.error_code == ErrorCode.NONE and answer.log_append_time_ms >= 0:
                return answer.log_append_time_ms
        return None

    def _produce(self, topic: str) -> Any:
        return produced(self._call(produce_request({(topic, 0): batch(b"contract")}, timeout_ms=2_000)))

    def _eventually_end(self, topic: str) -> int:
        """Wait until the log end offset is 1, and return it; else the last offset that was returned, 0 for an unknown topic."""
        until = time.monotonic() + ANSWERS_WITHIN_S
        end = 0
        while end != 1 and time.monotonic() < until:
            with suppress(WireError, ValueError, IndexError):
                answer = self._call(list_offsets_request({(topic, 0): LATEST}))
                end = max(0, answer.topics[0].partitions[0].offset)
            time.sleep(0.2)
        return end

    def _described(self, name: str) -> str | None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(self.node.id), configuration_keys=[name]
        )
        with suppress(WireError, ValueError, IndexError):
            results = self._call(DescribeConfigsRequest(resources=[resource])).results
            return next((each.value for each in results[0].configs if each.name == name), None)
        return None

    def _call(self, request: Message) -> Any:
        with Wire.connect(self.node.host, self.node.port, timeout_s=5) as wire:
            version = min(wire.version_of(type(request)), NAMED_TOPICS.get(type(request), 1 << 15))
            return wire.call(request, version)

    def _require_gone(self, nodes: list[Node], when: str) -> None:
        for node in nodes:
            if answers(node.host, node.port, timeout_s=FROZEN_FOR_S):
                raise Wrong(f"{when}, but node {node.id} at {node.address} still answers")

    def _require_answers(self, when: str) -> None:
        if not answers(self.node.host, self.node.port, timeout_s=5):
            raise Wrong(f"{when}, but node {self.node.id} at {self.node.address} does not answer")

    def _mend(self) -> None:
        """Make every node answer for the next check: by the adapter's hooks, else by a fresh start."""
        with suppress(TargetError):
            self.target.revive()
        if not all(answers(node.host, node.port) for node in self.target.nodes):
            with suppress(TargetError):
                self.target.close()
                self.target.open()


def _is_closed(connection: socket.socket, within_s: float) -> bool:
    """Whether the other side closes the connection within this time."""
    connection.settimeout(within_s)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True
