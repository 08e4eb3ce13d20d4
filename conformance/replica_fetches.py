"""Fetches in the name of a replica, as followers send them."""

from typing import Any

from conformance.answers import error_name, only
from conformance.broker import Broker
from conformance.wire import BrokerConnection, Failed
from linearizability.client.requests import Topic, fetch_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest

UNREPORTED = -1


def fetch_as(
    broker: Broker,
    topic: Topic,
    replica: int,
    offset: int,
    to: tuple[str, int] | BrokerConnection,
    *,
    epoch: int = UNREPORTED,
    max_wait_ms: int = 0,
    current_leader_epoch: int = UNREPORTED,
) -> Any:
    """Fetch partition 0 in the name of a replica, with a broker epoch (-1: not reported); gives the partition's result."""
    version = broker.version_for(FetchRequest)
    request = fetch_request({(topic, 0): offset}, max_wait_ms=max_wait_ms, current_leader_epoch=current_leader_epoch)
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)
    else:
        request.replica_id = replica
    answer = broker.call(request, version, to=to)
    if answer.error_code != ErrorCode.NONE:
        raise Failed(f"a replica's fetch was answered with {error_name(answer.error_code)}")
    return only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")
