"""UpdateFeatures: sets the finalized level of each feature (KIP-584, KIP-778).

A level is the version that all nodes may use; 0 disables a feature. A request changes all its features or none. Its levels are
recorded also if they change nothing, as in Apache Kafka.

Source: org.apache.kafka.controller.FeatureControlManager; the messages are those of 4.3.1. As there, version 0's
`allow_downgrade` is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.brokers import METADATA_FEATURE
from reference.controller.configs import unify_min_isr
from reference.controller.decision import Decision
from reference.controller.image import ELR_FEATURE, MetadataImage
from reference.controller.quorum_voters import FEATURE as VOTERS_FEATURE
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Upgrade types; a downgrade is unsafe if it may lose metadata."""

Levels = Mapping[str, tuple[int, int]]
"""Feature -> the lowest and the highest level that a node supports; a missing feature is supported at level 0 only."""

SWITCHED_OFF = (0, 0)

METADATA_CHANGES = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""The levels of metadata.version with new records or fields: no downgrade may go below one of them.

Source: org.apache.kafka.server.common.MetadataVersion of 4.3.1, didMetadataChange.
"""

DEPENDENCIES = {(ELR_FEATURE, 1): (METADATA_FEATURE, 23)}
"""A feature and its level -> the feature that it depends on, and that feature's lowest level."""

FAILED = "The update failed for all features since the following feature had an error: "


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    controller: NodeId,
    supported: Levels,
    static_min_isr: str,
    kraft_version: int = 0,
) -> Decision[UpdateFeaturesResponse]:
    """Finalize levels; `supported` has this controller's ranges, `static_min_isr` is its own min.insync.replicas.

    If a feature occurs twice, the last one counts. The present level of kraft.version comes from the quorum, which also records
    a new one (`raised_kraft_version`).

    A refusal is a response with INVALID_UPDATE_VERSION and the reason at its top level.
    """
    updates = {update.feature: update for update in request.feature_updates}
    levels = {**image.features, VOTERS_FEATURE: kraft_version}
    proposed = levels | {name: update.max_version_level for name, update in updates.items()}
    try:
        for _, update in sorted(updates.items()):
            _check(image, update, controller, supported, levels)
            _check_dependency(update.feature, update.max_version_level, proposed)
    except KafkaError as error:
        return Decision([], refused(error))
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_message="NONE") for name in sorted(updates)
    ]
    enables_elr = ELR_FEATURE in updates and updates[ELR_FEATURE].max_version_level > 0
    records: list[Message] = [*unify_min_isr(image, static_min_isr)] if enables_elr else []
    records += [
        FeatureLevelRecord(name=name, feature_level=each.max_version_level)
        for name, each in updates.items()
        if name != VOTERS_FEATURE
    ]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    return Decision([] if request.validate_only else records, response)


def refused(error: KafkaError) -> UpdateFeaturesResponse:
    """The response to a request in which one feature has an error."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=f"{FAILED}{error.message}")


def raised_kraft_version(request: UpdateFeaturesRequest) -> int | None:
    """The requested level of kraft.version; None if the request has no upgrade of it."""
    found = [
        each.max_version_level
        for each in request.feature_updates
        if each.feature == VOTERS_FEATURE and each.upgrade_type == UPGRADE
    ]
    return found[-1] if found else None


def _check_dependency(name: str, level: int, proposed: Mapping[str, int]) -> None:
    """Check that the feature's dependency has its level. Errors: KafkaError INVALID_UPDATE_VERSION."""
    needed, least = DEPENDENCIES.get((name, level), (name, level))
    if proposed.get(needed, 0) < least:
        text = f"{name} could not be set to {level} because it depends on {needed} level {least}"
        raise _invalid(name, level, text)


def _check(
    image: MetadataImage,
    update: UpdateFeaturesRequest.FeatureUpdateKey,
    controller: NodeId,
    supported: Levels,
    levels: Mapping[str, int],
) -> None:
    """Check one update by itself. Errors: KafkaError INVALID_UPDATE_VERSION."""
    name, level, kind = update.feature, update.max_version_level, update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    _check_supported(f"Local controller {controller}", name, level, supported)
    for broker in image.brokers.values():
        known = {
            each.name: (each.min_supported_version, each.max_supported_version) for each in broker.registration.features
        }
        _check_supported(f"Broker {broker.id}", name, level, known)
    current = levels.get(name, 0)
    if level < current and kind == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name not in supported:
        raise _invalid(name, level, f"Feature {name} not found.")
    if name == VOTERS_FEATURE and level < current:
        raise _invalid(name, level, "Can't downgrade the version of this feature.")
    if name == METADATA_FEATURE and any(level < change <= current for change in METADATA_CHANGES):
        raise _metadata_downgrade(current, level, kind)


def _check_supported(who: str, name: str, level: int, supported: Levels) -> None:
    lowest, highest = supported.get(name, SWITCHED_OFF)
    if lowest <= level <= highest:
        return
    if (lowest, highest) == SWITCHED_OFF:
        raise _invalid(name, level, f"{who} does not support this feature.")
    raise _invalid(name, level, f"{who} only supports versions {lowest}-{highest}")


def _metadata_downgrade(current: int, level: int, kind: int) -> KafkaError:
    """The refusal of a downgrade: some present records are invalid at the lower level, and no records are rewritten."""
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if kind == UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    text = f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    text = f"Invalid update version {level} for feature {name}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)
