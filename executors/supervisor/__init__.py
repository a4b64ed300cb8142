"""The supervisor, which runs one broker on an executor.

Owns: the task slot in Spark, the broker's child process, waiting for work, and reports of the
broker's death.  Must not know what the broker does.
"""

from sparklog.executors.supervisor.supervisor import run_task

__all__ = ["run_task"]
