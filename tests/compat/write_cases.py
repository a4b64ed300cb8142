"""What is written both ways: rows, options, and what comes of them.

Owns: the table.  Must not know how it is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Each connector writes to a topic of its own; texts that hold this are different for each.
WRITER = "{format}"
#: One task, so that rows stay in their order.
ONE_TASK = "SELECT /*+ COALESCE(1) */ * FROM "


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """``records`` arrive; or it ``fails``, and our message holds that (a regular expression).

    ``kafka`` is what the other one's message holds, where the words differ; ``partitions`` are
    those of the topic, which is not made if there are none.
    """

    name: str
    sql: str
    options: Mapping[str, str]
    records: int = 0
    fails: str | None = None
    kafka: str | None = None
    mode: str | None = "append"
    partitions: int = 3

    @property
    def topic(self) -> str:
        return f"{self.name.replace(' ', '-')}.{WRITER}"


def _arrive(name: str, records: int, rows: str, **given: Any) -> Write:
    return _write(name, rows, given, records=records)


def _fails(name: str, says: str, rows: str = "VALUES ('v') AS t(value)", **given: Any) -> Write:
    return _write(name, rows, given, fails=says, kafka=given.pop("kafka", says))


def _write(name: str, rows: str, given: dict[str, Any], **expected: Any) -> Write:
    """Of what is ``given``, fields of ``Write`` are such; double underscores stand for dots."""
    fields = {key: given.pop(key) for key in ("mode", "partitions") if key in given}
    options = {key.replace("__", "."): value for key, value in given.items() if key != "kafka"}
    sql = rows if rows.startswith("SELECT") else ONE_TASK + rows
    return Write(name=name, sql=sql, options=options, **fields, **expected)


def _headers(rows: str) -> str:
    return f"SELECT /*+ COALESCE(1) */ 'k' AS key, 'v' AS value, {rows} AS headers"


TOO_LARGE = "SELECT repeat('x', 2000000) AS value"

CASES: tuple[Write, ...] = (
    # what arrives
    _arrive("texts", 4, "VALUES ('a', '1'), ('b', '2'), ('a', '3'), ('', '') AS t(key, value)"),
    _arrive("bytes", 2, "VALUES (X'FF', X'00'), (X'', X'FE') AS t(key, value)"),
    _arrive(
        "many keys",
        50,
        "SELECT /*+ COALESCE(1) */ string(id) AS key, string(id * 7) AS value FROM range(50)",
    ),
    _arrive(
        "null values",
        3,
        "VALUES ('a', NULL), (NULL, 'v'), (NULL, NULL) AS t(key, value)",
        partitions=1,
    ),
    _arrive("nothing but values", 2, "VALUES ('1'), ('2') AS t(value)", partitions=1),
    _arrive("columns in another order", 1, "VALUES ('v', 'k') AS t(value, key)"),
    _arrive("no rows", 0, "VALUES ('v') AS t(value) WHERE value = 'w'"),
    _arrive(
        "a partition for each",
        3,
        "VALUES ('a', '1', 2), ('a', '2', 0), (NULL, '3', 2) AS t(key, value, partition)",
    ),
    _arrive(
        "a partition for some",
        3,
        "VALUES ('a', '1', NULL), ('b', '2', 0), ('c', '3', NULL) AS t(key, value, partition)",
    ),
    _arrive(
        "headers of a row",
        1,
        _headers(
            "array(struct('h' AS key, X'01' AS value), "
            "struct('h' AS key, CAST(NULL AS BINARY) AS value))"
        ),
    ),
    _arrive(
        "headers that are included",
        1,
        _headers("array(struct('h' AS key, X'01' AS value))"),
        includeHeaders="true",
    ),
    _arrive("null headers", 1, _headers("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")),
    _arrive(
        "an empty list of headers",
        1,
        _headers("CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"),
    ),
    _arrive(
        "a topic in each row",
        1,
        f"VALUES ('a-topic-in-each-row.{WRITER}', 'v') AS t(topic, value)",
        topic="",
        partitions=1,
    ),
    _arrive("a topic besides", 1, "VALUES ('another', 'v') AS t(topic, value)", partitions=1),
    _arrive("a topic that is made for it", 1, "VALUES ('v') AS t(value)", partitions=0),
    _arrive(
        "settings of a producer",
        1,
        "VALUES ('k', 'v') AS t(key, value)",
        kafka__acks="1",
        kafka__compression__type="zstd",
        kafka__linger__ms="5",
        kafka__batch__size="131072",
        kafka__buffer__memory="33554432",
        kafka__request__timeout__ms="20000",
        kafka__retries="3",
        kafka__max__request__size="1048576",
    ),
    _arrive(
        "settings of a partitioner",
        2,
        "VALUES ('k', 'v'), (NULL, 'w') AS t(key, value)",
        partitions=1,
        kafka__partitioner__class="org.apache.kafka.clients.producer.RoundRobinPartitioner",
        kafka__partitioner__ignore__keys="true",
    ),
    _arrive("nobody waits", 1, "VALUES ('k', 'v') AS t(key, value)", kafka__acks="0"),
    _arrive(
        "without idempotence",
        1,
        "VALUES ('k', 'v') AS t(key, value)",
        kafka__enable__idempotence="false",
    ),
    _arrive("columns that nobody knows", 1, "VALUES ('v', 1) AS t(value, colour)", partitions=1),
    _arrive("without a mode", 1, "VALUES ('k', 'v') AS t(key, value)", mode=None),
    # what does not
    _fails("no column of values", "value", "VALUES ('k') AS t(key)"),
    _fails("no topic at all", "topic", topic=""),
    _fails(
        "a row without a topic",
        "topic",
        "VALUES (CAST(NULL AS STRING), 'v') AS t(topic, value)",
        topic="",
    ),
    _fails("a topic of no name", "topic", "VALUES ('', 'v') AS t(topic, value)", topic=""),
    _fails("nothing for a value", "value", "VALUES (NULL) AS t(value)"),
    _fails("a number for a key", "key", "VALUES (1, 'v') AS t(key, value)"),
    _fails("a number for a value", "value", "VALUES (1) AS t(value)"),
    _fails("a number for a topic", "topic", "VALUES (1, 'v') AS t(topic, value)", topic=""),
    _fails("a long for a partition", "partition", "VALUES ('v', 1L) AS t(value, partition)"),
    _fails("a text for headers", "headers", "VALUES ('v', 'h') AS t(value, headers)"),
    _fails(
        "headers of other names", "headers", _headers("array(struct('h' AS name, X'01' AS value))")
    ),
    _fails(
        "a header without a name",
        "header",
        _headers("array(struct(CAST(NULL AS STRING) AS key, X'01' AS value))"),
        kafka="NullPointer",
    ),
    _fails(
        "a null among headers",
        "header",
        _headers("array(CAST(NULL AS STRUCT<key: STRING, value: BINARY>))"),
        kafka="NullPointer",
    ),
    _fails("a partition before the first", "partition", "VALUES ('v', -1) AS t(value, partition)"),
    _fails(
        "a partition behind the last",
        "partition",
        "VALUES ('v', 7) AS t(value, partition)",
        kafka="partition|TimeoutException",
        kafka__max__block__ms="2000",
    ),
    _fails("a topic that cannot be", "topic", kafka="InvalidTopic", topic="no topic!"),
    _fails("too large a record", "max.message.bytes", TOO_LARGE, kafka="RecordTooLarge"),
    _fails("overwriting", "overwr", mode="overwrite"),
    _fails("ignoring", "ignore", mode="ignore"),
    _fails("a serializer of keys", "key.serializer", kafka__key__serializer="a.B"),
    _fails("a serializer of values", "value.serializer", kafka__value__serializer="a.B"),
    _fails("acknowledgements perhaps", "acks", kafka__acks="perhaps"),
    _fails("compression perhaps", "compression.type", kafka__compression__type="perhaps"),
    _fails("nowhere", "bootstrap.servers", kafka__bootstrap__servers=""),
)
