"""Changes of topic and broker settings at run time.

Owns: validation, the four operations of IncrementalAlterConfigs (KIP-339), and the replacement of
all settings of a resource by AlterConfigs.  Must not know what a setting does.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from sparklog.config import (
    BROKER_SETTING_BY_NAME,
    DEFAULTS_WITH_RULES,
    TOPIC_SETTING_BY_NAME,
    BrokerConfig,
    Setting,
    TopicConfig,
    check_defaults,
    find_foreign,
    inherited_names,
    require_setting,
)
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.tiered_topics import (
    POLICY_DEFAULT,
    check_policy_default,
    check_remote_part,
    may_be_remote,
)
from sparklog.errors import ConfigError, ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, ConfigChanged
from sparklog.metadata.topic_names import check_not_internal, check_topic_name
from sparklog.service.error_responses import AnyAlterConfigsRequest, answer_alter_configs
from sparklog.types import CONTROLLER_NODE_ID, ResourceType
from sparklog.wire.protocol.messages import alter_configs, incremental_alter_configs
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.protocol.messages.incremental_alter_configs import AlterableConfig


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    """A resource whose settings are changed.

    ``overrides`` are its present settings, ``defaults`` those that apply without an override.
    ``one_of_many`` says that the resource is a single broker.
    """

    kind: str
    settings: Mapping[str, Setting]
    overrides: Mapping[str, str]
    defaults: Mapping[str, str]
    one_of_many: bool = False


#: A resource of either request.
_Request: TypeAlias = (
    "incremental_alter_configs.AlterConfigsResource | alter_configs.AlterConfigsResource"
)
#: Returns the values that a request asks for, by setting name; None deletes the setting.
_Change: TypeAlias = Callable[[_Resource, Any], dict[str, str | None]]

#: Leaders and the controller must use the same values of these settings: the first decides which
#: replicas hold all acknowledged records, and both decide which replicas may lead.
_SETTINGS_OF_ALL_BROKERS = ("min.insync.replicas", "unclean.leader.election.enable")


def check_topic_configs(values: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a new topic, as canonical texts.  Raises KafkaError(INVALID_CONFIG)."""
    return {
        name: _canonical(_setting(TOPIC_SETTING_BY_NAME, name, "topic"), text)
        for name, text in values.items()
    }


def check_topic_rules(
    overrides: Mapping[str, str],
    defaults: BrokerConfig,
    *,
    before: Mapping[str, str] | None = None,
) -> None:
    """Check the rules between a topic's settings.  Raises KafkaError(INVALID_CONFIG).

    ``before`` are the settings of a topic that exists.  A rule that they break as well does not
    count: defaults of brokers have changed, and the topic's other settings can be changed.  A topic
    that counts as tiered may be in a cluster that was started without its remote_dir.  It can also
    be switched on again there, because what is in the remote_dir would be deleted otherwise.
    """
    has_remote_dir = bool(defaults.remote_dir) or may_be_remote(before or {})

    def problems(overrides: Mapping[str, str]) -> list[str]:
        config = TopicConfig.resolve(overrides, defaults)
        shown = inherited_names(overrides, defaults)
        return list(config.problems(has_remote_dir=has_remote_dir, shown=shown))

    known = problems(before) if before is not None else []
    for problem in problems(overrides):
        if problem not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, problem)


def change_configs(
    image: ClusterImage, config: BrokerConfig, request: AnyAlterConfigsRequest
) -> Decision:
    """Change the settings of resources, each as a whole or not at all.

    AlterConfigs deletes the settings that a resource has and the request does not name.

    Args:
        config: the settings that nodes are started with, before any change at run time.
    """
    change = (
        _replacement_values if isinstance(request, AlterConfigsRequest) else _incremental_values
    )
    records, refusals = _alter(image, config, request.resources, change)
    return Decision(
        records=() if request.validate_only else tuple(records),
        response=answer_alter_configs(request, refusals),
    )


def _alter(
    image: ClusterImage, config: BrokerConfig, resources: Sequence[_Request], change: _Change
) -> tuple[list[ConfigChanged], list[KafkaError | None]]:
    """The records for all resources, and the refusal (or None) of each resource."""
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    records: list[ConfigChanged] = []
    refusals: list[KafkaError | None] = []
    for resource in resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names it twice")
            records += _alter_resource(image, config, resource, change)
            refusals.append(None)
        except KafkaError as refusal:
            refusals.append(refusal)
    return records, refusals


def _alter_resource(
    image: ClusterImage, config: BrokerConfig, request: _Request, change: _Change
) -> list[ConfigChanged]:
    resource = _find_resource(image, config, request)
    names = [change.name for change in request.configs]
    for name, times in Counter(names).items():
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request changes {name} twice")
    values = change(resource, request)
    if request.resource_type == ResourceType.BROKER:
        merged = _merged(resource.overrides, values)
        _check_broker(image, config, request.resource_name, merged, values.keys())
    else:
        defaults = config.overlay(image.broker_overrides(None))
        merged = _merged(resource.overrides, values)
        check_topic_rules(merged, defaults, before=resource.overrides)
        check_remote_part(resource.overrides, merged)
    return [
        ConfigChanged(
            resource_type=int(request.resource_type),
            resource_name=request.resource_name,
            name=name,
            value=value,
        )
        for name, value in values.items()
    ]


def _merged(overrides: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**overrides, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _check_broker(
    image: ClusterImage,
    config: BrokerConfig,
    broker: str,
    overrides: Mapping[str, str],
    changed: Collection[str],
) -> None:
    """Check the rules for new ``overrides`` of a broker, or of all brokers.

    Rules between defaults of topics count only if one of them is ``changed``: those of the cluster
    may break one, because it was started with other settings.  Raises KafkaError(INVALID_CONFIG).
    """
    own = {
        name: values
        for (kind, name), values in image.configs.items()
        if kind == ResourceType.BROKER and name
    }
    shared = image.broker_overrides(None)
    each = (
        [{**shared, **overrides}]
        if broker
        else [overrides, *({**overrides, **o} for o in own.values())]
    )
    try:
        configs = [config.overlay(changes) for changes in each]
        if not DEFAULTS_WITH_RULES.isdisjoint(changed):
            for broker_config in configs:
                check_defaults(broker_config, has_remote_dir=True)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if POLICY_DEFAULT in changed:
        check_policy_default(image, configs[0])


def _incremental_values(resource: _Resource, request: Any) -> dict[str, str | None]:
    return {
        change.name: _apply_operation(resource, change)
        for change in request.configs
        if not _has_nothing_to_delete(resource, change)
    }


def _has_nothing_to_delete(resource: _Resource, change: AlterableConfig) -> bool:
    """Whether a change deletes a setting of Kafka's that cannot be set here.

    Such a setting is never set, but Kafka's tools delete it anyway.
    """
    is_foreign = change.name not in resource.settings and find_foreign(change.name) is not None
    return is_foreign and change.config_operation == ConfigOperation.DELETE


def _replacement_values(resource: _Resource, request: Any) -> dict[str, str | None]:
    values: dict[str, str | None] = dict.fromkeys(resource.overrides)
    for given in request.configs:
        setting = _require_dynamic(resource, given.name)
        values[given.name] = _checked_value(setting, given.value)
    return values


def _find_resource(image: ClusterImage, config: BrokerConfig, request: _Request) -> _Resource:
    name = request.resource_name
    if request.resource_type == ResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no common settings: name one")
        check_topic_name(name)
        if image.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        check_not_internal(name, "change its settings")
        return _Resource(
            kind="topic",
            settings=TOPIC_SETTING_BY_NAME,
            overrides=image.topic_overrides(name),
            defaults=_topic_defaults(config.overlay(image.broker_overrides(None))),
        )
    if request.resource_type == ResourceType.BROKER:
        if name and name not in map(str, (CONTROLLER_NODE_ID, *image.brokers)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}; use '' for all brokers"
            )
        own = image.configs.get((ResourceType.BROKER, name), {})
        return _Resource(
            kind="broker",
            settings=BROKER_SETTING_BY_NAME,
            overrides=own,
            defaults={},
            one_of_many=bool(name),
        )
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"settings of resource type {request.resource_type} do not exist; use topic "
        f"({ResourceType.TOPIC:d}) or broker ({ResourceType.BROKER:d})",
    )


def _require_dynamic(resource: _Resource, name: str) -> Setting:
    setting = _setting(resource.settings, name, resource.kind)
    if not setting.dynamic:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{setting.name} is read when a broker starts; give it to the cluster's start instead",
        )
    if resource.one_of_many and name in _SETTINGS_OF_ALL_BROKERS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{setting.name} must be the same for all brokers; use '' instead of one broker's id",
        )
    return setting


def _apply_operation(resource: _Resource, change: AlterableConfig) -> str | None:
    """The override after the change; None if the setting has no override then."""
    setting = _require_dynamic(resource, change.name)
    if change.config_operation == ConfigOperation.DELETE:
        return None
    if change.config_operation == ConfigOperation.SET:
        return _checked_value(setting, change.value)
    if change.config_operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"unknown config operation {change.config_operation}"
        )
    return _change_list(resource, setting, change)


def _change_list(resource: _Resource, setting: Setting, change: AlterableConfig) -> str:
    if setting.kind != "LIST":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{setting.name} is not a list: it can be set or deleted, not appended to or "
            "subtracted from",
        )
    present = resource.overrides.get(setting.name, resource.defaults.get(setting.name, ""))
    items = dict.fromkeys(_items(present))
    changed = dict.fromkeys(_items(change.value or ""))
    if change.config_operation == ConfigOperation.APPEND:
        items |= changed
    else:
        items = {item: None for item in items if item not in changed}
    if not items and setting.default:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{setting.name} would be empty; delete the setting instead"
        )
    return _canonical(setting, ",".join(items))


def _topic_defaults(config: BrokerConfig) -> dict[str, str]:
    """The settings of a topic without overrides, as texts."""
    values = TopicConfig.resolve({}, config)
    return {
        name: setting.render(getattr(values, setting.field))
        for name, setting in TOPIC_SETTING_BY_NAME.items()
    }


def _setting(table: Mapping[str, Setting], name: str, kind: str) -> Setting:
    try:
        return require_setting(table, name, kind)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _checked_value(setting: Setting, text: str | None) -> str:
    """As ``_canonical``, but a missing value is an invalid request (not so for a new topic)."""
    if text is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{setting.name} needs a value; delete it to unset it"
        )
    return _canonical(setting, text)


def _canonical(setting: Setting, text: str | None) -> str:
    if text is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{setting.name} needs a value; delete it to unset it"
        )
    try:
        return setting.render(setting.parse(text))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def unique_names(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """The pairs as a mapping.  Raises KafkaError(INVALID_REQUEST) for a repeated name."""
    values: dict[str, str | None] = {}
    for name, value in pairs:
        if name in values:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request sets {name} twice")
        values[name] = value
    return values
