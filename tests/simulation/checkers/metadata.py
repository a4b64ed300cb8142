"""Answers about topics and settings agree with the journal."""

from collections.abc import Iterator
from uuid import UUID

from sparklog.metadata import TopicCreated as TopicCreatedRecord
from tests.simulation.events import (
    ConfigChangeEnded,
    ConfigChangeInvoked,
    TopicCreated,
    TopicDeleted,
    TopicDeleteInvoked,
    TopicSeen,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    image = final.image_at(len(final.journal))
    return [
        *_topics(history, set(image.topics_by_id)),
        *_seen(history, final),
        *_settings(history, final),
    ]


def _topics(history: History, there: set[UUID]) -> Iterator[str]:
    asked = {event.topic_id: event.op for _, event in history.each(TopicDeleteInvoked)}
    done = history.ends(TopicDeleted)
    for _, created in history.each(TopicCreated):
        op = asked.get(created.topic_id)
        if op is None and created.topic_id not in there:
            yield f"topic {created.topic} ({created.topic_id}) was created and is gone"
        if op is not None and op in done and created.topic_id in there:
            yield f"topic {created.topic} ({created.topic_id}) was deleted and is there"


def _seen(history: History, final: FinalState) -> Iterator[str]:
    known = {
        (record.topic, record.topic_id, len(record.partitions))
        for commit in final.journal
        for record in commit.records
        if isinstance(record, TopicCreatedRecord)
    }
    for _, seen in history.each(TopicSeen):
        if (seen.topic, seen.topic_id, seen.partitions) not in known:
            yield f"a client saw topic {seen}, which the journal never had"


def _settings(history: History, final: FinalState) -> Iterator[str]:
    """The last acknowledged change holds, or one of those whose outcome is unknown."""
    image = final.image_at(len(final.journal))
    ends = history.ends(ConfigChangeEnded)
    possible: dict[tuple[UUID, str], list[str | None]] = {}
    unknown: dict[tuple[UUID, str], list[str | None]] = {}
    for _, change in history.each(ConfigChangeInvoked):
        key = (change.topic_id, change.name)
        if change.op not in ends:
            unknown.setdefault(key, []).append(change.value)
        elif ends[change.op][1].changed:
            possible[key] = [change.value]
    for (topic_id, name), values in possible.items():
        topic = image.topic_by_id(topic_id)
        if topic is None:
            continue
        held = image.topic_overrides(topic.name).get(name)
        allowed = [*values, *unknown.get((topic_id, name), ())]
        if held not in allowed:
            yield f"{name} of topic {topic.name} is {held}, it was set to {allowed}"
