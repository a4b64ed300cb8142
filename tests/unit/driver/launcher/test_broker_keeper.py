import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparklog.driver.launcher import broker_keeper
from sparklog.driver.launcher.broker_keeper import BrokerKeeper, KeeperOptions
from sparklog.driver.launcher.engines import Job, JobLost
from sparklog.driver.launcher.slot_allocator import SlotAllocator
from sparklog.driver.launcher.spares import SparePool
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.wire.protocol.private import AssignedBroker
from tests.support.waiting import wait_for
from tests.unit.driver.launcher.launcher_fakes import FakeCalls, FakeEngine, executor

NAME = "broker-1"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_keeper, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(broker_keeper, "RETRY_SECONDS_MAX", 0.01)


class Case:
    def __init__(
        self,
        engine: FakeEngine,
        host: str | None = None,
        new: bool = True,
        delay: float = 600.0,
        spares: int = 0,
    ) -> None:
        self.engine = engine
        self.deaths: list[tuple[int, str]] = []
        self.failures: list[str | None] = []
        self.replaceable = True
        self.asked = 0
        self.when_asked: Callable[[], object] = lambda: None
        options = KeeperOptions(
            make_payload=self.payload,
            on_death=lambda broker_id, reason: self.deaths.append((broker_id, reason)),
            on_failure=lambda: self.failures.append(self.keeper.failure),
            may_replace=self.may_replace,
            replacement_delay=delay,
        )
        broker = AssignedBroker(broker_id=1, host=host, new=new)
        self.calls = FakeCalls(engine, ())
        self.spares = SparePool(
            spares,
            engine=engine,
            slot_allocator=(slot_allocator := SlotAllocator()),
            make_payload=lambda name, executor: {"host": executor.host, "spare": name},
            give_work=self.calls.give_work,
        )
        self.keeper = BrokerKeeper(
            broker, options, engine=engine, slot_allocator=slot_allocator, spares=self.spares
        )

    def may_replace(self, broker_id: int) -> bool:
        assert broker_id == 1
        self.asked += 1
        self.when_asked()
        return self.replaceable

    @staticmethod
    def payload(executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        return {"host": executor.host, "new": new, "broker": {"new": new, "secret": "x"}}

    def submitted(self, count: int) -> None:
        wait_for(lambda: len(self.engine.jobs) == count)

    def payloads(self) -> list[Any]:
        return [{k: job.payload[k] for k in ("host", "new")} for job in self.engine.jobs]


@contextmanager
def running(case: Case) -> Iterator[Case]:
    case.keeper.start()
    try:
        yield case
    finally:
        case.keeper.ask_to_stop()
        case.engine.end(NAME, JobLost("the test ends"))
        assert case.keeper.join(60)


def test_after_an_executor_loss_it_goes_back_to_the_same_host() -> None:
    with running(Case(FakeEngine(executor("1", "a"), executor("2", "b")), host="b")) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        case.engine.present = [executor("1", "a")]
        case.engine.end(NAME, JobLost("executor 2 died"))
        wait_for(lambda: case.deaths == [(1, "lost executor 2 died")])
        case.engine.present.append(executor("3", "b"))
        case.submitted(2)
        assert case.engine.where(NAME) == ["2", "3"]
        assert case.payloads() == [{"host": "b", "new": True}, {"host": "b", "new": False}]


def test_a_host_that_stays_away_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_keeper, "HOST_RETURN_SECONDS_MAX", 0.05)
    with running(Case(FakeEngine(executor("1", "a"), executor("2", "b")), host="b")) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        case.engine.present = [executor("1", "a")]
        case.engine.end(NAME, JobLost("executor 2 died"))
        case.submitted(2)
        assert case.engine.where(NAME) == ["2", "1"]


def test_a_task_that_woke_up_elsewhere_is_sent_again() -> None:
    with running(Case(FakeEngine(executor("1")))) as case:
        case.submitted(1)
        case.engine.end(NAME, {"outcome": "elsewhere", "executor_id": "2"})
        case.submitted(2)
        assert (case.engine.where(NAME), case.deaths) == (["1", "1"], [])


def test_the_directory_is_looked_for_on_every_executor() -> None:
    engine = FakeEngine(executor("1", "a"), executor("2", "b"), executor("3", "c"))
    with running(Case(engine, host="b", new=False)) as case:
        for count in (1, 2):
            case.submitted(count)
            engine.end(NAME, {"outcome": "refused", "kind": "not_here"})
        case.submitted(3)
        assert (engine.where(NAME), case.keeper.failure) == (["2", "1", "3"], None)


NOT_HERE = {"outcome": "refused", "kind": "not_here"}


def test_a_directory_that_is_nowhere_is_looked_for_until_it_is_back() -> None:
    engine = FakeEngine(executor("1", "a"))
    with running(Case(engine, host="b", new=False)) as case:
        case.submitted(1)
        engine.end(NAME, NOT_HERE)
        case.submitted(2)
        assert case.keeper.is_missing
        assert case.keeper.absence_message == (
            "no executor has the directory of broker 1, which was last on b; give the data_dir "
            "that it was started with"
        )
        engine.present = [executor("2", "b")]
        engine.end(NAME, NOT_HERE)
        case.submitted(3)
        assert engine.where(NAME) == ["1", "1", "2"]
        case.keeper.mark_registered()
        assert (case.keeper.is_missing, case.asked, case.failures) == (False, 0, [])
        assert not any(payload["new"] for payload in case.payloads())


def test_after_the_delay_a_directory_that_is_nowhere_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_keeper, "HOST_RETURN_SECONDS_MAX", 0.05)
    engine = FakeEngine(executor("1", "a"), executor("2", "b"))
    run = engine.run

    def run_without_the_directory(job: Job) -> dict[str, Any]:
        if job.executor.host == "a" and not job.payload["new"]:
            engine.jobs.append(job)
            return NOT_HERE
        return run(job)

    engine.run = run_without_the_directory  # type: ignore[method-assign]
    with running(Case(engine, host="b", new=False, delay=0.3)) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        engine.present = [executor("1", "a")]
        engine.end(NAME, JobLost("the host is gone"))
        wait_for(lambda: case.payloads()[-1] == {"host": "a", "new": True})
        assert (len(case.payloads()) > 2, case.asked) == (True, 1)
        engine.end(NAME, JobLost("executor 1 died"))
        wait_for(lambda: case.payloads()[-1] == {"host": "a", "new": False})


def test_what_nobody_else_can_lead_is_never_replaced() -> None:
    engine = FakeEngine(executor("1", "a"))
    case = Case(engine, host="b", new=False, delay=0.0)
    case.replaceable = False
    with running(case):
        case.keeper.accept_absence()
        for count in range(1, 5):
            case.submitted(count)
            engine.end(NAME, NOT_HERE)
        wait_for(lambda: case.asked >= 3)
        assert not any(payload["new"] for payload in case.payloads())


def test_a_replacement_that_finds_no_room_is_thought_over_again() -> None:
    """The brokers that led its partitions may be gone when a slot becomes free."""
    engine = FakeEngine(executor("1", "a"))
    case = Case(engine, host="a", new=False, delay=0.0)
    case.when_asked = engine.present.clear
    with running(case):
        case.keeper.accept_absence()
        case.submitted(1)
        engine.end(NAME, NOT_HERE)
        wait_for(lambda: case.asked == 1)
        time.sleep(0.1)  # several polls, none of which finds an executor
        case.replaceable = False
        engine.present = [executor("2", "a")]
        case.submitted(2)
        assert not case.payloads()[-1]["new"]


def test_a_disk_that_failed_is_replaced_on_another_executor() -> None:
    engine = FakeEngine(executor("1", "a"), executor("2", "b"))
    with running(Case(engine, host="a", new=False, delay=0.0)) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        engine.end(NAME, {"outcome": "refused", "kind": "storage", "error": "it is broken"})
        case.submitted(2)
        engine.end(NAME, NOT_HERE)
        case.submitted(3)
        engine.end(NAME, {"outcome": "refused", "kind": "storage", "error": "it is broken"})
        case.submitted(4)
        assert [(each["host"], each["new"]) for each in case.payloads()] == [
            ("a", False),
            ("b", False),
            ("a", True),
            ("b", True),
        ]


def test_a_registered_broker_is_looked_for_again_and_again() -> None:
    with running(Case(FakeEngine(executor("1", "a")), host="a", new=False)) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        for count in (2, 3):
            case.engine.end(NAME, {"outcome": "refused", "kind": "not_here"})
            case.submitted(count)
        assert case.failures == []


def test_what_fails_at_the_first_start_is_not_tried_again() -> None:
    with running(Case(FakeEngine(executor("1")))) as case:
        case.submitted(1)
        case.engine.end(NAME, {"outcome": "refused", "kind": "foreign_cluster", "error": "no"})
        wait_for(lambda: case.keeper.has_ended)
        assert (case.failures, case.deaths) == (["no"], [])


def test_the_same_later_is_reported_and_tried_again() -> None:
    with running(Case(FakeEngine(executor("1")))) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        case.engine.end(NAME, {"outcome": "failed", "error": "it crashes"})
        case.submitted(2)
        assert (case.failures, case.deaths) == ([], [(1, "failed it crashes")])


def test_the_end_of_the_application_is_the_end() -> None:
    with running(Case(FakeEngine(executor("1")))) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        case.engine.over = True
        case.engine.end(NAME, JobLost("SparkContext was shut down"))
        wait_for(lambda: case.keeper.has_ended)
        assert case.failures == ["the Spark application has ended"]


def test_it_waits_for_a_free_slot() -> None:
    with running(Case(FakeEngine())) as case:
        assert case.keeper.join(0.05) is False
        case.engine.present = [executor("1")]
        case.submitted(1)


def test_a_stop_ends_it_without_a_new_job() -> None:
    case = Case(FakeEngine(executor("1")))
    with running(case):
        case.submitted(1)
    assert (len(case.engine.jobs), case.deaths, case.failures) == (1, [], [])


def test_an_engine_that_fails_for_a_moment_does_not_end_it() -> None:
    engine = FakeEngine(executor("1"))
    with running(Case(engine)) as case:
        case.submitted(1)
        case.keeper.mark_registered()
        answers = [RuntimeError("the gateway closed the connection")]
        look = engine.executors

        def executors() -> tuple[ExecutorSlots, ...]:
            if answers:
                raise answers.pop()
            return look()

        engine.executors = executors  # type: ignore[method-assign]
        engine.end(NAME, JobLost("executor 1 died"))
        case.submitted(2)
        assert (answers, case.failures) == ([], [])


def test_a_stop_while_it_chooses_submits_nothing() -> None:
    engine = FakeEngine(executor("1"))
    case = Case(engine)

    def executors() -> tuple[ExecutorSlots, ...]:
        case.keeper.ask_to_stop()
        return tuple(engine.present)

    engine.executors = executors  # type: ignore[method-assign]
    case.keeper.start()
    assert case.keeper.join(60)
    assert (engine.jobs, case.failures) == ([], [])


def spares_run(engine: FakeEngine) -> list[str]:
    """The names and executors of the submitted spares."""
    jobs = [job for job in engine.jobs if job.name.startswith("spare-")]
    return sorted(f"{job.name} on {job.executor.executor_id}" for job in jobs)


@contextmanager
def running_with_spares(*hosts: str) -> Iterator[Case]:
    """A registered broker on host a, and a spare on each of these hosts."""
    engine = FakeEngine(executor("1", "a", 1))
    case = Case(engine, host="a", new=False, spares=1)
    with running(case):
        case.submitted(1)
        case.keeper.mark_registered()
        for number, host in enumerate(hosts, start=1):
            engine.present.append(executor(f"s{number}", host, 1))
            case.spares.start()
            wait_for(lambda number=number: len(spares_run(engine)) == number)
            case.calls.asking_spares.add(f"spare-{number}")
        try:
            yield case
        finally:
            case.keeper.ask_to_stop()
            case.spares.stop(0.1)
            for job in engine.jobs:
                engine.end(job.name, JobLost("the test ends"))


def test_a_broker_that_lost_its_executor_goes_on_in_a_spare_of_its_host() -> None:
    with running_with_spares("b", "a") as case:
        case.engine.present[0] = executor("4", "a", 1)  # where the next spare goes
        case.engine.end(NAME, JobLost("executor 1 died"))
        wait_for(lambda: case.keeper.job_name == "spare-2")
        assert case.calls.work == {"spare-2": {"new": False}}
        wait_for(lambda: "spare-3 on 4" in spares_run(case.engine))
        assert case.engine.where(NAME) == ["1"]
        case.engine.end("spare-2", {"outcome": "lost", "error": "its executor died"})
        wait_for(lambda: len(case.deaths) == 2)


def test_a_spare_that_does_not_ask_is_passed_by() -> None:
    with running_with_spares("a") as case:
        case.calls.asking_spares.clear()
        case.engine.end(NAME, JobLost("executor 1 died"))
        wait_for(lambda: case.engine.where(NAME) == ["1", "1"])
        assert (case.calls.work, case.keeper.job_name) == ({}, NAME)


def test_an_executor_of_its_host_is_better_than_a_spare_elsewhere() -> None:
    with running_with_spares("b") as case:
        case.engine.present[0] = executor("5", "a", 1)
        case.engine.end(NAME, JobLost("executor 1 died"))
        wait_for(lambda: case.engine.where(NAME) == ["1", "5"])
        assert case.calls.work == {}


def test_a_directory_is_looked_for_by_spares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_keeper, "HOST_RETURN_SECONDS_MAX", 0.05)
    with running_with_spares("b") as case:
        run = case.engine.run

        def run_without_the_directory(job: Job) -> dict[str, Any]:
            if job.name == NAME and job.executor.host == "b":
                return NOT_HERE  # the keeper may look there again before executor 5 is present
            return run(job)

        case.engine.run = run_without_the_directory  # type: ignore[method-assign]
        case.engine.present.pop(0)
        case.engine.end(NAME, JobLost("executor 1 died"))
        wait_for(lambda: case.keeper.job_name == "spare-1")
        case.engine.end("spare-1", NOT_HERE)
        wait_for(lambda: case.keeper.is_missing)
        case.engine.present.append(executor("5", "a", 1))
        wait_for(lambda: case.engine.where(NAME)[-1] == "5")
