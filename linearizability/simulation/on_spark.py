"""Seeds are the partitions of a Spark job: each task runs some schedules, and their results come back as rows.

A run is a function of its seed, so retries, speculative copies and lost workers cost time and change no result. Jobs are
rounds of some tasks for each core, so that progress, a time limit and `--until-found` work as they do with processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from linearizability.pipeline.spark_session import failure_of, session

if TYPE_CHECKING:
    from linearizability.simulation.fuzzing import Plan, Small

FIRST_ROUND = 2
"""Tasks for each core in the first round; later rounds have twice as many as the one before, up to `LARGEST_ROUND`."""
LARGEST_ROUND = 16


def run_on_spark(plan: Plan, tasks: Iterator[range]) -> Iterator[list[Small]]:
    """The results of all tasks in the order of their seeds. Errors: SparkFailure."""
    context = session(plan.master, plan.spark).sparkContext
    shared = replace(plan, folder=Path())  # what tasks need of it is the same on every machine
    size = FIRST_ROUND * context.defaultParallelism

    def work(seeds: range) -> list[Small]:
        from linearizability.simulation.fuzzing import run_in_worker

        return run_in_worker(seeds, shared)

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
