"""The matrix: a row a requirement, a column a release of Apache Kafka or a broker that others wrote."""

from __future__ import annotations

from html import escape

from conformance.releases import NOT_MEASURED, OWN_BUG, RELEASES
from conformance.requirement import AREAS, Entry, catalogue
from docs.site.evidence import NOT_OWED, Evidence, on_releases, strangers

MARKS = {
    "pass": ("✓", "it passes"),
    "tolerated": ("~", "it does otherwise, in a way that is tolerated"),
    "fail": ("✗", "it fails"),
    OWN_BUG: ("K", "it fails by a bug of Kafka that is known"),
    "blocked": ("b", "blocked: what it builds on fails, or the target offers no way to it"),
    "engine error": ("e", "the suite broke"),
    "not judged": ("–", "not judged: the target lacks what it needs, or the machine was too slow"),
    NOT_MEASURED: ("?", "not measured"),
    "untestable": ("u", "nothing can test it from outside"),
    NOT_OWED: ("·", "not owed by this release"),
}
"""Verdict -> what stands in its cell, and what that means."""


def matrix_page() -> str:
    """Markdown with one HTML table an area."""
    parts = [
        "# Matrix of releases and strangers",
        "What the suite says of Apache Kafka's releases and of brokers that others wrote: `tidegauge releases show` and "
        "`tidegauge strangers show` print the same. A verdict that was measured before its test changed is in brackets.",
        "| | |\n|---|---|\n" + "\n".join(f"| {mark} | {meaning} |" for mark, meaning in MARKS.values()),
    ]
    for area, title in AREAS.items():
        entries = [entry for entry in catalogue().values() if entry.requirement.area == area]
        if entries:
            parts += [f"## {area}: {title}", f"```{{raw}} html\n{_table(title, entries)}\n```"]
    return "\n\n".join(parts) + "\n"


def _table(title: str, entries: list[Entry]) -> str:
    columns = [*RELEASES, *(one.target for one in strangers())]
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in columns)
    rows = "\n".join(_row(entry) for entry in entries)
    return (
        f'<div class="matrix" tabindex="0" role="region" aria-label="{escape(title)}"><table>\n'
        f'<thead><tr><th scope="col">requirement</th>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>'
    )


def _row(entry: Entry) -> str:
    record = entry.requirement
    others = [Evidence(one.verdicts.get(record.id, NOT_MEASURED)) for one in strangers()]
    cells = "".join(_cell(evidence) for evidence in (*on_releases(entry).values(), *others))
    link = f'<a href="{record.id}.html" title="{escape(record.sentence)}">{record.id}</a>'
    return f'<tr><th scope="row">{link}</th>{cells}</tr>'


def _cell(evidence: Evidence) -> str:
    mark = MARKS[evidence.verdict][0]
    shown = f"({mark})" if evidence.outdated else mark
    title = f"{evidence.verdict}: {evidence.reason}" if evidence.reason else evidence.verdict
    return f'<td class="{evidence.verdict.split()[-1]}" title="{escape(title)}">{shown}</td>'
