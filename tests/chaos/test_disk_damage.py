"""Cut files: what was flushed stays, the rest may go at any byte, and recovery copes."""

import random
from pathlib import Path

import pytest

from sparklog.executors.log.checkpoint import encode_offsets
from sparklog.storage_backends.local import LocalBackend
from tests.chaos.disk_damage import Place, choose_cut, cut_to_flushed, lose_log_dir
from tests.unit.executors.log.log_fixtures import TP, Desk, fill, headers_of, put, read_bytes


@pytest.mark.parametrize("seed", range(30))
def test_a_cut_takes_a_tail_and_nothing_that_was_flushed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    desk = Desk(half=LocalBackend(tmp_path))
    log = desk.open()
    stored = []
    for sequence in range(chance.randrange(1, 90)):
        data = put(
            log, sequence, size=chance.choice((20, 300)), producer_id=7, base_sequence=sequence
        )
        desk.producers.replay(headers_of(data)[0])
        stored.append(data)
    flushed = chance.randint(0, len(stored))
    broker = tmp_path / "broker-1"
    (broker / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({TP: flushed}))

    [lost] = cut_to_flushed(broker, chance).values()

    log = desk.open(recovery_point=flushed)
    found = b"".join(read_bytes(log))
    assert b"".join(stored).startswith(found)
    assert log.log_end_offset >= flushed
    assert (lost == 0) == (log.log_end_offset == len(stored))
    assert desk.producers.entries.keys() == ({7} if log.log_end_offset else set())
    fill(log, 3)
    log.check_invariants()


def test_the_cut_may_be_at_every_byte_and_in_every_segment() -> None:
    sizes = {0: 10, 5: 3, 9: 4}
    places = {choose_cut(sizes, Place(0, 8), random.Random(seed)) for seed in range(300)}
    assert places == {
        *(Place(0, position) for position in (8, 9, 10)),
        *(Place(5, position) for position in (1, 2, 3)),
        *(Place(9, position) for position in (1, 2, 3, 4)),
    }


def test_a_directory_may_be_cut_again_before_anybody_has_recovered_it(tmp_path: Path) -> None:
    for seed in range(20):
        desk = Desk(half=LocalBackend(tmp_path / str(seed)))
        stored = b"".join(fill(desk.open(), 9))
        for again in range(3):
            cut_to_flushed(tmp_path / str(seed) / "broker-1", random.Random(100 * seed + again))
        assert stored.startswith(b"".join(read_bytes(desk.open())))


def test_a_lost_log_directory_is_gone_at_once_and_may_be_lost_again(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "broker-1" / "t-0").mkdir(parents=True)
        lose_log_dir(tmp_path / "broker-1", tmp_path / "trash")
    assert not (tmp_path / "broker-1").exists()
    assert len(list((tmp_path / "trash").iterdir())) == 2
