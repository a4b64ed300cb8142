"""The supervisor of one broker.

Owns: the slot in Spark, the broker's child process, waiting for work, and reports of losses.
Must not know what the broker does.
"""

from sparklog.executors.supervisor.supervisor import run_task

__all__ = ["run_task"]
