"""When ``sparklog consume`` says that it cannot read a partition."""

import pytest

from sparklog.cli.unreadable import EVERY_S, PATIENCE_S, UnreadablePartitions
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "refused")


def test_it_is_said_after_a_while_and_not_too_often(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    partitions = UnreadablePartitions(lambda: now_s)

    def said(*unreadable: TopicPartition) -> str:
        partitions.tell(dict.fromkeys(unreadable, REFUSED))
        out, errors = capsys.readouterr()
        assert out == ""
        return errors

    line = "sparklog: t-0 cannot be read and is tried again: KAFKA_STORAGE_ERROR: refused"
    assert said(T0) == ""
    now_s += PATIENCE_S / 2
    assert said(T0, T1) == ""
    now_s += PATIENCE_S / 2
    assert said(T0, T1) == f"{line}\n"
    now_s += EVERY_S / 2
    assert said(T0, T1) == ""
    now_s += EVERY_S / 2
    assert said(T0, T1) == f"{line} (1 other partition likewise)\n"
    now_s += EVERY_S
    assert said() == ""
    assert said(T0) == ""
