"""The names of a commit log's files, and the numbers in them.

Owns: the mapping between names and commit numbers.  Must not know where files are kept.
"""

import re
from collections.abc import Iterable

_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(r"checkpoint-(\d{20})\.json", re.ASCII)


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"checkpoint-{version:020d}.json"


def commit_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the commits among the names of files, sorted."""
    return _numbers(_COMMIT, names)


def checkpoint_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the checkpoints among the names of files, sorted."""
    return _numbers(_CHECKPOINT, names)


def is_commit_log_file(name: str) -> bool:
    """Whether this is the name of a commit or a checkpoint."""
    return bool(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name))


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := pattern.fullmatch(name)))
