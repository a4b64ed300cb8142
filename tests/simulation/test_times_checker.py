"""The checker of lookups by time: answers that skip records, and those that may."""

from dataclasses import replace

from sparklog.types import NO_LEADER_EPOCH
from tests.simulation.checkers import times
from tests.simulation.compaction_events import TimeLookedUp
from tests.simulation.events import DeleteRecordsInvoked, RecordsDeleted
from tests.simulation.final_state import FinalBatch, FinalLog, FinalState
from tests.simulation.history import AnyEvent, History
from tests.simulation.partition_story import LOG, NAME, Told, committed, created
from tests.simulation.tier_story import NOTHING, Manifest, batch, began, mark, removed, segment

TIMES = (10, 20, 30, 30, 50, 40)
KEPT = FinalState(
    logs={
        LOG: FinalLog(
            start=2,
            end=6,
            batches=(FinalBatch(base_offset=0, values=(b"",) * 6, timestamps=TIMES),),
        )
    }
)


def looked_up(timestamp: int, offset: int, leader_epoch: int = 0) -> History:
    """When all but the last record is committed; broker 2 leads in epoch 1 by then."""
    answer = TimeLookedUp(
        asked=3,
        log=LOG,
        timestamp=timestamp,
        offset=offset,
        found_timestamp=TIMES[offset] if offset >= 0 else -1,
        leader_epoch=leader_epoch,
    )
    return History.of(created(), mark(5), committed(Told().now(2, (1, 2))), answer)


def test_a_lookup_by_time_skips_no_record_that_could_be_read() -> None:
    for timestamp, offset in ((15, 1), (25, 2), (35, 4), (60, -1)):
        assert times.check(looked_up(timestamp, offset, 1), KEPT) == []
    where = f"{NAME}: the first record since"
    for offset in (4, 5, -1):
        assert times.check(looked_up(25, offset, 1), KEPT) == [
            f"{where} 25 is said to be at {offset}, offset 2 of 30 could be read before"
        ]
    assert times.check(looked_up(35, 5, 1), KEPT) == [
        f"{where} 35 is said to be at 5, offset 4 of 50 could be read before"
    ]
    # The former leader, or who is not known, may lack it.
    assert times.check(looked_up(25, 4), KEPT) == []
    assert times.check(looked_up(25, 4, NO_LEADER_EPOCH), KEPT) == []


def test_a_lookup_by_time_may_skip_what_was_committed_after_the_question() -> None:
    """``asked`` is the position of the next event."""
    answer = replace(next(a for _, a in looked_up(25, -1).each(TimeLookedUp)), asked=2)

    def check(before: int) -> list[str]:
        return times.check(History.of(created(), mark(before), mark(5), answer), KEPT)

    assert check(2) == []
    assert len(check(3)) == 1


def test_a_lookup_by_time_may_skip_what_was_to_be_deleted_up_to_the_high_watermark() -> None:
    """The leader that had deleted it died, and the next one did not know."""
    *before, answer = looked_up(25, -1, 1).events
    assert isinstance(answer, TimeLookedUp)
    early = replace(answer, timestamp=35)

    def check(*events: AnyEvent) -> list[str]:
        return times.check(History.of(*before, *events, replace(answer, asked=4)), KEPT)

    asked = DeleteRecordsInvoked(op=1, log=LOG, before=-1)
    assert len(check()) == 1
    assert check(asked) == []
    assert len(check(replace(asked, before=2))) == 1
    assert check(asked, RecordsDeleted(op=1, low_watermark=5)) == []
    assert len(check(asked, RecordsDeleted(op=1, low_watermark=4))) == 1
    unasked = times.check(History.of(*before, early, mark(6), asked), KEPT)
    assert len(unasked) == 1, "it was asked for later"


def test_a_lookup_by_time_skips_no_record_that_only_the_bucket_has() -> None:
    manifest = Manifest()
    first = segment(0, 4, batch(0, 2, max_timestamp=20), batch(2, 4, max_timestamp=30))
    before: list[AnyEvent] = [created(), mark(4), *map(manifest.commit, (began(), first))]
    deleted = DeleteRecordsInvoked(op=1, log=LOG, before=2)
    wrong = f"{NAME}: the first record since 15 is said to be at 4, the bucket had"

    def check(*events: AnyEvent) -> list[str]:
        answer = replace(next(a for _, a in looked_up(15, 4).each(TimeLookedUp)), asked=4)
        return times.check(History.of(*before, *events, answer), NOTHING)

    assert check() == [f"{wrong} [0, 2) of 20"]
    assert check(deleted) == [f"{wrong} [2, 4) of 30"]
    assert check(manifest.commit(removed(first))) == []


def test_a_lookup_by_time_that_names_an_older_record_is_found() -> None:
    assert times.check(looked_up(45, 3, 1), KEPT) == [
        f"{NAME}: the first record since 45 is said to be at 3, of 30; that record is of 30"
    ]
