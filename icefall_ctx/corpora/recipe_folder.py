"""A recipe folder for one's own data, out of the template that the checkout brings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import icefall_ctx
from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.files import atomic_path

MAX_PIECES = 500
_CHINESE = re.compile("[\u3400-\u9fff]")


def checkout() -> Path:
    """The folder that the package was installed from, in development mode."""
    return Path(icefall_ctx.__file__).resolve().parents[1]


def root_as_seen_from(folder: Path) -> str:
    """The checkout, relative to a recipe folder inside it (both may move), else absolute."""
    root, folder = checkout(), folder.resolve()
    return os.path.relpath(root, folder) if root in folder.parents else str(root)


def choose_units(texts: Sequence[str]) -> Tuple[str, int]:
    """``("char", 0)`` for Chinese, else ``("bpe", pieces)`` with as many as the text can fill.

    About one piece for twenty words: fewer occurrences teach nothing about a piece.
    """
    letters = set("".join(texts)) - {" "}
    if any(map(_CHINESE.match, letters)):
        return "char", 0
    words = sum(len(text.split()) for text in texts)
    return "bpe", min(max(words // 20, len(letters) + 10, 40), MAX_PIECES)


def recipe_values(
    name: str, folder: Path, parts: Dict[str, Manifests], conversation: str
) -> Dict[str, str]:
    """What the template's ``@NAMES@`` stand for."""
    train = "train" if "train" in parts else next(iter(parts))
    unit, pieces = choose_units([turn.text for turn in parts[train]["supervisions"]])
    rates = [r.sampling_rate for manifests in parts.values() for r in manifests["recordings"]]
    return {
        "CORPUS": name,
        "PARTS": " ".join(parts),
        "TRAIN_PARTS": train,  # the tokenizer's text, where there is no training set
        "SPEED_PARTS": "train" if "train" in parts else "",
        "SAMPLING_RATE": str(min(rates)),
        "CONVERSATION": conversation.replace("'", "'\\''"),
        "UNIT": unit,
        "VOCAB_SIZE": str(pieces),
        "LANG_DIR": "data/lang_char" if unit == "char" else f"data/lang_bpe_{pieces}",
        "ROOT": root_as_seen_from(folder),
        "ROOT_FROM_CONF": root_as_seen_from(folder / "conf"),
    }


def template_folder() -> Path:
    """``local/recipe_template`` of the checkout that the package was installed from.

    :raises InputError: where the package was installed without its checkout.
    """
    folder = checkout() / "local" / "recipe_template"
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no recipe template; a recipe folder needs a checkout of the project"
        )
    return folder


def write_recipe_folder(
    folder: Pathlike, values: Dict[str, str], template: Optional[Pathlike] = None
) -> List[Path]:
    """Copy the template to ``folder`` with every ``@NAME@`` replaced by ``values["NAME"]``.

    A file that is there already is left as it is, since somebody may have changed it.

    :returns: the files written.
    """
    template = template_folder() if template is None else Path(template)
    written = []
    for source in sorted(path for path in template.rglob("*") if path.is_file()):
        target = Path(folder) / source.relative_to(template)
        if target.exists() or "__pycache__" in source.parts:
            continue
        text = source.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        with atomic_path(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
            temporary.chmod(source.stat().st_mode & 0o777)
        written.append(target)
    return written
