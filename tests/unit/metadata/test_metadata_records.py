"""Records survive the round trip through JSON, and anything else is refused."""

import contextlib
from dataclasses import MISSING, fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    ConfigChanged,
    PartitionImage,
    Record,
    TopicCreated,
    decode_records,
    encode_records,
    from_json,
    to_json,
)
from sparklog.metadata.records import RECORD_TYPES

ID = UUID(int=7)

records = st.one_of([st.from_type(record_type) for record_type in RECORD_TYPES.values()])


@given(st.lists(records, max_size=5))
def test_records_come_back_from_their_json(commit: list[Record]) -> None:
    assert decode_records(encode_records(commit)) == tuple(commit)


def test_the_json_of_a_record_reads_like_the_record_without_what_goes_without_saying() -> None:
    state = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1, leader_epoch=3)
    assert to_json(TopicCreated(topic="flights", topic_id=ID, partitions=(state,))) == {
        "type": "TopicCreated",
        "topic": "flights",
        "topic_id": "00000000-0000-0000-0000-000000000007",
        "partitions": [
            {"replicas": [1], "isr": [1], "last_known": [1], "leader": 1, "leader_epoch": 3}
        ],
    }


def test_the_defaults_are_those_of_the_format() -> None:
    """Journals do not contain default values, so the defaults can never change."""
    defaults = {
        (kind.__name__, field.name): field.default
        for kind in (*RECORD_TYPES.values(), PartitionImage, BrokerImage)
        for field in fields(kind)
        if field.default is not MISSING
    }
    broker = {
        "directory_id": None,
        "incarnation": None,
        "broker_epoch": -1,
        "host": "",
        "port": 0,
        "executor_host": "",
        "executor_id": "",
        "job": "",
        "rack": "",
        "fenced": True,
        "draining": False,
    }
    partition = {
        "eligible": (),
        "last_known": (),
        "adding": (),
        "removing": (),
        "leader": -1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    assert defaults == {
        ("BrokerFenced", "reason"): "",
        **{("BrokerImage", name): value for name, value in broker.items()},
        **{("PartitionImage", name): value for name, value in partition.items()},
    }


def test_fields_with_a_default_may_be_missing() -> None:
    document = {"type": "BrokerRegistered", "broker": {"broker_id": 4}, "clean": True}
    assert from_json(document) == BrokerRegistered(broker=BrokerImage(broker_id=4), clean=True)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (None, "a record must be a JSON object, not NoneType"),
        ([], "a record must be a JSON object, not list"),
        ({}, "unknown record type None"),
        ({"type": ["BrokerFenced"]}, "unknown record type"),
        ({"type": "BrokerPromoted"}, "unknown record type 'BrokerPromoted'"),
        ({"type": "BrokerUnfenced"}, "BrokerUnfenced lacks broker_id"),
        ({"type": "BrokerUnfenced", "broker_id": "1"}, "broker_id must be int, not '1'"),
        ({"type": "BrokerUnfenced", "broker_id": True}, "broker_id must be int, not True"),
        ({"type": "BrokerUnfenced", "broker_id": 1, "x": 2}, r"unknown fields \['x'\]"),
        ({"type": "TopicDeleted", "topic": "a", "topic_id": "zz"}, "topic_id must be a UUID"),
        ({"type": "TopicDeleted", "topic": "a", "topic_id": 5}, "topic_id must be a UUID"),
        ({"type": "PartitionsAdded", "topic": "a", "partitions": 1}, "partitions must be an array"),
        (
            {"type": "PartitionsAdded", "topic": "a", "partitions": [1]},
            "PartitionImage must be a JSON object, not int",
        ),
    ],
)
def test_what_is_no_record_is_refused(document: Any, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        from_json(document)


@given(st.binary(max_size=200))
def test_random_bytes_are_an_error_and_never_a_crash(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode_records(data)


@given(st.binary(min_size=1, max_size=3), st.integers(min_value=0, max_value=10_000))
def test_a_damaged_commit_is_an_error_and_never_a_crash(noise: bytes, position: int) -> None:
    record = ConfigChanged(resource_type=2, resource_name="a", name="retention.ms", value="1")
    data = bytearray(encode_records([record, record]))
    position %= len(data)
    data[position : position + len(noise)] = noise
    with contextlib.suppress(DecodeError):
        decode_records(data)


def test_deeply_nested_json_is_an_error() -> None:
    with pytest.raises(DecodeError, match="not JSON"):
        decode_records(b"[" * 100_000)
