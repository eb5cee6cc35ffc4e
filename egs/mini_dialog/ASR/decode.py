#!/usr/bin/env python3
"""Decode the mini_dialog test set; ./decode.py --help lists the options."""

from icefall_ctx.decode.run import main

if __name__ == "__main__":
    main({"decode": {"test_cuts": "mini_dialog_cuts_test.jsonl.gz", "avg": 3}})
