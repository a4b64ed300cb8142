"""Every decoder against its corpus, and against changes to it that Hypothesis thinks of.

``make fuzz SECONDS=N`` does the same for longer, guided by coverage.
"""

import sys
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.dataframe.options.options import parse_read_options
from sparklog.errors import ConfigError, DecodeError, KafkaError
from sparklog.executors.log.checkpoint import decode_epochs, decode_offsets
from sparklog.executors.log.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.segment_files.stats_file import STATS_HEADER_BYTES, decode_stats
from sparklog.types import Compression
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import CRC_START, check_batch, read_header
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import decode_columns
from sparklog.wire.records.compression import compress, decompress
from tests.fuzz.all_targets import TARGETS
from tests.fuzz.target import CORPUS, PEAK_BYTES_MAX

#: Of each decoder, when nobody asks for more.
EXAMPLES = 40


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_taken_or_refused_within_bounded_memory(name: str) -> None:
    target = TARGETS[name]
    corpus = target.corpus()
    for data in corpus:
        target.feed(data)  # what is loaded and compiled at first use is not the input's
    peaks = {data: target.feed_measured(data) for data in corpus}
    assert {data.hex(): peak for data, peak in peaks.items() if peak > PEAK_BYTES_MAX} == {}
    assert any(target.feed(data) for data in corpus)


def test_every_corpus_has_its_decoder() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)


@st.composite
def changed(draw: st.DrawFn, name: str) -> bytes:
    """An input of a corpus, some of whose bytes were replaced, removed or added."""
    data = bytearray(draw(st.sampled_from(TARGETS[name].corpus())))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 4))
        data[start:end] = draw(st.binary(max_size=6))
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_in_a_value_or_a_documented_error_comes_out(name: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(changed(name) | st.binary(max_size=200))
    def run(data: bytes) -> None:
        TARGETS[name].feed(data)

    run()


# -- damage that a checksum must show


@given(st.data())
def test_no_changed_byte_behind_the_crc_of_a_batch_is_taken(data: st.DataObject) -> None:
    records = [Record(key=b"key", value=b"value" * 9, timestamp=5)] * 3
    codec = data.draw(st.sampled_from(Compression))
    batch = bytearray(encode_batch(records, compression=codec))
    at = data.draw(st.integers(CRC_START - 4, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError):
        check_batch(batch, 0, read_header(batch))
    with pytest.raises(KafkaError):
        decode_records(batch)
    with pytest.raises(KafkaError):
        list(decode_columns(batch))


@given(st.data())
def test_no_changed_byte_of_a_snapshot_is_taken(data: st.DataObject) -> None:
    entry = ProducerSnapshotEntry(
        producer_id=7, producer_epoch=1, last_sequence=5, last_offset=9, offset_delta=2, timestamp=3
    )
    snapshot = bytearray(encode_snapshot([entry, entry]))
    snapshot[data.draw(st.integers(0, len(snapshot) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DecodeError):
        decode_snapshot(snapshot)


# -- what was found


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_number_of_many_digits_is_no_number(digits: int) -> None:
    with pytest.raises(DecodeError, match="cannot be read"):
        decode_epochs(b"0\n1\n0 " + b"9" * digits + b"\n")
    with pytest.raises(DecodeError, match="cannot be read"):
        decode_offsets(b"0\n" + b"9" * digits + b"\n")


def test_a_batch_that_compaction_emptied_is_empty_whatever_its_codec() -> None:
    for codec in Compression:
        plain = bytearray(encode_batch([], last_offset_delta=3))
        plain[22] = codec
        assert decode_records(plain, check_crc=False) == []
        assert list(decode_columns(plain, check_crc=False)) == []


@pytest.mark.parametrize(("at", "bits"), [(22, 0x20), (22, 0x10), (26, 0xFF), (35, 0x80)])
def test_damage_that_would_hide_a_batch_is_seen(at: int, bits: int) -> None:
    """Control and transactional bit, last offset, largest timestamp: each can leave a batch out."""
    batch = bytearray(encode_batch([Record(value=b"v", timestamp=5)] * 3, producer_id=1))
    batch[at] ^= bits
    aborted = (AbortedTransaction(producer_id=1, first_offset=0),)
    with pytest.raises(KafkaError, match="has CRC"):
        list(decode_columns(batch, start_offset=2, min_timestamp=5, aborted=aborted))


def test_statistics_of_no_intervals_are_read() -> None:
    (nothing,) = (data for data in TARGETS["stats"].seeds() if decode_stats(data, 0).ranges == [])
    count_at = STATS_HEADER_BYTES - 8
    fields = bytearray(nothing[10:])
    fields[count_at - 10 : count_at - 6] = b"\xff\xff\xff\xfb"
    damaged = nothing[:6] + crc32c(fields).to_bytes(4, "big") + fields
    with pytest.raises(DecodeError, match="say -5 intervals in 0 bytes"):
        decode_stats(damaged, 0)


def test_a_negative_number_of_records_is_refused() -> None:
    batch = bytearray(encode_batch([], last_offset_delta=3))
    batch[57:61] = b"\xff\xff\xff\xff"
    for attempt in (
        lambda: decode_records(batch, check_crc=False),
        lambda: list(decode_columns(batch, check_crc=False)),
    ):
        with pytest.raises(DecodeError, match="-1 records"):
            attempt()


def test_options_nested_without_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        parse_read_options({"assign": "[" * 200_000}, "127.0.0.1:9092")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_malformed_data_leaves_no_memory_behind(codec: Compression) -> None:
    """Arrow leaked the buffer of every read that failed: 64 KB of address space for each batch."""
    packed = bytes(compress(codec, b"hello world " * 20))[:-6]

    def feed(count: int) -> int:
        for _ in range(count):
            with pytest.raises(DecodeError):
                decompress(codec, packed)
        return int(Path("/proc/self/statm").read_text().split()[0])

    before = feed(200)
    assert (feed(2000) - before) * 4096 < 32 * 1024 * 1024
