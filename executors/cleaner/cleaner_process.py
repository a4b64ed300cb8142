"""The run of a job: in a child process, or in this process if no other process sees the store.

Owns: the life of the child, and the removal of the files that it leaves.  Must not know which log
is cleaned or why.

The child is short-lived, so that its memory (Arrow, the keys) is not the broker's.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sparklog.errors import CorruptLogError, SparklogError, StorageError
from sparklog.executors.cleaner.job import CleaningJob, CleaningReport
from sparklog.executors.log import remove_cleaned
from sparklog.process import Child, ChildError, describe_end, python_command, start_child
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.blocking import run_blocking

#: Time between two checks whether the child has ended.
POLL_S: Final = 0.1
#: A child without progress for this time hangs, and is killed.
STALLED_S: Final = 600.0
#: The longest wait for the end of a killed child.  The kernel may keep the child longer, during an
#: access to the disk.
END_S: Final = 5.0

COMMAND: Final = tuple(python_command("sparklog.executors.cleaner"))

logger = logging.getLogger(__name__)


class CleaningError(SparklogError):
    """A cleaning has failed, and has left no files; ``kind`` is ``storage``, ``corrupt``, ``died``,
    ``stalled`` or ``other``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["CleaningError"], tuple[str, str]]:
        return (CleaningError, (self.kind, str(self)))


async def run_cleaning(half: FileHalf, job: CleaningJob) -> CleaningReport:
    """Run the job, in a child process if it can open the store.

    When the caller is cancelled, the child is killed.  Raises CleaningError.
    """
    try:
        if half.url.startswith("file:"):
            return await _run_in_child(job)
        return await _run_inline(half, job)
    except BaseException:
        with suppress(StorageError):
            await run_blocking(remove_cleaned, half, job.partition_dir)
        raise


async def _run_inline(half: FileHalf, job: CleaningJob) -> CleaningReport:
    from sparklog.executors.cleaner.rewrite import clean  # imports Arrow

    try:
        return await run_blocking(clean, half, job)
    except CorruptLogError as error:
        raise CleaningError("corrupt", str(error)) from error
    except StorageError as error:
        raise CleaningError("storage", str(error)) from error
    except Exception as error:
        logger.exception("a cleaning failed")
        raise CleaningError("other", f"{type(error).__name__}: {error}") from error


async def _run_in_child(job: CleaningJob) -> CleaningReport:
    starting = asyncio.ensure_future(run_blocking(_start, job))
    try:
        child = await asyncio.shield(starting)
    except ChildError as error:
        raise CleaningError("died", str(error)) from error
    except asyncio.CancelledError:
        with suppress(ChildError):
            await _end(await starting)
        raise
    try:
        return await _report_of(child)
    finally:
        await _end(child)


def _start(job: CleaningJob) -> Child:
    return start_child(COMMAND, json.dumps(job.to_json()))


async def _end(child: Child) -> None:
    if not await asyncio.shield(run_blocking(child.close, END_S)):
        logger.warning("the cleaner's process %d was killed and has not ended yet", child.pid)


async def _report_of(child: Child) -> CleaningReport:
    # A check costs almost nothing; a waiting thread would be missing in the pool all the time.
    now_s = asyncio.get_running_loop().time
    heard_s = now_s()
    lines: list[dict[str, Any]] = []
    while True:
        code = child.poll()
        text = child.read_line(0)
        if text is not None:
            heard_s = now_s()
            line = _read_line(text)
            if "progress" not in line:
                lines.append(line)
            if "report" in line:
                return _read_report(lines)
        elif code is not None:
            raise CleaningError("died", f"the cleaner's process {describe_end(child, code)}")
        elif now_s() - heard_s > STALLED_S:
            raise CleaningError(
                "stalled", f"the cleaner's process told no progress for {STALLED_S:g} s"
            )
        else:
            await asyncio.sleep(POLL_S)


def _read_line(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise CleaningError("other", f"the cleaner's process said {text[:200]!r}")
    if "error" in line:
        raise CleaningError(str(line.get("kind", "other")), str(line["error"]))
    return line


def _read_report(lines: Sequence[Mapping[str, Any]]) -> CleaningReport:
    try:
        return CleaningReport.from_lines(lines)
    except (LookupError, TypeError) as error:
        raise CleaningError("other", f"the cleaner's process said {str(lines)[:200]}") from error
