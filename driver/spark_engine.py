"""Supervisors as barrier jobs of one task each, pinned to executors.

Owns: the checks before the first job (slots, dynamic allocation, the executors' Python) and the
jobs themselves.  Must not know what a supervisor does.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparklog.driver.engines import Job, JobLost
from sparklog.driver.shipping import fingerprint, write_archive
from sparklog.driver.spark_jobs import (
    ExecutorSlots,
    PinnedJob,
    active_executors,
    as_text,
    cancel_other_jobs,
    is_local,
    is_stopped,
    temporary_folder,
)
from sparklog.errors import StartError

log = logging.getLogger(__name__)

#: Modules that a broker or a reader imports on an executor.
NEEDED_MODULES = ("crc32c", "fsspec", "kio", "numpy", "pandas", "pyarrow")
PYTHON_MINIMUM = (3, 11)
#: What setJobGroup sets for the caller's thread.
_JOB_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
#: Time for a cluster manager to hand out the executors that were asked for.
EXECUTORS_SECONDS_MAX = 30.0


def spark_context(spark: Any) -> Any:
    """The SparkContext of a classic session.  Raises StartError for Spark Connect."""
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    context = None if remote else getattr(spark, "sparkContext", None)
    if context is None:
        raise StartError(
            "start() needs a classic Spark session with a SparkContext, and this one is Spark "
            "Connect; start the cluster where the driver runs and use sparklog.connect() here"
        )
    if is_stopped(context):
        raise StartError("this Spark session has been stopped; make a new one")
    return context


class SparkEngine:
    """Runs each supervisor as its own one-task barrier job, because jobs fail as a whole."""

    def __init__(self, spark: Any, module: str, executors_seconds: float | None = None) -> None:
        self._context = spark_context(spark)
        self._module = module
        local = is_local(self._context)
        patience = 0.0 if local else EXECUTORS_SECONDS_MAX
        self._executors_seconds = patience if executors_seconds is None else executors_seconds
        self._prefix = f"sparklog-{uuid.uuid4().hex[:8]}"
        self._lock = threading.Lock()
        self._running: dict[str, PinnedJob] = {}

    def prepare(self) -> None:
        self._require_python()

    def executors(self) -> tuple[ExecutorSlots, ...]:
        return active_executors(self._context)

    def run(self, job: Job) -> dict[str, Any]:
        payload = json.dumps(job.payload).encode()
        try:
            self._context.setJobGroup(f"{self._prefix}-{job.name}", f"sparklog {job.name}")
            body = supervisor_task(self._module)
            running = PinnedJob(self._context, [(payload, job.executor)], body, barrier=True)
            with self._lock:
                self._running[job.name] = running
            report = json.loads(running.result()[0])
        except Exception as error:
            raise JobLost(as_text(error)) from error
        finally:
            with self._lock:
                self._running.pop(job.name, None)
        assert isinstance(report, dict)
        return report

    def cancel(self, name: str) -> None:
        with self._lock:
            running = self._running.get(name)
        if running is not None and not self.is_over():
            running.cancel()

    def is_over(self) -> bool:
        return is_stopped(self._context)

    def cancel_queries(self) -> None:
        if not self.is_over():
            with self._lock:
                own = {job_id for job in self._running.values() for job_id in job.job_ids}
            cancel_other_jobs(self._context, own)

    def close(self) -> None:
        with self._lock:
            names = list(self._running)
        for name in names:
            self.cancel(name)

    def require_slots(self, brokers: int, spares: int) -> None:
        self._require_static_allocation()
        wanted = brokers + spares + 1  # one is left for queries
        end = time.monotonic() + self._executors_seconds
        while (found := sum(executor.slots for executor in self.executors())) < wanted:
            if time.monotonic() >= end:
                raise StartError(
                    _too_few_slots(brokers, spares, wanted, found, self._context.master)
                )
            time.sleep(0.2)

    def _require_static_allocation(self) -> None:
        if self._context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
            raise StartError(
                "brokers need executors that stay, and dynamic allocation is on; set "
                "spark.dynamicAllocation.enabled=false before the session is created"
            )

    def _require_python(self) -> None:
        """Ask every executor for its Python, and send our code where it is missing."""
        executors = self.executors()
        tasks: list[tuple[bytes, ExecutorSlots | None]] = [(b"", each) for each in executors]
        before = {name: self._context.getLocalProperty(name) for name in _JOB_PROPERTIES}
        self._context.setJobGroup(f"{self._prefix}-probe", "sparklog looks at the executors")
        try:
            body = probe_task(NEEDED_MODULES)
            probe = PinnedJob(self._context, tasks, body, barrier=False)
            answers = [json.loads(answer) for answer in probe.result()]
        except Exception as error:
            raise StartError(f"the executors cannot run Python tasks: {as_text(error)}") from error
        finally:
            for name, value in before.items():
                self._context.setLocalProperty(name, value)
        for answer in answers:
            _check_python(answer)
        if any(answer["sparklog"] != fingerprint() for answer in answers):
            self._ship()

    def _ship(self) -> None:
        # Executors fetch it whenever they come, so it stays until the application ends.
        self._context.addPyFile(str(write_archive(temporary_folder(self._context))))
        log.info("sparklog's code was sent to the executors")


def _too_few_slots(brokers: int, spares: int, wanted: int, found: int, master: str) -> str:
    remedy = (
        f'use a master such as "local[{wanted}]"'
        if master.startswith("local") and "cluster" not in master
        else "give the application more executors or cores"
    )
    who = f"{brokers} brokers and {spares} spares" if spares else f"{brokers} brokers"
    return (
        f"{who} need {wanted} task slots (one stays free for queries), "
        f"but {master} has {found}; {remedy}, or start fewer brokers"
    )


def _check_python(answer: dict[str, Any]) -> None:
    remedy = "set PYSPARK_PYTHON to a Python that has sparklog's dependencies before the session"
    where = (
        f"the executors' Python ({answer['executable']} on {answer['host']}, {answer['version']})"
    )
    if tuple(map(int, answer["version"].split(".")[:2])) < PYTHON_MINIMUM:
        raise StartError(f"{where} is older than 3.11; {remedy}")
    if answer["missing"]:
        raise StartError(f"{where} lacks {', '.join(answer['missing'])}; {remedy}")


# The functions below run on executors, which may not have this module yet: they are local
# functions so that they travel by value, and import what they need themselves.


def supervisor_task(module: str) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """A task that hands its payloads to ``run_task`` of a module."""

    def task(payloads: Iterator[bytes]) -> Iterator[bytes]:
        from importlib import import_module

        answers: Iterator[bytes] = import_module(module).run_task(payloads)
        return answers

    return task


def probe_task(needed: Sequence[str]) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """A task that tells about its Python: version, missing modules, sparklog's fingerprint."""

    def task(payloads: Iterator[bytes]) -> Iterator[bytes]:
        import json
        import platform
        import sys
        from importlib.util import find_spec

        before = set(sys.modules)
        try:
            from sparklog.driver.shipping import fingerprint

            found = fingerprint()
        except Exception:
            found = None
        # This worker may be used again, after another version was sent.
        for name in [name for name in sys.modules if name.partition(".")[0] == "sparklog"]:
            if name not in before:
                del sys.modules[name]
        answer = {
            "version": platform.python_version(),
            "executable": sys.executable,
            "host": platform.node(),
            "missing": [name for name in needed if find_spec(name) is None],
            "sparklog": found,
        }
        for _ in payloads:
            yield json.dumps(answer).encode()

    return task
