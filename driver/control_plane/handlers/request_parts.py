"""Requests for many changes, split into parts that are decided one by one.

Owns: splitting a long list of changes, and merging the responses to the parts.  Must not know what
a change means, nor how it is decided.

The controller decides an event in one go, so an event must be small.  A request for many changes,
each of which is granted or refused on its own, becomes several events.  Between these events the
control plane serves heartbeats and elections.  Changes that name the same resource stay in one
part, so that the controller notices the repetition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.errors import KafkaError
from sparklog.service.error_responses import AnyAlterConfigsRequest, refuse_alter_configs
from sparklog.service.handler import Handled
from sparklog.slices import SLICE_UNITS, Slices, are_slices, in_slices
from sparklog.wire.protocol.schema import Response

ItemT = TypeVar("ItemT")
MadeT = TypeVar("MadeT")
Refuse: TypeAlias = Callable[[Any, KafkaError], Response | Slices[Response]]
Merge: TypeAlias = Callable[[Sequence[Any]], Response | Slices[Response]]

#: Greatest weight of one part.  A change weighs 1, or as much as the partitions that it affects.
PART_WEIGHT_MAX: Final = 50
#: Units of work for deciding on a part, per weight.
_WEIGHT_UNITS: Final = 60
_SETTINGS_PER_WEIGHT: Final = 20
#: Repetitions of a resource that are kept: the controller refuses what is named twice.
_TIMES_MAX: Final = 2


def fits_one_part(topics: Sequence[Any]) -> bool:
    """Whether the topics and their partitions are few enough for one part."""
    return len(topics) + sum([len(topic.partitions) for topic in topics]) <= PART_WEIGHT_MAX


def split_into_parts(
    items: Iterable[ItemT], key: Callable[[ItemT], Hashable], weight: Callable[[ItemT], int]
) -> Slices[list[tuple[ItemT, ...]]]:
    """Split items into parts of at most ``PART_WEIGHT_MAX``.

    Items with the same key share a part, even if it becomes heavier; only the first of them are
    kept.

    Args:
        key: the resource that an item names.
        weight: the weight of an item.
    """
    by_key: dict[Hashable, list[ItemT]] = {}
    spent = 0
    for item in items:
        same = by_key.setdefault(key(item), [])
        if len(same) < _TIMES_MAX:
            same.append(item)
        spent += 1
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    parts: list[tuple[ItemT, ...]] = []
    part: list[ItemT] = []
    heavy = 0
    for same in by_key.values():
        added = sum(weight(item) for item in same)
        if part and heavy + added > PART_WEIGHT_MAX:
            parts.append(tuple(part))
            part, heavy = [], 0
        part += same
        heavy += added
        spent += 1
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    parts.append(tuple(part))
    return parts


def decide_parts(
    decide: Decide,
    requests: Iterable[Any],
    *,
    refuse: Refuse,
    merge: Merge,
) -> Slices[Handled]:
    """Let the controller decide on all requests, one by one.

    Args:
        requests: the parts of one request.
        refuse: makes the response to one part that was refused as a whole.
        merge: makes one response from those to all parts.
    """
    asked = list(requests)
    if len(asked) == 1:
        return decide(asked[0])
    outcomes: list[Response | Awaitable[Response | None] | KafkaError] = []
    for request in asked:
        try:
            outcomes.append(cast(Response, decide(request)))
        except KafkaError as refusal:
            outcomes.append(refusal)
        yield PART_WEIGHT_MAX * _WEIGHT_UNITS
    waiting = [each for each in outcomes if isinstance(each, asyncio.Future)]
    if not waiting:
        return (yield from _merged(asked, outcomes, refuse, merge))
    return _when_known(waiting, asked, outcomes, refuse, merge)


async def _when_known(
    waiting: "Sequence[asyncio.Future[Response | None]]",
    requests: Sequence[Any],
    outcomes: Sequence[Response | Awaitable[Response | None] | KafkaError],
    refuse: Refuse,
    merge: Merge,
) -> Slices[Response]:
    """The response, in slices, once every part is durable or was refused."""
    await asyncio.wait(waiting)
    return _merged(requests, outcomes, refuse, merge)


def _merged(
    requests: Sequence[Any],
    outcomes: Sequence[Response | Awaitable[Response | None] | KafkaError],
    refuse: Refuse,
    merge: Merge,
) -> Slices[Response]:
    responses: list[Any] = []
    for request, outcome in zip(requests, outcomes, strict=True):
        known: Any = outcome
        if isinstance(outcome, asyncio.Future):
            # ``result()`` of a cancelled future raises CancelledError.
            failure = None if outcome.cancelled() else outcome.exception()
            known = outcome.result() if failure is None else failure
        if isinstance(known, KafkaError):
            known = refuse(request, known)
            if are_slices(known):
                known = yield from known
        elif isinstance(known, BaseException):
            raise known
        responses.append(known)
        yield PART_WEIGHT_MAX
    merged = merge(responses)
    if are_slices(merged):
        merged = yield from merged
    return cast(Response, merged)


def concatenated(sequences: Iterable[Sequence[ItemT]]) -> tuple[ItemT, ...]:
    """All items of the sequences, in order."""
    return tuple([item for sequence in sequences for item in sequence])


def group_by_topic(
    pairs: Iterable[tuple[str, ItemT]], make: Callable[[str, tuple[ItemT, ...]], MadeT]
) -> Slices[tuple[MadeT, ...]]:
    """Group (topic, item) pairs by topic, and call ``make`` for each topic and its items."""
    found: dict[str, list[ItemT]] = {}
    spent = 0
    for topic, item in pairs:
        found.setdefault(topic, []).append(item)
        spent += 1
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    yield spent
    made = yield from in_slices(
        lambda of_topic: make(of_topic[0], tuple(of_topic[1])), found.items(), 2
    )
    return tuple(made)


def decide_config_parts(decide: Decide, request: AnyAlterConfigsRequest) -> Slices[Handled]:
    """Let the controller decide on changes of settings, in parts."""
    resources: Sequence[Any] = request.resources
    parts = yield from split_into_parts(resources, _resource, _settings)
    asked: Any = request  # mypy compares the resources of both kinds
    requests = [replace(asked, resources=part) for part in parts]
    decided = decide_parts(decide, requests, refuse=refuse_alter_configs, merge=_merged_configs)
    return (yield from decided)


def _resource(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _settings(resource: Any) -> int:
    return 1 + len(resource.configs) // _SETTINGS_PER_WEIGHT


def _merged_configs(responses: Sequence[Any]) -> Response:
    merged: Response = replace(responses[0], responses=concatenated(r.responses for r in responses))
    return merged
