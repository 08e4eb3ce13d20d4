"""A run as Markdown, for a pull request or the summary of a CI job."""

from __future__ import annotations

from conformance.results import Change, Run, coverage, profile_tallies, root_causes

CAUSES_SHOWN = 20
CHANGES_SHOWN = 50


def summary(run: Run) -> str:
    """The verdict, one line for each profile, the changes against the baseline, and the root causes."""
    lines = [f"## Conformance of {_text(run.target.title)}: {run.verdict}", ""]
    if run.reason:
        lines += [_text(run.reason, 300), ""]
    lines += ["| profile | musts | judged | failed |", "| --- | ---: | ---: | ---: |"]
    for tally in profile_tallies(run.judgements, run.target.kafka_version):
        lines.append(f"| {tally.profile} | {tally.musts} | {tally.judged} | {len(tally.failed)} |")
    lines += ["", coverage(run.judgements).line, ""]
    if run.baseline:
        lines += _changes("Worse than the baseline", run.worse) + _changes("Better than the baseline", run.better)
    causes = root_causes(run.judgements)
    if causes:
        lines += [
            f"### Failures by root cause: {len(causes)}",
            "",
            "| requirement | level | seen | blocks |",
            "| --- | --- | --- | --- |",
        ]
        for cause in causes[:CAUSES_SHOWN]:
            one = cause.judgement
            lines.append(
                f"| {one.requirement.id} | {one.requirement.level} | {_text(one.reason, 200)} | {len(cause.blocks) or ''} |"
            )
        if len(causes) > CAUSES_SHOWN:
            lines += ["", f"and {len(causes) - CAUSES_SHOWN} more in the report"]
        lines.append("")
    lines.append(f"tidegauge {run.suite_version}, {run.started_at[:19].replace('T', ' ')} UTC, {run.seconds:.0f} s")
    return "\n".join(lines) + "\n"


def _changes(title: str, changes: list[Change]) -> list[str]:
    lines = [f"### {title}: {len(changes)}", ""]
    lines += [
        f"- {one.id}: {one.before}, now {one.now}. {_text(one.reason, 200)}".rstrip() for one in changes[:CHANGES_SHOWN]
    ]
    return [*lines, ""]


def _text(text: str, limit: int = 100) -> str:
    """The text in one line, escaped for Markdown, also inside a table."""
    short = " ".join(text.split())
    short = short if len(short) <= limit else short[: limit - 1] + "…"
    return "".join(f"\\{letter}" if letter in "\\|*_`<>[]" else letter for letter in short)
