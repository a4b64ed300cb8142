"""Brokers that are added and removed while others run, with a fake engine and fake calls."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.driver.launcher import fleet as fleet_module
from sparklog.driver.launcher import removal
from sparklog.driver.launcher.broker_keeper import BrokerKeeper
from sparklog.driver.launcher.engines import JobLost
from sparklog.driver.launcher.fleet import Fleet, FleetOptions
from sparklog.driver.launcher.removal import keep_brokers, remove_brokers
from sparklog.errors import StartError
from sparklog.wire.protocol.private import AssignedBroker, DrainedBroker
from tests.support.waiting import wait_for
from tests.unit.driver.launcher.launcher_fakes import FakeCalls, FakeEngine, executor, replicas


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
            replacement_delay=0.0,
            make_spare_payload=lambda name, executor: {"spare": name},
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
        case.fleet.stop(case.fleet.broker_ids, "the test ends", 60)
        assert case.fleet.broker_ids == ()


@contextmanager
def slow_to_stop(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Thread]:
    """The thread that stops broker 2, which is still closing its logs."""
    monkeypatch.setattr(fleet_module, "CLOSING_LOOK_SECONDS", 0.02)
    case.calls.slow.add(2)
    stopping = threading.Thread(target=case.fleet.stop, args=([2], "it is removed", 0.05))
    stopping.start()
    # The broker is asked again, because it might have been restarted.
    wait_for(lambda: len(case.calls.asked) > 3)
    yield stopping


def test_added_brokers_run_beside_the_others() -> None:
    with running(1) as case:
        case.run(2, 3)
        assert case.fleet.broker_ids == (1, 2, 3)
        assert case.fleet.unregistered() == ()


def test_a_removed_broker_is_stopped_and_not_brought_back() -> None:
    with running(1, 2) as case:
        case.fleet.stop([2], "it is removed", 60)
        assert (case.fleet.broker_ids, case.calls.asked) == ((1,), [2])
        assert len(case.engine.where("broker-2")) == 1
        case.engine.end("broker-1", JobLost("its executor died"))
        wait_for(lambda: len(case.engine.where("broker-1")) == 2)


def test_a_broker_that_is_heard_of_is_waited_for_until_its_logs_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(1, 2) as case, slow_to_stop(case, monkeypatch) as stopping:
        case.engine.end("broker-2", {"outcome": "stopped"})
        stopping.join(60)
        assert (case.fleet.broker_ids, case.engine.cancelled) == ((1,), [])


def test_a_broker_that_is_not_heard_of_any_more_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(1, 2) as case, slow_to_stop(case, monkeypatch) as stopping:
        case.calls.silent.add(2)
        stopping.join(60)
        assert (case.fleet.broker_ids, case.engine.cancelled) == ((1,), ["broker-2"])


def test_what_does_not_register_can_be_told_from_what_does() -> None:
    with running(1) as case:
        case.calls.silent.add(3)
        case.fleet.add(new(2, 3))
        wait_for(lambda: case.engine.where("broker-2"))
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
        thread.join(60)
        assert errors == ["the cluster is being stopped"]
        with pytest.raises(StartError, match="is being stopped"):
            case.fleet.add(new(3))


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("short_looks")
def test_brokers_are_drained_then_stopped_then_forgotten() -> None:
    with running(1, 2, 3) as case:
        case.calls.left = [4, 4, 1]
        seen: list[list[int]] = []

        def watch(drained: Sequence[DrainedBroker]) -> None:
            assert case.fleet.broker_ids == (1, 2, 3)
            seen.append([broker.partitions_left for broker in drained])

        remove_brokers(case.fleet, case.calls, (2, 3), watch, stop_seconds=60)
        assert seen == [[4, 4], [4, 4], [1, 1], [0, 0]]
        assert case.calls.draining == [(2, 3)] * 4
        assert (case.fleet.broker_ids, sorted(case.calls.asked)) == ((1,), [2, 3])
        assert case.calls.forgotten == [2, 3]


@pytest.mark.usefixtures("short_looks")
def test_a_removal_that_is_interrupted_keeps_the_brokers() -> None:
    with running(1, 2) as case:
        case.calls.left = [4, 4]

        def interrupt(_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            remove_brokers(case.fleet, case.calls, (2,), interrupt, stop_seconds=60)
        assert case.calls.draining == [(2,), ()]
        assert (case.fleet.broker_ids, case.calls.asked, case.calls.forgotten) == ((1, 2), [], [])


def interrupt_the_stop(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 2 is drained; the wait for its end is interrupted, and it ends later."""
    case.calls.deaf.add(2)

    def interrupt(self: BrokerKeeper) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BrokerKeeper, "cancel", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remove_brokers(case.fleet, case.calls, (2,), lambda _: None, stop_seconds=60)
    case.calls.deaf.clear()
    assert (case.fleet.broker_ids, case.fleet.stopping_ids) == ((1, 2), (2,))
    assert case.calls.marked == {2}


@pytest.mark.usefixtures("short_looks")
def test_a_removal_that_was_interrupted_at_the_stop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(1, 2) as case:
        interrupt_the_stop(case, monkeypatch)
        remove_brokers(case.fleet, case.calls, (2,), lambda _: None, stop_seconds=60)
        assert (case.fleet.broker_ids, case.calls.forgotten, case.calls.marked) == (
            (1,),
            [2],
            set(),
        )


@pytest.mark.usefixtures("short_looks")
def test_a_removal_that_was_interrupted_at_the_stop_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(1, 2) as case:
        interrupt_the_stop(case, monkeypatch)
        assert keep_brokers(case.fleet, case.calls, (1,), stop_seconds=60) == ()
        assert keep_brokers(case.fleet, case.calls, (1, 2), stop_seconds=60) == (2,)
        assert (case.fleet.broker_ids, case.calls.forgotten, case.calls.marked) == ((1,), [], set())
        case.run(2)
        assert len(case.engine.where("broker-2")) == 2


@pytest.mark.usefixtures("short_looks")
def test_a_removal_outlives_a_control_plane_that_is_restarting() -> None:
    with running(1, 2) as case:
        case.calls.controller_is_away = True
        timer = threading.Timer(0.05, setattr, (case.calls, "controller_is_away", False))
        timer.start()
        remove_brokers(case.fleet, case.calls, (2,), lambda _: None, stop_seconds=60)
        assert case.calls.forgotten == [2]


NOT_HERE = {"outcome": "refused", "kind": "not_here"}


def test_a_start_does_without_a_broker_whose_records_others_lead() -> None:
    with running() as case:
        case.calls.silent.add(2)
        case.calls.partitions = [replicas(1, 2, leader=1), replicas(2, 1, leader=-1)]
        case.engine.end("broker-2", NOT_HERE)
        case.fleet.add((*new(1), AssignedBroker(broker_id=2, host="h9")))

        def lead() -> None:
            wait_for(lambda: len(case.engine.where("broker-2")) > 1)
            case.calls.partitions[1] = replicas(2, 1, leader=1)

        thread = threading.Thread(target=lead)
        thread.start()
        case.fleet.await_registered((1, 2), 20)
        thread.join(60)
        assert case.fleet.unregistered() == (2,)


def test_a_start_does_not_do_without_records_that_nobody_else_has() -> None:
    with running() as case:
        case.calls.silent.add(2)
        case.calls.partitions = [replicas(1, leader=1), replicas(2, leader=-1)]
        case.engine.end("broker-2", NOT_HERE)
        case.fleet.add((*new(1), AssignedBroker(broker_id=2, host="h9")))
        with pytest.raises(StartError, match="no executor has the directory of broker 2, which"):
            case.fleet.await_registered((1, 2), 20)


def test_a_directory_is_not_replaced_while_its_broker_counts_as_the_leader() -> None:
    """The loss was not reported to the control plane, and the session has not expired."""
    with running(1) as case:
        case.calls.partitions = [replicas(1, 2, leader=2)]
        assert case.fleet._may_replace(1)
        case.calls.partitions = [replicas(1, 2, leader=1)]
        assert not case.fleet._may_replace(1)


def test_a_start_waits_for_records_that_only_an_absent_broker_has_all_of() -> None:
    with running() as case:
        case.calls.silent.add(2)
        case.calls.partitions = [replicas(1, 2, leader=-1)]
        case.engine.end("broker-2", NOT_HERE)
        case.fleet.add((*new(1), AssignedBroker(broker_id=2, host="h9")))
        wait_for(lambda: case.engine.where("broker-1") and case.fleet._keepers[2].is_missing)
        with pytest.raises(StartError) as caught:
            case.fleet.await_registered((1, 2), 0.3)
        assert str(caught.value) == (
            "broker 2 did not register within 0.3 s; no executor has the directory of broker 2, "
            "which was last on h9; give the data_dir that it was started with, because there are "
            "partitions that only it can lead"
        )


def test_a_start_does_not_do_without_all_brokers() -> None:
    with running() as case:
        case.calls.silent.add(1)
        case.engine.end("broker-1", NOT_HERE)
        case.fleet.add([AssignedBroker(broker_id=1, host="h9")])
        with pytest.raises(StartError, match="no executor has the directory of broker 1, which"):
            case.fleet.await_registered((1,), 20)


def test_a_broker_that_came_late_is_stopped_cleanly_too() -> None:
    with running() as case:
        case.calls.silent.add(2)
        case.engine.end("broker-2", NOT_HERE)
        case.fleet.add((*new(1), AssignedBroker(broker_id=2, host="h9")))
        case.fleet.await_registered((1, 2), 20)
        wait_for(lambda: len(case.engine.where("broker-2")) == 2)
        case.calls.silent.clear()
        case.fleet.ask_to_stop()
        case.fleet.stop((1, 2), "the test ends", 60)
        assert (sorted(case.calls.asked), case.engine.cancelled) == ([1, 2], [])
