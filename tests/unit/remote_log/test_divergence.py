"""How far a manifest agrees with a new leader's log, by cases and against histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from tests.unit.remote_log.segments import manifest_of, segment

#: Epochs 1 [0, 10), 3 [10, 30), 5 [30, 40), in three segments.
SEGMENTS = (
    segment(0, 15, epochs=[(1, 0), (3, 10)]),
    segment(15, 25, epochs=[(3, 15)]),
    segment(25, 40, epochs=[(3, 25), (5, 30)]),
)


def starts(*epochs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(*each) for each in epochs]


@pytest.mark.parametrize(
    ("epochs", "log_end", "expected"),
    [
        (starts((1, 0), (3, 10), (5, 30)), 40, None),
        (starts((1, 0), (3, 10), (5, 30), (6, 70)), 90, None),
        # The leader's log ends earlier.
        (starts((1, 0), (3, 10), (5, 30)), 35, 35),
        (starts((1, 0), (3, 10)), 20, 20),
        (starts((1, 0), (3, 10), (6, 20)), 50, 20),
        # The leader has other records.
        (starts((1, 0), (3, 10), (4, 28)), 60, 28),
        (starts((1, 0), (3, 10), (4, 35)), 60, 30),
        (starts((1, 0), (2, 15)), 60, 10),
        (starts((1, 0), (2, 5)), 60, 5),
        (starts((0, 0), (2, 5)), 60, 0),
        (starts((0, 0), (4, 0)), 60, 0),
        # The leader knows nothing of the older epochs.
        (starts((5, 30)), 45, None),
        (starts((6, 42)), 45, None),
        (starts((6, 35)), 45, 35),
        (starts(), 40, None),
        (starts(), 0, 0),
    ],
)
def test_the_offset_of_the_divergence(
    epochs: list[EpochStart], log_end: int, expected: int | None
) -> None:
    assert manifest_of(*SEGMENTS).divergence(epochs, log_end) == expected


#: Runs of epochs: how much the epoch grows, and how many records it has.
Runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), max_size=5)


def history(common: list[tuple[int, int]], own: list[tuple[int, int]], parity: int) -> list[int]:
    """The epoch of each offset; after the common part, epochs are those of one branch only."""
    offsets: list[int] = []
    epoch = 0
    for grows, records in common:
        epoch += grows
        offsets += [epoch] * records
    for grows, records in own:
        epoch += 2 * grows
        offsets += [epoch + (epoch + parity) % 2] * records
    return offsets


def epoch_starts(offsets: list[int], base: int, end: int) -> list[tuple[int, int]]:
    return [
        (offsets[at], at) for at in range(base, end) if at == base or offsets[at] != offsets[at - 1]
    ]


def cut(offsets: list[int], lengths: list[int]) -> Manifest:
    found: list[RemoteSegment] = []
    base = 0
    for length in lengths:
        end = min(base + length, len(offsets))
        if base < end:
            found.append(segment(base, end, epochs=epoch_starts(offsets, base, end)))
        base = end
    return manifest_of(*found)


@given(
    common=Runs,
    left=Runs,
    right=Runs,
    tails=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=12),
)
def test_logs_agree_up_to_their_common_history(
    common: list[tuple[int, int]],
    left: list[tuple[int, int]],
    right: list[tuple[int, int]],
    tails: tuple[int, int],
    lengths: list[int],
) -> None:
    """The two logs may have parts of different length of the last common epoch."""
    shared = len(history(common, [], 0))
    copied, led = history(common, left, 0), history(common, right, 1)
    if shared:
        last = copied[shared - 1]
        copied[shared:shared] = [last] * tails[0]
        led[shared:shared] = [last] * tails[1]
        shared += min(tails)
    manifest = cut(copied, lengths)
    epochs = [EpochStart(*each) for each in epoch_starts(led, 0, len(led))]
    end = manifest.end_offset or 0
    agreed = min(shared, end)
    expected = agreed if agreed < end else None
    assert manifest.divergence(epochs, len(led)) == expected
