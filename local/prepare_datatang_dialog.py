#!/usr/bin/env python3
"""Read Datatang dialogue and write its manifests, parts train, dev and test."""

from icefall_ctx.corpora.datatang_dialog import prepare_datatang_dialog
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_datatang_dialog,
        corpus_dir="folder of the delivery",
    )
