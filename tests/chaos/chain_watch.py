"""What a chain of consume, transform and produce has to leave behind.

Owns: reading the committed output, and the questions about open transactions.  Must not know the
members of a chain, nor what was done to the cluster.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place

from sparklog.client.blocking import BlockingClient
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from tests.chaos.chain_member import OUTPUT, OUTPUT_PARTITIONS, TRANSACTION_TIMEOUT_MS, output_of
from tests.chaos.chaos_clients import LOOK_SECONDS, PASSING, Load
from tests.simulation.events import LogId

READ_S_MAX = 120.0
#: What a killed member left open is aborted within its timeout, and the markers are written.
SETTLED_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 30.0
LOOK_S = 0.3
DONE_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


def unsettled(bootstrap: str) -> list[str]:
    """Wait until no transaction is open.  Returns what is still open after ``SETTLED_S_MAX``."""
    end = time.monotonic() + SETTLED_S_MAX
    with BlockingClient(bootstrap) as client:
        while (found := _open_in(client)) and time.monotonic() < end:
            time.sleep(LOOK_S)
    return found


def _open_in(client: BlockingClient) -> list[str]:
    wanted = dict.fromkeys(
        (TopicPartition(OUTPUT, number) for number in range(OUTPUT_PARTITIONS)),
        int(OffsetSpec.LATEST),
    )
    stable = client.list_offsets(wanted, isolation=Isolation.READ_COMMITTED)
    ends = client.list_offsets(wanted, isolation=Isolation.READ_UNCOMMITTED)
    return [
        *(
            f"the last stable offset of {tp} is {stable[tp].offset}, its end {ends[tp].offset}"
            for tp in wanted
            if stable[tp].offset != ends[tp].offset
        ),
        *(
            f"{name} is {listed.state}"
            for name, listed in client.admin.list_transactions().items()
            if listed.state not in DONE_STATES
        ),
        *(
            f"producer {hanging.producer.producer_id} hangs in {hanging.topic_partition}"
            for hanging in client.admin.find_hanging_transactions([OUTPUT], max_timeout_ms=0)
        ),
    ]


def read_output(load: Load) -> list[bytes]:
    """The committed records of the output, in no order."""
    consumer = Consumer(
        {
            **load.client_settings("chain-reader"),
            "group.id": "chain-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([Place(OUTPUT, number, 0) for number in range(OUTPUT_PARTITIONS)])
    found: list[bytes] = []
    ended: set[int | None] = set()
    end = time.monotonic() + READ_S_MAX
    while len(ended) < OUTPUT_PARTITIONS and time.monotonic() < end:
        message = consumer.poll(LOOK_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        elif error.code() not in PASSING:
            load.complaints.append(f"chain-reader: {error}")
    consumer.close()
    if len(ended) < OUTPUT_PARTITIONS:
        load.complaints.append(f"chain-reader: the output was not read in {READ_S_MAX} s")
    return found


def verdict(ends: Mapping[LogId, int], outputs: Iterable[bytes]) -> list[str]:
    """Each input record below the ends has one output, and there is no other output."""
    counts = Counter(outputs)
    found: list[str] = []
    for log, end in ends.items():
        wrong = {
            offset: count
            for offset in range(end)
            if (count := counts.pop(output_of(log, offset), 0)) != 1
        }
        if wrong:
            offset, count = next(iter(wrong.items()))
            found.append(
                f"offset {offset} of {log} has {count} outputs, and {len(wrong) - 1} other offsets "
                "have a wrong number"
            )
    if counts:
        found.append(f"{len(counts)} outputs of no input, as {next(iter(counts))!r}")
    return found
