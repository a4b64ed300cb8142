"""A log through everything at once: appends, rolls, flushes, deletions, faults, stops, crashes.

The same seed is the same life.  After every step the log is compared with a plain list of batches.
``python -m tests.unit.executors.log.log_life --cases N --start S`` crashes N logs (``make crash``).
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace

from sparklog.errors import StorageError
from sparklog.executors.log.flush import FlushJob
from sparklog.executors.log.log import Log
from sparklog.executors.partition.producer_state import Accepted, AppendOrigin
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.builder import decode_records
from tests.unit.executors.log.log_fixtures import (
    FOLDER,
    SMALL,
    Desk,
    batch,
    first_since,
    headers_of,
    read_all,
    read_bytes,
    with_largest,
)

FAULTS: tuple[Operation, ...] = (
    "delete", "exists", "flush", "flush_folder", "list", "map", "open", "put", "read", "rename",
    "reserve", "size", "truncate", "writev",
)  # fmt: skip
#: What is done, and how often.
ACTIONS = {
    "append": 40,
    "start_flush": 6,
    "finish_flush": 8,
    "roll": 3,
    "delete_old": 6,
    "purge": 3,
    "delete_records": 3,
    "checkpoint": 5,
    "measure": 3,
    "stop": 2,
    "crash": 4,
}
#: What a disk writes whole or not at all; what was not written reads as zeros.
SECTOR = 64
#: Files that a crash may damage in any way: all that they say can be found out otherwise.
DAMAGEABLE = (".index", ".timeindex", ".stats", ".snapshot", "leader-epoch-checkpoint")


@dataclass(frozen=True, kw_only=True)
class Stored:
    header: BatchHeader
    data: bytes


class Life:
    """One log, what must be in it, and the dice."""

    def __init__(self, seed: int, *, damaging: bool = False) -> None:
        self.dice = random.Random(seed)
        self.damaging = damaging
        self.backend = MemoryBackend()
        config = replace(
            SMALL,
            segment_bytes=1200,
            index_interval_bytes=150,
            retention_bytes=self.dice.choice([-1, 3000]),
            file_delete_delay_ms=0,
        )
        self.desk = Desk(half=self.backend, config=config)
        self.stored: list[Stored] = []
        self.sequences: dict[int, int] = {}
        self.now_ms = 0
        #: What the checkpoints say, and what a flush that has ended promises.
        self.recovery_point = self.log_start = self.flushed = 0
        self.job: FlushJob | None = None
        #: What the lives so far went through.
        self.counters: Counter[str] = Counter()
        self.log: Log | None = self.desk.open()

    def step(self, *, checked: bool = True) -> None:
        self.now_ms += self.dice.randrange(20)
        action = self.dice.choices([*ACTIONS], [*ACTIONS.values()])[0]
        faulty = action != "crash" and self.dice.random() < 0.15
        if faulty:
            self._break_something()
        try:
            getattr(self, action)()
        except StorageError:
            assert faulty, action
        finally:
            self.backend.faults.clear()
        if self.log is None or self.log.offline is not None:
            self.crash()
        if checked:
            self.check()

    def _break_something(self) -> None:
        if self.dice.random() < 0.3:
            self.backend.disk.fill_after(self.dice.randrange(100))
        else:
            self.backend.faults.fail_next(
                self.dice.choice([1, 2]), operation=self.dice.choice(FAULTS)
            )

    # actions

    def append(self) -> None:
        for _ in range(self.dice.randrange(1, 5)):
            self._append_one()

    def _append_one(self) -> None:
        log, producers = self.log, self.desk.producers
        assert log is not None
        producer_id = self.dice.choice([-1, 5, 6])
        count = self.dice.randrange(1, 5)
        first = self.sequences.get(producer_id, 0)
        data = batch(
            log.log_end_offset,
            [max(0, self.now_ms + self.dice.randrange(-50, 50)) for _ in range(count)],
            size=self.dice.randrange(60),
            leader_epoch=max(log.leader_epochs.latest_epoch, self.now_ms // 300),
            producer_id=producer_id,
            base_sequence=first if producer_id >= 0 else -1,
        )
        (header,) = headers_of(data)
        judged = producers.prepare(
            header,
            base_offset=header.base_offset,
            timestamp=header.max_timestamp,
            origin=AppendOrigin.CLIENT,
            now_ms=self.now_ms,
        )
        assert isinstance(judged, Accepted)
        log.append([data], [header], self.now_ms)
        producers.apply(judged)
        self.stored.append(Stored(header=header, data=data))
        if producer_id >= 0:
            self.sequences[producer_id] = first + count

    def start_flush(self) -> None:
        assert self.log is not None
        self.job = self.job or self.log.start_flush(self.now_ms, force=self.dice.random() < 0.7)

    def finish_flush(self) -> None:
        job, self.job = self.job, None
        if job is not None and self.log is not None:
            try:
                job.run()
            except StorageError as error:
                self.log.fail_flush(job, error)
                raise
            self.log.finish_flush(job, self.now_ms)
            self.flushed = max(self.flushed, job.target)

    def roll(self) -> None:
        assert self.log is not None
        self.log.roll(self.now_ms)

    def delete_old(self) -> None:
        assert self.log is not None
        self.log.delete_old(self.now_ms, self.log.log_end_offset)

    def purge(self) -> None:
        assert self.log is not None
        self.log.purge_deleted(self.now_ms)

    def delete_records(self) -> None:
        log = self.log
        assert log is not None
        log.advance_log_start(self.dice.randint(log.log_start_offset, log.log_end_offset))
        self.checkpoint()

    def checkpoint(self) -> None:
        """The process may end between the two files."""
        assert self.log is not None
        self.log_start = self.log.log_start_offset
        if self.dice.random() < 0.9:
            self.recovery_point = self.log.recovery_point

    def measure(self) -> None:
        assert self.log is not None
        self.log.statistics.measure_pending()

    def stop(self) -> None:
        """The machine may crash behind a clean stop: that one flushed what it promises."""
        log = self.log
        assert log is not None
        self.finish_flush()
        self.log = None
        log.close(self.now_ms)
        self.recovery_point, self.log_start = log.recovery_point, log.log_start_offset
        if self.dice.random() < 0.5:
            self.backend.crash(lambda _, size: self.dice.randint(0, size))
            self.damage()
        self.log = self._open(clean=True)
        assert self.log.log_end_offset == log.log_end_offset == log.recovery_point

    def crash(self) -> None:
        """Of the process alone, or of the machine, which loses what was not flushed."""
        dice = self.dice
        kept = dice.choice(
            [lambda _, size: size, lambda *_: 0, lambda _, size: dice.randint(0, size)]
        )
        before = len(self.stored)
        only_the_process = dice.random() < 0.3
        self.log = self.job = None
        self.counters["crashes"] += 1
        if only_the_process:
            self.backend.crash(keep_unflushed=1 << 30)
        else:
            tails: dict[str, int] = {}

            def keep(path: str, size: int) -> int:
                tails[path] = kept(path, size)
                return tails[path]

            self.backend.crash(keep, lose_names=dice.random() < 0.5)
            self._tear(tails)
        self.damage()
        self.log = self._open(clean=False)
        end = self.log.log_end_offset
        assert end >= self.recovery_point
        assert end >= self.flushed or self.log.log_start_offset >= self.flushed
        self.stored = [each for each in self.stored if each.header.last_offset < end]
        self.counters["crashes that lost records"] += len(self.stored) < before
        self.counters["bytes cut off"] += self.log.recovery.bytes_truncated
        recovery = self.log.recovery
        self.counters["segments recovered"] += recovery.segments_recovered
        self.counters["segments trusted"] += len(self.log.segments) - recovery.segments_recovered
        self.counters["indexes made anew"] += recovery.indexes_rebuilt
        assert not only_the_process or len(self.stored) == before
        self.flushed = 0
        self._check_producers()

    def _tear(self, tails: dict[str, int]) -> None:
        """Of what was not flushed, a disk may have written later sectors and not earlier ones."""
        for path, kept in tails.items():
            name = f"{FOLDER}/{path.rpartition('/')[2]}"
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

    def damage(self) -> None:
        """Do anything to files that are not the log."""
        if not self.damaging:
            return
        for name in self.backend.list(FOLDER):
            if name.endswith(DAMAGEABLE) and self.dice.random() < 0.3:
                self._damage_file(f"{FOLDER}/{name}", name.rpartition(".")[2])

    def _damage_file(self, path: str, kind: str) -> None:
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

    def _open(self, *, clean: bool) -> Log:
        return self.desk.open(
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            now_ms=self.now_ms,
        )

    # checks

    def check(self) -> None:
        log = self.log
        assert log is not None
        log.check_invariants()
        start, end = log.log_start_offset, log.log_end_offset
        there = [each for each in self.stored if each.header.last_offset >= start]
        assert end == (there[-1].header.next_offset if there else start)
        expected = [
            record
            for each in there
            for record in decode_records(each.data)
            if record.offset >= start
        ]
        assert read_all(log, max_bytes=self.dice.choice([1, 300, 5000])) == expected
        timestamp = self.dice.randrange(self.now_ms + 60)
        found = first_since(log, timestamp)
        first = next((record for record in expected if record.timestamp >= timestamp), None)
        assert (found and found.offset) == (first and first.offset)

    def check_closely(self) -> None:
        """Every byte, every timestamp, every epoch."""
        self.check()
        log = self.log
        assert log is not None
        start = log.log_start_offset
        there = [each for each in self.stored if each.header.last_offset >= start]
        assert b"".join(read_bytes(log)) == b"".join(each.data for each in there)
        records = [
            record
            for each in there
            for record in decode_records(each.data)
            if record.offset >= start
        ]
        for timestamp in range(0, self.now_ms + 60, 7):
            found = first_since(log, timestamp)
            first = next((record for record in records if record.timestamp >= timestamp), None)
            assert (found and found.offset) == (first and first.offset), timestamp
        largest = max(records, key=lambda record: record.timestamp, default=None)
        found = with_largest(log)
        assert (found and found.offset) == (largest and largest.offset)
        for each in there:
            epoch = each.header.partition_leader_epoch
            assert log.leader_epochs.epoch_at(max(start, each.header.base_offset)) == epoch

    def _check_producers(self) -> None:
        """What is known of a producer is true; unknown are those whose last batch is deleted."""
        last = {each.header.producer_id: each.header for each in self.stored}
        known = self.desk.producers.entries
        for producer_id, entry in known.items():
            assert entry.last_sequence == last[producer_id].last_sequence
        assert self.log is not None
        oldest = self.log.segments[0].base_offset
        for producer_id, header in last.items():
            assert producer_id < 0 or producer_id in known or header.last_offset < oldest
        self.sequences = {p: entry.last_sequence + 1 for p, entry in known.items()}


def crash_once(seed: int) -> Counter[str]:
    """A short life, a crash with everything damaged that may be, and a life after it."""
    life = Life(seed, damaging=True)
    for _ in range(life.dice.randrange(4, 30)):
        life.step(checked=False)
    life.crash()
    life.check_closely()
    for _ in range(4):
        life.step(checked=False)
    life.check_closely()
    return life.counters


def main() -> int:
    parser = argparse.ArgumentParser(description="Crash logs and look what is left of them.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    counters: Counter[str] = Counter()
    failed: list[int] = []
    for seed in range(options.start, options.start + options.cases):
        try:
            counters += crash_once(seed)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    for name, count in sorted(counters.items()):
        print(f"{count:9,} {name}")
    print(
        f"{options.cases} cases in {time.monotonic() - began:.0f} s, {len(failed)} failed {failed}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
