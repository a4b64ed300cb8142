"""Commits, written into the history when they come into the journal.

Owns: the moment.  Must not know what a commit says.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from history import Committed

from sparklog.metadata.records import from_json
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.memory import MemoryBackend
from workloads.scene import Scene

_COMMIT = re.compile(r"(\d{20})\.json")


@contextmanager
def noted(scene: Scene) -> Iterator[None]:
    """Meanwhile every new file of the journal is an event, one whose answer is lost too."""
    real = MemoryBackend.put_if_absent
    known: set[int] = set()

    def put_if_absent(self: MemoryBackend, path: str, data: Buffer) -> bool:
        try:
            return real(self, path, data)
        finally:
            found = _COMMIT.fullmatch(path)
            if found and int(found[1]) not in known and path in self.disk.root.live:
                known.add(int(found[1]))
                records = json.loads(bytes(data))["records"]
                scene.history.record(
                    Committed(number=int(found[1]), records=tuple(map(from_json, records)))
                )

    with patch.object(MemoryBackend, "put_if_absent", put_if_absent):
        yield
