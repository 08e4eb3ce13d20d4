"""ControllerRegistration: the image keeps the newest registration record of each controller."""

from __future__ import annotations

from uuid import UUID

import pytest

from reference.controller.controllers import register_controller
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.controller_registration import ControllerRegistrationRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.register_controller_record import RegisterControllerRecord
from tests.controller.cluster import ControlledCluster

LISTENER = ControllerRegistrationRequest.Listener(name="CONTROLLER", host="h", port=9093)
FEATURE = ControllerRegistrationRequest.Feature(name="kraft.version", max_supported_version=1)


def request(incarnation: int) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=7, incarnation_id=UUID(int=incarnation), listeners=[LISTENER], features=[FEATURE]
    )


def test_the_newest_registration_of_a_controller_is_carried() -> None:
    cluster = ControlledCluster()
    for incarnation in (1, 2):
        decision = register_controller(cluster.image, request(incarnation))
        assert decision.response.error_code == ErrorCode.NONE
        cluster.write(decision.records)
    (record,) = cluster.image.carried.values()
    assert isinstance(record, RegisterControllerRecord) and record.incarnation_id == UUID(int=2)
    (endpoint,), (feature,) = record.end_points, record.features
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "h", 9093)
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == ("kraft.version", 0, 1)


def test_an_older_metadata_version_knows_no_controllers() -> None:
    cluster = ControlledCluster()
    cluster.write([FeatureLevelRecord(name="metadata.version", feature_level=14)])
    with pytest.raises(KafkaError, match="too old") as refused:
        register_controller(cluster.image, request(1))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
