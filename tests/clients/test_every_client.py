"""Every client lists, writes with every codec, and reads what any other wrote."""

from collections.abc import Callable

import pytest

from tests.clients.peers import PEERS, Peer
from tests.clients.rows import CODECS, PARTITIONS, Place, Row, make_rows, place, since
from tests.support.proven import proves

Write = Callable[[str, str], tuple[str, list[Place]]]
Stored = Callable[[str], tuple[list[Row], set[str]]]
NAMES = [peer.name for peer in PEERS]


def in_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=place)


@proves("metadata", *NAMES)
def test_nodes_and_topics_are_listed(
    peer: Peer, bootstrap: str, create_topic: Callable[..., None]
) -> None:
    topic = f"listed-by-{peer.name}"
    create_topic(topic)
    nodes, topics = peer.listing(bootstrap)
    assert (nodes, topics[topic]) == ({0, 1, 2, 3}, PARTITIONS)


@proves("produce", *NAMES)
@proves("codecs", *NAMES)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_acknowledged_is_stored_as_it_was_sent(
    peer: Peer, codec: str, written: Write, stored: Stored
) -> None:
    topic, acknowledged = written(peer.name, codec)
    rows, codecs = stored(topic)
    sent = in_place(make_rows(empties=peer.empties, null_headers=peer.null_headers))
    if not peer.timestamps:
        sent = [row._replace(timestamp=r.timestamp) for row, r in zip(sent, rows, strict=True)]
    assert rows == sent
    assert sorted(acknowledged) in ([place(row) for row in rows], [])
    # librdkafka sends a batch that does not shrink as it is.
    assert {codec} <= codecs <= {codec, "none"}


@proves("fetch", *NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_what_one_client_wrote_every_other_reads(
    peer: Peer, writer: str, bootstrap: str, written: Write, stored: Stored
) -> None:
    for codec in CODECS:
        topic, _ = written(writer, codec)
        rows, _ = stored(topic)
        assert in_place(peer.read(bootstrap, topic, len(rows))) == rows


@proves("offsets", *NAMES)
def test_reading_starts_at_a_timestamp(
    peer: Peer, bootstrap: str, written: Write, stored: Stored
) -> None:
    topic, _ = written("confluent", "zstd")
    rows, _ = stored(topic)
    timestamp = sorted(row.timestamp for row in rows)[len(rows) // 2] + 1
    expected = since(rows, timestamp)
    assert PARTITIONS < len(expected) < len(rows)
    assert in_place(peer.read(bootstrap, topic, len(expected), timestamp)) == expected


@proves("auto-created topic", *NAMES)
def test_a_missing_topic_is_created_by_the_first_record(
    peer: Peer, bootstrap: str, stored: Stored
) -> None:
    topic = f"made-by-{peer.name}"
    [row, *_] = make_rows()
    peer.write(bootstrap, topic, "none", [row])
    [found], _ = stored(topic)
    assert found._replace(timestamp=row.timestamp) == row
