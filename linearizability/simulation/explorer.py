"""Makes the explorer's page of a simulated run."""

from __future__ import annotations

import re

from linearizability.explorer.history import operations_of, worst_of
from linearizability.explorer.page import Event, Operation, Run, page
from linearizability.history.streams import History
from linearizability.pipeline.verdict import Judgement
from linearizability.simulation.judging import Outcome
from linearizability.simulation.world import Trace

RECORD = re.compile(r"(\S+-\d+)(?:: .* up to| record| offset) (\d+)")
"""Matches a record in the text of a violated invariant."""


def explorer(outcome: Outcome, trace: Trace) -> str:
    """Return the page of a run."""
    title = f"seed {outcome.schedule.seed}: {outcome.verdict} {outcome.rule}".strip()
    events = [Event(*each) for each in trace.events]
    return page(Run(title, events, trace.samples, _operations(outcome), outcome.rule, outcome.text, _record(outcome)))


def _judgement(outcome: Outcome) -> tuple[History, Judgement]:
    """Return the clients' histories and their judgement, which is empty if an invariant ended the run."""
    histories = outcome.histories
    history = History("", events=lambda: (event for each in histories for event in each.events))
    return history, outcome.judgement or Judgement("", outcome.verdict)


def _operations(outcome: Outcome) -> list[Operation]:
    return operations_of(*_judgement(outcome))


def _record(outcome: Outcome) -> tuple[str, int] | None:
    if named := RECORD.search(outcome.text):
        return named[1], int(named[2])
    return worst_of(*_judgement(outcome))[2]
