#!/usr/bin/env python3
"""Read HarperValley and write its manifests, parts train, dev and test."""

from icefall_ctx.corpora.harpervalley import prepare_harpervalley
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_harpervalley,
        corpus_dir="the checkout of the corpus, or its folder data",
    )
