#!/usr/bin/env python3
"""Decode the fotaq test set; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "fotaq_cuts_test.jsonl.gz",
                "avg": 3,
                "normalizer": "english",  # transcripts are in capitals
            }
        }
    )
