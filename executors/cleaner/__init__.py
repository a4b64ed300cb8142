"""Compaction: which logs to clean, and the rewrite of their segments in a child process.

Owns: the choice of the next log, the plan of a cleaning, the child process, its throttle, and the
partitions that cannot be cleaned.  Must not know requests, roles or how a log swaps its segments.
"""

from sparklog.executors.cleaner.log_cleaner import LogCleaner

__all__ = ["LogCleaner"]
