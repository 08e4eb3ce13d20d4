"""UpdateFeatures, case by case as Apache Kafka 4.3.1 answered the same requests (errors and their texts)."""

from __future__ import annotations

import pytest

from reference.controller.configs import BROKER_RESOURCE, MIN_ISR
from reference.controller.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features
from reference.controller.image import ELR_FEATURE
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from reference.protocol.primitives import NodeId
from tests.controller.cluster import ControlledCluster

SUPPORTED = {"metadata.version": (7, 30), ELR_FEATURE: (0, 1), "group.version": (0, 1), "kraft.version": (0, 1)}
CONTROLLER = NodeId(1)
FAILED = "The update failed for all features since the following feature had an error: "
NOT_A_DOWNGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)

Update = tuple[str, int, int]


def ask(
    cluster: ControlledCluster, *updates: Update, validate_only: bool = False, kraft_version: int = 0
) -> tuple[UpdateFeaturesResponse, list[tuple[str, int]]]:
    """The response, and the feature levels of the written records."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    decision = update_features(cluster.image, request, CONTROLLER, SUPPORTED, "2", kraft_version)
    cluster.write(decision.records)
    levels = [record for record in decision.records if isinstance(record, FeatureLevelRecord)]
    others = [record for record in decision.records if record not in levels]
    assert all(isinstance(record, ConfigRecord) for record in others)
    return decision.response, [(record.name, record.feature_level) for record in levels]


@pytest.fixture
def cluster() -> ControlledCluster:
    """A cluster without a broker, in which all of `SUPPORTED` is finalized."""
    cluster = ControlledCluster()
    cluster.write([FeatureLevelRecord(name="group.version", feature_level=1)])
    return cluster


def test_with_eligible_leader_replicas_all_brokers_have_one_min_isr(cluster: ControlledCluster) -> None:
    """KIP-966; the records and their order are those of Apache Kafka's ConfigurationControlManager."""
    of_broker = {"resource_type": BROKER_RESOURCE, "name": MIN_ISR}
    cluster.write([FeatureLevelRecord(name=ELR_FEATURE, feature_level=0)])
    cluster.write([ConfigRecord(resource_name=name, value="3", **of_broker) for name in ("7", "8")])
    ask(cluster, (ELR_FEATURE, 1, UPGRADE))
    assert cluster.image.configs[BROKER_RESOURCE, ""] == {MIN_ISR: "2"}
    assert not cluster.image.configs.get((BROKER_RESOURCE, "7"))
    assert not cluster.image.configs.get((BROKER_RESOURCE, "8"))
    cluster.write([ConfigRecord(resource_name="", value="1", **of_broker)])
    ask(cluster, (ELR_FEATURE, 1, UPGRADE))
    assert cluster.image.configs[BROKER_RESOURCE, ""] == {MIN_ISR: "1"}


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("no.such", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("no.such", 0, SAFE_DOWNGRADE, "Feature no.such not found."),
        ("group.version", 0, 0, "The controller does not support the given upgrade type."),
        ("group.version", 0, 9, "The controller does not support the given upgrade type."),
        ("group.version", -1, SAFE_DOWNGRADE, "A feature version cannot be less than 0."),
        ("group.version", 9, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("group.version", 0, UPGRADE, NOT_A_DOWNGRADE),
        ("metadata.version", 31, UPGRADE, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 0, SAFE_DOWNGRADE, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 29, UPGRADE, NOT_A_DOWNGRADE),
    ],
)
def test_updates_that_are_refused(cluster: ControlledCluster, name: str, level: int, kind: int, reason: str) -> None:
    response, written = ask(cluster, (name, level, kind))
    assert (response.error_code, written, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [], [])
    assert response.error_message == f"{FAILED}Invalid update version {level} for feature {name}. {reason}"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (SAFE_DOWNGRADE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_a_downgrade_that_loses_metadata_is_refused(cluster: ControlledCluster, kind: int, reason: str) -> None:
    response, written = ask(cluster, ("metadata.version", 20, kind))
    assert (response.error_code, written) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert response.error_message == f"{FAILED}Unsupported metadata.version downgrade from 30 to 20. {reason}"


@pytest.mark.parametrize(
    ("current", "level", "is_taken"),
    [(29, 28, True), (29, 24, True), (29, 23, True), (25, 22, False), (23, 22, False), (22, 18, True), (18, 17, True)],
)
def test_metadata_go_down_where_no_record_changed(
    cluster: ControlledCluster, current: int, level: int, is_taken: bool
) -> None:
    cluster.write([FeatureLevelRecord(name="metadata.version", feature_level=current)])
    response, written = ask(cluster, ("metadata.version", level, SAFE_DOWNGRADE))
    assert (response.error_code == ErrorCode.NONE) is is_taken
    assert written == ([("metadata.version", level)] if is_taken else [])


def test_a_level_depends_on_that_of_another_feature(cluster: ControlledCluster) -> None:
    cluster.write([FeatureLevelRecord(name=ELR_FEATURE, feature_level=0)])
    cluster.write([FeatureLevelRecord(name="metadata.version", feature_level=22)])
    response, written = ask(cluster, (ELR_FEATURE, 1, UPGRADE))
    assert written == []
    assert response.error_message == (
        f"{FAILED}Invalid update version 1 for feature {ELR_FEATURE}. {ELR_FEATURE} could not be set to 1 because it depends "
        "on metadata.version level 23"
    )
    response, written = ask(cluster, ("metadata.version", 23, UPGRADE), (ELR_FEATURE, 1, UPGRADE))
    assert response.error_code == ErrorCode.NONE
    assert written == [("metadata.version", 23), (ELR_FEATURE, 1)]


@pytest.mark.parametrize(
    ("level", "kind", "reason"),
    [
        (0, UPGRADE, NOT_A_DOWNGRADE),
        (0, SAFE_DOWNGRADE, "Can't downgrade the version of this feature."),
        (2, UPGRADE, "Local controller 1 only supports versions 0-1"),
    ],
)
def test_voters_in_the_log_stay_there(cluster: ControlledCluster, level: int, kind: int, reason: str) -> None:
    response, written = ask(cluster, ("kraft.version", level, kind), kraft_version=1)
    assert (response.error_code, written) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert response.error_message == f"{FAILED}Invalid update version {level} for feature kraft.version. {reason}"


def test_kraft_version_is_not_among_the_metadata(cluster: ControlledCluster) -> None:
    """The quorum writes this level."""
    assert ask(cluster, ("kraft.version", 1, UPGRADE), ("group.version", 1, UPGRADE))[1] == [("group.version", 1)]


def test_levels_go_down_and_up(cluster: ControlledCluster) -> None:
    assert cluster.image.has_elr
    response, written = ask(cluster, (ELR_FEATURE, 0, SAFE_DOWNGRADE))
    assert (response.error_code, response.error_message, written) == (0, None, [(ELR_FEATURE, 0)])
    assert not cluster.image.has_elr
    refused, _ = ask(cluster, (ELR_FEATURE, 1, SAFE_DOWNGRADE))
    assert str(refused.error_message).endswith("Can't downgrade to a newer version.")
    ask(cluster, (ELR_FEATURE, 1, UPGRADE))
    assert cluster.image.has_elr


@pytest.mark.parametrize("kind", [UPGRADE, SAFE_DOWNGRADE])
def test_the_present_level_is_written_down_again(cluster: ControlledCluster, kind: int) -> None:
    assert ask(cluster, ("group.version", 1, kind))[1] == [("group.version", 1)]


def test_one_refusal_refuses_all(cluster: ControlledCluster) -> None:
    response, written = ask(cluster, (ELR_FEATURE, 0, SAFE_DOWNGRADE), ("group.version", 9, UPGRADE))
    assert (response.error_code, written) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_only_to_validate_changes_nothing(cluster: ControlledCluster) -> None:
    response, written = ask(cluster, ("group.version", 0, SAFE_DOWNGRADE), validate_only=True)
    assert (response.error_code, written, [each.feature for each in response.results]) == (0, [], ["group.version"])
    assert cluster.image.features["group.version"] == 1


def test_of_a_feature_that_is_named_twice_the_last_counts(cluster: ControlledCluster) -> None:
    assert ask(cluster, (ELR_FEATURE, 9, UPGRADE), (ELR_FEATURE, 1, UPGRADE))[1] == [(ELR_FEATURE, 1)]


def test_every_broker_must_support_it() -> None:
    cluster = ControlledCluster()
    cluster.start(4)
    response, written = ask(cluster, ("group.version", 1, UPGRADE))
    assert written == []
    assert str(response.error_message).endswith("Broker 4 does not support this feature.")
    assert ask(cluster, ("group.version", 0, SAFE_DOWNGRADE))[1] == [("group.version", 0)]
