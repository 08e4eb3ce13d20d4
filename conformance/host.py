"""Keeps the target open in the configuration that the present requirements need, and restarts it when it has ended."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance.broker import Broker
from conformance.levels import MAY
from conformance.plan import Group, fits
from conformance.probing import look_again, probe
from conformance.requirement import Requirement, version_key
from conformance.results import TargetRecord
from conformance.subject import Subject
from conformance.target_profile import TargetProfile
from conformance.waits import RETURN, Waits
from conformance.wire import Failed, Unreachable, Unreadable
from linearizability.client.requests import delete_topics_request
from linearizability.targets.addresses import AddressMap
from linearizability.targets.contract import OF_LISTENERS
from linearizability.targets.errors import TargetError
from linearizability.targets.security import ClientSecurity
from reference.protocol.apis import APIS
from reference.protocol.messages.delete_topics import DeleteTopicsRequest

ANSWERS_WITHIN_S = 10.0
"""A target whose process has ended, and that does not answer ApiVersions within this time, is gone."""
HANGS_AFTER_S = 40.0
"""A target whose process runs may be slow on a busy machine. It hangs if it does not answer within this time."""
LOG_LINES = 5

KNOWS_LISTENERS = ("reference", "reference-pypy", "kafka", "mixed", "exec")
"""Targets whose listeners have the suite's names, or that report whether they do."""


class TargetBroke(Exception):
    """The target cannot be opened or reached, or cannot be restarted: nothing more can be judged."""


def housekeeping(what: str, deadline_s: float) -> Requirement:
    """A record for exchanges that belong to no requirement."""
    return Requirement(id="BAS-00", level=MAY, sentence=what, source="conformance", deadline_s=deadline_s)


@dataclass
class Host:
    """The target of a run."""

    spec: str
    folder: Path
    record: TargetRecord
    """The report's entry for the target; filled in when the target is first open."""
    asked_version: str = ""
    open_target: Callable[..., Any] | None = None
    given_topics: list[str] = field(default_factory=list[str])
    subject: Subject | None = None
    profile: TargetProfile | None = None
    open_group: Group | None = None
    starts: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """The numbers of the starts, of all hosts together."""
    stack: ExitStack = field(default_factory=ExitStack)
    waits: Waits = field(default_factory=Waits)
    """The present waits of the run, all hosts together."""
    unheeded: set[str] = field(default_factory=set[str])
    """Configurations that the target was started with and does not honour."""

    @property
    def startable(self) -> bool:
        """Whether the suite starts the target itself."""
        return not self.spec.startswith("addr:")

    @property
    def kafka_version(self) -> str:
        """The requested version, or the one in the target's name; empty where it must be guessed."""
        kind, _, rest = self.spec.partition(":")
        if kind == "mixed":
            return self.asked_version or min(re.findall(r"kafka:([\d.]+)", rest), key=version_key, default="")
        return self.asked_version or (rest.partition(":")[0] if kind in ("kafka", "kafka-zk") else "")

    def another(self) -> Host:
        """A host for a further, concurrent start of the same target, with the known profile."""
        return replace(
            self,
            record=self.record.model_copy(update={"not_revived": self.record.not_revived}),
            subject=None,
            open_group=None,
            stack=ExitStack(),
        )

    def prepare(self, group: Group) -> Subject:
        """Open the target for a group of requirements, and probe it when it is first open.

        Errors: TargetBroke when it does not start or accepts no connection.
        """
        if self.subject and (self.open_group is group or not self._may_differ(self.subject, group)):
            return self.subject
        self.leave()
        target = self._enter(group)
        subject = self.subject = Subject(
            bootstrap=addresses(target.bootstrap),
            kafka_version=self.kafka_version,
            target=target,
            folder=self.folder,
            honoured=self._honoured(group, target),
        )
        self.unheeded |= self._given(group).keys() - subject.honoured
        self.open_group = group
        self._introduce(subject)
        return self.subject

    def _may_differ(self, subject: Subject, group: Group) -> bool:
        """Whether a start with the group's configurations may differ from the open one: not where the target honours none of
        them."""
        return bool(subject.honoured or self._given(group).keys() - self.unheeded)

    def is_started_for(self, configs: Mapping[str, str]) -> bool:
        """Whether the open start suits a requirement that needs these configurations."""
        return self.open_group is not None and fits(configs, self.open_group.configs)

    def _given(self, group: Group) -> dict[str, str]:
        """The group's configurations with which the suite starts the target.

        Leaves out those of listeners and their authentication for other targets than the suite's own: they name listeners of
        the suite's clusters, and such a target might not start with them.
        """
        if not self.startable:
            return {}
        knows_listeners = self.spec.partition(":")[0] in KNOWS_LISTENERS
        return {
            name: value for name, value in group.configs.items() if knows_listeners or not name.startswith(OF_LISTENERS)
        }

    def _honoured(self, group: Group, target: Any) -> frozenset[str]:
        """The names of the group's configurations that the target was started with and honours."""
        return frozenset(self._given(group)).difference(getattr(target, "unknown_config", ()))

    def _introduce(self, subject: Subject) -> None:
        """Probe the target at its first start; at later ones, ask again for its version ranges, nodes and configurations."""
        try:
            if self.profile is None:
                self.profile = probe(subject, lambda: self.answers() or self.revive(), list(self.given_topics))
            else:
                look_again(subject, self.profile)
        except Unreachable as error:
            lost = self.record.not_revived[-1:]
            how = f"ended while the suite probed its APIs: {lost[0]}" if lost else f"takes no connection: {error}"
            raise TargetBroke(f"the target {how}") from error
        if self.subject is None:
            raise TargetBroke(f"the target ended while the suite probed its APIs: {self.record.not_revived[-1]}")
        if not subject.kafka_version:
            subject.kafka_version, subject.resembles_only = guess_kafka_version(subject.api_versions)
        record = self.record
        record.kafka_version = subject.kafka_version
        record.bootstrap = [f"{host}:{port}" for host, port in subject.bootstrap]
        record.name = getattr(subject.target, "software", "")
        record.security = str(getattr(subject.target, "security", None) or ClientSecurity())
        record.nodes, record.cluster_id, record.profile = subject.nodes, subject.cluster_id, self.profile

    def _enter(self, group: Group) -> Any:
        """Open the target. Errors: TargetBroke when it does not start."""
        config = self._given(group)
        folder = self.folder / f"target-{next(self.starts)}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            open_target = self.open_target or default_open_target()
            target = open_target(self.spec, folder=folder, config=config)
            interpose(target, group)
            return self.stack.enter_context(target)
        except Exception as error:
            named = "" if str(error).startswith(self.spec) else f" {self.spec}"
            raise TargetBroke(f"the target{named} did not start: {error}") from error

    def answers(self) -> bool:
        """Whether the first broker answers. Waits longer for one that runs and accepts connections, and not at all for one
        whose process has ended. False where a node was ended for its memory."""
        if self.subject is None or self._ended() or self.ended_for_memory():
            return False
        if self.answers_within(ANSWERS_WITHIN_S):
            return True
        return self._runs() and self._takes_connections() and self.answers_within(HANGS_AFTER_S)

    def answers_within(self, within_s: float) -> bool:
        """Whether the first broker answers ApiVersions within this time."""
        assert self.subject is not None
        with Broker(self.subject, housekeeping("Does the target answer?", within_s + 5)) as broker:
            try:
                broker.eventually(lambda: _answers(broker), "the target answers", within_s=within_s)
            except Failed:
                return False
        return True

    def _runs(self) -> bool:
        """Whether the process of every node runs; False where that is unknown, as for an address."""
        running = self._running()
        return bool(running) and all(running)

    def _ended(self) -> bool:
        """Whether the processes of all nodes have ended; False where that is unknown."""
        running = self._running()
        return bool(running) and not any(running)

    def _running(self) -> list[bool]:
        """Whether each node's process runs; empty where that is unknown."""
        assert self.subject is not None
        target = self.subject.target
        return [target.running(node.id) for node in getattr(target, "nodes", ())] if self.startable else []

    def _takes_connections(self) -> bool:
        """Whether a process listens at the first address: one that hangs still does, one that has ended does not."""
        assert self.subject is not None
        return listens(*self.subject.bootstrap[0])

    def lacking(self) -> str:
        """A description of nodes that have ended without a fault, on a target that the suite starts; empty where there are
        none."""
        if self.subject is None or not self.startable:
            return ""
        ended = [node.id for node in getattr(self.subject.target, "nodes", ()) if self.subject.has_ended(node.id)]
        return self.how_it_ended() if ended and len(ended) < self.subject.nodes else self.subject.incomplete

    def ended_for_memory(self) -> str:
        """Why the watchdog ended a node that took this machine's memory; empty where it ended none."""
        assert self.subject is not None
        target = self.subject.target
        why: Callable[[int], str] | None = getattr(target, "ended_for_memory", None)
        ends = [why(node.id) for node in target.nodes] if why else []
        return next((f"the target {end}" for end in ends if end), "")

    def how_it_ended(self) -> str:
        """How the target ended: exit status and last log lines of the nodes that do not run."""
        assert self.subject is not None
        target = self.subject.target
        known: AddressMap = getattr(target, "addresses", AddressMap())
        found = [why] if (why := self.ended_for_memory()) else []
        for node in getattr(target, "nodes", ()):
            if hasattr(target, "running") and not target.running(node.id):
                status = target.exit_status(node.id)
                found.append(f"node {node.id} ended" + (f" with exit status {status}" if status is not None else ""))
            elif not listens(*known.reach(node.host, node.port)):
                found.append(f"node {node.id} takes no connections any more")
            else:
                continue
            found += _last_lines(target, node.id)
        silent = "it takes connections, and does not answer ApiVersions any more"
        return "\n".join(found) or (silent if self._takes_connections() else "it takes no connections any more")

    def revive(self) -> bool:
        """Restart the target by its hooks, by its owner, or by a fresh start. Returns whether it answers again."""
        if self.subject is None:
            return False  # a start from nothing has failed before
        target = self.subject.target
        try:
            with self.waits.during(RETURN):
                target.revive()
            self.subject.bootstrap = addresses(target.bootstrap)
        except (TargetError, OSError, ValueError) as error:
            return self.start_again(f"{type(error).__name__}: {error}")
        return self.answers() or self.start_again("it came back and does not answer")

    def start_again(self, failure: str) -> bool:
        """Start the target afresh with the same configurations, as `revive` failed. Returns whether it answers."""
        self.record.not_revived.append(failure)
        group = self.open_group
        if not self.startable or group is None:
            return False
        self.leave()
        try:
            self.prepare(group)
            return self.answers()
        except TargetBroke as error:
            self.record.not_revived.append(str(error))
            return False

    def leave(self) -> None:
        """Stop the target."""
        self.subject = self.open_group = None
        stack, self.stack = self.stack, ExitStack()
        with suppress(Exception):
            stack.close()

    def close(self) -> None:
        """Stop the target. On one that the suite did not start, first delete the suite's topics."""
        if self.subject and not self.startable:
            with suppress(Exception):
                delete_all(self.subject)
        self.leave()


def interpose(target: Any, group: Group) -> None:
    """Put the disk interposer under the nodes, where a requirement needs its hooks and this machine supports it."""
    from linearizability.faults.networked import Networked
    from linearizability.targets.cluster import INTERPOSED, ClusterTarget
    from linearizability.targets.interposer.building import obstacle

    wanted = {hook for entry in group.entries for hook in entry.requirement.needs.hooks}
    if wanted & {*INTERPOSED} and isinstance(target, ClusterTarget | Networked) and not obstacle():
        target.interpose()


def default_open_target() -> Callable[..., Any]:
    """The function that opens every kind of target."""
    from linearizability.targets import open_target

    return open_target


def _answers(broker: Broker) -> bool:
    """Whether ApiVersions gets a response, also an unreadable one."""
    try:
        broker.api_versions()
    except Unreadable:
        return True
    except Failed:
        return False
    return True


def listens(host: str, port: int) -> bool:
    """Whether a process listens at an address; only a refused connection says that none does."""
    try:
        with socket.create_connection((host, port), timeout=ANSWERS_WITHIN_S):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def _last_lines(target: Any, node: int) -> list[str]:
    with suppress(Exception):
        for path in target.logs(node):
            lines = path.read_text(errors="replace").splitlines()
            if lines:
                return [f"{path.name} ends:", *lines[-LOG_LINES:]]
    return []


def delete_all(subject: Subject) -> None:
    """Delete the topics that the suite created."""
    with Broker(subject, housekeeping("Topics are deleted.", 60)) as broker:
        version = broker.version_for(DeleteTopicsRequest)
        for at in range(0, len(subject.topics), 50):
            broker.call(delete_topics_request(subject.topics[at : at + 50], version), version)


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs."""
    pairs = [address.rpartition(":") for address in bootstrap.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


ALIKE = 0.75
"""The share of a release's APIs whose version ranges a target must match to count as that release."""


def guess_kafka_version(api_versions: dict[int, tuple[int, int]]) -> tuple[str, bool]:
    """The release with the most equal version ranges, of several the one with the nearest highest versions; and whether the
    target only resembles it, as brokers that are not Apache Kafka do."""
    releases = sorted({release for api in APIS.values() for release in api.releases}, key=version_key)

    def likeness(release: str) -> int:
        return sum(
            api_versions.get(key) == api.releases[release][:2] for key, api in APIS.items() if release in api.releases
        )

    def distance(release: str) -> int:
        return sum(
            abs(api_versions[key][1] - api.releases[release][1])
            for key, api in APIS.items()
            if release in api.releases and key in api_versions
        )

    best = max(reversed(releases), key=lambda release: (likeness(release), -distance(release)))
    own = {key for key, api in APIS.items() if best in api.releases and "broker" in api.releases[best][3]}
    return best, likeness(best) < ALIKE * len(own | api_versions.keys() & APIS.keys())
