"""``cluster.groups()``: the lag of groups as values, and as a table in a notebook."""

from sparklog.client.event_loop_thread import EventLoopThread
from sparklog.client.group_admin import GroupMemberDescription, GroupOffset
from sparklog.cluster_handle import Cluster
from sparklog.consumer_groups import ROWS_SHOWN_MAX, ConsumerGroup, ConsumerGroups
from sparklog.types import TopicPartition
from tests.unit.executors.broker.broker_rig import Rig

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = GroupMemberDescription(
    member_id="m-1",
    group_instance_id=None,
    client_id="<reader>",
    client_host="/127.0.0.1",
    assignment=frozenset({T0}),
)


def group(name: str, offsets: dict[TopicPartition, GroupOffset]) -> ConsumerGroup:
    return ConsumerGroup(
        group_id=name, state="Stable", coordinator=1, members=(MEMBER,), offsets=offsets
    )


def cells(html: str) -> list[str]:
    return [part.split("</td>")[0].split(">", 1)[1] for part in html.split("<td")[1:]]


def test_the_table_has_the_lag_of_every_partition() -> None:
    offsets = {
        T0: GroupOffset(committed=1000, log_end=2500),
        T1: GroupOffset(committed=None, log_end=None),
    }
    groups = ConsumerGroups({"g": group("g", offsets), "new": group("new", {})})
    html = groups._repr_html_()
    assert html.startswith("<b>2 consumer groups</b><table>")
    assert cells(html) == [
        *("g", "Stable", "2 partitions", "", "", "1,500", "1 member"),
        *("g", "Stable", "t-0", "1,000", "2,500", "1,500", "&lt;reader&gt;"),
        *("g", "Stable", "t-1", "", "", "", ""),
        *("new", "Stable", "0 partitions", "", "", "0", "1 member"),
    ]
    assert cells(groups["g"]._repr_html_()) == cells(html)[: 3 * 7]
    assert (groups["g"].lag, groups["new"].lag) == (1500, 0)
    assert repr(groups) == "<sparklog.ConsumerGroups g: lag 1,500, new: lag 0>"


def test_a_long_table_is_cut_and_an_empty_one_left_out() -> None:
    many = {
        TopicPartition("t", n): GroupOffset(committed=0, log_end=0)
        for n in range(ROWS_SHOWN_MAX + 2)
    }
    html = ConsumerGroups({"g": group("g", many)})._repr_html_()
    assert html.endswith("</table>... and 3 rows more")
    assert len(cells(html)) == 7 * ROWS_SHOWN_MAX
    twelve = ConsumerGroups({f"g-{n}": group(f"g-{n}", {}) for n in range(12)})
    assert repr(twelve).endswith(", g-9: lag 0, and 2 more>")
    none = ConsumerGroups({})
    assert none._repr_html_() == "<b>0 consumer groups</b>"
    assert repr(none) == "<sparklog.ConsumerGroups: none>"


def test_a_cluster_tells_its_groups() -> None:
    loop = EventLoopThread("rig")
    opened = Rig.open({"offsets.topic.num.partitions": "1"})
    rig = loop.run(opened.__aenter__())
    try:
        loop.run(rig.start_broker())
        with Cluster(f"127.0.0.1:{rig.control.port}") as cluster:
            assert dict(cluster.groups()) == {}
            cluster.create_topic("t", 1)
            cluster._client.admin.alter_group_offsets("g", {T0: 0})
            (found,) = cluster.groups().values()
            assert found == ConsumerGroup(
                group_id="g",
                state="Empty",
                coordinator=1,
                members=(),
                offsets={T0: GroupOffset(committed=0, log_end=0)},
            )
    finally:
        loop.run(opened.__aexit__(None, None, None))
        loop.close()
