"""Judges requirements on a target: their order, which run in parallel, which block others, and which one crashed the target.

The order on each start of the target: the basic requirements one by one, then in parallel those that share no state, then the
exclusive ones one by one, then those that may crash the target. Requirements that can share a configuration are a group, with
one start. Where the suite can run several targets of one node at once, it judges groups in parallel (`Target.several`).

A requirement is judged after those that it requires. One that fails is blocked instead where a requirement fails that it builds
on (`conformance.dependencies`), or that is about the step in which it failed (`conformance.steps`).

After each requirement the target must answer. Where it does not, the requirements that were running and the last ones before
them are suspects: the target is restarted, and each suspect is judged again alone until one crashes the target.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from conformance.host import Host, TargetBroke
from conformance.judging import (
    KEEP_FROM_STARTING,
    block,
    cause_of,
    deadly_for,
    judge,
    judged_by_death,
    judged_by_prerequisite,
    learn_unserved,
    missing,
    missing_in_any_start,
    names_its_step,
)
from conformance.plan import BASE_CONFIGS, Group, by_duration, in_order, plan
from conformance.requirement import Entry, catalogue, owed_by
from conformance.results import Judgement, Verdict
from conformance.stalls import Stalls
from conformance.steps import STEPS
from conformance.subject import Subject
from conformance.turns import ROUND_TRIPS, WAITING_JOBS, is_disturbed, next_ready, phases
from conformance.waits import START, Waits

REMEMBERED = 8
"""How many of the last judged requirements are suspects of a crash."""
GRACE_S = 1.0
"""How long after a suspect's judgement the target may still crash because of it."""
DEATHS = 40
"""The run ends after more crashes than this."""
AGAIN_PATIENCE = 1.5
"""The factor on the deadline of a requirement that timed out in parallel or was held up, when it is judged again alone."""
HELD_UP_S = 1.0
"""A machine that lost so much time may have made a requirement time out."""
OVERRUN_S = 30.0
"""How long after its deadline a requirement is aborted. Its waits and requests should all have ended at the deadline."""
MOMENT_S = 0.5
"""How often the run checks for overdue requirements, and for a request to stop."""

Judged = Callable[[Judgement], None]
Queued = TypeVar("Queued")


class Interrupted(Exception):
    """The run was stopped early."""


@dataclass
class Session:
    """The state of a run."""

    host: Host
    entries: Sequence[Entry]
    jobs: int
    report: Judged  # called with each judgement when it is final
    starting: Callable[[Group, int, int], None] = lambda group, number, groups: None
    judging: Callable[[Entry], None] = lambda entry: None
    waits: Waits = field(default_factory=Waits)
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to stop the run early."""
    verdicts: dict[str, Judgement] = field(default_factory=dict[str, Judgement])
    unexplained: list[str] = field(default_factory=list[str])
    starts: int = 1
    """How many targets run at once, where several can run on this machine."""
    groups: deque[tuple[int, Group]] = field(default_factory=deque[tuple[int, Group]])
    """The groups still to be judged, with their numbers."""
    count: int = 0
    """How many groups there are."""
    late: list[tuple[Group, Entry]] = field(default_factory=list[tuple[Group, Entry]])
    """Requirements that timed out while other targets ran; they are judged again after these."""
    again: deque[tuple[Group, Entry]] = field(default_factory=deque[tuple[Group, Entry]])
    """The late requirements that are still to be judged again."""
    held_up: bool = False
    """Whether the machine held up the last requirement that was judged alone."""
    disturbed: dict[str, str] = field(default_factory=dict[str, str])
    """Requirement id -> its failure in parallel, in a step whose own requirement holds; it is judged again alone."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards the fields above, which the sessions of all targets share."""
    accompanies: bool = False
    """Whether this session's target runs beside the first one."""
    deaths: int = 0
    last: deque[Entry] = field(default_factory=lambda: deque[Entry](maxlen=REMEMBERED))
    _asking: threading.RLock = field(default_factory=threading.RLock)
    """Held while a prerequisite is judged before its turn: only one is at a time, so that no two wait for each other."""
    _companions: list[Future[None]] = field(default_factory=list[Future[None]])

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=self.jobs + WAITING_JOBS, thread_name_prefix="judge")

    def run(self) -> None:
        """Judge all entries. Errors: TargetBroke when the target cannot be started or restarted; Interrupted."""
        self.groups.extend(enumerate(by_duration(plan(self.entries)), 1))
        self.count = len(self.groups)
        with ThreadPoolExecutor(max_workers=self.starts, thread_name_prefix="start") as self._start_pool:
            try:
                self._judge_groups()
                self._await_companions()
                self._judge_groups()
                self._judge_late()
                self._attribute_afterwards()
            finally:
                self._end_pool()

    def _end_pool(self) -> None:
        self._pool.shutdown(wait=not self.stop.is_set(), cancel_futures=True)

    def _judge_groups(self) -> None:
        """Judge groups until none is left. A group whose target breaks is put back before the error is raised."""
        while taken := self._next(self.groups):
            number, group = taken
            waiting = [entry for entry in group.entries if entry.test and entry.requirement.id not in self.verdicts]
            if not waiting:
                continue
            try:
                if not self._cannot_be_judged(waiting, group):
                    if self.host.open_group is not group:
                        self.starting(group, number, self.count)
                    self._prepare(group)
                self._judge_group(in_order(waiting), group)
            except TargetBroke:
                self.groups.append(taken)
                raise

    def _cannot_be_judged(self, entries: Sequence[Entry], group: Group) -> bool:
        """Whether no requirement can be judged with any configuration. The target is not started for them: it might exit."""
        if self.host.subject is None and not self.accompanies and KEEP_FROM_STARTING & group.configs.keys():
            self._prepare(Group(dict(BASE_CONFIGS)))
        subject = self.host.subject
        return subject is not None and all(missing_in_any_start(one.requirement, subject)[0] for one in entries)

    def _prepare(self, group: Group) -> None:
        with self.waits.during(START):
            self.host.prepare(group)

    def _next(self, queue: deque[Queued]) -> Queued | None:
        with self.lock:
            return queue.popleft() if queue else None

    def _begin_companions(self) -> None:
        """Begin to judge other groups on further targets, if several can run at once."""
        if not self._companions and self._subject.honoured:
            self._accompanied_by(len(self.groups), Session._judge_groups)

    def _accompanied_by(self, most: int, work: Callable[[Session], None]) -> None:
        """Let at most `most` further targets take part in some work, if several can run at once."""
        several = getattr(self._subject.target, "several", False)
        for _ in range(min(self.starts - 1, most) if several else 0):
            other = replace(
                self,
                host=self.host.another(),
                starts=1,
                accompanies=True,
                deaths=0,
                last=deque(maxlen=REMEMBERED),
                _companions=[],
            )
            self._companions.append(self._start_pool.submit(other._accompany, work))

    def _await_companions(self) -> None:
        while self._companions:
            self._companions.pop().result()

    def _accompany(self, work: Callable[[Session], None]) -> None:
        """Work on a further target. Where that target breaks, the first session does the rest."""
        try:
            work(self)
        except TargetBroke:
            return
        finally:
            self._end_pool()
            self.host.close()

    def _judge_group(self, entries: list[Entry], group: Group) -> None:
        first, beside, alone, last = phases(entries)
        self._one_by_one(first, group)
        self._begin_companions()
        late = self._side_by_side(beside, group)
        if self._beside_other_starts():
            self.late += [(group, entry) for entry in late]
        else:
            self._one_by_one(late, group, patience=AGAIN_PATIENCE)
        self._one_by_one(alone, group)
        self._one_by_one(last, group)

    def _beside_other_starts(self) -> bool:
        return self.accompanies or not all(companion.done() for companion in self._companions)

    def _judge_late(self) -> None:
        """Judge the late requirements again: each alone on its target, first on several targets at once. Those that are late
        again on a busy machine are judged once more when nothing else runs."""
        for is_first in (True, False):
            for group in {id(group): group for group, _ in self.late}.values():
                self.again += [(group, entry) for entry in in_order([e for other, e in self.late if other is group])]
            self.late.clear()
            if is_first and self.again:
                self._accompanied_by(len(self.again) - 1, Session._judge_again)
            self._judge_again()
            self._await_companions()

    def _judge_again(self) -> None:
        while taken := self._next(self.again):
            group, entry = taken
            try:
                self._prepare(group)
                self._one_by_one([entry], group, patience=AGAIN_PATIENCE)
            except TargetBroke:
                self.late.append(taken)
                raise

    # ---- one by one, and in parallel

    def _one_by_one(self, entries: Iterable[Entry], group: Group, *, patience: float = 1.0) -> None:
        for entry in entries:
            if entry.requirement.id in self.verdicts:
                continue
            was_beside = self._beside_other_starts()
            self._make_whole(group)
            judgement = self._alone(entry, patience=patience)
            if judgement.verdict is Verdict.NOT_JUDGED and self._make_whole(group):
                judgement = self._alone(entry, patience=patience)
            if self._survived(judgement):
                doubtful = was_beside and (patience < AGAIN_PATIENCE or self.held_up)
                if judgement.timed_out and doubtful:
                    self.late.append((group, entry))
                else:
                    self._settle(entry, judgement)
            else:
                seen = {entry.requirement.id: judgement}
                self._one_by_one(self._attribute_death([*self.last, entry], seen, group), group)

    def _make_whole(self, group: Group) -> bool:
        """Restart a cluster afresh where a node is missing without a fault. Returns whether it was restarted.

        Otherwise every requirement with several nodes would wait for the missing one. Errors: TargetBroke.
        """
        lacking = self.host.lacking()
        if not lacking:
            return False
        self.deaths += 1
        with self.waits.during(START):
            revived = self.deaths <= DEATHS and self.host.start_again(lacking)
        if not revived:
            raise TargetBroke(f"a part of the target has ended, and cannot be started again: {lacking}")
        self.host.open_group = group
        return True

    def _survived(self, judgement: Judgement) -> bool:
        """Whether the target still answers; a requirement that sent nothing cannot have crashed it."""
        asked = judgement.verdict not in (Verdict.NOT_JUDGED, Verdict.BLOCKED) or bool(judgement.exchanges)
        return not asked or self.host.answers()

    def _alone(self, entry: Entry, *, patience: float = 1.0) -> Judgement:
        """Judge one requirement in a thread, and abort it when overdue. Judges it again where it timed out and the machine
        held it up."""
        running, stalls = {self._begin(entry, patience): entry}, Stalls(MOMENT_S)
        while not (done := self._next_done(running)):
            stalls.look()
        judgement = done.pop().result()
        self.held_up = stalls.is_busy or stalls.lost_s > HELD_UP_S
        again = judgement.timed_out and self.held_up and patience < AGAIN_PATIENCE
        return self._alone(entry, patience=AGAIN_PATIENCE) if again else judgement

    def _side_by_side(self, entries: Sequence[Entry], group: Group) -> list[Entry]:
        """Judge in parallel. Returns the requirements to be judged again alone, which others may have delayed or disturbed: those
        that timed out, or failed in a step whose own requirement holds."""
        late: list[Entry] = []
        waiting = deque(entry for entry in entries if entry.requirement.id not in self.verdicts)
        running: dict[Future[Judgement], Entry] = {}
        while waiting or running:
            while entry := next_ready(waiting, running.values(), self.jobs, self._subject.profile):
                waiting.remove(entry)
                running[self._begin(entry, 1.0)] = entry
            finished = [(running.pop(future), future.result()) for future in self._next_done(running)]
            if all(self._survived(judgement) for _, judgement in finished):
                for entry, judgement in finished:
                    disturbed = is_disturbed(judgement, self.verdicts)
                    if disturbed:
                        self.disturbed[entry.requirement.id] = judgement.reason
                    if judgement.timed_out or disturbed:
                        late.append(entry)
                    else:
                        self._settle(entry, judgement)
                continue
            finished += [(entry, future.result()) for future, entry in running.items()]
            running.clear()
            suspects = [*self.last, *(entry for entry, _ in finished)]
            unexplained = len(self.unexplained)
            left = self._attribute_death(suspects, {e.requirement.id: j for e, j in finished}, group)
            if len(self.unexplained) > unexplained:
                self._one_by_one(left, group)
            else:
                waiting.extend(left)
        return late

    def _begin(self, entry: Entry, patience: float) -> Future[Judgement]:
        if self.stop.is_set():
            raise Interrupted
        return self._pool.submit(self._judge, entry, patience=patience)

    def _next_done(self, running: Mapping[Future[Judgement], Entry]) -> set[Future[Judgement]]:
        """Wait for up to `MOMENT_S`, and return the requirements that ended. Aborts overdue ones, and all when the run stops.
        Errors: Interrupted."""
        done, _ = wait(running, timeout=MOMENT_S, return_when=FIRST_COMPLETED)
        if self.stop.is_set():
            self._subject.abandon()
            raise Interrupted
        self._subject.abandon_overdue(OVERRUN_S)
        return done

    # ---- judging

    def _judge(self, entry: Entry, *, patience: float = 1.0, before: tuple[str, ...] = ()) -> Judgement:
        """Judge one requirement, unless the target lacks what it needs or a prerequisite does not hold."""
        self.judging(entry)
        with self.waits.during(entry.requirement.id):
            return self._judge_if_it_can_be(entry, patience, before)

    def _judge_if_it_can_be(self, entry: Entry, patience: float, before: tuple[str, ...]) -> Judgement:
        record, subject = entry.requirement, self._subject
        lacking, lack = missing(record, subject)
        if lacking:
            return Judgement(requirement=record, verdict=Verdict.NOT_JUDGED, reason=lacking, lacks=lack)
        for required in (*record.prerequisites, *deadly_for(record, subject.profile)):
            found = self._verdict_of(required)
            if found is not None and (kept := judged_by_prerequisite(record, found)):
                return kept
        judgement = judge(entry, subject, patience=patience)
        return self._attributed(judgement, before)

    def _attributed(self, judgement: Judgement, before: tuple[str, ...]) -> Judgement:
        """Block a failed requirement where another one fails, which is about the failed step or which it builds on.

        `before` are the failed requirements for whose causes this one is judged. Where it fails in a step of one of them, that
        one is its cause, and not the reverse. On a start for one requirement alone (`needs.alone`) only its step is judged.
        """
        record, step = judgement.requirement, judgement.built_on
        for about in dict.fromkeys((step, *record.builds_on)):
            if judgement.verdict is not Verdict.FAIL or judgement.direct:
                break
            cause = step if about == step in before else ""
            if about not in ("", record.id, *before):
                unlike = record.needs.alone and about != step
                found = self.verdicts.get(about) if unlike else self._verdict_of(about, (*before, record.id))
                cause = cause_of(found)
            block(judgement, cause)
        return judgement

    def _attribute_afterwards(self) -> None:
        """Block failed requirements whose cause was judged later, on another start of the target."""
        for judgement in [one for one in self.verdicts.values() if one.verdict is Verdict.FAIL and not one.died]:
            about = () if judgement.direct else (judgement.built_on, *judgement.requirement.builds_on)
            blocked = any(block(judgement, cause_of(self.verdicts.get(one))) for one in about)
            if blocked or names_its_step(judgement, self.verdicts.get(judgement.built_on)):
                self.report(judgement)

    def _verdict_of(self, id: str, before: tuple[str, ...] = ()) -> Judgement | None:
        """A requirement's judgement. It is judged now where it was not selected, or its turn has not come.

        None where it cannot be judged on this start of the target, or another requirement has crashed the target meanwhile.
        """
        if id in self.verdicts:
            return self.verdicts[id]
        with self._asking:
            if id in self.verdicts:
                return self.verdicts[id]
            entry = catalogue()[id]
            if not owed_by(entry.requirement, self._subject.kafka_version, by_zookeeper=self._subject.by_zookeeper):
                return None
            needs = entry.requirement.needs.model_copy(update={"configs": {}})
            lacking, lack = missing(entry.requirement.model_copy(update={"needs": needs}), self._subject)
            if lacking:
                judgement = Judgement(
                    requirement=entry.requirement, verdict=Verdict.NOT_JUDGED, reason=lacking, lacks=lack
                )
            elif entry.test is None or needs.hooks or not self.host.is_started_for(entry.requirement.needs.configs):
                return None
            else:
                judgement = self._judge(entry, before=before)
                if judgement.timed_out:
                    judgement = self._judge(entry, patience=AGAIN_PATIENCE, before=before)
                if judgement.verdict is Verdict.FAIL and not (
                    self.host.answers_within(GRACE_S) and not self.host.ended_for_memory()
                ):
                    return None  # another one has crashed the target
            self._settle(entry, judgement)
            return judgement

    def _settle(self, entry: Entry, judgement: Judgement) -> None:
        """Make a judgement final, unless the requirement has one."""
        with self.lock:
            if entry.requirement.id in self.verdicts:
                return
            disturbed = self.disturbed.get(entry.requirement.id)
            if disturbed and judgement.verdict is Verdict.PASS:
                judgement.verdict = Verdict.TOLERATED
                judgement.reason = f"it holds where nothing else is asked meanwhile; beside other requests: {disturbed}"
            self.verdicts[entry.requirement.id] = judgement
            if judgement.verdict not in (Verdict.NOT_JUDGED, Verdict.BLOCKED):
                self.last.append(entry)
            if entry.requirement.id == ROUND_TRIPS:
                learn_unserved(judgement, self._subject.profile)
            self.report(judgement)

    @property
    def _subject(self) -> Subject:
        assert self.host.subject is not None
        return self.host.subject

    # ---- crashes

    def _attribute_death(self, suspects: Sequence[Entry], seen: dict[str, Judgement], group: Group) -> list[Entry]:
        """Restart the target, and judge each suspect alone until one crashes it: that one fails. The one that sent a request last
        comes first. Returns the suspects that are still to be judged.

        `seen` has the judgements of suspects without a final one. The others keep theirs, unless they crash the target.
        Errors: TargetBroke when the target cannot be restarted.
        """
        how = self.host.how_it_ended()
        hurting = [entry for entry in suspects if entry.requirement.needs.hooks]
        self._bring_back(group, suspects, seen, how)
        cause = None
        known = seen | {id: self.verdicts[id] for id in {e.requirement.id for e in suspects} & self.verdicts.keys()}
        last_first = sorted(suspects, key=lambda e: -known[e.requirement.id].last_sent_s)
        for entry in [entry for entry in last_first if entry not in hurting]:
            judgement = self._alone(entry)
            if self.host.answers() and (self.stop.wait(GRACE_S) or self.host.answers()):  # some crashes take time
                self._settle(entry, judgement)
                continue
            cause = entry
            self._judge_by_death(entry, judgement)
            self._bring_back(group, [entry], {}, how)
            break
        for entry in hurting:
            if judgement := seen.get(entry.requirement.id):
                self._settle(entry, self._judged_whole(entry, judgement, group, how))
        if cause is None and not any(self.verdicts[entry.requirement.id].verdict is Verdict.FAIL for entry in hurting):
            names = ", ".join(entry.requirement.id for entry in suspects)
            self.unexplained.append(f"after {names}; none of them ends it alone. {how}")
        return [entry for entry in suspects if entry.requirement.id not in self.verdicts]

    def _judged_whole(self, entry: Entry, seen: Judgement, group: Group, how: str) -> Judgement:
        """The judgement of a requirement that uses fault hooks. A failure is judged again: the target may have crashed before."""
        if seen.verdict is not Verdict.FAIL:
            return seen
        again = self._alone(entry)
        if not self.host.answers():
            if for_memory := self.host.ended_for_memory():
                again = judged_by_death(again, how, for_memory)
            self._bring_back(group, [entry], {entry.requirement.id: again}, how)
        return again

    def _judge_by_death(self, entry: Entry, judgement: Judgement) -> None:
        """Make the judgement of the requirement that crashes the target final."""
        found = judged_by_death(judgement, self.host.how_it_ended(), self.host.ended_for_memory())
        with self.lock:
            self.verdicts.pop(entry.requirement.id, None)
            if entry.requirement.id in STEPS:
                self._subject.profile.deadly.append(entry.requirement.id)
        self._settle(entry, found)

    def _bring_back(self, group: Group, suspects: Sequence[Entry], seen: Mapping[str, Judgement], how: str) -> None:
        """Restart the target after a crash. Errors: TargetBroke where it cannot be; running requirements are settled first."""
        self.deaths += 1
        self.last.clear()
        if self.deaths <= DEATHS and self.host.revive():
            self.host.open_group = group
            return
        # nothing is judged a second time: whether one of them ended the target, or its owner did, stays open
        for entry in [entry for entry in suspects if entry.requirement.id in seen]:
            reason = "the target ended during it or shortly before, and cannot be brought back"
            update = {"verdict": Verdict.NOT_JUDGED, "reason": reason, "died": how}
            self._settle(entry, seen[entry.requirement.id].model_copy(update=update))
        names = ", ".join(entry.requirement.id for entry in suspects[-3:])
        if self.deaths > DEATHS:
            raise TargetBroke(f"the target has ended {self.deaths} times")
        failure = "; ".join(self.host.record.not_revived[-1:])
        raise TargetBroke(f"the target is gone since {names} ({failure}): {how}")
