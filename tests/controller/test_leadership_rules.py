"""The rules of leadership, confirmed over all paths by CrossHair."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RULES = "reference/controller/leadership_rules.py"
POSTCONDITIONS = 9


def test_crosshair_confirms_the_rules_over_all_paths() -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "crosshair"), "check", RULES,
            "--analysis_kind", "PEP316", "--report_all", "--per_condition_timeout", "60",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    verdicts = re.findall(r": info: (.*)", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts == ["Confirmed over all paths."] * POSTCONDITIONS, done.stdout
