"""``python -m sparklog.executors.cleaner``: one cleaning of one log as a process.

The process reads one JSON line (``CleaningJob``) from stdin, and writes JSON lines to stdout:
``{"progress": bytes}`` about every second, and at the end the lines of the report, ``{"group":
{...}}`` and ``{"report": {...}}``, or ``{"error": "...", "kind": "storage" | "corrupt" |
"other"}``.  It logs to stderr and dies with the broker.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.cleaner.job import CleaningJob
from sparklog.executors.cleaner.progress import Progress
from sparklog.process import die_with_parent
from sparklog.rate_throttle import RateThrottle
from sparklog.storage_backends.registry import open_file_half

#: The niceness, from which the kernel derives the priority of disk accesses too.  On a busy core, a
#: process at 10 still gets a tenth of what a broker gets.  At 19 it gets a hundredth: logs would
#: become dirty faster than they are cleaned.
_NICE = 10

logger = logging.getLogger("sparklog.executors.cleaner")


def main() -> int:
    die_with_parent()
    with suppress(OSError):
        os.nice(_NICE)
    # Arrow's own pools keep memory that was freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    lines = _clean(sys.stdin.readline())
    for line in lines:
        _write(line)
    return 0 if "report" in lines[-1] else 1


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _clean(line: str) -> list[dict[str, Any]]:
    """Do the job; return the last lines of the output."""
    # This imports Arrow, which reads the environment then.
    from sparklog.executors.cleaner.rewrite import clean

    try:
        job = CleaningJob.from_json(json.loads(line))
        progress = Progress(
            lambda size: _write({"progress": size}), clock_s=time.monotonic, sleep_s=time.sleep
        )
        throttle = RateThrottle(
            job.io_max_bytes_per_second, clock_s=time.monotonic, sleep_s=progress.sleep
        )

        def moved(size: int) -> None:
            progress.add(size)
            throttle(size)

        report = clean(open_file_half(job.url), job, moved)
    except CorruptLogError as error:
        return [{"error": str(error), "kind": "corrupt"}]
    except StorageError as error:
        return [{"error": str(error), "kind": "storage"}]
    except Exception as error:
        logger.exception("a cleaning failed")
        return [{"error": f"{type(error).__name__}: {error}", "kind": "other"}]
    return list(report.to_lines())


if __name__ == "__main__":
    sys.exit(main())
