"""Click options out of the settings' dataclasses: names, defaults, help texts of one source."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Type, TypeVar

import click

from icefall_ctx.config import make

Config = TypeVar("Config")
METAVARS = {int: "INTEGER", float: "FLOAT", bool: "BOOLEAN", str: "TEXT"}  # else a path


def config_options(config_class: type, *names: str, **defaults: Any) -> Callable:
    """Options for the fields ``names`` of ``config_class``; ``defaults`` replace the class's own.

    A command gets the values as they were typed; :func:`config_from` converts and checks them.
    """
    fields = {f.name: f for f in dataclasses.fields(config_class)}

    def decorate(command: Callable) -> Callable:
        for name in reversed(names):
            command = _option(fields[name], defaults.get(name))(command)
        return command

    return decorate


def _option(field: dataclasses.Field, default: Any) -> Callable:
    choices = field.metadata.get("choices")
    shown = field.default if default is None else default
    kind = type(field.default)
    return click.option(
        f"--{field.name.replace('_', '-')}",
        field.name,
        type=click.Choice(choices) if choices else str,
        metavar=None if choices else METAVARS.get(kind, "PATH"),
        default=None if default is None else str(default),
        help=field.metadata["help"] + ("" if shown in (None, "") else f"  [default: {shown}]"),
    )


def config_from(config_class: Type[Config], options: Dict[str, Any], command: str) -> Config:
    """The settings of those ``options`` that were given.

    Raises:
      InputError: a value of the wrong type, or outside of what its option allows.
    """
    known = {f.name for f in dataclasses.fields(config_class)}
    values = {k: v for k, v in options.items() if k in known and v is not None}
    return make(config_class, values, command)
