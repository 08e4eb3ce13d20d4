"""Judge requirements on lies at the wire, one lie after the other before the same sound brokers: for `tidegauge bench suite`.

    echo '{"lie": "earliest-is-0", "ids": ["LOF-01"]}' | python -m conformance.liars     # one JSON line for each input line

A separate run of the suite, with its own broker, would cost more for each lie than the judging does. Here brokers stay open,
one for each configuration that requirements need, and each lie has its own proxy. A broker is replaced after a fault hook was
used on it, or after many lies, because their topics accumulate.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.requirement import select
from conformance.results import INTERRUPTED, Verdict
from conformance.runner import Plan, run
from linearizability.mutants.wire.adapter import HOOKS
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import Proxy
from linearizability.mutants.wire.rewriting import Liar
from linearizability.targets import Target, open_target
from linearizability.targets.loop import Loop

MOST_OPEN = 4
MOST_LIES = 25
"""The most lies that one broker serves."""
HURTING = {*HOOKS} - {"logs"}


@dataclass
class Behind:
    """A sound broker, the number of lies it has served, and whether a fault hook was used on it."""

    target: Target
    lies: int = 0
    hurt: bool = False


class Lying:
    """An open target whose nodes are proxies of a sound broker. All other attributes are the broker's."""

    several = False
    """One start only, because a lie keeps state about its requests."""

    def __init__(self, behind: Behind, proxy: Proxy) -> None:
        self._behind, self.nodes = behind, proxy.nodes
        self.hooks = [hook for hook in HOOKS if hook in behind.target.hooks]
        self.bootstrap = ",".join(node.address for node in proxy.nodes)

    def __getattr__(self, name: str) -> Any:
        self._behind.hurt |= name in HURTING
        return getattr(self._behind.target, name)


Settings = tuple[tuple[str, str], ...]
"""A configuration, by name."""


@dataclass
class Brokers:
    """The open sound brokers by their configuration. `tidy` keeps the most recently used ones."""

    spec: str
    folder: Path
    loop: Loop
    open: OrderedDict[Settings, Behind] = field(default_factory=OrderedDict[Settings, Behind])
    started: int = 0

    def before(self, config: Mapping[str, str]) -> Behind:
        """An open broker with this configuration. Errors: TargetError."""
        key = tuple(sorted(config.items()))
        if key not in self.open:
            self.started += 1
            target = open_target(self.spec, folder=self.folder / f"broker-{self.started}", config=config)
            target.__enter__()
            self.open[key] = Behind(target)
        self.open.move_to_end(key)
        return self.open[key]

    def tidy(self, most: int = MOST_OPEN) -> None:
        """Close brokers that a fault was used on, that served MOST_LIES, or that were used least recently. Called between two
        lies."""
        for key, behind in [*self.open.items()]:
            if behind.hurt or behind.lies >= MOST_LIES or len(self.open) > most:
                self.open.pop(key).target.close()

    @contextmanager
    def lying(self, name: str, config: Mapping[str, str]) -> Generator[Lying]:
        """Open a target that is a broker behind the proxy of one lie."""
        behind = self.before(config)
        behind.lies += 1
        target, liar = behind.target, Liar(LIES[name])
        with Proxy(self.loop, target.nodes, liar, controllers=target.controllers) as proxy:
            yield Lying(behind, proxy)


def judged(name: str, ids: list[str], brokers: Brokers) -> list[dict[str, Any]]:
    """The suite's judgements under a lie: id, verdict and reason of each requirement, as in `tidegauge run --json`."""

    def open_lying(spec: str, *, folder: Path, config: Mapping[str, str]) -> AbstractContextManager[Lying]:
        return brokers.lying(name, config)

    with tempfile.TemporaryDirectory() as folder:
        report = run(Plan(brokers.spec, select(ids), Path(folder), starts=1, open_target=open_lying))
    lines = [{"id": j.requirement.id, "verdict": j.verdict, "reason": j.reason} for j in report.judgements]
    cut_off = report.was_interrupted
    if report.broken or cut_off:
        lines.append({"id": "", "verdict": Verdict.ENGINE_ERROR, "reason": INTERRUPTED if cut_off else report.reason})
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.liars")
    parser.add_argument("--target", default="reference:1", help="the sound broker")
    chosen = parser.parse_args()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Loop() as loop:
        loop.loop.set_exception_handler(lambda _, about: failures.append(repr(about.get("exception", about))))
        brokers = Brokers(chosen.target, Path(folder), loop)
        try:
            for line in sys.stdin:
                asked = json.loads(line)
                lines = judged(asked["lie"], asked["ids"], brokers)
                lines += [
                    {"id": "", "verdict": Verdict.ENGINE_ERROR, "reason": f"the lie failed: {one}"} for one in failures
                ]
                failures.clear()
                print(json.dumps({"lie": asked["lie"], "lines": lines}), flush=True)
                brokers.tidy()
        finally:
            brokers.tidy(most=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
