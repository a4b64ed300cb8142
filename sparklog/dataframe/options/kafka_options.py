"""Options that begin with ``kafka.``: settings of Kafka's clients.

Owns: the options that are accepted without effect, and the options that are refused, with the
reason.  Must not know the values of options with an effect (``options`` has them).
"""

#: Accepted without effect: settings of the inner workings of Java's clients.
_CLIENT = (
    *("auto.include.jmx.reporter", "client.dns.lookup", "connections.max.idle.ms"),
    *("enable.metrics.push", "metadata.max.age.ms", "metadata.recovery.strategy"),
    *("metric.reporters", "metrics.num.samples", "metrics.recording.level"),
    *("metrics.sample.window.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms"),
    *("reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms"),
    *("security.protocol", "send.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
    *("socket.connection.setup.timeout.ms",),
)
#: Accepted without effect, because there is no group, no session and no poll loop: the source
#: assigns partitions itself.
_CONSUMER = (
    *("allow.auto.create.topics", "auto.commit.interval.ms", "check.crcs"),
    *("default.api.timeout.ms", "exclude.internal.topics", "fetch.max.wait.ms", "fetch.min.bytes"),
    *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
    *("heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records"),
    *("partition.assignment.strategy", "session.timeout.ms"),
)
_PRODUCER = (
    *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    *("linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size"),
    *("metadata.max.idle.ms", "partitioner.adaptive.partitioning.enable"),
    *("partitioner.availability.timeout.ms", "retries", "transaction.timeout.ms"),
)
READ_WITHOUT_EFFECT = frozenset(f"kafka.{name}" for name in (*_CLIENT, *_CONSUMER))
WRITE_WITHOUT_EFFECT = frozenset(f"kafka.{name}" for name in (*_CLIENT, *_PRODUCER))

#: Refused options with the reason: Spark's Kafka source refuses them, or we do not support them.
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are read as binary; cast the column",
    "kafka.value.deserializer": "values are read as binary; cast the column",
    "kafka.key.serializer": "keys are written as string or binary; cast the column",
    "kafka.value.serializer": "values are written as string or binary; cast the column",
    "kafka.enable.auto.commit": "a batch read commits no offsets",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.transactional.id": "transactions belong to Spark's jobs, not to their options",
    "path": "topics are no files; name them with subscribe or assign (read) or topic (write)",
}
_REFUSED_FAMILIES = {
    "kafka.sasl.": "connections are plain text; leave SASL out",
    "kafka.ssl.": "connections are plain text; leave TLS out",
}


def refusal(name: str, text: str) -> str | None:
    """The reason why an option (in lower case) is refused; None if it is accepted."""
    if name in REFUSED:
        return REFUSED[name]
    if name == "kafka.security.protocol" and text.strip().upper() != "PLAINTEXT":
        return "connections are plain text: PLAINTEXT, or leave it out"
    families = (why for prefix, why in _REFUSED_FAMILIES.items() if name.startswith(prefix))
    return next(families, None)
