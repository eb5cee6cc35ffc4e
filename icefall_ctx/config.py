"""Experiment settings: one source for presets, command-line flags and what a checkpoint remembers.

Four frozen dataclasses (:mod:`icefall_ctx.options`) hold every option.  A preset
(``conf/*.yaml``) has one section for each of them; a flag of the same name (``ctx_depth`` is
``--ctx-depth``) overrides the preset; the result is written to ``exp_dir/config.yaml``, from
which decoding builds the model again without repeating an option.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
import typing
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

import yaml

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.errors import InputError
from icefall_ctx.files import write_text
from icefall_ctx.options import DataConfig, DecodeConfig, ModelConfig, TrainConfig

SECTIONS: Dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}
Config = TypeVar("Config")


def _types(config_class: type) -> Dict[str, type]:
    """The plain type of each field: ``Optional[Path]`` is ``Path``."""
    hints = typing.get_type_hints(config_class)
    return {
        name: next((a for a in typing.get_args(hint) if a is not type(None)), hint)
        for name, hint in hints.items()
    }


def parse_bool(text: str) -> bool:
    """``true``/``false`` in the spellings that icefall's ``str2bool`` takes."""
    lower = str(text).lower()
    if lower in ("1", "true", "t", "yes", "y"):
        return True
    if lower in ("0", "false", "f", "no", "n"):
        return False
    raise argparse.ArgumentTypeError(f"'{text}' is not true or false")


KIND_NAMES = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def _convert(kind: type, value: Any) -> Any:
    if kind is bool:
        return value if isinstance(value, bool) else parse_bool(value)
    if isinstance(value, (bool, list, dict)) or value is None:
        raise ValueError(f"{value!r} is not {KIND_NAMES[kind]}")
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is not a whole number")
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{value!r} is not {KIND_NAMES[kind]}") from None


def add_arguments(parser: argparse.ArgumentParser, *config_classes: type) -> None:
    """Add a flag for every option of the given classes; a shared name is added once."""
    seen = set()
    for config_class in config_classes:
        group = parser.add_argument_group(config_class.__doc__.splitlines()[0].rstrip("."))
        types = _types(config_class)
        for f in dataclasses.fields(config_class):
            if f.name in seen:
                continue
            seen.add(f.name)
            kind = parse_bool if types[f.name] is bool else types[f.name]
            group.add_argument(
                "--" + f.name.replace("_", "-"),
                dest=f.name,
                type=kind,
                choices=f.metadata.get("choices"),
                default=argparse.SUPPRESS,
                metavar=None if f.metadata.get("choices") else types[f.name].__name__.upper(),
                help=f"{f.metadata['help']} (default: {f.default!s})".replace("%", "%%"),
            )


def read_yaml(path: Path) -> Dict[str, Dict[str, Any]]:
    """Read a preset or a ``config.yaml``.

    ``base: other.yaml``, or a list of them, names presets that this one builds on: relative to
    this file, later ones before earlier ones, and this file's own options before all.

    Raises:
      InputError: no such file, not YAML, a section or key that does not exist, or a preset that
        builds on itself.
    """
    return _read_preset(Path(path), ())


def _read_preset(path: Path, above: Tuple[Path, ...]) -> Dict[str, Dict[str, Any]]:
    """``above``: the presets that name this one, to notice a circle."""
    if path.resolve() in above:
        raise InputError(f"{path}: builds on itself; remove one of the 'base' lines")
    loaded = _load_sections(path)
    merged: Dict[str, Dict[str, Any]] = {}
    for name in _base_names(path, loaded.pop("base", [])):
        _merge(merged, _read_preset(path.parent / name, (*above, path.resolve())))
    for section, values in loaded.items():
        _check_keys(path, section, values)
    _merge(merged, loaded)
    return merged


def _load_sections(path: Path) -> Dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name an existing preset") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected sections {', '.join(SECTIONS)}")
    return loaded


def _base_names(path: Path, base: Any) -> List[str]:
    names = base if isinstance(base, list) else [base]
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{path}: 'base' is {base!r}; expected the name of a preset, or a list")
    return names


def _merge(sections: Dict[str, Dict[str, Any]], more: Dict[str, Dict[str, Any]]) -> None:
    """Options of ``more`` take the place of those of ``sections``."""
    for section, values in more.items():
        sections.setdefault(section, {}).update(values)


def _check_keys(path: Path, section: str, values: Any) -> None:
    if section not in SECTIONS:
        raise InputError(f"{path}: no section '{section}'; there are {', '.join(SECTIONS)}")
    if not isinstance(values, dict):
        raise InputError(f"{path}: section '{section}' holds no options")
    known = [f.name for f in dataclasses.fields(SECTIONS[section])]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{path}: no option '{key}' in section '{section}'{hint}")


def make(config_class: Type[Config], values: Dict[str, Any], source: str) -> Config:
    """Build one config from plain values, each checked against its type and choices."""
    types = _types(config_class)
    converted = {}
    for f in dataclasses.fields(config_class):
        if f.name not in values:
            continue
        try:
            optional = f.default is None and values[f.name] is None
            value = None if optional else _convert(types[f.name], values[f.name])
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise InputError(f"{source}: option '{f.name}': {error}") from error
        choices = f.metadata.get("choices")
        if choices and value not in choices:
            allowed = ", ".join(choices)
            raise InputError(f"{source}: option '{f.name}': '{value}' is none of {allowed}")
        converted[f.name] = value
    return config_class(**converted)


def section_of(config_class: type) -> str:
    return next(name for name, kind in SECTIONS.items() if kind is config_class)


def parse_configs(
    config_classes: Sequence[type],
    argv: Optional[List[str]] = None,
    description: str = "",
    defaults: Optional[Dict[str, Dict[str, Any]]] = None,
) -> Tuple[Any, ...]:
    """Recipe defaults, then ``--config`` preset, then flags: one instance a class.

    Args:
      config_classes: which options this program has.
      argv: the arguments; default ``sys.argv[1:]``.
      description: shown by ``--help``.
      defaults: the recipe's own defaults, by section.
    """
    parser = OneLineParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, help="preset: a YAML file, see conf/")
    add_arguments(parser, *config_classes)
    flags = vars(parser.parse_args(argv))
    preset = flags.pop("config")
    sections = read_yaml(preset) if preset else {}
    source = str(preset) if preset else Path(sys.argv[0]).name
    result = []
    for config_class in config_classes:
        name = section_of(config_class)
        values = {**(defaults or {}).get(name, {}), **sections.get(name, {}), **flags}
        result.append(make(config_class, values, source))
    return tuple(result)


def save_configs(path: Path, *configs: Any) -> None:
    """Write the sections of ``configs`` as YAML, atomically."""
    sections = {
        section_of(type(config)): {
            key: str(value) if isinstance(value, Path) else value
            for key, value in dataclasses.asdict(config).items()
        }
        for config in configs
    }
    write_text(path, yaml.safe_dump(sections, sort_keys=False))


def load_config(path: Path, config_class: Type[Config]) -> Config:
    """Read one section of a ``config.yaml`` back.

    Raises:
      InputError: no such file, which is to say no trained model in its folder.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; train first, or name a trained model's --exp-dir")
    values = read_yaml(path).get(section_of(config_class), {})
    return make(config_class, values, str(path))
