"""AlterClientQuotas and DescribeClientQuotas. (QTA-*)"""

from __future__ import annotations

from reference.controller.client_quotas import alter_client_quotas as planned
from reference.controller.client_quotas import entity_of_entry, matching_quotas
from reference.controller.image import MetadataImage
from reference.node.active_controller import ActiveController
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.quotas.table import Entity


def alter_client_quotas(
    controller: ActiveController, version: int, body: AlterClientQuotasRequest, now: TimestampMs
) -> AlterClientQuotasResponse:
    """Set and remove quotas, all in one batch; a refused entry changes nothing and does not stop the others.

    The response has one result per entity, of its last entry.
    """
    records: list[Message] = []
    seen: set[Entity] = set()
    results: dict[Entity, AlterClientQuotasResponse.EntryData] = {}
    for entry in body.entries:
        entity = entity_of_entry(entry)
        result = results[entity] = AlterClientQuotasResponse.EntryData(
            error_message=None,
            entity=[AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        try:
            records += planned(controller.image.quotas, entry, seen)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    if not body.validate_only:
        controller.append(records, now)
    return AlterClientQuotasResponse(entries=[*results.values()])


def describe_client_quotas(
    image: MetadataImage, request: Request, body: DescribeClientQuotasRequest, now: TimestampMs
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match a filter; an invalid filter gets an error without entries."""
    answer = DescribeClientQuotasResponse
    try:
        found = [*matching_quotas(image.quotas, body)]
    except KafkaError as error:
        return answer(error_code=error.code, error_message=error.message, entries=None)
    return answer(
        error_code=ErrorCode.NONE,
        entries=[
            answer.EntryData(
                entity=[answer.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[answer.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )
