"""Committed offsets as readers see them while a run goes on, and the draining of groups at its end.

Owns: asking coordinators.  Must not know members, nor what the checkers make of the answers.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from sparklog.client.blocking import BlockingClient
from sparklog.client.connection import Connection
from sparklog.client.coordinators import Coordinators
from sparklog.client.deadline import Deadline
from sparklog.client.groups.offset_requests import (
    NAMES_UNTIL,
    committed_offsets,
    offset_fetch_request,
)
from sparklog.errors import KafkaError, SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from tests.chaos.chaos_clients import Load
from tests.simulation.events import GroupDrained, LogId, OffsetsRead

LOOK_S = 0.3
READ_S_MAX = 5.0
#: After the healing every group is stable and has no lag within so long.
DRAIN_S_MAX = 60.0
ASK_S_MAX = 10.0


def read_offsets(load: Load, groups: Sequence[str], every_s: float) -> None:
    """Read the committed offsets of all groups, again and again, until the run is over."""
    with BlockingClient(load.bootstrap, timeout_s=READ_S_MAX) as client:
        coordinators = Coordinators(client.cluster)
        while not load.over.wait(every_s):
            with suppress(SparklogError):  # a coordinator is away
                client.run(_read(load, coordinators, groups), READ_S_MAX + 1)


async def _read(load: Load, coordinators: Coordinators, groups: Sequence[str]) -> None:
    logs = {TopicPartition(log.topic, log.partition): log for log in load.logs}

    async def call(
        node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
    ) -> dict[str, KafkaError | None]:
        for group in ids:
            asked = load.history.position
            response = await connection.request(
                offset_fetch_request(group, logs, require_stable=True),
                timeout_s=max(deadline.left_s, 0.001),
                at_most=NAMES_UNTIL,
            )
            found = committed_offsets(response, logs)
            offsets = tuple(
                (logs[tp], None if each is None else each.offset) for tp, each in found.items()
            )
            load.history.record(
                OffsetsRead(asked=asked, group=group, node=node_id, offsets=offsets)
            )
            load.counters["offsets_read"] += 1
        return dict.fromkeys(ids)

    await coordinators.ask(groups, call, Deadline(READ_S_MAX))


# the end


def drain(load: Load, groups: Sequence[str]) -> None:
    """Wait until each group is stable and has committed the end of every partition."""
    admin = AdminClient(load.client_settings("drain"))
    ends = ends_of_logs(load)
    for group in groups:
        began, error = load.history.now_ms, "it was not asked"
        end = time.monotonic() + DRAIN_S_MAX
        while error and time.monotonic() < end:
            error = _reason_against(admin, group, ends)
            time.sleep(LOOK_S if error else 0)
        took_ms = load.history.now_ms - began
        load.history.record(
            GroupDrained(group=group, ends=tuple(ends.items()), took_ms=took_ms, error=error)
        )


def ends_of_logs(load: Load) -> dict[LogId, int]:
    """The present end of each log of the load."""
    wanted = {TopicPartition(log.topic, log.partition): log for log in load.logs}
    with BlockingClient(load.bootstrap) as client:
        found = client.list_offsets(dict.fromkeys(wanted, int(OffsetSpec.LATEST)))
    return {log: found[tp].offset for tp, log in wanted.items()}


def _reason_against(admin: AdminClient, group: str, ends: Mapping[LogId, int]) -> str:
    """Why the group has not drained; empty when it has."""
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ASK_S_MAX)[group]
        state = asked.result().state
        if state is not ConsumerGroupState.STABLE:
            return f"it is {state.name}"
        listed = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=ASK_S_MAX
        )
        places = listed[group].result().topic_partitions
    except KafkaException as failure:
        return str(failure.args[0])
    committed = {(place.topic, place.partition): place.offset for place in places}
    return lag_of({log: committed.get((log.topic, log.partition)) for log in ends}, ends)


def lag_of(committed: Mapping[LogId, int | None], ends: Mapping[LogId, int]) -> str:
    """Which partitions are not committed to their ends; empty when all are."""
    behind = [
        f"{log} at {committed.get(log)} of {end}"
        for log, end in ends.items()
        if end > 0 and committed.get(log) != end
    ]
    return f"{len(behind)} partitions lag: {', '.join(behind[:4])}" if behind else ""
