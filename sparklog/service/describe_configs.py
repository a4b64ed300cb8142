"""DescribeConfigs (key 32) v1-4: settings of topics and of this node, and where each comes from.

A topic's setting is its own override, else a broker's default (changed at run time, or given at
start), else Kafka's default; synonyms list all of them, the one in force first (KIP-226).
A broker answers for itself and, with an empty name, for what all brokers were given at run time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS, Setting
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.topic_names import check_topic_name
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import ConfigSource, ResourceType
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_TYPES: Final[Mapping[str, int]] = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """Texts by setting name, and what they are."""

    source: ConfigSource
    texts: Mapping[str, str]


def handler(
    image: Callable[[], ClusterImage], *, node_id: int, settings: Mapping[str, str]
) -> ApiHandler:
    """``settings`` are those that the node was started with, by Kafka's names."""

    def handle(_context: RequestContext, request: DescribeConfigsRequest) -> object:
        levels = _broker_levels(image(), node_id, settings)
        return DescribeConfigsResponse(
            results=tuple(
                _describe(image(), node_id, levels, request, resource)
                for resource in request.resources
            )
        )

    return ApiHandler(
        api_key=DescribeConfigsRequest.API_KEY,
        min_version=DescribeConfigsRequest.MIN_VERSION,
        max_version=DescribeConfigsRequest.MAX_VERSION,
        handle=handle,
        error_response=_error_response,
    )


def _broker_levels(
    image: ClusterImage, node_id: int, settings: Mapping[str, str]
) -> tuple[_Level, ...]:
    own = image.configs.get((ResourceType.BROKER, str(node_id)), {})
    shared = image.configs.get((ResourceType.BROKER, ""), {})
    return (
        _Level(source=ConfigSource.DYNAMIC_BROKER_CONFIG, texts=own),
        _Level(source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, texts=shared),
        _Level(source=ConfigSource.STATIC_BROKER_CONFIG, texts=settings),
    )


def _describe(
    image: ClusterImage,
    node_id: int,
    levels: tuple[_Level, ...],
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    try:
        entries = _entries(image, node_id, levels, resource)
    except KafkaError as error:
        return _refused(resource, error)
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _shown(entry, request) for entry in entries if not wanted or entry.name in wanted
        ),
    )


def _entries(
    image: ClusterImage,
    node_id: int,
    levels: tuple[_Level, ...],
    resource: DescribeConfigsResource,
) -> Iterable[DescribeConfigsResourceResult]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if image.topic(name) is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
                )
            overrides = image.topic_overrides(name)
            return [_topic_entry(setting, overrides, levels) for setting in TOPIC_SETTINGS]
        case ResourceType.BROKER if name == str(node_id):
            return [
                _broker_entry(BROKER_SETTING_BY_NAME[key], levels)
                for key in sorted(BROKER_SETTING_BY_NAME)
            ]
        case ResourceType.BROKER if not name:
            return [
                _broker_entry(BROKER_SETTING_BY_NAME[key], levels[1:2])
                for key in sorted(levels[1].texts)
                if key in BROKER_SETTING_BY_NAME
            ]
        case ResourceType.BROKER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is node {node_id}; ask node {name!r} itself"
            )
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings"
    )


def _topic_entry(
    setting: Setting, overrides: Mapping[str, str], levels: tuple[_Level, ...]
) -> DescribeConfigsResourceResult:
    synonyms = []
    if setting.name in overrides:
        synonyms.append(
            _synonym(setting.name, overrides[setting.name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
        )
    if setting.broker_name is not None:
        synonyms += _broker_synonyms(setting.broker_name, setting, levels)
    else:
        synonyms.append(_default(setting.name, setting))
    return _entry(setting, setting.name, synonyms, read_only=False)


def _broker_entry(setting: Setting, levels: tuple[_Level, ...]) -> DescribeConfigsResourceResult:
    synonyms = _broker_synonyms(setting.name, setting, levels)
    return _entry(setting, setting.name, synonyms, read_only=not setting.dynamic)


def _broker_synonyms(
    name: str, setting: Setting, levels: tuple[_Level, ...]
) -> list[DescribeConfigsSynonym]:
    given = [
        _synonym(name, level.texts[name], level.source) for level in levels if name in level.texts
    ]
    return [*given, _default(name, setting)]


def _default(name: str, setting: Setting) -> DescribeConfigsSynonym:
    return _synonym(name, setting.render(setting.default), ConfigSource.DEFAULT_CONFIG)


def _synonym(name: str, value: str, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _entry(
    setting: Setting, name: str, synonyms: list[DescribeConfigsSynonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value,
        read_only=read_only,
        config_source=synonyms[0].source,
        synonyms=tuple(synonyms),
        config_type=_TYPES[setting.kind],
        documentation=setting.doc,
    )


def _shown(
    entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """The entry without what was not asked for."""
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.config_source,
        synonyms=entry.synonyms if request.include_synonyms else (),
        config_type=entry.config_type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message or error.code.name,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _error_response(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(_refused(resource, error) for resource in request.resources)
    )
