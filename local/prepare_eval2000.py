#!/usr/bin/env python3
"""Read eval2000 and write its manifests, part eval2000 of corpus swbd."""

from icefall_ctx.corpora.eval2000 import prepare_eval2000
from icefall_ctx.corpora.stage import corpus_stage

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_eval2000,
        corpus_dir="folder of LDC2002S09, or one that holds both releases",
        transcript_dir="folder of LDC2002T43, if it is elsewhere",
    )
