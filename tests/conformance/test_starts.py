"""With which configurations a session starts the target, and with which it does not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from conformance.requirement import select
from conformance.results import Run, Verdict
from conformance.runner import Plan, run
from linearizability.targets import TargetError
from tests.conformance.mortal import Mortal, asks, entry, impatient, verdicts

__all__ = ["impatient"]

TOKENS = {"delegation.token.secret.key": "secret"}


def judged_without_tokens(folder: Path, version: str, *ids: str) -> Run:
    """A run on a broker that does not start with delegation tokens, as KRaft before Kafka 3.6."""

    def open_target(spec: str, *, config: dict[str, str], **_: Any) -> Any:
        if config.keys() & TOKENS.keys():
            raise TargetError("Delegation tokens are not supported")
        return nullcontext(Mortal(restartable=True))

    entries = [entry("BAS-01", asks), entry("SEC-20", asks, since="3.6", needs={"configs": TOKENS})]
    chosen = [each for each in entries if each.requirement.id in ids]
    return run(Plan(f"kafka:{version}", chosen, folder, open_target=open_target))


@pytest.mark.parametrize("ids", [("BAS-01", "SEC-20"), ("SEC-20",)])
def test_it_is_not_started_for_what_the_release_does_not_owe(tmp_path: Path, ids: tuple[str, ...]) -> None:
    report = judged_without_tokens(tmp_path, "3.4.1", *ids)
    wanted = {"BAS-01": Verdict.PASS, "SEC-20": Verdict.NOT_JUDGED}
    assert verdicts(report) == {id: wanted[id] for id in ids}
    assert report.judgements[-1].reason.startswith("owed since 3.6")


def test_it_is_started_for_what_the_release_owes(tmp_path: Path) -> None:
    report = judged_without_tokens(tmp_path, "3.6.2", "BAS-01", "SEC-20")
    assert "did not start" in report.reason


def test_what_one_start_has_switched_off_another_is_judged_for(tmp_path: Path) -> None:
    """The first start is for TOP-15, with delete.topic.enable=false; ACL-68 deletes a topic in the next one."""
    report = run(Plan("reference:1", select(["TOP-15", "ACL-68"]), tmp_path, starts=1))
    assert {judgement.requirement.id: judgement.reason for judgement in report.judgements} == {
        "TOP-15": "",
        "ACL-68": "",
    }
    assert verdicts(report) == dict.fromkeys(("TOP-15", "ACL-68"), Verdict.PASS)
