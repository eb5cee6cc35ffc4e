#!/usr/bin/env python3
"""Decode the test sets of the new-words mix; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main(
        {
            "decode": {
                "test_cuts": "newwords_cuts_test.jsonl.gz,newwords_cuts_new_words.jsonl.gz",
                "avg": 5,
                "unit": "word",
                "normalizer": "english",
            }
        }
    )
