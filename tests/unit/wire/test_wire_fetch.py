"""Fetch responses in every version: kio's bytes around records that are never read."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from sparklog.wire.protocol.codec import encode_response
from sparklog.wire.protocol.fetch import (
    MAX_VERSION,
    MIN_VERSION,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    decode_fetch_response,
    encode_fetch_response,
    parts_size,
    records_view,
)
from sparklog.wire.protocol.messages.fetch import EpochEndOffset
from tests.unit.wire.kio_bridge import EXAMPLES, kio_decode, kio_encode, kio_type, to_kio, values

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
SETTINGS = settings(
    max_examples=EXAMPLES * 5, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@dataclass(frozen=True)
class FileRange:
    """A file region, as returned by storage backends."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.content if isinstance(part, FileRange) else bytes(part) for part in parts)


def in_files(response: FetchResponse) -> FetchResponse:
    """The same response with all its records still in files."""
    topics = []
    for topic in response.responses:
        partitions = []
        for partition in topic.partitions:
            records = partition.records
            if records is not None:
                records = FileRange(bytes(records_view(records)))
            partitions.append(replace(partition, records=records))
        topics.append(replace(topic, partitions=tuple(partitions)))
    return replace(response, responses=tuple(topics))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_has_the_same_bytes_as_with_kio(version: int) -> None:
    schema = kio_type(FetchResponse, version)

    @SETTINGS
    @given(values(FetchResponse, schema, version))
    def check(response: FetchResponse) -> None:
        parts = encode_fetch_response(version, 7, response)
        payload = joined(parts)
        assert parts_size(parts) == len(payload)
        body = payload[4 if version < 12 else 5 :]
        assert body == kio_encode(response, version)
        assert kio_decode(FetchResponse, version, body) == to_kio(response, schema)
        assert payload == encode_response(FetchResponse, version, response, 7)
        assert decode_fetch_response(version, payload) == (7, response)
        from_files = encode_fetch_response(version, 7, in_files(response))
        assert joined(from_files) == payload
        assert parts_size(from_files) == len(payload)

    check()


def one_topic(*records: Any, **fields: Any) -> FetchResponse:
    partitions = tuple(
        PartitionData(partition_index=index, high_watermark=9, records=found, **fields)
        for index, found in enumerate(records)
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=partitions),))


@pytest.mark.parametrize("version", [4, 11, 12])
def test_regions_are_put_between_the_bytes_untouched(version: int) -> None:
    first, second = FileRange(b"a" * 70_000), FileRange(b"b" * 5)
    parts = encode_fetch_response(version, 1, one_topic(first, second))
    assert [part for part in parts if isinstance(part, FileRange)] == [first, second]
    assert parts[1] is first
    assert parts[3] is second


@pytest.mark.parametrize("version", [4, 12])
def test_small_records_in_memory_share_parts_of_limited_size(version: int) -> None:
    records = [bytes([number]) * 1000 for number in range(100)]
    parts = encode_fetch_response(version, 1, one_topic(*records))
    assert len(parts) < 20
    assert max(map(len, parts)) < 24 * 1024
    assert decode_fetch_response(version, joined(parts))[1] == one_topic(*records)


def test_large_records_in_memory_are_not_copied() -> None:
    large = b"a" * 5000
    parts = encode_fetch_response(12, 1, one_topic(b"small", large, b"small"))
    assert parts[1] is large
    assert len(parts) == 3


def test_an_empty_region_is_left_out() -> None:
    parts = encode_fetch_response(11, 1, one_topic(FileRange(b"")))
    assert len(parts) == 1
    response = decode_fetch_response(11, joined(parts))[1]
    assert response == one_topic(b"")


def test_a_response_without_records_is_one_part() -> None:
    parts = encode_fetch_response(12, 1, one_topic(None, None))
    assert len(parts) == 1


@pytest.mark.parametrize("version", [4, 12])
def test_decoded_records_are_views_of_the_payload(version: int) -> None:
    payload = bytearray(joined(encode_fetch_response(version, 1, one_topic(b"records"))))
    response = decode_fetch_response(version, payload)[1]
    records = records_view(response.responses[0].partitions[0].records)
    assert records == b"records"
    records[:1] = b"R"
    assert b"Records" in payload


def test_null_records_are_an_empty_view() -> None:
    assert records_view(None) == b""


@pytest.mark.parametrize("version", [4, 12])
def test_aborted_transactions_may_be_null_empty_or_many(version: int) -> None:
    transaction = AbortedTransaction(producer_id=5, first_offset=6)
    for aborted in (None, (), (transaction,), (transaction,) * 200):
        response = one_topic(b"r", aborted_transactions=aborted)
        payload = joined(encode_fetch_response(version, 1, response))
        assert decode_fetch_response(version, payload) == (1, response)


def test_a_default_that_is_another_object_is_still_left_out() -> None:
    plain = encode_fetch_response(12, 1, one_topic(b"r"))
    same = encode_fetch_response(12, 1, one_topic(b"r", diverging_epoch=EpochEndOffset()))
    assert joined(same) == joined(plain)
