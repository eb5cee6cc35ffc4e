"""Features: log-mel filterbank and pitch, and their extraction for whole corpora."""
