"""What a disk may do to the files of a log at a crash, by dice."""

import random
from collections import Counter

from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import PARTITION_DIR

#: What a disk writes whole or not at all; what was not written reads as zeros.
SECTOR = 64


class FileDamage:
    """Damages files of one backend; ``counters`` count what was done."""

    def __init__(self, backend: MemoryBackend, dice: random.Random, counters: Counter[str]) -> None:
        self.backend = backend
        self.dice = dice
        self.counters = counters

    def tear(self, tails: dict[str, int]) -> None:
        """Of what was not flushed, a disk may have written later sectors and not earlier ones."""
        for path, kept in tails.items():
            name = f"{PARTITION_DIR}/{path.rpartition('/')[2]}"
            if not (name.endswith(".log") and kept and self.dice.random() < 0.3):
                continue
            if self.backend.exists(name) and (size := self.backend.size(name)) >= kept:
                raw = bytearray(self.backend.read(name))
                first, last = sorted(self.dice.randint(size - kept, size - 1) for _ in range(2))
                first = max(size - kept, first // SECTOR * SECTOR)
                last = min(size, (last // SECTOR + 1) * SECTOR)
                raw[first:last] = bytes(last - first)
                self.backend.put(name, raw)
                self.counters["torn logs"] += 1

    def damage_file(self, path: str, kind: str) -> None:
        dice = self.dice
        raw = bytearray(self.backend.read(path))
        what = dice.choice(["flipped", "truncated", "removed", "extended", "zeroed"])
        if kind == "leader-epoch-checkpoint" and what == "flipped":
            return  # Kafka's format has no checksum, and every digit could be another
        self.counters[f"{kind} {what}"] += 1
        if what == "removed":
            self.backend.delete(path)
            return
        if what == "truncated":
            del raw[dice.randint(0, len(raw)) :]
        elif what == "extended":
            tail = bytes(dice.randrange(1, 100))
            raw += tail if dice.random() < 0.5 else dice.randbytes(len(tail))
        elif what == "zeroed":
            start = dice.randint(0, len(raw))
            end = dice.randint(start, len(raw))
            raw[start:end] = bytes(end - start)
        else:
            for _ in range(dice.randrange(1, 4) if raw else 0):
                raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
        self.backend.put(path, raw)
