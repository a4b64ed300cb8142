"""What users see of records that are in a bucket which does not answer."""

from collections.abc import Iterator, Mapping

import pytest

import sparklog.topic
from sparklog.cli import unreadable
from sparklog.client.blocking import BlockingClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage_backends.memory_disk import forget_disk
from sparklog.topic import Topic, TopicFrames
from sparklog.types import TopicPartition
from tests.unit.executors.broker.broker_rig import idle_remote_log_managers
from tests.unit.executors.broker.cli_rig import CommandLine, command_line
from tests.unit.executors.broker.test_consume_with_group import AT_ONCE
from tests.unit.executors.tiering.tiered_rig import TieredRig

HINT = "its remote_dir does not answer; the log of the broker has the reason"
NAME = "bucket-that-is-away"


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    settings = {
        "remote_dir": f"memory://{NAME}/log",
        "remote_log_manager_task_interval_ms": "3600000",
        **AT_ONCE,
    }
    with idle_remote_log_managers(), command_line(0, capsys, **settings) as started:
        yield started
    forget_disk(NAME)


@pytest.fixture
def tiered(line: CommandLine) -> TieredRig:
    """A topic of 40 records, most of which are only in a bucket that fails from now on."""
    rig = TieredRig(line.rig, NAME)
    line.do(lambda _: rig.start())
    line.do(lambda _: rig.fill(40))
    line.do(lambda _: rig.tier())
    assert rig.partition.log.local_log_start_offset > 20
    rig.bucket.faults.fail_next(1_000_000)
    return rig


@pytest.mark.parametrize("group", [(), ("--group", "g")])
def test_consume_says_that_it_cannot_read(
    group: tuple[str, ...], line: CommandLine, tiered: TieredRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = unreadable.UnreadablePartitions.tell

    def tell_and_mend(
        self: unreadable.UnreadablePartitions, found: Mapping[TopicPartition, KafkaError]
    ) -> None:
        tell(self, found)
        if found:
            tiered.bucket.faults.clear()

    monkeypatch.setattr(unreadable, "PATIENCE_S", 0)
    monkeypatch.setattr(unreadable.UnreadablePartitions, "tell", tell_and_mend)
    code, out, errors = line.run("consume", "t", "--from-beginning", "-e", *group)
    assert (code, len(out.splitlines())) == (0, 40)
    (told,) = errors.splitlines()
    assert told.startswith("sparklog: t-0 cannot be read and is tried again: KAFKA_STORAGE_ERROR")
    assert told.endswith(HINT)


def test_a_preview_is_complete_or_an_error(
    line: CommandLine, tiered: TieredRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparklog.topic, "PREVIEW_SECONDS_MAX", 1.5)
    with BlockingClient(f"127.0.0.1:{line.rig.control.port}") as client:
        topic = Topic("t", lambda: client, TopicFrames(None, "", lambda: None))
        local_records = 40 - tiered.partition.log.local_log_start_offset
        assert len(topic.preview(local_records)) == local_records
        with pytest.raises(KafkaError) as caught:
            topic.preview(40)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        message = str(caught.value)
        assert "the newest records of t-0 were not read in 1.5 s: the fetch from t-0 at" in message
        assert message.endswith(HINT)
        monkeypatch.setattr(sparklog.topic, "RECORDS_SHOWN", 40)
        html = topic._repr_html_()
        assert "the newest records of t-0 were not read in 2 s" in html
        tiered.bucket.faults.clear()
        assert [each.value for each in topic.preview(40)] == tiered.values
