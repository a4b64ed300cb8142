"""A broker serves groups: the first client that looks for a coordinator has the topic created."""

import asyncio

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.unit.executors.broker.broker_rig import Client, Rig, run

GROUP_KEYS = {8, 9, 11, 12, 13, 14, 15, 16, 42, 47}


async def advertised(client: Client) -> set[int]:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return {api.api_key for api in (await client.ask(request, 3)).api_keys}


async def shards(rig: Rig) -> int:
    status = await rig.status()
    found: int = status["coordinators"]["__consumer_offsets"]["active_shards"]
    return found


def test_a_cluster_without_groups_has_no_internal_topic() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        assert await advertised(client) >= GROUP_KEYS
        assert await client.ask(ListGroupsRequest()) == ListGroupsResponse()
        status = (await rig.status())["coordinators"]["__consumer_offsets"]
        assert status == {
            "shards": 0,
            "active_shards": 0,
            "loads": 0,
            "load_failures": 0,
            "records_written": 0,
        }
        await rig.stop_broker()

    run(test)


def test_the_first_search_for_a_coordinator_creates_the_topic() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        (found,) = (await client.ask(FindCoordinatorRequest(coordinator_keys=("g",)))).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
        while (await shards(rig)) != 50:  # the partitions become leaders one after the other
            await asyncio.sleep(0.01)
        await rig.stop_broker()

    run(test)
