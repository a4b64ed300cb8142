"""A log through everything at once: appends, rolls, flushes, deletions, cleanings, faults, stops,
crashes.

The same seed is the same life.  After every step the log is compared with a plain list of batches.
A cleaning is the real plan, the real rewrite and the real swap.  A crash during a cleaning leaves
the batches of each group as before or as cleaned, and nothing in between.
"""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from sparklog.errors import StorageError
from sparklog.executors.cleaner.rewrite import clean as rewrite
from sparklog.executors.log.cleaned_segments import CleanedGroup
from sparklog.executors.log.flush import FlushJob
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import Steps, run_through
from sparklog.executors.partition.producer_state import Accepted, AppendOrigin
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.builder import Record, decode_records
from tests.unit.executors.log.cleaned_logs import swap_steps
from tests.unit.executors.log.file_damage import FileDamage
from tests.unit.executors.log.life_cleaning import (
    Stored,
    Swapped,
    check_keys,
    cleaned_batches,
    plan,
    records_of,
)
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
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
    "delete_old_segments": 6,
    "purge": 3,
    "delete_records": 3,
    "checkpoint": 5,
    "measure": 3,
    "clean": 8,
    "stop": 2,
    "crash": 4,
}
#: Keys of records; so few that every record is superseded soon.
KEYS = (None, b"a", b"b", b"c", b"d", b"e")
POLICIES = (("delete",), ("compact",), ("compact", "delete"))
#: Of tombstones, in milliseconds of a life.
DELETE_RETENTION_MS = 60
#: Files that a crash may damage in any way: all that they say can be found out otherwise.
DAMAGEABLE = (".index", ".timeindex", ".stats", ".snapshot", "leader-epoch-checkpoint")


class PowerLostError(Exception):
    """The machine stops at an operation on the disk."""


class Life:
    """One log, what must be in it, and the dice."""

    def __init__(self, seed: int, *, damaging: bool = False) -> None:
        self.dice = random.Random(seed)
        self.damaging = damaging
        #: Whether the topic stays as it is.
        self.keeps_policy = False
        self.backend = MemoryBackend()
        config = replace(
            SMALL,
            segment_bytes=1200,
            index_interval_bytes=150,
            retention_bytes=self.dice.choice([-1, 3000]),
            cleanup_policy=self.dice.choice(POLICIES),
            file_delete_delay_ms=0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.desk = Desk(half=self.backend, config=config)
        self.stored: list[Stored] = []
        #: What the swap that was interrupted leaves, if it has been finished.
        self.swapped: Swapped | None = None
        #: All records that were ever written and not lost, by offset.
        self.written: dict[int, Record] = {}
        #: Likewise all batches with a producer id, by base offset.
        self.sent: dict[int, BatchHeader] = {}
        self.sequences: dict[int, int] = {}
        self.now_ms = 0
        #: What the checkpoints say, and what a flush that has ended promises.
        self.recovery_point = self.log_start = self.flushed = 0
        self.job: FlushJob | None = None
        #: What the lives so far went through.
        self.counters: Counter[str] = Counter()
        self.disk = FileDamage(self.backend, self.dice, self.counters)
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
        except PowerLostError:
            self.backend.faults.clear()
            self.crash()
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
        keys = self.dice.choices(KEYS, k=count)
        first = self.sequences.get(producer_id, 0)
        data = batch(
            log.log_end_offset,
            [max(0, self.now_ms + self.dice.randrange(-50, 50)) for _ in range(count)],
            size=self.dice.randrange(60),
            leader_epoch=max(log.leader_epochs.latest_epoch, self.now_ms // 300),
            producer_id=producer_id,
            base_sequence=first if producer_id >= 0 else -1,
            keys=keys,
            tombstones=self.dice.random() < 0.2,
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
        self.written |= {record.offset: record for record in decode_records(data)}
        if producer_id >= 0:
            self.sequences[producer_id] = first + count
            self.sent[header.base_offset] = header

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

    def delete_old_segments(self) -> None:
        assert self.log is not None
        self.log.delete_old_segments(self.now_ms, self.log.log_end_offset)

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

    def clean(self) -> None:
        """A cleaning, as the log cleaner does it; maybe lose the power meanwhile, or append."""
        log, dice = self.log, self.dice
        assert log is not None
        if not log.config.compacts:
            return
        self.finish_flush()
        job = plan(self.backend, log, self.desk.producers, self.now_ms)
        if not job.groups:
            return
        generation = log.generation
        if dice.random() < 0.4:
            self._lose_power_after(dice.randrange(120))
        report = rewrite(self.backend, job)
        if dice.random() < 0.1:
            self.delete_records()
        for group in report.groups:
            if not self._swap(log, group, generation):
                return
        run_through(log.advance_clean_offset(report.clean_offset, generation))
        self.counters["cleanings"] += 1
        self.counters["records compacted"] += report.stats.records_read - report.stats.records_kept

    def _swap(self, log: Log, group: CleanedGroup, generation: int) -> bool:
        """Swap a group in; False if a deletion came first."""
        counting, self.backend.faults.slow = self.backend.faults.slow, None
        swapped = cleaned_batches(self.backend, group)
        self.backend.faults.slow = counting
        self.swapped = swapped
        steps = swap_steps(log, group, generation=generation, now_ms=self.now_ms)
        try:
            done = run_through(self._with_appends(steps))
        except StorageError:
            self.swapped = swapped if log.offline is not None else None
            raise
        assert done or log.segments[0].base_offset > swapped.begin
        self.stored = swapped.applied_to(self.stored) if done else self.stored
        self.swapped = None
        return done

    def _with_appends(self, steps: Steps[bool]) -> Steps[bool]:
        """The steps of a swap, maybe with appends between its blocking parts."""
        part = next(steps)
        while True:
            try:
                try:
                    result = yield part
                except StorageError as error:
                    part = steps.throw(error)
                    continue
                if self.dice.random() < 0.2:
                    counting, self.backend.faults.slow = self.backend.faults.slow, None
                    with suppress(StorageError):  # a failed append does not end the swap
                        self._append_one()
                    self.backend.faults.slow = counting
                part = steps.send(result)
            except StopIteration as end:
                return bool(end.value)

    def _lose_power_after(self, operations: int) -> None:
        left = operations

        def count(_: Operation, __: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLostError

        self.backend.faults.slow = count

    def stop(self) -> None:
        """The machine may crash behind a clean stop: that one flushed what it promises."""
        log = self.log
        assert log is not None
        self.finish_flush()
        self.log = None
        log.close(self.now_ms)
        self.recovery_point, self.log_start = log.recovery_point, log.log_start_offset
        self._change_policy()
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
            self.disk.tear(tails)
        self.damage()
        self._change_policy()
        self.log = self._start_after_crash()
        self._choose_swapped()
        before = len(self.stored)
        end = self.log.log_end_offset
        assert end >= self.recovery_point
        assert end >= self.flushed or self.log.log_start_offset >= self.flushed
        self.stored = [each for each in self.stored if each.header.last_offset < end]
        self.written = {at: each for at, each in self.written.items() if at < end}
        self.sent = {at: each for at, each in self.sent.items() if at < end}
        self.counters["crashes that lost records"] += len(self.stored) < before
        self.counters["bytes cut off"] += self.log.recovery.bytes_truncated
        recovery = self.log.recovery
        self.counters["segments recovered"] += recovery.segments_recovered
        self.counters["segments trusted"] += len(self.log.segments) - recovery.segments_recovered
        self.counters["indexes made anew"] += recovery.indexes_rebuilt
        assert not only_the_process or len(self.stored) == before
        self.flushed = 0
        self._check_producers()

    def _start_after_crash(self) -> Log:
        """The machine may stop at any operation of the start as well, which leaves its files."""
        if self.dice.random() < 0.3:
            self._lose_power_after(self.dice.randrange(60))
            try:
                return self._open(clean=False)
            except PowerLostError:
                self.counters["starts interrupted"] += 1
            finally:
                self.backend.faults.clear()
            # Its unflushed files are kept: that the first crash lost what it could is enough.
            self.backend.crash(keep_unflushed=1 << 30)
        return self._open(clean=False)

    def _choose_swapped(self) -> None:
        """After a crash in a swap, the log is as before or as cleaned."""
        swapped, self.swapped = self.swapped, None
        log = self.log
        assert log is not None
        if swapped is None:
            return
        cleaned = swapped.applied_to(self.stored)
        there = b"".join(read_bytes(log))
        if there == b"".join(
            each.data
            for each in cleaned
            if log.log_start_offset <= each.header.last_offset < log.log_end_offset
        ):
            self.stored = cleaned
            self.counters["swaps finished by a start"] += 1
        else:
            self.counters["swaps undone by a start"] += 1

    def _change_policy(self) -> None:
        """The topic may have changed while the broker was down."""
        if self.keeps_policy:
            return
        policy = self.dice.choice(POLICIES)
        self.desk.config = replace(self.desk.config, cleanup_policy=policy)

    def damage(self) -> None:
        """Do anything to files that are not the log."""
        if not self.damaging:
            return
        for name in self.backend.list(PARTITION_DIR):
            if name.endswith(DAMAGEABLE) and self.dice.random() < 0.3:
                self.disk.damage_file(f"{PARTITION_DIR}/{name}", name.rpartition(".")[2])

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
        expected = records_of(there, start)
        assert read_all(log, max_bytes=self.dice.choice([1, 300, 5000])) == expected
        check_keys(expected, self.written, start, self.now_ms - DELETE_RETENTION_MS)
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
        records = records_of(there, start)
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
        """What is known of a producer is true; unknown are those whose last batch is deleted.

        A batch that a cleaning dropped, because a later one was there, is missing when the later
        one is lost.  Then only a snapshot may know of it.
        """
        last = {each.header.producer_id: each.header for each in self.stored}
        known = self.desk.producers.entries
        for producer_id, entry in known.items():
            left = last[producer_id].base_offset if producer_id in last else 0
            possible = [
                header.last_sequence
                for header in self.sent.values()
                if header.producer_id == producer_id and header.base_offset >= left
            ]
            assert entry.last_sequence in possible, (producer_id, entry, possible)
        assert self.log is not None
        oldest = self.log.segments[0].base_offset
        for producer_id, header in last.items():
            assert producer_id < 0 or producer_id in known or header.last_offset < oldest
        self.sequences = {p: entry.last_sequence + 1 for p, entry in known.items()}
