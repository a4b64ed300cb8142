import json
import logging
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sparklog.driver import launcher
from sparklog.driver.launcher.engines import Job, JobLost, ProcessEngine
from sparklog.driver.launcher.needed_modules import needed_modules
from sparklog.driver.launcher.shipping import fingerprint, write_archive
from sparklog.driver.launcher.spark_engine import (
    SparkEngine,
    probe_task,
    spark_context,
    supervisor_task,
)
from sparklog.driver.launcher.spark_internals import ExecutorSlots, as_text, unlogged_calls
from sparklog.errors import StartError
from tests.support.waiting import wait_for
from tests.unit.driver.launcher.launcher_fakes import executor

FAKE = str(Path(__file__).parents[2] / "process" / "fake_child.py")


def job(folder: Path, mode: str = "serve", **broker: Any) -> Job:
    payload = {
        "broker": {
            "broker_id": 1,
            "data_dir": str(folder),
            "new": True,
            "controller": "127.0.0.1:9",
            "secret": "ab" * 32,
            "settings": {"echo": str(folder / "lives")},
            **broker,
        },
        "command": [sys.executable, FAKE, mode],
        "fast_failures_max": 1,
    }
    return Job(name="broker-1", payload=payload, executor=executor("local"))


def engine(folder: Path) -> ProcessEngine:
    return ProcessEngine("sparklog.executors.supervisor", "127.0.0.1", folder / "logs")


def test_a_supervisor_process_reports(tmp_path: Path) -> None:
    report = engine(tmp_path).run(job(tmp_path, "refuse", kind="locked"))
    assert (report["outcome"], report["kind"], report["error"]) == ("refused", "locked", "because")


def test_a_supervisor_that_gives_up_reports_too(tmp_path: Path) -> None:
    report = engine(tmp_path).run(job(tmp_path, "crash"))
    assert report["outcome"] == "failed"
    assert "exit code 7" in report["error"]


def test_a_cancelled_supervisor_stops_its_broker(tmp_path: Path) -> None:
    processes = engine(tmp_path)
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(processes.run(job(tmp_path))))
    thread.start()
    wait_for((tmp_path / "lives").exists)
    processes.cancel("broker-1")
    thread.join(60)
    assert [report["outcome"] for report in reports] == ["stopped"]


def test_the_end_of_the_engine_ends_its_jobs(tmp_path: Path) -> None:
    processes = engine(tmp_path)
    errors: list[str] = []

    def run() -> None:
        with pytest.raises(JobLost) as caught:
            processes.run(job(tmp_path))
        errors.append(str(caught.value))

    thread = threading.Thread(target=run)
    thread.start()
    wait_for((tmp_path / "lives").exists)
    processes.close()
    thread.join(60)
    assert processes.is_over()
    assert [error.partition(";")[0] for error in errors] == ["the supervisor was ended by SIGKILL"]


def test_the_archive_holds_the_whole_package_and_knows_its_fingerprint(tmp_path: Path) -> None:
    archive = write_archive(tmp_path)
    names = set(zipfile.ZipFile(archive).namelist())
    wanted = {
        "pyspark_sparklog.py",
        "sparklog/__init__.py",
        "sparklog/executors/supervisor/supervisor.py",
        "sparklog/driver/launcher/shipping.py",
        "sparklog/storage_backends/local.py",
        "sparklog/wire/records/batch.py",
        "sparklog/dataframe/jvm/java/Packer.java",
    }
    assert wanted <= names
    assert archive.name == f"sparklog-{fingerprint()}.zip"
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import sparklog.executors.supervisor.supervisor, pyspark_sparklog\n"
        "from sparklog.dataframe.jvm.java_sources import source\n"
        "assert 'final class Packer ' in source('Packer')\n"
        "from sparklog.driver.launcher.shipping import fingerprint\n"
        "from sparklog.driver.launcher.spark_engine import probe_task\n"
        "assert b'missing' in next(probe_task(['json'])(iter([b''])))\n"
        "print(sparklog.__file__, fingerprint())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert done.stdout.split() == [f"{archive}/sparklog/__init__.py", fingerprint()]


def test_the_probe_tells_about_its_python() -> None:
    [answer] = probe_task([*needed_modules(), "no_such_module"])(iter([b""]))
    found = json.loads(answer)
    assert (found["missing"], found["sparklog"], found["executable"]) == (
        ["no_such_module"],
        fingerprint(),
        sys.executable,
    )


def test_tasks_travel_by_value() -> None:
    """An executor that lacks this package can still load them."""
    tasks = cloudpickle.dumps((probe_task(("json", "no_such_module")), supervisor_task("x")))
    script = (
        "import sys; sys.modules['sparklog'] = None\n"
        "import pickle; probe, supervisor = pickle.loads(sys.stdin.buffer.read())\n"
        "print(next(probe(iter([b'']))).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=tasks, capture_output=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert (found["missing"], found["sparklog"]) == (["no_such_module"], None)


def test_spark_connect_is_refused() -> None:
    class Session:
        pass

    Session.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(StartError, match=r"Spark Connect; .* use sparklog.connect\(\) here"):
        spark_context(Session())


class JavaError(Exception):
    class _Java:
        def __init__(self, message: str, cause: Any = None) -> None:
            self._message, self._cause = message, cause

        def getMessage(self) -> str:  # noqa: N802
            return self._message

        def getCause(self) -> Any:  # noqa: N802
            return self._cause

    def __init__(self, message: str) -> None:
        self.java_exception = self._Java("Exception thrown by job", self._Java(message))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("plain"), "plain"),
        (JavaError("Job 3 cancelled\n\tat org.apache"), "Job 3 cancelled"),
        (
            JavaError("Traceback:\nx.SupervisorError: broker 1 failed\nlog SQLSTATE: 38000\n\tat"),
            "broker 1 failed\nlog",
        ),
        (
            JavaError("A failed. Most recent failure reason: B.\njava.io.IOException: C\n\tat x"),
            "A failed. Most recent failure reason: B. java.io.IOException: C",
        ),
        (JavaError("y" * 700), "y" * 600 + " ..."),
    ],
)
def test_errors_of_jobs_are_one_reason(error: Exception, text: str) -> None:
    assert as_text(error) == text


class FakeContext:
    """The parts of a SparkContext that the engine uses before the first job."""

    master = "spark://host:7077"

    def __init__(self, **conf: str) -> None:
        self._conf = conf

    def getConf(self) -> Any:  # noqa: N802
        return {name.replace("_", "."): value for name, value in self._conf.items()}


def spark_engine_on(
    monkeypatch: pytest.MonkeyPatch, context: FakeContext, *found: ExecutorSlots
) -> SparkEngine:
    monkeypatch.setattr("sparklog.driver.launcher.spark_engine.spark_context", lambda _: context)
    monkeypatch.setattr("sparklog.driver.launcher.spark_engine.active_executors", lambda _: found)
    return SparkEngine(None, "module", executors_seconds=0.0)


def test_dynamic_allocation_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    context = FakeContext(spark_dynamicAllocation_enabled="true")
    with pytest.raises(StartError, match=r"set spark.dynamicAllocation.enabled=false before"):
        spark_engine_on(monkeypatch, context, executor("1", slots=9)).require_slots(3, 0)


def test_slots_of_all_executors_count_and_one_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = spark_engine_on(monkeypatch, FakeContext(), executor("1"), executor("2"))
    engine.require_slots(3, 0)
    engine.require_slots(2, 1)
    with pytest.raises(StartError) as caught:
        engine.require_slots(4, 0)
    assert str(caught.value) == (
        "4 brokers need 5 task slots (one stays free for queries), but spark://host:7077 has 4; "
        "give the application more executors or cores, or start fewer brokers"
    )
    with pytest.raises(StartError, match="3 brokers and 1 spare need 5 task slots"):
        engine.require_slots(3, 1)


class Clock:
    """Stands for the module ``time``: who sleeps comes to the end of it at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("first_s", "others_s", "gives_up_s"),
    [(100, 100, None), (5, 25, None), (5, 1000, 30), (100, 1000, 100), (1000, 1000, 120)],
)
def test_the_first_executor_is_waited_for_longer_than_the_others(
    first_s: int, others_s: int, gives_up_s: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()

    def active(_: object) -> list[ExecutorSlots]:
        return [executor("1")] * (clock.now >= first_s) + [executor("2")] * (clock.now >= others_s)

    module = "sparklog.driver.launcher.spark_engine"
    monkeypatch.setattr(f"{module}.spark_context", lambda _: FakeContext())
    monkeypatch.setattr(f"{module}.active_executors", active)
    monkeypatch.setattr(f"{module}.time", clock)
    engine = SparkEngine(None, "module")
    if gives_up_s is None:
        engine.require_slots(3, 0)
    else:
        with pytest.raises(StartError, match="need 4 task slots"):
            engine.require_slots(3, 0)
        assert clock.now == pytest.approx(gives_up_s, abs=0.5)


class ProbedContext(FakeContext):
    """A context that answers the probe for its executors, and records shipped files."""

    def __init__(self, **answer: Any) -> None:
        super().__init__()
        told = {"version": "3.12.1", "executable": "/opt/python", "host": "h", "missing": []}
        self.answer = {**told, "sparklog": fingerprint(), **answer}
        self.sent: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802
        self.sent.append(Path(path).name)


def prepare(monkeypatch: pytest.MonkeyPatch, context: ProbedContext) -> None:
    class Probe:
        def __init__(self, _: Any, tasks: list[Any], body: Any, barrier: bool, label: Any) -> None:
            assert (len(tasks), barrier) == (1, False)

        def result(self) -> list[bytes]:
            return [json.dumps(context.answer).encode()]

    monkeypatch.setattr("sparklog.driver.launcher.spark_engine.PinnedJob", Probe)
    spark_engine_on(monkeypatch, context, executor("1")).prepare()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"missing": ["numpy", "pyarrow"]}, "lacks numpy, pyarrow"),
        ({"version": "3.9.2"}, "is Python 3.9.2, older than 3.11"),
    ],
)
def test_executors_that_cannot_run_a_broker_are_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], told: str
) -> None:
    with pytest.raises(StartError) as caught:
        prepare(monkeypatch, ProbedContext(**answer))
    assert str(caught.value) == (
        f"the executors' Python (/opt/python on h) {told}; before the Spark session is created (in "
        "a notebook: restart the kernel, then set it in os.environ), set: "
        f"export PYSPARK_PYTHON={sys.executable}"
    )


def test_executors_get_the_code_that_they_lack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    has, lacks = ProbedContext(), ProbedContext(sparklog=None)
    for context in (has, lacks):
        context._temp_dir = str(tmp_path)
        prepare(monkeypatch, context)
    assert (has.sent, lacks.sent) == ([], [f"sparklog-{fingerprint()}.zip"])


def test_payloads_are_not_in_the_log_of_calls_to_the_jvm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    calls = logging.getLogger("py4j.clientserver")
    with unlogged_calls():
        calls.debug("the secret")
        other = threading.Thread(target=calls.debug, args=("another thread's call",))
        other.start()
        other.join()
    calls.debug("a later call")
    # A cluster of another test may make calls meanwhile.
    sent = ("the secret", "another thread's call", "a later call")
    assert [text for text in caplog.messages if text in sent] == list(sent[1:])


def test_spark_s_workers_import_little_of_the_launcher() -> None:
    """They probe and ship sparklog's code: no client, no transport, no hooks at a fork."""
    code = (
        "import sys, sparklog.driver.launcher.python_probe, sparklog.driver.launcher.shipping\n"
        "print(*sorted(name for name in sys.modules if name.startswith('sparklog.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [
        "sparklog.driver",
        "sparklog.driver.launcher",
        "sparklog.driver.launcher.python_probe",
        "sparklog.driver.launcher.shipping",
    ]


def test_every_name_of_the_launcher_loads() -> None:
    assert all(getattr(launcher, name) for name in launcher.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = launcher.no_such_name
