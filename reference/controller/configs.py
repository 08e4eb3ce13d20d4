"""Settings by source (defaults, the broker's own file, dynamic settings, a topic's own), and their changes.

The first of these that is set takes precedence: the topic's own, this broker's dynamic, the dynamic one for all brokers, the
broker's file, Kafka's default. The numbers of the sources are the protocol's (DescribeConfigsResponse.ConfigSource).
Source: KIP-226, KIP-339; requirements CFG-*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from reference.controller.broker_configs import definition_of, synonyms_of, validate_broker_configs
from reference.controller.broker_rules import ALL_DIRECTORIES, CORDONED, FIRST_WITH_CORDONS
from reference.controller.config_definition import NODE_ID_BITS, REQUIRED, Definition, InvalidConfig, Value, integer_in
from reference.controller.config_table import BROKER, TOPIC
from reference.controller.group_configs import GROUP, GROUP_RESOURCE
from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from reference.controller.topic_names import validate_topic_name
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.primitives import GroupId, NodeId, TopicName

UNKNOWN_SOURCE, DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = range(6)
DYNAMIC_BROKER_LOGGER, DYNAMIC_GROUP = 6, 8

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

CONFIG_TYPES = {
    "unknown": 0, "boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9,
}  # fmt: skip
"""The numbers of the types in DescribeConfigs v3."""

RETENTION, FOR_EVER = "retention.ms", "-1"
REMOTE = "remote.storage.enable"
_MILLISECONDS = {"hours": 3_600_000, "minutes": 60_000}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its source; `synonyms` are all sources that have a value, in order of precedence."""

    name: str
    value: str | None
    source: int
    definition: Definition
    synonyms: tuple[tuple[str, str | None, int], ...]


MIN_ISR = "min.insync.replicas"


class Configuration:
    """The effective settings of one broker and of the topics, from its file and the cluster's metadata."""

    def __init__(self, node: NodeId, static: Mapping[str, str], image: MetadataImage) -> None:
        self.node = node
        self.static = static
        self.image = image

    def broker(self, name: str) -> Value:
        """The value of a broker setting. Errors: KeyError for a name that Kafka does not know."""
        definition = BROKER[name]
        for values in (*self.dynamic_broker_values(), self.static):
            if name in values:
                return definition.parse(name, values[name])
        return definition.parse(name, None if definition.default == REQUIRED else definition.default)

    def topic(self, topic: TopicName, name: str) -> Value:
        """The value of a topic setting. Errors: KeyError for a name that Kafka does not know."""
        return TOPIC[name].parse(name, self._topic_value(self.image.topic_config(topic), name))

    @property
    def directories(self) -> list[str]:
        """log.dirs of this node's file, as written there."""
        return items_of(self.static.get("log.dirs", self.static.get("log.dir")))

    @property
    def cordoned_directories(self) -> frozenset[str]:
        """The log directories that take no new replicas (KIP-1066)."""
        named = self.broker(CORDONED)
        assert isinstance(named, tuple)
        return frozenset(self.directories if ALL_DIRECTORIES in named else named)

    def broker_texts(self) -> dict[str, str]:
        """The texts of this broker's settings, merged from all sources without defaults."""
        own, of_all = self.dynamic_broker_values()
        return {**self.static, **of_all, **own}

    @property
    def static_min_isr(self) -> str:
        """min.insync.replicas of this node's file, or its default."""
        return self.static.get(MIN_ISR, BROKER[MIN_ISR].default or "1")

    def integer(self, name: str) -> int:
        """The value of a numeric broker setting."""
        value = self.broker(name)
        assert isinstance(value, int)
        return value

    def listener_integer(self, listener: str, name: str) -> int | None:
        """A numeric setting of one listener; None if it is not set for the listener."""
        own = f"listener.name.{listener.lower()}.{name}"
        for values in (*self.dynamic_broker_values(), self.static):
            if own in values:
                value = BROKER[name].parse(own, values[own])
                assert isinstance(value, int)
                return value
        return None

    def broker_setting(self, name: str) -> Setting:
        """A broker's setting. Its synonyms begin with its own name; a value under a stronger name is not this setting's."""
        definition = definition_of(name)
        values = (*self.dynamic_broker_values(), self.static)
        sources = (DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER)
        names = synonyms_of(name)
        found = [
            (each, given[each], source)
            for given, source in zip(values, sources, strict=True)
            for each in names
            if each in given
        ]
        found += [(each, text, DEFAULT) for each in names if (text := _default_of(each)) is not None]
        own = tuple(dropwhile(lambda synonym: synonym[0] != name, found))
        first = own[0] if own else (name, None, DEFAULT)
        return Setting(name, first[1], first[2], definition, own)

    def broker_settings(self) -> list[Setting]:
        """All settings of this broker: Kafka's, and others that were set."""
        known = [name for name, each in BROKER.items() if not each.internal]
        given = {name for values in (*self.dynamic_broker_values(), self.static) for name in values}
        return [self.broker_setting(name) for name in (*known, *sorted(given.difference(BROKER)))]

    def default_broker_settings(self) -> list[Setting]:
        """Only the dynamic settings for all brokers."""
        values = self.dynamic_broker_values()[1]
        found: list[Setting] = []
        for name, text in values.items():
            synonyms = tuple(
                (each, values[each], DYNAMIC_DEFAULT_BROKER) for each in synonyms_of(name) if each in values
            )
            found.append(Setting(name, text, DYNAMIC_DEFAULT_BROKER, definition_of(name), synonyms))
        return found

    def topic_setting(self, own: Mapping[str, str], name: str) -> Setting:
        """The setting of a topic with its own values `own`; the first broker synonym's sources follow as its synonyms."""
        definition = TOPIC[name]
        found: list[tuple[str, str | None, int]] = [(name, own[name], DYNAMIC_TOPIC)] if name in own else []
        if definition.synonyms:
            found += self.broker_setting(definition.synonyms[0]).synonyms
        source = found[0][2] if found else DEFAULT
        return Setting(name, self._topic_value(own, name), source, definition, tuple(found))

    def _topic_value(self, own: Mapping[str, str], name: str) -> str | None:
        if name in own:
            return own[name]
        definition = TOPIC[name]
        given = (text for synonym in definition.synonyms for _, text, _ in self._broker_values(synonym, name))
        return next(given, definition.default)

    def group_setting(self, group: GroupId, name: str) -> Setting:
        """A group's setting: its own, else the broker's."""
        definition = GROUP[name]
        found: list[tuple[str, str | None, int]] = []
        own = self.image.configs.get((GROUP_RESOURCE, group), {})
        if name in own:
            found.append((name, own[name], DYNAMIC_GROUP))
        for synonym in definition.synonyms:
            found += self._broker_values(synonym, name)
        found.append((definition.synonyms[0], definition.default, DEFAULT))
        return Setting(name, found[0][1], found[0][2], definition, tuple(found))

    def group_integer(self, group: GroupId, name: str) -> int:
        """The value of a group's setting, which is always numeric."""
        setting = self.group_setting(group, name)
        value = setting.definition.parse(name, setting.value)
        assert isinstance(value, int)
        return value

    def topic_settings(self, own: Mapping[str, str]) -> list[Setting]:
        """All settings of a topic with its own values `own`, sorted by name."""
        return [self.topic_setting(own, name) for name, each in TOPIC.items() if not each.internal or name in own]

    def dynamic_broker_values(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The dynamic settings for this broker, and those for all brokers. They are the image's own tables, which change."""
        configs = self.image.configs
        return configs.get((BROKER_RESOURCE, str(self.node)), {}), configs.get((BROKER_RESOURCE, ""), {})

    def _broker_values(self, name: str, meaning: str) -> Iterator[tuple[str, str | None, int]]:
        """The values of a broker setting by source, in order of precedence and in the unit of the setting `meaning`."""
        dynamic, default = self.dynamic_broker_values()
        for values, source in (
            (dynamic, DYNAMIC_BROKER),
            (default, DYNAMIC_DEFAULT_BROKER),
            (self.static, STATIC_BROKER),
        ):
            if name in values:
                yield name, _in_unit_of(meaning, name, values[name]), source


def _default_of(name: str) -> str | None:
    definition = BROKER.get(name)
    text = definition.default if definition is not None and definition.default != REQUIRED else None
    return text.removeprefix("class ") if text is not None else None


def _in_unit_of(meaning: str, name: str, text: str) -> str:
    """Convert a text to another name's unit: `log.retention.hours=1` to `retention.ms=3600000`. A negative retention becomes
    -1."""
    is_negative = text.strip().startswith("-")
    if is_negative and meaning == RETENTION:
        return FOR_EVER
    unit = name.rpartition(".")[2]
    if meaning == name or unit not in _MILLISECONDS or is_negative:
        return text
    return str(int(text) * _MILLISECONDS[unit])


def validate_topic_configs(configs: Mapping[str, str | None]) -> None:
    """Check the settings of a topic.

    Errors: KafkaError INVALID_CONFIG that names the first invalid one (CFG-05, TOP-08).
    """
    for name, text in configs.items():
        definition = TOPIC.get(name)
        if definition is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        _parse(definition, name, text)
    lags = [
        int(configs.get(name) or TOPIC[name].default or 0)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    ]
    if lags[0] > lags[1]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({lags[0]}) > max.compaction.lag.ms ({lags[1]})",
        )
    if TOPIC[REMOTE].parse(REMOTE, configs.get(REMOTE) or "false"):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


def _parse(definition: Definition, name: str, text: str) -> Value:
    try:
        return definition.parse(name, text)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of one name, in the form of both Alter APIs."""

    name: str
    operation: int
    value: str | None


def _check_operations(table: Mapping[str, Definition], changes: Sequence[Alteration]) -> None:
    """Check that each setting allows its operation.

    Errors: KafkaError INVALID_REQUEST; INVALID_CONFIG for a list operation on a setting that is no list (CFG-04).
    """
    refuse_nulls(change.name for change in changes if change.operation != DELETE and change.value is None)
    for change in changes:
        if change.operation in (SET, DELETE):
            continue
        if change.operation not in (APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}")
        definition = _definition(table, change.name)
        if definition is None or definition.type != "list":
            word = "APPEND" if change.operation == APPEND else "SUBTRACT"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Can't {word} to key {change.name} because its type is not LIST."
            )


def alter_configs(
    image: MetadataImage, resource_type: int, resource_name: str, changes: Iterable[Alteration]
) -> list[ConfigRecord]:
    """The records of changes to a resource's settings (IncrementalAlterConfigs).

    Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG for an unknown name or an invalid value (CFG-05) or a list
    operation on a setting that is no list (CFG-04), INVALID_REQUEST for a resource that cannot be changed. Then nothing
    changes.
    """
    changes = list(changes)
    table = _table_of(image, resource_type, resource_name)
    _check_operations(table, changes)  # before the resource's name, as in Kafka
    _require_legal_name(resource_type, resource_name)
    own = image.configs.get((resource_type, resource_name), {})
    after: dict[str, str | None] = dict(own)
    touched: dict[str, str | None] = {}
    for change in changes:
        if change.name in touched:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {change.name}")
        value = _altered(table, after, change)
        touched[change.name] = value
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    _validate(resource_type, resource_name, after)
    _require_topic(image, resource_type, resource_name)
    _keep_min_isr(image, resource_type, resource_name, touched)
    _require_cordons(image, resource_type, touched)
    return _records(resource_type, resource_name, own, touched)


def replace_configs(
    image: MetadataImage, resource_type: int, resource_name: str, configs: Mapping[str, str | None]
) -> list[ConfigRecord]:
    """The records that replace a resource's settings by these (legacy AlterConfigs, CFG-07). Errors: as `alter_configs`."""
    table = _table_of(image, resource_type, resource_name)
    refuse_nulls(name for name, value in configs.items() if value is None)  # before the resource's name, as in Kafka
    _require_legal_name(resource_type, resource_name)
    for name in configs:
        _require_known(table, name)
    _validate(resource_type, resource_name, configs)
    _require_topic(image, resource_type, resource_name)
    own = image.configs.get((resource_type, resource_name), {})
    touched: dict[str, str | None] = {name: None for name in own if name not in configs}
    touched.update(configs)
    _keep_min_isr(image, resource_type, resource_name, touched)
    _require_cordons(image, resource_type, touched)
    return _records(resource_type, resource_name, own, touched)


def refuse_nulls(names: Iterable[str]) -> None:
    """Errors: KafkaError INVALID_REQUEST where there is a setting that would have no value."""
    if missing := list(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def _require_legal_name(resource_type: int, resource_name: str) -> None:
    """Errors: KafkaError for an invalid name of a topic or group (CFG-05)."""
    kind = {TOPIC_RESOURCE: "topic", GROUP_RESOURCE: "group"}.get(resource_type)
    if kind is not None and not resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Default {kind} resources are not allowed.")
    if resource_type == TOPIC_RESOURCE:
        validate_topic_name(resource_name)


def _require_topic(image: MetadataImage, resource_type: int, resource_name: str) -> None:
    """Check that the topic exists; after the check of its settings, as in Kafka, so that an invalid value is reported first."""
    if resource_type == TOPIC_RESOURCE and resource_name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource_name}' does not exist.")


def _table_of(image: MetadataImage, resource_type: int, resource_name: str) -> Mapping[str, Definition]:
    if resource_type == TOPIC_RESOURCE:
        return TOPIC
    if resource_type == BROKER_RESOURCE:
        node = integer_in(resource_name, NODE_ID_BITS)
        if resource_name and node is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
        if resource_name and node not in image.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"No broker with id {resource_name} found.")
        return BROKER
    if resource_type == GROUP_RESOURCE:
        return GROUP
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")


def _definition(table: Mapping[str, Definition], name: str) -> Definition | None:
    return definition_of(name) if table is BROKER else table.get(name)


def _require_known(table: Mapping[str, Definition], name: str) -> Definition:
    definition = _definition(table, name)
    if definition is None:
        what = "group" if table is GROUP else "topic"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {what} config name: {name}")
    return definition


def _altered(table: Mapping[str, Definition], own: Mapping[str, str | None], change: Alteration) -> str | None:
    """The new text of a name; None to remove it."""
    if change.operation == DELETE:
        return None  # also of an unknown name (CFG-13): an older version's setting can be removed
    assert change.value is not None, "a null value was refused before"
    definition = _require_known(table, change.name)
    if change.operation == SET:
        return change.value
    items = items_of(own.get(change.name) or definition.default or "")
    asked = items_of(change.value)
    if change.operation == APPEND:
        items += [item for item in asked if item not in items]
    else:
        items = [item for item in items if item not in asked]
    return ",".join(items)


def items_of(text: str | None) -> list[str]:
    """The items of a list's text, without empty ones."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _validate(resource_type: int, resource_name: str, configs: Mapping[str, str | None]) -> None:
    if resource_type == TOPIC_RESOURCE:
        validate_topic_configs(configs)
    elif resource_type == BROKER_RESOURCE:
        validate_broker_configs(configs, for_one_broker=bool(resource_name))
    else:
        for name, text in configs.items():
            if text is not None and name in GROUP:
                _parse(GROUP[name], name, text)


def unify_min_isr(image: MetadataImage, static: str) -> list[ConfigRecord]:
    """The records that give all brokers one min.insync.replicas, before the ELR is enabled (KIP-966).

    Without a cluster-wide value that is `static`, the controller's own; the values of single brokers are removed.
    Source: org.apache.kafka.controller.ConfigurationControlManager.
    """
    of_cluster = image.configs.get((BROKER_RESOURCE, ""), {})
    records = [] if MIN_ISR in of_cluster else _records(BROKER_RESOURCE, "", of_cluster, {MIN_ISR: static})
    for (kind, broker), own in sorted(image.configs.items()):
        if kind == BROKER_RESOURCE and broker and MIN_ISR in own:
            records += _records(kind, broker, own, {MIN_ISR: None})
    return records


class RefusedByController(KafkaError):
    """A change that the active controller refuses and the receiving broker does not: access is checked in between."""


def _keep_min_isr(
    image: MetadataImage, resource_type: int, resource_name: str, touched: Mapping[str, str | None]
) -> None:
    """Refuse a change of a broker's own min.insync.replicas while the ELR is enabled (KIP-966). Errors:
    RefusedByController, INVALID_CONFIG."""
    name = MIN_ISR
    if resource_type != BROKER_RESOURCE or not image.has_elr or name not in touched:
        return
    if resource_name:
        raise RefusedByController(
            ErrorCode.INVALID_CONFIG, f"Broker-level {name} cannot be altered while ELR is enabled."
        )
    if touched[name] is None:
        raise RefusedByController(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {name} cannot be removed while ELR is enabled."
        )


def _require_cordons(image: MetadataImage, resource_type: int, touched: Mapping[str, str | None]) -> None:
    """Errors: RefusedByController INVALID_CONFIG if the metadata.version has no cordoned directories (KIP-1066)."""
    if resource_type == BROKER_RESOURCE and CORDONED in touched and image.metadata_level < FIRST_WITH_CORDONS:
        why = f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        raise RefusedByController(ErrorCode.INVALID_CONFIG, why)


def _records(
    resource_type: int, resource_name: str, own: Mapping[str, str], touched: Mapping[str, str | None]
) -> list[ConfigRecord]:
    return [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for name, value in touched.items()
        if own.get(name) != value
    ]
