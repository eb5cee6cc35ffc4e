"""Lattice decoding with k2: lexicon, graphs, decoding, rescoring.

Importing these modules is free; using them needs k2 (see :mod:`icefall_ctx.lattice.k2_import`).
"""
