"""What a reader got becomes history: partition by partition, from where it was."""

from dataclasses import dataclass
from uuid import UUID

from confluent_kafka import KafkaError

from tests.chaos.chaos_clients import Load, Reading
from tests.chaos.shared_history import SharedHistory
from tests.simulation.events import Consumed, LogId

ONE, TWO = (LogId("t", UUID(int=1), number) for number in (0, 1))


@dataclass
class Got:
    """A message, or an error, as librdkafka gives it."""

    number: int
    at: int
    code: int | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return b"%d/%d" % (self.number, self.at)


def test_a_gap_between_two_answers_is_seen_and_errors_of_a_dead_broker_are_not() -> None:
    load = Load(bootstrap="", logs=(ONE, TWO), history=SharedHistory())
    reading = Reading(load=load, name="r", places={("t", 0): (ONE, 0), ("t", 1): (TWO, 5)})
    reading.take(0, [Got(0, 0), Got(1, 5), Got(0, 1), Got(1, 0, KafkaError._TRANSPORT)])
    reading.take(2, [Got(0, 3)])
    reading.take(3, [Got(1, 6, KafkaError.OFFSET_OUT_OF_RANGE)])

    def read(asked: int, log: LogId, offset: int, *offsets: int) -> Consumed:
        records = tuple((at, b"%d/%d" % (log.partition, at)) for at in offsets)
        return Consumed(asked=asked, reader="r", log=log, offset=offset, records=records)

    assert load.history.events == [read(0, ONE, 0, 0, 1), read(0, TWO, 5, 5), read(2, ONE, 2, 3)]
    assert len(load.complaints) == 1
    assert "r: t-1 at 6" in load.complaints[0]
