"""``sparklog journal``: damage in a cluster's journal, and its repair.

Owns: the commands' options, and the question before a repair.  Must not know how a journal is
surveyed, repaired or described.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import JsonOption, fail, print_json
from sparklog.cli.storage_options import StorageOptionsOption, parse_storage_options

if TYPE_CHECKING:
    from sparklog.driver.control_plane.journal_repair import RepairPlan, Survey
    from sparklog.storage_backends.base import StorageBackend

JOURNAL_FOLDER = "journal"

app = typer.Typer(
    help="Check a cluster's journal, and repair one that is damaged.", no_args_is_help=True
)
JournalArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOURNAL",
        help="The journal_dir: a folder, s3://BUCKET/FOLDER or another URL; a data_dir means the "
        "journal in it.",
    ),
]


@app.command()
def check(
    journal: JournalArgument,
    storage_options: StorageOptionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is damaged or missing, what is good, and what a start without it loses.

    Changes nothing. Exit code 1 when anything is damaged or missing.
    """
    from sparklog.cli.journal_report import survey_document, survey_lines

    survey = _survey(_open(journal, storage_options))
    if as_json:
        print_json(survey_document(survey))
    else:
        typer.echo("\n".join(survey_lines(survey)))
    if survey.is_sound:
        return
    if survey.image is None:
        raise typer.Exit(fail("the journal cannot be repaired from what is left of it", 1))
    state = "a cluster starts all the same" if survey.starts else "no cluster starts from it"
    raise typer.Exit(
        fail(f"the journal is damaged and {state}; see `sparklog journal repair --help`", 1)
    )


@app.command()
def repair(
    journal: JournalArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    keep_readable: Annotated[
        bool,
        typer.Option(
            "--keep-readable",
            help="Keep topics, settings and brokers of lost commits that can still be read.",
        ),
    ] = False,
    storage_options: StorageOptionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the cluster start from the last good commit. Shows first what that loses, and asks.

    Without --yes, and with nobody to ask, nothing is changed (exit code 1). No file is deleted:
    damaged and lost ones go to the folder damaged-TIME in the journal. The cluster must be stopped.
    """
    from sparklog.cli.journal_report import (
        plan_document,
        plan_lines,
        survey_document,
        survey_lines,
    )
    from sparklog.driver.control_plane.journal_repair import (
        locked_journal,
        require_no_controller,
    )

    os.umask(0o077)  # the journal holds the cluster's secret
    backend = _open(journal, storage_options)
    _survey(backend)  # refuses a wrong place before a lock file is made there
    with locked_journal(backend):
        survey = _survey(backend)
        plan = _plan(survey, keep_readable)
        document = survey_document(survey) | {"repair": plan_document(plan), "repaired": False}
        if not as_json:
            typer.echo("\n".join(survey_lines(survey)))
        if survey.is_sound:
            _finish(document, as_json, "There is nothing to repair.")
            return
        require_no_controller(survey)
        if not as_json:
            typer.echo("\n".join(plan_lines(plan)))
        if not (yes or _is_confirmed(as_json)):
            if as_json:
                print_json(document)
            raise typer.Exit(fail("nothing was changed; --yes carries the repair out", 1))
        document |= _carry_out(backend, survey, plan, document)
    place = f"{survey.url}/{document['moved_to']}"
    _finish(
        document,
        as_json,
        f"Repaired: a cluster starts from commit {document['version']}. The former files are in "
        f"{place}; brokers keep directories of partitions that the journal does not know any more, "
        "under names that end in -stray.",
    )


def _carry_out(
    backend: "StorageBackend",
    survey: "Survey",
    plan: "RepairPlan | None",
    report: dict[str, Any],
) -> dict[str, Any]:
    from sparklog.driver.control_plane.journal_repair import repair_journal
    from sparklog.runtime_environment import SYSTEM

    done = repair_journal(
        backend,
        survey,
        plan,
        now_ms=SYSTEM.wall_ms(),
        nonce=f"repair-{SYSTEM.random_bytes(8).hex()}",
        report=report,
    )
    return {
        "repaired": True,
        "version": done.version,
        "moved": list(done.moved),
        "moved_to": done.folder,
    }


def _finish(document: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def _is_confirmed(as_json: bool) -> bool:
    """Ask the user at the terminal.  Without a terminal the answer is no."""
    if as_json or not sys.stdin.isatty():
        return False
    return typer.confirm("Repair the journal?", default=False)


def _plan(survey: "Survey", keep_readable: bool) -> "RepairPlan | None":
    from sparklog.driver.control_plane.journal_repair import RepairError, plan_repair

    if survey.image is None:
        raise RepairError(
            f"{survey.url} has no checkpoint that can be read, and not all commits from the first "
            "one on: restore the journal from a copy"
        )
    return plan_repair(survey, keep_readable=keep_readable) if survey.lost else None


def _open(journal: str, storage_options: list[str] | None) -> "StorageBackend":
    from sparklog.process import local_folder
    from sparklog.storage_backends.registry import open_backend

    options = parse_storage_options(storage_options)
    folder = local_folder(journal)
    if folder is None:
        return open_backend(journal, options)
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {folder}", param_hint="JOURNAL")
    inner = folder / JOURNAL_FOLDER
    has_files = any(folder.glob("*.json")) or not inner.is_dir()
    return open_backend(str(folder if has_files else inner), options)


def _survey(backend: "StorageBackend") -> "Survey":
    from sparklog.driver.control_plane import JournalError
    from sparklog.driver.control_plane.journal_repair import survey_journal

    survey = survey_journal(backend)
    if survey.is_empty:
        raise JournalError(f"{survey.url} holds no journal: no commit and no checkpoint is there")
    return survey
