"""Results of TLC, kept by the hash of what was judged: an unchanged model is not judged again.

Only on a developer's machine: where `CI` is set everything is judged. `make clean` removes what is kept.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from linearizability.targets.artifacts import ArtifactError, cache_folder, tlc_jar
from spec import checker
from spec.checker import Job, Outcome, Verdict

FOLDER = cache_folder().parent / "results"
FINAL = (Verdict.HOLDS, Verdict.SEARCHED, Verdict.VIOLATED, Verdict.DEADLOCK)
"""Verdicts on the model, and not on the machine of that moment."""


def kept(
    judged: Iterable[str | bytes], run: Callable[[], list[str | int]], is_final: Callable[[list[str | int]], bool]
) -> list[str | int]:
    """The result of `run` for these inputs, from now or from the cache; a result that is not final is not cached."""
    digest = hashlib.sha256()
    for each in judged:
        data = each.encode() if isinstance(each, str) else each
        digest.update(len(data).to_bytes(8) + data)
    place = FOLDER / f"{digest.hexdigest()}.json"
    if "CI" not in os.environ and place.is_file():
        return json.loads(place.read_text())
    result = run()
    if is_final(result):
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=FOLDER, delete=False) as file:
            json.dump(result, file)
        Path(file.name).replace(place)
    return result


def check(job: Job) -> Outcome:
    """`spec.checker.check`, without trace, coverage and output."""
    try:
        jar = tlc_jar().read_bytes()
    except ArtifactError:
        return checker.check(job)
    judged = [jar, job.module, job.configuration, *job.options]
    judged += [part for name, text in sorted(job.modules.items()) for part in (name, text)]
    here = sorted(job.folder.glob("*.tla")) if job.folder else []
    judged += [part for path in here for part in (path.name, path.read_text())]

    def run() -> list[str | int]:
        outcome = checker.check(job)
        return [outcome.verdict, outcome.violated, outcome.reason, outcome.distinct, outcome.loop_to]

    verdict, violated, reason, distinct, loop_to = kept(judged, run, lambda result: result[0] in FINAL)
    return Outcome(Verdict(verdict), str(violated), str(reason), distinct=int(distinct), loop_to=int(loop_to))
