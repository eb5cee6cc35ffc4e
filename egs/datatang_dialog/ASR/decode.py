#!/usr/bin/env python3
"""Decode the test sets of the Datatang dialogues; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "datatang_dialog_cuts_dev.jsonl.gz,datatang_dialog_cuts_test.jsonl.gz",
                "avg": 5,
                "unit": "mixed",
                "normalizer": "mandarin-cer",
            }
        }
    )
