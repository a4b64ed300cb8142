"""The generator of ``sparklog/wire/protocol/messages`` from the schemas of kio.

Owns: the union of all versions of an API into one class per struct.  Must not know the codec.  It
runs at development time only, because it needs kio and ruff:
``python -m sparklog.wire.protocol.generate``.  A test fails when the checked-in modules differ from
its output.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import keyword
import re
import subprocess
import sys
import textwrap
import types
import typing
import uuid
from pathlib import Path
from typing import Any

from sparklog.wire.protocol.own_fields import OWN_FIELDS
from sparklog.wire.protocol.schema import NEVER_FLEXIBLE

#: The APIs to generate, by their name in kio.
APIS = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "find_coordinator",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "describe_configs",
    "offset_commit",
    "offset_fetch",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "delete_groups",
    "offset_delete",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "txn_offset_commit",
    "end_txn",
    "write_txn_markers",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "describe_log_dirs",
    "create_partitions",
    "alter_configs",
    "incremental_alter_configs",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "alter_partition",
    "unregister_broker",
    "describe_topic_partitions",
    "describe_cluster",
)
FOLDER = Path(__file__).parent / "messages"
_KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64"}
_KINDS |= {"datetime_i64": "int64"}
_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
    "uuid": "UUID | None",
}
#: Records of a Fetch response may be regions of a file.
_RECORDS_TYPES = {"fetch": "SendableRecords"}
_ZEROS = {"bool": "False", "float64": "0.0", "string": '""', "bytes": 'b""', "uuid": "None"}


@dataclasses.dataclass(kw_only=True)
class _Field:
    """The union of one field over all versions of a struct."""

    name: str
    kind: str
    is_struct: bool
    is_array: bool
    tag: int | None
    doc: str
    versions: list[int]
    nullable_versions: list[int]
    default: str | None
    null_is_minus_one: bool


@dataclasses.dataclass(kw_only=True)
class _Struct:
    name: str
    fields: list[_Field] = dataclasses.field(default_factory=list)


class _Union:
    """Collects the versions of one message, newest first."""

    def __init__(self, versions: list[int]) -> None:
        self.versions = versions
        self.structs: dict[str, _Struct] = {}
        self._seen_orders: list[tuple[str, list[str]]] = []

    def add(self, struct_type: type[Any], version: int) -> None:
        struct = self.structs.setdefault(struct_type.__name__, _Struct(name=struct_type.__name__))
        docs = _field_docs(struct_type)
        order: list[str] = []
        for field in dataclasses.fields(struct_type):
            inner, is_array, nullable = _unwrap(field.type)
            is_struct = dataclasses.is_dataclass(inner)
            if is_struct:
                self.add(inner, version)
            found = _describe(field, inner, is_array, is_struct, docs.get(field.name, ""))
            previous = order[-1] if order else None
            order.append(found.name)
            merged = _merge(struct, found, previous)
            merged.versions.insert(0, version)
            if nullable and merged.kind != "uuid" and not merged.null_is_minus_one:
                merged.nullable_versions.insert(0, version)
        self._seen_orders.append((struct.name, order))

    def add_own_fields(self, flexible_versions: list[int]) -> None:
        for struct in self.structs.values():
            struct.fields += [
                _Field(
                    **field._asdict(),
                    kind="int64",
                    is_struct=False,
                    is_array=False,
                    versions=flexible_versions,
                    nullable_versions=[],
                    default="-1",
                    null_is_minus_one=False,
                )
                for field in OWN_FIELDS.get(struct.name, ())
            ]

    def check(self) -> None:
        for struct in self.structs.values():
            for field in struct.fields:
                _check_contiguous(struct, field)
        for name, order in self._seen_orders:
            merged = [field.name for field in self.structs[name].fields if field.name in order]
            assert merged == order, f"{name}: the order {order} does not fit {merged}"


def _check_contiguous(struct: _Struct, field: _Field) -> None:
    low, high = field.versions[0], field.versions[-1]
    where = f"{struct.name}.{field.name}"
    assert field.versions == list(range(low, high + 1)), f"{where}: {field.versions}"
    if field.nullable_versions:
        expected = list(range(field.nullable_versions[0], high + 1))
        assert field.nullable_versions == expected, f"{where}: {field.nullable_versions}"


def _merge(struct: _Struct, found: _Field, previous: str | None) -> _Field:
    for known in struct.fields:
        if known.name == found.name:
            same = (known.kind, known.is_array) == (found.kind, found.is_array)
            assert same, f"{struct.name}.{known.name}: {known} differs from {found}"
            assert found.tag == known.tag, f"{struct.name}.{known.name}: tag changes"
            known.default = known.default if known.default is not None else found.default
            return known
    names = [field.name for field in struct.fields]
    struct.fields.insert(0 if previous is None else names.index(previous) + 1, found)
    return found


def _unwrap(declared: Any) -> tuple[Any, bool, bool]:
    """A declared type -> (inner type, is it an array, may the value be null)."""
    nullable = False
    if typing.get_origin(declared) in (types.UnionType, typing.Union):
        inner = [part for part in typing.get_args(declared) if part is not type(None)]
        assert len(inner) == 1, declared
        declared, nullable = inner[0], True
    if typing.get_origin(declared) is not tuple:
        return declared, False, nullable
    inner, _, _ = _unwrap(typing.get_args(declared)[0])
    return inner, True, nullable


def _describe(
    field: dataclasses.Field[Any], inner: Any, is_array: bool, is_struct: bool, doc: str
) -> _Field:
    kafka_type = inner.__name__ if is_struct else field.metadata["kafka_type"]
    is_time = kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64")
    name = field.name
    if is_time and not name.endswith("_ms"):
        name += "_ms"
    return _Field(
        name=name,
        kind=_KINDS.get(kafka_type, kafka_type),
        is_struct=is_struct,
        is_array=is_array,
        tag=field.metadata.get("tag"),
        doc=doc,
        versions=[],
        nullable_versions=[],
        default=_default_source(field.default),
        null_is_minus_one=kafka_type == "datetime_i64",
    )


def _default_source(default: Any) -> str | None:
    if default is dataclasses.MISSING:
        return None
    if dataclasses.is_dataclass(default):
        return f"{type(default).__name__}()"
    if hasattr(default, "total_seconds"):
        return str(round(default.total_seconds() * 1000))
    if isinstance(default, uuid.UUID):
        assert default.int == 0, default
        return "None"
    if isinstance(default, int) and not isinstance(default, bool):
        return str(int(default))
    return repr(default)


def _field_docs(struct_type: type[Any]) -> dict[str, str]:
    """The strings under the fields of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct_type)))
    definition = tree.body[0]
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docs[statement.target.id] = str(after.value.value)
    return docs


def _python_type(field: _Field) -> str:
    base = field.kind if field.is_struct else _PYTHON_TYPES.get(field.kind, "int")
    if field.is_array:
        base = f"tuple[{base}, ...]"
    if field.nullable_versions and "None" not in base.split(" | "):
        base += " | None"
    return base


def _default(field: _Field) -> str:
    if field.default is not None and field.default != "None":
        return field.default
    if field.null_is_minus_one:
        return "-1"
    if field.nullable_versions:
        return "None"
    if field.is_array:
        return "()"
    return f"{field.kind}()" if field.is_struct else _ZEROS.get(field.kind, "0")


def _field_source(field: _Field, known: range) -> str:
    arguments = [field.kind if field.is_struct else f'"{field.kind}"']
    low, high = field.versions[0], field.versions[-1]
    if high < known[-1]:
        arguments += [str(_first(low, known)), str(high)]
    elif low > known[0]:
        arguments.append(str(low))
    if field.nullable_versions:
        arguments.append(f"nullable={_first(field.nullable_versions[0], known)}")
    if field.tag is not None:
        arguments.append(f"tag={field.tag}")
    assert not keyword.iskeyword(field.name), field.name
    maker = "many" if field.is_array else "one"
    lines = [
        f"    {field.name}: {_python_type(field)} = field("
        f"default={_default(field)}, metadata={maker}({', '.join(arguments)}))"
    ]
    lines += textwrap.wrap(
        _clean(field.doc), width=100, initial_indent="    #: ", subsequent_indent="    #: "
    )
    # The comment belongs above its field.
    return "\n".join([*lines[1:], lines[0]])


def _first(version: int, known: range) -> int:
    """0 for "always", so that only changes between versions stand out."""
    return 0 if version == known[0] else version


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _load_versions(api: str, side: str) -> dict[int, type[Any]]:
    package = importlib.import_module(f"kio.schema.{api}")
    name = "".join(part.capitalize() for part in api.split("_")) + side.capitalize()
    found = {}
    for path in Path(package.__path__[0]).glob("v*"):
        module = importlib.import_module(f"kio.schema.{api}.{path.name}.{side}")
        found[int(path.name[1:])] = getattr(module, name)
    return dict(sorted(found.items()))


def _message_source(api: str, side: str) -> str:
    versions = _load_versions(api, side)
    union = _Union(list(versions))
    for version in reversed(versions):
        union.add(versions[version], version)
    union.add_own_fields([version for version, found in versions.items() if found.__flexible__])
    union.check()
    newest = versions[max(versions)]
    ordered = _dependencies_first(union, newest.__name__)
    return "\n\n\n".join(
        _struct_source(struct, versions, is_message=struct.name == newest.__name__)
        for struct in ordered
    )


def _dependencies_first(union: _Union, root: str) -> list[_Struct]:
    ordered: list[_Struct] = []

    def visit(name: str) -> None:
        struct = union.structs[name]
        for field in struct.fields:
            if field.is_struct:
                visit(field.kind)
        if struct not in ordered:
            ordered.append(struct)

    visit(root)
    return ordered


def _struct_source(struct: _Struct, versions: dict[int, type[Any]], *, is_message: bool) -> str:
    base = "Struct"
    head = []
    if is_message:
        base = "Request" if struct.name.endswith("Request") else "Response"
        flexible = [version for version, found in versions.items() if found.__flexible__]
        _check_headers(versions, base)
        flexible_from = min(flexible, default=NEVER_FLEXIBLE)
        head = [
            f"    API_KEY: ClassVar[int] = {int(versions[max(versions)].__api_key__)}",
            f"    MIN_VERSION: ClassVar[int] = {min(versions)}",
            f"    MAX_VERSION: ClassVar[int] = {max(versions)}",
            f"    FLEXIBLE_FROM: ClassVar[int] = {flexible_from}",
            "",
        ]
    body = [
        _field_source(field, range(min(versions), max(versions) + 1)) for field in struct.fields
    ]
    lines = [*head, *body] or ["    pass"]
    return "\n".join(["@message", f"class {struct.name}({base}):", *lines])


def _check_headers(versions: dict[int, type[Any]], base: str) -> None:
    """The codec derives the header from "flexible"; ApiVersions' response is the exception."""
    for version, found in versions.items():
        header = int(found.__header_schema__.__version__)
        expected = int(found.__flexible__) + (1 if base == "Request" else 0)
        if found.__name__ == "ApiVersionsResponse":
            expected = 0
        assert header == expected, f"{found.__name__} v{version}: header {header}"


def module_source(api: str) -> str:
    """The module of one API, not yet formatted."""
    title = "".join(part.capitalize() for part in api.split("_"))
    request, response = _message_source(api, "request"), _message_source(api, "response")
    for name in sorted(set(_class_names(request)) & set(_class_names(response))):
        response = re.sub(rf"\b{name}\b", f"Response{name}", response)
    parts = [request, response]
    records_type = _RECORDS_TYPES.get(api, "Records")
    body = re.sub(r"\bRecords\b", records_type, "\n\n\n".join(parts))
    names = _class_names(body)
    assert len(names) == len(set(names)), f"{api}: a name is used twice: {names}"
    imports = ["from dataclasses import field", "from typing import ClassVar"]
    if "UUID" in body:
        imports.append("from uuid import UUID")
    wanted = [name for name in ("Request", "Response", "Struct") if f"({name}):" in body]
    wanted.append("message")
    wanted += [records_type] if re.search(rf"\b{records_type}\b", body) else []
    wanted += [name for name in ("many", "one") if f"metadata={name}(" in body]
    docstring = f'"""{title}, all versions in one.  @generated by ``protocol.generate``."""'
    schema = f"from sparklog.wire.protocol.schema import {', '.join(sorted(wanted))}"
    return "\n".join([docstring, "", *imports, "", schema, "", "", body, ""])


def _class_names(source: str) -> list[str]:
    return re.findall(r"^class (\w+)", source, re.MULTILINE)


def _api_key(api: str) -> int:
    versions = _load_versions(api, "request")
    return int(versions[max(versions)].__api_key__)


def index_source() -> str:
    """``messages/__init__.py``: the index of messages by api key."""
    rows = []
    for api in sorted(APIS, key=_api_key):
        request = _load_versions(api, "request")
        newest = request[max(request)]
        flexible = [version for version, found in request.items() if found.__flexible__]
        name = newest.__name__.removesuffix("Request")
        rows.append(
            f'    {int(newest.__api_key__)}: ApiEntry(name="{name}", module="{api}", '
            f"min_version={min(request)}, max_version={max(request)}, "
            f"flexible_from={min(flexible, default=NEVER_FLEXIBLE)}),"
        )
    return "\n".join(
        [
            '"""Kafka\'s messages, one module per API, and their index.  @generated',
            "",
            "``python -m sparklog.wire.protocol.generate`` writes everything here; do not edit it.",
            "Modules are imported when they are first needed.",
            '"""',
            "",
            "from dataclasses import dataclass",
            "",
            "",
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            "class ApiEntry:",
            '    """An API, the module of its messages, and the versions whose schema is known."""',
            "",
            "    name: str",
            "    module: str",
            "    min_version: int",
            "    max_version: int",
            "    flexible_from: int",
            "",
            "",
            "#: By api key.",
            "APIS: dict[int, ApiEntry] = {",
            *rows,
            "}",
            "",
        ]
    )


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length=100", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def generate() -> dict[str, str]:
    """Every file name of ``messages`` and the text of that file."""
    files = {"__init__.py": index_source()}
    files |= {f"{api}.py": module_source(api) for api in APIS}
    return {name: _formatted(source) for name, source in files.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate sparklog/wire/messages from kio.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    files = generate()
    for name in sorted({path.name for path in FOLDER.glob("*.py")} - set(files)):
        sys.exit(f"{FOLDER / name} is not generated; delete it")
    for name, text in files.items():
        path = FOLDER / name
        current = path.read_text() if path.exists() else None
        if check and current != text:
            sys.exit(f"{path} is out of date: run python -m sparklog.wire.protocol.generate")
        if current != text:
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
