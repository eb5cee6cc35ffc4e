"""What is counted: words, characters, or Chinese characters beside whole words of other scripts."""

from __future__ import annotations

import re
from typing import Callable, Dict, List

# CJK ideographs (with extensions and compatibility forms), kana and Bopomofo: scripts without
# blanks between words, where an error rate over "words" would depend on a segmenter.
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_MIXED = re.compile(f"[{_CJK}]|[^\\s{_CJK}]+")


def words(text: str) -> List[str]:
    """Split at white space."""
    return text.split()


def characters(text: str) -> List[str]:
    """Every character but white space."""
    return list("".join(text.split()))


def mixed(text: str) -> List[str]:
    """CJK characters one by one, words of other scripts whole: ``好的 ok`` -> 好, 的, ok."""
    return _MIXED.findall(text)


UNITS: Dict[str, Callable[[str], List[str]]] = {
    "word": words,
    "char": characters,
    "mixed": mixed,
}
RATE_NAMES = {"word": "WER", "char": "CER", "mixed": "MER"}
