"""Settings whose text is a list: limits by address, and names of partitions.

Owns: the format of these texts.  Must not know which setting has such a text.
"""

from ipaddress import ip_address


def parse_overrides(text: str) -> dict[str, int]:
    """The counts by address, from ``address:count`` pairs.  Raises ValueError."""
    counts: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = pair.rpartition(":")
        counts[str(ip_address(address.strip("[] ")))] = int(count)
    if any(count < 0 for count in counts.values()):
        raise ValueError(text)
    return counts


def check_overrides(text: str) -> str | None:
    try:
        parse_overrides(text)
    except ValueError:
        return "pairs of an address and a number, such as 127.0.0.1:200,10.0.0.7:5"
    return None


def parse_partitions(text: str) -> list[tuple[str, int]]:
    """The (topic, partition) pairs of comma-separated ``topic-N`` names.  Raises ValueError."""
    found: list[tuple[str, int]] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        topic, dash, number = name.rpartition("-")
        if not (topic and dash and number.isdecimal()):
            raise ValueError(name)
        found.append((topic, int(number)))
    return found


def check_partitions(text: str) -> str | None:
    try:
        parse_partitions(text)
    except ValueError:
        return "names of partitions, such as orders-0,orders-11"
    return None
