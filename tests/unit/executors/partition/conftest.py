"""Opens the partitions under test."""

from collections.abc import Callable, Iterator

import pytest

from sparklog.executors.partition.partition import Partition
from tests.unit.executors.partition.partition_maker import Maker


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def open_partition(maker: Maker) -> Iterator[Callable[..., Partition]]:
    """Opens partitions that are checked at the end."""
    opened: list[Partition] = []

    def open_one(*args: object, **settings: object) -> Partition:
        opened.append(maker.open(*args, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for partition in opened[-1:]:
        partition.check_invariants()
