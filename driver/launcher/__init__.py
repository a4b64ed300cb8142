"""The code in the Spark driver that starts a cluster and keeps all of its brokers running.

Owns: engines, Spark jobs, the fleet of brokers, spare supervisors, the allocation of executor
slots, and the control plane's child process.  Must not know how the control plane or a broker works
inside.

The names of this package load on first use (PEP 562), because Spark's Python workers import only
the modules that ship and probe sparklog's code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.driver.launcher.engines import Engine, ProcessEngine
    from sparklog.driver.launcher.java import require_java
    from sparklog.driver.launcher.launcher import Launcher, LaunchOptions
    from sparklog.driver.launcher.member_calls import ClusterMemberCalls
    from sparklog.driver.launcher.racks import Racks
    from sparklog.driver.launcher.sigint import SigintGuard
    from sparklog.driver.launcher.spark_engine import SparkEngine, spark_context
    from sparklog.driver.launcher.spark_internals import is_stopped
    from sparklog.driver.launcher.worker_python import require_worker_python

__all__ = [
    "ClusterMemberCalls",
    "Engine",
    "LaunchOptions",
    "Launcher",
    "ProcessEngine",
    "Racks",
    "SigintGuard",
    "SparkEngine",
    "is_stopped",
    "require_java",
    "require_worker_python",
    "spark_context",
]

_HOME = {
    "ClusterMemberCalls": "member_calls",
    "Engine": "engines",
    "LaunchOptions": "launcher",
    "Launcher": "launcher",
    "ProcessEngine": "engines",
    "Racks": "racks",
    "SigintGuard": "sigint",
    "SparkEngine": "spark_engine",
    "is_stopped": "spark_internals",
    "require_java": "java",
    "require_worker_python": "worker_python",
    "spark_context": "spark_engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
