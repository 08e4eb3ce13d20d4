"""Runs commands one after the other, each in a fork of this process, which has imported what most of them need.

A line of standard input is `{"words": [...], "folder": ..., "output": ..., "environment": {...}}`; what the command prints goes to
the file `output`. A line of standard output is its exit code.
"""

import importlib
import json
import os
import sys

from conformance.requirement import catalogue
from tidegauge import COMMANDS, main

LATER = (
    "conformance.report.html", "conformance.report.terminal", "conformance.runner", "linearizability.history.store",
    "linearizability.pipeline.engine", "linearizability.simulation.fuzzing",
)  # fmt: skip
"""What commands import when they need it."""


def run(words: list[str], folder: str, output: str, environment: dict[str, str]) -> int:
    """The exit code of a command."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.update(environment)
    try:
        main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    for module in [*(module for module, _ in COMMANDS.values()), *LATER]:
        importlib.import_module(module)
    catalogue()
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
