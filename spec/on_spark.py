"""Runs TLC on Spark: each run is a job with one task. Spark sends it TLC's jar and the modules' texts; the worker must have Java.

An outcome depends on its task alone, so retries, speculative copies and lost executors cost time and change no result. Jobs are
submitted from several threads and Spark queues them, so each result arrives, and can be stored, as soon as it is found.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from linearizability.pipeline.spark_session import SparkFailure, failure_of, session
from linearizability.targets.artifacts import ArtifactError, tlc_jar
from spec import checker
from spec.checker import Job, Outcome, Verdict
from spec.engine import Engine, Item, Result

MOST_AT_ONCE = 256
"""The largest number of jobs submitted at one time; each has a thread in this process."""


class SparkEngine(Engine):
    """Runs TLC in tasks. Errors, also of `check` and `each`: SparkFailure."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        try:
            jar = tlc_jar()
        except ArtifactError as error:
            raise SparkFailure(f"TLC's jar, which workers need, is missing: {error}") from error
        self._context = session(master, settings).sparkContext
        self._context.addFile(str(jar))
        self._jar = jar.name

    def check(self, job: Job) -> Outcome:
        task = replace(job, folder=None, modules=job.texts())
        jar = self._jar  # a task may not hold the context
        try:
            (outcome,) = self._context.parallelize([task], 1).map(lambda job: run_in_task(job, jar)).collect()
        except Exception as error:
            if failure := failure_of(error):
                raise failure from error
            raise
        return outcome

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(MOST_AT_ONCE)
            stack.callback(pool.shutdown)
            item_of: dict[Future[Result], Item] = {pool.submit(work, item): item for item in items}
            stack.callback(self._end, item_of)
            for done in as_completed(item_of):
                yield item_of[done], done.result()

    def _end(self, futures: Iterable[Future[Result]]) -> None:
        """Cancel the jobs that have not started and those that run, when a loop is left early."""
        waiting = [future for future in futures if not future.cancel() and not future.done()]
        if waiting:
            self._context.cancelAllJobs()


def run_in_task(job: Job, jar: str) -> Outcome:
    """TLC's outcome, on a worker. The reason of a missing Java or jar names the worker."""
    from pyspark import SparkFiles

    outcome = checker.check(job, Path(SparkFiles.get(jar)))
    if outcome.verdict != Verdict.NO_CHECKER:
        return outcome
    return replace(outcome, reason=f"worker {socket.gethostname()}: {outcome.reason}")
