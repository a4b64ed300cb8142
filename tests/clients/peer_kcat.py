"""kcat: librdkafka as a command.  Headers hold for a whole run and no timestamp can be set."""

import itertools
import json
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.clients.rows import Place, Row, place

KCAT = "/usr/bin/kcat"
SECONDS_MAX = 60.0


class Kcat:
    name = "kcat"
    empties = False
    null_headers = True
    timestamps = False

    def listing(self, bootstrap: str) -> tuple[set[int], dict[str, int]]:
        found = json.loads(run("-L", "-J", "-b", bootstrap))
        topics = {topic["topic"]: len(topic["partitions"]) for topic in found["topics"]}
        return {broker["id"] for broker in found["brokers"]}, topics

    def write(self, bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
        runs = itertools.groupby(sorted(rows, key=place), lambda row: (row.partition, row.headers))
        for (partition, headers), group in runs:
            lines = b"".join(b"%s\t%s\n" % (row.key or b"", row.value or b"") for row in group)
            options = [option for header in headers for option in ("-H", _header(*header))]
            options += ["-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec]
            run(*options, "-K", "\t", "-Z", "-X", "enable.idempotence=true", lines=lines)
        return []

    def read(
        self, bootstrap: str, topic: str, count: int, timestamp: int | None = None
    ) -> list[Row]:
        start = "beginning" if timestamp is None else f"s@{timestamp}"
        options = ("-X", "fetch.wait.max.ms=100", "-c", str(count))
        output = run("-C", "-J", "-q", "-b", bootstrap, "-t", topic, "-o", start, *options)
        return [_row(json.loads(line)) for line in output.splitlines()]


def run(*arguments: str, lines: bytes = b"") -> str:
    done = subprocess.run(
        [KCAT, *arguments], input=lines, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _row(message: dict[str, Any]) -> Row:
    headers = message.get("headers", [])
    return Row(
        message["partition"],
        message["offset"],
        message["ts"],
        _bytes(message["key"]),
        _bytes(message["payload"]),
        tuple(
            (name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)
        ),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
