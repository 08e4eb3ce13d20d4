"""The results of a run: the verdict of each requirement with its evidence, and of the whole run. `report.json` is a `Run`.

The JSON schema of `Run` is published in `report/schema.json`; a test compares it with these models.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from conformance.levels import Level
from conformance.profiles import ConformanceProfile
from conformance.requirement import Requirement, owed_by
from conformance.target_profile import TargetProfile

FORMAT = 2
"""The version of the report's format. It grows when a reader of the older format would misread a report."""


HEX = r"^([0-9a-f]{2})*$"


class Verdict(StrEnum):
    """The verdict on one requirement."""

    PASS = "pass"
    FAIL = "fail"
    TOLERATED = "tolerated"
    """Another behaviour than Kafka's that the requirement tolerates; the reason names the difference."""
    BLOCKED = "blocked"
    """Another requirement that this one builds on fails; `blocked_by` names it."""
    NOT_JUDGED = "not judged"
    """The target lacks something, which the reason names."""
    UNTESTABLE = "untestable"
    """It cannot be judged from outside a broker; the reason explains why."""
    ENGINE_ERROR = "engine error"
    """The suite itself failed. This verdict is not about the target."""


JUDGED = (Verdict.PASS, Verdict.TOLERATED, Verdict.FAIL)
"""The verdicts about the target's behaviour."""
WORST_FIRST = (
    Verdict.ENGINE_ERROR, Verdict.FAIL, Verdict.BLOCKED, Verdict.TOLERATED, Verdict.PASS, Verdict.NOT_JUDGED,
    Verdict.UNTESTABLE,
)  # fmt: skip
"""Verdicts from the worst on: of several cases the worst counts. A case that was not judged does not hide the judged ones."""


class RunVerdict(StrEnum):
    """The verdict on a run."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """Nothing but skips, or the suite or the target broke before a verdict."""


class Lack(StrEnum):
    """The kind of what a target lacks for a requirement to be judged."""

    RELEASE = "release"
    """The target is judged as a Kafka release that does not owe the requirement."""
    API = "API"
    """An API, a version of one, or a message format."""
    NODES = "nodes"
    HOOK = "hook"
    CONFIGURATION = "configuration"
    OTHER = "other"
    """The target has all of the above: the suite, or the target, has another limitation."""


class Form(BaseModel):
    """The base of all models of the report. Refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class RecordedExchange(Form):
    """One request and its response, as bytes. Long ones are truncated; their sizes are the full ones."""

    case: str = Field(default="", description="the case of the requirement that it belongs to")
    connection: int = Field(description="number of the connection within the requirement")
    at_s: float = Field(description="seconds since the requirement's test began")
    elapsed_ms: float
    api: str = Field(description="name of the API; empty for raw bytes")
    api_key: int
    version: int
    response_version: int
    outcome: str = Field(description="answered, closed, no answer, unreadable, or not awaited")
    note: str = ""
    request_hex: str = Field(pattern=HEX)
    request_bytes: int
    response_hex: str = Field(pattern=HEX)
    response_bytes: int


class Case(Form):
    """One of several cases of a requirement, for instance an API and a version."""

    name: str
    verdict: Verdict
    reason: str = ""
    seen: list[str] = Field(default_factory=list)


class Judgement(Form):
    """One requirement, judged."""

    requirement: Requirement
    verdict: Verdict
    reason: str = Field(default="", description="why it is not a plain pass")
    lacks: Lack | None = Field(default=None, description="of what is not judged: what the target lacks")
    blocked_by: str = Field(default="", description="the failing requirement that this one builds on")
    died: str = Field(
        default="", description="how the target ended during this requirement: exit status, last log lines"
    )
    expected: bool = Field(default=False, description="the failure is in the list of expected failures")
    seen: list[str] = Field(default_factory=list, description="what was observed, in order")
    cases: list[Case] = Field(default_factory=list[Case])
    seconds: float = 0.0
    exchanges: list[RecordedExchange] = Field(default_factory=list[RecordedExchange])
    exchanges_left_out: int = 0
    traceback: str = Field(default="", description="of an engine error")
    built_on: str = Field(
        default="", exclude=True, description="the basic requirement that speaks of the step that failed"
    )
    direct: bool = Field(
        default=False, exclude=True, description="it fails before anything is used that the requirement builds on"
    )
    last_sent_s: float = Field(
        default=0.0, exclude=True, description="when its last request went out, by the monotonic clock"
    )
    timed_out: bool = Field(
        default=False, exclude=True, description="the failure is that something did not come in time"
    )
    unreached: bool = Field(default=False, exclude=True, description="the run ended before its turn")


class Tally(Form):
    """Requirements of one level by verdict."""

    pass_: int = Field(default=0, validation_alias=AliasChoices("pass", "pass_"), serialization_alias="pass")
    fail: int = 0
    tolerated: int = 0
    blocked: int = 0
    not_judged: int = 0


def printable(text: str) -> str:
    """The text of a response for the report: surrogates, which stand for bytes that are not UTF-8, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class TargetRecord(Form):
    """The target of a run."""

    spec: str
    name: str = Field(default="", description="the software's name and version, where an adapter says them")
    kafka_version: str = Field(default="", description="the Kafka version whose requirements were asked of it")
    bootstrap: list[str] = Field(default_factory=list)
    cluster_id: str = ""
    nodes: int = 0
    security: str = Field(
        default="PLAINTEXT", description="protocol and SASL mechanism of the connections; never a secret"
    )
    profile: TargetProfile = Field(
        default_factory=TargetProfile, description="what the target can do, as probed before the run"
    )
    not_revived: list[str] = Field(
        default_factory=list, description="why its own way back failed after it had ended, each time that it did"
    )

    @property
    def title(self) -> str:
        """Target, software and Kafka version, as far as they are known."""
        software = f" ({self.name})" if self.name else ""
        return f"{self.spec}{software}" + (f" as Kafka {self.kafka_version}" if self.kafka_version else "")


class Demonstration(Form):
    """One of the project's other promises, demonstrated by its own command in the same run."""

    title: str
    command: str
    verdict: RunVerdict
    exit_code: int
    seconds: float
    folder: str = ""
    summary: dict[str, str] = Field(default_factory=dict, description="what the command said of itself, plain values")


class Change(Form):
    """A requirement whose verdict differs from the baseline's."""

    id: str
    before: Verdict
    now: Verdict
    reason: str = ""


INTERRUPTED = "the run was interrupted"
"""The reason of a run that a signal ended early."""


class Run(Form):
    """One run of the suite on one target."""

    format: int = FORMAT
    suite_version: str
    target: TargetRecord
    selection: str = Field(description="what was asked for, as on the command line")
    started_at: str = Field(description="UTC, ISO 8601")
    seconds: float = 0.0
    verdict: RunVerdict = RunVerdict.UNKNOWN
    reason: str = Field(default="", description="why the verdict is unknown")
    must: Tally = Field(default_factory=Tally)
    should: Tally = Field(default_factory=Tally)
    may: Tally = Field(default_factory=Tally)
    untestable: int = 0
    engine_errors: int = 0
    unexpected_passes: list[str] = Field(
        default_factory=list, description="ids in the list of expected failures that passed: the list is out of date"
    )
    unexplained_deaths: list[str] = Field(
        default_factory=list, description="deaths of the target that no requirement alone brings about"
    )
    baseline: str = Field(default="", description="the run that this one was held against: its target and start")
    worse: list[Change] = Field(default_factory=list[Change], description="than the baseline; fails the run")
    better: list[Change] = Field(default_factory=list[Change])
    judgements: list[Judgement] = Field(default_factory=list[Judgement])
    demonstrations: list[Demonstration] = Field(default_factory=list[Demonstration])
    folder: str = Field(default="", description="where the run left its files")

    def sum_up(self, *, target_broke: str = "") -> None:
        """Fill in the counts and the verdict from the judgements."""
        tallies = {level: Tally() for level in Level}
        self.untestable = self.engine_errors = 0
        for judgement in self.judgements:
            tally = tallies[judgement.requirement.level]
            match judgement.verdict:
                case Verdict.PASS:
                    tally.pass_ += 1
                case Verdict.FAIL:
                    tally.fail += 1
                case Verdict.TOLERATED:
                    tally.tolerated += 1
                case Verdict.BLOCKED:
                    tally.blocked += 1
                case Verdict.NOT_JUDGED:
                    tally.not_judged += 1
                case Verdict.UNTESTABLE:
                    self.untestable += 1
                case Verdict.ENGINE_ERROR:
                    self.engine_errors += 1
        self.must, self.should, self.may = (tallies[level] for level in Level)
        self.verdict, self.reason = self._overall(target_broke)

    def _overall(self, target_broke: str) -> tuple[RunVerdict, str]:
        """The verdict and its reason: fail for a worse verdict than the baseline's or any failure that counts, else unknown
        or pass."""
        failed = [
            judgement.requirement.id
            for judgement in self.judgements
            if judgement.verdict is Verdict.FAIL
            and judgement.requirement.level is Level.MUST
            and not judgement.expected
        ]
        if self.worse:
            changed = ", ".join(f"{one.id} ({one.before}, now {one.now})" for one in self.worse)
            return RunVerdict.FAIL, f"worse than the baseline: {changed}"
        if failed:
            return RunVerdict.FAIL, f"must-requirements failed: {', '.join(failed)}"
        deadly = [
            one.requirement.id
            for one in self.judgements
            if one.died and one.verdict is Verdict.FAIL and not one.expected
        ]
        if deadly:
            return RunVerdict.FAIL, f"the target does not survive {', '.join(deadly)}"
        shown_wrong = [each.command for each in self.demonstrations if each.verdict is RunVerdict.FAIL]
        if shown_wrong:
            return RunVerdict.FAIL, f"failed: {', '.join(shown_wrong)}"
        if self.unexpected_passes:
            return RunVerdict.FAIL, f"expected to fail, but passed: {', '.join(self.unexpected_passes)}"
        if target_broke:
            return RunVerdict.UNKNOWN, target_broke
        unclear = [each.command for each in self.demonstrations if each.verdict is RunVerdict.UNKNOWN]
        if unclear:
            return RunVerdict.UNKNOWN, f"without a verdict: {', '.join(unclear)}"
        if self.engine_errors:
            return RunVerdict.UNKNOWN, f"{self.engine_errors} engine errors"
        if self.unexplained_deaths:
            return RunVerdict.UNKNOWN, f"the target ended without a known cause: {self.unexplained_deaths[0]}"
        if not any(j.verdict in JUDGED for j in self.judgements):
            return RunVerdict.UNKNOWN, "nothing was judged"
        return RunVerdict.PASS, ""

    @property
    def broken(self) -> bool:
        """Whether the suite or the target broke, so that no verdict could be reached."""
        return self.verdict is RunVerdict.UNKNOWN and self.reason not in ("nothing was judged", INTERRUPTED)

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal ended the run before every requirement was judged."""
        return any(one.unreached and one.reason == INTERRUPTED for one in self.judgements)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts; not judged where there is none."""
    seen = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in seen), Verdict.NOT_JUDGED)


class ProfileTally(Form):
    """A run's results in one profile, counted over the musts that the target owes and that can be tested."""

    profile: ConformanceProfile
    musts: int
    judged: int = Field(description="of these, passed, tolerated or failed")
    failed: list[str] = Field(description="ids of the failed ones, expected failures among them")

    @property
    def line(self) -> str:
        """The line to quote."""
        failed = len(self.failed)
        return (
            f"{self.profile}: {self.judged} of {self.musts} musts judged, {failed} {'fails' if failed == 1 else 'fail'}"
        )


def profile_tallies(judgements: Iterable[Judgement], kafka_version: str = "") -> list[ProfileTally]:
    """One tally for each profile with a must among the judgements, in the order of the profiles.

    `kafka_version` is the version as which the target is judged; requirements that it does not owe are not counted.
    """
    counted = [
        judgement
        for judgement in judgements
        if judgement.requirement.level is Level.MUST
        and judgement.verdict is not Verdict.UNTESTABLE
        and judgement.lacks is not Lack.RELEASE
        and (not kafka_version or owed_by(judgement.requirement, kafka_version))
    ]
    tallies: list[ProfileTally] = []
    for profile in ConformanceProfile:
        own = [judgement for judgement in counted if judgement.requirement.profile is profile]
        judged = [judgement for judgement in own if judgement.verdict in JUDGED]
        failed = [judgement.requirement.id for judgement in judged if judgement.verdict is Verdict.FAIL]
        if own:
            tallies.append(ProfileTally(profile=profile, musts=len(own), judged=len(judged), failed=failed))
    return tallies


class Coverage(Form):
    """The numbers of requirements that apply to this target, and of those that were judged."""

    served: int = Field(description="owed and testable ones whose APIs the target serves")
    equipped: int = Field(description="of these, those whose nodes, fault hooks and configurations it has too")
    judged: int = Field(description="of these, passed, tolerated or failed")
    blocked: int = Field(description="of these, those that build on a failing one")

    @property
    def line(self) -> str:
        """The line to quote."""
        return (
            f"{self.judged} judged and {self.blocked} blocked, of {self.equipped} requirements that fit the target's APIs, "
            f"nodes, hooks and configurations ({self.share:.1%}); {self.served} fit its APIs alone ({self.share_by_apis:.1%})"
        )

    @property
    def share(self) -> float:
        """The judged and blocked ones as a share of those that the target is equipped for."""
        return (self.judged + self.blocked) / self.equipped if self.equipped else 0.0

    @property
    def share_by_apis(self) -> float:
        """The judged and blocked ones as a share of those whose APIs the target serves."""
        return (self.judged + self.blocked) / self.served if self.served else 0.0


def coverage(judgements: Iterable[Judgement]) -> Coverage:
    """The coverage of a run's judgements."""
    served = [
        one for one in judgements if one.verdict is not Verdict.UNTESTABLE and one.lacks not in (Lack.RELEASE, Lack.API)
    ]
    equipped = [one for one in served if one.lacks not in (Lack.NODES, Lack.HOOK, Lack.CONFIGURATION)]
    return Coverage(
        served=len(served),
        equipped=len(equipped),
        judged=sum(one.verdict in JUDGED for one in equipped),
        blocked=sum(one.verdict is Verdict.BLOCKED for one in equipped),
    )


class Cause(Form):
    """A failed requirement with those that it blocks."""

    judgement: Judgement
    blocks: list[str]


def root_causes(judgements: Iterable[Judgement]) -> list[Cause]:
    """The failures, each with the requirements that it blocks: musts first, then by the number of blocked ones, then in
    report order."""
    listed = list(judgements)
    blocks: dict[str, list[str]] = {}
    for judgement in listed:
        if judgement.verdict is Verdict.BLOCKED:
            blocks.setdefault(judgement.blocked_by, []).append(judgement.requirement.id)
    failed = [one for one in listed if one.verdict is Verdict.FAIL]
    causes = [Cause(judgement=one, blocks=blocks.get(one.requirement.id, [])) for one in failed]
    levels = list(Level)
    return sorted(
        causes,
        key=lambda cause: (
            levels.index(cause.judgement.requirement.level),
            -len(cause.blocks),
            cause.judgement.requirement.order,
        ),
    )
