"""Kafka's own ``ProducerPerformance``: loads of Java's producer.

Owns: the tool's arguments, and reading its output.  Must not know whose brokers it talks to.
"""

import re
from typing import Any

TOOL = "ProducerPerformance"
_TOTAL = re.compile(r"^(\d+) records sent, ([\d.,]+) records/sec .* 99\.9th\.$", re.MULTILINE)


def produce(
    tools: Any,
    bootstrap: str,
    topic: str,
    *,
    messages: int,
    value_bytes: int,
    acks: str,
    commit_every_ms: int | None = None,
) -> float:
    """Return MB/s (a MB is a million bytes).  ``tools`` is the ``KafkaTools`` of ``tests/peers``.

    The producer has Java's defaults except for ``acks``; it spreads records over partitions itself.
    With ``commit_every_ms`` the records are in transactions.
    """
    transactions = (
        () if commit_every_ms is None else ("--transaction-duration-ms", str(commit_every_ms))
    )
    done = tools.run(
        TOOL,
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(messages), "--record-size", str(value_bytes)),
        *("--throughput", "-1", "--command-property", f"acks={acks}", *transactions),
    )
    assert done.code == 0, done
    sent, a_second = total(done.out)
    assert sent == messages, done.out
    return a_second * value_bytes / 1e6


def total(printed: str) -> tuple[int, float]:
    """Records, and records per second, of the last line; the lines before it are of intervals."""
    found = _TOTAL.search(printed)
    assert found, printed
    return int(found[1]), float(found[2].replace(",", ""))
