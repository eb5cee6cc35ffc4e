#!/usr/bin/env python3
"""Train on HarperValleyBank; ./train.py --help lists the options, conf/ holds the presets."""

from icefall_ctx.train.loop import main

if __name__ == "__main__":
    main(
        {
            "data": {
                "manifest_dir": "data/fbank",
                "lang_dir": "data/lang_bpe_500",
                "train_cuts": "harpervalley_cuts_train.jsonl.gz",
                "valid_cuts": "harpervalley_cuts_dev.jsonl.gz",
            },
        }
    )
