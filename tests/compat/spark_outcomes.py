"""What a read or a write through Spark came to: values that travel between processes.

Owns: the values.  Must not know Spark, nor which connector was used.
"""

from dataclasses import dataclass, field, replace
from typing import Any

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A read (``sql`` is None), or a write of what ``sql`` selects; through each of ``formats``.

    ``{format}`` in ``sql`` and in options stands for the format.
    """

    formats: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    sql: str | None = None
    mode: str | None = "append"
    schema: str | None = None

    def named(self, name: str) -> "Job":
        """The job of one of its formats."""
        return replace(
            self,
            formats=(name,),
            options={key: text.replace("{format}", name) for key, text in self.options.items()},
            sql=self.sql and self.sql.replace("{format}", name),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Spark's Kafka source and sink, as a stream from ``source`` to ``sink``, both of them options.

    The stream ends when it has read what was there at its start.  ``settings`` are of the session.
    """

    source: dict[str, str]
    sink: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A read that succeeded.

    ``schema`` is Spark's JSON; ``rows`` are by topic and partition in the order in which they came;
    ``pieces`` are (topic, partition, first offset, last offset) of each task that had any.
    """

    schema: str
    rows: dict[Place, list[tuple[Any, ...]]]
    pieces: list[tuple[str, int, int, int]]

    @property
    def count(self) -> int:
        return sum(map(len, self.rows.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write that succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What the user is told, without stack traces."""

    message: str


Outcome = Rows | Written | Failure
