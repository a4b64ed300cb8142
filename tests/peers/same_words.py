"""A tool run against Kafka and against us, and what both say compared.

Owns: asking again.  Must not know the tools.  Nodes hear of a change one after the other, and a
tool asks any of them: a question that follows a change is asked until the answer knows of it.
"""

import time
from collections.abc import Callable, Sequence

from tests.peers.both import HEARD_SECONDS_MAX
from tests.peers.kafka_tools import KafkaTools, ToolRun
from tests.peers.tool_words import said

Condition = Callable[[ToolRun], bool]


def same_words(
    tools: KafkaTools,
    addresses: Sequence[str],
    tool: str,
    arguments: Sequence[str],
    *,
    until: Condition | None = None,
) -> ToolRun:
    """The run against us, the last of ``addresses``; what the tool says must be the same of both.

    With ``until`` it is a question, and asked until both say the same and that is fulfilled.
    """
    deadline = time.monotonic() + HEARD_SECONDS_MAX
    while True:
        of_kafka, ours = (
            tools.run(tool, "--bootstrap-server", address, *arguments) for address in addresses
        )
        alike = said(ours) == said(of_kafka)
        if until is None or (alike and until(ours)) or time.monotonic() > deadline:
            break
    assert said(ours) == said(of_kafka), (ours, of_kafka)
    assert until is None or until(ours), ours
    return ours


def anything(_: ToolRun) -> bool:
    """Whatever both say."""
    return True


def shows(text: str) -> Condition:
    return lambda run: text in run.out


def hides(text: str) -> Condition:
    return lambda run: text not in run.out


def prints(text: str) -> Condition:
    """Nothing else."""
    return lambda run: run.out == text


def lists(count: int) -> Condition:
    """So many lines."""
    return lambda run: len(run.lines) == count
