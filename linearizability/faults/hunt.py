"""A hunt: clients work on a target, a schedule hurts it, everything is healed, all is read once more, and judged.

One hunt has one round or several; each has its own topic, schedule, histories and verdict, in a folder that can be
judged and carried out again by itself. With `until_found` rounds are short and go on until one is invalid.

    folder/plan.json        what was asked for: enough to carry it out again
    folder/round-2/         (the folder itself, where there is one round)
        schedule.json       the blows
        history/            what the clients saw, one file a client, and what the nemesis did
        clients/            the clients' own output
        verdict.json
    folder/reduced/         the smallest schedule that failed too, where it was asked for
    folder/target/          the nodes' properties and logs
    folder/summary.json     the worst verdict and all counts
"""

import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from linearizability.faults import all_faults
from linearizability.faults.docker_network import DockerNetwork
from linearizability.faults.fault import FAULTS, World, least_doubted, select
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.network import Links, Network
from linearizability.faults.reduction import reduce
from linearizability.faults.schedule import Schedule, draw
from linearizability.history.contract import Acks
from linearizability.history.recorder import Recorder
from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.cluster import INTERPOSED, Cluster
from linearizability.targets.docker import open_image
from linearizability.targets.hosts import Host
from linearizability.targets.interposer.building import obstacle
from linearizability.targets.zookeeper_kafka import ZooKeeperKafkaCluster
from linearizability.workload.clients import Clients
from linearizability.workload.cluster import create_topic, knows_idempotence
from linearizability.workload.drain import drain_topic
from linearizability.workload.profile import PROCESSES_A_CLIENT, Profile, promised_copies, standard_profile
from linearizability.workload.replicas import record_replicas

SHORT_ROUND_S = 60.0
LONG_ROUND_S = 600.0
"""A round's history is judged in memory; ten minutes are some hundred thousand operations."""
REDUCTION_ATTEMPTS = 2
AT_WORK_WITHIN_S = 10.0
"""How long the first blow waits for the clients, unless said: what was never at work shows nothing when it is hurt."""
AFTER_HEALING_S = 6.0
"""The clients go on for a while, so that it shows whether they can."""
LOOK_AT_CLIENTS_S = 0.2
DRAIN_WITHIN_S = 120.0
LOWEST_SHARE = 0.05
"""Acknowledged sends, as a share of those that were to be sent, below which a run shows nothing."""
NEMESIS_PROCESS = 0
"""The process number of the nemesis; clients are numbered from PROCESSES_A_CLIENT on."""

FAST_FAILOVER: dict[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
}
"""Elections in three seconds instead of ten: three times as many in a hunt. Promises do not depend on them."""

Listener = Callable[[str], None]


class Plan(BaseModel):
    """What a hunt is asked to do; with its seed, enough to do it again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    minutes: float = Field(gt=0)
    seed: int
    faults: list[str] = Field(default=[], description="by name; none means all that the target and the backend offer")
    until_found: bool = False
    nodes: int | None = Field(default=None, description="where the target's text does not say it")
    rate_per_s: float = Field(default=400, gt=0, description="sends of all producers together")
    acks: Acks = "all"
    transactions: bool = Field(default=False, description="a fourth producer commits and aborts transactions")
    unclean_election: bool = False
    config: dict[str, str] = Field(default={}, description="broker properties beside FAST_FAILOVER")
    reduce_minutes: float = Field(default=0, ge=0, description="how long a found schedule may be made smaller; 0: not")
    engine: str = Field(default="both", pattern="^(both|local|spark)$")
    backend: Literal["plain", "netns", "docker"] = Field(
        default="plain",
        description="processes side by side, each in a network namespace inside a sandbox, or in a container",
    )
    image: str = Field(default="", description="what containers are made of; empty: of this machine's own programs")

    @property
    def round_s(self) -> float:
        total = self.minutes * 60
        return min(total, SHORT_ROUND_S if self.until_found else LONG_ROUND_S)

    @property
    def rounds(self) -> int:
        """How many rounds fit; with `until_found` the most that are tried."""
        return max(1, math.floor(self.minutes * 60 / self.round_s))

    def round_seed(self, number: int) -> int:
        return random.Random(f"{self.seed}/{number}").getrandbits(48)


class RoundResult(BaseModel):
    """One round, told."""

    verdict: str
    folder: str
    topic: str
    anomalies: dict[str, int] = {}
    permitted: dict[str, dict[str, int]] = {}
    reasons: list[str] = []
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    read: int = 0
    committed: int = Field(default=0, description="transactions")
    aborted: int = Field(default=0, description="transactions")
    faults: dict[str, int] = {}
    leader_changes: int = 0
    facts: int = 0
    engines: dict[str, str] = Field(default={}, description="engine -> its verdict")
    seconds: float = 0


class EnginesDisagree(Exception):
    """The local engine and PySpark judge one history differently: our fault, whatever the broker did."""


def hunt(plan: Plan, folder: Path, say: Listener, schedules: Sequence[Schedule] = ()) -> dict[str, Any]:
    """Carry the plan out and give its summary. `schedules` replace those that would be drawn.

    Errors: TargetError; EnginesDisagree. Ctrl-C ends the round in good order: what was recorded is judged.
    """
    (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
    began = time.monotonic()
    results: list[RoundResult] = []
    rounds = len(schedules) or plan.rounds
    described: dict[str, Any] = {}
    interrupted = False
    all_faults()
    with ExitStack() as stack:
        say(f"starting {plan.target}")
        target, network = open_on_backend(plan, folder, stack, say, schedules)
        described = target.describe()
        for number in range(1, rounds + 1):
            home = folder if rounds == 1 else folder / f"round-{number}"
            home.mkdir(exist_ok=True)
            seed = plan.round_seed(number)
            schedule = schedules[number - 1] if schedules else None
            this = Round(plan, target, network, home, seed, f"hunt-{folder.name[:16].lower()}-{number}", schedule)
            say(f"round {number} of {rounds}: {this}")
            results.append(this.run(say))
            say(f"round {number}: {results[-1].verdict}")
            interrupted = this.interrupted
            found = results[-1].verdict == "invalid"
            if found and isinstance(target, Cluster):
                target.keep_data = True
            if found and plan.reduce_minutes and not interrupted:
                reduce_found(this, results[-1], folder / "reduced", say)
            if (found and plan.until_found) or interrupted:
                break
    if plan.engine != "local" and not interrupted:
        say("judging again in one PySpark job")
        judge_by_spark(results)
    summary = sum_up(plan, results, described, time.monotonic() - began, folder, interrupted)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return summary


def planned_target(plan: Plan, folder: Path, hosts: Sequence[Host] | None = None) -> Target:
    """The target, not yet started, in the configuration that hunts use. Errors: WrongTarget."""
    config = FAST_FAILOVER | plan.config if plan.target.startswith(("kafka", "reference")) else plan.config
    return open_target(plan.target, folder=folder, config=config, nodes=plan.nodes, hosts=hosts)


def open_on_backend(
    plan: Plan, folder: Path, stack: ExitStack, say: Listener, schedules: Sequence[Schedule]
) -> tuple[Target, Links | None]:
    """Start the target where the plan wants it. Errors: TargetError."""
    if plan.backend == "plain":
        target = planned_target(plan, folder)
        interpose(target, plan, schedules, say)
        return stack.enter_context(target), None
    sketch = planned_target(plan, folder)
    if not isinstance(sketch, Cluster):
        raise TargetError(f"{plan.target} brings its own processes: they cannot be put on a network of ours")
    places = sketch.size + int(isinstance(sketch, ZooKeeperKafkaCluster))
    made = DockerNetwork(places, open_image(plan.image)) if plan.backend == "docker" else Network(places)
    network = stack.enter_context(made)
    target = planned_target(plan, folder, network.hosts)
    interpose(target, plan, schedules, say)
    return stack.enter_context(target), network


def interpose(target: Target, plan: Plan, schedules: Sequence[Schedule], say: Listener) -> None:
    """Give the nodes disks and clocks that can be hurt, where a fault of this hunt asks for it.

    Internal topics then promise as much as the hunt's own: a loss of power must not take what only one replica had.
    Errors: TargetError where a fault that was asked for by name cannot be had.
    """
    named = {*plan.faults, *(strike.fault for each in schedules for wave in each.waves for strike in wave.strikes)}
    needing = [name for name, fault in all_faults().items() if {*fault.hooks} & {*INTERPOSED}]
    wanted = [name for name in needing if name in named or not named]
    if not isinstance(target, Cluster) or not wanted:
        return
    reason = obstacle()
    if reason and named:
        raise TargetError(f"without {', '.join(wanted)}: {reason}")
    if reason:
        say(f"without {', '.join(wanted)}: {reason}")
        return
    target.interpose()
    target.given.setdefault("min.insync.replicas", str(promised_copies(target.size)))


def keep_given_schedules(folder: Path, schedules: Sequence[Schedule]) -> None:
    """Leave schedules for a hunt that runs in another process."""
    for number, schedule in enumerate(schedules, start=1):
        schedule.save(folder / f"given-{number}.json")


def load_given_schedules(folder: Path) -> list[Schedule]:
    """What `keep_given_schedules` left."""
    all_faults()
    paths = [folder / f"given-{number}.json" for number in range(1, 1 + len(list(folder.glob("given-*.json"))))]
    return [Schedule.load(path) for path in paths]


def reduce_found(found: "Round", result: RoundResult, folder: Path, say: Listener) -> None:
    """Make the schedule smaller on the open target; leaves the smallest that failed in `folder/schedule.json`."""
    folder.mkdir(exist_ok=True)
    until = time.monotonic() + found.plan.reduce_minutes * 60
    attempts = itertools.count(1)

    def fails(candidate: Schedule) -> bool:
        for _ in range(REDUCTION_ATTEMPTS):
            number = next(attempts)
            home = folder / f"attempt-{number}"
            home.mkdir()
            again = Round(
                found.plan, found.target, found.network, home, candidate.seed, f"{found.topic}-r{number}", candidate
            )
            told = again.run(lambda text: None)
            hit = told.verdict == "invalid" and bool(told.anomalies.keys() & result.anomalies.keys())
            blows = sum(len(wave.strikes) for wave in candidate.waves)
            say(f"attempt {number}: {len(candidate.waves)} waves, {blows} blows: {told.verdict}")
            if hit:
                candidate.save(folder / "schedule.json")
                return True
            if time.monotonic() > until:
                break
        return False

    say("making the schedule smaller")
    reduce(found.schedule, fails, lambda: time.monotonic() > until)


class Round:
    """One topic's life under attack."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        network: Links | None,
        folder: Path,
        seed: int,
        topic: str,
        schedule: Schedule | None,
        *,
        at_work_within_s: float = AT_WORK_WITHIN_S,
    ) -> None:
        self.plan = plan
        self.at_work_within_s = at_work_within_s
        self.network = network
        self.target = target
        self.folder = folder
        self.topic = topic
        self.run_id = f"{plan.target} {topic}"
        self.interrupted = False
        faults = select(plan.faults, target, network)
        nodes = len(target.nodes)
        self.schedule = schedule or draw(seed, plan.round_s, faults, nodes)
        struck = {strike.fault for wave in self.schedule.waves for strike in wave.strikes}
        robbed = max((FAULTS[name].robs(nodes) for name in struck), default=0)
        self.schedule.save(folder / "schedule.json")
        self.profile: Profile = standard_profile(
            nodes,
            acks=plan.acks,
            idempotence=knows_idempotence(target.nodes),
            unclean_election=plan.unclean_election,
            replicas_losing_unflushed_data=robbed,
            rate_per_s=plan.rate_per_s,
            transactions=plan.transactions,
        )

    def __str__(self) -> str:
        kinds = sorted({strike.fault for wave in self.schedule.waves for strike in wave.strikes})
        return f"{self.schedule.seconds:.0f} s of {', '.join(kinds) or 'no faults'}"

    def run(self, say: Listener) -> RoundResult:
        """Work, hurt, heal, drain, judge. Errors: TargetError."""
        profile = self.profile
        create_topic(
            self.target.nodes,
            self.topic,
            partitions=profile.partitions,
            replication_factor=profile.replication_factor,
            configs=profile.topic_configs(),
        )
        began = time.monotonic()
        clients = Clients(
            profile,
            run=self.run_id,
            bootstrap=self.target.bootstrap,
            topic=self.topic,
            seed=self.schedule.seed,
            folder=self.folder,
        )
        contract = profile.contract()
        reasons: list[str] = []
        with Recorder.open(clients.history, process=NEMESIS_PROCESS, contract=contract, run=self.run_id) as recorder:
            robbed = profile.replicas_losing_unflushed_data
            world = World(self.target, self.topic, self.network, least_doubted(robbed, profile.min_isr))
            nemesis = Nemesis(world, recorder, profile.partitions)
            try:
                clients.start()
                try:
                    self._until_at_work(clients)
                    nemesis.carry_out(self.schedule, self._watcher(clients, nemesis, say))
                except KeyboardInterrupt:
                    say("interrupted: healing, and judging what was recorded")
                    self.interrupted = True
                attacked_s = time.monotonic() - began
                say("healing")
                reasons += nemesis.heal_all()
                time.sleep(AFTER_HEALING_S)
                clients.check()
                reasons += [f"{name} did not end in time and was killed" for name in clients.stop()]
            finally:
                clients.kill()
        counts = clients.counts()
        say("reading everything once more")
        reasons += drain_topic(
            self.target.bootstrap,
            self.topic,
            profile.partitions,
            clients.history,
            process=(clients.last_number + 1) * PROCESSES_A_CLIENT,
            contract=contract,
            run=self.run_id,
            within_s=DRAIN_WITHIN_S,
        )
        reasons += record_replicas(
            self.target,
            self.topic,
            clients.history,
            process=(clients.last_number + 2) * PROCESSES_A_CLIENT,
            contract=contract,
            run=self.run_id,
        )
        wanted = sum(producer.rate_per_s for producer in profile.producers) * attacked_s
        told, became = ("info", "sent") if profile.contract().acks == "0" else ("ok", "acknowledged")
        if counts.get(told, 0) < LOWEST_SHARE * wanted:
            reasons.append(f"only {counts.get(told, 0)} of {wanted:.0f} sends were {became}: too few to show anything")
        return self._judge(nemesis, counts, reasons, time.monotonic() - began)

    def _judge(self, nemesis: Nemesis, counts: Mapping[str, int], reasons: list[str], seconds: float) -> RoundResult:
        judgement = judge_locally(self.folder)
        verdict = "unknown" if reasons and judgement.verdict == "valid" else judgement.verdict
        result = RoundResult(
            verdict=verdict,
            folder=str(self.folder),
            topic=self.topic,
            anomalies=judgement.anomalies,
            permitted=judgement.permitted,
            reasons=[*reasons, *nemesis.deaths, *judgement.reasons],
            acknowledged=counts.get("ok", 0),
            unknown=counts.get("info", 0),
            refused=counts.get("fail", 0),
            read=counts.get("read", 0),
            committed=counts.get("committed", 0),
            aborted=counts.get("aborted", 0),
            faults=dict(nemesis.struck),
            leader_changes=nemesis.leader_changes,
            facts=judgement.facts,
            engines={"local": judgement.verdict},
            seconds=round(seconds, 1),
        )
        (self.folder / "verdict.json").write_text(result.model_dump_json(indent=1) + "\n")
        return result

    def _until_at_work(self, clients: Clients) -> None:
        until = time.monotonic() + self.at_work_within_s
        while not self.profile.at_work(clients.counts()) and time.monotonic() < until:
            clients.check()
            time.sleep(LOOK_AT_CLIENTS_S)

    def _watcher(self, clients: Clients, nemesis: Nemesis, say: Listener) -> Callable[[float], None]:
        """Once in a while: are the clients alive, and how far are they?"""
        next_at = 5.0

        def watch(elapsed: float) -> None:
            nonlocal next_at
            if elapsed < next_at:
                return
            next_at = elapsed + 5
            clients.check()
            counts = clients.counts()
            say(
                f"{elapsed:4.0f} s: {counts.get('ok', 0)} acknowledged, {counts.get('info', 0)} unknown, "
                f"{counts.get('read', 0)} read, {sum(nemesis.struck.values())} blows, "
                f"{nemesis.leader_changes} leader changes"
            )

        return watch


def judge_locally(folder: Path) -> Any:
    """The judgement on a round's history by the local engine."""
    from linearizability.pipeline.engine import check

    return next(iter(check([folder], engine="local")))


def judge_by_spark(results: Sequence[RoundResult]) -> None:
    """All rounds in one PySpark job, compared with what the local engine said. Errors: EnginesDisagree."""
    from linearizability.pipeline.engine import check

    judgements = check([Path(result.folder) for result in results], engine="spark", master="local[2]")
    for result, judgement in zip(results, judgements, strict=True):
        result.engines["spark"] = judgement.verdict
        same = (judgement.verdict, judgement.anomalies, judgement.permitted) == (
            result.engines["local"],
            result.anomalies,
            result.permitted,
        )
        if not same:
            raise EnginesDisagree(
                f"{result.folder}: local says {result.engines['local']} {result.anomalies}, "
                f"PySpark says {judgement.verdict} {judgement.anomalies}"
            )


def sum_up(
    plan: Plan, results: Sequence[RoundResult], target: dict[str, Any], seconds: float, folder: Path, interrupted: bool
) -> dict[str, Any]:
    """The worst verdict and the sums of all rounds."""
    from linearizability.pipeline.verdict import worst

    totals = {
        name: sum(getattr(result, name) for result in results)
        for name in ("acknowledged", "unknown", "refused", "read", "committed", "aborted", "leader_changes", "facts")
    }
    anomalies: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    permitted: Counter[str] = Counter()
    for result in results:
        anomalies.update(result.anomalies)
        faults.update(result.faults)
        for name, causes in result.permitted.items():
            permitted[name] += sum(causes.values())
    found = next((result for result in results if result.verdict == "invalid"), None)
    return {
        "verdict": worst([result.verdict for result in results]),
        "target": plan.target,
        "seed": plan.seed,
        "rounds": len(results),
        "seconds": round(seconds, 1),
        **totals,
        "faults": dict(sorted(faults.items())),
        "anomalies": dict(sorted(anomalies.items())),
        "permitted": dict(sorted(permitted.items())),
        "reasons": [reason for result in results for reason in result.reasons][:50],
        "engines": sorted({engine for result in results for engine in result.engines}),
        "found_in": found.folder if found else None,
        "interrupted": interrupted,
        "folder": str(folder),
        "described": target,
    }
