"""Targets: options and settings as people write them, one ``name=value`` a line."""

from collections.abc import Iterator

from sparklog.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig
from sparklog.dataframe.options.options import parse_read_options, parse_write_options
from sparklog.errors import ConfigError
from tests.fuzz.target import Target

FOUND = "127.0.0.1:9092"


def _pairs(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return {name: value for name, _, value in (line.partition("=") for line in lines) if name}


def _read_options(data: bytes) -> None:
    parse_read_options(_pairs(data), FOUND)


def _write_options(data: bytes) -> None:
    parse_write_options(_pairs(data), FOUND)


def _settings(data: bytes) -> None:
    TopicConfig.resolve(_pairs(data), BrokerConfig.resolve({}))


def _broker_settings(data: bytes) -> None:
    BrokerConfig.resolve(_pairs(data))


def _reads() -> Iterator[bytes]:
    yield b"subscribe=a,b\nstartingOffsets=earliest\nendingOffsets=latest\nincludeHeaders=true"
    yield b'assign={"a": [0, 1], "b": 2}\nstartingOffsets={"a": {"0": 23, "1": -2}}'
    yield b"subscribe=a\nstartingTimestamp=1700000000000\nminPartitions=4"
    yield b'subscribePattern=\\Qa.\\E\\p{L}+\nstartingOffsetsByTimestamp={"a": {"0": 5}}'
    yield b"kafka.bootstrap.servers=h:1,[::1]:2\nsubscribe=a\nkafka.client.id=me"


def _writes() -> Iterator[bytes]:
    yield b"topic=a\nkafka.acks=all\nkafka.compression.type=zstd\nkafka.batch.size=1000"
    yield b"kafka.acks=1\nkafka.enable.idempotence=false\nkafka.bootstrap.servers=h:1"


def _setting_lines() -> Iterator[bytes]:
    for setting in TOPIC_SETTINGS:
        yield f"{setting.name}={setting.render(setting.default)}".encode()


def _broker_setting_lines() -> Iterator[bytes]:
    for setting in BROKER_SETTINGS:
        yield f"{setting.name}={setting.render(setting.default)}".encode()


TARGETS = [
    Target(name=name, decode=decode, seeds=seeds, errors=(ConfigError,))
    for name, decode, seeds in (
        ("read-options", _read_options, _reads),
        ("write-options", _write_options, _writes),
        ("topic-settings", _settings, _setting_lines),
        ("broker-settings", _broker_settings, _broker_setting_lines),
    )
]
