"""Requests that name several groups: each shard gets the groups that belong to it.

Owns: the division of group ids among shards, each id once.  Must not know any particular request.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from sparklog.executors.handlers.group_requests import GroupRequests, ShardResult, results_of
from sparklog.service.handler import RequestContext
from sparklog.slices import Slices, in_slices
from sparklog.wire.protocol.schema import Request

#: The ids of a shard's groups, and the response of that shard.
ShardGroups: TypeAlias = tuple[tuple[str, ...], ShardResult]
#: Units of work for finding the shard of one group.
_GROUP_UNITS = 5


def divide(groups: GroupRequests, group_ids: Iterable[str]) -> Slices[dict[int, list[str]]]:
    """The group ids by partition.  Raises NOT_COORDINATOR."""
    divided: dict[int, list[str]] = {}

    def add(group_id: str) -> None:
        divided.setdefault(groups.partition_of(group_id), []).append(group_id)

    yield from in_slices(add, dict.fromkeys(group_ids), _GROUP_UNITS)
    return divided


async def ask_shards(
    groups: GroupRequests,
    context: RequestContext,
    divided: dict[int, list[str]],
    make_body: Callable[[tuple[str, ...]], Request],
) -> list[ShardGroups]:
    """Ask each shard about its groups; ``make_body`` makes its request."""
    parts = {number: tuple(group_ids) for number, group_ids in divided.items()}
    futures = [
        groups.try_submit(context, number, make_body(group_ids))
        for number, group_ids in parts.items()
    ]
    return list(zip(parts.values(), await results_of(futures), strict=True))
