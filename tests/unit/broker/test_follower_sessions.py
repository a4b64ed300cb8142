"""What the fetch session of a follower tells it of the high watermark that its own fetch moves."""

import asyncio
from typing import Any

from broker_rig import batch
from test_session_model import BIG, FOLLOWER, NOW, Peer, open_table, told_in

from sparklog.executors.handlers import fetch
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.codec import RequestHeader
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


def ask(table: PartitionTable, session: tuple[int, int], *offsets: int) -> Any:
    parts = tuple(FetchPartition(partition=0, fetch_offset=offset) for offset in offsets)
    request = FetchRequest(
        replica_id=FOLLOWER,
        session_id=session[0],
        session_epoch=session[1],
        max_bytes=BIG,
        topics=(FetchTopic(topic="t", partitions=parts),) if parts else (),
    )
    header = RequestHeader(api_key=1, api_version=12, correlation_id=1, client_id="t")
    context = RequestContext(header=header, connection=Peer())  # type: ignore[arg-type]
    return fetch.handler(table).handle(context, request)


def test_a_follower_hears_of_the_high_watermark_that_its_own_fetch_moved() -> None:
    async def tell() -> None:
        table = await open_table()
        partition = table.get(TopicPartition("t", 0))
        assert partition is not None
        opened = ask(table, (0, 0), 0)
        session_id = opened.session_id
        appended = partition.append_as_leader(batch(b"a"), acks=1, now_ms=NOW)
        table.carry_out(appended.effects)
        ((mark, values),) = told_in(ask(table, (session_id, 1))).values()
        assert (mark, values) == ((0, 0, 0), [b"a"])
        # The follower has it: that alone moves the high watermark.
        heard = [told_in(ask(table, (session_id, 2), 1)), told_in(ask(table, (session_id, 3)))]
        assert partition.high_watermark == 1
        marks = [told[0][0] for told in heard if told]
        assert marks[-1] == (0, 1, 0)
        await table.close()

    asyncio.run(tell())
