"""Reading histories in any form: files and folders to histories in memory, or to streams of facts for what is larger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.importers import IMPORTERS, detect_foreign
from linearizability.history.native import NativeFile, history_files, read_run
from linearizability.history.paired import from_streams, read_neutral
from linearizability.history.recorder import FILE_PATTERN
from linearizability.history.streams import History


def detect(path: Path) -> str:
    """A file's form by its first line: native, neutral, or an importer's name. Errors: HistoryError."""
    with closing(numbered_lines(path)) as lines:
        first = next((line for _, line, _ in lines if line.strip()), b"")
    if not first:
        raise HistoryError(path, 1, "the file is empty")
    try:
        document = json.loads(first)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        if document.get("type") == "header" and str(document.get("format", "")).startswith("tidegauge-history/"):
            return "native"
        if "history" in document:
            return "neutral"
    foreign = detect_foreign(first, document)
    if foreign is None:
        raise HistoryError(path, 1, "not a history in any form that is known")
    return foreign


def read_histories(paths: Iterable[Path], form: str = "auto") -> Iterator[History | HistoryError]:
    """All histories of files and folders. Native files of one run are one history; a file that is none yields its error."""
    runs: dict[str, list[Path]] = {}
    for path in paths:
        try:
            if path.is_dir() and form not in IMPORTERS:
                files = history_files(path)
                if not files:
                    raise HistoryError(path, 0, f"holds no {FILE_PATTERN}")
                runs[str(path)] = files
                continue
            chosen = detect(path) if form == "auto" else form
            if chosen == "native":
                runs.setdefault(NativeFile(path).summary.run or str(path), []).append(path)
            elif chosen == "neutral":
                yield from read_neutral(path)
            else:
                yield from_streams(path.stem, IMPORTERS[chosen](path))
        except HistoryError as error:
            yield error
        except OSError as error:
            yield HistoryError(path, 0, error.strerror or str(error))
    for files in runs.values():
        try:
            yield read_run(files)
        except HistoryError as error:
            yield error
