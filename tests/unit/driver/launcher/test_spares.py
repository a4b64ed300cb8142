from typing import Any

import pytest

from sparklog.driver.launcher import spares
from sparklog.driver.launcher.engines import JobLost
from sparklog.driver.launcher.slot_allocator import SlotAllocator
from sparklog.driver.launcher.spares import SparePool
from tests.support.waiting import wait_for
from tests.unit.driver.launcher.launcher_fakes import FakeCalls, FakeEngine, executor


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(spares, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(spares, "GIVE_AGAIN_SECONDS", 0.01)


class Case:
    def __init__(self, count: int) -> None:
        self.engine = FakeEngine(executor("1", "a"), executor("2", "b"))
        self.calls = FakeCalls(self.engine, ())
        self.pool = SparePool(
            count,
            engine=self.engine,
            slot_allocator=SlotAllocator(),
            make_payload=lambda name, executor: {"spare": name},
            give_work=self.calls.give_work,
        )
        self.pool.start()

    def ran(self, count: int) -> None:
        wait_for(lambda: len(self.engine.jobs) == count)

    def where(self) -> list[list[str]]:
        return sorted(self.engine.where(job.name) for job in self.engine.jobs)


def work(_: Any) -> dict[str, Any]:
    return {"broker": {"broker_id": 7, "secret": "x"}, "executor_id": "1"}


def test_spares_spread_over_executors_and_stop_when_they_are_told() -> None:
    case = Case(2)
    case.ran(2)
    assert case.where() == [["1"], ["2"]]
    case.calls.asking_spares = {"spare-1", "spare-2"}
    case.pool.stop(10)
    assert (case.calls.work, case.engine.cancelled) == ({"spare-1": {}, "spare-2": {}}, [])
    assert case.pool.waiting == ()


def test_a_spare_that_does_not_answer_is_cancelled() -> None:
    case = Case(1)
    case.ran(1)
    case.pool.stop(10)
    assert case.engine.cancelled == ["spare-1"]


def test_a_spare_whose_executor_died_is_replaced() -> None:
    case = Case(1)
    case.ran(1)
    case.engine.end("spare-1", JobLost("its executor died"))
    case.ran(2)
    assert [spare.name for spare in case.pool.waiting] == ["spare-2"]
    case.pool.stop(10)


def test_one_that_is_handed_over_reports_to_who_took_it() -> None:
    case = Case(1)
    case.ran(1)
    case.calls.asking_spares = {"spare-1"}
    assert case.pool.take("b", frozenset(), work) is None
    taken = case.pool.take("a", frozenset(), work)
    assert taken is not None
    assert (taken.name, case.calls.work) == ("spare-1", {"spare-1": {"broker_id": 7}})
    assert case.pool.take(None, frozenset(), work) is None  # the next is not there yet
    case.engine.end("spare-1", {"outcome": "stopped"})
    assert taken.result() == {"outcome": "stopped"}
    case.ran(2)
    case.pool.stop(10)


def test_work_is_given_again_while_the_spare_asks() -> None:
    """This happens if the control plane dies, because it keeps work in memory only."""
    case = Case(1)
    case.ran(1)
    case.calls.asking_spares = {"spare-1"}
    taken = case.pool.take(None, frozenset(), work)
    assert taken is not None
    case.calls.work.clear()
    case.calls.asking_spares = {"spare-1"}
    given = case.calls.give_work

    def give(spare: str, what: bytes) -> bool:
        asking = given(spare, what)
        if asking:
            case.engine.end("spare-1", {"outcome": "stopped"})
        return asking

    case.pool.give_work = give
    assert taken.result() == {"outcome": "stopped"}
    assert case.calls.work == {"spare-1": {"broker_id": 7}}
    case.pool.stop(10)


def test_executors_that_refused_are_left_out() -> None:
    case = Case(1)
    case.ran(1)
    case.calls.asking_spares = {"spare-1"}
    assert case.pool.take(None, frozenset({"1", "2"}), work) is None
    case.pool.stop(10)
