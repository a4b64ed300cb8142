"""Who may lead and who counts, by the journal's own word.

A broker that did not stop cleanly, or has another disk than its predecessor, is neither in sync nor
eligible once its registration is committed.  A leader was in sync or eligible before; in an unclean
recovery it was so when the ISR last had its size or a leader last lived, and has its disk since.
"""

from collections.abc import Iterator
from uuid import UUID

from sparklog.metadata import BrokerRegistered, BrokerRemoved
from tests.simulation.checkers.copies import Copies
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import Committed
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    stories = promises_of(history).copies.values()
    found: list[str] = []
    disks: dict[int, UUID | None] = {}
    for at, committed in history.each(Committed):
        for record in committed.records:
            if isinstance(record, BrokerRemoved):
                disks.pop(record.broker_id, None)  # its id may be another broker's
            if not isinstance(record, BrokerRegistered):
                continue
            broker_id, disk = record.broker.broker_id, record.broker.directory_id
            former, disks[broker_id] = disks.get(broker_id, disk), disk
            if former != disk and record.clean:
                found.append(f"broker {broker_id} came with another disk and counts as clean")
            if former != disk or not record.clean:
                for story in stories:
                    found += _counts(story, broker_id, at)
    for story in stories:
        found += [f"{story.log}: {wrong}" for wrong in story.wrong]
        found += [
            f"{story.log}: broker {recovery.leader} was elected, which never held or has lost what "
            "was acknowledged"
            for recovery in story.recoveries
            if not recovery.allowed and not recovery.held
        ]
    return found


def _counts(story: Copies, broker_id: int, at: int) -> Iterator[str]:
    """Whether a broker counts after a commit in which it registered with a doubtful disk.

    Of a topic that is created in that very commit every replica has everything.
    """
    state = story.state_at(at) if story.state_at(at - 1) is not None else None
    recovered = any(recovery.at == at for recovery in story.recoveries)
    if state is not None and broker_id in {*state.isr, *state.eligible} and not recovered:
        where = "in sync" if broker_id in state.isr else "eligible"
        yield f"{story.log}: broker {broker_id} stopped uncleanly and counts as {where}"
