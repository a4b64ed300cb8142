"""Parts of indexes objects: checked when they are read, and kept within a limit."""

import pickle

import pytest
from crc32c import crc32c

from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.parts import PartCache, read_part
from sparklog.remote_log.remote_segment import EpochStart, Part, PartName, RemoteSegment

DATA = b"..entries"
SEGMENT = RemoteSegment(
    segment_id="a",
    base_offset=10,
    next_offset=20,
    log_size=100,
    leader_epochs=(EpochStart(0, 10),),
    parts={
        PartName.OFFSET_INDEX: Part(2, 7, crc32c(b"entries")),
        PartName.TIME_INDEX: Part(9, 0, 0),
    },
)


def read(path: str, offset: int, size: int) -> bytes:
    assert path == "a.indexes"
    assert size, "an empty part needs no request"
    return DATA[offset : offset + size]


def test_a_part_is_read_by_its_range() -> None:
    parts = {name: read_part(read, "a.indexes", SEGMENT, name) for name in list(PartName)[:3]}
    assert parts == {
        PartName.OFFSET_INDEX: b"entries",
        PartName.TIME_INDEX: b"",
        PartName.STATS: None,
    }


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"entrie", "of 7 bytes is cut off after 6"), (b"Entries", "has CRC 0x")],
)
def test_another_part_is_refused_by_name(answer: bytes, reason: str) -> None:
    with pytest.raises(DamagedObjectError, match=reason) as caught:
        read_part(lambda *_: answer, "a.indexes", SEGMENT, PartName.OFFSET_INDEX)
    error = caught.value
    assert (error.path, error.position) == ("a.indexes", 2)
    assert (error.first_offset, error.end_offset) == (10, 20)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (DamagedObjectError, str(error))
    assert "offsets 10 to 19 are damaged" in str(error)


def test_the_parts_used_last_are_kept() -> None:
    cache = PartCache(1000)
    keys = [("a", "index"), ("a", "stats"), ("b", "index"), ("c", "index")]
    for number, key in enumerate(keys[:3]):
        cache.put(key, number, 50)
    assert cache.get(keys[0]) == 0
    cache.put(keys[3], 3, 50)
    assert [cache.get(key) for key in keys] == [0, None, 2, 3]
    assert cache.size == 3 * 306
    cache.put(("d", "index"), 4, 745)
    assert cache.get(("d", "index")) is None, "a value above the limit drives nothing out"
    cache.put(("d", "index"), 4, 744)
    assert cache.get(("d", "index")) == 4
    assert [cache.get(key) for key in keys] == [None] * 4
    cache.put(("d", "index"), 5, 0)
    assert (cache.get(("d", "index")), cache.size) == (5, 256)
