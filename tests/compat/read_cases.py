"""What is read both ways: options, and what comes of them.

Owns: the table.  Must not know how it is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any

from tests.compat.compat_topics import (
    DELETED,
    EMPTY,
    HALF_EMPTY,
    MIXED,
    NUMBERS,
    NUMBS,
    SHUFFLED,
    STAMPED,
    TRANSACTIONS,
)

#: Longer than anything that is waited for, except by those cases that wait in vain.
PATIENCE = {"kafkaConsumer.pollTimeoutMs": "20000"}
#: Of those: as long as it takes to find what is there.
SHORT_PATIENCE = {"kafkaConsumer__pollTimeoutMs": "4000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """``rows`` come of it; or it ``fails``, and our message holds that (a regular expression).

    ``kafka`` is what the other one's message holds, where it does not name the option.
    """

    name: str
    options: Mapping[str, str]
    rows: int = 0
    fails: str | None = None
    kafka: str | None = None


def _rows(name: str, rows: int, topic: str | None = NUMBERS, **options: Any) -> Read:
    return Read(name=name, rows=rows, options=_options(topic, options))


def _fails(
    name: str, says: str, topic: str | None = NUMBERS, kafka: str | None = None, **options: Any
) -> Read:
    return Read(name=name, fails=says, kafka=kafka or says, options=_options(topic, options))


def _options(topic: str | None, given: Mapping[str, Any]) -> dict[str, str]:
    """Double underscores stand for dots, what is no text is JSON."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    texts = {
        name: value if isinstance(value, str) else dumps(value) for name, value in named.items()
    }
    return {**({"subscribe": topic} if topic else {}), **PATIENCE, **texts}


def _each(value: int, **others: int) -> dict[str, dict[str, int]]:
    """The value for every partition of ``NUMBERS``; ``p1=7`` is another one for partition 1."""
    return {NUMBERS: {str(n): others.get(f"p{n}", value) for n in range(3)}}


CASES: tuple[Read, ...] = (
    # what is selected
    _rows("one topic", 30),
    _rows("several topics", 33, f"{NUMBERS}, {NUMBS}"),
    _rows("the same topic twice", 30, f"{NUMBERS},{NUMBERS}"),
    _rows("assigned partitions", 20, None, assign={NUMBERS: [2, 0]}),
    _rows("assigned partitions of two topics", 13, None, assign={NUMBERS: [1], NUMBS: [0]}),
    _rows("a pattern", 33, None, subscribePattern="numb.*"),
    _rows("a pattern that fits a part of a name", 30, None, subscribePattern="umber"),
    _rows("a pattern of Java", 33, None, subscribePattern="numb(?:ers|s)"),
    _rows("a pattern that nothing fits", 0, None, subscribePattern="no-such.*"),
    _rows("names of options in other letters", 30, None, SUBSCRIBE=NUMBERS),
    _fails("nothing selected", "subscribe", None),
    _fails("two ways to select", "subscribe", assign={NUMBERS: [0]}),
    _fails("a pattern beside a list", "subscribe", subscribePattern="a"),
    _fails("a list of nothing", "subscribe", " , "),
    _fails("a pattern of nothing", "subscribePattern", None, subscribePattern=" "),
    _fails("an assignment that is no JSON", "assign", None, assign="numbers"),
    _rows("an assignment of nothing", 0, None, assign={}),
    _fails("a topic that is not there", "no-such-topic", "no-such-topic", kafka="UnknownTopic"),
    _rows("a partition that is not there", 10, None, assign={NUMBERS: [0, 7]}),
    _fails("no cluster", "bootstrap.servers", kafka__bootstrap__servers=""),
    _fails(
        "nobody there",
        "reached",
        kafka="TimeoutException",
        kafka__bootstrap__servers="127.0.0.1:1",
        kafka__default__api__timeout__ms="500",
        kafka__request__timeout__ms="500",
        kafkaConsumer__pollTimeoutMs="500",
        fetchOffset__numRetries="1",
    ),
    # where it starts
    _rows("words in other letters", 30, startingOffsets="EARLIEST", endingOffsets="Latest"),
    _rows("from offsets", 30 - 12, startingOffsets=_each(4)),
    _rows("from offsets and the earliest", 27, startingOffsets=_each(-2, p1=3)),
    _rows("from the end", 10, startingOffsets=_each(10, p2=0)),
    _fails("from the latest", "starting", startingOffsets="latest"),
    _fails("from the latest of a partition", "latest", startingOffsets=_each(-1)),
    _fails(
        "from offsets of some partitions",
        "startingOffsets",
        kafka="start offsets",
        startingOffsets={NUMBERS: {"0": 1}},
    ),
    _fails("from offsets of others", "numbs-0", startingOffsets={**_each(1), NUMBS: {"0": 1}}),
    _fails(
        "from below the first offset",
        "startingOffsets",
        kafka="earliest offset -3",
        startingOffsets=_each(-3),
    ),
    _fails(
        "from where it is not yet",
        "offset",
        startingOffsets=_each(12),
        **SHORT_PATIENCE,
    ),
    _fails("from a word", "startingOffsets", kafka="middle", startingOffsets="middle"),
    # where it ends
    _rows("to offsets", 12, endingOffsets=_each(4)),
    _rows("to offsets and the latest", 18, endingOffsets=_each(4, p0=-1)),
    _rows("from offsets to offsets", 6, startingOffsets=_each(2), endingOffsets=_each(4)),
    _rows("from and to the same", 0, startingOffsets=_each(4), endingOffsets=_each(4)),
    _fails("to the earliest", "ending", endingOffsets="earliest"),
    _fails("to the earliest of a partition", "earliest", endingOffsets=_each(-2)),
    _fails(
        "to where it is not yet",
        "offset",
        endingOffsets=_each(12),
        **SHORT_PATIENCE,
    ),
    _fails("back to before the start", "offset", startingOffsets=_each(4), endingOffsets=_each(2)),
    # by time
    _rows("from a time", 15, startingTimestamp="5000"),
    _rows("from a time between records", 14, startingTimestamp="5001"),
    _rows("to a time", 15, endingTimestamp="5000"),
    _rows("from a time to a time", 9, startingTimestamp="2000", endingTimestamp="5000"),
    _rows("from times", 19, startingOffsetsByTimestamp=_each(5000, p1=1000)),
    _rows("to times", 11, endingOffsetsByTimestamp=_each(5000, p1=1000)),
    _rows("to a time that nothing reaches", 30, endingTimestamp="99999999"),
    _rows("to times that nothing reaches", 30, endingOffsetsByTimestamp=_each(99999999)),
    _rows("from a time among times in no order", 3, SHUFFLED, startingTimestamp="6000"),
    _rows("to a time among times in no order", 2, SHUFFLED, endingTimestamp="6000"),
    _fails(
        "from a time that nothing reaches",
        "startingTimestamp 99999999",
        kafka="99999999",
        startingTimestamp="99999999",
    ),
    _fails(
        "the same, strategy error",
        "99999999",
        startingTimestamp="99999999",
        startingOffsetsByTimestampStrategy="error",
    ),
    _rows(
        "the same, strategy latest",
        0,
        startingTimestamp="99999999",
        startingOffsetsByTimestampStrategy="latest",
    ),
    _rows(
        "the same for one partition",
        18,
        startingOffsetsByTimestamp=_each(1000, p0=99999999),
        startingOffsetsByTimestampStrategy="LATEST",
    ),
    _fails(
        "a strategy that is none",
        "startingOffsetsByTimestampStrategy",
        kafka="EARLIEST",
        startingTimestamp="1",
        startingOffsetsByTimestampStrategy="earliest",
    ),
    _fails(
        "from times of some partitions",
        "startingOffsetsByTimestamp",
        kafka="timestamp based start offsets",
        startingOffsetsByTimestamp={NUMBERS: {"0": 1}},
    ),
    _fails(
        "to times of some partitions",
        "endingOffsetsByTimestamp",
        kafka="timestamp based end offsets",
        endingOffsetsByTimestamp={NUMBERS: {"0": 1}},
    ),
    _rows("from before all time", 0, startingTimestamp="-1"),
    _fails("from no time", "startingTimestamp", kafka="yesterday", startingTimestamp="yesterday"),
    _fails("to no time", "endingTimestamp", kafka="got now", endingTimestamp="now"),
    _fails(
        "from times that are no JSON",
        "startingOffsetsByTimestamp",
        kafka="got 1000",
        startingOffsetsByTimestamp="1000",
    ),
    # what beats what
    _rows("a time beats times", 15, startingTimestamp="5000", startingOffsetsByTimestamp=_each(0)),
    _rows(
        "times beat offsets", 15, startingOffsetsByTimestamp=_each(5000), startingOffsets=_each(0)
    ),
    _rows("a time hides a word", 15, startingTimestamp="5000", startingOffsets="latest"),
    _rows(
        "an end beats ends",
        15,
        endingTimestamp="5000",
        endingOffsetsByTimestamp=_each(0),
        endingOffsets="earliest",
    ),
    _rows(
        "ends by time beat ends", 15, endingOffsetsByTimestamp=_each(5000), endingOffsets=_each(1)
    ),
    _fails(
        "from a time to an earlier one", "offset", startingTimestamp="5000", endingTimestamp="3000"
    ),
    # how many tasks
    _rows("at least two tasks", 30, minPartitions="2"),
    _rows("at least seven tasks", 30, minPartitions="7"),
    _rows("more tasks than records", 3, NUMBS, minPartitions="5"),
    _rows("few records for a task", 30, maxRecordsPerPartition="4"),
    _rows("both", 30, minPartitions="4", maxRecordsPerPartition="5"),
    _fails("no tasks", "minPartitions", minPartitions="0"),
    _fails("a word for a number of tasks", "minPartitions", kafka="many", minPartitions="many"),
    _fails("no records for a task", "maxRecordsPerPartition", maxRecordsPerPartition="0"),
    # what is in the records
    _rows("nulls", 6, MIXED),
    _rows("headers", 6, MIXED, includeHeaders="true"),
    _rows("headers in other letters", 6, MIXED, includeHeaders="TRUE"),
    _fails("headers perhaps", "includeHeaders", MIXED, kafka="perhaps", includeHeaders="perhaps"),
    _rows("times of appending", 3, STAMPED),
    _rows("an empty partition", 3, HALF_EMPTY),
    _rows("an empty topic", 0, EMPTY),
    # what is gone
    _rows("what is left", 6, DELETED),
    _rows("from where nothing is lost", 4, DELETED, startingOffsets={DELETED: {"0": 6, "1": 10}}),
    _fails("from what is lost", "offset", DELETED, startingOffsets={DELETED: {"0": 0, "1": 10}}),
    _fails(
        "the same, and told so",
        "offset",
        DELETED,
        startingOffsets={DELETED: {"0": 0, "1": 10}},
        failOnDataLoss="true",
    ),
    _rows(
        "the same, and no matter",
        6,
        DELETED,
        startingOffsets={DELETED: {"0": 0, "1": 10}},
        failOnDataLoss="false",
    ),
    _rows(
        "everything is lost, no matter",
        0,
        DELETED,
        startingOffsets={DELETED: {"0": 0, "1": 0}},
        endingOffsets={DELETED: {"0": 3, "1": 10}},
        failOnDataLoss="false",
    ),
    _rows(
        "to where it is not yet, no matter",
        30,
        endingOffsets=_each(12),
        failOnDataLoss="false",
        **SHORT_PATIENCE,
    ),
    _fails("perhaps no matter", "failOnDataLoss", kafka="perhaps", failOnDataLoss="perhaps"),
    # transactions
    _rows("what is committed", 4, TRANSACTIONS, kafka__isolation__level="read_committed"),
    _rows(
        "what is not committed, too", 10, TRANSACTIONS, kafka__isolation__level="read_uncommitted"
    ),
    _rows("without a word about transactions", 10, TRANSACTIONS),
    _fails("some isolation", "isolation.level", kafka__isolation__level="some"),
    _rows(
        "from the middle of what was aborted",
        1,
        TRANSACTIONS,
        kafka__isolation__level="read_committed",
        startingOffsets={TRANSACTIONS: {"0": 5}},
    ),
    # options of the client, and of streams
    _fails("auto.offset.reset", "auto.offset.reset", kafka__auto__offset__reset="earliest"),
    _fails("key.deserializer", "key.deserializer", kafka__key__deserializer="a.B"),
    _fails("value.deserializer", "value.deserializer", kafka__value__deserializer="a.B"),
    _fails("enable.auto.commit", "enable.auto.commit", kafka__enable__auto__commit="true"),
    _fails("interceptor.classes", "interceptor.classes", kafka__interceptor__classes="a.B"),
    _rows("a group", 3, NUMBS, kafka__group__id="mine"),
    _rows("a prefix of groups", 3, NUMBS, groupIdPrefix="mine"),
    _rows(
        "settings of the client",
        3,
        NUMBS,
        kafka__client__id="me",
        kafka__fetch__max__bytes="100000",
        kafka__max__partition__fetch__bytes="50000",
        kafka__fetch__max__wait__ms="50",
        kafka__max__poll__records="1",
        kafka__receive__buffer__bytes="65536",
    ),
    _rows("retries", 3, NUMBS, fetchOffset__numRetries="1", fetchOffset__retryIntervalMs="10"),
    _fails(
        "retries as a word",
        "fetchOffset.numRetries",
        kafka="often",
        fetchOffset__numRetries="often",
    ),
    _rows(
        "limits of streams",
        3,
        NUMBS,
        maxOffsetsPerTrigger="1",
        minOffsetsPerTrigger="1",
        maxTriggerDelay="1s",
    ),
    _fails(
        "no number for a timeout",
        "pollTimeoutMs",
        kafka="soon",
        kafkaConsumer__pollTimeoutMs="soon",
    ),
    _rows("an option that nobody knows", 3, NUMBS, noSuchOption="1"),
    _rows("a setting that no client knows", 3, NUMBS, kafka__no__such__setting="1"),
)
