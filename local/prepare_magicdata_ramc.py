#!/usr/bin/env python3
"""Read MagicData-RAMC and write its manifests, parts train, dev and test."""

from icefall_ctx.corpora.magicdata_ramc import prepare_magicdata_ramc
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_magicdata_ramc,
        corpus_dir="the unpacked archive, with DataPartition and MDT2021S003",
    )
