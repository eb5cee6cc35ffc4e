"""Error rates: alignment, conversations, new words, reports."""
