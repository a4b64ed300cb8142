"""Texts of options -> values, one function per kind of text, and values -> texts.

Owns: the syntax of texts.  Every function raises ValueError with the expected syntax.  Must not
know which option a text belongs to.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sparklog.config import COMPRESSION_NAMES
from sparklog.types import MAX_INT32, MAX_INT64, Compression, Endpoint, Isolation, TopicPartition

#: Special offsets by name.
SPECIAL_OFFSETS = {-2: "earliest", -1: "latest"}


def option_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Options given as values: datetimes become milliseconds, mappings and lists JSON."""
    return {name: _option_text(value) for name, value in values.items() if value is not None}


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return str(round(value.timestamp() * 1000))
    return json.dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)


def offsets_by_partition(text: str, refused: str) -> dict[TopicPartition, int]:
    """JSON ``{"topic": {"0": 23}}``; -2 is earliest, -1 latest; ``refused`` of them is invalid."""
    return {tp: _offset(value, refused) for tp, value in _by_partition(text)}


def timestamps_by_partition(text: str) -> dict[TopicPartition, int]:
    """JSON ``{"topic": {"0": 1700000000000}}``, in milliseconds."""
    return {tp: timestamp_ms(str(value)) for tp, value in _by_partition(text)}


def _offset(value: object, refused: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -2 <= value <= MAX_INT64:
        raise ValueError(f"{value!r} is not an offset (a number, -2 for earliest, -1 for latest)")
    if SPECIAL_OFFSETS.get(value) == refused:
        raise ValueError(f"{value} ({refused}) cannot be used here in a batch read")
    return value


def _by_partition(text: str) -> list[tuple[TopicPartition, object]]:
    found = []
    for topic, values in _json_object(text).items():
        if not isinstance(values, dict) or not values:
            raise ValueError(f'expected {{"topic": {{"0": number}}}}, also for topic {topic!r}')
        found += [
            (TopicPartition(topic_name(topic), partition_number(number)), value)
            for number, value in values.items()
        ]
    if not found:
        raise ValueError('no partitions; expected {"topic": {"0": number}}')
    return found


def partition_number(text: object) -> int:
    number = int(text) if isinstance(text, (str, int)) and str(text).isdecimal() else -1
    if not 0 <= number <= MAX_INT32:
        raise ValueError(f"{text!r} is not a partition number")
    return number


def assignment(text: str) -> tuple[TopicPartition, ...]:
    """JSON ``{"topic": [0, 1]}``."""
    found = [
        TopicPartition(topic_name(topic), partition_number(number))
        for topic, numbers in _json_object(text).items()
        for number in (numbers if isinstance(numbers, list) else [numbers])
    ]
    if not found:
        raise ValueError('no partitions; expected {"topic": [0, 1]}')
    return tuple(sorted(set(found)))


def _json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object by topic")
    return value


def topic_list(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(topic_name(part) for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("expected topic names separated by commas")
    return names


def topic_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise ValueError("expected a topic name")
    return name


def bootstrap_servers(text: str) -> tuple[Endpoint, ...]:
    endpoints = tuple(Endpoint.parse(part) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ValueError("expected HOST:PORT,HOST:PORT")
    return endpoints


def positive_int(text: str) -> int:
    if not _is_number(text) or not 0 < int(text) <= MAX_INT64:
        raise ValueError("expected a positive whole number")
    return int(text)


def int32(text: str) -> int:
    """A positive 32-bit integer."""
    number = positive_int(text)
    if number > MAX_INT32:
        raise ValueError(f"expected at most {MAX_INT32}")
    return number


def whole_number(text: str) -> int:
    """An integer that is not negative."""
    if not _is_number(text):
        raise ValueError("expected a whole number")
    return int(text)


def _is_number(text: str) -> bool:
    digits = text.strip()
    return digits.isascii() and digits.isdigit() and len(digits) <= 20


def timestamp_ms(text: str) -> int:
    if not _is_number(text) or int(text) > MAX_INT64:
        raise ValueError("expected milliseconds since 1970-01-01 UTC")
    return int(text)


def boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("expected true or false")
    return value


def acknowledgements(text: str) -> int:
    values = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if text.strip().lower() not in values:
        raise ValueError("expected all, 1 or 0")
    return values[text.strip().lower()]


def isolation(text: str) -> Isolation:
    names = {level.name.lower(): level for level in Isolation}
    if text.strip().lower() not in names:
        raise ValueError(f"expected one of {', '.join(names)}")
    return names[text.strip().lower()]


def error_or_latest(text: str) -> str:
    if text.strip().lower() not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return text.strip().lower()


def compression(text: str) -> Compression:
    codec = COMPRESSION_NAMES.get(text.strip().lower())
    if codec is None:
        raise ValueError(f"expected one of {', '.join(COMPRESSION_NAMES)}")
    return codec
