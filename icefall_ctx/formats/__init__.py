"""Readers and writers of the field's text formats, one module a format, one dataclass a line.

A reader takes a path and a :class:`~icefall_ctx.errors.ProblemLog`; a line it cannot use is logged
with file and line and skipped.  A file it cannot use at all raises
:class:`~icefall_ctx.errors.InputError`.
"""
