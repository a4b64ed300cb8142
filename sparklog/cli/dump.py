"""``sparklog dump``: the contents of a log's files.

Owns: the command's options and output.  Must not know the formats of the files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from sparklog.cli.output import JsonOption, fail, print_json

if TYPE_CHECKING:
    from sparklog.executors.log import FileKind
    from sparklog.storage_backends.base import FileHandle

Row = dict[str, Any]


def dump(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    records: Annotated[bool, typer.Option("--records", help="Records of segments too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in the files of a partition directory.

    Reads segments (.log), indexes (.index, .timeindex, .txnindex), statistics (.stats), producer
    snapshots (.snapshot), leader-epoch-checkpoint and partition.metadata; those of Kafka too, and
    files that wait for their deletion (.deleted). For the journal see "sparklog journal check".

    Exit code 1 when a file is damaged: a batch with a wrong CRC, bytes that are no batch, or an
    index whose entries cannot be true.
    """
    sound = True
    for path in files:
        sound = _dump_file(path, records, as_json) and sound
    if not sound:
        context.exit(fail("there is damage; see the lines above", 1))


def _dump_file(path: Path, records: bool, as_json: bool) -> bool:
    """Print a file, and return whether it is undamaged."""
    from sparklog.errors import DecodeError
    from sparklog.executors.log import identify

    found = identify(path.name)
    if found is None:
        raise DecodeError(
            f"{path}: a file of a log ends in .log, .index, .timeindex, .txnindex, .stats or "
            ".snapshot, or is called leader-epoch-checkpoint or partition.metadata"
        )
    kind, base_offset = found
    rows = [_plain(row) for row in _rows(path, kind, base_offset, records)]
    if as_json:
        print_json({"file": str(path), "kind": kind.name.lower(), "rows": rows})
    else:
        typer.echo(f"{path}: {kind.name.lower().replace('_', ' ')}, {len(rows)} entries")
        for row in rows:
            if row.get("delete_horizon", "") is None:  # most batches have none
                del row["delete_horizon"]
            typer.echo("  ".join(f"{name}: {_text(value)}" for name, value in row.items()))
    return all(row.get("crc_valid", True) and "damage" not in row for row in rows)


def _rows(path: Path, kind: "FileKind", base_offset: int, records: bool) -> Iterable[Row]:
    from sparklog.errors import DecodeError
    from sparklog.executors.log import dump as log_dump

    kinds = log_dump.FileKind
    try:
        if kind is kinds.SEGMENT:
            return list(_segment_rows(path, records))
        data = path.read_bytes()
        if kind is kinds.OFFSET_INDEX:
            return [found._asdict() for found in log_dump.dump_offset_index(data, base_offset)]
        if kind is kinds.TIME_INDEX:
            return [found._asdict() for found in log_dump.dump_time_index(data, base_offset)]
        if kind is kinds.TXN_INDEX:
            return [txn._asdict() for txn in log_dump.dump_txn_index(data, base_offset)]
        if kind is kinds.STATS:
            return [found._asdict() for found in log_dump.dump_stats(data, base_offset)]
        if kind is kinds.SNAPSHOT:
            return map(asdict, log_dump.decode_snapshot(data))
        if kind is kinds.EPOCHS:
            return map(asdict, log_dump.decode_epochs(data))
        return [{"topic_id": log_dump.decode_partition_metadata(data)}]
    except DecodeError as error:
        return [{"damage": str(error)}]


def _segment_rows(path: Path, records: bool) -> Iterator[Row]:
    from sparklog.errors import SparklogError
    from sparklog.executors.log import Damage, dump_records, dump_segment

    with _opened(path) as handle:
        for found in dump_segment(handle):
            if isinstance(found, Damage):
                yield {
                    "damage": found.reason,
                    "position": found.position,
                    "bytes_left": found.bytes_left,
                }
                continue
            yield asdict(found)
            if records:
                try:
                    to_row = _control_row if found.is_control else _record_row
                    yield from map(to_row, dump_records(handle, found))
                except SparklogError as error:
                    yield {"damage": str(error), "position": found.position, "bytes_left": 0}


def _record_row(record: Any) -> Row:
    from sparklog.cli.record_format import as_json_value

    return {
        "offset": record.offset,
        "record_timestamp": record.timestamp,
        "key": as_json_value(record.key),
        "value": as_json_value(record.value),
        "headers": [[name, as_json_value(value)] for name, value in record.headers],
    }


def _control_row(record: Any) -> Row:
    """A transaction marker by its name; other control records as they are."""
    from sparklog.executors.log import marker_of

    marker = marker_of(record)
    if marker is None:
        return _record_row(record)
    return {
        "offset": record.offset,
        "record_timestamp": record.timestamp,
        "end_txn_marker": marker.control_type,
        "coordinator_epoch": marker.coordinator_epoch,
    }


class _opened:  # noqa: N801
    """A file handle of the storage layer, closed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> "FileHandle":
        from sparklog.storage_backends.registry import open_file_half

        self._handle = open_file_half(self._path.absolute().parent).open(self._path.name)
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._handle.close()


def _plain(row: Row) -> Row:
    """A record's fields with values that JSON has."""
    return {
        name: value.name.lower()
        if isinstance(value, Enum)
        else str(value)
        if isinstance(value, UUID)
        else value
        for name, value in row.items()
    }


def _text(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else str(value)
