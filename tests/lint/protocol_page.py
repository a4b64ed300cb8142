"""docs/protocol.md, from the registered handlers, their docstrings, and what tests prove.

``python -m tests.lint.protocol_page`` writes the page, and a test beside it fails when that is due.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kio.schema.index import api_key_map, schema_name_map

from sparklog import service
from sparklog.driver.control_plane import handlers as control_plane_apis
from sparklog.driver.control_plane.handlers import not_coordinator, not_leader
from sparklog.executors import apis as broker_apis
from sparklog.executors import handlers as broker_handlers
from sparklog.executors.handlers import forward
from sparklog.service import api_versions
from sparklog.service.handler import ApiHandler
from sparklog.wire.protocol.codec import request_type
from sparklog.wire.protocol.private import FIRST_PRIVATE_KEY
from tests.peers import deviations
from tests.support.proven import CLIENTS, FEATURES, MARK, Proof, proofs_of

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = ROOT / "docs" / "protocol.md"

_INTRODUCTION = f"""\
# The protocol

This page is made by `python -m tests.lint.protocol_page` from the handlers that nodes register,
the docstrings of their modules, the deviations that `tests/peers` expects, and the tests that are
marked with what they prove of a client.

Every node speaks the Kafka protocol. Brokers have ids from 1. Node 0 is the control plane: it is
the controller, and leads and coordinates nothing. ApiVersions tells a client a node's versions.

*Kafka* has the versions of Kafka's message schemas (kio {version("kio")}); Kafka itself does not
enable the newest ones yet. A broker *forwards* what only the controller decides. Node 0 *refers*
requests about records and groups to the brokers: it answers them with NOT_LEADER_OR_FOLLOWER or
NOT_COORDINATOR, so that clients look again.
"""

_DEVIATIONS = """
## Deviations from Apache Kafka 4.3.1, field by field

`tests/peers` sends the same requests to Kafka and to sparklog, and compares every field of the
responses. Only these may differ, each where a test expects it.
"""

_PRIVATE = """
## Private APIs

Keys from 20000 up are for members of the cluster only, and not advertised. The exceptions are the
proof of membership, and ConsistentCut, ReadRemoteSegments and NodeStatus, which are for clients and
advertised to sparklog's own.
"""

_CLIENTS = """
## Clients

Each cell is shown by a test that runs the client, unchanged, against sparklog.
"""

#: What is not served: the subject, the keys, and the reason.
_NOT_SERVED: Final[tuple[tuple[str, tuple[int, ...], str], ...]] = (
    (
        "groups of KIP-848, share groups and streams groups",
        (68, 69, *range(76, 80), *range(83, 93)),
        "not yet; consumers use the classic protocol",
    ),
    (
        "SASL, access rules, tokens and SCRAM",
        (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),
        "clients are not authenticated ([security](security.md))",
    ),
    ("client quotas and telemetry", (48, 49, 71, 72), "not yet"),
    (
        "KRaft",
        (52, 53, 54, 55, 57, 58, 59, 62, 63, 67, 70, 80, 81, 82),
        "the control plane keeps a journal, and brokers talk to it in private APIs",
    ),
    ("moves between log directories", (34, 73), "not yet; a replica stays where it was placed"),
    ("listed resources", (74,), "not yet"),
)


class _Anything:
    """What handlers are made of; they look at it only when a request comes."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API, and the handlers of a broker and of node 0; None: the node does not serve it."""

    api_key: int
    name: str
    broker: ApiHandler | None
    control_plane: ApiHandler | None

    @property
    def is_private(self) -> bool:
        return self.api_key >= FIRST_PRIVATE_KEY


def due() -> str:
    """The document as handlers and tests make it."""
    kafka = [api for api in all_apis() if not api.is_private]
    private = [api for api in all_apis() if api.is_private]
    parts = [
        _INTRODUCTION,
        "## APIs\n",
        "| key | name | Kafka | brokers | node 0 |\n|---|---|---|---|---|",
        *map(_api_row, kafka),
        "\n## What each API does, and how it deviates\n",
        *(line for api in kafka for line in _api_text(api)),
        "## APIs of Kafka that are not served\n",
        "| | APIs | why |\n|---|---|---|",
        *(_not_served_row(*each) for each in _NOT_SERVED),
        _DEVIATIONS,
        "| field | why |\n|---|---|",
        *_deviation_rows(),
        _PRIVATE,
        "| key | name | brokers | node 0 | |\n|---|---|---|---|---|",
        *map(_private_row, private),
        _CLIENTS,
        *_client_table(proofs()),
        "\nThe tests:\n",
        *_tests_by_feature(proofs()),
        "",
    ]
    return "\n".join(parts)


# APIs


@cache
def all_apis() -> tuple[Api, ...]:
    """All APIs that any node serves, by key."""
    anything: Any = _Anything()
    parameters = inspect.signature(broker_apis.broker_handlers).parameters
    brokers = broker_apis.broker_handlers(**dict.fromkeys(parameters, anything))
    node_0 = control_plane_apis.handlers(anything)
    versions = api_versions.handler(anything)
    by_key: dict[int, list[ApiHandler | None]] = {}
    for column, handlers in enumerate(([*brokers, versions], [*node_0, versions])):
        for handler in handlers:
            by_key.setdefault(handler.api_key, [None, None])[column] = handler
    return tuple(
        Api(
            api_key=key,
            name=request_type(key).__name__.removesuffix("Request"),
            broker=broker,
            control_plane=control_plane,
        )
        for key, (broker, control_plane) in sorted(by_key.items())
    )


def _api_row(api: Api) -> str:
    kafka = schema_name_map[api_key_map[api.api_key]]
    return (
        f"| {api.api_key} | {api.name} | {_range(min(kafka), max(kafka))} "
        f"| {_served(api.broker)}{_if(api.api_key in _forwarded(), 'forwards')} "
        f"| {_served(api.control_plane)}{_if(api.api_key in _referred(), 'refers')} |"
    )


def _private_row(api: Api) -> str:
    served = ("yes" if each else "" for each in (api.broker, api.control_plane))
    text = _plain((request_type(api.api_key).__doc__ or "").split("\n\n")[0])
    return f"| {api.api_key} | {api.name} | {' | '.join(served)} | {text} |"


def _not_served_row(what: str, keys: Sequence[int], why: str) -> str:
    names = (f"{_title(key)} ({key})" for key in keys)
    return f"| {what} | {', '.join(names)} | {why} |"


def _title(key: int) -> str:
    return "".join(part.title() for part in api_key_map[key].split("_"))


def _served(handler: ApiHandler | None) -> str:
    if handler is None:
        return ""
    advertised = _range(handler.min_version, handler.max_version)
    if not handler.advertise:
        return f"{advertised}, not advertised"
    if handler.advertised_min is not None:
        return f"{advertised}, advertised from {handler.advertised_min}"
    return advertised


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _if(holds: bool, text: str) -> str:
    return f", {text}" if holds else ""


@cache
def _forwarded() -> frozenset[int]:
    anything: Any = _Anything()
    return frozenset(each.api_key for each in forward.handlers(anything))


@cache
def _referred() -> frozenset[int]:
    return frozenset(each.api_key for each in (*not_leader.handlers(), *not_coordinator.handlers()))


def not_served() -> frozenset[int]:
    """The keys of Kafka that the page says are not served."""
    return frozenset(key for _, keys, _ in _NOT_SERVED for key in keys)


# the texts of APIs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The docstrings of an API's modules: brokers first, then those of node 0."""

    summary: str
    paragraphs: tuple[str, ...]


_FIRST_LINE = re.compile(r"(\w+) \(key (\d+)\)(?: v[\d-]+)?(.*)", re.S)


@cache
def _documents() -> dict[int, _Document]:
    found: dict[int, _Document] = {}
    for module in (*_modules(broker_handlers), *_modules(service), *_modules(control_plane_apis)):
        first, *rest = (module.__doc__ or "").strip().split("\n\n")
        match = _FIRST_LINE.match(first)
        if match is None or int(match[2]) in found:
            continue
        summary = _plain(match[3].lstrip(" :,"))
        found[int(match[2])] = _Document(summary=summary, paragraphs=tuple(map(_plain, rest)))
    return found


def _modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(each.name for each in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _plain(paragraph: str) -> str:
    """A paragraph of a docstring as Markdown, on one line."""
    joined = " ".join(line.strip() for line in paragraph.splitlines())
    joined = re.sub(r"``([^`]+)``", r"`\1`", joined)
    return re.sub(r"  +", " ", joined)


def _api_text(api: Api) -> list[str]:
    document = _documents().get(api.api_key)
    if document is None:
        return []
    text = document.summary[:1].upper() + document.summary[1:]
    return [f"**{api.name} ({api.api_key})**: {text}", "", *_with_space(document.paragraphs)]


def _with_space(paragraphs: Iterable[str]) -> list[str]:
    return [line for each in paragraphs for line in (each, "")]


# deviations


def _deviation_rows() -> list[str]:
    every = [each for each in vars(deviations).values() if isinstance(each, deviations.Deviation)]
    rows = (f"| `{_field(each.path)}` | {each.reason.replace('|', ' or ')} |" for each in every)
    return list(dict.fromkeys(rows))


def _field(pattern: str) -> str:
    """A regular expression of a field's path, for readers."""
    text = re.sub(r"\\\[(\\d\+|\.\*|\\d)\\\]", "[]", pattern).replace("\\", "")
    return text.replace("|", " or ")


# clients


@cache
def proofs() -> tuple[Proof, ...]:
    """What tests prove, from their marks; no test runs."""
    found: list[Proof] = []
    for path in sorted((ROOT / "tests").glob("*/test_*.py")):
        if MARK not in path.read_text():
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for test, function in vars(importlib.import_module(name)).items():
            if test.startswith("test_"):
                found += proofs_of(function, f"{path.relative_to(ROOT)}::{test}")
    return tuple(found)


def _client_table(found: Sequence[Proof]) -> list[str]:
    shown = {(proof.feature, client) for proof in found for client in proof.clients}
    clients = [key for key in CLIENTS if any(client == key for _, client in shown)]
    titles = " | ".join(CLIENTS[client] for client in clients)
    lines = [f"| the client | {titles} |", "|---" * (len(clients) + 1) + "|"]
    for feature, text in FEATURES.items():
        cells = ("yes" if (feature, client) in shown else "" for client in clients)
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def _tests_by_feature(found: Sequence[Proof]) -> list[str]:
    lines = []
    for feature in FEATURES:
        tests = dict.fromkeys(proof.test for proof in found if proof.feature == feature)
        lines.append(f"* {FEATURES[feature]}: {', '.join(f'`{test}`' for test in tests)}")
    return lines


if __name__ == "__main__":
    DOCUMENT.write_text(due())
