"""What can be done to a world besides killing: its network, its disks, its clocks.

Owns: the half of ``World`` that makes trouble and takes it back, with its notes and counters.  Must
not know what the processes are.  Hosts go by name: ``control``, ``broker-1``, ``client-a``.
"""

import random
from collections import Counter
from collections.abc import Mapping

from sparklog.storage_backends.memory_faults import Operation
from tests.simulation.disk import HostDisk
from tests.simulation.hosts import BrokerHost, ControlHost
from tests.simulation.network import Network


class Faults:
    """Everything here takes effect at once."""

    network: Network
    control: ControlHost
    brokers: Mapping[int, BrokerHost]
    counters: Counter[str]
    random: random.Random
    #: Milliseconds by which a host's time of day differs from the world's.
    skews_ms: dict[str, int]

    def note(self, text: str) -> None:
        raise NotImplementedError

    # network

    def partition_network(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Nothing passes between them, or only from ``other`` to ``one``."""
        arrow = "to" if one_way else "and"
        self.note(f"the network is cut: {one} {arrow} {other}")
        self.counters["partitions"] += 1
        self.network.partition(one, other, one_way=one_way)

    def slow_network(self, one: str, other: str, low_s: float = 0.05, high_s: float = 1.0) -> None:
        """Whatever passes between them takes so long."""
        self.note(f"the network is slow, {low_s:g} to {high_s:g} s: {one} and {other}")
        self.counters["slow_networks"] += 1
        self.network.slow(one, other, low_s, high_s)

    def heal_network(self) -> None:
        self.note("the network is healed")
        self.network.heal()

    def reset_connections(self, one: str, other: str) -> int:
        """Break all connections between them; how many there were."""
        count = self.network.reset(one, other)
        self.note(f"{count} connections are reset: {one} and {other}")
        self.counters["resets"] += count
        return count

    # disks

    def disk(self, host: int | str) -> HostDisk:
        """A broker's disk by its id, or the journal's as ``"control"``."""
        return self.control.disk if isinstance(host, str) else self.brokers[host].disk

    def full_disk(self, host: int | str, after_bytes: int = 0) -> None:
        """Full once so many more bytes are used."""
        self._note_disk(host, f"is full after {after_bytes} more bytes", "full_disks")
        self.disk(host).fill(after_bytes)

    def slow_disk(self, host: int | str, seconds: float = 0.2) -> None:
        """Every operation holds its process up for so long, on average."""
        self._note_disk(host, f"takes {seconds:g} s", "slow_disks")
        self.disk(host).slow_s = seconds

    def fail_disk(
        self,
        host: int | str,
        count: int = 1,
        operation: Operation | None = None,
        *,
        after: bool = False,
        under: str = "",
    ) -> None:
        """The next operations (of this kind, on such paths) fail; see ``memory_faults``."""
        what = f"fails {'after ' if after else ''}{count} x {operation or 'anything'} {under}"
        self._note_disk(host, what.rstrip(), "disk_failures")
        self.disk(host).faults.fail_next(count, operation, after=after, under=under)

    def corrupt_disk(self, host: int | str, suffix: str = ".log") -> tuple[str, int] | None:
        """Change one byte of one file; path and position, None when no such file has bytes."""
        place = self.disk(host).corrupt(suffix)
        self._note_disk(host, f"is corrupt at {place}", "corruptions")
        return place

    def heal_disk(self, host: int | str) -> None:
        """No more failures; what was lost or changed stays so."""
        self.note(f"the disk of {self.disk(host).name} is healed")
        self.disk(host).heal()

    def _note_disk(self, host: int | str, what: str, counter: str) -> None:
        self.note(f"the disk of {self.disk(host).name} {what}")
        self.counters[counter] += 1

    # clocks

    def shift_clock(self, host: str, milliseconds: int) -> None:
        """Somebody sets a host's time of day; its monotonic clock does not notice."""
        self.note(f"the clock of {host} is set by {milliseconds} ms")
        self.counters["clock_shifts"] += 1
        self.skews_ms[host] = self.skews_ms.get(host, 0) + milliseconds
