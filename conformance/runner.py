"""Runs requirements on a target. pytest runs them underneath: each requirement is one of its items.

The order of a run: open the target, smoke test (does it speak at all), then group by group (see `plan`) each
requirement with a `Broker` of its own. A target that dies under a requirement is started again where it can be; where it
cannot, the rest is skipped and the verdict is unknown at best.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Protocol

import pytest

from conformance.broker import Broker, Skipped, Subject, delete_topics_request
from conformance.known_bugs import known_bugs
from conformance.plan import Group, plan
from conformance.requirement import OPTIONAL, Entry, Requirement, owed_by, version_key
from conformance.results import Judgement, RecordedExchange, Run, TargetRecord, Verdict, worst
from conformance.wire import Exchange, Failed
from reference.protocol.apis import APIS
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest

REQUIREMENTS = Path(__file__).parent / "requirements"


class TargetBroke(Exception):
    """The target did not start, does not speak, or is gone: nothing more can be judged."""


class OpenTarget(Protocol):
    """What the runner uses of an open target (`linearizability.targets`)."""

    bootstrap: str


class Listener(Protocol):
    """Who wants to know how the run goes on: the progress on the terminal."""

    def starting(self, group: Group, number: int, groups: int) -> None:
        """The target starts for a group of requirements."""

    def judging(self, entry: Entry) -> None:
        """A requirement's test begins."""

    def judged(self, judgement: Judgement) -> None:
        """A requirement's verdict stands."""


@dataclass
class Plan:
    """What to run, on what, and how to say so."""

    spec: str
    entries: list[Entry]
    folder: Path
    selection: str = ""
    kafka_version: str = ""
    """Empty: found out from the target."""
    expected_failures: Collection[str] = ()
    listener: Listener | None = None
    open_target: Callable[..., Any] | None = None
    """Another way to the target than `linearizability.targets.open_target`."""


def run(chosen: Plan) -> Run:
    """Judge a target. Never raises for what the target does: a broken target is a verdict of its own."""
    started = time.monotonic()
    report = Run(
        suite_version=installed_version("tidegauge"),
        target=TargetRecord(spec=chosen.spec),
        selection=chosen.selection,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    suite = Suite(chosen, report)
    pytest.main(
        [
            str(REQUIREMENTS), "--rootdir", str(REQUIREMENTS), "-c", os.devnull, "--import-mode=importlib",
            "--disable-plugin-autoload", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler", "-s",
        ],
        plugins=[suite],
    )  # fmt: skip
    suite.fill_gaps()
    report.seconds = round(time.monotonic() - started, 2)
    report.sum_up(target_broke=suite.broke)
    return report


# ---- pytest


class Suite:
    """The pytest plugin: makes items of requirements, keeps the target open for them, collects their judgements."""

    def __init__(self, chosen: Plan, report: Run) -> None:
        self.chosen = chosen
        self.report = report
        self.broke = ""
        self.host = Host(chosen, report)
        self.groups = plan(chosen.entries)
        self.known_bugs = known_bugs(chosen.spec)

    def pytest_collect_file(self, file_path: Path, parent: Any) -> RequirementModule | None:
        """One collector for each module of requirements that has chosen ones."""
        module = f"conformance.requirements.{file_path.stem}"
        entries = [entry for entry in self.chosen.entries if entry.module == module]
        if not entries or file_path.suffix != ".py":
            return None
        collector = RequirementModule.from_parent(parent, path=file_path)
        collector.suite, collector.entries = self, entries
        return collector

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Group by group, so that the target restarts as seldom as it can; within a group in the order of reports."""
        place = {
            e.requirement.id: (number, e.requirement.order) for number, g in enumerate(self.groups) for e in g.entries
        }
        items.sort(key=lambda item: place[item.name])

    def pytest_sessionfinish(self) -> None:
        """Clean up and stop the target, whatever happened."""
        self.host.close()

    def group_of(self, entry: Entry) -> Group:
        """The group that a requirement is judged with."""
        return next(group for group in self.groups if entry in group.entries)

    def judge(self, entry: Entry, session: pytest.Session) -> Judgement:
        """Judge one requirement; a target that broke ends the session."""
        group = self.group_of(entry)
        try:
            judgement = self.host.judge(entry, group, (self.groups.index(group) + 1, len(self.groups)))
        except TargetBroke as error:
            self.broke = str(error)
            session.shouldstop = self.broke
            judgement = Judgement(
                requirement=entry.requirement, verdict=Verdict.SKIPPED, reason=in_one_line(self.broke)
            )
        self.add(judgement)
        return judgement

    def add(self, judgement: Judgement) -> None:
        """Keep a judgement, and hold it against the expected failures."""
        id = judgement.requirement.id
        bug = self.known_bugs.get(id)
        if id in self.chosen.expected_failures or bug:
            judgement.expected = judgement.verdict is Verdict.FAIL
            if judgement.verdict is Verdict.PASS and (not bug or bug.strict):
                self.report.unexpected_passes.append(id)
        if bug and judgement.expected:
            judgement.reason = f"Kafka's own bug {bug.reference}: {bug.what}; {judgement.reason}"
        self.report.judgements.append(judgement)
        if self.chosen.listener:
            self.chosen.listener.judged(judgement)

    def fill_gaps(self) -> None:
        """Judge what no item judged: untestable requirements, and those that were cut off by a broken target."""
        judged = {judgement.requirement.id for judgement in self.report.judgements}
        for entry in self.chosen.entries:
            record = entry.requirement
            if entry.test is None:
                self.add(Judgement(requirement=record, verdict=Verdict.UNTESTABLE, reason=record.untestable))
            elif record.id not in judged:
                self.broke = self.broke or "the run was interrupted"
                self.add(Judgement(requirement=record, verdict=Verdict.SKIPPED, reason=in_one_line(self.broke)))
        self.report.judgements.sort(key=lambda judgement: judgement.requirement.order)


def in_one_line(text: str) -> str:
    """What happened, and the last line of the log that tells of it: the run says all of it once, not each requirement."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:1] + lines[1:][-1:])


class RequirementModule(pytest.File):
    """Collects the chosen requirements of one module."""

    suite: Suite
    entries: list[Entry]

    def collect(self) -> Iterable[RequirementItem]:
        """One item for each."""
        for entry in self.entries:
            item = RequirementItem.from_parent(self, name=entry.requirement.id)
            item.entry = entry
            yield item


class RequirementItem(pytest.Item):
    """One requirement as pytest runs it."""

    entry: Entry

    def runtest(self) -> None:
        """Judge, and tell pytest in its own words."""
        module = self.parent
        assert isinstance(module, RequirementModule)
        judgement = module.suite.judge(self.entry, self.session)
        if judgement.verdict is Verdict.SKIPPED:
            pytest.skip(judgement.reason)
        if judgement.verdict in (Verdict.FAIL, Verdict.ENGINE_ERROR):
            pytest.fail(f"{judgement.verdict}: {judgement.reason}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands and what it is called."""
        return self.path, None, self.name


# ---- the target


@dataclass
class Host:
    """Keeps the target open in the configuration that the requirement at hand needs."""

    chosen: Plan
    report: Run
    subject: Subject | None = None
    open_group: Group | None = None
    starts: int = 0
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def startable(self) -> bool:
        """Whether the suite starts the target itself."""
        return not self.chosen.spec.startswith("addr:")

    @property
    def kafka_version(self) -> str:
        """The version that was asked for, or is part of the target's name; empty where it must be found out."""
        kind, _, rest = self.chosen.spec.partition(":")
        return self.chosen.kafka_version or (rest.partition(":")[0] if kind == "kafka" else "")

    @property
    def configurable(self) -> bool:
        """Whether the target can be started with configurations of the suite's choice; an adapter says so by a hook."""
        adapter = self.chosen.spec.startswith("exec:")
        return self.startable and not (adapter and self.subject and "config" not in self.subject.target.hooks)

    def judge(self, entry: Entry, group: Group, place: tuple[int, int]) -> Judgement:
        """Judge one requirement on the open target, or say why it is skipped.

        Errors: TargetBroke when the target cannot be opened, or is gone and cannot be opened again.
        """
        subject = self.prepare(group, place)
        if self.chosen.listener:
            self.chosen.listener.judging(entry)
        lacking = missing(entry.requirement, subject)
        if lacking:
            return Judgement(requirement=entry.requirement, verdict=Verdict.SKIPPED, reason=lacking)
        judgement = judge(entry, subject)
        if judgement.verdict is Verdict.FAIL and not alive(subject):
            judgement.reason += "; the broker did not survive it"
            self.leave()
            if not self.startable:
                raise TargetBroke(f"the target is gone since {entry.requirement.id}")
        return judgement

    def prepare(self, group: Group, place: tuple[int, int]) -> Subject:
        """The target, open for a group; smoke-tested when it was just started."""
        if self.subject and (self.open_group is group or not self.configurable):
            return self.subject
        self.leave()
        if self.chosen.listener:
            self.chosen.listener.starting(group, *place)
        target = self.enter(group)
        self.subject = Subject(
            bootstrap=addresses(target.bootstrap),
            kafka_version=self.kafka_version,
            target=target,
            folder=self.chosen.folder,
        )
        self.open_group = group
        smoke(self.subject, self.report)
        self.report.target.kafka_version = self.subject.kafka_version
        return self.subject

    def enter(self, group: Group) -> Any:
        """Open the target. Errors: TargetBroke when it does not start."""
        config = dict(group.configs) if self.startable else {}
        self.starts += 1
        folder = self.chosen.folder / f"target-{self.starts}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            open_target = self.chosen.open_target or default_open_target()
            return self.stack.enter_context(open_target(self.chosen.spec, folder=folder, config=config))
        except Exception as error:
            raise TargetBroke(f"the target {self.chosen.spec} did not start: {error}") from error

    def leave(self) -> None:
        """Stop the target."""
        self.subject = self.open_group = None
        stack, self.stack = self.stack, ExitStack()
        with suppress(Exception):
            stack.close()

    def close(self) -> None:
        """Delete what was made on a target that goes on living, and let go of it."""
        if self.subject and not self.startable:
            with suppress(Exception):
                delete_all(self.subject)
        self.leave()


def default_open_target() -> Callable[..., Any]:
    """The way to every target that there is."""
    from linearizability.targets import open_target

    return open_target


def smoke(subject: Subject, report: Run) -> None:
    """Does the target speak at all: ApiVersions, Metadata, a topic, one record in and out.

    Errors: TargetBroke with what was seen. Then no requirement is judged: they would all say the same.
    """
    record = Requirement(
        id="API-00", level=OPTIONAL, sentence="Smoke test of the target.", source="conformance", deadline_s=60
    )
    with Broker(subject, record) as broker:
        try:
            broker.eventually(lambda: _speaks(broker), "the target answers ApiVersions", within_s=30)
            if not subject.kafka_version:
                subject.kafka_version = guess_kafka_version(subject.api_versions)
            _describe(broker, report)
            _one_record(broker)
        except (Failed, Skipped) as error:
            raise TargetBroke(f"smoke test: {error}") from error
        finally:
            if not report.smoke:
                report.smoke = [recorded(exchange) for exchange in broker.recorder.exchanges]


def _speaks(broker: Broker) -> bool:
    try:
        with broker.connect() as connection:
            answer = connection.call(ApiVersionsRequest(), 0)
    except Failed:
        return False
    broker.subject.api_versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    return bool(answer.api_keys)


def _describe(broker: Broker, report: Run) -> None:
    def registered() -> Any:
        metadata = broker.call(MetadataRequest(topics=[]))
        return metadata if metadata.brokers else None

    metadata = broker.eventually(registered, "Metadata lists a broker", within_s=30)
    report.target.bootstrap = [f"{host}:{port}" for host, port in broker.subject.bootstrap]
    report.target.nodes = len(metadata.brokers)
    report.target.cluster_id = metadata.cluster_id or ""
    broker.subject.nodes = len(metadata.brokers)
    report.target.api_versions = {
        APIS[key].name if key in APIS else str(key): both for key, both in sorted(broker.subject.api_versions.items())
    }


def _one_record(broker: Broker) -> None:
    from conformance.batches import batch, values

    broker.version_for(ProduceRequest)
    topic = broker.topic()
    broker.append(topic, batch(b"smoke"))
    broker.expect_equal("the record that comes back", values(broker.log(topic)), [b"smoke"])


def alive(subject: Subject) -> bool:
    """Whether the first broker still answers."""
    record = Requirement(
        id="API-00", level=OPTIONAL, sentence="Is the target alive?", source="conformance", deadline_s=15
    )
    with Broker(subject, record) as broker:
        try:
            broker.eventually(lambda: _answers(broker), "the target answers", within_s=10)
        except Failed:
            return False
    return True


def _answers(broker: Broker) -> bool:
    try:
        broker.expect_served()
    except Failed:
        return False
    return True


def delete_all(subject: Subject) -> None:
    """Delete the topics that the suite made."""
    record = Requirement(
        id="API-00", level=OPTIONAL, sentence="Cleaning away topics.", source="conformance", deadline_s=60
    )
    with Broker(subject, record) as broker:
        version = broker.version_for(DeleteTopicsRequest)
        for at in range(0, len(subject.topics), 50):
            broker.call(delete_topics_request(subject.topics[at : at + 50], version), version)


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs."""
    pairs = [address.rpartition(":") for address in bootstrap.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def guess_kafka_version(api_versions: dict[int, tuple[int, int]]) -> str:
    """The release whose advertised ranges are the most like these; the newest of equals."""
    releases = sorted({release for api in APIS.values() for release in api.releases}, key=version_key)

    def likeness(release: str) -> int:
        return sum(
            api_versions.get(key) == api.releases[release][:2] for key, api in APIS.items() if release in api.releases
        )

    return max(reversed(releases), key=likeness)


# ---- judging


def missing(record: Requirement, subject: Subject) -> str:
    """Why the requirement cannot be judged on this target; empty where it can."""
    if not owed_by(record, subject.kafka_version):
        bounds = [f"since {record.since}" if record.since else "", f"until {record.until}" if record.until else ""]
        return f"owed {' '.join(filter(None, bounds))}; the target is judged as Kafka {subject.kafka_version}"
    needs = record.needs
    if needs.nodes > subject.nodes:
        return f"needs {needs.nodes} nodes; the target has {subject.nodes}"
    offered = getattr(subject.target, "hooks", ())
    lacking = [hook for hook in needs.hooks if hook not in offered]
    if lacking:
        return f"needs the fault hook {' and '.join(lacking)}, which the target does not offer"
    for name, version in needs.apis.items():
        key = next(key for key, api in APIS.items() if api.name == name)
        if key not in subject.api_versions:
            return f"the target does not advertise {name}"
        if subject.api_versions[key][1] < version:
            return f"needs {name} v{version}; the target serves up to v{subject.api_versions[key][1]}"
    return missing_configs(record, subject) if needs.configs else ""


def missing_configs(record: Requirement, subject: Subject) -> str:
    """Which needed configuration is not in force, as DescribeConfigs says; an answer without values counts as in force."""
    with Broker(subject, record) as broker:
        try:
            held = broker.broker_configs(list(record.needs.configs))
        except (Failed, Skipped) as error:
            return f"needs configurations, and the target does not describe its own: {error}"
    for name, value in record.needs.configs.items():
        if name in held and held[name] is not None and held[name] != value:
            return f"needs {name}={value}; the target has {held[name]}"
    return ""


def judge(entry: Entry, subject: Subject) -> Judgement:
    """Run one requirement's test and say what came of it."""
    assert entry.test is not None
    started = time.monotonic()
    judgement = Judgement(requirement=entry.requirement, verdict=Verdict.PASS)
    with Broker(subject, entry.requirement) as broker:
        try:
            entry.test(broker)
            judgement.verdict, judgement.reason = _sum_up(broker)
        except Failed as failure:
            judgement.verdict, judgement.reason = Verdict.FAIL, str(failure)
        except Skipped as skip:
            judgement.verdict, judgement.reason = Verdict.SKIPPED, str(skip)
        except Exception as error:
            judgement.verdict, judgement.reason = Verdict.ENGINE_ERROR, f"{type(error).__name__}: {error}"
            judgement.traceback = traceback.format_exc()
    judgement.seen, judgement.cases = broker.seen, broker.cases
    judgement.exchanges = [recorded(exchange) for exchange in broker.recorder.exchanges]
    judgement.exchanges_left_out = broker.recorder.dropped
    judgement.seconds = round(time.monotonic() - started, 3)
    return judgement


def _sum_up(broker: Broker) -> tuple[Verdict, str]:
    """The verdict of a test that ran to its end: the worst of its cases, or tolerated, or a pass."""
    verdict = Verdict.TOLERATED if broker.tolerances else Verdict.PASS
    reasons = list(broker.tolerances)
    if broker.cases:
        of_cases = worst(case.verdict for case in broker.cases)
        bad = [case for case in broker.cases if case.verdict is of_cases and of_cases is not Verdict.PASS]
        reasons += [f"{case.name}: {case.reason}" for case in bad[:5]]
        if len(bad) > 5:
            reasons.append(f"and {len(bad) - 5} more cases")
        verdict = of_cases if of_cases in (Verdict.FAIL, Verdict.SKIPPED) else worst((verdict, of_cases))
    return verdict, "; ".join(reasons)


def recorded(exchange: Exchange) -> RecordedExchange:
    """An exchange as the report keeps it."""
    return RecordedExchange(
        case=exchange.case,
        connection=exchange.connection,
        at_s=round(exchange.at_s, 4),
        elapsed_ms=round(exchange.elapsed_ms, 2),
        api=APIS[exchange.api_key].name if exchange.api_key in APIS else "",
        api_key=exchange.api_key,
        version=exchange.version,
        response_version=exchange.response_version,
        outcome=exchange.outcome,
        note=exchange.note,
        request_hex=exchange.sent.hex(),
        request_bytes=exchange.sent_bytes,
        response_hex=exchange.received.hex(),
        response_bytes=exchange.received_bytes,
    )
