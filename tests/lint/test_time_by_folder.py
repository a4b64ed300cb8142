"""The lines that tell where the time of the suite goes."""

from dataclasses import dataclass

from tests.support.time_by_folder import TESTS_MIN, time_by_folder


@dataclass
class Phase:
    nodeid: str
    when: str
    duration: float


def test_the_longest_folder_comes_first() -> None:
    reports = [Phase("tests/unit/wire/test_a.py::test_b[c/d]", "call", 0.5)] * TESTS_MIN
    reports += [
        Phase("tests/unit/executors/log/test_a.py::test_b", phase, 100)
        for phase in ("setup", "call")
    ]
    assert time_by_folder(reports) == [
        "   200 s      1 tests tests/unit/executors",
        "   100 s    200 tests tests/unit/wire",
    ]
    assert time_by_folder(reports[:10]) == []
