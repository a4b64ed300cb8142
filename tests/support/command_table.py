"""The commands of the command line and their parameters, from the functions behind them.

Owns: reading typer's table of commands and the functions' annotations; typer's own objects for
options differ from version to version.  For tests that go through all commands.
"""

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from sparklog.cli.app import app


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """``names`` are an option's, none for an argument; ``off_names`` turn a flag off.  ``kind`` is
    int, str, bool, Path or a kind of Enum."""

    name: str
    names: tuple[str, ...]
    off_names: tuple[str, ...]
    kind: type
    repeats: bool
    required: bool
    default: Any
    info: Any

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(str(each.value) for each in self.kind) if issubclass(self.kind, Enum) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """``path`` are the words after ``sparklog``."""

    path: tuple[str, ...]
    text: str
    parameters: tuple[Parameter, ...]


def all_commands() -> list[Command]:
    """In the order of the help."""
    return list(_commands(app, ()))


def _commands(table: typer.Typer, path: tuple[str, ...]) -> list[Command]:
    found = [
        Command(
            path=(*path, each.name or each.callback.__name__.replace("_", "-")),
            text=inspect.cleandoc(each.callback.__doc__ or ""),
            parameters=tuple(_parameters(each.callback)),
        )
        for each in table.registered_commands
        if each.callback is not None
    ]
    for group in table.registered_groups:
        assert group.typer_instance is not None
        found += _commands(group.typer_instance, (*path, str(group.name)))
    return found


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    found: list[Parameter] = []
    for name, given in inspect.signature(function).parameters.items():
        hint = hints[name]
        if get_origin(hint) is not Annotated:
            continue  # typer's context
        annotation, info = get_args(hint)
        kind, repeats = _kind(annotation)
        names, off_names = _names(name, kind, info)
        is_required = given.default is inspect.Parameter.empty
        found.append(
            Parameter(
                name=name,
                names=names,
                off_names=off_names,
                kind=kind,
                repeats=repeats,
                required=is_required,
                default=None if is_required else given.default,
                info=info,
            )
        )
    return found


def _kind(annotation: Any) -> tuple[type, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = [each for each in get_args(annotation) if each is not types.NoneType]
    repeats = get_origin(annotation) is list
    kind = get_args(annotation)[0] if repeats else annotation
    assert kind in (int, str, bool, Path) or issubclass(kind, Enum), kind
    return kind, repeats


def _names(name: str, kind: type, info: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(info, ArgumentInfo):
        return (), ()
    plain = f"--{name.replace('_', '-')}"
    # In an annotation typer takes the first name for the default, until it makes the command.
    first = (info.default,) if isinstance(info.default, str) else ()
    declared = (*first, *(info.param_decls or ()))
    if not declared:
        declared = (f"{plain}/--no-{plain[2:]}",) if kind is bool else (plain,)
    on = tuple(each.partition("/")[0] for each in declared)
    off = tuple(each.partition("/")[2] for each in declared if "/" in each)
    return on, off
