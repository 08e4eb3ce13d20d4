"""Controllers whose voters are in the metadata log and change (KIP-853): how a node is formatted, and what an operator asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from linearizability.simulation.configuration import CONTROLLER, PLAINTEXT, PORTS, host_of
from linearizability.simulation.schedule import METADATA_TOPIC, Fault, Schedule
from reference.controller.image import Endpoint
from reference.controller.quorum_snapshots import format_voters
from reference.controller.quorum_voters import LEVELS, Entry, Voter, VoterSet, voter_records
from reference.node.identity import Identity
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.primitives import NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.storage.disk import Disk

FORMATTED_LEVEL = 1
BEFORE_THE_LOG = Offset(-1)
TIMEOUT_MS = 1_000


def directory_id(number: int, slot: int = 0) -> UUID:
    """The id of a node's log directory; the first has the metadata log."""
    return UUID(int=(slot + 1 << 64) + number)


def identity_of(schedule: Schedule, number: int, incarnation: UUID) -> Identity:
    """Return a node's identity in one of its incarnations."""
    host = host_of(number) if schedule.nodes > 1 else "127.0.0.1"
    identity = Identity(
        NodeId(number), "simulated-cluster-id00", incarnation, (Endpoint(PLAINTEXT, host, PORTS[PLAINTEXT]),)
    )
    if schedule.coordination != "changing-voters":
        return identity
    others = tuple((host_of(other), PORTS[CONTROLLER]) for other in schedule.node_ids if other != number)
    return replace(identity, controller_endpoints=(controller_of(number),), bootstrap=others)


def controller_of(number: int) -> Endpoint:
    """Return the endpoint of a node's controller."""
    return Endpoint(CONTROLLER, host_of(number), PORTS[CONTROLLER])


def format_with_voters(schedule: Schedule, number: int, disk: Disk, folder: Path, now: TimestampMs) -> None:
    """Do as `format --initial-controllers`, and for a node that is no voter yet as `format --no-initial-controllers`."""
    first = schedule.voters or schedule.node_ids
    if schedule.coordination == "changing-voters" and number in first:
        voters = VoterSet(Voter(NodeId(each), directory_id(each), (controller_of(each),), LEVELS) for each in first)
        format_voters(
            disk, folder / f"{METADATA_TOPIC}-0", voter_records(Entry(BEFORE_THE_LOG, voters, FORMATTED_LEVEL)), now
        )
        disk.sync_folder(folder)


def change_of_voters(fault: Fault) -> Message:
    """Return the request of a fault."""
    directory = directory_id(fault.node)
    if fault.kind == "remove-voter":
        return RemoveRaftVoterRequest(cluster_id=None, voter_id=fault.node, voter_directory_id=directory)
    at = controller_of(fault.node)
    listener = AddRaftVoterRequest.Listener(name=at.listener, host=at.host, port=at.port)
    return AddRaftVoterRequest(
        cluster_id=None, timeout_ms=TIMEOUT_MS, voter_id=fault.node, voter_directory_id=directory, listeners=[listener]
    )
