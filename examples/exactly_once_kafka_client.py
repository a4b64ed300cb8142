"""Consume, transform and produce in transactions, with an ordinary Kafka client (librdkafka).

``python examples/exactly_once_kafka_client.py BOOTSTRAP`` on a running cluster.
"""

import sys
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP, ORDERS, RUN = {"bootstrap.servers": sys.argv[1]}, 100, uuid.uuid4().hex[:8]
ORDERED, TOTALS = f"orders-{RUN}", f"totals-{RUN}"


def consumer(group: str, topic: str) -> Consumer:
    """Records of committed transactions only; the transactions commit the offsets."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    made = Consumer({**BOOTSTRAP, **settings, "isolation.level": "read_committed"})
    made.subscribe([topic])
    return made


def work(orders_max: int, *, fails: bool = False) -> None:
    """The transactional id outlives the worker: the next one aborts what this one leaves open."""
    reader = consumer(ORDERED, ORDERED)
    producer = Producer({**BOOTSTRAP, "transactional.id": f"worker-{RUN}"})
    producer.init_transactions()
    done = 0
    while done < orders_max and (orders := reader.consume(20, timeout=10)):
        producer.begin_transaction()
        for order in orders:
            producer.produce(TOTALS, b"%d" % (3 * int(order.value())), order.key())
        ends = {order.partition(): order.offset() + 1 for order in orders}
        offsets = [TopicPartition(ORDERED, *place) for place in ends.items()]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata())
        if fails:
            producer.flush()
            break  # with an open transaction, whose totals nobody sees
        producer.commit_transaction()
        done += len(orders)
    reader.close()
    print("the worker", "fails" if fails else f"did {done} orders")


admin = AdminClient(BOOTSTRAP)
for created in admin.create_topics([NewTopic(ORDERED, 2), NewTopic(TOTALS, 2)]).values():
    created.result()
plain = Producer(BOOTSTRAP)
for number in range(ORDERS):
    plain.produce(ORDERED, b"%d" % number, b"customer-%d" % (number % 8))
plain.flush()
work(ORDERS, fails=True)
work(ORDERS)
totals = consumer(TOTALS, TOTALS)
found = sorted(int(message.value()) for message in totals.consume(ORDERS + 1, timeout=10))
totals.close()
once = found == [3 * number for number in range(ORDERS)]
print(len(found), "totals:", "each order counts once" if once else "some are wrong")
