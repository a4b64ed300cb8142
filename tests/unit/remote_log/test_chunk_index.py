"""Which chunks are there, and which have to go."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.remote_log.chunk_index import CachedChunk, ChunkIndex, ChunkKey


def key(number: int, path: str = "a") -> ChunkKey:
    return ChunkKey(path, number)


def added(index: ChunkIndex, chunk_key: ChunkKey, size: int = 10) -> list[ChunkKey]:
    """Add a chunk.  Returns the keys of the evicted chunks, in the order of their eviction."""
    reserved = index.reserve(chunk_key, size)
    assert reserved is not None
    chunk, evicted = reserved
    index.add(chunk)
    index.check_invariants()
    return [victim.key for victim in evicted]


def pinned(index: ChunkIndex, chunk_key: ChunkKey) -> CachedChunk:
    chunk = index.pin(chunk_key)
    assert chunk is not None
    return chunk


def test_the_least_recently_used_chunks_are_evicted_first() -> None:
    index = ChunkIndex(30)
    assert [added(index, key(number)) for number in range(3)] == [[], [], []]
    index.unpin(pinned(index, key(0)))
    assert added(index, key(3)) == [key(1)]
    assert added(index, key(4), 15) == [key(2), key(0)]
    assert [key(number) in index for number in range(5)] == [False, False, False, True, True]
    assert index.bytes_used == 25


def test_a_pinned_chunk_is_not_evicted() -> None:
    index = ChunkIndex(20)
    added(index, key(0))
    added(index, key(1))
    first, second = pinned(index, key(0)), pinned(index, key(0))
    assert added(index, key(2)) == [key(1)]
    assert index.unpin(first) is False
    assert added(index, key(3)) == [key(2)]
    assert index.unpin(second) is False
    assert added(index, key(4)) == [key(0)]


def test_without_room_nothing_is_evicted() -> None:
    index = ChunkIndex(20)
    added(index, key(0))
    added(index, key(1))
    chunk = pinned(index, key(1))
    assert (index.reserve(key(2), 15), index.reserve(key(2), 21)) == (None, None)
    assert (key(0) in index, key(1) in index, index.bytes_used) == (True, True, 20)
    index.unpin(chunk)
    assert added(index, key(2), 15) == [key(0), key(1)]


def test_a_reserved_chunk_takes_room_and_is_not_found() -> None:
    index = ChunkIndex(20)
    reserved = index.reserve(key(0), 15)
    assert reserved is not None
    assert (key(0) in index, index.pin(key(0)), index.reserve(key(1), 10)) == (False, None, None)
    index.release(reserved[0])
    assert (index.bytes_used, added(index, key(1))) == (0, [])


def test_a_discarded_chunk_goes_with_its_last_pin() -> None:
    index = ChunkIndex(30)
    added(index, key(0))
    added(index, key(1))
    first, second = pinned(index, key(0)), pinned(index, key(0))
    assert (index.discard(first), index.discard(first), key(0) in index) == (False, False, False)
    assert added(index, key(0)) == []  # its successor has another file
    assert index.bytes_used == 30
    assert [index.unpin(first), index.unpin(second)] == [False, True]
    index.check_invariants()
    assert (index.bytes_used, key(0) in index, key(1) in index) == (20, True, True)


def test_the_chunks_of_one_object_are_discarded() -> None:
    index = ChunkIndex(40)
    for chunk_key in (key(0), key(1), key(0, "b"), key(2)):
        added(index, chunk_key)
    reading = pinned(index, key(1))
    assert [chunk.key for chunk in index.discard_object("a")] == [key(0), key(2)]
    assert (index.bytes_used, key(0, "b") in index, index.unpin(reading)) == (20, True, True)
    assert index.bytes_used == 10


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "pin", "unpin", "discard", "reserve", "settle", "forget"]),
            st.integers(0, 7),
            st.integers(1, 12),
        ),
        max_size=80,
    )
)
def test_the_bytes_in_use_are_never_more_than_allowed(
    steps: list[tuple[str, int, int]],
) -> None:
    index = ChunkIndex(40)
    pins: list[CachedChunk] = []
    reserved: dict[ChunkKey, CachedChunk] = {}
    deleted: set[int] = set()
    for action, number, size in steps:
        chunk_key = key(number % 4, "ab"[number // 4])
        if action in ("add", "reserve") and chunk_key not in index and chunk_key not in reserved:
            room = index.reserve(chunk_key, size)
            if room is not None:
                deleted |= {victim.file for victim in room[1]}
                reserved[chunk_key] = room[0]
        if action in ("add", "settle") and chunk_key in reserved:
            (index.add if size > 4 or action == "add" else index.release)(reserved.pop(chunk_key))
        if action in ("pin", "discard"):
            chunk = index.pin(chunk_key)
            if chunk is not None:
                assert chunk.file not in deleted
                pins.append(chunk)
                if action == "discard":
                    assert not index.discard(chunk)
        if action == "unpin" and pins:
            chunk = pins.pop(number % len(pins))
            if index.unpin(chunk):
                deleted.add(chunk.file)
        if action == "forget":
            deleted |= {chunk.file for chunk in index.discard_object("ab"[number // 4])}
        assert not deleted & {chunk.file for chunk in pins}, "a chunk in use was deleted"
        index.check_invariants()


def test_a_full_disk_halves_what_is_there_and_pinned_chunks_stay() -> None:
    index = ChunkIndex(100)
    for number in range(8):
        added(index, key(number))
    chunk = pinned(index, key(0))
    assert [each.key.number for each in index.shrink(10)] == [1, 2, 3, 4]
    index.check_invariants()
    assert added(index, key(9)) == [key(5)]
    assert index.bytes_used == 40
    index.unpin(chunk)
    for _ in range(10):
        index.shrink(10)
    assert index.bytes_used == 10
    assert added(index, key(10)) == [key(9)], "a chunk can always be tried"
    assert list(index.shrink(200)) == []
