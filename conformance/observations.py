"""A requirement's observations of a target and their judgement: cases, tolerances, and the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from conformance.answers import as_codes, error_name, shown
from conformance.requirement import WITHOUT_ZOOKEEPER, Requirement, version_key
from conformance.results import Case, Lack, Verdict
from conformance.steps import refused
from conformance.subject import Subject
from conformance.wire import Deadline, DeadlinePassed, Failed, Misbehaved, NoAnswer, Recorder
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode

T = TypeVar("T")

LONGEST_S = 180.0
"""The limit to which patience extends a requirement's deadline, unless its own is longer. It bounds the cost of a slow
target."""
BEGUN_S = 2.0
"""A wait that the deadline cut off proves nothing about the target if it was shorter than this, or than a tenth of the
deadline."""
READY_WITHIN_S = 15.0
"""The default time limit for a state that must come."""


class Skipped(Exception):
    """The requirement cannot be judged on this target. The text says why."""

    def __init__(self, reason: str, lacks: Lack = Lack.OTHER) -> None:
        super().__init__(reason)
        self.lacks = lacks


class Observations:
    """The observations of one requirement. The first failure ends the requirement, or its case."""

    def __init__(self, subject: Subject, record: Requirement, *, patience: float = 1.0, release: str = "") -> None:
        self.subject = subject
        self.release = release or subject.kafka_version
        """The Kafka release as which the target is judged."""
        self.changes: set[str] = set()
        """The releases with a change of behaviour on which the verdict depends."""
        self.requirement = record
        self.recorder = Recorder()
        self.abandoned = False
        """Whether the requirement was aborted: later observations prove nothing about the target."""
        self.patience = patience
        """The factor on waits, 1 for a target that answers at once."""
        self.deadline = Deadline.after(min(record.deadline_s * patience, max(record.deadline_s, LONGEST_S)))
        self.ends_s = self.deadline.at_s
        """When the whole requirement should be over, by the monotonic clock; a case may have less."""
        self.seen: list[str] = []
        self.tolerances: list[str] = []
        self.cases: list[Case] = []
        self.lacks: list[Lack] = []
        """For each case that is not judged, what the target lacks."""
        self.built_on: list[str] = []
        """For each failed case, the requirement that its failed step names."""
        self.late: list[bool] = []
        """For each failed case, whether it failed by a timeout."""
        self.direct: list[bool] = []
        """For each failed case, whether nothing else can be its cause."""

    def be_patient(self, patience: float) -> None:
        """Raise the factor on waits and on the deadline to `patience`, unless it is already larger."""
        if patience > self.patience:
            own_s = self.requirement.deadline_s
            longest_s = max(own_s, LONGEST_S)
            more_s = min(own_s * patience, longest_s) - min(own_s * self.patience, longest_s)
            self.patience = patience
            self.deadline.at_s += more_s
            self.ends_s += more_s

    def is_kafka(self, since: str, until: str = "") -> bool:
        """Whether the target is judged as Kafka `since` or later (and, where given, up to `until`)."""
        self.changes.add(since)
        key = version_key(self.release)
        return key >= version_key(since) and (not until or key[: len(version_key(until))] <= version_key(until))

    def by_kraft(self) -> bool:
        """Whether the target is judged as a cluster with KRaft."""
        return self.is_kafka(WITHOUT_ZOOKEEPER) and not self.subject.by_zookeeper

    def expect(self, holds: bool, sentence: str) -> None:
        """Record an observation that holds. Errors: Failed where it does not."""
        if not holds:
            raise Failed(f"does not hold: {sentence}")
        self.saw(sentence)

    def expect_equal(self, what: str, seen: Any, wanted: Any) -> None:
        """Require that a value equals the wanted one."""
        if seen != wanted:
            raise Failed(f"{what} is {shown(as_codes(seen, wanted))}, not {shown(wanted)}")
        self.saw(f"{what} is {shown(seen)}")

    def expect_error(
        self,
        seen: int,
        *accepted: ErrorCode,
        tolerated: Collection[ErrorCode] = (),
        what: str = "",
        message: object = "",
    ) -> None:
        """Require one of the accepted error codes; a tolerated one passes with a note."""
        reported = f"{what}: " if what else ""
        if seen in accepted:
            self.saw(f"{reported}{error_name(seen)}")
        elif seen in tolerated:
            self.tolerate(f"{reported}{error_name(seen)} instead of {' or '.join(map(error_name, accepted))}")
        else:
            wanted = " or ".join(map(error_name, accepted))
            raise refused(f"{reported}{error_name(seen)}{f' ({message})' if message else ''} instead of {wanted}", seen)

    def eventually(
        self, probe: Callable[[], T | None], what: str, *, within_s: float = 0.0, every_s: float = 0.02
    ) -> T:
        """Call `probe` until its result is neither None nor False, and return that. Errors: NoAnswer after the time limit (15
        s by default)."""
        within_s = (within_s or READY_WITHIN_S) * self.patience
        began = time.monotonic()
        until = began + within_s
        pause_s = every_s
        while True:
            try:
                found = probe()
            except DeadlinePassed as failure:
                failure.waited_s = time.monotonic() - began
                raise
            if found is not None and found is not False:
                return found
            if time.monotonic() + pause_s > min(until, self.deadline.at_s):
                if until > self.deadline.at_s:
                    late = DeadlinePassed(f"not before the requirement's deadline passed: {what}")
                    late.waited_s = time.monotonic() - began
                    raise late
                raise NoAnswer(f"not within {within_s:g} s: {what}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)

    def saw(self, sentence: str) -> None:
        """Record an observation."""
        self.seen.append(sentence)

    def tolerate(self, reason: str) -> None:
        """Record that the requirement is met in another way than Kafka's. It passes with this note unless something else
        fails."""
        self.tolerances.append(reason)
        self.saw(reason)

    def fail(self, seen: str) -> NoReturn:
        """Fail the requirement, with the observation."""
        raise Failed(seen)

    def skip(self, reason: str, lacks: Lack = Lack.OTHER) -> NoReturn:
        """Skip the requirement, with the reason and the kind of what the target lacks."""
        raise Skipped(reason, lacks)

    def out_of_time(self, failure: Failed) -> str:
        """Why a requirement that reached its deadline is not judged, although the target answered; empty for other failures.

        That holds where joins take long, where many requests take long together, and where the last wait had just begun.
        """
        profile, deadline_s = self.subject.profile, self.requirement.deadline_s * self.patience
        deadline_s = min(deadline_s, max(self.requirement.deadline_s, LONGEST_S))
        if not isinstance(failure, DeadlinePassed) or self.abandoned or time.monotonic() < self.ends_s:
            return ""
        if 1 < profile.patience <= self.patience:
            return f"needs more than {deadline_s:g} s, for a join takes {profile.join_s:g} s here: {failure}"
        if failure.waited_s >= min(BEGUN_S, deadline_s / 10):
            return ""
        answered = "every request" if failure.about is None else "all but the last request"
        return f"needs more than {deadline_s:g} s here, in which the target answered {answered}"

    def step_of(self, failure: Failed) -> str:
        """The requirement about the step that failed: API-05 where the target does not serve the request's version."""
        about = failure.about if isinstance(failure, Misbehaved) else None
        if failure.code == ErrorCode.UNKNOWN_SERVER_ERROR and self.recorder.exchanges:
            about = self.recorder.exchanges[-1]
        if about and about.api_key in APIS and self.subject.profile.broken(APIS[about.api_key].name, about.version):
            return "API-05"
        return failure.built_on

    @contextmanager
    def case(self, name: str, *, deadline_s: float | None = None) -> Generator[None]:
        """Judge one of several cases separately: a failure in one does not end the others. The worst case counts."""
        outer_seen, outer_tolerances = self.seen, self.tolerances
        outer_deadline, outer_end = self.deadline.at_s, self.ends_s
        self.seen, self.tolerances = [], []
        self.recorder.case = name
        if deadline_s is not None:
            self.deadline.at_s = min(outer_deadline, time.monotonic() + deadline_s)
        case = Case(name=name, verdict=Verdict.PASS)
        begins_late = time.monotonic() >= self.deadline.at_s
        try:
            yield
            if self.tolerances:
                case.verdict, case.reason = Verdict.TOLERATED, "; ".join(self.tolerances)
        except Failed as failure:
            late = self.out_of_time(failure)
            if begins_late and isinstance(failure, DeadlinePassed) and not self.abandoned:
                late = "the requirement's time was over before this case"
            if late:
                case.verdict, case.reason = Verdict.NOT_JUDGED, late
            else:
                case.verdict, case.reason = Verdict.FAIL, str(failure)
                self.built_on.append(self.step_of(failure))
                self.late.append(isinstance(failure, NoAnswer))
                self.direct.append(failure.direct)
        except Skipped as skip:
            case.verdict, case.reason = Verdict.NOT_JUDGED, str(skip)
            self.lacks.append(skip.lacks)
        finally:
            case.seen = self.seen
            self.cases.append(case)
            self.seen, self.tolerances = outer_seen, outer_tolerances
            self.deadline.at_s = outer_deadline + self.ends_s - outer_end
            self.recorder.case = ""
