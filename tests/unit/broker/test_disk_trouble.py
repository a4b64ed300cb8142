"""A disk that refuses writes: the code for clients, the reason for whoever runs the broker."""

import pytest
from broker_rig import Rig, batch, run

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.complaints import PERIOD_MS, Complaints
from sparklog.types import TopicPartition


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"capacity_bytes": 0}, "the disk is full; free space"),
        ({"read_only": True}, "the file system is read-only; mount it writable"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_refuses_writes_refuses_records_until_it_is_mended(
    caplog: pytest.LogCaptureFixture, fault: dict[str, object], reason: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        assert (await client.produce("t", batch(b"before"))).base_offset == 0
        for name, switched in fault.items():
            setattr(rig.disk.faults, name, switched)
        for _ in range(3):
            refused = await client.produce("t", batch(b"refused"))
            assert (refused.error_code, refused.base_offset) == (
                ErrorCode.KAFKA_STORAGE_ERROR,
                -1,
            )
            assert reason in (refused.error_message or "")
        assert await client.fetch("t", max_wait_ms=0) == (0, [b"before"])
        rig.disk.faults.clear()
        assert (await client.produce("t", batch(b"after"))).base_offset == 1

    run(test)
    said = [r.getMessage() for r in caplog.records if r.name == "sparklog.executors.complaints"]
    assert len(said) == 1
    assert said[0].startswith("t-0: cannot ")
    assert reason in said[0]


def test_the_same_partition_complains_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 1_000_000
    complaints = Complaints(lambda: now_ms)
    full = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    complaints.hear(first, KafkaError(ErrorCode.CORRUPT_MESSAGE, "the client's own fault"))
    complaints.hear(first, full)
    complaints.hear(first, full)
    complaints.hear(second, full)
    now_ms += PERIOD_MS
    complaints.hear(first, full)
    assert [r.getMessage() for r in caplog.records] == ["t-0: full", "t-1: full", "t-0: full"]
