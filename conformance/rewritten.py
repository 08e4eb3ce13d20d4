"""Judge requirements on randomly rewritten responses: no response of a broker may break the suite.

    python -m conformance.rewritten --first 0 --trials 200      # one JSON line for each trial; the last line sums up
    python -m conformance.rewritten --first 17 --trials 1       # repeat one: its seed draws requirement and rewritings

A *trial* is one requirement, judged through its own proxy that rewrites responses by the trial's seed
(`linearizability.mutants.wire.chance`). Every fourth is a whole run: the target is probed, a few requirements are judged in a
session, and the run sums up. Verdicts do not matter; an engine error, an exception, or a trial that overruns its deadline,
does. All trials share one sound broker, and some run in parallel: a seed always draws the same requirements, and mostly
causes the same rewritings.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from conformance.broker import Broker
from conformance.host import addresses
from conformance.judging import judge
from conformance.liars import Behind, Lying
from conformance.plan import BASE_CONFIGS
from conformance.requirement import Entry, catalogue
from conformance.results import Verdict
from conformance.runner import Plan, run
from conformance.subject import Subject
from linearizability.bench.suite import STORE, Store
from linearizability.mutants.wire.chance import Chance
from linearizability.mutants.wire.proxy import Proxy
from linearizability.targets import Target, open_target
from linearizability.targets.loop import Loop
from reference.protocol.messages.api_versions import ApiVersionsRequest

DEADLINE_S = 6.0
"""The longest deadline of a requirement here: a test often waits until the end for a response that was rewritten."""
GRACE_S = 20.0
"""How long after its deadline a trial may end; on a busy machine that takes some seconds."""
HANGS_S = 120.0
RUN_HANGS_S = 900.0
"""A whole run has many waits with separate deadlines: on a target without a readable response it takes minutes."""
EVERY, OF_A_RUN = 4, 3
"""Every EVERY-th trial is a whole run, of OF_A_RUN requirements."""
QUICK_S = 3.0


def candidates() -> list[Entry]:
    """Requirements that are quick, and need one node, no hooks and no configurations."""
    usage = Store.read(STORE).usage
    return [
        entry
        for id, entry in catalogue().items()
        if entry.test
        and entry.requirement.needs.nodes == 1
        and not entry.requirement.needs.hooks
        and not entry.requirement.needs.configs
        and (id not in usage or usage[id].seconds < QUICK_S)
    ]


def hurried(entry: Entry) -> Entry:
    """The entry with a deadline of at most DEADLINE_S."""
    deadline_s = min(entry.requirement.deadline_s, DEADLINE_S)
    return Entry(requirement=entry.requirement.model_copy(update={"deadline_s": deadline_s}), test=entry.test)


class Trials:
    """Trials on one broker."""

    def __init__(self, target: Target, loop: Loop) -> None:
        self.target, self.loop = target, loop
        self.entries = candidates()
        self.running: dict[int, tuple[str, float, int, float]] = {}
        """Seed -> requirements, start time, thread id, and the seconds after which the trial counts as hanging."""
        sketch = Subject(bootstrap=addresses(target.bootstrap), kafka_version="4.3.1")
        with Broker(sketch, self.entries[0].requirement) as broker:
            answer = broker.connect().call(ApiVersionsRequest(), 0)
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def run(self, seed: int) -> dict[str, Any]:
        """Run one trial, and return its output line."""
        return self.whole_run(seed) if seed % EVERY == EVERY - 1 else self.judge_one(seed)

    def whole_run(self, seed: int) -> dict[str, Any]:
        """Run the suite on rewritten responses: probe, judge in a session, and sum up."""
        entries = [hurried(entry) for entry in random.Random(f"run {seed}").sample(self.entries, OF_A_RUN)]
        chance, began, raised = Chance(seed), time.monotonic(), ""
        ids = " ".join(entry.requirement.id for entry in entries)
        self.running[seed] = (ids, began, threading.get_ident(), RUN_HANGS_S)
        with tempfile.TemporaryDirectory() as folder, Proxy(self.loop, self.target.nodes, chance) as proxy:
            behind = Lying(Behind(self.target), proxy)
            plan = Plan(
                f"exec:{seed}", entries, Path(folder), open_target=lambda *_, **__: nullcontext(behind), starts=1
            )
            try:
                report = run(plan)
                wrong = [j for j in report.judgements if j.verdict is Verdict.ENGINE_ERROR]
                raised = "\n".join(f"{j.requirement.id}: {j.reason}\n{j.traceback}" for j in wrong)
                verdict = Verdict.ENGINE_ERROR if wrong else report.verdict
            except Exception:
                raised, verdict = traceback.format_exc(), Verdict.ENGINE_ERROR
        del self.running[seed]
        line = {"seed": seed, "id": ids, "verdict": verdict, "rewritten": len(chance.done), "run": True}
        if raised:
            line |= {"traceback": raised, "done": chance.done}
        return line | {"seconds": round(time.monotonic() - began, 2), "overran": False}

    def judge_one(self, seed: int) -> dict[str, Any]:
        """Judge one requirement on a target whose versions are known."""
        entry = random.Random(f"requirement {seed}").choice(self.entries)
        entry = hurried(entry)
        deadline_s = entry.requirement.deadline_s
        chance = Chance(seed)
        began = time.monotonic()
        self.running[seed] = (entry.requirement.id, began, threading.get_ident(), HANGS_S)
        with Proxy(self.loop, self.target.nodes, chance) as proxy:
            subject = Subject(
                bootstrap=[(node.host, node.port) for node in proxy.nodes],
                kafka_version="4.3.1",
                api_versions=dict(self.api_versions),
                target=self.target,
            )
            judgement = judge(entry, subject)
        seconds = time.monotonic() - began
        del self.running[seed]
        line = {"seed": seed, "id": entry.requirement.id, "verdict": judgement.verdict, "rewritten": len(chance.done)}
        if judgement.verdict is Verdict.ENGINE_ERROR:
            line |= {"reason": judgement.reason, "traceback": judgement.traceback, "done": chance.done}
        return line | {"seconds": round(seconds, 2), "overran": seconds > deadline_s + GRACE_S}

    def watch(self) -> None:
        """End the process when a trial hangs, and print its stack."""
        while True:
            time.sleep(1)
            for seed, (id, began, thread, hangs_s) in [*self.running.items()]:
                if time.monotonic() - began > hangs_s:
                    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # it is documented
                    stack = traceback.format_stack(frames.get(thread))
                    print(
                        json.dumps({"seed": seed, "id": id, "verdict": "hangs", "traceback": "".join(stack)}),
                        flush=True,
                    )
                    os_exit(3)


def os_exit(code: int) -> None:
    """End the process at once: a thread that hangs would keep the interpreter alive."""
    import os

    sys.stdout.flush()
    os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.rewritten")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, default=100, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=8, help="trials side by side")
    parser.add_argument("--target", default="reference:1")
    chosen = parser.parse_args()
    verdicts: Counter[str] = Counter()
    rewritten = errors = overran = runs = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        open_target(chosen.target, folder=Path(folder), config=BASE_CONFIGS) as target,
        Loop() as loop,
    ):
        trials = Trials(target, loop)
        threading.Thread(target=trials.watch, daemon=True).start()
        with ThreadPoolExecutor(chosen.jobs) as pool:
            for line in pool.map(trials.run, range(chosen.first, chosen.first + chosen.trials)):
                verdicts[line["verdict"]] += 1
                rewritten += line["rewritten"]
                errors += line["verdict"] == Verdict.ENGINE_ERROR
                overran += line["overran"]
                runs += line.get("run", False)
                print(json.dumps(line), flush=True)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    reported = {
        "trials": chosen.trials,
        "runs": runs,
        "rewritten": rewritten,
        "engine_errors": errors,
        "overran": overran,
    }
    print(json.dumps(reported | {"peak_mb": peak_mb, "verdicts": dict(verdicts)}))
    return 1 if errors or overran else 0


if __name__ == "__main__":
    sys.exit(main())
