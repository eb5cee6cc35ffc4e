#!/usr/bin/env python3
"""Train on fotaq; ./train.py --help lists the options, conf/ holds the presets."""

from icefall_ctx.train.loop import main

if __name__ == "__main__":
    main(
        {
            "data": {
                "manifest_dir": "data/fbank",
                "lang_dir": "data/lang_bpe_200",
                "train_cuts": "fotaq_cuts_train.jsonl.gz",
                "valid_cuts": "fotaq_cuts_dev.jsonl.gz",
            }
        }
    )
