"""The scalar rules of replication, searched by Hypothesis and confirmed over all paths by CrossHair."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.errors import ErrorCode
from reference.replication.fencing import check_leader_epoch
from reference.replication.high_watermark import follower_high_watermark, next_high_watermark

offsets = st.integers(0, 1 << 40)


@given(offsets, offsets, st.lists(offsets, max_size=5))
def test_the_high_watermark_is_the_least_end_and_never_goes_back(current: int, more: int, followers: list[int]) -> None:
    leader_end = current + more
    found = next_high_watermark(current, leader_end, followers)
    assert current <= found <= leader_end
    assert found == current or found == min([leader_end, *followers])


@given(offsets, offsets)
def test_a_follower_commits_no_more_than_it_has(leader: int, end: int) -> None:
    assert follower_high_watermark(leader, end) <= min(leader, end)


@pytest.mark.parametrize(
    ("asked", "current", "code"),
    [
        (-1, 5, ErrorCode.NONE),
        (5, 5, ErrorCode.NONE),
        (4, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epochs_are_fenced_both_ways(asked: int, current: int, code: ErrorCode) -> None:
    assert check_leader_epoch(asked, current) is code


@pytest.mark.parametrize("rule", ["high_watermark.follower_high_watermark", "fencing.check_leader_epoch"])
def test_crosshair_confirms(rule: str) -> None:
    command = [sys.executable, "-m", "crosshair", "check", f"reference.replication.{rule}"]
    command += ["--analysis_kind=PEP316", "--per_condition_timeout=30", "--report_all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Confirmed over all paths" in done.stdout, done.stdout
