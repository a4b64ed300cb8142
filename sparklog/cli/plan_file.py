"""Reassignment plans as JSON, in the format of Kafka's ``kafka-reassign-partitions``.

Owns: the format: ``{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}``.  Must not
know where a plan comes from.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, TopicPartition

#: The largest number of characters of a plan that an error shows.
SHOWN_MAX = 200
#: A topic's name is a string of the protocol.  The cluster decides which names are legal.
TOPIC_BYTES_MAX = 2**15 - 1


def write_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return a plan as one line of JSON."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def read_plan(data: str | bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse a plan.  Raises ConfigError with the place of the error."""
    try:
        document = json.loads(data)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the plan is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except RecursionError:
        raise ConfigError("the plan is not JSON of a plan: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"the plan is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ConfigError('the plan has no "partitions"')
    if document.get("version", 1) != 1:
        raise ConfigError(f"the plan is of version {_shown(document['version'])}, 1 is known here")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in document["partitions"]:
        tp, replicas = _read_row(row)
        if tp in plan:
            raise ConfigError(f"the plan names {tp} twice")
        plan[tp] = replicas
    return plan


def _read_row(row: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise ConfigError(f"{_shown(row)} in the plan is not a partition")
    topic, partition, replicas = (row.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not _is_number(partition):
        raise ConfigError(f"{_shown(row)} in the plan lacks a topic or a partition")
    if len(topic.encode(errors="replace")) > TOPIC_BYTES_MAX or not topic.isprintable():
        raise ConfigError(f"{_shown(topic)} in the plan is not the name of a topic")
    if not isinstance(replicas, list) or not all(map(_is_number, replicas)):
        raise ConfigError(f"{topic}-{partition} in the plan has no list of broker ids as replicas")
    return TopicPartition(topic, partition), tuple(replicas)


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether a value of JSON can be a partition's number or a broker's id."""
    return type(value) is int and 0 <= value <= MAX_INT32


def _shown(value: Any) -> str:
    """A value as it stood in the plan, cut after ``SHOWN_MAX`` characters."""
    try:
        text = json.dumps(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return "something"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
