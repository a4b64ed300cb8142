"""What an acknowledgement promised, and what takes a promise back.

Owns: which losses are legal.  Must not know records.

A topic that was created with ``flush.messages=1`` promises the disk: nothing that was acknowledged
is ever lost.  Any other topic promises the process's memory of the disk: a broker that is stopped
or killed loses nothing, one whose machine loses power may lose what was not flushed.
"""

from bisect import bisect_left

from history import BrokerDied, BrokerStopped, History, LogId, TopicCreated, TopicCreateInvoked


class Promises:
    """Answers about one history."""

    def __init__(self, history: History) -> None:
        invoked = {event.op: event for _, event in history.each(TopicCreateInvoked)}
        self._durable = set()
        self._leaders = {}
        self.configs = {}
        for _, created in history.each(TopicCreated):
            configs = dict(invoked[created.op].configs) if created.op in invoked else {}
            self.configs[created.topic_id] = configs
            self._leaders[created.topic_id] = created.leaders
            if configs.get("flush.messages") == "1":
                self._durable.add(created.topic_id)
        self._losses = [(at, e.broker) for at, e in history.each(BrokerDied) if e.power_lost]
        self._deaths = [(at, e.broker) for at, e in history.each(BrokerDied)]
        stops = [(at, e.broker) for at, e in history.each(BrokerStopped)]
        self._restarts = sorted([*self._deaths, *stops])

    def durable(self, log: LogId) -> bool:
        return log.topic_id in self._durable

    def may_be_lost(self, log: LogId, start: int, end: int) -> bool:
        """Whether what was written after ``start`` may legally be gone at ``end``."""
        return not self.durable(log) and self._hit(self._losses, log, start, end)

    def died(self, log: LogId, start: int, end: int) -> bool:
        """Whether the log's broker was killed between the two positions."""
        return self._hit(self._deaths, log, start, end)

    def restarted(self, log: LogId, start: int, end: int) -> bool:
        """Whether the log's broker was killed or stopped between the two positions."""
        return self._hit(self._restarts, log, start, end)

    def _hit(self, events: list[tuple[int, int]], log: LogId, start: int, end: int) -> bool:
        leaders = self._leaders.get(log.topic_id, ())
        leader = leaders[log.partition] if log.partition < len(leaders) else None
        for at, broker in events[bisect_left(events, (start, -1)) :]:
            if at > end:
                return False
            if leader is None or broker == leader:
                return True
        return False
