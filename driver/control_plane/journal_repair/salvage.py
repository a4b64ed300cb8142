"""The readable content of a damaged file of a journal.

Owns: finding whole records, and the header's controller epoch, among damaged bytes.  Must not know
where the file is stored or what the records are used for.

A commit is one JSON document.  A document that was cut off, or overwritten in the middle, still
holds the records before and after the damage.  Each record is a JSON object that begins with its
type.
"""

import json
import re
from dataclasses import dataclass

from sparklog.driver.control_plane.journal_files import CommitHeader, decode_file
from sparklog.errors import DecodeError
from sparklog.metadata import Record, from_json

_EPOCH = re.compile(r'"controller_epoch":(\d{1,10})[,}]', re.ASCII)
_RECORD_START = '{"type":"'
#: Record starts that are tried in one damaged file: a file full of record starts must not take
#: minutes.
STARTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """The content of one file.

    ``damage`` is empty when the whole file could be read; otherwise ``records`` are the whole
    records, in the order of the file.  ``controller_epoch`` is -1 when no epoch could be read.
    """

    header: CommitHeader | None
    records: tuple[Record, ...]
    controller_epoch: int
    damage: str = ""


def read_content(data: bytes, number: int) -> FileContent:
    """Decode the file of commit or checkpoint ``number``, as far as possible.  Never raises."""
    try:
        header, records = decode_file(data)
        if header.version != number:
            raise DecodeError(f"it says that it is commit {header.version}")
    except DecodeError as error:
        return _salvage(data, str(error))
    return FileContent(header=header, records=records, controller_epoch=header.controller_epoch)


def _salvage(data: bytes, damage: str) -> FileContent:
    # Undecodable bytes are replaced, so that damage never stops the search.
    text = data.decode("utf-8", errors="replace")
    records = tuple(_whole_records(text))
    epochs = [int(found) for found in _EPOCH.findall(text)]
    return FileContent(
        header=None, records=records, controller_epoch=max(epochs, default=-1), damage=damage
    )


def _whole_records(text: str) -> list[Record]:
    decoder = json.JSONDecoder()
    found: list[Record] = []
    position = text.find(_RECORD_START)
    for _ in range(STARTS_MAX):
        if position < 0:
            break
        try:
            document, end = decoder.raw_decode(text, position)
            found.append(from_json(document))
        except (ValueError, RecursionError, DecodeError):
            end = position + 1
        position = text.find(_RECORD_START, end)
    return found
