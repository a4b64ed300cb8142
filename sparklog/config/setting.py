"""One setting: its name, type, default and range, and the conversion between text and value.

Owns: parsing, rendering, and the errors that name a setting and the remedy.  Must not know any
particular setting.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.config.foreign import find_foreign
from sparklog.errors import ConfigError

NO_LIMIT = -1
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker setting that is the default of a topic setting.

    ``factor`` is the size of its unit, in units of the topic setting.
    """

    name: str
    factor: int = 1
    kind: str = ""
    minimum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table of settings.

    Args:
        kind: Kafka's ``ConfigDef.Type`` name.
        minimum: the least number, inclusive.
        maximum: the greatest number, inclusive.
        choices: the allowed texts; empty for any text.
        check: returns what is expected in place of a wrong value; None for a good value.
        synonyms: the broker settings that are defaults of a topic setting.  The first one that is
            given counts; the last one has the default.
        dynamic: whether the setting can change while the broker runs.
    """

    name: str
    kind: str
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = True

    @property
    def field(self) -> str:
        """The attribute that has the value: the name with underscores in place of dots."""
        return self.name.replace(".", "_")

    @property
    def broker_name(self) -> str | None:
        """The name of the broker setting that is the dynamic default of a topic setting."""
        return self.synonyms[0].name if self.synonyms else None

    def parse(self, text: str) -> Any:
        """The value of a text, as Kafka's tools send it.

        Raises:
            ConfigError: names the setting and the remedy.
        """
        try:
            value = _PARSERS[self.kind](text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}={text!r}: expected {self.expected}") from None
        objection = self._objection(value)
        if objection:
            raise ConfigError(f"{self.name}={text!r}: expected {objection}")
        return value

    def render(self, value: Any) -> str:
        """The text of a value, as DescribeConfigs returns it."""
        if self.kind == "BOOLEAN":
            return "true" if value else "false"
        if self.kind == "LIST":
            return ",".join(value)
        if self.kind == "DOUBLE":
            return str(value).replace("e+", "E")  # Java's form
        return str(value)

    @property
    def expected(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        bounds = [
            f"{word} {bound:g}" if bound < 1e6 else f"{word} {bound}"
            for word, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        ]
        return f"{self.kind.lower()} {' and '.join(bounds)}".strip()

    def _objection(self, value: Any) -> str | None:
        values = value if isinstance(value, tuple) else (value,)
        bad = (
            (self.choices and any(item not in self.choices for item in values))
            or (self.minimum is not None and not value >= self.minimum)
            or (self.maximum is not None and not value <= self.maximum)
        )
        if bad:
            return self.expected
        return self.check(value) if self.check is not None else None


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_integer(text: str) -> int:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return int(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "BOOLEAN": _parse_boolean,
    "SHORT": _parse_integer,
    "INT": _parse_integer,
    "LONG": _parse_integer,
    "DOUBLE": float,
    "STRING": str,
    "LIST": lambda text: tuple(item.strip() for item in text.split(",") if item.strip()),
}


def require_setting(table: Mapping[str, Setting], name: str, kind: str) -> Setting:
    """Look up a setting by its name.

    Raises:
        ConfigError: says why a setting of Kafka's is not available, or offers the nearest name.
    """
    setting = table.get(name)
    if setting is None:
        foreign = find_foreign(name)
        if foreign is not None:
            raise ConfigError(f"{name} cannot be set here: {foreign.reason}")
        near = nearest(name, table)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"unknown {kind} setting {name!r}{hint}")
    return setting


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was most likely meant by a misspelt one; None if no name is similar."""
    from difflib import get_close_matches  # only on the way to an error

    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None
