"""Consumers that subscribe with a group: every client, unchanged, as against Kafka."""

import json
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import peer_named
from tests.clients.group_members import MEMBERS, Member, RejoiningError
from tests.clients.peer_kcat import run as run_kcat
from tests.clients.rows import Place
from tests.support.proven import proves
from tests.support.waiting import wait_for

SECONDS_MAX = 60.0
PARTITIONS = 4
EACH = 25
ALL = [(partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)]
Join = Callable[..., Member]


@pytest.fixture(params=sorted(MEMBERS))
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(request: pytest.FixtureRequest, create_topic: Callable[..., None]) -> str:
    name = "groups-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def produce(bootstrap: str, topic: str) -> Callable[[], None]:
    """Writes ``EACH`` records to every partition."""

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10})
        for partition, offset in ALL:
            producer.produce(topic, f"{partition}/{offset}", partition=partition)
        assert producer.flush(SECONDS_MAX) == 0

    return write


@pytest.fixture
def join(bootstrap: str, topic: str) -> Iterator[Join]:
    """Makes members, and closes those that are left in the end."""
    members: list[Member] = []

    def make(client: str, group: str, *, instance: str = "", strategy: str = "") -> Member:
        member = MEMBERS[client](bootstrap, group, topic, instance, strategy)
        members.append(member)
        return member

    yield make
    for member in members:
        if not getattr(member, "closed", False):
            member.close()


def leave(member: Member) -> None:
    member.close()
    member.closed = True  # type: ignore[attr-defined]


def poll_until(members: Sequence[Member], is_so: Callable[[], bool], what: str) -> None:
    """Let all members take part in the protocol until something holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        states = [(sorted(m.assigned), len(m.seen)) for m in members]
        assert time.monotonic() < deadline, f"{what} did not happen: {states}"
        for member in members:
            member.poll()


def owns(member: Member, count: int) -> Callable[[], bool]:
    return lambda: len(member.assigned) == count


@proves("group", *MEMBERS)
def test_a_group_reads_everything_commits_and_resumes(
    client: str, topic: str, join: Join, produce: Callable[[], None], admin: AdminClient
) -> None:
    group = f"resumed-{client}"
    produce()
    first = join(client, group)

    def has_committed() -> bool:
        poll_until([first], lambda: len(first.seen) >= len(ALL), "reading all")
        assert sorted(first.seen) == ALL
        try:
            first.commit()
        except RejoiningError:
            first.seen.clear()
            return False
        return True

    wait_for(has_committed)
    leave(first)
    assert committed(admin, group, topic) == dict.fromkeys(range(PARTITIONS), EACH)
    produce()
    second = join(client, group)
    poll_until([second], lambda: len(second.seen) >= len(ALL), "reading the rest")
    assert sorted(second.seen) == [(partition, offset + EACH) for partition, offset in ALL]


@proves("rebalance", *MEMBERS)
def test_a_second_member_takes_half_and_gives_it_back(
    client: str, topic: str, join: Join, produce: Callable[[], None]
) -> None:
    del topic
    group = f"shared-{client}"
    first = join(client, group)
    poll_until([first], owns(first, PARTITIONS), "owning all partitions")
    second = join(client, group)
    both = [first, second]
    poll_until(both, lambda: owns(first, 2)() and owns(second, 2)(), "sharing")
    assert first.assigned | second.assigned == set(range(PARTITIONS))
    produce()
    poll_until(both, lambda: len(first.seen) + len(second.seen) >= len(ALL), "reading")
    assert sorted(first.seen + second.seen) == ALL
    first.commit()
    second.commit()
    leave(second)
    poll_until([first], owns(first, PARTITIONS), "taking over")
    produce()
    poll_until([first], lambda: len(read_from(first, EACH)) == len(ALL), "reading on")
    assert sorted(read_from(first, EACH)) == [(p, o + EACH) for p, o in ALL]


@proves("mixed group", *MEMBERS)
def test_members_of_different_clients_share_one_group(topic: str, join: Join) -> None:
    del topic
    members = [join(name, "mixed") for name in sorted(MEMBERS)]

    def shared() -> bool:
        owned = sorted(partition for member in members for partition in member.assigned)
        return owned == list(range(PARTITIONS)) and all(len(m.assigned) < 2 for m in members)

    poll_until(members, shared, "sharing among clients")


@proves("static member", *MEMBERS)
def test_a_static_member_comes_back_without_a_rebalance(
    client: str, topic: str, join: Join
) -> None:
    del topic
    group = f"static-{client}"
    stays = join(client, group, instance="one")
    moves = join(client, group, instance="two")
    members = [stays, moves]
    poll_until(members, lambda: owns(stays, 2)() and owns(moves, 2)(), "sharing")
    owned, revoked = set(moves.assigned), stays.revocations
    leave(moves)
    again = join(client, group, instance="two")
    poll_until([stays, again], owns(again, 2), "coming back")
    assert again.assigned == owned
    assert stays.assigned == set(range(PARTITIONS)) - owned
    assert stays.revocations == revoked


@proves("cooperative", "confluent", "franz-go")
@pytest.mark.parametrize("client", ["confluent", "franz-go"])
def test_cooperative_members_keep_what_does_not_move(client: str, topic: str, join: Join) -> None:
    del topic
    group = f"cooperative-{client}"
    first = join(client, group, strategy="cooperative-sticky")
    poll_until([first], owns(first, PARTITIONS), "owning all partitions")
    second = join(client, group, strategy="cooperative-sticky")
    ever_lost: set[int] = set()

    def shared() -> bool:
        ever_lost.update(set(range(PARTITIONS)) - first.assigned)
        return owns(first, 2)() and owns(second, 2)()

    poll_until([first, second], shared, "sharing")
    assert ever_lost == second.assigned
    assert first.revocations == 1


@proves("group", "kcat")
def test_kcat_reads_with_a_group(
    bootstrap: str, topic: str, produce: Callable[[], None], admin: AdminClient
) -> None:
    assert peer_named("kcat")
    produce()
    options = ("-X", "auto.offset.reset=earliest", "-X", "fetch.wait.max.ms=100", "-e", "-J", "-q")
    lines = run_kcat("-b", bootstrap, "-G", "kcat-group", *options, topic).splitlines()
    found = [json.loads(line) for line in lines]
    assert sorted((row["partition"], row["offset"]) for row in found) == ALL
    assert committed(admin, "kcat-group", topic) == dict.fromkeys(range(PARTITIONS), EACH)


@proves("group tools", "confluent")
def test_librdkafkas_admin_lists_describes_and_deletes(
    client: str, topic: str, join: Join, admin: AdminClient
) -> None:
    group = f"described-{client}"
    member = join(client, group)
    poll_until([member], owns(member, PARTITIONS), "owning all partitions")
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(SECONDS_MAX).valid}
    assert listed[group].state.name == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert described.state.name == "STABLE"
    assert described.coordinator.id in (1, 2, 3)
    [shown] = described.members
    assert {p.partition for p in shown.assignment.topic_partitions} == set(range(PARTITIONS))
    assert {p.topic for p in shown.assignment.topic_partitions} == {topic}
    leave(member)
    admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(SECONDS_MAX).valid}
    assert group not in listed


def read_from(member: Member, offset: int) -> list[Place]:
    return [place for place in member.seen if place[1] >= offset]


def committed(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, number) for number in range(PARTITIONS)]
    )
    found = admin.list_consumer_group_offsets([wanted])[group].result(SECONDS_MAX)
    return {each.partition: each.offset for each in found.topic_partitions}
