"""The launcher with a fake engine, fake calls, and a fake child process as the control plane."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.driver.launcher import broker_keeper, fleet
from sparklog.driver.launcher.engines import Job, JobLost
from sparklog.driver.launcher.launcher import Launcher, LaunchOptions
from sparklog.driver.launcher.racks import Racks
from sparklog.errors import ErrorCode, KafkaError, StartError
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import AssignedBroker
from tests.support.running import ours
from tests.support.waiting import wait_for
from tests.unit.driver.launcher.launcher_fakes import FakeCalls, FakeEngine, executor

FAKE = str(Path(__file__).parents[2] / "process" / "fake_child.py")
BROKERS = (
    AssignedBroker(broker_id=1, new=True),
    AssignedBroker(broker_id=2, new=True),
)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., "Case"]:
    fake = [sys.executable, FAKE, "serve"]
    monkeypatch.setattr(
        "sparklog.driver.launcher.control_plane_process.python_command", lambda _: fake
    )
    monkeypatch.setattr(fleet, "ASK_SECONDS_MAX", 0.3)
    return lambda **changes: Case(tmp_path, **changes)


class Case:
    def __init__(
        self, folder: Path, brokers: tuple[AssignedBroker, ...] = BROKERS, **changes: object
    ) -> None:
        self.engine = FakeEngine(executor("1", "h1", 8))
        self.calls = FakeCalls(self.engine, brokers)
        options = {"brokers": 2, "data_dir": str(folder), "host": "127.0.0.1", **changes}
        self.options = LaunchOptions(**options)  # type: ignore[arg-type]
        self.made_with: list[tuple[Endpoint, bytes]] = []
        self.launcher = Launcher(self.options, self.engine, self.make_calls)

    def make_calls(self, endpoint: Endpoint, secret: bytes) -> FakeCalls:
        self.made_with.append((endpoint, secret))
        return self.calls

    def nothing_is_left(self) -> bool:
        open_file_half(self.options.data_dir).lock("cluster.lock").release()
        return not ours(FAKE) and self.engine.closed

    def only_the_silent_are_missing(self) -> None:
        """The other brokers have registered, however short the time limit of the start is."""
        alive_brokers = self.calls.alive_brokers
        others = {f"broker-{broker.broker_id}" for broker in BROKERS} - {
            f"broker-{broker_id}" for broker_id in self.calls.silent
        }

        def alive() -> dict[int, Endpoint]:
            wait_for(lambda: others <= {job.name for job in self.engine.jobs})
            return alive_brokers()

        self.calls.alive_brokers = alive  # type: ignore[method-assign]


def test_start_and_stop_in_order(make: Callable[..., Case], tmp_path: Path) -> None:
    case = make(settings={"num.partitions": "3"})
    case.launcher.start()
    control = case.launcher.control_plane
    assert case.made_with == [(Endpoint("127.0.0.1", 4321), bytes.fromhex("ab" * 32))]
    assert {job.name: job.payload for job in case.engine.jobs}["broker-2"] == {
        "executor_id": "1",
        "broker": {
            "cluster_id": "fake-cluster",
            "broker_id": 2,
            "data_dir": str(tmp_path),
            "more_data_dirs": [],
            "new": True,
            "listen_host": "h1",
            "port": 0,
            "advertised_host": "h1",
            "controller": "127.0.0.1:4321",
            "secret": "ab" * 32,
            "executor_host": "h1",
            "executor_id": "1",
            "job": "broker-2",
            "settings": {"num.partitions": "3"},
            "remote_options": {},
            "lock_wait_s": 15,
        },
    }
    assert control.pid is not None
    case.launcher.stop()
    case.launcher.stop()
    assert (sorted(case.calls.asked), case.engine.cancelled) == ([1, 2], [])
    assert control.pid is None
    assert case.calls.closed
    assert case.nothing_is_left()


def test_each_broker_is_told_the_rack_of_its_host(make: Callable[..., Case]) -> None:
    case = make(racks=Racks(by_host={"h1": "left", "h2": "left", "h3": "right"}))
    case.engine.present = [executor("1", "h1"), executor("2", "h2"), executor("3", "h3")]
    case.launcher.start()
    settings = {
        job.payload["broker"]["executor_host"]: job.payload["broker"]["settings"]
        for job in case.engine.jobs
    }
    case.launcher.stop()
    assert settings == {"h1": {"broker.rack": "left"}, "h3": {"broker.rack": "right"}}


def test_a_host_without_a_rack_is_named_before_anything_starts(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    case = make(racks=Racks(by_host={"h1": "left", "h2": "right"}))
    case.engine.present = [executor("1", "h1"), executor("3", "10.0.0.3")]
    with pytest.raises(StartError) as caught:
        case.launcher.start()
    assert str(caught.value) == (
        "racks has no rack for 10.0.0.3, where executors run; it has h1, h2; name hosts as Spark "
        "does"
    )
    assert os.listdir(tmp_path) == []


def test_a_host_that_comes_later_has_no_rack(
    make: Callable[..., Case], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_keeper, "HOST_RETURN_SECONDS_MAX", 0.0)
    case = make(racks=Racks(by_host={"h1": "left"}))
    case.launcher.start()
    case.engine.present = [executor("9", "h9")]
    case.engine.end("broker-1", JobLost("its executor died"))
    wait_for(lambda: case.engine.where("broker-1") == ["1", "9"])
    case.launcher.stop()
    assert case.engine.jobs[-1].payload["broker"]["settings"] == {}
    assert "broker 1 goes to h9, which has no rack" in caplog.text


def test_what_opens_the_remote_dir_goes_to_every_broker_and_to_no_waiting_spare(
    make: Callable[..., Case],
) -> None:
    opening = {"secret": "hush", "client_kwargs": {"region_name": "x"}}
    case = make(spares=1, settings={"remote.dir": "s3://bucket/log"}, storage_options=opening)
    case.launcher.start()
    wait_for(lambda: len(case.engine.jobs) == 3)
    told = {job.name: job.payload["broker"].get("remote_options") for job in case.engine.jobs}
    case.calls.asking_spares = {"spare-1"}
    case.engine.end("broker-1", JobLost("its executor died"))
    wait_for(lambda: "spare-1" in case.calls.work)
    case.engine.end("spare-1", {"outcome": "stopped"})  # nobody in it hears of the stop
    case.launcher.stop()
    assert told == {"broker-1": opening, "broker-2": opening, "spare-1": None}
    assert case.calls.work["spare-1"]["remote_options"] == opening
    assert "hush" not in f"{case.options} {case.engine.jobs}"


def test_a_second_cluster_on_the_same_folder_is_refused(make: Callable[..., Case]) -> None:
    first, second = make(), make()
    first.launcher.start()
    try:
        with pytest.raises(StartError, match=f"process {os.getpid()}"):
            second.launcher.start()
        assert first.launcher.control_plane.pid is not None
    finally:
        first.launcher.stop()


def test_a_second_cluster_on_the_same_journal_is_refused(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    journal = str(tmp_path / "journal")
    first = make(data_dir=str(tmp_path / "a"), journal_dir=journal)
    second = make(data_dir=str(tmp_path / "b"), journal_dir=journal)
    first.launcher.start()
    try:
        with pytest.raises(StartError, match="on this journal_dir already"):
            second.launcher.start()
    finally:
        first.launcher.stop()


def test_a_folder_that_cannot_be_made_is_refused(make: Callable[..., Case], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    case = make(data_dir=str(tmp_path / "file" / "data"))
    with pytest.raises(StartError, match="cannot be used"):
        case.launcher.start()


def test_other_storage_than_folders_is_refused(make: Callable[..., Case]) -> None:
    with pytest.raises(StartError, match="give a path or a file:// URL"):
        make(data_dir="memory://x")


def test_a_folder_with_brokers_of_two_clusters_is_refused(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    for broker, owner in (("broker-1", "A"), ("broker-2", "B")):
        (tmp_path / broker).mkdir()
        (tmp_path / broker / "meta.properties").write_text(f"version=1\ncluster.id={owner}\n")
    with pytest.raises(StartError, match="several clusters: broker-1 of A, broker-2 of B"):
        make()


def test_a_broker_that_cannot_start_fails_the_start_and_leaves_nothing(
    make: Callable[..., Case],
) -> None:
    case = make()
    case.calls.silent.add(2)
    case.engine.end("broker-2", {"outcome": "refused", "kind": "locked", "error": "it is locked"})
    with pytest.raises(StartError, match="broker 2 does not start: it is locked"):
        case.launcher.start()
    assert case.nothing_is_left()


def test_a_broker_that_never_registers_fails_the_start(make: Callable[..., Case]) -> None:
    case = make(start_seconds=0.2)
    case.calls.silent.add(2)
    case.only_the_silent_are_missing()
    with pytest.raises(StartError, match=r"broker 2 did not register within 0.2 s"):
        case.launcher.start()
    assert "broker-2" in case.engine.cancelled
    assert case.nothing_is_left()


def test_a_lost_broker_is_reported_and_submitted_again(make: Callable[..., Case]) -> None:
    case = make()
    case.launcher.start()
    case.engine.end("broker-1", JobLost("executor 1 died"))
    wait_for(lambda: len(case.engine.where("broker-1")) == 2)
    case.launcher.stop()
    assert case.calls.reported_deaths == [1]
    assert case.nothing_is_left()


def test_brokers_are_added_and_removed_while_it_runs(make: Callable[..., Case]) -> None:
    case = make(brokers=tuple(AssignedBroker(broker_id=i, new=True) for i in (1, 2, 3)))
    case.calls.assigns_no_more = True
    case.launcher.start()
    assert (case.launcher.add_brokers(3), case.launcher.broker_ids) == ((3,), (1, 2, 3))
    assert case.launcher.add_brokers(3) == ()
    case.launcher.remove_brokers([3], lambda _: None)
    assert (case.launcher.broker_ids, case.calls.asked) == ((1, 2), [3])
    assert case.calls.forgotten == [3]
    case.launcher.stop()
    assert case.nothing_is_left()
    with pytest.raises(StartError, match="does not run"):
        case.launcher.add_brokers(3)


def test_added_brokers_that_do_not_start_are_not_kept(make: Callable[..., Case]) -> None:
    brokers = tuple(AssignedBroker(broker_id=i, new=True) for i in (1, 2, 3, 4))
    case = make(brokers=brokers, start_seconds=5.0)
    case.calls.assigns_no_more = True
    case.launcher.start()
    case.calls.silent.add(4)
    case.engine.end("broker-4", {"outcome": "refused", "kind": "locked", "error": "it is locked"})
    with pytest.raises(StartError, match="broker 4 does not start: it is locked"):
        case.launcher.add_brokers(4)
    assert 4 not in case.launcher.broker_ids
    case.engine.slots = 4
    with pytest.raises(StartError, match="5 brokers are too many"):
        case.launcher.add_brokers(5)
    case.launcher.stop()
    assert case.nothing_is_left()


def test_what_does_not_answer_is_cancelled_at_the_end(make: Callable[..., Case]) -> None:
    case = make()
    case.launcher.start()
    case.calls.deaf.add(2)
    case.launcher.stop()
    assert (case.calls.asked, set(case.engine.cancelled)) == ([1], {"broker-2"})
    assert case.nothing_is_left()


def test_the_end_of_the_application_puts_the_rest_away(make: Callable[..., Case]) -> None:
    case = make()
    case.launcher.start()
    case.engine.over = True
    case.engine.end("broker-1", JobLost("SparkContext was shut down"))
    case.engine.end("broker-2", JobLost("SparkContext was shut down"))
    wait_for(lambda: case.launcher.is_stopped)
    case.launcher.stop()
    wait_for(case.nothing_is_left)


def test_registrations_of_a_former_life_do_not_count(make: Callable[..., Case]) -> None:
    known = tuple(AssignedBroker(broker_id=i, host="h1") for i in (1, 2))
    case = make(brokers=known, start_seconds=0.3)
    case.calls.stale = case.calls.silent = {2}
    case.only_the_silent_are_missing()
    with pytest.raises(StartError, match=r"broker 2 did not register within 0.3 s"):
        case.launcher.start()
    assert case.calls.reported_deaths == [1, 2]
    assert case.nothing_is_left()


def test_an_interrupted_stop_still_puts_everything_away(make: Callable[..., Case]) -> None:
    case = make()
    case.launcher.start()

    def interrupt(*_: object) -> tuple[Endpoint, ...]:
        raise KeyboardInterrupt

    case.calls.stop_nodes = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        case.launcher.stop()
    assert case.launcher.control_plane.pid is None
    assert case.calls.closed
    assert case.nothing_is_left()
    for job in case.engine.jobs:
        case.engine.end(job.name, JobLost("the test ends"))


def test_while_the_control_plane_is_away_brokers_are_asked_where_they_were_seen_last(
    make: Callable[..., Case],
) -> None:
    case = make()
    case.launcher.start()
    case.calls.controller_is_away = True
    case.launcher.stop()
    assert (sorted(case.calls.asked), case.engine.cancelled) == ([1, 2], [])
    assert case.nothing_is_left()


def test_a_question_without_an_answer_does_not_end_the_stop(make: Callable[..., Case]) -> None:
    case = make()
    case.launcher.start()

    def time_out(*_: object) -> tuple[Endpoint, ...]:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    case.calls.stop_nodes = time_out  # type: ignore[method-assign]
    case.launcher.stop()
    assert set(case.engine.cancelled) == {"broker-1", "broker-2"}  # more than once is no harm
    assert case.nothing_is_left()


def test_a_job_that_is_just_being_submitted_is_cancelled_too(make: Callable[..., Case]) -> None:
    case = make(start_seconds=0.2, stop_seconds=120.0)
    case.calls.silent.add(2)
    case.only_the_silent_are_missing()
    run, cancel, may_go = case.engine.run, case.engine.cancel, threading.Event()

    def run_slowly(job: Job) -> dict[str, object]:
        if job.name == "broker-2":
            assert may_go.wait(60)
        return run(job)

    def cancel_what_runs(name: str) -> None:
        if name == "broker-2" and not case.engine.where(name):
            may_go.set()
        else:
            cancel(name)

    case.engine.run = run_slowly  # type: ignore[method-assign]
    case.engine.cancel = cancel_what_runs  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(StartError, match="broker 2 did not register"):
        case.launcher.start()
    assert time.monotonic() - began < case.options.stop_seconds / 2
    assert case.nothing_is_left()


def test_a_journal_may_lie_in_the_data_dir_itself(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    case = make(journal_dir=f"file://{tmp_path}/")
    case.launcher.start()
    case.launcher.stop()
    assert case.nothing_is_left()


def test_too_few_slots_for_the_brokers_that_a_folder_knows_say_so(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    case = make(brokers=tuple(AssignedBroker(broker_id=i) for i in (1, 2, 3)))
    case.engine.slots = 2
    with pytest.raises(StartError) as refusal:
        case.launcher.start()
    assert str(refusal.value) == (
        f"{tmp_path} holds the data of 3 brokers, and all of them have to run, not 2: 3 brokers "
        "are too many"
    )
    assert case.nothing_is_left()


def test_a_control_plane_that_assigns_nothing_fails_the_start(make: Callable[..., Case]) -> None:
    case = make()
    case.calls.controller_is_away = True
    with pytest.raises(StartError, match=r"assigns no brokers: nobody listens; see .*\.log"):
        case.launcher.start()
    assert case.nothing_is_left()


def test_a_control_plane_whose_answers_are_late_is_asked_again(make: Callable[..., Case]) -> None:
    case = make()
    calls = [case.calls.assign_brokers, case.calls.report_broker_deaths]
    late = [True, True]

    def slow(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(asked: Any) -> Any:
            found = call(asked)
            if late:  # it was done, and the answer came too late
                late.pop()
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return found

        return answer

    case.calls.assign_brokers, case.calls.report_broker_deaths = map(slow, calls)  # type: ignore
    case.launcher.start()
    assert case.launcher.broker_ids == (1, 2)
    case.launcher.stop()
    assert case.nothing_is_left()


def test_a_start_that_is_never_answered_fails(make: Callable[..., Case]) -> None:
    case = make(start_seconds=0.05)

    def never(_count: int) -> Any:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "silence")

    case.calls.assign_brokers = never  # type: ignore[method-assign]
    with pytest.raises(StartError, match=r"assigns no brokers: .*silence"):
        case.launcher.start()
    assert case.nothing_is_left()


def test_notes_that_are_no_text_are_no_crash(make: Callable[..., Case], tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "meta.properties").write_bytes(b"\xff\xfe\ncluster.id=A\n")
    assert make().launcher.control_plane.cluster_id == ""
