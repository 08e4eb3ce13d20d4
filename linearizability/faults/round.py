"""One round of a hunt: clients work on a topic under a schedule of faults; then all is healed, read, and judged."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from linearizability.agreement import Agreement, compare_nodes
from linearizability.explorer.history import write_page
from linearizability.faults.backend import Listener
from linearizability.faults.entrance import entrance
from linearizability.faults.fault import FAULTS, World, least_doubted, select
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.network import Links
from linearizability.faults.plan import Plan
from linearizability.faults.schedule import Schedule, draw
from linearizability.history.recorder import Recorder, RecordingError
from linearizability.progress import time_left
from linearizability.targets import Target
from linearizability.targets.mixed import MixedCluster
from linearizability.workload.clients import Clients
from linearizability.workload.cluster import Coordinated, create_topic, served_apis
from linearizability.workload.drain import Unread, drain_topic
from linearizability.workload.profile import PROCESSES_A_CLIENT, Profile, standard_profile
from linearizability.workload.replicas import record_replicas
from linearizability.workload.states import inspecting

AT_WORK_WITHIN_S = 10.0
"""How long the first fault waits for the clients by default: a client that never worked shows nothing under a fault."""
AFTER_HEALING_S = 6.0
"""How long the clients work on after the healing, to show whether they can."""
LOOK_AT_CLIENTS_S = 0.2
REPORT_EVERY_S = 5.0
DRAIN_WITHIN_S = 120.0
LOWEST_SHARE = 0.05
"""Acknowledged sends, as a share of those that were to be sent, below which a run shows nothing."""
NEMESIS_PROCESS = 0
"""The process number of the nemesis; clients are numbered from PROCESSES_A_CLIENT on."""


class RoundResult(BaseModel):
    """The report of one round."""

    verdict: str
    folder: str
    topic: str
    anomalies: dict[str, int] = {}
    permitted: dict[str, dict[str, int]] = {}
    reasons: list[str] = []
    unread: list[Unread] = Field(default=[], description="what the final read did not come to; each is a reason, too")
    stuck: list[str] = Field(default=[], description="clients that did not end in time; each is a reason, too")
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    read: int = 0
    committed: int = Field(default=0, description="transactions")
    aborted: int = Field(default=0, description="transactions")
    faults: dict[str, int] = {}
    effects: dict[str, int] = Field(default={}, description="of faults that take effect only when the target answers")
    leader_changes: int = 0
    facts: int = 0
    engines: dict[str, str] = Field(default={}, description="engine -> its verdict")
    agreement: Agreement | None = Field(default=None, description="of the nodes of a mixed cluster, after healing")
    seconds: float = 0


def drawn_schedule(plan: Plan, target: Target, network: Links | None, seed: int) -> Schedule:
    """Faults of a seed, of those that the plan names and the target can suffer."""
    return draw(seed, plan.round_s, select(plan.faults, target, network), len(target.nodes))


class Round:
    """One topic, from its creation to the verdict."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        network: Links | None,
        folder: Path,
        topic: str,
        schedule: Schedule,
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
        self.attacked_s = 0.0
        self.unread: list[Unread] = []
        self.stuck: list[str] = []
        self.agreement: Agreement | None = None
        # Refuse now a fault that the target cannot have, and not in the middle of the round.
        select(plan.faults, target, network)
        nodes = len(target.nodes)
        self.schedule = schedule
        injected = {injection.fault for wave in self.schedule.waves for injection in wave.injections}
        self.robbed = max((FAULTS[name].robs(nodes) for name in injected), default=0)
        """How many nodes one fault robs at once of bytes that were not fsynced."""
        self.schedule.save(folder / "schedule.json")
        self.profile: Profile = standard_profile(
            nodes,
            served=served_apis(target.nodes),
            acks=plan.acks,
            unclean_election=plan.unclean_election,
            rate_per_s=plan.rate_per_s,
            transactions=plan.transactions,
            group_protocol=plan.group_protocol,
        )

    def __str__(self) -> str:
        kinds = sorted({injection.fault for wave in self.schedule.waves for injection in wave.injections})
        return f"{self.schedule.seconds:.0f} s of {', '.join(kinds) or 'no faults'}"

    def run(self, say: Listener) -> RoundResult:
        """Run clients and faults, heal, drain, judge. Errors: TargetError."""
        with entrance(self.target) as bootstrap:
            return self._run(bootstrap, say)

    def _run(self, bootstrap: str, say: Listener) -> RoundResult:
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
            bootstrap=bootstrap,
            topic=self.topic,
            seed=self.schedule.seed,
            folder=self.folder,
        )
        most = least_doubted(self.robbed, profile.min_isr)
        world = World(self.target, self.topic, self.network, most, self._coordinated())
        recorder = Recorder.open(clients.history, process=NEMESIS_PROCESS, contract=profile.contract(), run=self.run_id)
        nemesis = Nemesis(world, recorder, profile.partitions)
        reasons: list[str] = []
        try:
            with recorder, self._inspecting(clients):
                reasons += self._attack(clients, nemesis, say)
            say("reading everything once more")
            self.unread = self._read_to_the_end(clients, bootstrap)
            reasons += [str(each) for each in self.unread]
            if nemesis.in_sync:  # a replica that is not may still hold what its leader lacks
                reasons += self._read_replicas(clients)
            if isinstance(self.target, MixedCluster):
                say("comparing the nodes")
                self.agreement = compare_nodes(self.target)
                reasons += self.agreement.reasons
        except RecordingError as error:
            reasons.append(f"the history could not be written: {error}")
        reasons += self._too_little(clients.counts())
        return self._judge(nemesis, clients.counts(), reasons, time.monotonic() - began)

    def _attack(self, clients: Clients, nemesis: Nemesis, say: Listener) -> list[str]:
        """Clients work while the schedule is carried out, and on after the healing. Returns problems of healing and clients."""
        began = time.monotonic()
        try:
            clients.start()
            try:
                self._until_at_work(clients)
                nemesis.carry_out(self.schedule, self._watcher(clients, nemesis, say))
            except KeyboardInterrupt:
                say("interrupted: healing, and judging what was recorded")
                self.interrupted = True
            finally:
                self.attacked_s = time.monotonic() - began
            say("healing")
            failed = nemesis.heal_all()
            time.sleep(AFTER_HEALING_S)
            clients.check()
            self.stuck = [f"{name} did not end in time and was killed" for name in clients.stop()]
            return failed + self.stuck
        finally:
            clients.kill()

    def _inspecting(self, clients: Clients) -> AbstractContextManager[None]:
        """A context that records the offsets that each node reports of the partitions that it leads."""
        return inspecting(
            self.target.nodes,
            self.topic,
            clients.history,
            process=(clients.last_number + 3) * PROCESSES_A_CLIENT,
            contract=self.profile.contract(),
            run=self.run_id,
        )

    def _read_to_the_end(self, clients: Clients, bootstrap: str) -> list[Unread]:
        """The final read of all partitions. Returns those that could not be read."""
        contract, process = self.profile.contract(), (clients.last_number + 1) * PROCESSES_A_CLIENT
        with Recorder.open(clients.history, process=process, contract=contract, run=self.run_id) as recorder:
            topic, partitions = self.topic, self.profile.partitions
            return drain_topic(bootstrap, topic, partitions, recorder, contract, within_s=DRAIN_WITHIN_S)

    def _read_replicas(self, clients: Clients) -> list[str]:
        """Record each replica's contents at the end. Returns a sentence for each that could not be read."""
        return record_replicas(
            self.target,
            self.topic,
            clients.history,
            process=(clients.last_number + 2) * PROCESSES_A_CLIENT,
            contract=self.profile.contract(),
            run=self.run_id,
        )

    def _coordinated(self) -> list[Coordinated]:
        """The groups of the consumers."""
        return [Coordinated("group", group) for group in sorted({each.group for each in self.profile.consumers} - {""})]

    def _too_little(self, counts: Mapping[str, int]) -> list[str]:
        """A reason where too few sends succeeded to show anything, else none; acks=0 has no answers."""
        wanted = sum(producer.rate_per_s for producer in self.profile.producers) * self.attacked_s
        completion, became = ("info", "sent") if self.profile.contract().acks == "0" else ("ok", "acknowledged")
        if counts.get(completion, 0) >= LOWEST_SHARE * wanted:
            return []
        return [f"only {counts.get(completion, 0)} of {wanted:.0f} sends were {became}: too few to show anything"]

    def _judge(self, nemesis: Nemesis, counts: Mapping[str, int], reasons: list[str], seconds: float) -> RoundResult:
        judgement = judge_locally(self.folder)
        verdict = "unknown" if reasons and judgement.verdict == "valid" else judgement.verdict
        if self.agreement is not None and self.agreement.differences:
            verdict = "invalid"
        result = RoundResult(
            verdict=verdict,
            folder=str(self.folder),
            topic=self.topic,
            anomalies=judgement.anomalies,
            permitted=judgement.permitted,
            reasons=[
                *(self.agreement.differences if self.agreement else ()),
                *reasons,
                *nemesis.deaths,
                *judgement.reasons,
            ],
            unread=self.unread,
            stuck=self.stuck,
            acknowledged=counts.get("ok", 0),
            unknown=counts.get("info", 0),
            refused=counts.get("fail", 0),
            read=counts.get("read", 0),
            committed=counts.get("committed", 0),
            aborted=counts.get("aborted", 0),
            faults=dict(nemesis.injected),
            effects=dict(nemesis.world.effects),
            leader_changes=nemesis.leader_changes,
            facts=judgement.facts,
            engines={"local": judgement.verdict},
            seconds=round(seconds, 1),
            agreement=self.agreement,
        )
        try:
            (self.folder / "verdict.json").write_text(result.model_dump_json(indent=1) + "\n")
            if judgement.verdict == "invalid":
                write_page(self.folder, judgement)
        except OSError as error:
            result.reasons.append(f"the round's verdict could not be stored: {error}")
        return result

    def _until_at_work(self, clients: Clients) -> None:
        until = time.monotonic() + self.at_work_within_s
        while not self.profile.at_work(clients.counts()) and time.monotonic() < until:
            clients.check()
            time.sleep(LOOK_AT_CLIENTS_S)

    def _watcher(self, clients: Clients, nemesis: Nemesis, say: Listener) -> Callable[[float], None]:
        """A function that checks and reports the clients every few seconds."""
        next_at = REPORT_EVERY_S

        def watch(elapsed: float) -> None:
            nonlocal next_at
            if elapsed < next_at:
                return
            next_at = elapsed + REPORT_EVERY_S
            clients.check()
            counts = clients.counts()
            say(
                f"{elapsed:4.0f} of {self.schedule.seconds:.0f} s: "
                f"{counts.get('ok', 0)} acknowledged, {counts.get('info', 0)} unknown, "
                f"{counts.get('read', 0)} read, {sum(nemesis.injected.values())} faults, "
                f"{nemesis.leader_changes} leader changes{time_left(elapsed / self.schedule.seconds, elapsed)}"
            )

        return watch


def judge_locally(folder: Path) -> Any:
    """The judgement on a round's history by the local engine."""
    from linearizability.pipeline.engine import check

    return next(iter(check([folder], engine="local")))
