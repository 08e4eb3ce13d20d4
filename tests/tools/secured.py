"""Runs of the suite over each security protocol beside those over plaintext: `python -m tests.tools.secured RESULTS...` stores them.

RESULTS are result folders of `tidegauge run --security PROTOCOL`. Of several for one target and protocol, a later verdict
replaces an earlier one, unless it is `not judged`. A killed run is given as TARGET,PROTOCOL,FILE with its verdicts.jsonl. Rows of other
targets and protocols are kept. `secured.json` has, for each target and protocol, the number of requirements with each verdict,
and those with another verdict than over plaintext (Kafka's is from the matrix of releases if no run over plaintext is given).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from conformance.releases import Matrix

UNJUDGED = ("not judged", "untestable")
STORE = Path(__file__).parents[1] / "conformance" / "secured.json"


def verdicts(given: str) -> tuple[str, str, dict[str, str]]:
    """The target, the protocol and each requirement's verdict, of a result folder or a killed run's file."""
    if given.endswith(".jsonl"):
        spec, protocol, file = given.split(",", 2)
        lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
        return spec, protocol, {line["id"]: line["verdict"] for line in lines if "id" in line}
    report = json.loads((Path(given) / "report.json").read_text())
    target = report["target"]
    protocol = target["security"].split(" ")[0]
    return target["spec"], protocol, {each["requirement"]["id"]: each["verdict"] for each in report["judgements"]}


def table(given: list[str]) -> dict[str, dict[str, Any]]:
    """Errors: KeyError where a target other than Kafka has no run over plaintext."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in given:
        spec, protocol, got = verdicts(each)
        known = found.setdefault(spec, {}).setdefault(protocol, {})
        known |= {id: verdict for id, verdict in got.items() if id not in known or verdict != "not judged"}
    return {
        spec: {protocol: row(got, runs.get("PLAINTEXT") or released(spec)) for protocol, got in sorted(runs.items())}
        for spec, runs in sorted(found.items())
    }


def released(spec: str) -> dict[str, str]:
    """A Kafka's verdicts over plaintext, from the matrix of releases."""
    _, version = spec.split(":")[:2]
    return {id: cell.verdict for (release, id), cell in Matrix.read().cells.items() if release == version}


def row(got: dict[str, str], plain: dict[str, str]) -> dict[str, Any]:
    """One run's row. `differs` has both verdicts of each requirement that this run and plaintext judged differently."""
    differs = {
        id: [plain[id], verdict]
        for id, verdict in sorted(got.items())
        if id in plain and plain[id] != verdict and not {plain[id], verdict} & {*UNJUDGED}
    }
    return {"verdicts": dict(sorted(Counter(got.values()).items())), "differs": differs}


if __name__ == "__main__":
    kept = json.loads(STORE.read_text()) if STORE.exists() else {}
    for spec, rows in table(sys.argv[1:]).items():
        kept[spec] = dict(sorted((kept.get(spec, {}) | rows).items()))
    STORE.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
