"""A run on the terminal: progress while it goes on, then a table of areas, what is not a plain pass, and the verdict."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from conformance.plan import BASE_CONFIGS, Group
from conformance.requirement import AREAS, Entry, Requirement
from conformance.results import Judgement, Run, RunVerdict, Verdict

STYLE = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.TOLERATED: "yellow",
    Verdict.SKIPPED: "dim",
    Verdict.UNTESTABLE: "dim",
    Verdict.ENGINE_ERROR: "bold magenta",
}
RUN_STYLE = {RunVerdict.PASS: "bold green", RunVerdict.FAIL: "bold red", RunVerdict.UNKNOWN: "bold yellow"}


class Progress:
    """Says on standard error what is going on: one line that is written over, or a line each where nobody watches."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
        self.done = 0
        self.status = console.status("") if console.is_terminal else None
        if self.status:
            self.status.start()

    def starting(self, group: Group, number: int, groups: int) -> None:
        """The target starts for a group of requirements."""
        special = {key: value for key, value in group.configs.items() if BASE_CONFIGS.get(key) != value}
        said = ", ".join(f"{key}={value}" for key, value in special.items())
        self._say(f"starting the target ({number} of {groups}){': ' + said if said else ''}")

    def judging(self, entry: Entry) -> None:
        """A requirement's test begins."""
        self._say(
            f"{self.done}/{self.total}  {entry.requirement.id}  {_first(entry.requirement.sentence, 80)}", often=True
        )

    def judged(self, judgement: Judgement) -> None:
        """A requirement's verdict stands; what is not a plain pass is said at once."""
        self.done += 1
        if judgement.verdict in (Verdict.FAIL, Verdict.TOLERATED, Verdict.ENGINE_ERROR):
            head = Text(f"{judgement.requirement.id} ")
            self.console.print(head + verdict_text(judgement) + Text(_first(judgement.reason, 160)))

    def finish(self) -> None:
        """Take the line away."""
        if self.status:
            self.status.stop()

    def _say(self, text: str, *, often: bool = False) -> None:
        if self.status:
            self.status.update(escape(text))
        elif not often:
            self.console.print(escape(text))


def verdict_text(judgement: Judgement) -> Text:
    """The verdict in its colour; an expected failure says so."""
    word = f"{judgement.verdict}{' (expected)' if judgement.expected else ''}"
    return Text(f"{word:<12} ", style=STYLE[judgement.verdict])


def show(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print a whole run."""
    console.print(_areas(run))
    for judgement in run.judgements:
        if verbose or judgement.verdict in (Verdict.FAIL, Verdict.TOLERATED, Verdict.ENGINE_ERROR):
            show_judgement(judgement, console)
    _skips(run, console)
    for shown in run.demonstrations:
        verdict = Text(f"{shown.verdict:<8}", style=RUN_STYLE[shown.verdict])
        console.print(verdict + Text(f"{shown.title}  ({shown.command}, {shown.seconds:.0f} s)"))
    who = f"{run.target.spec} as Kafka {run.target.kafka_version}" if run.target.kafka_version else run.target.spec
    console.print(
        Text.assemble((f"{run.verdict}", RUN_STYLE[run.verdict]), f"  {who}  {run.seconds:.1f} s  {run.reason}")
    )


def _areas(run: Run) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("area")
    for verdict in Verdict:
        table.add_column(str(verdict), justify="right")
    for area, judgements in groupby(run.judgements, key=lambda judgement: judgement.requirement.area):
        counts = Counter(judgement.verdict for judgement in judgements)
        cells = [Text(str(counts[v]), style=STYLE[v]) if counts[v] else Text("·", style="dim") for v in Verdict]
        table.add_row(f"{area}  {AREAS[area]}", *cells)
    return table


def show_judgement(judgement: Judgement, console: Console) -> None:
    """One requirement: what it asks, what is accepted, what was seen, and the last exchanges in one line each."""
    record = judgement.requirement
    console.print()
    console.print(Text.assemble((record.id, "bold"), f"  {record.level}  ", verdict_text(judgement)))
    console.print(Text(f"  {record.sentence}"))
    for label, text in (("accepted", record.accepted), ("seen", judgement.reason or "; ".join(judgement.seen))):
        if text:
            console.print(Text.assemble((f"  {label}: ", "dim"), text))
    for exchange in judgement.exchanges[-3:] if judgement.verdict is Verdict.FAIL else []:
        said = f"{exchange.api} v{exchange.version}" if exchange.api else "raw bytes"
        console.print(
            Text(f"  {said}, {exchange.request_bytes} bytes → {exchange.outcome}, {exchange.response_bytes} bytes, "
                 f"{exchange.elapsed_ms:.0f} ms", style="dim")
        )  # fmt: skip
    if judgement.traceback:
        console.print(Text(judgement.traceback, style="dim"))


def _skips(run: Run, console: Console) -> None:
    """Why requirements were skipped, each reason once."""
    reasons: dict[str, list[str]] = {}
    for judgement in run.judgements:
        if judgement.verdict is Verdict.SKIPPED:
            reasons.setdefault(judgement.reason, []).append(judgement.requirement.id)
    if reasons:
        console.print()
    for reason, ids in reasons.items():
        console.print(Text(f"skipped {', '.join(ids)}: {reason}", style="dim"))


def show_requirement(record: Requirement, console: Console) -> None:
    """All that is known of one requirement, as `explain` prints it."""
    console.print(
        Text.assemble((record.id, "bold"), f"  {AREAS[record.area]}  ({record.level}, profile {record.profile})")
    )
    console.print(Text(f"\n  {record.sentence}\n"))
    needs = record.needs.model_dump(exclude_defaults=True)
    rows = {
        "notices": record.notices,
        "accepted": record.accepted,
        "tolerated": record.tolerated,
        "source": record.source,
        "since": record.since,
        "until": record.until,
        "needs": ", ".join(f"{key} {value}" for key, value in needs.items()),
        "confirmed": ", ".join(f"Kafka {version}" for version in record.confirmed) or "not yet",
        "untestable": record.untestable,
        "the draft": record.draft,
    }
    for label, text in rows.items():
        if text:
            console.print(Text.assemble((f"  {label:<11}", "dim"), text))


def _first(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
