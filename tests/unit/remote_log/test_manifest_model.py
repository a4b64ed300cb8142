"""A manifest under every sequence of decisions, beside a plain list of its segments."""

import json
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.remote_log.manifest import Manifest, MisfitError, Records
from sparklog.remote_log.manifest_records import record_from_json
from sparklog.remote_log.remote_segment import RemoteSegment, TimeBounds
from sparklog.types import MAX_INT64, MIN_INT64
from tests.unit.remote_log.segments import segment


class ManifestLife(RuleBasedStateMachine):
    """The model: the live segments, the log start, and the removal times of garbage."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest = Manifest()
        self.live: list[RemoteSegment] = []
        self.garbage: dict[str, int] = {}
        self.log_start: int | None = None
        self.used: set[str] = set()
        self.now_ms = 0
        self.epoch = 0
        self.copies = 0

    @initialize(log_start=st.none() | st.integers(0, 5))
    def start(self, log_start: int | None) -> None:
        if log_start is not None:
            self.move_log_start(log_start)

    def commit(self, records: Records) -> None:
        if records:
            self.manifest.replay_commit(self.manifest.version + 1, records)

    def end(self) -> int:
        return self.live[-1].next_offset if self.live else self.log_start or 0

    def discard(self, segments: list[RemoteSegment]) -> None:
        self.garbage |= {each.segment_id: self.now_ms for each in segments}

    # -- decisions

    @rule(length=st.integers(1, 20), time=st.integers(-1, 50), new_epoch=st.booleans())
    def add(self, length: int, time: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        self.copies += 1
        base = self.end()
        added = segment(
            base,
            base + length,
            copy=self.copies,
            epochs=[(self.epoch, base)],
            size=length,
            time=time,
            copied_ms=self.now_ms,
        )
        assert added.segment_id not in self.used
        self.used.add(added.segment_id)
        self.commit(self.manifest.add_segment(added))
        self.live.append(added)

    @rule(gap=st.integers(-3, 3).filter(bool))
    def add_elsewhere(self, gap: int) -> None:
        base = self.end() + gap
        if self.live and base >= 0:
            try:
                self.manifest.add_segment(segment(base, base + 5, epochs=[(99, base)]))
            except MisfitError:
                return
            raise AssertionError("a gap or an overlap was accepted")

    @rule(by=st.integers(0, 30))
    def move_log_start(self, by: int) -> None:
        offset = (self.log_start if self.log_start is not None else self.first()) + by
        self.commit(self.manifest.move_log_start(offset, self.now_ms))
        self.log_start = offset
        self.discard([each for each in self.live if each.next_offset <= offset])
        self.live = [each for each in self.live if each.next_offset > offset]

    def first(self) -> int:
        return self.live[0].base_offset if self.live else 0

    @rule(
        retention_ms=st.integers(-1, 60),
        retention_bytes=st.integers(-1, 80),
        local_bytes=st.integers(0, 30),
    )
    def expire(self, retention_ms: int, retention_bytes: int, local_bytes: int) -> None:
        expected: list[RemoteSegment] = []
        left = sum(each.log_size for each in self.live) + local_bytes
        for each in self.live:
            born = each.max_timestamp if each.max_timestamp >= 0 else self.copied_ms(each)
            old = retention_ms >= 0 and self.now_ms - born > retention_ms
            big = retention_bytes >= 0 and left - each.log_size >= retention_bytes
            if not (old or big):
                break
            expected.append(each)
            left -= each.log_size
        found = self.manifest.expired(
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            local_bytes_above=local_bytes,
            now_ms=self.now_ms,
        )
        assert found == [each.segment_id for each in expected]
        self.commit(self.manifest.remove_segments(found, self.now_ms) if found else ())
        self.discard(expected)
        del self.live[: len(expected)]
        if expected:
            self.log_start = max(self.log_start or 0, expected[-1].next_offset)

    @staticmethod
    def copied_ms(each: RemoteSegment) -> int:
        return int(each.segment_id.split("-")[2], 16)

    @rule(back=st.integers(-2, 40))
    def truncate(self, back: int) -> None:
        offset = max(0, self.end() - back)
        self.commit(self.manifest.truncate_after(offset, self.now_ms))
        self.discard([each for each in self.live if each.next_offset > offset])
        self.live = [each for each in self.live if each.next_offset <= offset]

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def shorten(self, data: st.DataObject) -> None:
        """The beginning of a segment stays; it never has the log start behind it."""
        whole = data.draw(st.sampled_from(self.live))
        lowest = max(whole.base_offset, self.log_start or 0) + 1
        if lowest >= whole.next_offset:
            return
        offset = data.draw(st.integers(lowest, whole.next_offset - 1))
        shortened = replace(whole, next_offset=offset, log_size=whole.log_size - 1)
        self.commit(self.manifest.truncate_after(offset, self.now_ms, shortened))
        index = self.live.index(whole)
        self.discard(self.live[index + 1 :])
        self.live[index:] = [shortened]

    @precondition(lambda self: self.garbage)
    @rule(delay_ms=st.integers(0, 20))
    def delete_garbage(self, delay_ms: int) -> None:
        due = self.manifest.garbage_due(self.now_ms, delay_ms)
        limit = self.now_ms - delay_ms
        assert due == [each for each, removed in self.garbage.items() if removed <= limit]
        self.commit(self.manifest.delete_objects(due))
        for each in due:
            del self.garbage[each]

    @rule(ms=st.integers(1, 20))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def begin_leadership(self) -> None:
        self.epoch += 1
        epoch = self.manifest.leader_epoch + 1
        self.commit(self.manifest.begin_leadership(epoch, "n"))
        assert self.manifest.leader_epoch == epoch

    @rule()
    def reload(self) -> None:
        snapshot = self.manifest.encoded_snapshot()
        copy = Manifest()
        records = map(record_from_json, json.loads(snapshot))
        copy.replay_commit(self.manifest.version, records)
        assert copy.encoded_snapshot() == snapshot
        self.manifest = copy

    # -- what holds

    @invariant()
    def equals_the_model(self) -> None:
        manifest = self.manifest
        manifest.check_invariants()
        assert list(manifest.segments()) == self.live
        assert manifest.log_start_offset == self.log_start
        assert dict.fromkeys(manifest.garbage_ids) == dict.fromkeys(self.garbage)
        assert manifest.end_offset == (self.live[-1].next_offset if self.live else None)
        assert manifest.epoch_at_end == (self.live[-1].last_epoch if self.live else -1)

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        end = self.end()
        low, high = data.draw(st.integers(0, end + 2)), data.draw(st.integers(0, end + 2))
        time = data.draw(st.integers(-1, 51))
        manifest = self.manifest
        at = [each for each in self.live if each.base_offset <= low < each.next_offset]
        assert manifest.segment_at(low) == (at[0] if at else None)
        overlap = [
            each
            for each in self.live
            if low < high and each.base_offset < high and each.next_offset > low
        ]
        assert manifest.segments_between(low, high) == overlap
        times = TimeBounds(
            data.draw(st.just(MIN_INT64) | st.integers(-1, 51)),
            data.draw(st.just(MAX_INT64) | st.integers(-1, 51)),
        )
        count_max = data.draw(st.integers(0, 3))
        found = manifest.search(low, high, times, count_max)
        wanted = [each for each in overlap if each.may_hold(times)]
        assert found.segments == wanted[:count_max]
        assert found.bytes_behind == sum(each.log_size for each in wanted[count_max:])
        if overlap and overlap[0].base_offset <= low and len(found.segments) < count_max:
            assert found.next_offset == overlap[-1].next_offset
        for each in wanted[count_max:]:
            assert found.next_offset <= max(low, each.base_offset)
        if not overlap or overlap[0].base_offset > low:
            assert found.next_offset == low
        late = [each for each in self.live if each.max_timestamp >= time]
        assert manifest.first_by_time(time) == (late[0] if late else None)


TestManifestLife = ManifestLife.TestCase
