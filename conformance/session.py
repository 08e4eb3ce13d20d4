"""Judges requirements on a target: in what order, which side by side, what blocks what, and which one ended the target.

The order on each start of the target: the basics one by one, then what shares no state side by side, then what is exclusive
one by one, then what may end the target. Where the suite starts the target itself and it has one node, the groups that need a
start of their own are judged on further starts at the same time (`Target.several`).

A requirement is judged after those that it requires. One that fails in a step that a basic requirement speaks of is blocked
by that one, if it fails too; so is one that fails and builds on another one (`conformance.dependencies`).

After each requirement the target must answer. Where it does not, those that were under way and the last ones before them are
suspects: the target is brought back and each suspect is judged again alone, until the one is found that ends it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from conformance.host import Host, TargetBroke
from conformance.judging import (
    KEEP_FROM_STARTING,
    cause_of,
    failed_by_death,
    judge,
    judged_by_prerequisite,
    missing,
    missing_in_any_start,
)
from conformance.plan import BASE_CONFIGS, Group, by_duration, in_order, plan
from conformance.requirement import Entry, Requirement, catalogue, owed_by
from conformance.results import Judgement, Verdict
from conformance.steps import STEPS
from conformance.subject import Subject

BASICS = "BAS"
ROUND_TRIPS = "API-05"
"""Judged right after the basics: what it finds unserved blocks others."""
DANGEROUS_AREAS = ("FRM",)
"""Areas that send what a broker may die of."""
REMEMBERED = 8
"""How many of the last judged requirements are suspects of a death."""
GRACE_S = 1.0
"""How long a target may take to die of a suspect."""
DEATHS = 40
"""So many deaths end a run."""
AGAIN_PATIENCE = 1.5
"""Deadlines of what was not in time beside others grow so much when it is judged again alone."""

WAITING_AREAS = ("GRP", "OFF", "GAD", "TXV")
"""Areas that mostly wait where a coordinator holds joins for long."""
WAITING_JOBS = 24
"""So many of these are judged side by side there, beside the others."""
OVERRUN_S = 30.0
"""How long after its deadline a requirement is broken off: each wait and each request of it ends there by itself."""
MOMENT_S = 0.5
"""How often the run looks for requirements that overrun, and for a request to end."""

Judged = Callable[[Judgement], None]


class Interrupted(Exception):
    """The run was asked to end."""


@dataclass
class Session:
    """The state of a run while it judges."""

    host: Host
    entries: Sequence[Entry]
    jobs: int
    report: Judged
    """Is given each judgement as soon as it stands."""
    starting: Callable[[Group, int, int], None] = lambda group, number, groups: None
    judging: Callable[[Entry], None] = lambda entry: None
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the run is to end early."""
    verdicts: dict[str, Judgement] = field(default_factory=dict[str, Judgement])
    unexplained: list[str] = field(default_factory=list[str])
    starts: int = 1
    """So many starts of the target at the same time, where it can run several times on this machine."""
    groups: deque[tuple[int, Group]] = field(default_factory=deque[tuple[int, Group]])
    """What is left to be judged, with its number."""
    count: int = 0
    """How many groups there are."""
    late: list[tuple[Group, Entry]] = field(default_factory=list[tuple[Group, Entry]])
    """What was not in time while other starts were judged, too: it is judged again when they are done."""
    disturbed: dict[str, str] = field(default_factory=dict[str, str])
    """Requirement -> how it failed beside others in a step that holds by itself; it is judged again alone."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards what the sessions on all starts share: everything above."""
    accompanies: bool = False
    """Whether this is a further start beside the first."""
    deaths: int = 0
    last: deque[Entry] = field(default_factory=lambda: deque[Entry](maxlen=REMEMBERED))
    _asking: threading.RLock = field(default_factory=threading.RLock)
    """Held while a prerequisite is judged before its turn: one at a time, so that no two wait for each other."""
    _companions: list[Future[None]] = field(default_factory=list[Future[None]])

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=self.jobs + WAITING_JOBS, thread_name_prefix="judge")

    def run(self) -> None:
        """Judge all entries. Errors: TargetBroke when the target cannot be opened or is gone for good, Interrupted."""
        self.groups.extend(enumerate(by_duration(plan(self.entries)), 1))
        self.count = len(self.groups)
        with ThreadPoolExecutor(max_workers=self.starts, thread_name_prefix="start") as self._start_pool:
            try:
                self._judge_groups()
                for companion in self._companions:
                    companion.result()
                self._judge_groups()
                self._judge_late()
                self._attribute_afterwards()
            finally:
                self._end_pool()

    def _end_pool(self) -> None:
        self._pool.shutdown(wait=not self.stop.is_set(), cancel_futures=True)

    def _judge_groups(self) -> None:
        """Take groups until none is left; one that breaks off goes back first."""
        while taken := self._next_group():
            number, group = taken
            waiting = [entry for entry in group.entries if entry.test and entry.requirement.id not in self.verdicts]
            if not waiting:
                continue
            try:
                if not self._cannot_be_judged(waiting, group):
                    if self.host.open_group is not group:
                        self.starting(group, number, self.count)
                    self.host.prepare(group)
                self._judge_group(in_order(waiting), group)
            except TargetBroke:
                self.groups.append(taken)
                raise

    def _cannot_be_judged(self, entries: Sequence[Entry], group: Group) -> bool:
        """Whether none can be judged however the target is started. It is not started for them: it might end at once."""
        if self.host.subject is None and not self.accompanies and KEEP_FROM_STARTING & group.configs.keys():
            self.host.prepare(Group(dict(BASE_CONFIGS)))
        subject = self.host.subject
        return subject is not None and all(missing_in_any_start(entry.requirement, subject)[0] for entry in entries)

    def _next_group(self) -> tuple[int, Group] | None:
        with self.lock:
            return self.groups.popleft() if self.groups else None

    def _begin_companions(self) -> None:
        """Judge other groups on further starts from now on, if the target can run several times at once."""
        if self._companions or not self._subject.honoured or not getattr(self._subject.target, "several", False):
            return
        for _ in range(min(self.starts - 1, len(self.groups))):
            other = replace(
                self,
                host=self.host.another(),
                starts=1,
                accompanies=True,
                deaths=0,
                last=deque(maxlen=REMEMBERED),
                _companions=[],
            )
            self._companions.append(self._start_pool.submit(other._accompany))

    def _accompany(self) -> None:
        """Judge groups on a start of its own. What cannot be judged there, because the target breaks, is left to the first."""
        try:
            self._judge_groups()
        except TargetBroke:
            return
        finally:
            self._end_pool()
            self.host.close()

    def _judge_group(self, entries: list[Entry], group: Group) -> None:
        first = [e for e in entries if e.requirement.area == BASICS or e.requirement.id in STEPS | {ROUND_TRIPS}]
        first.sort(key=lambda entry: entry.requirement.area != BASICS)
        last = [e for e in entries if e.requirement.area in DANGEROUS_AREAS and e not in first]
        alone = [e for e in entries if is_exclusive(e) and e not in first + last]
        beside = [e for e in entries if e not in first + last + alone]
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
        for group in {id(group): group for group, _ in self.late}.values():
            self.host.prepare(group)
            entries = [entry for other, entry in self.late if other is group]
            self._one_by_one(in_order(entries), group, patience=AGAIN_PATIENCE)

    # ---- one by one, and side by side

    def _one_by_one(self, entries: Iterable[Entry], group: Group, *, patience: float = 1.0) -> None:
        for entry in entries:
            if entry.requirement.id in self.verdicts:
                continue
            judgement = self._alone(entry, patience=patience)
            if self._survived(judgement):
                if judgement.timed_out and self._beside_other_starts():
                    self.late.append((group, entry))
                else:
                    self._settle(entry, judgement)
            else:
                seen = {entry.requirement.id: judgement}
                self._one_by_one(self._attribute_death([*self.last, entry], seen, group), group)

    def _survived(self, judgement: Judgement) -> bool:
        """Whether the target answers after a requirement; one that asked nothing of it cannot have ended it."""
        asked = judgement.verdict not in (Verdict.NOT_JUDGED, Verdict.BLOCKED) or bool(judgement.exchanges)
        return not asked or self.host.answers()

    def _alone(self, entry: Entry, *, patience: float = 1.0) -> Judgement:
        """Judge one requirement in a thread, and end it where it does not end by itself."""
        running = {self._begin(entry, patience): entry}
        while not (done := self._next_done(running)):
            pass
        return done.pop().result()

    def _side_by_side(self, entries: Sequence[Entry], group: Group) -> list[Entry]:
        """In so many threads. Gives those that were not in time, or failed in a step that holds by itself, to be judged again:
        others may have delayed or disturbed them."""
        late: list[Entry] = []
        waiting = deque(entry for entry in entries if entry.requirement.id not in self.verdicts)
        running: dict[Future[Judgement], Entry] = {}
        while waiting or running:
            while entry := self._next_ready(waiting, running.values()):
                waiting.remove(entry)
                running[self._begin(entry, 1.0)] = entry
            finished = [(running.pop(future), future.result()) for future in self._next_done(running)]
            if all(self._survived(judgement) for _, judgement in finished):
                for entry, judgement in finished:
                    disturbed = self._is_disturbed(judgement)
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

    def _is_disturbed(self, judgement: Judgement) -> bool:
        """Whether it failed in a step of which another requirement speaks, and that one holds."""
        step = self.verdicts.get(judgement.built_on)
        held = step is not None and step.verdict in (Verdict.PASS, Verdict.TOLERATED)
        return judgement.verdict is Verdict.FAIL and held and judgement.built_on != judgement.requirement.id

    def _next_ready(self, waiting: Iterable[Entry], running: Iterable[Entry]) -> Entry | None:
        """The next one for which there is room, and of whose prerequisites none is under way."""
        under_way = {one.requirement.id for one in running}
        slow = sum(self._mostly_waits(one) for one in running)
        full = {True: slow >= WAITING_JOBS, False: len(under_way) - slow >= self.jobs}
        for entry in waiting:
            if not full[self._mostly_waits(entry)] and not under_way & set(entry.requirement.prerequisites):
                return entry
        return None

    def _mostly_waits(self, entry: Entry) -> bool:
        """Whether a requirement spends its time in waits for joins, on this target."""
        return self._subject.profile.patience > 1 and entry.requirement.area in WAITING_AREAS

    def _begin(self, entry: Entry, patience: float) -> Future[Judgement]:
        self._check_stop()
        return self._pool.submit(self._judge, entry, patience=patience)

    def _next_done(self, running: Mapping[Future[Judgement], Entry]) -> set[Future[Judgement]]:
        """What has ended since, at least once a moment; what overruns its deadline is broken off, as everything is when the
        run is to end. Errors: Interrupted."""
        done, _ = wait(running, timeout=MOMENT_S, return_when=FIRST_COMPLETED)
        if self.stop.is_set():
            self._subject.abandon()
            raise Interrupted
        self._subject.abandon_overdue(OVERRUN_S)
        return done

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise Interrupted

    # ---- judging

    def _judge(self, entry: Entry, *, patience: float = 1.0, before: tuple[str, ...] = ()) -> Judgement:
        """One requirement, unless something keeps it from being judged."""
        self.judging(entry)
        record, subject = entry.requirement, self._subject
        lacking, lack = missing(record, subject)
        if lacking:
            return Judgement(requirement=record, verdict=Verdict.NOT_JUDGED, reason=lacking, lacks=lack)
        for required in (*record.prerequisites, *self._deadly_for(record)):
            found = self._verdict_of(required)
            if found is not None and (kept := judged_by_prerequisite(record, found)):
                return kept
        judgement = judge(entry, subject, patience=patience)
        return self._attributed(judgement, before)

    def _deadly_for(self, record: Requirement) -> list[str]:
        """The basic requirements that the target did not survive, and whose API this one is about, too."""
        asked = {
            id: set(catalogue()[id].requirement.needs.apis) for id in self._subject.profile.deadly if id != record.id
        }
        return [id for id, apis in asked.items() if apis and apis <= set(record.needs.apis)]

    def _attributed(self, judgement: Judgement, before: tuple[str, ...]) -> Judgement:
        """Blocked instead of failed, where the step that failed, or another thing that it builds on, is the business of a
        requirement that fails too.

        `before` are requirements that failed and asked for this one: it is no cause of those in whose steps it fails itself.
        On a start whose configuration is for one requirement alone nothing else is judged.
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
            _block(judgement, cause)
        return judgement

    def _attribute_afterwards(self) -> None:
        """Blocked instead of failed, where what it builds on was judged later: it needs another start of the target."""
        for judgement in [one for one in self.verdicts.values() if one.verdict is Verdict.FAIL and not one.died]:
            for about in () if judgement.direct else (judgement.built_on, *judgement.requirement.builds_on):
                if _block(judgement, cause_of(self.verdicts.get(about))):
                    self.report(judgement)
                    break

    def _verdict_of(self, id: str, before: tuple[str, ...] = ()) -> Judgement | None:
        """What is known of a requirement; it is judged now where it was not chosen or its turn has not come.

        None where it cannot be judged on this start of the target.
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
                if judgement.verdict is Verdict.FAIL and not self.host.answers_within(GRACE_S):
                    return None  # another one has ended the target
            self._settle(entry, judgement)
            return judgement

    def _settle(self, entry: Entry, judgement: Judgement) -> None:
        """The verdict stands."""
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
            self._learn(judgement)
            self.report(judgement)

    def _learn(self, judgement: Judgement) -> None:
        """What API-05 finds unserved is avoided, and blocks others that meet it."""
        if judgement.requirement.id != ROUND_TRIPS:
            return
        for case in judgement.cases:
            name, _, version = case.name.rpartition(" v")
            if case.verdict is Verdict.FAIL and version.isdigit():
                self._subject.profile.doubtful.setdefault(name, {})[int(version)] = case.reason

    @property
    def _subject(self) -> Subject:
        assert self.host.subject is not None
        return self.host.subject

    # ---- deaths

    def _attribute_death(self, suspects: Sequence[Entry], seen: dict[str, Judgement], group: Group) -> list[Entry]:
        """Bring the target back, and judge each suspect alone, until one ends it: that one fails, with how it ended. The last
        one that sent something comes first. Gives those that are to be judged again.

        `seen` is what the suspects without a standing verdict came to. Those with one keep it, unless they are the one.
        Errors: TargetBroke when the target stays away.
        """
        how = self.host.how_it_ended()
        hurting = [entry for entry in suspects if entry.requirement.needs.hooks]
        self._bring_back(group, suspects, seen, how)
        cause = None
        known = seen | {id: self.verdicts[id] for id in {e.requirement.id for e in suspects} & self.verdicts.keys()}
        last_first = sorted(suspects, key=lambda e: -known[e.requirement.id].last_sent_s)
        for entry in [entry for entry in last_first if entry not in hurting]:
            judgement = self._alone(entry)
            if self.host.answers() and self._still_answers():
                self._settle(entry, judgement)
                continue
            cause = entry
            self._fail_by_death(entry, judgement, self.host.how_it_ended())
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
        """A failure of one that hurts the target counts if it is seen again: it may have met a target that was dead before."""
        if seen.verdict is not Verdict.FAIL:
            return seen
        again = self._alone(entry)
        if not self.host.answers():
            self._bring_back(group, [entry], {entry.requirement.id: again}, how)
        return again

    def _still_answers(self) -> bool:
        """A moment later: some deaths take time."""
        self.stop.wait(GRACE_S)
        return self.host.answers()

    def _fail_by_death(self, entry: Entry, judgement: Judgement, how: str) -> None:
        """The requirement fails, because the target does not survive it."""
        found = failed_by_death(judgement, how)
        with self.lock:
            self.verdicts.pop(entry.requirement.id, None)
            if entry.requirement.id in STEPS:
                self._subject.profile.deadly.append(entry.requirement.id)
        self._settle(entry, found)

    def _bring_back(self, group: Group, suspects: Sequence[Entry], seen: Mapping[str, Judgement], how: str) -> None:
        """Errors: TargetBroke where the target stays away; what was under way is judged as far as it can be known."""
        self.deaths += 1
        self.last.clear()
        if self.deaths <= DEATHS and self.host.revive():
            self.host.open_group = group
            return
        open_ones = [entry for entry in suspects if entry.requirement.id in seen]
        for entry in open_ones:
            judgement = seen[entry.requirement.id]
            if len(open_ones) == 1 and judgement.verdict is Verdict.FAIL and not entry.requirement.needs.hooks:
                self._fail_by_death(entry, judgement, how)
            else:
                reason = "the target ended during it or shortly before, and cannot be brought back"
                update = {"verdict": Verdict.NOT_JUDGED, "reason": reason, "died": how}
                self._settle(entry, judgement.model_copy(update=update))
        names = ", ".join(entry.requirement.id for entry in suspects[-3:])
        if self.deaths > DEATHS:
            raise TargetBroke(f"the target has ended {self.deaths} times")
        failure = "; ".join(self.host.record.not_revived[-1:])
        raise TargetBroke(f"the target is gone since {names} ({failure}): {how}")


def _block(judgement: Judgement, cause: str) -> bool:
    """Make a failure blocked by its cause; False where there is none, or it is the requirement itself."""
    if cause in ("", judgement.requirement.id):
        return False
    judgement.verdict, judgement.blocked_by, judgement.timed_out = Verdict.BLOCKED, cause, False
    return True


def is_exclusive(entry: Entry) -> bool:
    """Whether a requirement must be judged alone: it says so, or it hurts the target."""
    return entry.requirement.exclusive or bool(entry.requirement.needs.hooks) or entry.requirement.area == "HIS"
