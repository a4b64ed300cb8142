"""Two members of a consumer group share a topic; when one leaves, the other takes over.

Give the address of any Kafka-compatible cluster with group coordinators:
``python examples/consumer_group.py HOST:PORT``.
"""

import sys
import uuid

import sparklog
from sparklog.client.blocking import BlockingClient
from sparklog.types import TopicPartition

ORDERS = 40


class Announcer(sparklog.RebalanceListener):
    """Says which partitions a member gets and gives up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        print(f"{self.name} gets {len(partitions)} partitions")

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        print(f"{self.name} gives up {len(partitions)} partitions")


def send(client: BlockingClient, topic: str, first: int) -> None:
    with client.producer() as producer:
        for number in range(first, first + ORDERS):
            producer.send(topic, b"order %d" % number, key=b"customer-%d" % (number % 8))


def main(bootstrap: str) -> None:
    topic = group = f"orders-{uuid.uuid4().hex[:8]}"
    settings = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": ["cooperative-sticky"],
        "heartbeat_interval_ms": 500,
        "enable_auto_commit": False,
    }
    with BlockingClient(bootstrap) as client:
        client.admin.create_topic(topic, 4)
        client.admin.await_serving(topic)
        send(client, topic, 0)
        with sparklog.Consumer(bootstrap, **settings) as anna:
            anna.subscribe([topic], listener=Announcer("anna"))
            with sparklog.Consumer(bootstrap, **settings) as ben:
                ben.subscribe([topic], listener=Announcer("ben"))
                done: set[tuple[int, int]] = set()
                while len(done) < ORDERS or not len(anna.assignment) == len(ben.assignment) == 2:
                    for member in (anna, ben):
                        records = member.poll(0.1)
                        done |= {(record.partition, record.offset) for record in records}
                        if records:
                            member.commit()
                print(f"anna and ben share the partitions and have done {len(done)} orders")

            # Ben has left: anna goes on where he has committed.
            send(client, topic, ORDERS)
            rows = 0
            while rows < ORDERS:
                batch = anna.poll_arrow(1.0)  # a pyarrow.RecordBatch
                rows += batch.num_rows
            anna.commit()
            print(f"anna alone has done {rows} more")


if __name__ == "__main__":
    main(sys.argv[1])
