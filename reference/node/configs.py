"""Describing and altering configurations. (CFG-*)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeGuard, TypeVar

from reference.controller import configs
from reference.controller.broker_configs import DYNAMIC, UNKNOWN
from reference.controller.broker_rules import CORDONED, refused_change
from reference.controller.config_definition import NODE_ID_BITS, InvalidConfig, integer_in
from reference.controller.configs import Alteration, Configuration, Setting
from reference.controller.elections import change_min_isr
from reference.controller.group_configs import GROUP, GROUP_RESOURCE, check_bounds
from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from reference.controller.topic_names import validate_topic_name
from reference.node.active_controller import ActiveController
from reference.node.context import Context
from reference.node.loggers import Loggers
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from reference.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from reference.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message

LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE = 8, 16
DESCRIBED = (TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
ALTERED = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
"""Resources whose settings the controller keeps."""
MAX_RESOURCES = 4_000
"""The most resources that one DescribeConfigs describes, about a second's work."""

Result = DescribeConfigsResponse.DescribeConfigsResult
Described = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


AnyResource = IncrementalAlterConfigsRequest.AlterConfigsResource | AlterConfigsRequest.AlterConfigsResource


def describe_configs(
    context: Context, loggers: Loggers, request: Request, body: DescribeConfigsRequest, now: TimestampMs
) -> DescribeConfigsResponse:
    """The settings of topics and of this broker, with their sources (CFG-01, CFG-02).

    Each result has hundreds of settings: resources beyond MAX_RESOURCES are refused. One resource of an unsupported type is an
    error of the whole request, as in Kafka's `ConfigHelper`.
    """
    if any(resource.resource_type not in DESCRIBED for resource in body.resources):
        return DescribeConfigsResponse(results=[_refused(each, ErrorCode.INVALID_REQUEST) for each in body.resources])
    return DescribeConfigsResponse(
        results=[
            _describe(context, loggers, resource, body) if number < MAX_RESOURCES else _refused(resource)
            for number, resource in enumerate(body.resources)
        ]
    )


def _refused(
    resource: DescribeConfigsRequest.DescribeConfigsResource, code: ErrorCode = ErrorCode.POLICY_VIOLATION
) -> Result:
    too_many = f"More than {MAX_RESOURCES} resources in one request."
    return Result(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=too_many if code is ErrorCode.POLICY_VIOLATION else "Unexpected resource type",
    )


def _describe(
    context: Context,
    loggers: Loggers,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    body: DescribeConfigsRequest,
) -> Result:
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None)
    try:
        settings = _settings(context, loggers, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = resource.configuration_keys
    result.configs = [
        _described(setting, resource.resource_type, body) for setting in settings if not keys or setting.name in keys
    ]
    return result


def _settings(context: Context, loggers: Loggers, resource_type: int, name: str) -> Iterable[Setting]:
    configuration = context.configuration
    if resource_type == TOPIC_RESOURCE:
        validate_topic_name(name)
        if name not in context.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return configuration.topic_settings(context.image.topic_config(name))
    if resource_type == BROKER_RESOURCE:
        if not name:
            return configuration.default_broker_settings()
        if name != str(context.node):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {context.node} or empty string, but received {name}"
                if broker_in(name) is not None
                else f"Broker id must be an integer, but it is: {name}",
            )
        return configuration.broker_settings()
    if resource_type == LOGGER_RESOURCE:
        _require_this_broker(context.node, name)
        return [
            Setting(each, level, configs.DYNAMIC_BROKER_LOGGER, UNKNOWN, ())
            for each, level in loggers.effective().items()
        ]
    if resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return [configuration.group_setting(name, key) for key in GROUP]
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no configurations")


def _described(setting: Setting, resource_type: int, body: DescribeConfigsRequest) -> Described:
    sensitive = resource_type == BROKER_RESOURCE and setting.definition.type in ("password", "unknown")
    synonyms = [
        Synonym(name=name, value=None if sensitive else value, source=source)
        for name, value, source in setting.synonyms
    ]
    documentation = setting.definition.description() if body.include_documentation else None
    return Described(
        name=setting.name,
        value=None if sensitive else setting.value,
        read_only=resource_type == BROKER_RESOURCE and setting.name not in DYNAMIC,
        config_source=setting.source,
        is_sensitive=sensitive,
        synonyms=synonyms if body.include_synonyms else [],
        config_type=configs.CONFIG_TYPES[setting.definition.type],
        documentation="" if resource_type == LOGGER_RESOURCE else documentation,
    )


def _require_this_broker(node: NodeId, name: str) -> None:
    if name != str(node):
        wrong = f"must be an integer, but it is: {name}" if name else "must not be empty"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node} but received {name}"
            if broker_in(name) is not None
            else f"Broker id {wrong}",
        )


def list_config_resources(
    image: MetadataImage, request: Request, body: ListConfigResourcesRequest, now: TimestampMs
) -> ListConfigResourcesResponse:
    """The resources with settings (KIP-1142); version 0 requests client metrics only, of which there are none."""
    brokers = [str(id) for id, broker in sorted(image.brokers.items()) if not broker.fenced]
    groups = sorted(name for kind, name in image.configs if kind == GROUP_RESOURCE)
    known = {TOPIC_RESOURCE: sorted(image.topics), BROKER_RESOURCE: brokers, LOGGER_RESOURCE: brokers,
             CLIENT_METRICS_RESOURCE: [], GROUP_RESOURCE: groups}  # fmt: skip
    wanted = set(body.resource_types) or ({CLIENT_METRICS_RESOURCE} if request.version == 0 else known.keys())
    if not wanted <= known.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in known[kind]
        ]
    )


# ---- altering


Refused = list[tuple[AnyResource, ErrorCode, str]]
"""Refused resources of a request, each with its error."""


def refused_by_broker(configuration: Configuration, body: Message) -> Refused:
    """The changes that the receiving broker refuses: malformed ones, other brokers' settings, and changes that it could not
    apply at run time.

    The active controller decides all others, and checks access: a malformed change is refused as such, allowed or not.
    Source: kafka.server.ConfigAdminManager.preprocess; DynamicBrokerConfig.validate.
    """
    if not isinstance(body, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        return []
    found: Refused = []
    times = _times(body.resources)
    for each in body.resources:
        try:
            _check_form(each, times)
            if each.resource_type == BROKER_RESOURCE:
                _check_own(configuration, each)
        except KafkaError as error:
            found.append((each, error.code, error.message or ""))
    return found


def _times(resources: Iterable[AnyResource]) -> Counter[tuple[int, str]]:
    return Counter((each.resource_type, each.resource_name) for each in resources)


def _check_form(resource: AnyResource, times: Counter[tuple[int, str]]) -> None:
    """Errors: KafkaError INVALID_REQUEST for a resource or a setting that occurs twice, a missing value, an unknown type."""
    if times[resource.resource_type, resource.resource_name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    names = Counter(each.name for each in resource.configs)
    double = next((name for name, count in names.items() if count > 1), None)
    if double is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {double}")
    is_incremental = isinstance(resource, IncrementalAlterConfigsRequest.AlterConfigsResource)
    configs.refuse_nulls(
        each.name
        for each in resource.configs
        if each.value is None and getattr(each, "config_operation", configs.SET) != configs.DELETE
    )
    if resource.resource_type not in ALTERED and not (is_incremental and resource.resource_type == LOGGER_RESOURCE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_own(configuration: Configuration, resource: AnyResource) -> None:
    """Errors: KafkaError INVALID_REQUEST for another broker's settings, for no broker's, and for a change that this broker could
    not apply; the errors of an invalid one."""
    node, name = configuration.node, resource.resource_name
    if name and broker_in(name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if broker_in(name) not in (None, node):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node}, but received {name}")
    with suppress(configs.RefusedByController):
        _plan(configuration.image, resource)
    # Another spelling of the id has no effect: of a request at most two changes are compared with all settings.
    why = _not_followed(configuration, resource) if name in ("", str(node)) else None
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def refused_by_controller(image: MetadataImage, body: Message) -> Refused:
    """The changes that a controller refuses if no broker forwarded them: it knows directory ids, but no paths.

    Source: ConfigurationControlManager.isCordonedLogDirsInvalid (KIP-1066).
    """
    why = (
        f"When updating {CORDONED} via controllers, the new value must be a subset of the current configuration value."
    )
    found: Refused = []
    for each in body.resources if isinstance(body, AlterConfigsRequest | IncrementalAlterConfigsRequest) else ():
        after = _settings_after(image, each) if each.resource_type == BROKER_RESOURCE else None
        before = configs.items_of(image.configs.get((BROKER_RESOURCE, each.resource_name), {}).get(CORDONED))
        if after is not None and not {*configs.items_of(after.get(CORDONED))} <= {*before}:
            found.append((each, ErrorCode.INVALID_CONFIG, why))
    return found


def _not_followed(configuration: Configuration, resource: AnyResource) -> str | None:
    """The reason why this broker could not apply a change to its settings or to all brokers'; None if it could, or if it is
    invalid."""
    own = _settings_after(configuration.image, resource)
    if own is None:
        return None
    before = configuration.broker_texts()
    of_broker, of_all = configuration.dynamic_broker_values()
    after = {
        **configuration.static,
        **(of_all if resource.resource_name else own),
        **(own if resource.resource_name else of_broker),
    }
    try:
        return refused_change(before, after, configuration.directories)
    except InvalidConfig as error:
        return str(error)


def _settings_after(image: MetadataImage, resource: AnyResource) -> dict[str, str] | None:
    """A resource's settings after a change; None if the active controller refuses it."""
    try:
        return _after(image, resource.resource_type, resource.resource_name, _plan(image, resource))
    except KafkaError:
        return None


def _plan(image: MetadataImage, resource: AnyResource) -> list[ConfigRecord]:
    """The records of a change. Errors: KafkaError."""
    kind, name = resource.resource_type, resource.resource_name
    if isinstance(resource, IncrementalAlterConfigsRequest.AlterConfigsResource):
        changes = [Alteration(each.name, each.config_operation, each.value) for each in resource.configs]
        return configs.alter_configs(image, kind, name, changes)
    return configs.replace_configs(image, kind, name, {each.name: each.value for each in resource.configs})


def refusals(body: Message, refused: Refused) -> Message:
    """The response with the results of refused resources."""
    form = AlterConfigsResponse if isinstance(body, AlterConfigsRequest) else IncrementalAlterConfigsResponse
    return form(
        responses=[  # type: ignore[arg-type]  # each has its own form
            form.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name, error_code=code, error_message=why
            )
            for each, code, why in refused
        ]
    )


def broker_in(name: str) -> int | None:
    """The broker id in a resource's name; None if the name is no integer."""
    return integer_in(name, NODE_ID_BITS)


def concerns_loggers(body: Message) -> TypeGuard[IncrementalAlterConfigsRequest]:
    """Whether a request is for loggers only: the receiving broker changes those itself (KIP-412)."""
    if not isinstance(body, IncrementalAlterConfigsRequest) or not body.resources:
        return False
    return all(each.resource_type == LOGGER_RESOURCE for each in body.resources)


def alter_loggers(
    node: NodeId, loggers: Loggers, body: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change loggers; the response to a request for loggers only.

    Kafka splits a request that also names other resources; here the controller then refuses the loggers.
    """
    response = IncrementalAlterConfigsResponse()
    for resource in body.resources:
        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=LOGGER_RESOURCE, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            if (named := broker_in(resource.resource_name)) is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource.resource_name}"
                )
            if named != node:
                message = f"Unexpected node id. Expected {node}, but received {resource.resource_name}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            changes = [Alteration(each.name, each.config_operation, each.value) for each in resource.configs]
            loggers.alter(changes, body.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return response


def incremental_alter_configs(
    controller: ActiveController, version: int, body: IncrementalAlterConfigsRequest, now: TimestampMs
) -> IncrementalAlterConfigsResponse:
    """Change single settings (CFG-03 to CFG-06, CFG-08)."""

    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    answers = _alter(controller, body.resources, body.validate_only, answer, now)
    return IncrementalAlterConfigsResponse(responses=answers)


def alter_configs(
    controller: ActiveController, version: int, body: AlterConfigsRequest, now: TimestampMs
) -> AlterConfigsResponse:
    """Replace all settings of a resource (CFG-07)."""

    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    answers = _alter(controller, body.resources, body.validate_only, answer, now)
    return AlterConfigsResponse(responses=answers)


R = TypeVar("R", bound=AnyResource)
A = TypeVar("A")


def _alter(
    controller: ActiveController,
    resources: list[R],
    validate_only: bool,
    answer: Callable[..., A],
    now: TimestampMs,
) -> list[A]:
    """Change each resource by itself; refuse one that occurs twice, in both places (CFG-08)."""
    times = _times(resources)
    answers: list[A] = []
    for resource in resources:
        code, message = ErrorCode.NONE, None
        try:
            _check_form(resource, times)
            records = _plan(controller.image, resource)
            if resource.resource_type == GROUP_RESOURCE:
                after = _after(controller.image, GROUP_RESOURCE, resource.resource_name, records)
                check_bounds(after, controller.configuration.integer)
            if records and not validate_only:
                controller.append([*records, *change_min_isr(controller.image, records)], now)
        except KafkaError as error:
            code, message = error.code, error.message
        kind, name = resource.resource_type, resource.resource_name
        answers.append(answer(error_code=code, error_message=message, resource_type=kind, resource_name=name))
    return answers


def _after(image: MetadataImage, kind: int, name: str, records: list[ConfigRecord]) -> dict[str, str]:
    """A resource's settings after these records."""
    values = dict(image.configs.get((kind, name), {}))
    for record in records:
        values.pop(record.name, None)
        if record.value is not None:
            values[record.name] = record.value
    return values
