"""Judging histories: reads, runs the rules on the engine that fits, and yields a judgement a history."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.files import Contradiction, HistoryError, size_of
from linearizability.history.importers import IMPORTERS
from linearizability.history.native import NativeFile, distinct_files, folder_name
from linearizability.history.reader import Sources, read_sources, sources_of
from linearizability.history.store import Unread, is_store, read_runs, read_store
from linearizability.history.streams import History, Stream, agreed
from linearizability.history.topic import HistoryTopic, is_topic, read_stretch, stretches, write_files
from linearizability.pipeline import local
from linearizability.pipeline.local import AnyRule
from linearizability.pipeline.verdict import UNKNOWN, Judgement, judge
from linearizability.rules import RULES
from linearizability.rules.rule import Found

ALL_RULES = tuple(RULES.values())
SPARK_FROM_FACTS = 20_000_000
"""With more facts than this the engine `auto` takes Spark."""


SPARK_FROM_BYTES = 4 << 30
"""With native files of more than this in all (unpacked: `size_of`), facts are derived by Spark's workers too."""
FOREIGN_SPARK_FROM_BYTES = 1 << 30
"""As SPARK_FROM_BYTES, for one file of another tool."""


def check(
    paths: Iterable[Path],
    form: str = "auto",
    engine: str = "auto",
    master: str = "",
    *,
    over_time: bool = False,
    given: Contract = NOTHING_GIVEN,
) -> Iterator[Judgement]:
    """A judgement for each history in files, folders and topics: topics first, then stores of facts, then the others.

    With `over_time` each can be drawn (`series.series_of`), also where its facts stay with Spark. What a history does not
    declare of its contract is as `given`; one that declares something else is not judged: unknown.

    Errors: TopicError for a topic that cannot be read; ValueError for one that is wrongly named.
    """
    for judgement in _judgements(list(paths), form, engine, master, over_time, given):
        judgement.given = given.model_dump(exclude_unset=True)
        yield judgement


def _judgements(
    paths: list[Path], form: str, engine: str, master: str, over_time: bool, given: Contract
) -> Iterator[Judgement]:
    for topic in [path for path in paths if is_topic(path)]:
        yield from _check_topic(HistoryTopic.parse(str(topic)), engine, master, over_time, given)
    paths = [path for path in paths if not is_topic(path)]
    stores = [path for path in paths if path.is_dir() and is_store(path)]
    paths = [path for path in paths if path not in stores]
    for store in stores:
        yield from _check_store(store, engine, master, over_time, given)
    large, sources = apart(sources_of(paths, form), engine, given)
    if large:
        yield from _check_unread(large, master, over_time)
    yield from _check_others(sources, engine, master, given)


def _check_topic(
    topic: HistoryTopic, engine: str, master: str, over_time: bool, given: Contract
) -> Iterator[Judgement]:
    """Judge a topic's histories as native files, which Spark's workers or this process write."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-topic-") as folder:
        known = stretches(topic)
        if engine == "local":
            runs = {home for each in known for home in write_files(read_stretch(topic, each), Path(folder))}
        else:
            from linearizability.pipeline.spark_session import session
            from linearizability.pipeline.topic_source import files_of_topic

            runs = files_of_topic(session(master), topic, Path(folder))
        if not runs:
            yield unreadable(HistoryError(str(topic), 0, "the topic is empty"))
        yield from _judgements(sorted(runs), "native", engine, master, over_time, given)


def _check_store(store: Path, engine: str, master: str, over_time: bool, given: Contract) -> Iterator[Judgement]:
    try:
        runs = read_runs(store)
        for run in runs:  # what they declare is in their facts
            agreed(run.contract, given, store, 0)
        if engine == "spark" or (engine == "auto" and sum(run.facts for run in runs) > SPARK_FROM_FACTS):
            from linearizability.pipeline.spark import check_store

            yield from check_store(store, master, over_time=over_time)
        else:
            yield from map(judge_history, read_store(store))
    except HistoryError as error:
        yield unreadable(error)


def apart(sources: Sources, engine: str, given: Contract = NOTHING_GIVEN) -> tuple[list[Unread], Sources]:
    """The sources to be stored before they are judged, so that none is in memory as a whole; and the others."""
    if engine == "local":
        return [], sources
    large, rest = [], Sources()
    native_too = engine == "spark" or sum(size_of(file) for run in sources.runs for file in run) > SPARK_FROM_BYTES
    for files in sources.runs:
        if native_too and (unread := _native(files, given)):
            large.append(unread)
        else:
            rest.runs.append(files)
    for other in sources.others:
        if not isinstance(other, HistoryError) and (unread := _large_foreign(*other, given)):
            large.append(unread)
        else:
            rest.others.append(other)
    return large, rest


def _native(files: list[Path], given: Contract) -> Unread | None:
    try:
        chosen, defects = distinct_files(files, given)
    except Contradiction:
        chosen, defects = [], []
    if not chosen:
        return None  # reported when they are read
    sources = tuple(partial(_native_file, file.resolve(), given) for file in chosen)
    return Unread(folder_name(chosen[0]), sources, tuple(defects))


def _native_file(file: Path, given: Contract) -> list[Stream]:
    return [NativeFile(file, given=given)]


def _large_foreign(path: Path, form: str, given: Contract) -> Unread | None:
    """A file, or a folder of them, of another tool."""
    files = list(path.iterdir()) if path.is_dir() else [path]
    if form not in IMPORTERS or sum(map(size_of, files)) <= FOREIGN_SPARK_FROM_BYTES:
        return None
    return Unread(path.stem, (partial(IMPORTERS[form], path.resolve(), given),))


def _check_unread(runs: list[Unread], master: str, over_time: bool) -> Iterator[Judgement]:
    from linearizability.pipeline.spark import check_store, in_jobs, store_of

    for some in in_jobs(runs):
        with tempfile.TemporaryDirectory(prefix="tidegauge-store-") as folder:
            store_of(some, Path(folder), master)
            yield from check_store(Path(folder), master, over_time=over_time)


def _check_others(sources: Sources, engine: str, master: str, given: Contract) -> Iterator[Judgement]:
    if engine == "spark":
        from linearizability.pipeline.spark import check_histories

        yield from check_histories(read_sources(sources, given), master)
        return
    for history in read_sources(sources, given):
        if isinstance(history, History) and engine == "auto" and history.facts.num_rows > SPARK_FROM_FACTS:
            from linearizability.pipeline.spark import check_histories

            yield from check_histories([history], master)
        else:
            yield judge_history(history)


def judge_history(history: History | HistoryError, rules: Iterable[AnyRule] = ALL_RULES) -> Judgement:
    """The verdict on one history, by the local engine."""
    if isinstance(history, HistoryError):
        return unreadable(history)
    context = local.context_of(history.contract, history.marks, history.tally.ends_at, history.defects)
    findings = local.judge_run(history.facts, history.id, context, rules)
    return conclude(history, findings, "local")


def conclude(history: History, findings: Iterable[Found], engine: str) -> Judgement:
    """A judgement from the findings of either engine and the history's tally and defects."""
    judgement = judge(history.id, findings, history.tally, history.defects, history.facts.num_rows, engine)
    judgement.labels, judgement.history = history.labels, history
    return judgement


def unreadable(error: HistoryError) -> Judgement:
    """The judgement on a file that is no history: unknown; the reason names the file and the line."""
    return Judgement(Path(error.defect.file).name, UNKNOWN, reasons=[str(error.defect)])
