"""The rules of leadership and of brokers' states, confirmed over all paths by CrossHair."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RULES = {
    "reference/controller/leadership_rules.py": 9,
    "reference/controller/heartbeats.py": 3,
}
"""Files, and how many postconditions each has."""


@pytest.mark.parametrize("rules", RULES)
def test_crosshair_confirms_over_all_paths(rules: str) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "crosshair", "check", rules,
            "--analysis_kind=PEP316", "--report_all", "--per_condition_timeout=60",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    verdicts = re.findall(r": info: (.*)", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts == ["Confirmed over all paths."] * RULES[rules], done.stdout
