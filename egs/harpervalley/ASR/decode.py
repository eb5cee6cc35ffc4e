#!/usr/bin/env python3
"""Decode the test sets of HarperValleyBank; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "harpervalley_cuts_test.jsonl.gz",
                "avg": 5,
                "unit": "word",
                "normalizer": "english",
            }
        }
    )
