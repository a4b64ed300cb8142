"""The check of the Python interpreters that Spark starts for a session.

Owns: the check that ``start()`` and ``connect()`` make before they use a classic session, the one
line with the remedy, and the repair of sessions where that is safe.  Must not know brokers.

Spark starts two interpreters, by two settings.  The *workers'* interpreter
(``SparkContext.pythonExec``, from PYSPARK_PYTHON, else ``python3`` of the PATH) runs tasks made by
this driver.  The *planner's* interpreter (PYSPARK_DRIVER_PYTHON of the JVM, else the same) finds
``pyspark_sparklog`` on the driver's host, plans reads and writes with it, and runs their tasks;
where that module cannot be found, Spark says DATA_SOURCE_NOT_FOUND.  A data source that was
registered with a session uses the workers' interpreter instead.

The interpreter of a virtual environment is a link to another interpreter, but has packages of its
own.  Paths therefore tell nothing, and the interpreters themselves are probed.
"""

import inspect
import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from sparklog.driver.launcher import python_probe
from sparklog.driver.launcher.needed_modules import needed_modules
from sparklog.driver.launcher.shipping import fingerprint, write_archive
from sparklog.driver.launcher.spark_internals import (
    as_text,
    is_local,
    session_python,
    set_workers_python,
    temporary_folder,
    workers_python,
)
from sparklog.errors import StartError

log = logging.getLogger(__name__)

PYTHON_MINIMUM: Final = (3, 11)
#: The module in which Spark looks for the data source, and the package that this module imports.
OWN_MODULES: Final = ("pyspark_sparklog", "sparklog")
#: An interpreter that takes longer is assumed to be fine: the machine may be busy.
PROBE_SECONDS_MAX: Final = 20.0
#: The variables (read when the JVM starts) and settings by which users choose an interpreter.
_VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_CONFS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")

#: Interpreters without a problem, by program, PATH and PYTHONPATH.  Failures are not cached,
#: because the user may install what is missing.
_working: Final[dict[tuple[str, str, str], "Interpreter"]] = {}
#: Sessions with the data source registered, and the interpreter that runs it there.
_registered: "Final[WeakKeyDictionary[Any, str]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The result of probing one interpreter of this host.

    ``lacks`` is a text that names the interpreter and what only its user can install; None if it
    lacks nothing.  sparklog itself can be shipped to it.
    """

    name: str
    lacks: str | None
    lacks_sparklog: bool = False
    has_another_sparklog: bool = False

    @property
    def problem(self) -> str | None:
        if self.lacks is None and self.lacks_sparklog:
            return f"{self.name} lacks sparklog"
        return self.lacks


def require_worker_python(spark: Any) -> None:
    """Check that a classic session can run the data source, and repair the session where safe.

    The interpreters on the executors' hosts are not probed here, because that needs a Spark job.
    Nothing is done over Spark Connect, whose server has interpreters of its own.  A session is
    repaired in two cases.  First: only the planner's interpreter has a problem; then the data
    source is registered with the session.  Second: the master is local, the user has chosen no
    interpreter, and Spark's default has a problem; then this process's interpreter becomes the
    workers' interpreter.  sparklog's code is shipped where nothing else is missing.

    Raises:
        StartError: the session cannot run the data source; the message has one line to copy.
    """
    context = _context_of(spark)
    found = None if context is None else session_python(context)
    if found is None:
        return
    planner = probe_interpreter(found.planner, found.path, found.planner_modules)
    if planner.problem is None:
        if planner.has_another_sparklog:
            log.warning(
                "%s has another version of sparklog than this process; install the same in both",
                planner.name,
            )
        return
    workers = probe_interpreter(found.workers, found.path, found.worker_modules)
    if workers.lacks is None:
        _register(spark, context, workers)
        return
    failure = f"Spark cannot run format('sparklog'): {workers.lacks}"
    if not is_local(context) or is_configured(os.environ, _confs(context)):
        raise StartError(f"{failure}; {remedy()}")
    own = probe_interpreter(sys.executable, found.path, found.worker_modules)
    if own.lacks is not None:
        raise StartError(f"{failure}, and {own.lacks}; {remedy()}")
    set_workers_python(context, sys.executable)
    log.info("%s; Spark's workers of this session run %s instead", workers.lacks, sys.executable)
    _register(spark, context, own)


def remedy() -> str:
    """The remedy, which includes a line for a shell."""
    return (
        "before the Spark session is created (in a notebook: restart the kernel, then set it in "
        f"os.environ), set: export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    )


def ship(context: Any) -> None:
    """Ship sparklog's code to every executor, later ones included."""
    # The archive file stays until the application ends.
    context.addPyFile(str(write_archive(temporary_folder(context))))
    log.info("sparklog's code was sent to the executors")


def problem(report: Mapping[str, Any], own: Sequence[str] = ()) -> str | None:
    """A text that names what an interpreter lacks; None if it lacks nothing.

    Args:
        report: the result of ``python_probe.describe_interpreter`` in that interpreter.
        own: modules that are no problem if they alone are missing.
    """
    if tuple(map(int, report["version"].split(".")[:2])) < PYTHON_MINIMUM:
        return f"is Python {report['version']}, older than 3.11"
    if set(report["missing"]) <= set(own):
        return None
    return f"lacks {', '.join(report['missing'])}"


def probe_interpreter(program: str, path: str, modules: str) -> Interpreter:
    """Probe an interpreter of this host.

    Args:
        program: the interpreter.
        path: the PATH that Spark gives it.
        modules: the PYTHONPATH that Spark gives it.
    """
    key = (program, path, modules)
    if key in _working:
        return _working[key]
    try:
        report = _run(program, path, modules)
    except subprocess.TimeoutExpired:
        log.warning("%s did not answer in %.0f s and is not checked", program, PROBE_SECONDS_MAX)
        return Interpreter(name=program, lacks=None)
    except (OSError, ValueError) as error:
        return Interpreter(name=program, lacks=f"{program} cannot be run ({error})")
    executable = report["executable"]
    name = program if program == executable else f"{program} ({executable})"
    missing = problem(report, OWN_MODULES)
    lacks_sparklog = not set(OWN_MODULES).isdisjoint(report["missing"])
    interpreter = Interpreter(
        name=name,
        lacks=missing and f"{name} {missing}",
        lacks_sparklog=lacks_sparklog,
        has_another_sparklog=not lacks_sparklog and report["sparklog"] != fingerprint(),
    )
    if interpreter.problem is None:
        _working[key] = interpreter
    return interpreter


def is_configured(environment: Mapping[str, str], confs: Sequence[str | None]) -> bool:
    """Whether the user chose another interpreter than this process's; that choice must stay."""
    return any(name in environment for name in _VARIABLES) or any(
        conf not in (None, "", sys.executable) for conf in confs
    )


def _run(program: str, path: str, modules: str) -> dict[str, Any]:
    """Describe an interpreter by running the probe in it.

    Raises:
        OSError, ValueError, TimeoutExpired: the interpreter could not be probed.
    """
    names = (*OWN_MODULES, *needed_modules())
    script = (
        f"{inspect.getsource(python_probe)}\nimport json\n"
        f"print(json.dumps(describe_interpreter({names!r})))"
    )
    done = subprocess.run(
        [program, "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": modules},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_SECONDS_MAX,
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0 or not last.startswith("{"):
        said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ValueError(f"exit code {done.returncode}: {said[:200]}")
    report: dict[str, Any] = json.loads(last)
    return report


def _context_of(spark: Any) -> Any:
    """The session's SparkContext; None over Spark Connect."""
    try:
        return spark.sparkContext
    except Exception as error:
        log.debug("the interpreters of this session are not looked at: %s", error)
        return None


def _confs(context: Any) -> list[str | None]:
    conf = context.getConf()
    return [conf.get(name, None) for name in _CONFS]


def _register(spark: Any, context: Any, workers: Interpreter) -> None:
    """Register the data source with this session, so that the workers' interpreter runs it."""
    from pyspark_sparklog import DefaultSource

    sent = workers.lacks_sparklog or workers.has_another_sparklog
    if _registered.get(spark) == workers_python(context) and not sent:
        return  # Spark warns of a source that is registered again
    if sent:
        ship(context)
    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:
        raise StartError(
            f"Spark does not take format('sparklog') ({as_text(error)}); {remedy()}"
        ) from error
    _registered[spark] = workers_python(context)
