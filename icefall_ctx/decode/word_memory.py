"""The word lists of a recogniser: one for all, one a session, one an utterance."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from icefall_ctx.data.batch import Batch
from icefall_ctx.decode.beam import SOS_EOS, Hypothesis
from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.decode.session_words import HistoryWords
from icefall_ctx.models.memory import MemoryDecoder, MemoryOutput, MemoryState
from icefall_ctx.models.memory_bank import EntryList, MemoryBank
from icefall_ctx.models.memory_entries import EncodedMemory
from icefall_ctx.text.splitting import WordSplitter
from icefall_ctx.text.tokenizer import Tokenizer


class WordMemory:
    """Decides which entries an utterance can use, and traces which it used.

    An utterance uses its own list from ``by_utterance`` where there is one, else its session's
    ``words``, else ``shared``; and what its session has learnt.

    Args:
      bank: encodes every entry once.
      shared: the list of all conversations; it may be changed between two utterances.
      by_utterance: utterance id -> its own list.
      history: the rule by which words of earlier turns become entries; None: they do not.
      tokenizer: for ``history`` and the trace.
      trace: keep in :attr:`traces` which entry fired for which word.
    """

    def __init__(
        self,
        bank: MemoryBank,
        shared: Optional[EntryList] = None,
        by_utterance: Optional[Mapping[str, EntryList]] = None,
        history: Optional[HistoryWords] = None,
        tokenizer: Optional[Tokenizer] = None,
        trace: bool = False,
    ) -> None:
        self.bank = bank
        self.shared = EntryList() if shared is None else shared
        self.by_utterance = by_utterance
        self.history = history
        self.tokenizer = tokenizer
        self.trace = trace
        self.traces: Dict[str, List[Dict[str, Any]]] = {}

    def memory(
        self, batch: Batch, sessions: Sequence[ConversationSession]
    ) -> Optional[EncodedMemory]:
        """What the rows of a batch can read; None if all their lists are empty."""
        rows = zip(batch.utt_ids, sessions)
        return self.bank.memory([self._lists(utt_id, session) for utt_id, session in rows])

    def _lists(self, utt_id: str, session: ConversationSession) -> List[EntryList]:
        if self.by_utterance is not None:
            lists = [self.by_utterance[utt_id]] if utt_id in self.by_utterance else []
        else:
            lists = [self.shared if session.words is None else session.words]
        return lists + ([session.learnt_words] if session.learnt_words is not None else [])

    def remember(
        self, sessions: Sequence[ConversationSession], results: Sequence[List[Hypothesis]]
    ) -> None:
        """Let the sessions learn words from their recognised turns."""
        if self.history is None:
            return
        for session, nbest in zip(sessions, results):
            text = self.tokenizer.decode(nbest[0].tokens)
            self.history.hear(session, text, nbest[0].confidence)

    def keep_trace(
        self,
        batch: Batch,
        decoder: MemoryDecoder,
        state: MemoryState,
        results: Sequence[List[Hypothesis]],
    ) -> None:
        """Run the decoder once more over the best hypotheses and note what it read.

        Args:
          state: as :meth:`MemoryDecoder.prepare` returned it.
        """
        if state.own is None:
            return
        rows = [torch.tensor([SOS_EOS, *nbest[0].tokens]) for nbest in results]
        tokens = pad_sequence(rows, batch_first=True).to(batch.features.device)
        output = decoder.mixture(tokens, state)
        for row, nbest in enumerate(results):
            ids = nbest[0].tokens
            self.traces[batch.utt_ids[row]] = self._words(ids, row, output, state.memory)

    def _words(
        self, ids: Sequence[int], row: int, output: MemoryOutput, memory: EncodedMemory
    ) -> List[Dict[str, Any]]:
        """For each word the entry that weighed most while it was being said.

        ``weight``: of the memory decoder, 1 - g, mean over the word's tokens; ``attention``: the
        entry's probability in the last block, the same way; ``entry``: None for the dummy.
        """
        last = output.scores[-1]
        choice, gate = last.choice()[row], output.gate[row, :, 0]
        attention = last.scores[row].softmax(dim=-1).amax(dim=-1)
        words = []
        for start, end in WordSplitter(self.tokenizer.pieces)(ids):
            entry = int(choice[start:end].mode().values)
            inside = choice[start:end] == entry
            words.append(
                {
                    "word": self.tokenizer.decode(ids[start:end]),
                    "entry": self._text(entry, memory) if entry else None,
                    "weight": round(1.0 - float(gate[start:end].mean()), 4),
                    "attention": round(float(attention[start:end][inside].mean()), 4),
                }
            )
        return words

    def _text(self, entry: int, memory: EncodedMemory) -> str:
        tokens, _, _ = memory.gather(torch.tensor([entry], device=memory.lens.device))
        return self.tokenizer.decode(tokens[0].tolist())
