"""Runs of the suite over each security protocol beside those over plaintext: `python -m tests.tools.secured RESULTS...` stores them.

RESULTS are result folders of `tidegauge run --security PROTOCOL`; of several of one target and protocol a later one goes before an
earlier one, but what it did not judge. `secured.json` has, for each target and protocol, how many requirements got each verdict,
and which got another one than over plaintext.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

STORE = Path(__file__).parents[1] / "conformance" / "secured.json"


def verdicts(folder: Path) -> tuple[str, str, dict[str, str]]:
    """Of a result folder: the target, the protocol, and what each requirement got."""
    report = json.loads((folder / "report.json").read_text())
    target = report["target"]
    protocol = target["security"].split(" ")[0]
    return target["spec"], protocol, {each["requirement"]["id"]: each["verdict"] for each in report["judgements"]}


def table(folders: list[Path]) -> dict[str, dict[str, Any]]:
    """Errors: KeyError where a target has no run over plaintext."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for folder in folders:
        spec, protocol, got = verdicts(folder)
        known = found.setdefault(spec, {}).setdefault(protocol, {})
        known |= {id: verdict for id, verdict in got.items() if id not in known or verdict != "not judged"}
    return {
        spec: {protocol: row(got, runs["PLAINTEXT"]) for protocol, got in sorted(runs.items())}
        for spec, runs in sorted(found.items())
    }


def row(got: dict[str, str], plain: dict[str, str]) -> dict[str, Any]:
    """`differs` has the verdict over plaintext, and this run's."""
    differs = {id: [plain.get(id, "-"), verdict] for id, verdict in sorted(got.items()) if plain.get(id) != verdict}
    return {"verdicts": dict(sorted(Counter(got.values()).items())), "differs": differs}


if __name__ == "__main__":
    STORE.write_text(json.dumps(table([Path(each) for each in sys.argv[1:]]), indent=1) + "\n")
