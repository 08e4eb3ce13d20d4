"""Runs commands one after the other, each in a fork of this process, which has imported all of them: `python -m tests.repository.shop`.

A line of standard input is `{"words": [...], "folder": ..., "output": ..., "environment": {...}}`; what the command prints goes to
the file `output`. A line of standard output is its exit code.
"""

import importlib
import json
import os
import sys

from tidegauge import COMMANDS, main


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
    for module, _ in COMMANDS.values():
        importlib.import_module(module)
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
