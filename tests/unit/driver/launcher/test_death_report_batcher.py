import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sparklog.driver.launcher import death_report_batcher
from sparklog.driver.launcher.death_report_batcher import DeathReportBatcher
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from tests.support.waiting import wait_for


def report_all(batch: DeathReportBatcher, *broker_ids: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=batch.report, args=(each,)) for each in broker_ids]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_brokers_that_die_together_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, ...]] = []
    batch = DeathReportBatcher(sent.append)

    def gather(_seconds: float) -> None:
        """Wait for all deaths to be gathered, however long that takes on a busy machine."""
        wait_for(lambda: len(batch._pending) == 3)

    clock = SimpleNamespace(sleep=gather, monotonic=time.monotonic)
    monkeypatch.setattr(death_report_batcher, "time", clock)
    join(report_all(batch, 3, 1, 2))
    assert sent == [(1, 2, 3)]


def test_what_comes_while_a_report_is_on_its_way_goes_with_the_next() -> None:
    sent: list[tuple[int, ...]] = []
    may_go = threading.Event()

    def send(broker_ids: tuple[int, ...]) -> None:
        sent.append(broker_ids)
        assert may_go.wait(60)

    batch = DeathReportBatcher(send)
    threads = report_all(batch, 1)
    wait_for(lambda: sent == [(1,)])
    threads += report_all(batch, 2)
    wait_for(lambda: 2 in batch._pending)
    may_go.set()
    join(threads)
    assert sent == [(1,), (2,)]


def failing(*errors: Exception) -> tuple[list[tuple[int, ...]], Callable[[tuple[int, ...]], None]]:
    sent: list[tuple[int, ...]] = []
    left = list(errors)

    def send(broker_ids: tuple[int, ...]) -> None:
        if left:
            raise left.pop(0)
        sent.append(broker_ids)

    return sent, send


def test_a_control_plane_that_is_restarting_is_asked_again() -> None:
    sent, send = failing(ConnectError("nobody listens"), ConnectError("nobody listens"))
    DeathReportBatcher(send).report(1)
    assert sent == [(1,)]


def test_a_refusal_is_raised_where_the_loss_was_seen() -> None:
    sent, send = failing(KafkaError(ErrorCode.INVALID_REQUEST, "no"))
    batch = DeathReportBatcher(send)
    with pytest.raises(KafkaError, match="no"):
        batch.report(1)
    batch.report(1)
    assert sent == [(1,)]
