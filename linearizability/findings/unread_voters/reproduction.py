"""A controller with a truncated log does not read the voters below its old end, and leads with removed voters (KIP-853)."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

from linearizability.client.requests import new_topic
from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest

WITHIN_S = 60.0
ENDS_WITHIN_S = 20.0
APPENDED_WITHIN_S = 1.0
"""A leader appends as it receives the request; without followers it continues to lead for three seconds."""
PARTITIONS = 1000
"""The number of uncommitted records: more than are written until the voters have changed."""
FETCH_OVER_S = 1.0
"""A fetch waits half a second: after this no response with new records is on its way to a frozen node."""
UNCOMMITTED, ACKNOWLEDGED = "uncommitted", "acknowledged"


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 3:
            raise TargetError(f"{spec} is no cluster of three nodes that is started here")
        if not await_true(lambda: quorum.keep_voters_in_the_log(target), WITHIN_S):
            return None, [f"{quorum.FEATURE} was not raised to {quorum.LEVEL}: voters cannot be removed"]
        if not await_true(lambda: quorum.knows_what_is_committed(target), WITHIN_S):
            return None, ["no node leads the quorum"]
        return _Reproduction(target).run()


class _Reproduction:
    def __init__(self, target: ClusterTarget) -> None:
        self.target = target
        self.seen: list[str] = []
        self.directories: dict[int, UUID] = quorum.voters(target)
        self.cut = quorum.leader(target)
        """The first leader, whose log is truncated later."""
        self.others = sorted({*self.directories} - {self.cut})

    def run(self) -> tuple[bool | None, list[str]]:
        """Whether the former leader leads with removed voters, and the observations."""
        if not self._append_alone() or not self._elect_another():
            return None, self.seen
        (last,) = [node for node in self.others if self._leads(node)]
        (third,) = {*self.others} - {last}
        for removed in (third, self.cut):
            said = quorum.remove(self.target, last, removed, self.directories[removed])
            self.seen.append(f"voter {removed} is removed: {said}")
            if said != name_of(ErrorCode.NONE):
                return None, self.seen
        if not await_true(lambda: self._has_fetched_all(last), WITHIN_S):
            return None, [*self.seen, f"node {self.cut} did not fetch all"]
        self.seen.append(f"node {last}, the only voter, leads voters {sorted(quorum.voters(self.target))}")
        self.target.pause(self.cut)
        self.target.kill(third)
        time.sleep(FETCH_OVER_S)
        if self._create(last, ACKNOWLEDGED, [last]) != name_of(ErrorCode.NONE):
            return None, self.seen
        self.target.kill(last)
        self.target.resume(self.cut)
        self.target.restart(third, wait=False)
        return self._leads_by_removed_voters(last), self.seen

    def _append_alone(self) -> bool:
        """Let the leader append records that no other voter gets."""
        end = self._end(self.cut, self.cut)
        for node in self.others:
            self.target.kill(node)
        self._create(self.cut, UNCOMMITTED, [self.cut] * PARTITIONS)
        appended = await_true(lambda: self._end(self.cut, self.cut) >= end + PARTITIONS, APPENDED_WITHIN_S)
        self.seen.append(
            f"leader {self.cut} is alone; its log ended at {end}, and ends at {self._end(self.cut, self.cut)}"
        )
        return appended

    def _elect_another(self) -> bool:
        """Let the others elect a leader while the first one is frozen; then its log is truncated."""
        self.target.pause(self.cut)
        for node in self.others:
            self.target.restart(node, wait=False)
        is_led = await_true(lambda: any(self._knows_what_is_committed(node) for node in self.others), WITHIN_S)
        self.target.resume(self.cut)
        if not is_led:
            self.seen.append("the others elected no leader")
            return False
        leader = next(node for node in self.others if self._leads(node))
        is_cut = await_true(lambda: self._has_fetched_all(leader), WITHIN_S)
        self.seen.append(f"node {leader} leads, the log of node {self.cut} ends at {self._end(leader, self.cut)}")
        return is_cut

    def _leads_by_removed_voters(self, last: int) -> bool | None:
        alive = sorted({*self.directories} - {last})
        if not await_true(lambda: any(self._leads(node) for node in alive), WITHIN_S):
            silent = [node for node in alive if quorum.answer(self.target, node) is None]
            self.seen.append(f"none of {alive} leads; no answer of {silent}")
            return None if silent else False
        leader = next(node for node in alive if self._leads(node))
        voters = sorted(quorum.voters(self.target))
        self.seen.append(f"node {leader} leads voters {voters} while the only voter is down")
        self.seen.append(f"topic {ACKNOWLEDGED!r} at node {leader}: {self._topic_error(leader)}")
        self.target.restart(last, wait=False)
        both = await_true(lambda: all(self._leads(node) for node in (leader, last)), ENDS_WITHIN_S)
        self.seen.append(f"node {last} runs again{': both lead' if both else ''}")
        await_true(lambda: not self.target.running(last), ENDS_WITHIN_S)
        log = self.target.member(last).process.log.read_text(errors="replace").splitlines()
        fatal = [number for number, line in enumerate(log) if "fatal fault" in line]
        self.seen += [line for number in fatal[:1] for line in log[number : number + 2]]
        runs = self.target.running(last)
        self.seen.append(
            f"node {last} {'runs' if runs else 'has ended'}; topic {ACKNOWLEDGED!r} there: {self._topic_error(last)}"
        )
        return True

    def _create(self, node: int, name: str, placed: list[int]) -> str:
        request = CreateTopicsRequest(
            topics=[new_topic(name, placed=[[broker] for broker in placed])], timeout_ms=30_000
        )
        answer = quorum.ask(self.target, node, request, APPENDED_WITHIN_S if name == UNCOMMITTED else WITHIN_S)
        said = "no answer" if answer is None else name_of(answer.topics[0].error_code)
        self.seen.append(f"topic {name!r} is created at node {node}: {said}")
        return said

    def _topic_error(self, node: int) -> str:
        """A broker's error for the acknowledged topic, from Metadata."""
        broker = self.target.member(node).node
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=ACKNOWLEDGED)], allow_auto_topic_creation=False
        )
        try:
            with Wire.connect(broker.host, broker.port) as wire:
                return name_of(wire.call(request).topics[0].error_code)
        except (WireError, OSError) as error:
            return str(error)

    def _leads(self, node: int) -> bool:
        return quorum.described(self.target, node) is not None

    def _knows_what_is_committed(self, node: int) -> bool:
        found = quorum.described(self.target, node)
        return found is not None and found.high_watermark >= 0

    def _end(self, leader: int, node: int) -> int:
        """The end of a node's log, from the leader's DescribeQuorum; -1 where it is not listed."""
        found = quorum.described(self.target, leader)
        replicas = [] if found is None else [*found.current_voters, *found.observers]
        return next((each.log_end_offset for each in replicas if each.replica_id == node), -1)

    def _has_fetched_all(self, leader: int) -> bool:
        return self._end(leader, leader) <= self._end(leader, self.cut) > 0
