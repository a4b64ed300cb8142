"""Two answers to one request, as values, and every field in which they differ.

Owns: what of an answer is not compared because it cannot be the same: ids, ports, times, the words
of an error.  Must not know which differences are meant; those are in ``deviations.py``.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

#: What names an item of a list; such lists have no order that a client could rely on.
KEYS = (
    "api_key",
    "key",
    "topic",
    "name",
    "partition_index",
    "index",
    "partition",
    "node_id",
    "broker_id",
)
#: Fields that hold the clock of the node, or something made up by it.
TIMES = ("log_append_time_ms",)
PORTS = ("port", "host")
MADE_UP = ("cluster_id", "log_dir")
#: What is left of the disk that both share, which others write to.
SPACE = ("total_bytes", "usable_bytes")
#: Lists that are sets: Kafka's are in the order of a hash set once they have changed.
SETS = ("isr_nodes", "isr", "eligible_leader_replicas", "offline_replicas")
CLOCK_MS_MAX = 3_600_000
MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """``path`` is like ``topics[t].partitions[0].error_code``."""

    path: str
    kafka: Any
    ours: Any


def plain(value: Any, names: Mapping[UUID, str]) -> Any:
    """A message as dicts, lists and scalars; topic ids by the names that they were given."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _field(field.name, plain(getattr(value, field.name), names))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, UUID):
        return f"id of {names.get(value, 'nothing known')}"
    if isinstance(value, tuple | list):
        return _keyed([plain(item, names) for item in value])
    if isinstance(value, memoryview | bytes):
        return bytes(value)
    if hasattr(value, "read") and hasattr(value, "release"):
        return bytes(value.read())
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in dict.fromkeys([*kafka, *ours]):
            inner = name if name.startswith("[") else f".{name}"
            yield from differences(
                kafka.get(name, MISSING), ours.get(name, MISSING), (path + inner).lstrip(".")
            )
    elif path.endswith("error_message"):
        if kafka and not ours:  # ours may say more than Kafka does, and says it in other words
            yield Difference(path=path, kafka=kafka, ours=ours)
    elif kafka != ours:
        yield Difference(path=path, kafka=kafka, ours=ours)


def _field(name: str, value: Any) -> Any:
    if name in TIMES and isinstance(value, int) and value > 0:
        away = abs(value - time.time() * 1000)
        return "now" if away < CLOCK_MS_MAX else value
    if name in SETS and isinstance(value, dict):
        return {"[*]": sorted(value["[*]"])}
    if name in PORTS and value and value not in (-1, 0):
        return f"a {name}"
    if (name in MADE_UP and value) or (name in SPACE and value > 0):
        return f"a {name}"
    return value


def _keyed(items: list[Any]) -> Any:
    """A list of things that have names, by those; others in their order."""
    if not items or not isinstance(items[0], dict):
        return items if not items else {"[*]": items}
    items = _joined(items)
    keys = [f"[{_key(item) or number}]" for number, item in enumerate(items)]
    if len(set(keys)) < len(keys):
        keys = [f"{key[:-1]}#{keys[:number].count(key)}]" for number, key in enumerate(keys)]
    return dict(zip(keys, items, strict=True))


def _joined(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Topics that stand in an answer several times, each with some of their partitions, as one."""
    joined: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(items):
        name = _key(item) if isinstance(item.get("partitions"), dict) else str(number)
        if name in joined:
            item = {**item, "partitions": joined[name]["partitions"] | item["partitions"]}
        joined[name] = item
    return list(joined.values())


def _key(item: dict[str, Any]) -> str:
    found = [str(item[key]) for key in KEYS if item.get(key) not in (None, "")]
    if not found and "topic_id" in item:
        found = [str(item["topic_id"])]
    if "source" in item:  # of a setting's value, which may be given several times
        return f"{found[0]} from {item['source']}"
    return found[0] if found else ""
