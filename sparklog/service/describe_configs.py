"""DescribeConfigs (key 32) v1-4: the settings of topics and of this node, and their sources.

A topic's setting is the topic's override, else the brokers' default (changed at run time, or given
at start), else Kafka's default.  Synonyms list all of them, the effective one first (KIP-226).  As
in Kafka, a default in hours is not among the synonyms of a setting in milliseconds.
A broker answers for itself and, with an empty name, for the settings that were given to all brokers
at run time.  No setting is sensitive.

Deviation: a resource that is named several times is answered once, with all requested settings;
Kafka answers it as often as it is named.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS, BrokerConfig, Setting
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.topic_names import check_topic_name
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_slices
from sparklog.types import ConfigSource, ResourceType
from sparklog.wire.protocol.messages.describe_configs import (
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
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
}


#: Units of work for describing one topic or broker, and for refusing one that does not exist.
_RESOURCE_UNITS: Final = 250
_REFUSAL_UNITS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """The texts of settings from one source, by setting name."""

    source: ConfigSource
    texts: Mapping[str, str]


def handler(
    image: Callable[[], ClusterImage], *, node_id: int, settings: Mapping[str, str]
) -> ApiHandler:
    """``settings`` are the settings that the node was started with, by Kafka's names."""

    def handle(
        _context: RequestContext, request: DescribeConfigsRequest
    ) -> Slices[DescribeConfigsResponse]:
        wanted = yield from _wanted(request)
        levels = _broker_levels(image(), node_id, settings)
        results: list[DescribeConfigsResult] = []
        spent = 0
        for (resource_type, name), names in wanted.items():
            result = _describe(image(), node_id, levels, request, resource_type, name, names)
            results.append(result)
            spent += _REFUSAL_UNITS if result.error_code else _RESOURCE_UNITS
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        yield spent
        return DescribeConfigsResponse(results=tuple(results))

    return ApiHandler(
        api_key=DescribeConfigsRequest.API_KEY,
        min_version=DescribeConfigsRequest.MIN_VERSION,
        max_version=DescribeConfigsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=_error_response,
    )


def _wanted(
    request: DescribeConfigsRequest,
) -> Slices[dict[tuple[int, str], set[str] | None]]:
    """The requested settings by type and name of the resource; None means all settings."""
    wanted: dict[tuple[int, str], set[str] | None] = {}
    spent = 0
    for resource in request.resources:
        key, names = (resource.resource_type, resource.resource_name), resource.configuration_keys
        if not names or wanted.get(key, ()) is None:
            wanted[key] = None
        else:
            found = wanted.setdefault(key, set())
            assert found is not None
            found.update(names)
        spent += 1 + len(names or ()) // 16
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    yield spent
    return wanted


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
    resource_type: int,
    name: str,
    wanted: Collection[str] | None,
) -> DescribeConfigsResult:
    try:
        entries = _entries(image, node_id, levels, resource_type, name)
    except KafkaError as error:
        return _refused(resource_type, name, error)
    return DescribeConfigsResult(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            [_shown(entry, request) for entry in entries if wanted is None or entry.name in wanted]
        ),
    )


def _entries(
    image: ClusterImage,
    node_id: int,
    levels: tuple[_Level, ...],
    resource_type: int,
    name: str,
) -> Iterable[DescribeConfigsResourceResult]:
    match resource_type:
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
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings")


def _topic_entry(
    setting: Setting, overrides: Mapping[str, str], levels: tuple[_Level, ...]
) -> DescribeConfigsResourceResult:
    rows = tuple(BROKER_SETTING_BY_NAME[synonym.name] for synonym in setting.synonyms)
    given = _given(rows, levels)
    defaults = _defaults(rows)
    synonyms = given + defaults if given else _from(rows[0].name, defaults) if rows else []
    if setting.name in overrides:
        value = overrides[setting.name]
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        synonyms = [_synonym(setting.name, value, source), *synonyms]
    elif given:
        config = BrokerConfig().overlay({given[0].name: given[0].value or ""})
        value = setting.render(config.topic_defaults[setting.field])
    else:
        value = setting.render(setting.default)
    return _entry(setting, value, synonyms, read_only=False)


def _broker_entry(setting: Setting, levels: tuple[_Level, ...]) -> DescribeConfigsResourceResult:
    rows = _rows_with(setting)
    synonyms = _from(setting.name, _given(rows, levels) + _defaults(rows))
    value = synonyms[0].value if synonyms else None
    return _entry(setting, value, synonyms, read_only=not setting.dynamic)


def _rows_with(setting: Setting) -> tuple[Setting, ...]:
    """A broker setting and those with the same meaning, in the order of their precedence."""
    for topic_setting in TOPIC_SETTINGS:
        names = [synonym.name for synonym in topic_setting.synonyms]
        if setting.name in names:
            return tuple(BROKER_SETTING_BY_NAME[name] for name in names)
    return (setting,)


def _given(rows: tuple[Setting, ...], levels: tuple[_Level, ...]) -> list[DescribeConfigsSynonym]:
    return [
        _synonym(row.name, level.texts[row.name], level.source)
        for level in levels
        for row in rows
        if row.name in level.texts
    ]


def _defaults(rows: tuple[Setting, ...]) -> list[DescribeConfigsSynonym]:
    return [
        _synonym(row.name, row.render(row.default), ConfigSource.DEFAULT_CONFIG)
        for row in rows
        if row.default is not None
    ]


def _from(name: str, synonyms: list[DescribeConfigsSynonym]) -> list[DescribeConfigsSynonym]:
    """The synonyms from the setting's own name on, as Kafka shows them."""
    return list(dropwhile(lambda synonym: synonym.name != name, synonyms))


def _synonym(name: str, value: str, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _entry(
    setting: Setting,
    value: str | None,
    synonyms: list[DescribeConfigsSynonym],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=tuple(synonyms),
        config_type=_TYPES[setting.kind],
        documentation=setting.doc,
    )


def _shown(
    entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """The entry without the parts that the request does not ask for."""
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.config_source,
        synonyms=entry.synonyms if request.include_synonyms else (),
        config_type=entry.config_type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _refused(resource_type: int, name: str, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message or error.code.name,
        resource_type=resource_type,
        resource_name=name,
    )


def _error_response(
    request: DescribeConfigsRequest, error: KafkaError
) -> Slices[DescribeConfigsResponse]:
    def refused(resource: DescribeConfigsResource) -> DescribeConfigsResult:
        return _refused(resource.resource_type, resource.resource_name, error)

    results = yield from in_slices(refused, request.resources, _REFUSAL_UNITS)
    return DescribeConfigsResponse(results=tuple(results))
