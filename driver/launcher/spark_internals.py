"""The launcher's only access to Spark's internals: executors, pinned tasks, jobs and interpreters.

Owns: every call of the launcher that goes through the py4j gateway into Spark's Scala classes or
reads a private attribute of PySpark.  Must not know what a task does.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
#: Spark's name for the driver in its list of executors.
DRIVER_ID = "driver"

Task = Callable[[Iterator[bytes]], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLabel:
    """The texts that Spark's UI shows for a job.

    ``group`` is the job group, by which the job is cancelled.  ``name`` stands where Spark would
    show the line of code that submitted the job.  ``description`` explains the job.
    """

    group: str
    name: str
    description: str

    def local_properties(self) -> dict[str, str | None]:
        """The local properties that the submitting thread needs for this label."""
        return {
            "spark.jobGroup.id": self.group,
            "spark.job.description": self.description,
            "spark.job.interruptOnCancel": "false",
            "spark.job.tags": None,  # the thread's own tags belong to queries
            "callSite.short": self.name,
            "callSite.long": self.description,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSlots:
    """An executor, its host, and the number of tasks that it runs at the same time."""

    executor_id: str
    host: str
    slots: int


def is_local(context: Any) -> bool:
    """Whether tasks run as threads of the driver's JVM (``local``, ``local[N]``, ...)."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def active_executors(context: Any) -> tuple[ExecutorSlots, ...]:
    """The executors that take tasks now, sorted by id."""
    listed = context._jsc.sc().statusStore().executorList(True)
    summaries = [listed.apply(index) for index in range(listed.size())]
    local = is_local(context)
    found = [
        ExecutorSlots(
            executor_id=summary.id(),
            host=str(summary.hostPort()).rpartition(":")[0],
            slots=summary.maxTasks(),
        )
        for summary in summaries
        if summary.isActive() and (summary.id() == DRIVER_ID) == local
    ]
    # Spark lists a new executor a moment before its address is known.
    known = [executor for executor in found if executor.host]
    return tuple(sorted(known, key=lambda executor: executor.executor_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPython:
    """The Python interpreters of a session: the programs, their PATH, and their PYTHONPATHs."""

    workers: str
    planner: str
    path: str
    planner_modules: str
    worker_modules: str


def session_python(context: Any) -> SessionPython | None:
    """The interpreters that Spark starts for a session.

    Returns None for a version of Spark that does not expose them.
    """
    try:
        jvm = context._jvm
        utils = getattr(getattr(jvm.org.apache.spark.api.python, "PythonUtils$"), "MODULE$")
        getenv = jvm.java.lang.System.getenv
        inherited = getenv("PYTHONPATH") or ""
        spark_modules = utils.sparkPythonPath()
        return SessionPython(
            workers=workers_python(context),
            planner=utils.defaultPythonExec(),
            path=getenv("PATH") or os.defpath,
            planner_modules=_search_path(spark_modules, inherited),
            worker_modules=_search_path(*_included_files(context), spark_modules, inherited),
        )
    except Exception as error:
        log.debug("the interpreters of this session are not looked at: %s", error)
        return None


def workers_python(context: Any) -> str:
    """The interpreter that runs the tasks which this driver makes."""
    program: str = context.pythonExec
    return program


def set_workers_python(context: Any, program: str) -> None:
    context.pythonExec = program


def _included_files(context: Any) -> list[str]:
    """The files that ``addPyFile`` sends along with tasks."""
    names = context._python_includes or ()
    if not names:
        return []
    from pyspark import SparkFiles

    return [os.path.join(SparkFiles.getRootDirectory(), name) for name in names]


def _search_path(*paths: str) -> str:
    return os.pathsep.join(path for path in paths if path)


def temporary_folder(context: Any) -> Path:
    """A folder on the driver's host that lives as long as the Spark application."""
    return Path(context._temp_dir)


class PinnedJob:
    """A job with one task per payload, each pinned to an executor (None: any executor).

    Spark tries the wanted executor for ``spark.locality.wait``, then takes any other.  The job is
    submitted and then polled; no call waits for it inside the JVM.  The reason: after a Ctrl-C py4j
    closes the connections of all threads and sends their calls once more, and a repeated call that
    both submits and waits would submit a second job.
    """

    def __init__(
        self,
        context: Any,
        tasks: Sequence[tuple[bytes, ExecutorSlots | None]],
        body: Task,
        barrier: bool,
        label: JobLabel,
    ) -> None:
        """Submit the job.  The thread's own job group, description and call site are restored."""
        with local_properties(context, label.local_properties()):
            self._future = _submit(context, tasks, body, barrier)
        self.job_ids = frozenset(self._future.jobIds())

    def result(self) -> list[bytes]:
        """Wait for the tasks' results, in the order of the tasks.  Raises Spark's error."""
        while not self._future.isDone():
            time.sleep(POLL_SECONDS)
        return [bytes(answer) for answer in self._future.get()]

    def cancel(self) -> None:
        self._future.cancel(True)


def _submit(
    context: Any,
    tasks: Sequence[tuple[bytes, ExecutorSlots | None]],
    body: Task,
    barrier: bool,
) -> Any:
    """Submit a job of these tasks and return its future."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    jvm = context._jvm
    bytes_tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    to_seq = jvm.PythonUtils.toSeq
    with unlogged_calls():
        rows = [jvm.scala.Tuple2(data, to_seq(_preferred(where))) for data, where in tasks]
    rdd = context._jsc.sc().makeRDD(to_seq(rows), bytes_tag)
    java_rdd = jvm.org.apache.spark.api.java.JavaRDD(rdd, bytes_tag)
    source: Any = RDD(java_rdd, context, NoOpSerializer())
    mapped = source.barrier().mapPartitions(body) if barrier else source.mapPartitions(body)
    mapped._jrdd_deserializer = NoOpSerializer()  # results are bytes already
    return mapped._jrdd.collectAsync()


@contextmanager
def local_properties(context: Any, values: Mapping[str, str | None]) -> Iterator[None]:
    """Set local properties of the calling thread, and restore the old values; None unsets one."""
    before = {name: context.getLocalProperty(name) for name in values}
    try:
        for name, value in values.items():
            context.setLocalProperty(name, value)
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


@contextmanager
def unlogged_calls() -> Iterator[None]:
    """Suppress py4j's DEBUG logs of calls and arguments: payloads hold the cluster secret."""
    thread = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [logging.getLogger(f"py4j.{name}") for name in ("clientserver", "java_gateway")]
    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)


def _preferred(where: ExecutorSlots | None) -> list[str]:
    return [] if where is None else [f"executor_{where.host}_{where.executor_id}"]


def abandon_call(frame: FrameType | None) -> None:
    """Close the py4j connection of the call to the JVM that runs in ``frame``, if there is one.

    This must happen before an exception is raised into the call.  Otherwise py4j asks the JVM to
    close that connection, and the JVM then closes the connections of all threads, new ones
    included.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") == "py4j.java_gateway":
            connection = frame.f_locals.get("connection")
            if frame.f_code.co_name == "send_command" and connection is not None:
                connection.close()
                return
        frame = frame.f_back


def is_stopped(context: Any) -> bool:
    """Whether the Spark application has ended."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM itself is gone
        return True


def cancel_other_jobs(context: Any, own: Set[int]) -> None:
    """Cancel every active job except those with the ids ``own``."""
    scala = context._jsc.sc()
    for job_id in scala.statusTracker().getActiveJobIds():
        if job_id not in own:
            scala.cancelJob(job_id)


def as_text(error: BaseException) -> str:
    """The reason for a failed job, without the JVM's and Python's stack traces."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        # The exception of a Java future only wraps its cause.
        java = java.getCause() or java
    text = str(java.getMessage() if java is not None else error)
    # The exception of a Python worker stands at the end of its traceback.
    _, found, own = text.partition("SupervisorError: ")
    if found:
        return own.partition("SQLSTATE:")[0].partition("\n\nDriver stacktrace")[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Spark writes the cause of a failed barrier stage on the next line.
    reason = " ".join(lines[:2] if "Most recent failure reason" in lines[0] else lines[:1])
    return reason if len(reason) < 600 else reason[:600] + " ..."
