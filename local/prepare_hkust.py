#!/usr/bin/env python3
"""Read HKUST and write its manifests, parts train, valid and dev."""

from icefall_ctx.corpora.hkust import prepare_hkust
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_hkust,
        counts={"num_valid_calls": (0, "calls of the training set to choose checkpoints by")},
        corpus_dir="folder of LDC2005S15, or one that holds both releases",
        transcript_dir="folder of LDC2005T32, if it is elsewhere",
    )
