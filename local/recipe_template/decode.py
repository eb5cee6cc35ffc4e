#!/usr/bin/env python3
"""Decode the test part of @CORPUS@; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main({"decode": {"test_cuts": "@CORPUS@_cuts_test.jsonl.gz"}})
