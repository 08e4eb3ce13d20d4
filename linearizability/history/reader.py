"""Reading histories in any form: files and folders to histories in memory, or to streams of facts for what is larger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.importers import IMPORTERS, detect_foreign
from linearizability.history.native import NativeFile, history_files, read_run
from linearizability.history.paired import from_streams, read_neutral
from linearizability.history.recorder import FILE_PATTERN
from linearizability.history.streams import History

COMMENT = b";"
OPENING = (b"[", b"(", b"{", b"#")
"""How EDN begins: the first operation of a client may be some lines farther down."""
LINES_OF_A_HEAD = 50


def detect(path: Path) -> str:
    """A file's form by its first lines: native, neutral, or an importer's name. Errors: HistoryError."""
    with closing(numbered_lines(path)) as lines:
        said = (line for _, line, _ in lines if line.strip() and not line.lstrip().startswith(COMMENT))
        first = next(said, b"")
        head = b"".join([first, *islice(said, LINES_OF_A_HEAD)]) if first.lstrip().startswith(OPENING) else first
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
    foreign = detect_foreign(head, document)
    if foreign is None:
        raise HistoryError(path, 1, "not a history in any form that is known")
    return foreign


@dataclass
class Sources:
    """Files and folders by their form."""

    runs: list[list[Path]] = field(default_factory=list)
    """The native files of each run."""
    others: list[tuple[Path, str] | HistoryError] = field(default_factory=list)
    """Files of another form, with the form's name, and the errors of files that are no history."""


def sources_of(paths: Iterable[Path], form: str = "auto") -> Sources:
    """Sort paths by form. A folder of native files is one run; files that are named one by one go by their header's run."""
    others: list[tuple[Path, str] | HistoryError] = []
    runs: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        try:
            if path.is_dir() and form not in IMPORTERS:
                files = history_files(path)
                if not files:
                    inner = sum(1 for one in path.iterdir() if one.is_dir() and history_files(one))
                    hint = f"; its folders do: '{path}/*' names {inner} of them" if inner else ""
                    raise HistoryError(path, 0, f"holds no {FILE_PATTERN}{hint}")
                runs["folder", str(path)] = files
                continue
            chosen = detect(path) if form == "auto" else form
            if chosen == "native":
                run = NativeFile(path).summary.run
                runs.setdefault(("run", run) if run else ("file", str(path)), []).append(path)
            else:
                others.append((path, chosen))
        except HistoryError as error:
            others.append(error)
        except OSError as error:
            others.append(HistoryError(path, 0, error.strerror or str(error)))
    return Sources(list(runs.values()), others)


def read_histories(
    paths: Iterable[Path], form: str = "auto", given: Contract = NOTHING_GIVEN
) -> Iterator[History | HistoryError]:
    """All histories of files and folders. Native files of one run are one history; a file that is none yields its error.

    Terms that a history does not declare are as `given`; one that declares something else yields Contradiction.
    """
    yield from read_sources(sources_of(paths, form), given)


def read_sources(sources: Sources, given: Contract = NOTHING_GIVEN) -> Iterator[History | HistoryError]:
    """As `read_histories`: first what is not native."""
    for other in sources.others:
        if isinstance(other, HistoryError):
            yield other
            continue
        path, form = other
        try:
            if form == "neutral":
                yield from read_neutral(path, given)
            else:
                yield from_streams(path.stem, IMPORTERS[form](path, given))
        except HistoryError as error:
            yield error
        except OSError as error:
            yield HistoryError(path, 0, error.strerror or str(error))
    for files in sources.runs:
        try:
            yield read_run(files, given)
        except HistoryError as error:
            yield error
