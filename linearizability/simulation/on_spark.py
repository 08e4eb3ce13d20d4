"""Runs schedules as Spark jobs: each task runs those of some seeds and returns rows.

A run is a function of its seed, so retries, speculative copies and lost workers cost time and change no result. Jobs are
rounds of some tasks for each core, so that progress, a time limit and `--until-found` work as they do with processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from linearizability.pipeline.spark_session import failure_of, session

FIRST_ROUND = 2
"""Tasks for each core in the first round; later rounds have twice as many as the one before, up to `LARGEST_ROUND`."""
LARGEST_ROUND = 16

Result = TypeVar("Result")


def run_on_spark(
    work: Callable[[range], list[Result]], tasks: Iterator[range], master: str, settings: Mapping[str, str]
) -> Iterator[list[Result]]:
    """The results of all tasks in the order of their seeds; workers import the module of `work`. Errors: SparkFailure."""
    context = session(master, settings).sparkContext
    size = FIRST_ROUND * context.defaultParallelism
    while some := list(islice(tasks, size)):
        try:
            done = context.parallelize(some, len(some)).map(work).collect()
        except KeyboardInterrupt:
            context.cancelAllJobs()
            raise
        except Exception as error:
            if failure := failure_of(error):
                raise failure from error
            raise
        yield from done
        size = min(2 * size, LARGEST_ROUND * context.defaultParallelism)
