"""Groups of Kafka's verifiable consumers read what its verifiable producers write."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sparklog.client.blocking import BlockingClient
from tests.applications.application_runner import Application, ApplicationRunner
from tests.support.proven import proves
from tests.support.served import ServedCluster

ASSIGNORS = "org.apache.kafka.clients.consumer."
RANGE, COOPERATIVE = ASSIGNORS + "RangeAssignor", ASSIGNORS + "CooperativeStickyAssignor"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS, EACH_TIME = 4, 400
Place = tuple[int, int]


class Verified:
    """A topic, its producers and the members of a group; all run in one JVM."""

    def __init__(self, runner: ApplicationRunner, bootstrap: str, topic: str) -> None:
        self._runner = runner
        self._server = ("--bootstrap-server", bootstrap)
        self.topic = topic
        self.members: list[Member] = []
        self.acked: list[Place] = []
        with BlockingClient(bootstrap) as client:
            client.admin.create_topic(topic, PARTITIONS, replication_factor=3)
            client.admin.await_serving(topic)

    def produce(self) -> None:
        """So many records more, over all partitions; each must be acknowledged once."""
        producer = self._runner.start(
            *("VerifiableClient", "producer"),
            *(*self._server, "--topic", self.topic, "--max-messages", str(EACH_TIME)),
            *("--repeating-keys", "20", "--acks", "-1"),
        )

        def acked() -> list[dict[str, Any]]:
            return events(producer, "producer_send_success")

        producer.wait_for(lambda: len(acked()) == EACH_TIME, "all acknowledged")
        producer.stop()
        assert events(producer, "producer_send_error") == []
        self.acked += [(each["partition"], each["offset"]) for each in acked()]

    def join(self, assignor: str, instance: str = "") -> "Member":
        member = self._runner.start(
            *("VerifiableClient", "consumer"),
            *(*self._server, "--topic", self.topic, "--group-id", self.topic, "--verbose"),
            *("--session-timeout", "10000", "--assignment-strategy", assignor),
            *(("--group-instance-id", instance) if instance else ()),
        )
        self.members.append(Member(member))
        return self.members[-1]

    def await_read(self) -> None:
        """Until members have got, and committed, all records, each once."""

        def all_read() -> bool:
            assert all(member.application.code in (None, 0) for member in self.members)
            return len(self.seen) >= len(self.acked)

        running = [member for member in self.members if member.application.code is None]
        running[0].application.wait_for(all_read, f"{len(self.acked)} records read")
        assert sorted(self.seen) == sorted(self.acked)
        self._await_committed()

    @property
    def seen(self) -> list[Place]:
        return [place for member in self.members for place in member.seen]

    def described(self, *arguments: str) -> Sequence[str]:
        return self._runner.run(
            GROUPS, *self._server, "--describe", "--group", self.topic, *arguments
        )

    def _await_committed(self) -> None:
        """Members commit what they have got before they ask for more."""
        last = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset in self.acked:
            last[partition] = max(last[partition], offset + 1)

        def committed() -> bool:
            found = dict.fromkeys(last, 0)
            for member in self.members:
                for partition, offset in member.committed:
                    found[partition] = max(found[partition], offset)
            return found == last

        running = [member for member in self.members if member.application.code is None]
        running[0].application.wait_for(committed, f"committed {last}")


class Member:
    """A verifiable consumer, by the events that it has printed."""

    def __init__(self, application: Application) -> None:
        self.application = application

    @property
    def seen(self) -> list[Place]:
        found = events(self.application, "record_data")
        return [(each["partition"], each["offset"]) for each in found]

    @property
    def committed(self) -> list[Place]:
        found = events(self.application, "offsets_committed")
        assert all(each["success"] for each in found), found
        return [
            (each["partition"], each["offset"]) for commit in found for each in commit["offsets"]
        ]

    @property
    def owned(self) -> set[int]:
        """The partitions that it has been given and not yet given up."""
        owned: set[int] = set()
        for event in events(self.application, "partitions_assigned", "partitions_revoked"):
            changed = {each["partition"] for each in event["partitions"]}
            owned = owned | changed if event["name"].endswith("assigned") else owned - changed
        return owned

    @property
    def revoked(self) -> list[set[int]]:
        """What it gave up, each time."""
        return [
            {each["partition"] for each in event["partitions"]}
            for event in events(self.application, "partitions_revoked")
        ]

    def await_owned(self, *counts: int) -> None:
        self.application.wait_for(lambda: len(self.owned) in counts, f"owns {counts} partitions")


def events(application: Application, *names: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in list(application.lines)]
    return [event for event in found if event["name"] in names]


@pytest.fixture
def verified(
    runner: ApplicationRunner, cluster: ServedCluster, request: pytest.FixtureRequest
) -> Iterator[Verified]:
    found = Verified(runner, cluster.bootstrap, request.node.name.replace("[", "-").rstrip("]"))
    yield found
    for member in found.members:
        if member.application.code is None:
            member.application.stop()


@proves("group", "java")
@proves("rebalance", "java")
@proves("cooperative", "java")
@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE], ids=["range", "cooperative"])
def test_members_join_read_commit_and_leave(verified: Verified, assignor: str) -> None:
    verified.produce()
    first = verified.join(assignor)
    verified.await_read()
    assert first.owned == set(range(PARTITIONS))
    second = verified.join(assignor)
    second.await_owned(2)
    first.await_owned(2)
    assert first.owned | second.owned == set(range(PARTITIONS))
    moved = second.owned if assignor == COOPERATIVE else set(range(PARTITIONS))
    assert [given_up for given_up in first.revoked if given_up] == [moved]
    verified.produce()
    verified.await_read()
    assert second.seen
    first.application.stop()
    second.await_owned(PARTITIONS)
    verified.produce()
    verified.await_read()
    lags = [line.split()[5] for line in verified.described() if verified.topic in line]
    assert lags == ["0"] * PARTITIONS


@proves("static member", "java")
def test_a_static_member_comes_back_to_its_partitions(verified: Verified) -> None:
    first = verified.join(RANGE, "one")
    first.await_owned(PARTITIONS)
    second = verified.join(RANGE, "two")
    second.await_owned(2)
    first.await_owned(2)
    verified.produce()
    verified.await_read()
    kept, rebalances = first.owned, len(second.revoked)
    first.application.stop()
    verified.produce()
    again = verified.join(RANGE, "one")
    verified.await_read()
    assert again.owned == kept
    assert len(second.revoked) == rebalances
    lines = verified.described("--members", "--verbose")
    found = [line.split()[2] for line in lines if verified.topic in line]
    assert sorted(found) == ["one", "two"]
