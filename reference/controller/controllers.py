"""The registration of controllers: their endpoints and features (KIP-919).

The image keeps the records (`carried`); a node registers itself by `reference.node.registering`.
Source: org.apache.kafka.controller.ClusterControlManager.registerController.
"""

from __future__ import annotations

from reference.controller.brokers import METADATA_FEATURE
from reference.controller.decision import Decision
from reference.controller.image import MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from reference.protocol.messages.register_controller_record import RegisterControllerRecord

FIRST_WITH_CONTROLLERS = 15
"""The first level of metadata.version (3.7-IV0) at which controllers are registered."""


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Errors: KafkaError UNSUPPORTED_VERSION."""
    if image.features.get(METADATA_FEATURE, 0) < FIRST_WITH_CONTROLLERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    endpoint, feature = RegisterControllerRecord.ControllerEndpoint, RegisterControllerRecord.ControllerFeature
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Decision([record], ControllerRegistrationResponse())
