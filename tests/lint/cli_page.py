"""docs/cli.md, from the commands and their parameters.

``python -m tests.lint.cli_page`` writes the page, and a test beside it fails when that is due.
"""

from pathlib import Path

from sparklog.cli.output import BOOTSTRAP_VARIABLE, EXIT_CODES
from tests.support.command_table import Command, Parameter, all_commands

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_INTRODUCTION = f"""\
# The command line

This page is made from the commands by `python -m tests.lint.cli_page`. `sparklog COMMAND --help`
prints the same. `sparklog --install-completion` makes the shell complete commands and options.

Commands for a cluster take its address from `--bootstrap HOST:PORT` (or `--bootstrap-server`, as in
Kafka's tools, or `-b`), else from the variable `{BOOTSTRAP_VARIABLE}`, else it is 127.0.0.1:9092.
`--json` prints one JSON document on one line, for machines. An error is one line on stderr that
begins with `sparklog:`.

## Exit codes
"""

_JOURNAL = """\
## A damaged journal

Every change of a cluster is a numbered commit in its journal. A damaged or missing commit keeps
the cluster from starting, because its changes are not known. A damaged checkpoint does not, as long
as an older checkpoint and every commit since are there.

1. Restore the files from a copy, if there is a copy. A newer copy is better. Topics that an older
   copy does not know are not deleted on the brokers' disks, but set aside (see below).
2. `sparklog journal check JOURNAL` shows the damaged and missing files, the last good commit, and
   the changes of each commit behind it, as far as they can be read.
3. `sparklog journal repair JOURNAL` shows what it would do, and asks. The cluster must be stopped:
   a repair refuses a journal with a held lock, or with a controller that still answers at the
   address in the journal. A journal in an object store has no lock, so only the controller's answer
   shows that the cluster runs.

A repair starts the cluster from the last good commit. With `--keep-readable` it also keeps the
changes of later commits that do not depend on a lost commit: topics, their settings and partitions,
deleted topics, new brokers. The repair is one more commit, behind all others:

* The controller epoch, the brokers' epochs and the partitions' leader epochs are raised above every
  epoch that a lost commit can have used, and producer ids go on a million blocks later.
* No replica counts as in sync, because the lost commits may have changed that. Brokers report how
  far their logs reach, and the best log leads. A partition waits for its other replicas for
  `unclean.recovery.timeout.ms`, so start all brokers together. It counts as an unclean recovery.
* No file is deleted. Damaged and lost files, and a report, go to `damaged-TIME/` in the journal.

Brokers never delete the directory of a partition that the cluster does not place with them, for
example because a lost commit created its topic. They rename the directory to
`TOPIC-PARTITION.N-stray`. Its files are those of any log, and `sparklog dump` reads them.
Directories of topics that were deleted while their broker was away are kept in the same way; delete
them by hand.

A repair cannot know these changes of lost commits:

* A setting has its former value. This includes a longer `retention.ms`: set it again before old
  records are deleted.
* A topic that was deleted is back and empty.
* Replicas that were moved are looked for in their former place.
* A broker that got an empty log directory is not recognised. Let `broker.replacement.delay.ms`
  pass, or restore the directory.
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
