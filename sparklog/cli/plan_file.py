"""The JSON in which Kafka's tools write which replicas partitions are to have.

Owns: its shape: ``{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}``.  Must not
know where it comes from.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.errors import ConfigError
from sparklog.types import TopicPartition


def write_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """A plan as one line."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def read_plan(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Raises ConfigError, which says what is wrong."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the plan is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ConfigError('the plan has no "partitions"')
    if document.get("version", 1) != 1:
        raise ConfigError(f"the plan is of version {document['version']}, 1 is known here")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in document["partitions"]:
        tp, replicas = _read_row(row)
        if tp in plan:
            raise ConfigError(f"the plan names {tp} twice")
        plan[tp] = replicas
    return plan


def _read_row(row: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise ConfigError(f"{row!r} in the plan is not a partition")
    topic, partition, replicas = (row.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise ConfigError(f"{json.dumps(row)} in the plan lacks a topic or a partition")
    if not isinstance(replicas, list) or not all(isinstance(each, int) for each in replicas):
        raise ConfigError(f"{topic}-{partition} in the plan has no list of broker ids as replicas")
    return TopicPartition(topic, partition), tuple(replicas)
