"""What a consumer fetches next, and what it may hand out: positions, pauses, seeks and limits."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.fetch_api import Fetched, FetchFrom
from sparklog.client.fetch_buffer import FetchBuffer, PlannedFetch
from sparklog.client.fetched_records import FetchedRecords
from sparklog.types import NO_NODE, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

A, B, C = (TopicPartition("t", number) for number in range(3))
NODES = {A: 1, B: 1, C: 2}
END = 1000


@cache
def batch(offset: int, count: int) -> bytes:
    records = [Record(value=b"%d" % (offset + n), offset=offset + n) for n in range(count)]
    return encode_batch(records, base_offset=offset)


SIZE = len(batch(0, 10))


def buffer(ahead_bytes_max: int = 100 * SIZE, partition_bytes_max: int = SIZE) -> FetchBuffer:
    made = FetchBuffer(
        partition_bytes_max=partition_bytes_max,
        fetch_bytes_max=50 * SIZE,
        ahead_bytes_max=ahead_bytes_max,
    )
    made.move({A: 0, B: 0, C: 0})
    return made


def fetched(tp: TopicPartition, offset: int, count: int = 10) -> FetchedRecords:
    found = Fetched(
        records=memoryview(batch(offset, count)),
        high_watermark=END,
        last_stable_offset=END,
        log_start_offset=0,
    )
    return FetchedRecords(tp, found, offset, offset + count, None)


def plan(made: FetchBuffer, *, ahead: bool = False) -> list[PlannedFetch]:
    planned = made.plan(NODES.__getitem__, ahead=ahead)
    made.check_invariants()
    return planned


def respond(made: FetchBuffer, planned: PlannedFetch, readable: int = END) -> list[TopicPartition]:
    """Let a fetch end with ten records of every partition; returns whose results counted."""
    counted = made.finish(planned.node_id)
    for tp in counted:
        made.note_readable(tp, readable)
        made.put(fetched(tp, planned.wanted[tp].offset))
        made.check_invariants()
    return counted


def take(made: FetchBuffer, count: int = 10_000) -> list[tuple[TopicPartition, int]]:
    found: list[tuple[TopicPartition, int]] = []
    while len(found) < count and (head := made.head()) is not None:
        found += [(head.topic_partition, r.offset) for r in head.take(count - len(found))]
    return found


def offsets(tp: TopicPartition, first: int, end: int) -> list[tuple[TopicPartition, int]]:
    return [(tp, offset) for offset in range(first, end)]


def test_each_node_gets_one_fetch_at_a_time() -> None:
    made = buffer()
    first = FetchFrom(offset=0, max_bytes=SIZE)
    assert plan(made) == [
        PlannedFetch(node_id=1, wanted={A: first, B: first}, bytes_max=50 * SIZE),
        PlannedFetch(node_id=2, wanted={C: first}, bytes_max=50 * SIZE),
    ]
    assert plan(made) == []
    assert made.finish(1) == [A, B]
    assert [each.node_id for each in plan(made)] == [1]


def test_a_fetch_runs_ahead_only_where_the_log_is_known_to_go_on() -> None:
    made = buffer()
    assert plan(made, ahead=True) == []  # nothing is known yet
    one, two = plan(made)
    assert respond(made, one, readable=11) == [A, B]
    assert respond(made, two, readable=10) == [C]
    (ahead,) = plan(made, ahead=True)
    assert ahead == PlannedFetch(
        node_id=1, wanted=dict.fromkeys((A, B), FetchFrom(offset=10, max_bytes=SIZE)),
        bytes_max=2 * SIZE,
    )  # fmt: skip
    respond(made, ahead)
    assert take(made) == [*offsets(A, 0, 20), *offsets(B, 0, 20), *offsets(C, 0, 10)]


def test_what_runs_ahead_stays_within_its_limit() -> None:
    made = buffer(ahead_bytes_max=4 * SIZE)
    one, two = plan(made)
    respond(made, one)
    assert made.bytes_held == 3 * SIZE  # the records of A and B, and what node 2 may return
    assert [each.bytes_max for each in plan(made, ahead=True)] == [SIZE]
    respond(made, two)
    assert plan(made, ahead=True) == []  # five times SIZE would be held
    take(made)
    assert [(each.node_id, each.bytes_max) for each in plan(made, ahead=True)] == [(2, SIZE)]


def test_nothing_runs_ahead_without_room_for_a_whole_partition_or_a_leader() -> None:
    for made in (buffer(ahead_bytes_max=0), buffer(ahead_bytes_max=SIZE - 1)):
        for planned in plan(made):
            respond(made, planned)
        take(made)
        assert plan(made, ahead=True) == []
        assert len(plan(made)) == 2
    made = buffer()
    for planned in plan(made):
        respond(made, planned)
    assert made.plan(lambda _: NO_NODE, ahead=True) == []
    assert [each.node_id for each in made.plan(lambda _: NO_NODE)] == [NO_NODE]


def test_records_from_before_a_seek_are_dropped_wherever_they_are() -> None:
    made = buffer()
    one, two = plan(made)
    respond(made, one)
    (ahead,) = plan(made, ahead=True)
    made.move({A: 500})
    assert respond(made, ahead) == [B]
    assert take(made) == [*offsets(B, 0, 10), *offsets(B, 10, 20)]
    made.move({C: 0})  # to where it was: the fetch under way began before the seek
    assert respond(made, two) == []
    assert {tp: each.offset for p in plan(made) for tp, each in p.wanted.items()} == {
        A: 500, B: 20, C: 0,
    }  # fmt: skip


def test_records_of_a_partition_that_is_gone_are_dropped_also_when_it_comes_back() -> None:
    made = buffer()
    one, _ = plan(made)
    respond(made, one)
    (ahead,) = plan(made, ahead=True)
    made.remove(A)
    made.check_invariants()
    made.move({A: 10})  # the offset that the fetch under way asked for
    assert respond(made, ahead) == [B]
    assert made.position(A) == 10
    assert A not in {tp for tp, _ in take(made)}


def test_a_paused_partition_keeps_its_records_and_is_not_fetched() -> None:
    made = buffer()
    for planned in plan(made):
        respond(made, planned)
    made.paused |= {A}
    (ahead, _) = plan(made, ahead=True)
    assert list(ahead.wanted) == [B]
    assert take(made, 5) == offsets(B, 0, 5)
    assert [each.topic_partition for each in made.take_undecoded()] == [B, C]
    assert made.head() is None
    made.paused.clear()
    assert take(made) == offsets(A, 0, 10)


def test_records_of_a_paused_partition_that_were_fetched_ahead_keep_their_order() -> None:
    made = buffer()
    one, _ = plan(made)
    respond(made, one)
    (ahead,) = plan(made, ahead=True)
    made.paused |= {A}
    respond(made, ahead)
    assert take(made) == [*offsets(B, 0, 10), *offsets(B, 10, 20)]
    made.paused.clear()
    assert take(made) == [*offsets(A, 0, 10), *offsets(A, 10, 20)]


def test_what_cannot_be_read_lets_the_others_go_first_and_nothing_behind_it() -> None:
    made = buffer()
    one, two = plan(made)
    respond(made, one)
    (ahead,) = plan(made, ahead=True)
    respond(made, two)
    respond(made, ahead)
    made.postpone_head()
    assert take(made) == [
        *(*offsets(B, 0, 10), *offsets(B, 10, 20), *offsets(C, 0, 10)),
        *(*offsets(A, 0, 10), *offsets(A, 10, 20)),
    ]


def test_the_position_is_the_next_record_whatever_was_fetched_ahead() -> None:
    made = buffer()
    one, _ = plan(made)
    respond(made, one)
    (ahead,) = plan(made, ahead=True)
    respond(made, ahead)
    assert take(made, 3) == offsets(A, 0, 3)
    assert (made.position(A), made.positions[A], made.position(C)) == (3, 20, 0)


STEPS = ("plan", "ahead", "end", "take", "seek", "pause", "lose")


@given(
    limit=st.sampled_from([0, 3 * SIZE, 100 * SIZE]),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(1, 50))),
)
def test_every_record_is_handed_out_once_in_order_and_only_while_it_is_wanted(
    limit: int, steps: list[tuple[str, int, int]]
) -> None:
    made = buffer(ahead_bytes_max=limit)
    following = dict.fromkeys(NODES, 0)
    under_way: list[PlannedFetch] = []
    for step, which, number in steps:
        tp = (A, B, C)[which]
        match step:
            case "plan":
                under_way += made.plan(NODES.__getitem__)
            case "ahead":
                under_way += made.plan(NODES.__getitem__, ahead=True)
            case "end" if under_way:
                respond(made, under_way.pop(which % len(under_way)))
            case "take":
                for taken, offset in take(made, number):
                    assert taken not in made.paused
                    assert offset == following[taken]
                    following[taken] += 1
            case "seek" if tp in following:
                following[tp] = number
                made.move({tp: number})
            case "pause" if tp in following:
                made.paused ^= {tp}
            case "lose" if tp in following:
                made.remove(tp)
                del following[tp]
            case "lose":
                following[tp] = number
                made.move({tp: number})
        made.check_invariants()
        assert {tp: made.position(tp) for tp in following} == following
