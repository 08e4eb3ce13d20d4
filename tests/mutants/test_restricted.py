"""No requirement may fail on a sound broker that serves less than Kafka: a sample here, all of them in slow tests."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.liars import Behind, Lying
from conformance.requirement import select
from conformance.results import Lack, Run, Verdict
from conformance.runner import Plan, run
from conformance.target_profile import FEATURES
from linearizability.mutants.wire.proxy import Proxy
from linearizability.mutants.wire.restricted import PREFIX, RESTRICTIONS, Restricted, Restriction, names_of
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.update_features import UpdateFeaturesRequest

SAFE_DOWNGRADE = 2
"""Upgrade type of UpdateFeatures."""
TRUE = {"API-11"}
"""Requirements that rightly fail on a Kafka release whose APIs or versions are hidden."""
ACCUSED = (Verdict.FAIL, Verdict.BLOCKED, Verdict.ENGINE_ERROR)
SAMPLED = ("toy", "oldest", "newest", "kafka-1.0", "old-producers", "no-topic-ids", "no-admin")
SAMPLE = [
    "BAS",
    "API-11",
    "FRM-01",
    "FRM-03",
    "FRM-10",
    "FRM-11",
    "MET-03",
    "MET-09",
    "MET-14",
    "PRD-03",
    "FSS-02",
    "FSS-04",
    "FSS-09",
    "EPO-02",
    "LOF-10",
    "IDM-01",
    "TXN-05",
    "TXN-14",
    "TXN-33",
    "TOP-11",
    "TOP-14",
    "TOP-23",
]
"""Requirements that once accused a restricted broker falsely, and some that show that the others were judged."""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    """One sound broker for all restrictions."""
    folder = tmp_path_factory.mktemp("sound")
    with Loop() as loop, open_target("reference:1", folder=folder, config={"num.partitions": "4"}) as target:
        yield loop, Behind(target)


class _Bare(Lying):
    """A target of which nothing but the address is known."""

    def __init__(self, behind: Behind, proxy: Proxy, config: Mapping[str, str]) -> None:
        super().__init__(behind, proxy)
        self.hooks: list[str] = []
        self.unknown_config = tuple(config)


def judged(behind: tuple[Loop, Behind], restriction: Restriction, ids: list[str], folder: Path) -> Run:
    """The result of these requirements on a restricted broker."""

    @contextmanager
    def opened(spec: str, *, folder: Path, config: Mapping[str, str]) -> Iterator[Any]:
        with Proxy(behind[0], behind[1].target.nodes, Restricted(restriction)) as proxy:
            yield _Bare(behind[1], proxy, config)

    return run(Plan("exec:restricted", select(ids), folder, open_target=opened))


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sound_broker_that_serves_less_is_not_accused(name: str, behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    report = judged(behind, RESTRICTIONS[name], SAMPLE, tmp_path)
    assert not report.broken
    assert {
        j.requirement.id: j.reason for j in report.judgements if j.verdict in ACCUSED and j.requirement.id not in TRUE
    } == {}
    assert sum(j.verdict in (Verdict.PASS, Verdict.TOLERATED) for j in report.judgements) >= 5


CONFIGURED = {
    "other-limits": "ACK-10 CFG-01 CFG-09 CFG-11 CGH-20 PRD-14 RET-07 TOP-11 TXN-02 TXN-16 TXN-34 TXN-36 TXV-12 TXV-13 QTA-22",
    "few-topic-configs": "ACK-09 CFG-03 CFG-05 CFG-07 CFG-08 CFG-13 CFG-14 CMP-10 PRD-14 RET-01 RET-02 RET-07 RET-09",
    "no-deletion": "CGH-26 FET-11 MET-06 MET-09 OFF-16 QTA-42 TOP-01 TOP-12 TOP-14 TOP-16 TOP-23 TXV-21",
}
"""Restriction -> requirements that once accused brokers with this configuration."""


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_sound_broker_that_is_configured_otherwise_is_not_accused(name: str, tmp_path: Path) -> None:
    restriction = RESTRICTIONS[name]
    folder = tmp_path / "sound"
    with Loop() as loop, open_target("reference:1", folder=folder, config=restriction.config) as target:
        report = judged((loop, Behind(target)), restriction, CONFIGURED[name].split(), tmp_path)
    assert {j.requirement.id: j.reason for j in report.judgements if j.verdict in ACCUSED} == {}
    assert any(j.lacks is Lack.CONFIGURATION for j in report.judgements)


def test_a_sound_broker_whose_features_are_switched_off_is_not_accused(tmp_path: Path) -> None:
    """Like a cluster upgraded from 3.9: it advertises more versions than its features allow."""
    key = UpdateFeaturesRequest.FeatureUpdateKey
    off = [key(feature=name, max_version_level=0, upgrade_type=SAFE_DOWNGRADE) for name in FEATURES]
    with Loop() as loop, open_target("reference:1", folder=tmp_path, config={}) as target:
        with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
            answer = wire.call(UpdateFeaturesRequest(feature_updates=off, timeout_ms=10_000))
        assert answer.error_code == ErrorCode.NONE
        ids = ["BAS-11", "CGH-01", "GAD-07", "TXN-05", "TXN-11", "TXN-43", "TXV-01", "TXV-08"]
        report = judged((loop, Behind(target)), RESTRICTIONS["bare"], ids, tmp_path)
    assert {j.requirement.id: (str(j.verdict), j.lacks) for j in report.judgements} == {
        **dict.fromkeys(("BAS-11", "CGH-01", "TXN-43"), ("not judged", Lack.CONFIGURATION)),
        **dict.fromkeys(("GAD-07", "TXN-05", "TXN-11", "TXV-01", "TXV-08"), ("pass", None)),
    }
    assert report.target.profile.switched_off["EndTxn"] == 5


def test_restricted_apis_are_not_advertised(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    report = judged(behind, RESTRICTIONS["no-groups"], ["BAS-06", "BAS-03", "API-06"], tmp_path)
    assert {j.requirement.id: str(j.verdict) for j in report.judgements} == {
        "BAS-03": "pass",
        "BAS-06": "not judged",
        "API-06": "pass",
    }
    assert "FindCoordinator" not in report.target.profile.advertised


@pytest.mark.slow
@pytest.mark.parametrize("name", RESTRICTIONS)
def test_no_requirement_fails_on_a_sound_broker_that_serves_less(name: str, tmp_path: Path) -> None:
    adapter = f"exec:{sys.executable} -m linearizability.mutants.wire adapter {PREFIX}{name}"
    command = [sys.executable, "-m", "tidegauge", "run", "--target", adapter, "--json", "--results", str(tmp_path)]
    if given := names_of(RESTRICTIONS[name]):
        command += ["--topics", ",".join(given)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=1_800).stdout.splitlines()
    lines = {line["id"]: line for line in map(json.loads, printed) if "id" in line}
    true = {*TRUE, *RESTRICTIONS[name].breaks.split()}
    accused = {
        id: line["reason"]
        for id, line in lines.items()
        if line["verdict"] in (*ACCUSED,) and (line["blocked_by"] or id) not in true
    }
    assert lines and accused == {}
