"""Requests that repeat a shape: what they carry, and the answer that they get."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.wire.codec import decode_request_header
from sparklog.wire.produce import (
    MAX_VERSION,
    MIN_VERSION,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    decode_produce_request,
    encode_produce_request,
    encode_produce_response,
)
from sparklog.wire.produce_shape import MIN_VERSION as FIRST_SHAPED
from sparklog.wire.produce_shape import ProduceShape

SHAPED = range(FIRST_SHAPED, MAX_VERSION + 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.binary(max_size=300)


def frame_of(
    version: int, records: bytes | None, *, correlation_id: int = 1, **changes: object
) -> memoryview:
    values: dict[str, object] = {
        "client": "me", "name": "t", "topic_id": UUID(int=3), "index": 2, "acks": 1, "batches": 1
    }  # fmt: skip
    values.update(changes)
    part = PartitionProduceData(index=int(str(values["index"])), records=records)
    by_id = version >= 13
    topic = TopicProduceData(
        name="" if by_id else str(values["name"]),
        topic_id=values["topic_id"] if by_id else None,  # type: ignore[arg-type]
        partition_data=(part,) * int(str(values["batches"])),
    )
    request = ProduceRequest(acks=int(str(values["acks"])), timeout_ms=9, topic_data=(topic,))
    parts = encode_produce_request(version, correlation_id, str(values["client"]), request)
    return memoryview(bytearray(b"".join(parts)))


def decoded(version: int, frame: memoryview) -> ProduceRequest:
    return decode_produce_request(version, frame[decode_request_header(frame)[1] :])


def shape_of(version: int, frame: memoryview) -> ProduceShape | None:
    return ProduceShape.of(version, frame, decoded(version, frame))


@pytest.mark.parametrize("version", SHAPED)
@given(first=RECORDS, second=RECORDS, correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_a_request_of_the_same_shape_gives_its_records_as_a_view(
    version: int, first: bytes, second: bytes, correlation_id: int
) -> None:
    shape = shape_of(version, frame_of(version, first))
    assert shape is not None
    frame = frame_of(version, second, correlation_id=correlation_id)
    found = shape.match(frame)
    assert found == (correlation_id, second)
    assert found[1].obj is frame.obj


@pytest.mark.parametrize("version", SHAPED)
@given(offsets=st.tuples(INT64, INT64, INT64), correlation_id=st.integers(0, 2**31 - 1))
def test_the_answer_has_the_bytes_of_the_codec(
    version: int, offsets: tuple[int, int, int], correlation_id: int
) -> None:
    frame = frame_of(version, b"records")
    (topic,) = decoded(version, frame).topic_data
    taken = PartitionProduceResponse(
        index=2, base_offset=offsets[0], log_append_time_ms=offsets[1], log_start_offset=offsets[2]
    )
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=(taken,)
            ),
        )
    )
    shape = shape_of(version, frame)
    assert shape is not None
    expected = encode_produce_response(version, correlation_id, response)
    assert shape.answer(correlation_id, *offsets) == expected


@pytest.mark.parametrize("version", SHAPED)
def test_any_other_difference_is_another_shape(version: int) -> None:
    shape = shape_of(version, frame_of(version, b"records"))
    assert shape is not None
    topic = {"topic_id": UUID(int=4)} if version >= 13 else {"name": "u"}
    others = [topic, {"client": "you"}, {"index": 3}, {"acks": -1}, {"batches": 2}]
    assert [shape.match(frame_of(version, b"records", **other)) for other in others] == [None] * 5
    near = version - 1 if version > FIRST_SHAPED else version + 1
    assert shape.match(frame_of(near, b"records")) is None


@pytest.mark.parametrize("version", SHAPED)
@given(cut=st.integers(1, 200), more=st.binary(min_size=1, max_size=4))
def test_a_frame_that_was_cut_off_or_goes_on_does_not_match(
    version: int, cut: int, more: bytes
) -> None:
    frame = frame_of(version, b"records" * 30)
    shape = shape_of(version, frame)
    assert shape is not None
    assert shape.match(frame[: -min(cut, len(frame))]) is None
    assert shape.match(memoryview(bytes(frame) + more)) is None


@given(frame=st.binary(max_size=100), version=st.sampled_from(SHAPED))
def test_random_bytes_do_not_match(frame: bytes, version: int) -> None:
    shape = shape_of(version, frame_of(version, b"records"))
    assert shape is not None
    assert shape.match(memoryview(frame)) is None


@pytest.mark.parametrize("version", SHAPED)
def test_requests_that_have_no_shape(version: int) -> None:
    assert shape_of(version, frame_of(version, None)) is None
    assert shape_of(version, frame_of(version, b"records", batches=2)) is None
    assert shape_of(version, frame_of(version, b"records", batches=0)) is None


@pytest.mark.parametrize("version", range(MIN_VERSION, FIRST_SHAPED))
def test_old_versions_have_no_shape(version: int) -> None:
    assert shape_of(version, frame_of(version, b"records")) is None


def test_unknown_tagged_fields_have_no_shape() -> None:
    plain = bytes(frame_of(9, b"records"))
    tagged = memoryview(plain[:-1] + b"\x01\x63\x02hi")
    assert decoded(9, tagged) == decoded(9, memoryview(plain))
    assert shape_of(9, tagged) is None
