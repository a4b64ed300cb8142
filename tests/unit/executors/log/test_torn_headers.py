"""What no checksum covers, torn behind the recovery point: a batch's offset and its leader epoch.

Offsets that leap are damage in a plain log, in order in others; epochs never fall.
"""

from dataclasses import replace

import pytest

from tests.unit.executors.log.log_fixtures import PARTITION_DIR, SMALL, Desk, batch, fill, read_all

LOG = f"{PARTITION_DIR}/{0:020d}.log"


def test_a_leap_in_what_was_never_flushed_is_cut_off() -> None:
    desk = Desk()
    # A batch's checksum leaves its offset out, so the offset may be torn and the batch sound.
    log = desk.open()
    stored = b"".join(fill(log, 3))
    log.close(0, clean=False)
    leapt = batch(7) + batch(8)
    desk.half.append(LOG, leapt)
    log = desk.open(recovery_point=2)
    assert (log.log_end_offset, desk.half.read(LOG)) == (3, stored)
    log.close(0, clean=False)
    for reason in ({"recovery_point": 9}, {"cleanup_policy": ("compact",)}):
        desk.half.truncate(LOG, len(stored))
        desk.half.append(LOG, leapt)
        log = desk.open(**reason)
        assert [record.offset for record in read_all(log)] == [0, 1, 2, 7, 8]
        log.close(0, clean=False)


def stored_epochs(desk: Desk, *epochs: int) -> None:
    """A log that was not flushed, with a batch of each epoch."""
    log = desk.open()
    log.close(0, clean=False)
    desk.half.append(LOG, b"".join(batch(n, leader_epoch=epoch) for n, epoch in enumerate(epochs)))


@pytest.mark.parametrize(
    ("epochs", "recovery_point", "end"),
    [
        ((0, 0, 42496, 0, 0), 0, 2),
        ((0, 1, 42496, 42496, 2, 3), 2, 2),
        ((0, 3, 3, 1, 3), 0, 1),
        ((0, 3, 3, 1, 3), 2, 3),
        ((7, 0, 0), 0, 0),
        ((-939524096,), 0, 0),
        ((3, 3, -2, 3), 2, 2),
        ((0, 0, 1, 3, 3), 0, 5),
    ],
    ids=[
        "one that is too high",
        "two of them, behind what was flushed",
        "either of two may be wrong",
        "one that is too low, as what was flushed tells",
        "the first of all",
        "the only one, which no leader can have",
        "one that no leader can have",
        "nothing is torn",
    ],
)
def test_a_log_ends_before_the_first_epoch_that_may_be_torn(
    epochs: tuple[int, ...], recovery_point: int, end: int
) -> None:
    desk = Desk()
    stored_epochs(desk, *epochs)
    log = desk.open(recovery_point=recovery_point)
    assert [record.offset for record in read_all(log)] == list(range(end))
    batches = [batch(n, leader_epoch=epoch) for n, epoch in enumerate(epochs)]
    assert desk.half.read(LOG) == b"".join(batches[:end])
    assert log.recovery.bytes_truncated == len(b"".join(batches[end:]))
    assert log.leader_epochs.latest_epoch == (epochs[end - 1] if end else -1)
    log.close(0, clean=False)


def test_an_epoch_that_was_written_down_where_it_begins_is_believed() -> None:
    desk = Desk()
    log = desk.open()
    desk.half.put(f"{PARTITION_DIR}/leader-epoch-checkpoint", b"0\n2\n0 0\n3 1\n")
    log.close(0, clean=False)
    desk.half.append(LOG, b"".join(batch(n, leader_epoch=e) for n, e in enumerate((0, 3, 3, 1))))
    log = desk.open()
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (3, 3)
    log.close(0, clean=False)


def test_segments_behind_a_torn_epoch_go_with_it() -> None:
    desk = Desk(config=replace(SMALL, segment_bytes=300))
    log = desk.open()
    stored = b"".join(fill(log, 9))
    log.close(0, clean=False)
    names = desk.names(".log")
    assert len(names) > 2
    second = desk.path(names[1])
    data = bytearray(desk.half.read(second))
    data[14] ^= 0xA6  # of its first batch's leader epoch
    desk.half.truncate(second, 0)
    desk.half.append(second, bytes(data))
    log = desk.open()
    kept = desk.half.read(desk.path(names[0]))
    assert stored.startswith(kept)
    assert b"".join(desk.half.read(desk.path(name)) for name in desk.names(".log")) == kept
    assert log.log_end_offset == int(names[1].removesuffix(".log"))
    log.close(0, clean=False)
