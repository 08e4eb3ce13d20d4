"""Finds the models in which each promise is tested: a promise whose antecedent is true in no state holds vacuously.

`REACHED` has for each promise a condition on a state in which it is tested, or *asked*. Each model is searched until all of its
promises have been asked, or to its end; `tidegauge spec reach --record` stores the result. The switches that break a promise are
in the catalogue.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spec.checker import SHORT_RUN, Verdict, check
from spec.models import SPEC, Case, Model, checked, modules_of, without_comments

STORE = SPEC / "promises.json"
ALWAYS = "TRUE"
"""The condition of a promise that every state tests."""

REACHED: dict[str, dict[str, str]] = {
    "replication": {
        "TypeOK": ALWAYS,
        "EpochsNeverDecreaseInLog": r"\E b \in Brokers : \E i \in 1..(Len(log[b]) - 1) : log[b][i].epoch < log[b][i + 1].epoch",
        "LogMatching": r"\E a, b \in Brokers : log[a] # log[b] /\ log[a] # <<>> /\ log[b] # <<>> /\ log[a][1] = log[b][1]",
        "HighWatermarkBound": r"\E b \in Brokers : 0 < highWatermark[b] /\ highWatermark[b] = EndOffset(log[b])",
        "CommittedLogsAgree": r"\E a, b \in Brokers : highWatermark[a] > highWatermark[b] /\ log[a] # log[b]",
        "LeaderCompleteness": r"partition.leaderEpoch > 1 /\ \E l, b \in Brokers : IsCurrentLeader(l) /\ l # b "
        r"/\ highWatermark[b] > 0",
        "EligibleAreComplete": r"\E e \in (partition.isr \cup partition.elr) \ lostTail : \E b \in Brokers : b # e "
        r"/\ highWatermark[b] > highWatermark[e]",
        "MaximalIsrIsSuperset": r"\E l \in Brokers : IsCurrentLeader(l) /\ partition.leader = l "
        r"/\ metadata[l].isr # partition.isr",
        "NoFencedMemberInIsr": r"\E b \in Brokers : registry[b].fenced",
        "EligibleAreReplicas": r"partition.elr # {} /\ partition.replicas # Brokers",
        "IsrAndElrAreDisjoint": r"partition.elr # {} /\ partition.isr # {}",
        "LeaderIsInIsr": r"partition.leader # None /\ partition.leaderEpoch > 1",
        "NoAcknowledgedRecordLost": r"acknowledged # {} /\ partition.leaderEpoch > 1 /\ \E l \in Brokers : IsCurrentLeader(l)",
        "ConsumedNeverChanges": r"consumed # <<>> /\ partition.leaderEpoch > 1 /\ \E l \in Brokers : IsCurrentLeader(l)",
        "NoDuplicateOrGap": r"Idempotent /\ partition.leaderEpoch > 1 /\ \E b \in Brokers : Leads(b) /\ log[b] # <<>>",
        "EpochsNeverDecrease": r"partition.leaderEpoch > 1",
        "HighWatermarkMonotoneInEpoch": r"\E b \in Brokers : Leads(b) /\ highWatermark[b] > 0",
        "UnfencedHaveReplayed": r"\E b \in Unfenced : Running(b) /\ registry[b].brokerEpoch > 1",
        "ProposalsAreCurrent": r"\E l \in Brokers : Leads(l) /\ pending[l] # None /\ metadata[l].partitionEpoch > 1",
        "ReassignmentsEndInSync": r"Cardinality(partition.adding) > 1",
        "UnfencedKnowThePartition": r"\E b \in Unfenced : Running(b) /\ registry[b].brokerEpoch > 1",
        "MemoryFitsRole": r"\E b \in Brokers : progress[b] # NoProgress /\ partition.leader # b",
        "ProposalsChangeTheIsr": r"\E l \in Brokers : Leads(l) /\ pending[l] # None",
        "ProgressIsOfThisEpoch": r"\E b \in Brokers : progress[b] # NoProgress /\ partition.leaderEpoch > 1",
        "ChangesHaveEpochs": r"partition.leaderEpoch > 1",
        "LeaversStayEligible": r"partition.elr # {}",
        "LeaversAreFenced": r"Cardinality(partition.isr) < Cardinality(partition.replicas)",
        "UncleanUntilRegistered": r'\E b \in Brokers : status[b] = "recovered"',
        "UncleanLeadersAreAlone": r"UncleanElection /\ partition.leader = None /\ partition.elr # {}",
        "ProgressIsOfFollowers": r"\E b \in Brokers : progress[b] # NoProgress",
        "LeadersAreReplacedForAReason": r"UncleanElection /\ partition.leaderEpoch > 1",
        "AddedUntilInSync": r"partition.adding # {}",
        "AppendedUnderMinIsr": r"Len(sent) < Records /\ \E l \in Brokers : Leads(l) /\ UnderMinIsr(l)",
        "RestIsHealed": r"~ENABLED <<Healing>>_stateVars",
        "LateSpec": r"\E a \in answers : a.log # log[a.from]",
        "LeaderAppears": r"\A b \in Brokers : ~(IsCurrentLeader(b) /\ partition.leader = b)",
        "IsrIsRestored": r"partition.isr # Brokers",
        "MetadataConverges": r"\E b \in Brokers : Running(b) /\ metadata[b].leaderEpoch # partition.leaderEpoch",
        "HighWatermarkCatchesUp": r"\E b \in Brokers : IsCurrentLeader(b) /\ highWatermark[b] # EndOffset(log[b])",
        "ProposalsAreResolved": r"\E b \in Brokers : Leads(b) /\ pending[b] # None",
        "ProduceEnds": r"\E b \in Brokers : IsCurrentLeader(b) /\ Numbers(log[b]) \ acknowledged # {}",
    },
    "quorum": {
        "OneLeaderPerEpoch": r'\E v, w \in Voters : v # w /\ role[v] = "leader" /\ role[w] = "leader"',
        "LogMatching": r"\E v, w \in Voters : v # w /\ log[v] # <<>> /\ log[w] # <<>> /\ LastEpoch(log[v]) = LastEpoch(log[w])",
        "HighWatermarkBound": r"\E v \in Voters : 0 < highWatermark[v] /\ highWatermark[v] = EndOffset(log[v])",
        "CommittedLogsAgree": r"\E v, w \in Voters : v # w /\ highWatermark[v] > 0 /\ highWatermark[w] > 0",
        "LeaderCompleteness": r'\E l, v \in Voters : l # v /\ role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) '
        r"/\ highWatermark[v] > highWatermark[l]",
        "EpochsNeverDecrease": r"\E v, w \in Voters : epoch[v] > epoch[w]",
        "RolesFitVotes": r'\E v \in Voters : role[v] = "leader"',
        "VotesAreFinal": r"\E v \in Voters : votedFor[v] # None",
        "EpochsBeginWithCandidates": r"\E v \in Voters : epoch[v] > 0",
        "ReachedIsThere": r'\E l, f \in Voters : role[l] = "leader" /\ reached[l][f] > 0',
        "NothingIsTakenBack": r'\E v \in Voters : role[v] = "leader" /\ log[v] # <<>> /\ highWatermark[v] > 0',
        "RestIsReplicated": r'~ENABLED <<Work>>_stateVars /\ \E l \in Voters : role[l] = "leader"',
        "SharedRecordsStay": r'\E f, l \in Voters : role[l] = "leader" /\ epoch[f] = epoch[l] /\ ~InLine(f, l) '
        r"/\ log[l] # <<>> /\ Prefix(log[f], 1) = Prefix(log[l], 1)",
        "LeadersCountTheirEpoch": r'\E l, f \in Voters : role[l] = "leader" /\ role[f] = "follower" /\ epoch[f] = epoch[l]',
        "VotesWereGiven": r'\E v, w \in Voters : v # w /\ role[v] = "prospective" /\ w \in votes[v]',
        "ReachedWasThere": r"\E l, f \in Voters : l # f /\ reached[l][f] > 0",
        "ResponsesKeepWhatIsShared": r"\E f \in Voters : epoch[f] \in DOMAIN leaderships "
        r"/\ log[f] # <<>> /\ ~IsPrefix(log[f], leaderships[epoch[f]].log)",
        "LeadersCommit": r"\E f \in Voters : epoch[f] \in DOMAIN leaderships "
        r"/\ highWatermark[f] < leaderships[epoch[f]].highWatermark",
        "SomeNodeCanLead": r"\E v \in Voters : v \in VotersBefore(v) \ VotersOf(v)",
        "KeepsPromises": r"committed # <<>>",
    },
    "transactions": {
        "NoHangingTransaction": r"\E p \in Partitions : \E i \in DOMAIN log[p] : IsOpen(p, i)",
        "VisibleIsDecided": r'\E p \in Partitions : \E i \in DOMAIN log[p] : log[p][i].kind = "data" /\ ~IsOpen(p, i)',
        "ProducerEpochsNeverDecreaseInLog": r"\E p \in Partitions : Len(log[p]) > 1 /\ log[p][1].epoch < Last(p).epoch",
        "DecisionsAreFinal": r'\E t \in DOMAIN decided : decided[t] # "open"',
        "JoinedByPresentWrites": r'coordinator.state = "ongoing"',
        "TakenOnce": r"\E p \in Partitions : log[p] # <<>> /\ \E w \in network : w.partition = p",
        "TransactionsBeginEmpty": r"producer.transaction > 1",
        "JoinedWritesAreTaken": r'coordinator.state = "ongoing" /\ \E w \in network : w.epoch = coordinator.epoch',
        "RestIsCompleted": r"~ENABLED <<Work>>_stateVars",
        "DecidedIsCompleted": r'coordinator.state = "prepared"',
    },
    "groups": {
        "NoDoubleAssignment": r"\E a, b \in Members : a # b /\ Held(a) # {} /\ owned[b] # {}",
        "OwnedIsGiven": r"\E m \in joined : owned[m] # {} /\ revoking[m] # {}",
        "MemberEpochIsNotAhead": r"assignedEpoch < groupEpoch /\ \E m \in joined : epoch[m] = assignedEpoch",
        "OnlyMembersHave": r"joined # Members /\ \E m \in joined : Held(m) # {}",
        "TargetIsBalanced": r"joined # {} /\ assignedEpoch = groupEpoch",
        "MemoryFitsMembership": r"\E m \in Members : revoking[m] # {}",
        "TargetsHaveEpochs": r"\E p \in Partitions : target[p] # None",
        "MembersMoveInOrder": r"\E m \in joined : epoch[m] > 0",
        "RestIsConverged": r"~ENABLED <<Work>>_stateVars",
        "Converges": r"~Converged",
    },
    "historical": {
        "OneControllerPerEpoch": r"\E a, b \in Brokers : a # b /\ control[a].epoch # 0 /\ control[b].epoch # 0",
        "EphemeralNodesHaveSessions": r"sessions \cup orphans # Brokers",
        "OneLeaderPerEpoch": r"\E a, b \in Brokers : a # b /\ Leads(a) /\ Leads(b)",
        "MaximalIsrIsSuperset": r"\E l \in Brokers : LeadsByState(l) /\ role[l].isr # state.isr",
        "LeaderIsInIsr": r"state # None /\ state.leaderEpoch > 1 /\ state.isr # Brokers",
        "IsrIsComplete": r"committed # {} /\ state.isr # Brokers",
        "NoCommittedRecordLost": r"committed # {} /\ \E l \in Brokers : LeadsByState(l) /\ state.leaderEpoch > 1",
        "OnlyRemovedReplicasAreDeleted": r'\E b \in Brokers : \E r \in Arriving(b) : r.kind = "StopReplica" /\ r.deletes',
        "DeposedControllersWriteNothing": r"\E c \in Brokers : IsActive(c) /\ c \in sessions "
        r"/\ control[c].epoch < controllerEpoch /\ control[c].state = state",
        "StaleRequestsChangeNothing": r"\E b \in running : \E r \in Arriving(b) : r.controllerEpoch < newestEpoch[b]",
        "EpochsNeverDecrease": r"controllerEpoch > 1 /\ state # None /\ state.leaderEpoch > 1",
        "MetadataNeverGoesBack": r"\E b \in running : metadata[b] # None /\ \E r \in Arriving(b) : "
        r'r.kind = "UpdateMetadata" /\ r.leaderEpoch < metadata[b].leaderEpoch',
        "OwnerControls": r"controllerEpoch > 1",
        "RegisteredKnowTheirEpoch": r"\E b \in running : registered[b] > 1",
        "FollowersHaveTheLog": r"\E b \in Brokers : log[b] = None",
        "ElectedAmongTheLive": r"state # None /\ state.leaderEpoch > 1",
        "StoppedAreStopped": r'\E b \in running : \E r \in Arriving(b) : r.kind = "StopReplica"',
        "TopicsEndWhole": r'topic.status = "to be deleted"',
        "RestIsHealed": r"~ENABLED <<Recovery>>_stateVars",
        "MemoryFitsProcess": r"running # Brokers /\ \E b \in running : brokerEpoch[b] # 0",
        "ControllersReadFirst": r"\E c \in Brokers : control[c].epoch # 0 /\ ~control[c].isLoaded",
        "TheDeadAreSentNothing": r"\E c, b \in Brokers : control[c].isLoaded /\ control[c].live[b] = 0",
        "ProposalsAreCurrent": r"\E l \in Brokers : pending[l] # None /\ role[l].leaderEpoch > 1",
        "LeadersKnowTheState": r"\E l \in Brokers : LeadsByState(l) /\ pending[l] = None /\ state.version > 1",
        "NodesAreMadeOnce": r"controllerEpoch > 1",
        "ControllersBeginByReading": r"\E c \in Brokers : control[c].epoch > 1",
        "LiveFollowsTheNodes": r"\E c, b \in Brokers : control[c].isLoaded /\ control[c].live[b] # registered[b]",
        "DecisionsChangeTheState": r"state # None /\ state.leaderEpoch > 1",
        "OnlyTheGoneAreReplaced": r"state # None /\ state.leaderEpoch > 1",
        "StateIsOfTheTopic": r"state # None /\ topic.id > 1",
        "RolesAreOfReplicas": r"state # None /\ state.replicas # Brokers",
        "DeletionsAreKnown": r"\E c \in Brokers : control[c].deletes",
        "DeletionsBeginOnce": r"\E b \in Brokers : IsToDelete(b)",
        "LeadersLeadOn": r"state # None /\ \E c \in Brokers : state.leader \in control[c].stopping",
        "ProducedByLeaders": r"produced > 0",
        "BrokersLearnTheEpoch": r"\E b \in running : \E r \in Arriving(b) : r.controllerEpoch > newestEpoch[b]",
        "ControllerAppears": r"controllerNode = None",
        "BrokersFollowTheState": r"\E b \in state.replicas : role[b].leaderEpoch # state.leaderEpoch",
    },
}
"""Book -> promise -> the condition on a state that asks it."""

NOT_SEEN: dict[tuple[str, str], str] = {}
"""(book, promise) that no stored search has asked -> the reason."""


@dataclass(frozen=True)
class Reach:
    """The promises of a model that some state asks, those that none does, and the number of states searched."""

    model: str
    reached: tuple[str, ...]
    unreached: tuple[str, ...]
    verdict: str
    distinct: int
    seconds: float
    digest: str


def probes(model: Model) -> dict[str, str]:
    """The model's promises, each with the condition on a state that asks it."""
    return {name: REACHED[model.folder][name] for name in checked(model.text)}


def probe_module(model: Model) -> str:
    """The model's module with an invariant that reports each promise when it is asked, and fails when all were."""
    asked = ",\n    ".join(probes(model).values())
    numbers = f"1..{len(probes(model))}"
    return (
        f"---- MODULE Reach ----\nEXTENDS {model.module}, TLC\n"
        f"ASSUME \\A i \\in {numbers} : TLCSet(i, FALSE)\n"
        f"Asked == <<\n    {asked}>>\n"
        f'Report(i) == IF ~TLCGet(i) /\\ Asked[i] THEN PrintT(<<"reached", i>>) /\\ TLCSet(i, TRUE) ELSE TRUE\n'
        f"NotAll == (\\A i \\in {numbers} : Report(i)) /\\ ~\\A i \\in {numbers} : TLCGet(i)\n====\n"
    )


def digest(model: Model) -> str:
    """A digest of everything that decides the result: a stored row with another digest is stale."""
    texts = [without_comments(path.read_text()) for path in modules_of(SPEC / model.folder, model.module)]
    return hashlib.sha256("\n".join([*texts, model.text, probe_module(model)]).encode()).hexdigest()[:12]


def reach(model: Model, budget_s: float = 300, memory_mb: int = 2000) -> Reach:
    """Search a model for states in which its promises are asked. Errors: RuntimeError if TLC fails."""
    text = re.sub(r"^(INVARIANTS?|PROPERT(Y|IES))\n(  .*\n?)*", "", model.text, flags=re.M)
    job = Case(model).job(workers=1, memory_mb=memory_mb)
    job = replace(job, module="Reach", modules={"Reach": probe_module(model)}, jvm=SHORT_RUN, coverage=False)
    outcome = check(replace(job, configuration=text.rstrip() + "\nINVARIANT NotAll\n", budget_s=budget_s))
    if outcome.verdict not in (Verdict.VIOLATED, Verdict.HOLDS, Verdict.SEARCHED, Verdict.OUT_OF_TIME):
        raise RuntimeError(f"{model.name}: {outcome.verdict}: {outcome.reason}")
    names = list(probes(model))
    seen = {names[int(number) - 1] for number in re.findall(r'<<"reached", (\d+)>>', outcome.output)}
    return Reach(
        model.name,
        tuple(name for name in names if name in seen),
        tuple(name for name in names if name not in seen),
        str(outcome.verdict),
        outcome.distinct,
        outcome.seconds,
        digest(model),
    )


def load(path: Path = STORE) -> dict[str, Reach]:
    """The stored rows by model."""
    if not path.exists():
        return {}
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return {row["model"]: _read(row) for row in rows}


def _read(row: dict[str, Any]) -> Reach:
    row |= {"reached": tuple(row["reached"]), "unreached": tuple(row["unreached"])}
    return Reach(**row)


def store(row: Reach, path: Path = STORE) -> None:
    """Add or replace one row."""
    rows = load(path) | {row.model: row}
    path.write_text("[\n" + ",\n".join(json.dumps(asdict(each)) for each in rows.values()) + "\n]\n")
