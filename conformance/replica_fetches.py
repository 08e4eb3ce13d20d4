"""Fetch requests with a replica id, as followers send them."""

from typing import Any, Unpack

from conformance.answers import error_name, only
from conformance.broker import Broker
from conformance.wire import BrokerConnection, Failed
from linearizability.client.requests import FetchParams, Topic, fetch_request
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
    current_leader_epoch: int = UNREPORTED,
    **params: Unpack[FetchParams],
) -> Any:
    """Fetch partition 0 with a replica id and a broker epoch (-1: not reported), and return the partition's result."""
    version = broker.version_for(FetchRequest)
    asked: FetchParams = {"max_wait_ms": 0, **params}
    request = fetch_request({(topic, 0): offset}, current_leader_epoch=current_leader_epoch, **asked)
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)
    else:
        request.replica_id = replica
    answer = broker.call(request, version, to=to)
    if answer.error_code != ErrorCode.NONE:
        raise Failed(f"a replica's fetch was answered with {error_name(answer.error_code)}")
    return only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")
