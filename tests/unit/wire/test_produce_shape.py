"""Requests that repeat a shape: their batches, and their responses."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.wire.protocol.codec import decode_request_header, decode_response
from sparklog.wire.protocol.produce import (
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
from sparklog.wire.protocol.repeated_produce import MIN_VERSION as FIRST_SHAPED
from sparklog.wire.protocol.repeated_produce import ProduceShape, TakenPart

SHAPED = range(FIRST_SHAPED, MAX_VERSION + 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
#: One batch.
ONE = [(2, b"records")]
INT32 = st.integers(-(2**31), 2**31 - 1)
#: Partitions and their batches; one may come twice.
SENT = st.lists(st.tuples(INT32, st.binary(max_size=300)), min_size=1, max_size=5)


def frame_of(
    version: int,
    sent: Sequence[tuple[int, bytes | None]],
    *,
    correlation_id: int = 1,
    **changes: object,
) -> memoryview:
    values: dict[str, object] = {
        "client": "me", "name": "t", "topic_id": UUID(int=3), "acks": 1, "topics": 1
    }  # fmt: skip
    values.update(changes)
    by_id = version >= 13
    topic = TopicProduceData(
        name="" if by_id else str(values["name"]),
        topic_id=values["topic_id"] if by_id else None,  # type: ignore[arg-type]
        partition_data=tuple(PartitionProduceData(index=i, records=r) for i, r in sent),
    )
    request = ProduceRequest(
        acks=int(str(values["acks"])),
        timeout_ms=9,
        topic_data=(topic,) * int(str(values["topics"])),
    )
    parts = encode_produce_request(version, correlation_id, str(values["client"]), request)
    return memoryview(bytearray(b"".join(parts)))


def decoded(version: int, frame: memoryview) -> ProduceRequest:
    return decode_produce_request(version, frame[decode_request_header(frame)[1] :])


def shape_of(version: int, frame: memoryview) -> ProduceShape | None:
    return ProduceShape.of(version, frame, decoded(version, frame))


@pytest.mark.parametrize("version", SHAPED)
@given(first=SENT, second=SENT, correlation_id=INT32)
def test_a_request_of_the_same_shape_gives_its_batches_as_views(
    version: int,
    first: list[tuple[int, bytes]],
    second: list[tuple[int, bytes]],
    correlation_id: int,
) -> None:
    shape = shape_of(version, frame_of(version, first))
    assert shape is not None
    frame = frame_of(version, second, correlation_id=correlation_id)
    found = shape.match(frame)
    assert found == (correlation_id, second)
    assert all(records.obj is frame.obj for _, records in found[1])


@pytest.mark.parametrize("version", SHAPED)
@given(
    taken=st.lists(st.tuples(INT32, st.just(0), INT64, INT64, INT64), min_size=1, max_size=5),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_the_answer_has_the_bytes_of_the_codec(
    version: int, taken: list[TakenPart], correlation_id: int
) -> None:
    frame = frame_of(version, ONE)
    (topic,) = decoded(version, frame).topic_data
    parts = tuple(
        PartitionProduceResponse(
            index=index, base_offset=base, log_append_time_ms=when, log_start_offset=start
        )
        for index, _, base, when, start in taken
    )
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=parts
            ),
        )
    )
    shape = shape_of(version, frame)
    assert shape is not None
    expected = encode_produce_response(version, correlation_id, response)
    assert shape.answer(correlation_id, taken) == expected


@pytest.mark.parametrize("version", [8, MAX_VERSION])
def test_hundreds_of_partitions_have_a_longer_number(version: int) -> None:
    sent = [(number, b"%d" % number) for number in range(300)]
    frame = frame_of(version, sent)
    shape = shape_of(version, frame_of(version, ONE))
    assert shape is not None
    assert shape.match(frame) == (1, sent)
    taken = [(number, 0, 1, 2, 3) for number in range(300)]
    (answered,) = decode_response(ProduceResponse, version, shape.answer(7, taken))[1].responses
    assert [part.index for part in answered.partition_responses] == list(range(300))


@pytest.mark.parametrize("version", SHAPED)
def test_any_other_difference_is_another_shape(version: int) -> None:
    shape = shape_of(version, frame_of(version, ONE))
    assert shape is not None
    topic = {"topic_id": UUID(int=4)} if version >= 13 else {"name": "u"}
    others = [topic, {"client": "you"}, {"acks": -1}, {"topics": 2}]
    assert [shape.match(frame_of(version, ONE, **other)) for other in others] == [None] * 4
    near = version - 1 if version > FIRST_SHAPED else version + 1
    assert shape.match(frame_of(near, ONE)) is None


@pytest.mark.parametrize("version", SHAPED)
@given(cut=st.integers(1, 500), more=st.binary(min_size=1, max_size=4))
def test_a_frame_that_was_cut_off_or_goes_on_does_not_match(
    version: int, cut: int, more: bytes
) -> None:
    frame = frame_of(version, [(2, b"records" * 30), (3, b"more" * 30)])
    shape = shape_of(version, frame)
    assert shape is not None
    assert shape.match(frame[: -min(cut, len(frame))]) is None
    assert shape.match(memoryview(bytes(frame) + more)) is None


@given(frame=st.binary(max_size=100), version=st.sampled_from(SHAPED))
def test_random_bytes_do_not_match(frame: bytes, version: int) -> None:
    shape = shape_of(version, frame_of(version, ONE))
    assert shape is not None
    assert shape.match(memoryview(frame)) is None


@pytest.mark.parametrize("version", SHAPED)
def test_requests_that_have_no_shape(version: int) -> None:
    assert shape_of(version, frame_of(version, [(2, None)])) is None
    assert shape_of(version, frame_of(version, [(2, b"records"), (3, None)])) is None
    assert shape_of(version, frame_of(version, ONE, topics=2)) is None
    assert shape_of(version, frame_of(version, [])) is None


@pytest.mark.parametrize("version", SHAPED)
def test_a_batch_that_is_missing_is_no_match(version: int) -> None:
    shape = shape_of(version, frame_of(version, ONE))
    assert shape is not None
    assert shape.match(frame_of(version, [(2, b"records"), (3, None)])) is None
    assert shape.match(frame_of(version, [])) is None


@pytest.mark.parametrize("version", range(MIN_VERSION, FIRST_SHAPED))
def test_old_versions_have_no_shape(version: int) -> None:
    assert shape_of(version, frame_of(version, ONE)) is None


def test_unknown_tagged_fields_have_no_shape() -> None:
    plain = bytes(frame_of(9, ONE))
    tagged = memoryview(plain[:-1] + b"\x01\x63\x02hi")
    assert decoded(9, tagged) == decoded(9, memoryview(plain))
    assert shape_of(9, tagged) is None
