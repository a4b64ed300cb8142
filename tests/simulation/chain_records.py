"""The output records of chains, each of which names its input record.

Owns: the text of an output.  Must not know transactions.
"""

from typing import NamedTuple

from sparklog.client.fetched_records import ConsumedRecord

_PREFIX = b"chained="


class Input(NamedTuple):
    """The place of an input record."""

    topic: str
    partition: int
    offset: int


def output_of(record: ConsumedRecord, transaction: int) -> bytes:
    """The value of the output of an input record in one transaction."""
    return output_text(Input(record.topic, record.partition, record.offset), transaction)


def output_text(place: Input, transaction: int) -> bytes:
    return _PREFIX + f"{place.topic}/{place.partition}/{place.offset}/{transaction}".encode()


def input_of(value: bytes | None) -> Input | None:
    """The place that an output names; None for any other record."""
    if value is None or not value.startswith(_PREFIX):
        return None
    topic, partition, offset, _ = value.removeprefix(_PREFIX).decode().split("/")
    return Input(topic, int(partition), int(offset))
