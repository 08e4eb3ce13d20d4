"""Judges one requirement on a running target: whether it can be judged, its verdict, the evidence."""

from __future__ import annotations

import time
import traceback

from conformance.broker import Broker
from conformance.observations import Skipped
from conformance.requirement import Entry, Requirement, catalogue, owed_by, version_key
from conformance.results import Judgement, Lack, RecordedExchange, Verdict, printable, worst
from conformance.subject import Subject
from conformance.target_profile import TargetProfile
from conformance.wire import Exchange, Failed, NoAnswer
from linearizability import extras
from reference.protocol.apis import APIS

OLDEST_RELEASE = "3.3"
"""The first release whose behaviour can excuse a failure. Earlier releases need ZooKeeper."""
LAST_OF_OLDEST = 67
"""The last API key of that release."""
OTHER_RELEASES = 3
"""The most other releases as which a failure is judged again, where Kafka's behaviour changed between them."""
OF_SILENT_NODES = {"broker.heartbeat.interval.ms", "broker.session.timeout.ms", "replica.lag.time.max.ms"}
"""Configurations that decide when a silent node is fenced, or its replicas leave an ISR."""
HASTENING = {
    "log.cleaner.backoff.ms", "log.retention.check.interval.ms", "offsets.retention.check.interval.ms",
    "producer.id.expiration.check.interval.ms", "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
}  # fmt: skip
"""Intervals at which a broker checks for expired state. With its defaults it does the same later. So a target that does not
describe these is judged in spite of that, but a requirement that times out on it is not judged."""
LEAST_SESSION = "group.min.session.timeout.ms"
PROTOCOLS = "listener.security.protocol.map"
AUTHORIZER = "authorizer.class.name"
"""Unauthenticated brokers and clients have the same principal. With an authorizer they form a cluster only if clients are
allowed everything too."""
KEEP_FROM_STARTING = frozenset({AUTHORIZER, "delegation.token.secret.key"})
"""A release that lacks the class or feature that these configure exits at start: KRaft has delegation tokens since 3.6."""
KEPT_OF_A_PASS = 3
"""The number of exchanges of a passed requirement that are kept: the last ones."""
KEPT_BYTES_OF_A_PASS = 512


def missing(record: Requirement, subject: Subject) -> tuple[str, Lack | None]:
    """Why the requirement cannot be judged on this target, and the kind of what is missing; an empty text where it can be."""
    lacking, lack = missing_in_any_start(record, subject)
    if lacking:
        return lacking, lack
    offered = getattr(subject.target, "hooks", ())
    hooks = [hook for hook in record.needs.hooks if hook not in offered]
    if hooks:
        return f"needs the fault hook {' and '.join(hooks)}, which the target does not offer", Lack.HOOK
    return (missing_configs(record, subject) if record.needs.configs else ""), Lack.CONFIGURATION


def missing_in_any_start(record: Requirement, subject: Subject) -> tuple[str, Lack | None]:
    """What the target lacks for the requirement in any configuration; the result is as of `missing`."""
    if not owed_by(record, subject.kafka_version, by_zookeeper=subject.by_zookeeper):
        judged_as = f"Kafka {subject.kafka_version}{' with ZooKeeper' if subject.by_zookeeper and record.kraft else ''}"
        return f"owed {record.owed}; the target is judged as {judged_as}", Lack.RELEASE
    needs = record.needs
    for name, version in needs.apis.items():
        key = next(key for key, api in APIS.items() if api.name == name)
        if key not in subject.api_versions:
            return f"needs {name}, which the target does not advertise", Lack.API
        if subject.api_versions[key][1] < version:
            return f"needs {name} v{version}; the target serves up to v{subject.api_versions[key][1]}", Lack.API
        if version >= subject.profile.switched_off.get(name, version + 1):
            return f"needs {name} v{version}, and the target's feature for it is switched off", Lack.CONFIGURATION
    if needs.nodes > subject.nodes:
        return f"needs {needs.nodes} nodes; the target has {subject.nodes}", Lack.NODES
    if AUTHORIZER in needs.configs and subject.nodes > 1:
        return f"needs a target of one node: {AUTHORIZER} keeps brokers that do not authenticate apart", Lack.NODES
    return "", None


def missing_configs(record: Requirement, subject: Subject) -> str:
    """Which needed configuration is not in force according to DescribeConfigs; an empty text where all are.

    One that the target does not describe is not in force, unless the target was started with it and honours it. The timeouts of
    silent nodes do not matter to a requirement without fault hooks, nor on a target of one node.
    """
    others_wait = bool(record.needs.hooks) and subject.nodes > 1
    needed = {name: value for name, value in record.needs.configs.items() if others_wait or name not in OF_SILENT_NODES}
    if not needed:
        return ""
    unseen = ""
    with Broker(subject, record) as broker:
        try:
            held = broker.broker_configs(list(needed))
        except (Failed, Skipped) as error:
            held, unseen = {}, f": {error}"
    for name, value in needed.items():
        seen = held.get(name)
        if seen is None and name not in subject.honoured | HASTENING and not _seen_by_effect(name, value, subject):
            return f"needs {name}={value}, which the target does not describe{unseen}"
        if seen is not None and not _is_same(name, value, seen):
            return f"needs {name}={value}; the target has {seen}"
    return ""


def _is_same(name: str, value: str, seen: str) -> bool:
    """Whether a configuration has the needed value. Of the listener protocols only CONTROLLER counts: clients' may use TLS."""
    if name == PROTOCOLS:
        wanted = [pair for pair in value.split(",") if pair.startswith("CONTROLLER:")]
        return set(wanted) <= set(seen.split(","))
    return value == seen


def _seen_by_effect(name: str, value: str, subject: Subject) -> bool:
    """Whether an undescribed configuration can be observed by its effect. The least session timeout is observed later: where
    a join with a shorter one is refused, `Member.expect` skips the requirement."""
    if name == LEAST_SESSION:
        return True
    return (name, value) == ("auto.create.topics.enable", "true") and subject.profile.topics_by == "auto-creation"


def too_slow(record: Requirement, subject: Subject) -> str:
    """Which needed `HASTENING` configurations are not known to be in force; an empty text where none."""
    described = subject.profile.configs
    lacking = [
        f"{name}={value}"
        for name, value in record.needs.configs.items()
        if name in HASTENING and name not in subject.honoured and described.get(name) != value
    ]
    return f"needs {', '.join(lacking)}, of which nothing is known" if lacking else ""


def judge(entry: Entry, subject: Subject, *, patience: float = 1.0) -> Judgement:
    """Run one requirement's test and return its judgement. `patience` is a factor on its deadline.

    A failure on a target that only resembles a release is judged as other releases too, where Kafka's own behaviour changed:
    clients have to work with all of them. Where it holds as one of them, it is tolerated.
    """
    judgement, changes = _judged_as(entry, subject, patience, subject.kafka_version)
    if judgement.verdict is not Verdict.FAIL or not subject.resembles_only:
        return judgement
    for release in _other_releases(changes, subject.kafka_version)[:OTHER_RELEASES]:
        other, _ = _judged_as(entry, subject, patience, release)
        if other.verdict in (Verdict.PASS, Verdict.TOLERATED):
            other.verdict = Verdict.TOLERATED
            other.reason = f"as Kafka {release} does, and not as {subject.kafka_version}: {judgement.reason}"
            return other
    if _was_owed_later(entry.requirement):
        judgement.reason += (
            f"; Kafka owes this since {entry.requirement.since}, and {subject.kafka_version} is a guess here"
        )
    return judgement


def _was_owed_later(record: Requirement) -> bool:
    """Whether Kafka had the needed APIs before it owed the requirement: a target that follows an earlier release fails it too."""
    keys = [key for key, api in APIS.items() if api.name in record.needs.apis]
    return version_key(record.since) > version_key(OLDEST_RELEASE) and max(keys, default=0) <= LAST_OF_OLDEST


def _other_releases(changes: set[str], judged_as: str) -> list[str]:
    """One release for each behaviour, the newest first, without that of `judged_as`. The behaviour changed with `changes`."""
    later = (one for one in changes if version_key(one) > version_key(OLDEST_RELEASE))
    starts = sorted({OLDEST_RELEASE, *later}, key=version_key)
    own = [start for start in starts if version_key(start) <= version_key(judged_as)][-1:]
    return [start for start in reversed(starts) if start not in own]


def _judged_as(entry: Entry, subject: Subject, patience: float, release: str) -> tuple[Judgement, set[str]]:
    """The judgement by the behaviour of one release, and the releases with changes on which the test depends."""
    assert entry.test is not None
    record = entry.requirement
    started = time.monotonic()
    judgement = Judgement(requirement=record, verdict=Verdict.PASS)
    with Broker(subject, record, patience=patience, release=release) as broker:
        try:
            entry.test(broker)
            judgement.verdict, judgement.reason = _sum_up(broker)
            if judgement.verdict is Verdict.NOT_JUDGED and broker.lacks:
                judgement.lacks = broker.lacks[0]
            if judgement.verdict is Verdict.FAIL:
                judgement.built_on = _shared_step(broker.built_on)
                judgement.timed_out, judgement.direct = all(broker.late), any(broker.direct)
                _excuse_slowness(judgement, subject)
        except Failed as failure:
            if late := broker.out_of_time(failure):
                judgement.verdict, judgement.reason, judgement.lacks = Verdict.NOT_JUDGED, late, Lack.OTHER
                judgement.timed_out = subject.profile.patience == 1
            else:
                judgement.verdict, judgement.reason = (
                    Verdict.FAIL,
                    "; ".join([*_cases(broker, Verdict.FAIL), str(failure)]),
                )
                judgement.built_on, judgement.timed_out = broker.step_of(failure), isinstance(failure, NoAnswer)
                judgement.direct = failure.direct
                if isinstance(failure, NoAnswer) and failure.about is None:  # the target answered every request
                    _excuse_slowness(judgement, subject)
        except Skipped as skip:
            judgement.verdict, judgement.reason, judgement.lacks = Verdict.NOT_JUDGED, str(skip), skip.lacks
        except ModuleNotFoundError as error:
            advice = extras.advice(error.name or "")
            judgement.verdict = Verdict.NOT_JUDGED if advice else Verdict.ENGINE_ERROR
            judgement.reason, judgement.lacks = advice or str(error), Lack.OTHER if advice else None
            judgement.traceback = "" if advice else traceback.format_exc()
        except Exception as error:
            judgement.verdict, judgement.reason = Verdict.ENGINE_ERROR, f"{type(error).__name__}: {error}"
            judgement.traceback = traceback.format_exc()
    if broker.abandoned:
        judgement.verdict, judgement.built_on, judgement.timed_out = Verdict.ENGINE_ERROR, "", False
        judgement.reason = (
            f"the requirement did not end within its {record.deadline_s * broker.patience:g} s, and was broken off"
        )
    judgement.reason, judgement.traceback = printable(judgement.reason), printable(judgement.traceback)
    judgement.seen, judgement.cases = [printable(text) for text in broker.seen], broker.cases
    for case in broker.cases:
        case.name, case.reason, case.seen = printable(case.name), printable(case.reason), [*map(printable, case.seen)]
    if broker.recorder.exchanges:
        judgement.last_sent_s = broker.recorder.started_s + broker.recorder.exchanges[-1].at_s
    keep(judgement, [recorded(exchange) for exchange in broker.recorder.exchanges], broker.recorder.dropped)
    judgement.seconds = round(time.monotonic() - started, 3)
    return judgement, broker.changes


def _excuse_slowness(judgement: Judgement, subject: Subject) -> None:
    """Leave a timed-out failure unjudged where the target is not known to have the needed `HASTENING` configurations."""
    if judgement.timed_out and (lacking := too_slow(judgement.requirement, subject)):
        judgement.verdict, judgement.lacks = Verdict.NOT_JUDGED, Lack.CONFIGURATION
        judgement.reason, judgement.built_on, judgement.timed_out = f"{lacking}: {judgement.reason}", "", False


def _shared_step(named: list[str]) -> str:
    """The basic requirement in whose step all cases failed, by the first case; empty where a case failed in its own."""
    return named[0] if named and all(named) else ""


def _sum_up(broker: Broker) -> tuple[Verdict, str]:
    """Verdict and reason of a test that ran to its end: the worst of its cases, else tolerated or passed."""
    verdict = Verdict.TOLERATED if broker.tolerances else Verdict.PASS
    if not broker.cases:
        return verdict, "; ".join(broker.tolerances)
    of_cases = worst(case.verdict for case in broker.cases)
    verdict = of_cases if of_cases in (Verdict.FAIL, Verdict.NOT_JUDGED) else worst((verdict, of_cases))
    return verdict, "; ".join([*broker.tolerances, *_cases(broker, of_cases)])


def _cases(broker: Broker, verdict: Verdict) -> list[str]:
    """The reasons of the first five cases of one verdict, and how many more there are; none for a pass."""
    found = [case for case in broker.cases if case.verdict is verdict is not Verdict.PASS]
    reported = [f"{case.name}: {case.reason}" for case in found[:5]]
    return reported + [f"and {len(found) - 5} more cases"] * (len(found) > 5)


def keep(judgement: Judgement, exchanges: list[RecordedExchange], dropped: int) -> None:
    """Add the exchanges to the judgement: all of them, but of a pass only the last ones, truncated."""
    if judgement.verdict is Verdict.PASS:
        dropped += max(0, len(exchanges) - KEPT_OF_A_PASS)
        exchanges = exchanges[-KEPT_OF_A_PASS:]
        for exchange in exchanges:
            exchange.request_hex = exchange.request_hex[: KEPT_BYTES_OF_A_PASS * 2]
            exchange.response_hex = exchange.response_hex[: KEPT_BYTES_OF_A_PASS * 2]
    judgement.exchanges, judgement.exchanges_left_out = exchanges, dropped


def recorded(exchange: Exchange) -> RecordedExchange:
    """An exchange in the form of the report."""
    return RecordedExchange(
        case=exchange.case,
        connection=exchange.connection,
        at_s=round(exchange.at_s, 4),
        elapsed_ms=round(exchange.elapsed_ms, 2),
        api=APIS[exchange.api_key].name if exchange.api_key in APIS else "",
        api_key=exchange.api_key,
        version=exchange.version,
        response_version=exchange.response_version,
        outcome=printable(exchange.outcome),
        note=printable(exchange.note),
        request_hex=exchange.sent.hex(),
        request_bytes=exchange.sent_bytes,
        response_hex=exchange.received.hex(),
        response_bytes=exchange.received_bytes,
    )


def cause_of(required: Judgement | None) -> str:
    """The requirement that blocks the dependents of this one: itself if it failed, its blocker if it is blocked, else empty."""
    if required is None or required.verdict not in (Verdict.FAIL, Verdict.BLOCKED):
        return ""
    return required.blocked_by or required.requirement.id


def block(judgement: Judgement, cause: str) -> bool:
    """Block a failed requirement by its cause; False where there is none, or it is the requirement itself."""
    if cause in ("", judgement.requirement.id):
        return False
    judgement.verdict, judgement.blocked_by, judgement.timed_out = Verdict.BLOCKED, cause, False
    return True


def names_its_step(judgement: Judgement, about: Judgement | None) -> bool:
    """Whether a requirement failed in a step of another one that was not judged; adds that to the reason. It remains a
    failure, as no other requirement reports the defect."""
    step = judgement.built_on
    if step in ("", judgement.requirement.id) or (about is not None and about.verdict is not Verdict.NOT_JUDGED):
        return False
    judgement.reason += f"; this step is what {step} is about, which was not judged"
    return True


def judged_by_death(judgement: Judgement, how: str, for_memory: str) -> Judgement:
    """The judgement of a requirement during which the target ends; `how` is how it ended. It fails, unless the watchdog ended
    the target `for_memory`: what a machine with more memory would show stays open."""
    reason = for_memory or f"the target does not survive it: {how.splitlines()[0]}"
    if judgement.verdict is Verdict.FAIL and not for_memory:
        reason += f"; {judgement.reason}"
    update = {
        "verdict": Verdict.NOT_JUDGED if for_memory else Verdict.FAIL,
        "reason": reason,
        "died": how,
        "blocked_by": "",
        "built_on": "",
        "timed_out": False,
    }
    return judgement.model_copy(update=update)


def deadly_for(record: Requirement, profile: TargetProfile) -> list[str]:
    """The basic requirements that crashed the target and whose APIs this one needs too."""
    asked = {id: set(catalogue()[id].requirement.needs.apis) for id in profile.deadly if id != record.id}
    return [id for id, apis in asked.items() if apis and apis <= set(record.needs.apis)]


def learn_unserved(judgement: Judgement, profile: TargetProfile) -> None:
    """Mark the API versions that API-05 found unserved. Other requirements avoid them, or are blocked where they cannot."""
    for case in judgement.cases:
        name, _, version = case.name.rpartition(" v")
        if case.verdict is Verdict.FAIL and version.isdigit():
            profile.doubtful.setdefault(name, {})[int(version)] = case.reason


def judged_by_prerequisite(record: Requirement, required: Judgement) -> Judgement | None:
    """The judgement of a requirement whose prerequisite does not hold or was not judged; None where it can be judged."""
    other = required.requirement.id
    if cause := cause_of(required):
        reason = f"builds on {other}, which does not hold"
        return Judgement(requirement=record, verdict=Verdict.BLOCKED, blocked_by=cause, reason=reason)
    if required.verdict is Verdict.NOT_JUDGED:
        reason = f"needs {other}, which was not judged: {required.reason}"
        return Judgement(requirement=record, verdict=Verdict.NOT_JUDGED, reason=reason, lacks=required.lacks)
    return None
