#!/usr/bin/env python3
"""Decode the test sets of HKUST; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "hkust_cuts_dev.jsonl.gz",
                "avg": 5,
                "unit": "mixed",
                "normalizer": "hkust",
            }
        }
    )
