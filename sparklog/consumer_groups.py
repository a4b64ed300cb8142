"""Consumer groups as ``Cluster.groups`` returns them: members, committed offsets and lag.

Owns: the values, and their HTML in a notebook.  Must not know how a cluster is started, nor how
coordinators are asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.client.admin import Admin
from sparklog.client.group_admin import GroupMemberDescription, GroupOffset
from sparklog.html_text import table
from sparklog.plurals import counted
from sparklog.types import TopicPartition

#: The largest number of rows in the HTML table.
ROWS_SHOWN_MAX: Final = 50
#: The largest number of groups that ``repr`` names.
GROUPS_NAMED_MAX: Final = 10
_NONE: Final = "<sparklog.ConsumerGroups: none>"
_HEADS: Final = ("group", "state", "partition", "committed", "log end", "lag", "member")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A group at one moment.

    Attributes:
        group_id: The group's name.
        state: Kafka's name of the state, such as ``Stable`` or ``Empty``.
        coordinator: Node id of the broker that coordinates the group.
        members: The members with their partitions.
        offsets: Committed offset, log end and lag of every partition that the group has committed
            or that a member has.
    """

    group_id: str
    state: str
    coordinator: int
    members: tuple[GroupMemberDescription, ...]
    offsets: Mapping[TopicPartition, GroupOffset]

    @property
    def lag(self) -> int:
        """The sum of all lags that are known."""
        return sum(each.lag or 0 for each in self.offsets.values())

    def _repr_html_(self) -> str:
        return ConsumerGroups({self.group_id: self})._repr_html_()


class ConsumerGroups(Mapping[str, ConsumerGroup]):
    """The groups of a cluster by name, as they were; in a notebook, a table of their lag."""

    def __init__(self, groups: Mapping[str, ConsumerGroup]) -> None:
        self._groups = dict(groups)

    def __getitem__(self, group_id: str) -> ConsumerGroup:
        return self._groups[group_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        lags = [f"{name}: lag {group.lag:,}" for name, group in self._groups.items()]
        if len(lags) > GROUPS_NAMED_MAX:
            lags[GROUPS_NAMED_MAX:] = [f"and {len(lags) - GROUPS_NAMED_MAX:,} more"]
        return f"<sparklog.ConsumerGroups {', '.join(lags)}>" if lags else _NONE

    def _repr_html_(self) -> str:
        count = f"<b>{counted(len(self), 'consumer group')}</b>"
        rows = [row for group in self._groups.values() for row in _rows(group)]
        if not rows:
            return count
        more = len(rows) - ROWS_SHOWN_MAX
        shown = table(_HEADS, rows[:ROWS_SHOWN_MAX])
        return f"{count}{shown}... and {counted(more, 'row')} more" if more > 0 else count + shown


async def consumer_groups(admin: Admin) -> ConsumerGroups:
    """The groups of a cluster now.  Raises KafkaError, ConnectError."""
    # A group that is deleted meanwhile is left out.
    groups = await admin.describe_groups(await admin.list_groups(), skip_unknown=True)
    offsets = await admin.offsets_of_groups({name: each.owners for name, each in groups.items()})
    return ConsumerGroups(
        {
            name: ConsumerGroup(
                group_id=name,
                state=group.state,
                coordinator=group.coordinator,
                members=group.members,
                offsets=offsets[name],
            )
            for name, group in groups.items()
        }
    )


def _rows(group: ConsumerGroup) -> list[tuple[str, ...]]:
    """The rows of a group: one with the sum of its lags, then one per partition."""
    owners = {tp: member for member in group.members for tp in member.assignment}
    members = counted(len(group.members), "member")
    count = counted(len(group.offsets), "partition")
    total = (group.group_id, group.state, count, "", "", _number(group.lag), members)
    return [
        total,
        *(
            (
                group.group_id,
                group.state,
                str(tp),
                _number(offset.committed),
                _number(offset.log_end),
                _number(offset.lag),
                owners[tp].client_id if tp in owners else "",
            )
            for tp, offset in group.offsets.items()
        ),
    ]


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
