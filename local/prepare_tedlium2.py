#!/usr/bin/env python3
"""Read TED-LIUM 2 and write its manifests, parts train, dev and test."""

from icefall_ctx.corpora.stage import corpus_stage
from icefall_ctx.corpora.tedlium2 import prepare_tedlium2

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_tedlium2,
        corpus_dir="the unpacked TEDLIUM_release2",
    )
