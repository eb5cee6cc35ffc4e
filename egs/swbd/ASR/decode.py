#!/usr/bin/env python3
"""Decode the test sets of Switchboard; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "swbd_cuts_eval2000.jsonl.gz",
                "avg": 10,
                "unit": "word",
                "normalizer": "swbd",
            }
        }
    )
