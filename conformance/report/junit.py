"""A run as JUnit XML for CI servers: one suite for each area, one case for each requirement."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from xml.etree import ElementTree

from conformance.requirement import AREAS
from conformance.results import Judgement, Run, Verdict


def junit(run: Run) -> bytes:
    """The XML document. Expected failures are skipped cases, engine errors are errors."""
    root = ElementTree.Element("testsuites", name=f"tidegauge {run.target.spec}", time=f"{run.seconds:.3f}")
    for area, judgements in groupby(run.judgements, key=lambda judgement: judgement.requirement.area):
        listed = list(judgements)
        facts = {
            "name": f"{area} {AREAS[area]}",
            "tests": str(len(listed)),
            "timestamp": run.started_at,
            "time": f"{sum(judgement.seconds for judgement in listed):.3f}",
        }
        suite = ElementTree.SubElement(root, "testsuite", facts | _counts(listed))
        for judgement in listed:
            _case(suite, judgement)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _counts(judgements: list[Judgement]) -> dict[str, str]:
    kinds = Counter(_kind(judgement) for judgement in judgements)
    return {"failures": str(kinds["failure"]), "errors": str(kinds["error"]), "skipped": str(kinds["skipped"])}


def _kind(judgement: Judgement) -> str:
    match judgement.verdict:
        case Verdict.FAIL:
            return "skipped" if judgement.expected else "failure"
        case Verdict.ENGINE_ERROR:
            return "error"
        case Verdict.NOT_JUDGED | Verdict.UNTESTABLE | Verdict.BLOCKED:
            return "skipped"
        case _:
            return ""


def _case(suite: ElementTree.Element, judgement: Judgement) -> None:
    record = judgement.requirement
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"conformance.{record.area}", name=record.id, time=f"{judgement.seconds:.3f}"
    )
    kind = _kind(judgement)
    if kind:
        blocked = f"blocked by {judgement.blocked_by}: " if judgement.blocked_by else ""
        found = ElementTree.SubElement(case, kind, message=printable(blocked + judgement.reason))
        if kind != "skipped":
            found.set("type", f"{record.level} requirement")
            found.text = printable(
                f"{record.sentence}\naccepted: {record.accepted}\nseen: {judgement.reason}\n{judgement.traceback}"
            )
    if judgement.seen:
        ElementTree.SubElement(case, "system-out").text = printable("\n".join(judgement.seen))


def printable(text: str) -> str:
    """The text with escapes in place of the control characters that XML cannot hold."""
    return "".join(letter if letter >= " " or letter in "\n\t" else f"\\x{ord(letter):02x}" for letter in text)
