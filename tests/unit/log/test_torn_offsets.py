"""Offsets that leap behind the recovery point: damage in a plain log, in order in others."""

from log_fixtures import FOLDER, Desk, batch, fill, read_all

LOG = f"{FOLDER}/{0:020d}.log"


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
