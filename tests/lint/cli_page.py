"""docs/cli.md, from the commands and their parameters: ``python tests/lint/cli_page.py`` writes it
anew, and the test beside it says when that is due."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from command_table import Command, Parameter, all_commands

from sparklog.cli.output import BOOTSTRAP_VARIABLE, EXIT_CODES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_INTRODUCTION = f"""\
# The command line

Made from the commands by `python tests/lint/cli_page.py`; `sparklog COMMAND --help` prints the
same. `sparklog --install-completion` has the shell complete commands and options.

Commands for a cluster take `--bootstrap HOST:PORT` (or `--bootstrap-server`, as Kafka's tools do,
or `-b`), else the variable `{BOOTSTRAP_VARIABLE}`, else 127.0.0.1:9092. `--json` prints one JSON
document on one line, for machines. Errors are one line on stderr that begins with `sparklog:`.

## Exit codes
"""

_JOURNAL = """\
## A damaged journal

Every change of a cluster is a numbered commit in its journal. A commit that is damaged or missing
keeps the cluster from starting, because what it changed is not known. A damaged checkpoint does
not, while an older checkpoint and every commit since are there.

1. Restore the files from a copy, if there is one. A newer copy is better: topics that an older one
   does not know are not deleted on the brokers' disks, but set aside (see below).
2. `sparklog journal check JOURNAL` shows which files are damaged or missing, which commit is the
   last good one, and what each commit behind it changed, as far as it can be read.
3. `sparklog journal repair JOURNAL` shows what it would do, and asks. The cluster must be stopped:
   a held lock, or a controller that still answers at the address in the journal, keeps a repair
   out. A journal in an object store has no lock; there only the controller's answer is a sign.

A repair starts the cluster from the last good commit. With `--keep-readable` it also keeps what
later commits say where that does not stand on a lost one: topics, their settings and partitions,
deleted topics, new brokers. The repair is one more commit, behind all others:

* The controller epoch, the brokers' epochs and the partitions' leader epochs are raised above all
  that a lost commit can have used, and producer ids go on a million blocks later.
* No replica counts as in sync, because the lost commits may have changed that. Brokers report how
  far their logs reach, and the best log leads. A partition waits for its other replicas for
  `unclean.recovery.timeout.ms`; start all brokers together. It counts as an unclean recovery.
* No file is deleted. Damaged and lost ones, and a report, go to `damaged-TIME/` in the journal.

Brokers never delete the folder of a partition that the cluster does not place with them, as when
its topic was created in a lost commit. They rename the folder to `TOPIC-PARTITION.N-stray`, and its
files are those of any log: `sparklog dump` reads them. Folders of topics that were deleted while
their broker was away are kept in the same way; delete them by hand.

What a repair cannot know: a setting that was changed in a lost commit has its former value (a
longer `retention.ms` too: set it again before old records go), a topic that was deleted there is
back and empty, and replicas that were moved there are looked for where they were. A broker that
got an empty directory in a lost commit is not recognised; let `broker.replacement.delay.ms` pass,
or restore the directory.
"""


def due() -> str:
    """The document as the commands make it."""
    parts = [
        _INTRODUCTION,
        "| code | meaning |\n|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
        "",
        _JOURNAL,
    ]
    for command in all_commands():
        parts += _command(command)
    return "\n".join(parts)


def _command(command: Command) -> list[str]:
    arguments = " ".join(_argument(each) for each in command.parameters if not each.names)
    lines = [f"## sparklog {' '.join(command.path)}\n", f"`sparklog {' '.join(command.path)}"]
    lines[-1] += f" {arguments}`\n" if arguments else "`\n"
    lines.append(f"{command.text}\n")
    if command.parameters:
        lines.append("| parameter | value | default | |\n|---|---|---|---|")
        lines += [_row(each) for each in command.parameters]
        lines.append("")
    return lines


def _argument(parameter: Parameter) -> str:
    name = (parameter.info.metavar or parameter.name.upper()).strip("[].")
    several = "..." if parameter.repeats else ""
    return f"{name}{several}" if parameter.required else f"[{name}]{several}"


def _row(parameter: Parameter) -> str:
    names = ", ".join(f"`{each}`" for each in (*parameter.names, *parameter.off_names))
    return (
        f"| {names or f'`{_argument(parameter)}`'} | {_value(parameter)} | {_default(parameter)} "
        f"| {_help(parameter)} |"
    )


def _value(parameter: Parameter) -> str:
    if parameter.choices:
        return ", ".join(f"`{each}`" for each in parameter.choices)
    if parameter.kind is bool:
        return ""
    low, high = parameter.info.min, parameter.info.max
    if parameter.kind is int and low is not None:
        return f"{low} to {high}" if high is not None else f"at least {low}"
    return str(parameter.info.metavar or "") if parameter.names else ""


def _default(parameter: Parameter) -> str:
    if isinstance(parameter.info.show_default, str):
        return parameter.info.show_default
    if parameter.required:
        return "required"
    if parameter.kind is bool:
        on = parameter.default and parameter.off_names
        return f"`{parameter.names[0]}`" if on else ""
    return "" if parameter.default in (None, "") else f"`{parameter.default}`"


def _help(parameter: Parameter) -> str:
    return (parameter.info.help or "").replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(due())
