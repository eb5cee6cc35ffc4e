"""Text: tokenizers and named normalisers."""
