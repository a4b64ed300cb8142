"""Starts of logs that a reader of the tiered code would not expect."""

from sparklog.executors.log import Log
from tests.unit.executors.log.log_fixtures import Desk, batch, fill, headers_of
from tests.unit.executors.log.test_two_starts import TIERED, starts, tiered_log

FAR = 3_000_000_000


def leapt(desk: Desk) -> Log:
    """An empty log, not tiered, whose first batch is beyond the relative offsets of a segment."""
    log = desk.open()
    data = batch(FAR)
    log.append([data], headers_of(data), 0)
    return log


def test_a_log_that_is_not_tiered_begins_at_its_first_segment() -> None:
    log = leapt(Desk())
    log.check_invariants()
    assert starts(log) == (FAR, FAR)


def test_a_truncation_below_the_first_segment_drops_everything() -> None:
    log = leapt(Desk())
    log.begin_truncation(1000)
    assert log.truncate_to(1000, 0)
    log.end_truncation()
    assert (*starts(log), log.log_end_offset) == (1000, 1000, 1000)


def test_a_topic_that_is_not_tiered_for_a_moment_keeps_its_log_start() -> None:
    desk = Desk()
    log = tiered_log(desk, local_retention_bytes=3000)
    log.delete_local_segments(log.local_retention_offset(0, 100), 0)
    before = starts(log)
    assert before[0] < before[1]
    tiered = log.config
    log.reconfigure(desk.config.__class__(**{**_fields(tiered), "remote_storage_enable": False}))
    log.delete_old_segments(0, 100)
    log.reconfigure(tiered)
    assert starts(log) == before


def test_a_local_start_above_the_end_is_no_log_without_its_state() -> None:
    """A planned local start is on the disk, the log was dropped to its start meanwhile, and the
    process dies: see ``LogCheckpoints._offsets_in``."""
    desk = Desk()
    log = desk.open(**TIERED)
    fill(log, 10)
    log.flush(0)
    log.close(0, clean=False)
    log = desk.open(recovery_point=0, local_log_start_offset=80)
    assert (*starts(log), log.log_end_offset) == (0, 0, 0)
    log.check_invariants()


def _fields(config: object) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}  # type: ignore[attr-defined]
