"""A topic through a Kafka client that knows nothing of Spark (pip install confluent-kafka).

Start a cluster with ``sparklog serve --data-dir DIR`` and give its address:
``python examples/kafka_client.py HOST:PORT``.
"""

import sys

from confluent_kafka import Consumer, Message, Producer, TopicPartition

TOPIC = "greetings"


def main(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for number in range(10):
        producer.produce(TOPIC, key=f"k{number}", value=f"hello {number}", on_delivery=_raise)
    producer.flush(30)

    # A reader alone: it takes the partition itself and commits nothing.
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    for message in consumer.consume(10, timeout=30):
        print(message.partition(), message.offset(), message.key(), message.value())
    consumer.close()


def _raise(error: object, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"{message.topic()}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
