#!/usr/bin/env python3
"""Decode the test sets of TED-LIUM 2; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "tedlium2_cuts_dev.jsonl.gz,tedlium2_cuts_test.jsonl.gz",
                "avg": 10,
                "unit": "word",
                "normalizer": "tedlium",
            }
        }
    )
