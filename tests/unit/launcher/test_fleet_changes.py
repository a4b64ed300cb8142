"""Brokers that come and go while the others run: with a fake engine and fake calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from launcher_fakes import FakeCalls, FakeEngine, executor, wait_for

from sparklog.driver import fleet as fleet_module
from sparklog.driver.engines import JobLost
from sparklog.driver.fleet import Fleet, FleetOptions
from sparklog.errors import StartError
from sparklog.wire.private import AssignedBroker


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "ASK_SECONDS_MAX", 0.3)


def new(*broker_ids: int) -> tuple[AssignedBroker, ...]:
    return tuple(AssignedBroker(broker_id=broker_id, new=True) for broker_id in broker_ids)


class Case:
    def __init__(self) -> None:
        self.engine = FakeEngine(executor("1", "h1", 8))
        self.calls = FakeCalls(self.engine, ())
        options = FleetOptions(
            make_payload=lambda broker_id, executor, new: {"broker": broker_id, "new": new},
            on_failure=lambda: None,
            log_folder=Path("logs"),
        )
        self.fleet = Fleet(options, self.engine, self.calls)

    def run(self, *broker_ids: int) -> None:
        self.fleet.add(new(*broker_ids))
        self.fleet.await_registered(broker_ids, 10)


@contextmanager
def running(*broker_ids: int) -> Iterator[Case]:
    case = Case()
    try:
        case.run(*broker_ids)
        yield case
    finally:
        case.fleet.ask_to_stop()
        case.fleet.stop(case.fleet.broker_ids, "the test ends", 5)
        assert case.fleet.broker_ids == ()


def test_added_brokers_run_beside_the_others() -> None:
    with running(1) as case:
        case.run(2, 3)
        assert case.fleet.broker_ids == (1, 2, 3)
        assert case.fleet.unregistered() == ()


def test_a_removed_broker_is_stopped_and_not_brought_back() -> None:
    with running(1, 2) as case:
        case.fleet.stop([2], "it is removed", 5)
        assert (case.fleet.broker_ids, case.calls.asked) == ((1,), [2])
        assert len(case.engine.where("broker-2")) == 1
        case.engine.end("broker-1", JobLost("its executor died"))
        wait_for(lambda: len(case.engine.where("broker-1")) == 2)


def test_what_does_not_register_can_be_told_from_what_does() -> None:
    with running(1) as case:
        case.calls.silent.add(3)
        case.fleet.add(new(2, 3))
        with pytest.raises(StartError, match=r"broker 3 did not register within 0.2 s; see logs"):
            case.fleet.await_registered((2, 3), 0.2)
        assert case.fleet.unregistered() == (3,)
        case.fleet.stop(case.fleet.unregistered(), "it did not start", 0.5)
        assert case.fleet.broker_ids == (1, 2)


def test_a_stop_ends_the_wait_for_added_brokers() -> None:
    with running(1) as case:
        case.calls.silent.add(2)
        case.fleet.add(new(2))
        errors: list[Any] = []

        def wait() -> None:
            with pytest.raises(StartError) as caught:
                case.fleet.await_registered((2,), 60)
            errors.append(str(caught.value))

        thread = threading.Thread(target=wait)
        thread.start()
        case.fleet.ask_to_stop()
        thread.join(20)
        assert errors == ["the cluster is being stopped"]
        with pytest.raises(StartError, match="is being stopped"):
            case.fleet.add(new(3))
