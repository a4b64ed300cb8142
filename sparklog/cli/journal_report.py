"""The output of ``sparklog journal``: surveys and repairs as one JSON document and as lines.

Owns: the words for records and files.  Must not know how a survey is made.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from sparklog.driver.control_plane.journal_repair import LostCommit, RepairPlan, State, Survey
from sparklog.metadata import (
    BrokerDraining,
    BrokerFenced,
    BrokerIdAssigned,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicDeleted,
    to_json,
)
from sparklog.types import NO_NODE, ResourceType

#: The largest number of lines about lost records.  The JSON document has all of them.
LINES_MAX = 200


def survey_document(survey: Survey) -> dict[str, Any]:
    """Return the findings of a survey as a JSON document."""
    image, header = survey.image, survey.header
    return {
        "journal": survey.url,
        "sound": survey.is_sound,
        "starts": survey.starts,
        "damaged": [
            {"file": each.name, "reason": each.reason, "needed": each.needed}
            for each in survey.damaged
        ],
        "good_checkpoints": list(survey.checkpoints),
        "commits": _ranges(survey.commits),
        "last_good": None
        if image is None
        else {
            "version": image.version,
            "built_on_checkpoint": survey.checkpoint or None,
            "time_ms": header.time_ms if header is not None else None,
            "cluster_id": image.cluster_id,
            "controller_epoch": image.controller_epoch,
            "topics": len(image.topics),
            "partitions": image.partition_count,
            "brokers": sorted(image.brokers),
        },
        "lost": [
            {
                "version": each.number,
                "state": str(each.state),
                "records": [to_json(record) for record in each.records],
            }
            for each in survey.lost
        ],
    }


def survey_lines(survey: Survey) -> Iterator[str]:
    """Return the findings of a survey as lines for people."""
    yield f"Journal {survey.url}"
    for each in survey.damaged:
        consequence = "needed" if each.needed else "not needed any more"
        yield f"  damaged: {each.name}: {each.reason} ({consequence})"
    for first, last in _missing(survey.lost):
        yield f"  missing: commit {first}" + (f" to {last}" if last > first else "")
    image = survey.image
    if image is None:
        yield "No image of the cluster can be built from what is left: restore a copy."
        return
    base = f"checkpoint {survey.checkpoint} and commits" if survey.checkpoint else "commits alone"
    when = ""
    if survey.header is not None:
        moment = datetime.fromtimestamp(survey.header.time_ms / 1000, UTC)
        when = f", written at {moment:%Y-%m-%d %H:%M:%S} UTC"
    yield (
        f"Last good commit: {image.version} (from {base}{when}): cluster {image.cluster_id}, "
        f"{len(image.topics)} topics, {image.partition_count} partitions, brokers "
        f"{', '.join(map(str, sorted(image.brokers))) or 'none'}"
    )
    if not survey.lost:
        yield "Nothing is lost." if survey.damaged else "The journal is whole."
        return
    yield from _lost_lines(survey)


def _lost_lines(survey: Survey) -> Iterator[str]:
    states = [each.state for each in survey.lost]
    counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
    yield f"A start from commit {survey.version} loses {len(survey.lost)} commits ({counts}):"
    lines = [line for each in survey.lost for line in _commit_lines(each)]
    yield from lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        yield f"  ... and {len(lines) - LINES_MAX} more; --json prints all"


def _commit_lines(lost: LostCommit) -> Iterator[str]:
    if lost.state is not State.READABLE:
        yield f"  commit {lost.number}: {lost.state}; what else it changed is not known"
    for record in lost.records:
        yield f"  commit {lost.number}: {record_text(record)}"


def plan_document(plan: RepairPlan | None) -> dict[str, Any] | None:
    """Return the changes that a repair makes as a JSON document."""
    if plan is None:
        return None
    return {
        "version": plan.version,
        "controller_epoch": plan.controller_epoch,
        "next_producer_id": plan.image.next_producer_id,
        "topics": sorted(plan.image.topics),
        "left_out": [to_json(record) for record in plan.left_out],
    }


def plan_lines(plan: RepairPlan | None) -> Iterator[str]:
    if plan is None:
        yield "A repair moves the damaged files aside; it changes nothing that the cluster knows."
        return
    yield (
        f"A repair writes commit {plan.version} with controller epoch {plan.controller_epoch}: "
        f"{len(plan.image.topics)} topics; producer ids go on at {plan.image.next_producer_id}; "
        "every partition elects its leader anew, by the best log that its brokers report."
    )
    for record in plan.left_out:
        text = record_text(record)
        yield f"  left out, because it is damaged or stands on what is not known: {text}"


def record_text(record: Record) -> str:  # noqa: C901 - one line per kind of record
    """The content of a journal record, in words."""
    match record:
        case ClusterCreated():
            return f"cluster {record.cluster_id} created"
        case ControllerChanged():
            return (
                f"controller of epoch {record.controller_epoch} at {record.host}:{record.port} "
                "took over"
            )
        case BrokerIdAssigned():
            return f"broker id {record.broker_id} given out"
        case BrokerRegistered():
            broker = record.broker
            return (
                f"broker {broker.broker_id} registered with epoch {broker.broker_epoch}, directory "
                f"{broker.directory_id}"
            )
        case BrokerFenced():
            return f"broker {record.broker_id} fenced"
        case BrokerUnfenced():
            return f"broker {record.broker_id} unfenced"
        case BrokerDraining():
            return f"broker {record.broker_id} {'drained' if record.draining else 'kept'}"
        case BrokerRemoved():
            return f"broker {record.broker_id} removed"
        case TopicCreated():
            count = len(record.partitions)
            return f"topic {record.topic} created with {count} partitions, id {record.topic_id}"
        case PartitionsAdded():
            return f"{len(record.partitions)} partitions added to topic {record.topic}"
        case PartitionChanged():
            return f"partition {record.topic}-{record.partition}: {_state_text(record.state)}"
        case TopicDeleted():
            return f"topic {record.topic} deleted, id {record.topic_id}"
        case RemoteDeleteMarked():
            return f"the remote_dir is to lose the deleted topic with id {record.topic_id}"
        case RemoteDeleteFinished():
            return f"the remote_dir has lost the deleted topic with id {record.topic_id}"
        case ReplicationFactorDeferred():
            missing = "waits for brokers to reach" if record.deferred else "has reached"
            return f"topic {record.topic} {missing} its replication factor"
        case ConfigChanged():
            change = f"set to {record.value}" if record.value is not None else "reset"
            return f"{record.name} of {_resource(record)} {change}"
        case ProducerIdsAllocated():
            last = record.first_producer_id + record.count - 1
            return f"producer ids {record.first_producer_id} to {last} given to {record.broker_id}"


def _state_text(state: PartitionImage) -> str:
    leader = "none" if state.leader == NO_NODE else state.leader
    return (
        f"leader {leader} of epoch {state.leader_epoch}, replicas {list(state.replicas)}, "
        f"isr {list(state.isr)}"
    )


def _resource(record: ConfigChanged) -> str:
    if record.resource_type == ResourceType.TOPIC:
        return f"topic {record.resource_name}"
    return f"broker {record.resource_name}" if record.resource_name else "all brokers"


def _missing(lost: Iterable[LostCommit]) -> list[list[int]]:
    return _ranges([each.number for each in lost if each.state is State.MISSING])


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """``[first, last]`` of each run of consecutive numbers, from sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs
