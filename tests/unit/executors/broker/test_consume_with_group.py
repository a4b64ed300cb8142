"""``sparklog consume --group``: records are printed once, over several runs and an interruption."""

import asyncio
import json

import pytest

from sparklog.cli.consume_group import consume_with_group
from sparklog.client.admin import Admin
from sparklog.client.blocking import BlockingClient
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.fetched_records import ConsumedRecord
from sparklog.client.groups import AsyncConsumer
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.cli_rig import CommandLine, command_line

T0 = TopicPartition("t", 0)


#: Groups that do not wait for more members, and one coordinator.
AT_ONCE = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "1"}


def send(line: CommandLine, *values: str) -> None:
    with (
        BlockingClient(f"127.0.0.1:{line.rig.control.port}") as client,
        client.producer() as producer,
    ):
        for value in values:
            producer.send("t", value.encode(), partition=0)


def test_each_run_goes_on_where_the_last_one_has_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(1, capsys, **AT_ONCE) as line:
        line.json("topics", "create", "t", "-p", "2")
        send(line, "a", "b", "c")
        group = ("consume", "t", "--group", "g")
        assert line.text(*group, "--from-beginning", "--max", "2") == ["a", "b"]
        assert line.text(*group, "--until-end") == ["c"]
        assert line.text(*group, "--until-end") == []
        send(line, "d")
        out = line.run(*group, "-e", "-f", "json")[1]
        record = json.loads(out)
        assert (record["offset"], record["value"]) == (3, "d")
        (row,) = line.json("groups", "describe", "g")[0]["offsets"]
        assert (row["partition"], row["committed"], row["lag"]) == (0, 4, 0)
        assert line.text("consume", "t", "--group", "new", "--until-end") == []
        code, out, errors = line.run("consume", "none", "--group", "g")
        assert (code, out) == (1, "")
        assert "UNKNOWN_TOPIC_OR_PARTITION" in errors


def test_what_was_printed_before_an_interruption_is_committed() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        shown: list[int] = []
        printed = asyncio.Event()

        def show(records: list[ConsumedRecord]) -> None:
            shown.extend(record.offset for record in records)
            printed.set()

        async with ClusterClient(f"127.0.0.1:{rig.control.port}") as cluster:
            admin = Admin(cluster)
            await admin.create_topic("t", 1)
            await DataClient(cluster).produce(T0, [encode_batch([Record(value=b"v")] * 3)])

            async def consume() -> None:
                async with AsyncConsumer(
                    cluster, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
                ) as consumer:
                    await consume_with_group(consumer, "t", show)

            task = asyncio.create_task(consume())
            await printed.wait()
            task.cancel()  # the commit may be under way
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            assert (await admin.group_offsets("g"))[T0].committed == len(shown) == 3

    run(test, offsets_topic_num_partitions="1")
