"""Keeps Ctrl-C from being lost. An interrupted benchmark reports its measurements so far, and exits with 130.

table = {"rows": []}
with until_interrupted(table), open_for_bench(...) as target:     # the brokers are stopped first
    ...
announce(table)
show(table)                                                       # the same rows as JSON, with "interrupted"
leave(table)
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import typer

INTERRUPTED = 130
AGAIN_AFTER_S = 0.05


def raise_lost_interrupts() -> None:
    """From now on, raise a KeyboardInterrupt again that an extension has swallowed.

    pydantic's core asks whether a value is a Mapping. An exception in that question is ignored, Ctrl-C in just that moment too,
    and the command would run on for hours.
    """
    former = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        main = threading.main_thread().ident
        if not issubclass(lost.exc_type, KeyboardInterrupt) or main is None:
            return former(lost)
        again = threading.Timer(
            AGAIN_AFTER_S, signal.pthread_kill, (main, signal.SIGINT)
        )  # not here: it would be lost again
        again.daemon = True
        again.start()

    sys.unraisablehook = hook


@contextmanager
def until_interrupted(table: MutableMapping[str, Any]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block early, without an error; `interrupted` in the table says whether they did."""
    table["interrupted"] = False
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_main_thread else None
    try:
        yield
    except KeyboardInterrupt:
        table["interrupted"] = True
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def announce(table: Mapping[str, Any]) -> None:
    """Print above the rows that they are incomplete, if they are."""
    if table["interrupted"]:
        typer.echo("interrupted: what was measured until then:")


def leave(table: Mapping[str, Any], code: int = 0) -> None:
    """Exit with this code, or with 130 where it is 0 and the benchmark was interrupted; return where all is well."""
    code = code or (INTERRUPTED if table["interrupted"] else 0)
    if code:
        raise typer.Exit(code)
