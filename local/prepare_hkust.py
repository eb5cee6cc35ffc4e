#!/usr/bin/env python3
"""Read HKUST and write its manifests, parts train and dev."""

from icefall_ctx.corpora.hkust import prepare_hkust
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_hkust,
        corpus_dir="folder of LDC2005S15, or one that holds both releases",
        transcript_dir="folder of LDC2005T32, if it is elsewhere",
    )
