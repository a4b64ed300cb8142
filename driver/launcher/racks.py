"""The racks of hosts, as the user gives them when the cluster is started.

Owns: the table, its checks, and the broker setting that follows from it.  Must not know how
replicas are spread over racks.

A rack is a failure domain larger than a host: a cabinet, a switch, an availability zone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparklog.errors import ConfigError, StartError

SETTING = "broker.rack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Racks:
    """The rack of each host, by the name that Spark gives the host.

    With an empty ``by_host`` there are no racks, and every host is a failure domain of its own.
    """

    by_host: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def checked(cls, by_host: object, settings: Mapping[str, str]) -> "Racks":
        """Check the racks that a user gives.

        Raises:
            ConfigError: ``by_host`` is no mapping of texts, or ``settings`` give a rack as well.
        """
        if by_host is None:
            return cls()
        if not isinstance(by_host, Mapping) or not all(
            isinstance(text, str) and text.strip() for item in by_host.items() for text in item
        ):
            raise ConfigError(
                f"racks={by_host!r}: expected the rack of every host, as in "
                '{"10.0.0.1": "a", "10.0.0.2": "b"}'
            )
        if by_host and SETTING in settings:
            raise ConfigError(
                f"racks and settings[{SETTING!r}] are given: the one tells the rack of each host, "
                "the other one for all brokers; give one of them"
            )
        return cls(by_host=dict(by_host))

    def place_of(self, host: str) -> str:
        """The outermost failure domain of a host: its rack, or without racks the host itself."""
        return self.by_host.get(host, host)

    def settings_on(self, host: str) -> dict[str, str]:
        """The settings of a broker on this host that follow from its rack."""
        rack = self.by_host.get(host)
        return {} if rack is None else {SETTING: rack}

    def lacks(self, host: str) -> bool:
        """Whether racks are given, but none for this host."""
        return bool(self.by_host) and host not in self.by_host

    def require_known(self, hosts: Iterable[str]) -> None:
        """Raises StartError naming the hosts that have no rack."""
        missing = sorted({host for host in hosts if self.lacks(host)})
        if missing:
            raise StartError(
                f"racks has no rack for {', '.join(missing)}, where executors run; it has "
                f"{', '.join(sorted(self.by_host))}; name hosts as Spark does"
            )


NO_RACKS = Racks()
