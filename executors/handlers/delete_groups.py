"""DeleteGroups (key 42) v0-2: delete groups without members, and their offsets."""

from collections.abc import Awaitable
from dataclasses import replace

from sparklog.errors import KafkaError
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.handlers.groups_by_shard import ask_shards, divide
from sparklog.service.group_error_responses import group_error_code, refuse_delete_groups
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(
        context: RequestContext, request: DeleteGroupsRequest
    ) -> Slices[Awaitable[DeleteGroupsResponse]]:
        divided = yield from divide(groups, request.groups_names)
        return _answer(groups, context, request, divided)

    return ApiHandler(
        api_key=DeleteGroupsRequest.API_KEY,
        min_version=DeleteGroupsRequest.MIN_VERSION,
        max_version=DeleteGroupsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_delete_groups,
    )


async def _answer(
    groups: GroupRequests,
    context: RequestContext,
    request: DeleteGroupsRequest,
    divided: dict[int, list[str]],
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group_ids, result in await ask_shards(
        groups, context, divided, lambda group_ids: replace(request, groups_names=group_ids)
    ):
        if isinstance(result, KafkaError):
            code = group_error_code(result)
            results += [DeletableGroupResult(group_id=each, error_code=code) for each in group_ids]
        else:
            assert isinstance(result, DeleteGroupsResponse)
            results += result.results
    return DeleteGroupsResponse(results=tuple(results))
