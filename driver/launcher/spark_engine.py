"""The engine that runs each supervisor as a barrier job of one task, pinned to an executor.

Owns: the checks before the first job (slots, dynamic allocation, the executors' Python) and the
jobs themselves.  Must not know what a supervisor does.
"""

import inspect
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparklog.driver.launcher import python_probe
from sparklog.driver.launcher.engines import Job, JobLost
from sparklog.driver.launcher.needed_modules import needed_modules
from sparklog.driver.launcher.shipping import fingerprint
from sparklog.driver.launcher.spark_internals import (
    ExecutorSlots,
    JobLabel,
    PinnedJob,
    active_executors,
    as_text,
    cancel_other_jobs,
    is_local,
    is_stopped,
)
from sparklog.driver.launcher.worker_python import problem, remedy, ship
from sparklog.errors import StartError
from sparklog.plurals import counted

#: How long a cluster manager may take to provide the executors that were requested, in seconds.
EXECUTORS_SECONDS_MAX = 30.0
#: And while there is none: the application itself has just been started.
FIRST_EXECUTOR_SECONDS_MAX = 120.0


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
    """Runs each supervisor as a barrier job of its own, because Spark fails a job as a whole.

    Args:
        spark: a classic Spark session.
        module: the module whose ``run_task`` is the body of a supervisor's task.
        executors_seconds: how long to wait for missing slots; None for the default, which is 0
            in local mode, and longer while there is no executor at all.

    Raises:
        StartError: the session is Spark Connect, or has been stopped.
    """

    def __init__(self, spark: Any, module: str, executors_seconds: float | None = None) -> None:
        self._context = spark_context(spark)
        self._module = module
        if executors_seconds is None and is_local(self._context):
            executors_seconds = 0.0
        patience = (EXECUTORS_SECONDS_MAX, FIRST_EXECUTOR_SECONDS_MAX)
        if executors_seconds is not None:
            patience = (executors_seconds, executors_seconds)
        self._executors_seconds, self._first_seconds = patience
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
            body = supervisor_task(self._module)
            tasks = [(payload, job.executor)]
            label = self._label(job.name, job.title or job.name, job.purpose)
            running = PinnedJob(self._context, tasks, body, barrier=True, label=label)
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
        wanted = brokers + spares + 1  # one slot is left for queries
        began = time.monotonic()
        while (found := sum(executor.slots for executor in self.executors())) < wanted:
            patience = self._executors_seconds if found else self._first_seconds
            if time.monotonic() - began >= patience:
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
        """Probe every executor's Python, and ship sparklog's code where it is missing."""
        executors = self.executors()
        tasks: list[tuple[bytes, ExecutorSlots | None]] = [(b"", each) for each in executors]
        label = self._label("probe", "looks at the executors' Python", "before brokers start there")
        try:
            body = probe_task(needed_modules())
            probe = PinnedJob(self._context, tasks, body, barrier=False, label=label)
            answers = [json.loads(answer) for answer in probe.result()]
        except Exception as error:
            raise StartError(
                f"the executors cannot run Python tasks: {as_text(error)}; {remedy()}"
            ) from error
        for answer in answers:
            _check_python(answer)
        if any(answer["sparklog"] != fingerprint() for answer in answers):
            ship(self._context)

    def _label(self, group: str, title: str, purpose: str) -> JobLabel:
        name = f"sparklog {title}"
        description = f"{name}: {purpose}" if purpose else name
        return JobLabel(group=f"{self._prefix}-{group}", name=name, description=description)


def _too_few_slots(brokers: int, spares: int, wanted: int, found: int, master: str) -> str:
    remedy = (
        f'use a master such as "local[{wanted}]"'
        if master.startswith("local") and "cluster" not in master
        else "give the application more executors or cores"
    )
    who = counted(brokers, "broker") + (f" and {counted(spares, 'spare')}" if spares else "")
    needs = "needs" if brokers + spares == 1 else "need"
    return (
        f"{who} {needs} {wanted} task slots (one stays free for queries), "
        f"but {master} has {found}; {remedy}, or start fewer brokers"
    )


def _check_python(answer: dict[str, Any]) -> None:
    found = problem(answer)
    if found is not None:
        raise StartError(
            f"the executors' Python ({answer['executable']} on {answer['host']}) {found}; "
            f"{remedy()}"
        )


# The inner functions below run on executors, which may not have this module yet.  Local functions
# are pickled by value, and they import what they need themselves.


def supervisor_task(module: str) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Make a task that hands its payloads to ``run_task`` of a module."""

    def task(payloads: Iterator[bytes]) -> Iterator[bytes]:
        from importlib import import_module

        answers: Iterator[bytes] = import_module(module).run_task(payloads)
        return answers

    return task


def probe_task(needed: Sequence[str]) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Make a task that returns ``python_probe.describe_interpreter`` as JSON."""
    source = inspect.getsource(python_probe)

    def task(payloads: Iterator[bytes]) -> Iterator[bytes]:
        import json

        probe: dict[str, Any] = {}
        exec(source, probe)
        answer = json.dumps(probe["describe_interpreter"](needed)).encode()
        for _ in payloads:
            yield answer

    return task
