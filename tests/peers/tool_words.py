"""What a tool says, without what tells the two clusters apart.

Owns: which words those are.  Must not know the tools.
"""

import re

from tests.peers.kafka_tools import ToolRun

_IDS = re.compile(r"TopicId: \S+")
_ERRORS = re.compile(r"errors\.(\w+(?:Exception|Error))")
_SETTINGS = re.compile(r"(?<=Configs: ).*")
#: Kafka has it in the settings of a fresh cluster (KIP-966).
_MIN_INSYNC = "min.insync.replicas=1"
#: Partitions of an election, as they come out of a hash map.
_ELECTED = re.compile(r"(?<= for partitions )\S.*")
_WORDS = re.compile(r"(?<=Error while executing topic command : ).*")
#: A set; Kafka's comes out of a hash map once it has changed.
_INSYNC = re.compile(r"(?<=\tIsr: )[\d,]+")
_FOLDERS = re.compile(r'"log_dirs":\[[^]]*\]')
#: The control plane is node 0, and listed.
_NODE_ZERO = re.compile(r"(?<=on brokers )0,")
#: Kafka's quotas are settings without a default.
_NO_DEFAULT = re.compile(r", DEFAULT_CONFIG:\w+\.replication\.throttled\.rate=\d+")


def said(run: ToolRun) -> tuple[int, list[str], list[str]]:
    """Exit code, lines, and the errors by their kinds: a server's words are its own.

    Lines and settings are sorted, because tools list them as they come out of a hash map.
    """
    errors = _ERRORS.findall(run.out) + _ERRORS.findall(run.err)
    lines = [_plain(line) for line in run.lines if not _ERRORS.search(line)]
    if errors:
        lines = [line for line in lines if not line.startswith(("Error", "[", "\t"))]
    return run.code, sorted(lines), sorted(set(errors))


def _plain(line: str) -> str:
    for words, instead in ((_IDS, "TopicId"), (_WORDS, "(words)"), (_FOLDERS, "folders")):
        line = words.sub(instead, line)
    line = _ELECTED.sub(lambda found: ", ".join(sorted(found[0].split(", "))), line)
    line = _INSYNC.sub(lambda found: ",".join(sorted(found[0].split(","))), line)
    return _SETTINGS.sub(_in_order, _NO_DEFAULT.sub("", _NODE_ZERO.sub("", line)))


def _in_order(settings: re.Match[str]) -> str:
    return ",".join(sorted(set(settings[0].split(",")) - {_MIN_INSYNC}))
