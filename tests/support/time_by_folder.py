"""Where the time of a run of many tests goes: seconds by folder, at its end.

Owns: the sums.  Must not know which tests run.  CI has a limit (``tests/support/sampling.py``), and
these lines tell which folder to sample more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import Protocol

#: Runs of fewer tests do not ask where their time went.
TESTS_MIN = 200
#: Folders below ``tests`` count with so many levels.
LEVELS = 3


class Report(Protocol):
    """A phase of a test (``pytest.TestReport``): setup, call or teardown."""

    nodeid: str
    when: str
    duration: float


def time_by_folder(reports: Iterable[Report]) -> list[str]:
    """A line for each folder, the longest first; none for a run of few tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for report in reports:
        folder = "/".join(report.nodeid.partition("::")[0].split("/")[:-1][:LEVELS])
        seconds[folder] += report.duration
        tests[folder] += report.when == "call"
    if tests.total() < TESTS_MIN:
        return []
    return [
        f"{spent:6.0f} s {tests[folder]:6} tests {folder}"
        for folder, spent in sorted(seconds.items(), key=itemgetter(1), reverse=True)
    ]
