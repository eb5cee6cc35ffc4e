#!/usr/bin/env python3
"""Read Switchboard-1 and write its manifests, parts train and dev."""

from icefall_ctx.corpora.stage import corpus_stage
from icefall_ctx.corpora.swbd import NUM_DEV_CALLS, prepare_swbd

if __name__ == "__main__":
    corpus_stage(
        __doc__,
        prepare_swbd,
        counts={"num_dev_calls": (NUM_DEV_CALLS, "calls to choose checkpoints by")},
        corpus_dir="folder of LDC97S62",
        transcript_dir="swb_ms98_transcriptions, if it is not below the corpus",
    )
