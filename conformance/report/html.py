"""A run, or several side by side, as one HTML file without external resources."""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from conformance.levels import Level
from conformance.report import anatomy
from conformance.report.matrix import Matrix, totals
from conformance.requirement import AREAS, Requirement
from conformance.results import (
    Judgement,
    ProfileTally,
    RecordedExchange,
    Run,
    Verdict,
    coverage,
    profile_tallies,
    root_causes,
)

HERE = Path(__file__).parent
SHOWN_BYTES = 1024
"""The most bytes of a message on the page; `report.json` keeps more."""
SHOWN_EXCHANGES = 12
"""The most exchanges of a requirement on the page, the last ones. Keeps it under 2 MB with hundreds of failures."""
SHOWN_OF_BLOCKED = 2

LEGEND = {
    "pass": "what the requirement accepts was seen",
    "fail": "anything else was seen, also no answer or an unreadable one",
    "tolerated": "not what Kafka does, but what the requirement puts up with",
    "blocked": "another requirement that this one builds on fails",
    "not judged": "the target lacks an API, a version, nodes, a fault hook or a configuration",
    "untestable": "nothing outside of a broker can judge it",
    "engine error": "the suite failed; says nothing about the target",
}

T = TypeVar("T")


def run_page(run: Run) -> str:
    """The report of one run: first the failures by root cause, then all other judgements by area."""
    counts = Counter(str(judgement.verdict) for judgement in run.judgements)
    exchanges = {
        f"{judgement.requirement.id}/{number}": _taken_apart(exchange)
        for judgement in run.judgements
        for number, exchange in _shown(judgement)
    }
    causes, errors = root_causes(run.judgements), [one for one in run.judgements if one.verdict is Verdict.ENGINE_ERROR]
    tallies = profile_tallies(run.judgements, run.target.kafka_version)
    apart = (Verdict.FAIL, Verdict.ENGINE_ERROR)
    areas = [
        (area, title, _counted(members), [one for one in members if one.verdict not in apart])
        for area, title, members in _by_area(run.judgements, lambda judgement: judgement.requirement)
    ]
    filters = {
        "verdict": [str(verdict) for verdict in Verdict if counts[verdict]],
        "level": [str(level) for level in Level],
        "profile": [str(tally.profile) for tally in tallies],
    }
    return _render(
        "run.html.j2",
        run=run,
        by_verdict=counts,
        areas=areas,
        causes=causes,
        errors=errors,
        shown=_shown,
        rows=partial(_rows, target=run.target.spec),
        exchanges=_embedded(exchanges),
        filters=filters.items(),
        legend=LEGEND.items(),
        profiles=[(tally, _musts(tally)) for tally in tallies],
        coverage=coverage(run.judgements).line,
    )


def _counted(judgements: Iterable[Judgement]) -> dict[str, int]:
    counts = Counter(judgement.verdict for judgement in judgements)
    return {str(verdict): counts[verdict] for verdict in Verdict}


def _musts(tally: ProfileTally) -> list[tuple[str, int]]:
    failed = len(tally.failed)
    return [("pass", tally.judged - failed), ("fail", failed), ("not judged", tally.musts - tally.judged)]


def _rows(judgement: Judgement, target: str) -> list[tuple[str, str]]:
    """The facts about a requirement and its verdict, with a label each, without empty ones."""
    record = judgement.requirement
    is_wrong = judgement.verdict in (Verdict.FAIL, Verdict.TOLERATED, Verdict.ENGINE_ERROR)
    rows = {
        "why": judgement.reason + (" (an expected failure)" if judgement.expected else ""),
        "seen": "; ".join(judgement.seen),
        "accepted": record.accepted,
        "tolerated": record.tolerated,
        "notices": record.notices,
        "requires": ", ".join(record.prerequisites),
        "builds on": ", ".join(record.builds_on),
        "source": record.source,
        "owed": record.owed,
        "confirmed": f"Kafka {', '.join(record.confirmed)}" if record.confirmed else "not yet",
        "the draft": record.draft,
        "took": _time(judgement.seconds) if judgement.seconds else "",
        "once more": f"tidegauge run {record.id} --target {shlex.quote(target)}" if is_wrong else "",
    }
    return [(label, text) for label, text in rows.items() if text]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _shown(judgement: Judgement) -> list[tuple[int, RecordedExchange]]:
    """The exchanges on the page, with their numbers: the last ones of a judgement; none of a pass or where nothing was
    judged."""
    if judgement.verdict in (Verdict.PASS, Verdict.NOT_JUDGED):
        return []
    most = SHOWN_OF_BLOCKED if judgement.verdict is Verdict.BLOCKED else SHOWN_EXCHANGES
    return list(enumerate(judgement.exchanges))[-most:]


def matrix_page(found: Matrix) -> str:
    """The page of several runs side by side."""
    verdicts = [str(v) for v in Verdict if any(str(v) in row.verdicts for row in found.rows)]
    areas = _by_area(found.rows, lambda row: row.requirement)
    return _render("matrix.html.j2", matrix=found, totals=totals(found), verdicts=verdicts, areas=areas)


def _render(template: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    resources = {name: Markup((HERE / f"page.{name}").read_text()) for name in ("css", "js")}
    return environment.get_template(template).render(**resources, **values)


def _by_area(items: Iterable[T], record_of: Callable[[T], Requirement]) -> list[tuple[str, str, list[T]]]:
    grouped = groupby(items, key=lambda item: record_of(item).area)
    return [(area, AREAS[area], list(members)) for area, members in grouped]


def _taken_apart(exchange: RecordedExchange) -> list[Any]:
    def rows(found: list[anatomy.Row]) -> list[list[Any]]:
        return [[row.depth, row.name, row.value, row.start, row.end] for row in found]

    return [
        exchange.request_hex[: SHOWN_BYTES * 2],
        rows(anatomy.of_request(exchange)),
        exchange.response_hex[: SHOWN_BYTES * 2],
        rows(anatomy.of_response(exchange)),
        exchange.request_bytes,
        exchange.response_bytes,
    ]


def _embedded(value: object) -> str:
    """The value as compressed JSON in base64: a run of all areas would otherwise be tens of megabytes."""
    return base64.b64encode(gzip.compress(json.dumps(value, separators=(",", ":")).encode(), mtime=0)).decode()
