"""Read orders, write their totals, and commit both together: each order counts once.

A worker that fails in the middle of a transaction leaves nothing behind, and the next worker reads
the same orders again.  Give the address of any Kafka-compatible cluster with transactions:
``python examples/exactly_once.py HOST:PORT``.
"""

import sys
import uuid

import sparklog
from sparklog.client.blocking import BlockingClient

ORDERS = 100
FAIL_AT = 40


class OutOfPaper(Exception):
    """The first worker fails in the middle of a transaction."""


def work(bootstrap: str, orders: str, totals: str, fail_at: int | None = None) -> int:
    """Consume, transform and produce until all orders are done; returns how many this worker did.

    The transactional id is the worker's name over its restarts: when it is started again, what its
    predecessor left open is aborted.
    """
    done = 0
    with (
        sparklog.Consumer(
            bootstrap,
            group_id=orders,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,  # the transaction commits the offsets
        ) as consumer,
        sparklog.Producer(bootstrap, transactional_id=f"{orders}-worker") as producer,
    ):
        producer.init_transactions()
        consumer.subscribe([orders])
        while records := consumer.poll(5.0, max_records=20):
            with producer.transaction():
                for record in records:
                    total = int(record.value or b"0") * 3
                    producer.send(totals, b"%d" % total, key=record.key)
                    if fail_at is not None and done + len(records) > fail_at:
                        raise OutOfPaper
                producer.send_offsets_to_transaction(
                    consumer.positions(), consumer.group_metadata()
                )
            done += len(records)
    return done


def read_all(bootstrap: str, topic: str) -> list[int]:
    """The committed values of a topic."""
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with sparklog.Consumer(bootstrap, **options) as reader:
        partitions = reader.partitions_for_topic(topic)
        reader.assign(partitions)
        found: list[int] = []
        while records := reader.poll(3.0):
            found += [int(record.value or b"") for record in records]
    return sorted(found)


def main(bootstrap: str) -> None:
    orders = f"orders-{uuid.uuid4().hex[:8]}"
    totals = f"totals-{orders}"
    with BlockingClient(bootstrap) as client:
        for topic in (orders, totals):
            client.admin.create_topic(topic, 2)
            client.admin.await_serving(topic)
        with client.producer() as producer:
            for number in range(ORDERS):
                producer.send(orders, b"%d" % number, key=b"customer-%d" % (number % 8))
    try:
        work(bootstrap, orders, totals, FAIL_AT)
    except OutOfPaper:
        print(f"the first worker failed after {len(read_all(bootstrap, totals))} orders")
    print(f"the second worker did {work(bootstrap, orders, totals)} orders")
    found = read_all(bootstrap, totals)
    once = found == [number * 3 for number in range(ORDERS)]
    print(f"{len(found)} totals, {'each order counts once' if once else 'some are wrong'}")


if __name__ == "__main__":
    main(sys.argv[1])
