"""The partition of rows; every row goes to exactly one partition, in order."""

from collections.abc import Callable
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.partitioner import partition_of_key
from sparklog.dataframe.partitioners import PARTITIONERS
from sparklog.dataframe.write.row_partitioner import RUN_BYTES_MIN, RowPartitioner, split_by_topic
from sparklog.errors import ConfigError

Routed = dict[int, list[str]]


def routed(partitioner: RowPartitioner, group: pa.Table) -> Routed:
    """Values by partition, in the order of the pieces."""
    found: Routed = {}
    for piece in partitioner.partition(group):
        found.setdefault(piece.partition, []).extend(piece.rows.column("value").to_pylist())
    return found


def table(**columns: object) -> pa.Table:
    types = {"partition": pa.int32(), "value": pa.string(), "topic": pa.string()}
    return pa.table({name: pa.array(items, types.get(name)) for name, items in columns.items()})


def test_keys_go_where_javas_partitioner_sends_them() -> None:
    keys = [f"key-{number % 7}" for number in range(40)]
    group = table(key=keys, value=[str(number) for number in range(40)])
    expected: Routed = {}
    for number, key in enumerate(keys):
        expected.setdefault(partition_of_key(key.encode(), 5), []).append(str(number))
    assert routed(RowPartitioner("t", 5, first_run=0), group) == expected


@pytest.mark.parametrize(
    ("name", "placed"),
    [
        ("murmur2", lambda key: partition_of_key(key or b"", 5)),
        ("murmur2_random", lambda key: None if key is None else partition_of_key(key, 5)),
        ("consistent", lambda key: crc32(key or b"") % 5),
        ("consistent_random", lambda key: crc32(key) % 5 if key else None),
        ("sticky", lambda _key: None),
        ("random", lambda _key: None),
    ],
)
def test_partitioners_by_name(name: str, placed: Callable[[bytes | None], int | None]) -> None:
    keys = [None, "", "a", "b", "c", "ab", None, "bc", "", "d"]
    group = table(key=keys, value=[str(number) for number in range(len(keys))])
    partitioner = RowPartitioner("t", 5, first_run=0, partitioner=PARTITIONERS[name])
    where = {
        int(v): number for number, values in routed(partitioner, group).items() for v in values
    }
    assert sorted(where) == list(range(len(keys)))
    expected = {row: placed(None if key is None else key.encode()) for row, key in enumerate(keys)}
    certain = {row: number for row, number in expected.items() if number is not None}
    assert {row: where[row] for row in certain} == certain


def test_keys_that_a_partitioner_hashes_by_fnv1a() -> None:
    group = table(key=["kafka", None], value=["x", "y"])
    partitioner = RowPartitioner("t", 100, first_run=0, partitioner=PARTITIONERS["fnv1a"])
    assert routed(partitioner, group) == {0xD33C4E1 % 100: ["x"], (2**32 - 0x811C9DC5) % 100: ["y"]}


def test_rows_in_turn_go_on_where_the_last_group_ended() -> None:
    partitioner = RowPartitioner("t", 3, first_run=1, partitioner=PARTITIONERS["round_robin"])
    assert routed(partitioner, table(value=["a", "b", "c", "d"])) == {
        1: ["a", "d"],
        2: ["b"],
        0: ["c"],
    }
    assert routed(partitioner, table(value=["e", "f"])) == {2: ["e"], 0: ["f"]}


def test_a_partition_column_wins_over_the_key_where_it_is_not_null() -> None:
    group = table(key=["a", "a", "b"], partition=[2, None, 0], value=["x", "y", "z"])
    of_a = partition_of_key(b"a", 3)
    expected: Routed = {2: ["x"], 0: ["z"]}
    expected.setdefault(of_a, []).append("y")
    assert routed(RowPartitioner("t", 3, first_run=0), group) == {
        number: sorted(values) for number, values in expected.items()
    }


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_partition_that_the_topic_lacks_is_named(wrong: int) -> None:
    group = table(partition=[0, wrong], value=["x", "y"])
    with pytest.raises(ConfigError) as caught:
        RowPartitioner("t", 3, first_run=0).partition(group)
    assert str(caught.value) == (
        f"the column partition has {wrong}, but topic t has 3 partitions (0 to 2)"
    )


def test_large_keyless_groups_are_cut_into_one_run_per_partition() -> None:
    value = "v" * 1000
    group = table(value=[f"{number:06}{value}" for number in range(600)])
    partitioner = RowPartitioner("t", 3, first_run=4)
    pieces = partitioner.partition(group)
    assert [(piece.partition, piece.rows.num_rows) for piece in pieces] == [
        (1, 200),
        (2, 200),
        (0, 200),
    ]
    assert [piece.partition for piece in partitioner.partition(group)] == [1, 2, 0]


def test_small_keyless_groups_take_turns_instead_of_being_crumbled() -> None:
    partitioner = RowPartitioner("t", 3, first_run=0)
    group = table(key=[None, None], value=["a", "b"])
    assert [routed(partitioner, group) for _ in range(4)] == [
        {0: ["a", "b"]},
        {1: ["a", "b"]},
        {2: ["a", "b"]},
        {0: ["a", "b"]},
    ]
    assert group.nbytes < RUN_BYTES_MIN


def test_rows_without_a_key_among_others_spread_too() -> None:
    group = table(key=["a", None, None, "a", None], value=list("vwxyz"))
    found = routed(RowPartitioner("t", 2, first_run=1), group)
    assert sorted(value for values in found.values() for value in values) == list("vwxyz")
    of_a = partition_of_key(b"a", 2)
    assert [value for value in found[of_a] if value in "vy"] == ["v", "y"]


@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.binary(max_size=4)), st.one_of(st.none(), st.integers(0, 3))
        ),
        min_size=1,
        max_size=60,
    ),
    first_run=st.integers(0, 10),
)
def test_every_row_goes_to_one_partition_and_order_is_kept(
    rows: list[tuple[bytes | None, int | None]], first_run: int
) -> None:
    group = pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.binary()),
            "partition": pa.array([number for _, number in rows], pa.int32()),
            "value": pa.array(range(len(rows))),
        }
    )
    pieces = RowPartitioner("t", 4, first_run).partition(group)
    found = [(piece.partition, piece.rows.column("value").to_pylist()) for piece in pieces]
    assert sorted(value for _, values in found for value in values) == list(range(len(rows)))
    assert all(values == sorted(values) for _, values in found)
    where = {value: partition for partition, values in found for value in values}
    for value, (key, number) in enumerate(rows):
        if number is not None:
            assert where[value] == number
        elif key is not None:
            assert where[value] == partition_of_key(key, 4)


def test_columns_in_several_chunks_are_routed_alike() -> None:
    whole = table(key=[str(number) for number in range(50)], value=[str(n) for n in range(50)])
    chunked = pa.concat_tables([whole.slice(0, 20), whole.slice(20)])
    assert routed(RowPartitioner("t", 3, first_run=0), chunked) == routed(
        RowPartitioner("t", 3, first_run=0), whole
    )


def test_rows_are_split_by_their_topic() -> None:
    group = table(topic=["b", "a", "b"], value=["1", "2", "3"])
    found = {name: rows.column("value").to_pylist() for name, rows in split_by_topic(group)}
    assert found == {"b": ["1", "3"], "a": ["2"]}


def test_a_row_without_a_topic_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a row has a null topic: fill the column topic, or give"):
        split_by_topic(table(topic=["a", None], value=["1", "2"]))
