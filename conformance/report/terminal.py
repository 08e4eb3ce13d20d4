"""A run on the terminal: progress during the run, then a table of areas, the root causes, the profiles, and the verdict.

A run with hundreds of failures stays under 100 lines. The HTML report, or `--verbose`, has the details.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from conformance.plan import BASE_CONFIGS, Group
from conformance.requirement import AREAS, Entry, Requirement
from conformance.results import Cause, Judgement, Run, RunVerdict, Verdict, coverage, profile_tallies, root_causes
from conformance.waits import Reminder, Wait, said
from linearizability.progress import is_verbose, time_left

STYLE = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.TOLERATED: "yellow",
    Verdict.BLOCKED: "red",
    Verdict.NOT_JUDGED: "dim",
    Verdict.UNTESTABLE: "dim",
    Verdict.ENGINE_ERROR: "bold magenta",
}
CAUSES_IN_FULL, CAUSES_NAMED = 8, 20
"""The number of root causes with sentence and evidence, and of further ones in one line each."""
REASONS_SHOWN = 10
IDS_SHOWN = 8
LEAST_AREA_WIDTH = 4
MOMENT_S = 3.0
"""A longer wait is shown on the terminal, with its time."""
VERBOSE_S, TERSE_S = 10.0, 30.0
"""The interval of lines about waits in a pipe, which is also the least wait with a line: verbose, and by default."""
RUN_STYLE = {RunVerdict.PASS: "bold green", RunVerdict.FAIL: "bold red", RunVerdict.UNKNOWN: "bold yellow"}


class Progress:
    """Shows progress on standard error: one line that is overwritten on a terminal, else separate lines."""

    def __init__(self, console: Console, total: int, stream: Callable[[Judgement], None] | None = None) -> None:
        self.console = console
        self.stream = stream
        """Called with each judgement as soon as it is final."""
        self.total = total
        self.done = 0
        self.began = time.monotonic()
        self.reminder = Reminder(VERBOSE_S if is_verbose() else TERSE_S)
        self.status = console.status("") if console.is_terminal and not is_verbose() else None
        if self.status:
            self.status.start()

    def starting(self, group: Group, number: int, groups: int) -> None:
        """Show that the target starts for a group of requirements."""
        special = {key: value for key, value in group.configs.items() if BASE_CONFIGS.get(key) != value}
        said = ", ".join(f"{key}={value}" for key, value in special.items())
        self._say(f"starting the target ({number} of {groups}), {self._done()}{': ' + said if said else ''}")

    def judging(self, entry: Entry) -> None:
        """Show that a requirement's test begins."""
        self._say(f"{self._done()}  {entry.requirement.id}  {_first(entry.requirement.sentence, 80)}", often=True)

    def _done(self) -> str:
        share = self.done / self.total if self.total else 0.0
        return f"{self.done} of {self.total} judged{time_left(share, time.monotonic() - self.began)}"

    def judged(self, judgement: Judgement) -> None:
        """Count a judgement, and print it at once where it failed, is tolerated, or is an engine error."""
        self.done += 1
        if self.stream:
            self.stream(judgement)
        if judgement.verdict in (Verdict.FAIL, Verdict.TOLERATED, Verdict.ENGINE_ERROR):
            head = Text(f"{judgement.requirement.id} ")
            self.console.print(head + verdict_text(judgement) + Text(_first(judgement.reason, 160)), soft_wrap=True)

    def waiting(self, waits: list[Wait]) -> None:
        """Show the run's waits: on a terminal any that is longer than MOMENT_S, in a pipe at intervals."""
        if self.status and waits[0].seconds >= MOMENT_S:
            self.status.update(escape(f"{self._done()}  {said(waits)}"))
        elif not self.status and (text := self.reminder.text(waits)):
            self.console.print(escape(f"{self._done()}  {text}"), soft_wrap=True)

    def finish(self) -> None:
        """Remove the status line."""
        if self.status:
            self.status.stop()

    def _say(self, text: str, *, often: bool = False) -> None:
        if self.status:
            self.status.update(escape(text))
        elif is_verbose() or not often:
            self.console.print(escape(text), soft_wrap=True)


def verdict_text(judgement: Judgement) -> Text:
    """The verdict in its colour, with a mark for an expected failure."""
    word = f"{judgement.verdict}{' (expected)' if judgement.expected else ''}"
    return Text(f"{word:<12} ", style=STYLE[judgement.verdict])


def show(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print a whole run. Where nothing could be judged, for one reason, print only that reason."""
    if _is_nothing_judged(run):
        console.print(Text.assemble((f"{run.verdict}", RUN_STYLE[run.verdict]), f"  {run.reason}"), soft_wrap=True)
        return
    console.print(_areas(run, console.width))
    if verbose:
        for judgement in run.judgements:
            show_judgement(judgement, console)
    else:
        _show_causes(run, console)
    _not_judged(run, console, every=verbose)
    for failure in run.target.not_revived:
        console.print(Text(f"bringing the target back failed: {failure}", style="yellow"))
    for death in run.unexplained_deaths:
        console.print(Text(f"the target ended {_first(death, 300)}", style="bold yellow"))
    for shown in run.demonstrations:
        verdict = Text(f"{shown.verdict:<8}", style=RUN_STYLE[shown.verdict])
        console.print(verdict + Text(f"{shown.title}  ({shown.command}, {shown.seconds:.0f} s)"))
    console.print()
    show_verdict(run, console)


def _is_nothing_judged(run: Run) -> bool:
    """Whether the target broke before any judgement. The run's reason has the last log lines, a requirement's only one of
    them."""
    reasons = {one.reason for one in run.judgements if one.verdict is not Verdict.UNTESTABLE}
    verdicts = {one.verdict for one in run.judgements}
    return run.broken and len(reasons) == 1 and verdicts <= {Verdict.NOT_JUDGED, Verdict.UNTESTABLE}


def show_verdict(run: Run, console: Console) -> None:
    """Print one line for each profile, the changes against the baseline, and the verdict."""
    for tally in profile_tallies(run.judgements, run.target.kafka_version):
        console.print(Text(tally.line, style="bold red" if tally.failed else ""))
    console.print(Text(coverage(run.judgements).line), soft_wrap=True)
    for word, changes, style in (("worse", run.worse, "bold red"), ("better", run.better, "green")):
        listed = _ids([f"{one.id} ({one.before}, now {one.now})" for one in changes])
        if run.baseline:
            console.print(
                Text(f"{word} than the baseline: {listed or 'nothing'}", style=style if changes else ""), soft_wrap=True
            )
    who = run.target.title
    reason = run.reason if _is_nothing_judged(run) else _first(run.reason, 200)
    said = Text.assemble((f"{run.verdict}", RUN_STYLE[run.verdict]), f"  {who}  {run.seconds:.1f} s  {reason}")
    said.rstrip()
    console.print(said, soft_wrap=True)


def _show_causes(run: Run, console: Console) -> None:
    """Print the root causes, the worst first, then engine errors and tolerated requirements."""
    causes = root_causes(run.judgements)
    for cause in causes[:CAUSES_IN_FULL]:
        show_judgement(cause.judgement, console)
        if cause.blocks:
            console.print(Text(f"  blocks {_ids(cause.blocks)}", style="red"))
    if len(causes) > CAUSES_IN_FULL:
        console.print()
    for cause in causes[CAUSES_IN_FULL : CAUSES_IN_FULL + CAUSES_NAMED]:
        console.print(_in_a_line(cause), soft_wrap=True)
    left = len(causes) - CAUSES_IN_FULL - CAUSES_NAMED
    if left > 0:
        console.print(f"and {left} more failures: the report has them all, or --verbose")
    for verdict in (Verdict.ENGINE_ERROR, Verdict.TOLERATED):
        reported = [one for one in run.judgements if one.verdict is verdict]
        for judgement in reported[:CAUSES_IN_FULL]:
            show_judgement(judgement, console)
        if len(reported) > CAUSES_IN_FULL:
            console.print(f"{verdict}: {_ids([one.requirement.id for one in reported[CAUSES_IN_FULL:]])}")


def _in_a_line(cause: Cause) -> Text:
    record = cause.judgement.requirement
    blocks = f"  blocks {len(cause.blocks)}" if cause.blocks else ""
    return Text.assemble(
        (record.id, "bold"), f"  {record.level:<6} {_first(cause.judgement.reason, 110)}", (blocks, "red")
    )


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
    return ", ".join(ids[:IDS_SHOWN]) + more


def _areas(run: Run, width: int) -> Table:
    """A table of counts by area and verdict. On a narrow terminal only the areas' titles are cut."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    seen = {judgement.verdict for judgement in run.judgements}
    shown = [verdict for verdict in Verdict if verdict in seen]
    left = width - sum(len(str(verdict)) + 2 for verdict in shown)
    table.add_column("area", no_wrap=True, overflow="ellipsis", max_width=max(left, LEAST_AREA_WIDTH))
    for verdict in shown:
        table.add_column(str(verdict), justify="right", no_wrap=True)
    for area, judgements in groupby(run.judgements, key=lambda judgement: judgement.requirement.area):
        counts = Counter(judgement.verdict for judgement in judgements)
        cells = [Text(str(counts[v]), style=STYLE[v]) if counts[v] else Text("·", style="dim") for v in shown]
        table.add_row(f"{area}  {AREAS[area]}", *cells)
    return table


def show_judgement(judgement: Judgement, console: Console) -> None:
    """Print one requirement: its sentence, what it accepts, the observations, and the last exchanges of a failure in one line
    each."""
    record = judgement.requirement
    console.print()
    console.print(Text.assemble((record.id, "bold"), f"  {record.level}  ", verdict_text(judgement)))
    console.print(Text(f"  {record.sentence}"))
    for label, text in (("accepted", record.accepted), ("seen", judgement.reason or "; ".join(judgement.seen))):
        if text:
            console.print(Text.assemble((f"  {label}: ", "dim"), _first(text, 400)), soft_wrap=True)
    for exchange in judgement.exchanges[-2:] if judgement.verdict is Verdict.FAIL else []:
        said = f"{exchange.api} v{exchange.version}" if exchange.api else "raw bytes"
        console.print(
            Text(
                f"  {said}, {exchange.request_bytes} bytes → {exchange.outcome}, {exchange.response_bytes} bytes, "
                f"{exchange.elapsed_ms:.0f} ms",
                style="dim",
            )
        )
    if judgement.traceback:
        console.print(Text(judgement.traceback, style="dim"))


def _not_judged(run: Run, console: Console, *, every: bool) -> None:
    """Print why requirements were not judged, each reason once, the most frequent first."""
    reasons: dict[str, list[str]] = {}
    for judgement in run.judgements:
        if judgement.verdict is Verdict.NOT_JUDGED:
            reasons.setdefault(judgement.reason, []).append(judgement.requirement.id)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    shown = ordered if every else ordered[:REASONS_SHOWN]
    if ordered:
        console.print()
    for reason, ids in shown:
        listed = ", ".join(ids) if every else _ids(ids)
        console.print(Text(f"not judged {listed}: {_first(reason, 160)}", style="dim"), soft_wrap=True)
    left = [id for _, ids in ordered[len(shown) :] for id in ids]
    if left:
        console.print(Text(f"not judged {_ids(left)}: other reasons", style="dim"))


def show_requirement(record: Requirement, console: Console) -> None:
    """Print everything about one requirement, for `explain`."""
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
        "owed": record.owed,
        "requires": ", ".join(record.prerequisites),
        "builds on": ", ".join(record.builds_on),
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
