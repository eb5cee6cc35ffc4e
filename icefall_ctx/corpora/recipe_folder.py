"""A recipe folder for one's own data, out of the template that the checkout brings."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

import icefall_ctx
from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.files import atomic_path


def template_folder() -> Path:
    """``local/recipe_template`` of the checkout that the package was installed from.

    :raises InputError: where the package was installed without its checkout.
    """
    folder = Path(icefall_ctx.__file__).resolve().parents[1] / "local" / "recipe_template"
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
