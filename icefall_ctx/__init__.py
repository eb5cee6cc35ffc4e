"""Conversational speech recognition that remembers: context, speakers and new words."""
