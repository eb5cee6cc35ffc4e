#!/usr/bin/env python3
"""Train on @CORPUS@; ./train.py --help lists the options, conf/ holds the presets."""

from icefall_ctx.train.loop import main

if __name__ == "__main__":
    main(
        {
            "data": {
                "manifest_dir": "data/fbank",
                "lang_dir": "@LANG_DIR@",
                "train_cuts": "@CORPUS@_cuts_train.jsonl.gz",
                "valid_cuts": "@CORPUS@_cuts_dev.jsonl.gz",
            }
        }
    )
