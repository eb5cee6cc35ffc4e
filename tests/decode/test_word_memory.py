"""Word lists in recognition: given in any way, changed between turns, one a conversation."""

import json

import pytest
from click.testing import CliRunner
from model_inputs import make_batch, small_model, sound

from icefall_ctx.cli.memory import memory as memory_command
from icefall_ctx.config import DecodeConfig
from icefall_ctx.decode.beam import BeamOptions
from icefall_ctx.decode.recogniser import Recogniser, RecogniserOptions
from icefall_ctx.decode.run import run
from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.decode.session_words import HistoryWords
from icefall_ctx.decode.word_memory import WordMemory
from icefall_ctx.errors import InputError
from icefall_ctx.models.memory_bank import EntryList, MemoryBank
from icefall_ctx.text.tokenizer import train_char
from icefall_ctx.text.words import WordLoader

OPTIONS = RecogniserOptions("beam", BeamOptions(3, max_len_ratio=0.5))
TOKENIZER = train_char(["ABCDE"])  # 3 is the boundary, 4 .. 8 the letters


def model_with_memory(**options):
    options = {"memory_encoder_layers": 1, "memory_decoder_layers": 2, **options}
    model = small_model(memory="2mem", **options)
    model.decoder.gate.bias.data.fill_(-6.0)  # the memory decoder has the say
    return model


def recogniser_of(model, entries=(), **options):
    words = WordMemory(MemoryBank(model.decoder), EntryList(entries), **options)
    return Recogniser(model, OPTIONS, words=words)


def batch_of(names):
    return make_batch([sound(40 + 9 * n, n) for n in names])


def tokens_of(recogniser, names, lists):
    sessions = [ConversationSession(str(n), words=words) for n, words in zip(names, lists)]
    return [nbest[0].tokens for nbest in recogniser.recognise(batch_of(names), sessions)]


def test_empty_memory_is_the_baseline_and_a_list_is_not():
    model = model_with_memory()
    plain = small_model()
    names = {k: v for k, v in model.state_dict().items() if "decoder." not in k}
    base = {k.replace("decoder.baseline", "decoder"): v for k, v in model.state_dict().items()
            if k.startswith("decoder.baseline.")}  # fmt: skip
    plain.load_state_dict({**names, **base})
    expected = tokens_of(Recogniser(plain, OPTIONS), [0, 1, 2], [None] * 3)
    assert tokens_of(recogniser_of(model), [0, 1, 2], [None] * 3) == expected
    assert tokens_of(Recogniser(model, OPTIONS), [0, 1, 2], [EntryList()] * 3) == expected
    assert tokens_of(recogniser_of(model, [[4, 5]]), [0, 1, 2], [None] * 3) != expected


def test_conversations_with_lists_of_their_own_in_step_and_alone():
    recogniser = recogniser_of(model_with_memory(), [[7, 7]])
    lists = [EntryList([[4, 5]]), EntryList(), None, EntryList([[6], [5, 5, 8]])]
    together = tokens_of(recogniser, [0, 1, 2, 3], lists)
    alone = [tokens_of(recogniser, [n], [words])[0] for n, words in enumerate(lists)]
    assert together == alone
    assert tokens_of(recogniser, [3, 1, 0, 2], [lists[i] for i in (3, 1, 0, 2)]) == [
        together[i] for i in (3, 1, 0, 2)
    ]


def test_a_list_changed_between_two_turns_counts_at_once():
    recogniser = recogniser_of(model_with_memory())
    words = EntryList([[4, 5]])
    first = tokens_of(recogniser, [0], [words])
    words.remove([4, 5])
    assert tokens_of(recogniser, [0], [words]) == tokens_of(recogniser, [0], [EntryList()])
    words.add([4, 5])
    assert tokens_of(recogniser, [0], [words]) == first
    assert recogniser.words.bank.encoded == 1


def test_the_trace_names_words_and_entries():
    recogniser = recogniser_of(model_with_memory(), [[4, 5], [6]], tokenizer=TOKENIZER, trace=True)
    [tokens] = tokens_of(recogniser, [0], [None])
    words = recogniser.words.traces["utt0"]
    assert "".join(w["word"] for w in words) == TOKENIZER.decode(tokens).replace(" ", "")
    assert {w["entry"] for w in words} <= {None, "AB", "C"}
    assert all(0 <= w["weight"] <= 1 and 0 <= w["attention"] <= 1 for w in words)


def test_which_words_of_a_conversation_are_learnt():
    rule = HistoryWords(WordLoader(TOKENIZER), {"AB": 9, "CD": 2}, 2, 0.5, cap=3)
    session = ConversationSession("a")

    def learnt():
        return [TOKENIZER.decode(ids) for ids in session.learnt_words.weights]

    rule.hear(session, "CD AB ED", 0.49)
    assert session.learnt_words is None  # not sure
    rule.hear(session, "CD AB ED XX", 0.5)
    assert learnt() == ["CD", "ED"]  # AB is no rare word, XX cannot be spelled
    rule.hear(session, "DD CD", 0.9)
    assert learnt() == ["ED", "DD", "CD"]  # heard again: the newest
    rule.correct(session, "ab")
    assert learnt() == ["DD", "CD", "AB"]  # corrected words always; the oldest leaves


def test_words_of_earlier_turns_reach_the_next_one():
    rule = HistoryWords(WordLoader(TOKENIZER), {}, min_confidence=0.0)
    recogniser = recogniser_of(model_with_memory(), tokenizer=TOKENIZER, history=rule)
    session = ConversationSession("a")
    first = recogniser.recognise(batch_of([0]), [session])
    assert TOKENIZER.decode(first[0][0].tokens) and len(session.learnt_words) > 0
    memory = recogniser.words.memory(batch_of([0]), [session])
    assert len(memory) == len(session.learnt_words)


# ---------------------------------------------------------------------------- command lines


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """A model of one update with a word memory, on synthetic cuts."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
    from synthetic import make_data, tiny_model, tiny_training

    from icefall_ctx.train.loop import train

    folder = tmp_path_factory.mktemp("memory")
    for name, memory in (("base", "none"), ("mem", "2mem")):
        config = tiny_model(
            encoder_layers=1, memory=memory, memory_encoder_layers=1, memory_decoder_layers=1
        )
        data = make_data(folder, config)
        options = tiny_training(folder / name, num_epochs=1, memory_size=5)
        trainer = train(config, data.data, options, data)
        assert trainer.epoch == 2
    return folder


def decode(folder, exp="mem", **options):
    settings = dict(exp_dir=folder / exp, avg=1, test_cuts="valid.jsonl.gz", beam_size=2)
    run(DecodeConfig(**{**settings, **options}))
    return folder / exp / "beam"


def recogs(folder, suffix):
    return (folder / f"recogs-valid-beam2{suffix}.txt").read_text()


def test_file_and_command_line_have_the_same_effect(experiment):
    (experiment / "words.txt").write_bytes(b"\xef\xbb\xbfABC\r\n\r\nfed\r\n")
    out = decode(experiment, memory=experiment / "words.txt", suffix="file", memory_trace=True)
    decode(experiment, words="abc, FED", suffix="words")
    assert recogs(out, "-memory2-file") == recogs(out, "-memory2-words")
    report = json.loads((out / "words-valid-beam2-memory2-file.json").read_text())
    assert report["entries"] == 2 and report["spoken"] >= 0
    trace = (out / "memory-trace-valid-beam2-memory2-file.jsonl").read_text().splitlines()
    assert len(trace) == 6


def test_swapped_baseline_with_empty_memory_is_that_baseline(experiment):
    base = decode(experiment, "base")
    swapped = decode(experiment, baseline_exp_dir=experiment / "base")
    assert recogs(base, "") == recogs(swapped, "-baseline-base")
    decode(experiment, baseline_exp_dir=experiment / "base", words="a,b", memory_half=True)


def test_a_list_for_each_utterance(experiment):
    lines = "".join(f'c2{c}-t0\tabc\t["abc"]\t["abc", "?!", "de"]\n' for c in range(2))
    (experiment / "lists.tsv").write_text(lines)
    out = decode(experiment, memory_lists=experiment / "lists.tsv", memory_from_history=True)
    assert (out / "words-valid-beam2-memory-lists-memory-history.json").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(exp="base", words="a"), "no word memory"),
        (dict(exp="base", memory_preselect=3), "no word memory"),
        (dict(words="a", method="ctc-greedy"), "--method ctc-greedy"),
        (dict(memory_trace=True), "need --memory"),
        (dict(words="?"), "no entry can be used"),
        (dict(memory="none.txt"), "none.txt"),
        (dict(words="a", memory_lists="x.tsv"), "leave out --memory"),
        (dict(baseline_exp_dir="mem"), "without a word memory"),
    ],
)
def test_what_would_do_nothing_is_refused(experiment, options, message):
    paths = ("memory", "memory_lists", "baseline_exp_dir")
    options = {k: experiment / v if k in paths else v for k, v in options.items()}
    with pytest.raises(InputError, match=message):
        decode(experiment, **options)


def test_check_command(experiment):
    path = experiment / "check.txt"
    path.write_text("ABC\n#a\nabc\n")
    result = CliRunner().invoke(
        memory_command, ["check", "--exp-dir", str(experiment / "mem"), str(path)]
    )
    assert result.exit_code == 0 and "CANNOT BE USED" in result.output
    assert result.output.splitlines()[-1].startswith("1 entries used, 1 duplicates, 1 cannot")
    path.write_text("#\n")
    result = CliRunner().invoke(
        memory_command, ["check", "--exp-dir", str(experiment / "mem"), str(path)]
    )
    assert isinstance(result.exception, InputError)


def test_lists_command(experiment, tmp_path):
    out = tmp_path / "lists.tsv"
    valid = str(experiment / "valid.jsonl.gz")
    arguments = ["lists", valid, str(out), "--num-common", "2", "--num-distractors", "3",
                 "--train", str(experiment / "train.jsonl.gz")]  # fmt: skip
    result = CliRunner().invoke(memory_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0 and len(out.read_text().splitlines()) == 6
