"""``python -m tests.support.prepare``: everything that tests build or fetch once, while lint runs.

Owns: what that is, and that it goes side by side.  Must not know how it is built or fetched, nor
that anything is needed: what fails here is tried again by the tests that need it, and told by them.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.clients.go_member import go_program
from tests.support.kafka_jars import JAR_SETS, JarsUnavailableError, jars_of
from tests.support.s3_server import S3Missing, require_binary


def _build() -> None:
    """With Go, one after the other, because each build takes all cores."""
    require_binary()
    go_program()


def _fetch() -> None:
    """With Maven, of which only one may run."""
    for wanted in JAR_SETS:
        jars_of(wanted)


_STEPS: Final[tuple[Callable[[], None], ...]] = (_build, _fetch)
_MISSING: Final = (S3Missing, JarsUnavailableError, AssertionError, pytest.skip.Exception)


def prepare() -> list[str]:
    """Take all steps beside each other; the reasons of those that failed."""
    reasons: list[str] = []

    def take(step: Callable[[], None]) -> None:
        try:
            step()
        except _MISSING as error:
            reasons.append(str(error))

    with ThreadPoolExecutor(len(_STEPS)) as threads:
        list(threads.map(take, _STEPS))
    return reasons


if __name__ == "__main__":
    for reason in prepare():
        print(f"not prepared: {reason}", file=sys.stderr)
