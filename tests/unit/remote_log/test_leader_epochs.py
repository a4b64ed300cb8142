"""The leader epochs of a segment: their bytes, and those of a range."""

import pytest

from sparklog.errors import DecodeError
from sparklog.remote_log.leader_epochs import (
    check_epochs,
    decode_epochs,
    encode_epochs,
    epochs_between,
)
from sparklog.remote_log.remote_segment import EpochStart

EPOCHS = (EpochStart(0, 5), EpochStart(3, 10), EpochStart(2**31 - 1, 2**40))


@pytest.mark.parametrize("epochs", [(), EPOCHS[:1], EPOCHS])
def test_epochs_survive_their_bytes(epochs: tuple[EpochStart, ...]) -> None:
    assert decode_epochs(encode_epochs(epochs)) == epochs


def test_a_cut_list_is_refused() -> None:
    with pytest.raises(DecodeError, match="cut off after 35 bytes"):
        decode_epochs(encode_epochs(EPOCHS)[:-1])


@pytest.mark.parametrize(
    "epochs",
    [
        [EpochStart(-1, 0)],
        [EpochStart(0, -1)],
        [EpochStart(1, 0), EpochStart(1, 5)],
        [EpochStart(1, 5), EpochStart(2, 5)],
    ],
)
def test_epochs_that_cannot_be_true_are_refused(epochs: list[EpochStart]) -> None:
    with pytest.raises(DecodeError):
        check_epochs(epochs)
    with pytest.raises(DecodeError):
        decode_epochs(encode_epochs(epochs))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (5, 10, [(0, 5)]),
        (7, 11, [(0, 7), (3, 10)]),
        (10, 12, [(3, 10)]),
        (2**40 - 1, 2**40 + 1, [(3, 2**40 - 1), (2**31 - 1, 2**40)]),
        (0, 6, [(0, 5)]),
        (0, 5, []),
    ],
)
def test_the_epochs_of_a_range(start: int, end: int, expected: list[tuple[int, int]]) -> None:
    assert list(epochs_between(EPOCHS, start, end)) == expected
