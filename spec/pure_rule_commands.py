"""`tidegauge spec rules`: the broker's pure rules, confirmed over all paths."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from spec.options import Json

EXAMPLES = "Examples:  tidegauge spec rules   ·   tidegauge spec rules --record --json"


def rules(
    record: Annotated[bool, typer.Option(help="Store what was found, and write spec/PURE_RULES.md again.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="CrossHair's time for each condition.")] = 30,
    as_json: Json = False,
) -> None:
    """Confirm the broker's pure rules over all paths with CrossHair.

    Exit codes: 0 every rule over plain values is confirmed and none refuted, 1 one is refuted, 2 one was not confirmed in time.
    """
    from spec.pure_rules import Knowledge, confirm_all
    from spec.pure_rules import record as store

    found, findings, took_s = confirm_all(seconds)
    for finding in findings:
        row = {"rule": finding.rule, "found": finding.knowledge, "reason": finding.reason}
        print(json.dumps(row) if as_json else f"{finding.rule:<70} {finding.knowledge:<10} {finding.reason}")
    if record:
        store(findings)
    refuted = [finding.rule for finding in findings if finding.knowledge == Knowledge.REFUTED]
    unconfirmed = [
        rule.title
        for rule, finding in zip(found, findings, strict=True)
        if rule.is_scalar and finding.knowledge != Knowledge.CONFIRMED
    ]
    code = 1 if refuted else 2 if unconfirmed or not found else 0
    summary = {
        "verdict": {0: "pass", 1: "fail", 2: "unknown"}[code],
        "rules": len(findings),
        "confirmed": sum(finding.knowledge == Knowledge.CONFIRMED for finding in findings),
        "searched": sum(finding.knowledge == Knowledge.SEARCHED for finding in findings),
        "refuted": refuted,
        "not confirmed": unconfirmed,
        "seconds": round(took_s, 1),
    }
    print(json.dumps(summary) if as_json else ", ".join(f"{key} {value}" for key, value in summary.items()))
    raise typer.Exit(code)
