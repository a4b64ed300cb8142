"""A follower that has stopped fetching leaves the in-sync replicas, and stays outside."""

from sparklog.config import TopicConfig
from tests.unit.executors.partition.replica_trio import LAG_MS, Trio


def test_who_was_put_out_does_not_join_again_for_what_it_had_fetched_before() -> None:
    """While the ISR is too small the high watermark stands still, and it has all up to there: only
    a fetch, or having everything, makes it a member again."""
    trio = Trio(2, min_insync_replicas=2)
    trio.elect(1)
    trio.append(b"a")
    trio.catch_up(2)
    trio.append(b"b")
    trio.now_ms += LAG_MS + 1
    trio.carry_out(trio[1], trio[1].maybe_shrink_or_expand_isr(trio.now_ms))
    assert [dict(proposal.isr) for proposal in trio.proposed] == [{1: 11}]
    trio.answer()
    trio.tell(1)
    assert trio.proposed == []
    trio.carry_out(trio[1], trio[1].maybe_shrink_or_expand_isr(trio.now_ms))
    assert trio.proposed == []
    trio.fetch(2)
    trio.fetch(2)
    assert [dict(proposal.isr) for proposal in trio.proposed] == [{1: 11, 2: 12}]


def test_a_smaller_isr_counts_when_the_image_tells_of_it_and_of_the_settings_before() -> None:
    """min.insync.replicas has just been raised to 2: whoever leaves now stays eligible, so the
    leader must not acknowledge alone by the minimum that it still knows."""
    trio = Trio(2)
    trio.elect(1)
    trio.append(b"a")
    trio.catch_up(2)
    trio.append(b"b")
    trio.now_ms += LAG_MS + 1
    trio.carry_out(trio[1], trio[1].maybe_shrink_or_expand_isr(trio.now_ms))
    trio.answer()
    assert trio[1].high_watermark == 1
    raised = TopicConfig(min_insync_replicas=2)
    trio.carry_out(trio[1], trio[1].configure(raised, trio.now_ms))
    trio.tell(1)
    assert (trio.state.isr, trio[1].high_watermark) == ((1,), 1)
    trio.carry_out(trio[1], trio[1].configure(TopicConfig(), trio.now_ms))
    assert trio[1].high_watermark == 2
