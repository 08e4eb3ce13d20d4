"""UpdateFeatures: which level of each feature the cluster has finalized (KIP-584, KIP-778).

A level is what all nodes have agreed to speak or write; 0 switches a feature off. All changes of a request are made together
or none is. What was asked is written down also where it changes nothing, as Apache Kafka does.

Source: org.apache.kafka.controller.FeatureControlManager; the texts are those of 4.3.1. As there, version 0's
`allow_downgrade` counts for nothing.
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
"""Feature -> the lowest and the highest level that a node supports; a missing one it supports as switched off."""

SWITCHED_OFF = (0, 0)

METADATA_CHANGES = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""The levels of metadata.version that brought new records or fields: no downgrade goes below one of them.

Source: org.apache.kafka.server.common.MetadataVersion of 4.3.1, didMetadataChange.
"""

DEPENDENCIES = {(ELR_FEATURE, 1): (METADATA_FEATURE, 23)}
"""A feature and its level: another feature, and the least level that it must have."""

FAILED = "The update failed for all features since the following feature had an error: "


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    controller: NodeId,
    supported: Levels,
    static_min_isr: str,
    kraft_version: int = 0,
) -> Decision[UpdateFeaturesResponse]:
    """Finalize levels; `supported` is what this controller knows, `static_min_isr` its own min.insync.replicas.

    Of a feature that is named twice the last one counts. kraft.version has its present level from the quorum, which also writes
    it down (`raised_kraft_version`).

    A refusal is an answer with INVALID_UPDATE_VERSION and the reason at the top.
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
    """The response that one feature's error makes for all."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=f"{FAILED}{error.message}")


def raised_kraft_version(request: UpdateFeaturesRequest) -> int | None:
    """The level that kraft.version is to be raised to; None where the request does not name it as an upgrade."""
    found = [
        each.max_version_level
        for each in request.feature_updates
        if each.feature == VOTERS_FEATURE and each.upgrade_type == UPGRADE
    ]
    return found[-1] if found else None


def _check_dependency(name: str, level: int, proposed: Mapping[str, int]) -> None:
    """Errors: KafkaError INVALID_UPDATE_VERSION."""
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
    """Errors: KafkaError INVALID_UPDATE_VERSION."""
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
    """Some records of the present level mean nothing at the lower one, and none is rewritten."""
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
