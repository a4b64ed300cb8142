"""The interpreters that Spark starts are probed; a session is repaired or refused."""

import ast
import inspect
import logging
import os
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.driver.launcher import python_probe, worker_python
from sparklog.driver.launcher.shipping import fingerprint
from sparklog.driver.launcher.worker_python import probe_interpreter, problem, require_worker_python
from sparklog.errors import StartError

OWN = sys.executable
LACKS = "lacks pyspark_sparklog, sparklog, crc32c, fsspec, numpy, pyarrow, pyspark"
LINE = f"export PYSPARK_PYTHON={OWN}"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use another working folder, whose modules interpreters would find, and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_python, "_working", {})
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter without packages."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python3")


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with everything except sparklog: ``.pth`` files are not read in a folder that
    another ``.pth`` file names."""
    folder = tmp_path_factory.mktemp("dependencies")
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


def program(folder: Path, script: str) -> str:
    """An executable that is not a Python interpreter."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def lacking(program: str, path: str = os.defpath) -> str | None:
    return probe_interpreter(program, path, "").problem


# one interpreter


def test_this_interpreter_has_everything() -> None:
    assert lacking(OWN) is None


def test_a_link_to_the_same_interpreter_is_another_environment(empty: str) -> None:
    assert Path(empty).resolve() == Path(OWN).resolve()
    assert lacking(empty) == f"{empty} {LACKS}"


def test_a_name_is_looked_up_in_sparks_path(empty: str) -> None:
    """The message names the program that was found."""
    assert lacking("python3", str(Path(empty).parent)) == f"python3 ({empty}) {LACKS}"


def test_an_interpreter_that_cannot_run_is_named(tmp_path: Path) -> None:
    broken = program(tmp_path, "echo no licence >&2; exit 3")
    assert lacking(broken) == f"{broken} cannot be run (exit code 3: no licence)"
    silent = program(tmp_path, "exit 0")
    assert lacking(silent) == f"{silent} cannot be run (exit code 0: it printed nothing)"
    absent = str(tmp_path / "absent")
    assert str(lacking(absent)).startswith(f"{absent} cannot be run ([Errno 2]")


def test_an_interpreter_that_does_not_answer_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_python, "PROBE_SECONDS_MAX", 0.2)
    slow = program(tmp_path, "exec sleep 60")
    assert lacking(slow) is None
    assert caplog.messages == [f"{slow} did not answer in 0 s and is not checked"]


def test_success_is_kept_and_failure_is_not(tmp_path: Path, empty: str) -> None:
    """The user may install what is missing and try again."""
    path = tmp_path / "python"
    path.symlink_to("/bin/false")
    assert lacking(str(path)) is not None
    path.unlink()
    path.write_text(f'#!/bin/sh\nexec {empty} "$@"\n')
    path.chmod(0o755)
    assert lacking(str(path)) is not None
    path.write_text(f'#!/bin/sh\nexec {OWN} "$@"\n')
    path.chmod(0o755)
    assert lacking(str(path)) is None
    path.unlink()
    assert lacking(str(path)) is None


def test_old_interpreters_can_tell_their_version() -> None:
    ast.parse(inspect.getsource(python_probe), feature_version=(3, 8))
    assert problem({"version": "3.9.21", "missing": ["numpy"]}) == (
        "is Python 3.9.21, older than 3.11"
    )
    assert problem({"version": "3.11.0rc1", "missing": []}) is None


# sessions


@dataclass(eq=False)  # sessions are not compared
class Session:
    """The parts of a classic session that the check uses."""

    workers: str
    planner: str
    master: str = "local[4]"
    conf: dict[str, str] = field(default_factory=dict)
    path: str = os.defpath
    registered: list[str] = field(default_factory=list)

    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        utils: Any = SimpleNamespace(
            defaultPythonExec=lambda: self.planner, sparkPythonPath=lambda: ""
        )
        python = SimpleNamespace(**{"PythonUtils$": SimpleNamespace(**{"MODULE$": utils})})
        spark = SimpleNamespace(api=SimpleNamespace(python=python))
        system = SimpleNamespace(getenv={"PATH": self.path}.get)
        self.sparkContext = SimpleNamespace(
            master=self.master,
            pythonExec=self.workers,
            getConf=lambda: self.conf,
            _python_includes=[],
            _temp_dir=os.getcwd(),
            addPyFile=lambda file: self.sent.append(Path(file).name),
            _jvm=SimpleNamespace(
                org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
                java=SimpleNamespace(lang=SimpleNamespace(System=system)),
            ),
        )
        self.dataSource = SimpleNamespace(register=lambda kind: self.registered.append(kind.name()))

    @property
    def outcome(self) -> tuple[str, list[str]]:
        return self.sparkContext.pythonExec, self.registered


def default_session(empty: str, **more: Any) -> Session:
    """The user has chosen no interpreter, and that of the PATH has no packages."""
    return Session("python3", "python3", path=str(Path(empty).parent), **more)


def test_a_session_whose_interpreters_serve_is_left_alone() -> None:
    session = Session(OWN, OWN)
    require_worker_python(session)
    assert session.outcome == (OWN, [])


def test_a_local_session_without_settings_runs_this_interpreter(
    empty: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = default_session(empty, conf={"spark.pyspark.python": OWN})
    with caplog.at_level(logging.INFO):
        require_worker_python(session)
    assert session.outcome == (OWN, ["sparklog"])
    assert caplog.messages == [
        f"python3 ({empty}) {LACKS}; Spark's workers of this session run {OWN} instead"
    ]


def test_another_version_of_sparklog_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_python, "fingerprint", lambda: "another")
    require_worker_python(Session(OWN, OWN))
    assert caplog.messages == [
        f"{OWN} has another version of sparklog than this process; install the same in both"
    ]


def test_sparklog_is_sent_to_workers_that_have_all_the_rest(dependencies: str) -> None:
    assert lacking(dependencies) == f"{dependencies} lacks sparklog"
    for master in ("local[4]", "spark://host:7077"):
        session = Session(dependencies, dependencies, master=master)
        require_worker_python(session)
        assert session.outcome == (dependencies, ["sparklog"])
        assert session.sent == [f"sparklog-{fingerprint()}.zip"]


def test_workers_that_serve_run_the_source_when_the_planner_does_not() -> None:
    """This happens if PYSPARK_DRIVER_PYTHON=jupyter started the notebook."""
    for master in ("local[4]", "spark://host:7077"):
        session = Session(OWN, "no-such-jupyter", master=master)
        require_worker_python(session)
        require_worker_python(session)  # a second cluster
        assert session.outcome == (OWN, ["sparklog"])


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_what_the_environment_says_is_not_undone(
    empty: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, empty)
    check_refused(default_session(empty))


def test_what_the_configuration_says_is_not_undone(empty: str) -> None:
    check_refused(default_session(empty, conf={"spark.pyspark.python": empty}))


def test_remote_executors_do_not_get_the_drivers_path(empty: str) -> None:
    check_refused(default_session(empty, master="spark://host:7077"))


def check_refused(session: Session) -> None:
    with pytest.raises(StartError) as caught:
        require_worker_python(session)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("Spark cannot run format('sparklog'): python3 (")
    assert str(caught.value).endswith(f", set: {LINE}")
    assert session.outcome == ("python3", [])


def test_this_interpreter_must_find_sparklog_by_itself(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a program adds sparklog to ``sys.path``, Spark's workers do not know of it."""
    monkeypatch.setattr(sys, "executable", empty)
    session = Session("python3", "python3", path="/nowhere")
    with pytest.raises(StartError, match=f"python3 cannot be run .*, and {empty} {LACKS}; before"):
        require_worker_python(session)
    assert session.outcome == ("python3", [])


def test_a_source_that_spark_does_not_take_is_an_error_with_the_remedy() -> None:
    session = Session(OWN, "no-such-jupyter")

    def refuse(_: Any) -> None:
        raise RuntimeError("not today")

    session.dataSource = SimpleNamespace(register=refuse)
    with pytest.raises(StartError, match=rf"does not take .* \(not today\); .* {LINE}"):
        require_worker_python(session)


def test_sessions_without_a_jvm_are_not_looked_at() -> None:
    class Connect:
        @property
        def sparkContext(self) -> Any:  # noqa: N802
            raise RuntimeError("JVM_ATTRIBUTE_NOT_SUPPORTED")

    require_worker_python(Connect())
    require_worker_python(SimpleNamespace(sparkContext=SimpleNamespace()))
