"""An error of the product's own fails a run, although clients take its answer for a trouble."""

import itertools
from typing import Any
from unittest.mock import patch

from sparklog.executors.partition.partition import Partition
from tests.simulation.scenario import run

#: Which lookup of an offset breaks.
BROKEN = 5


def test_a_request_that_breaks_a_handler_once_fails_the_run() -> None:
    real, calls = Partition.find_offset, itertools.count(1)

    def find_offset(self: Partition, *args: Any, **more: Any) -> Any:
        if next(calls) == BROKEN:
            raise ZeroDivisionError("a bug")
        return real(self, *args, **more)

    with patch.object(Partition, "find_offset", find_offset):
        verdict = run(3)
    assert next(calls) > BROKEN
    (found,) = verdict.found
    assert found.startswith("the run: broker-")
    assert "request of api key 2 failed (ZeroDivisionError('a bug'))" in found
