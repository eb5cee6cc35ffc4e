"""Ids and text, both ways, for both kinds; files that are no tokenizer."""

import pickle

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from icefall_ctx.errors import InputError
from icefall_ctx.text.normalize import NORMALIZERS
from icefall_ctx.text.tokenizer import WORD_BOUNDARY, Tokenizer, train_bpe, train_char

TEXTS = [
    "hello world",
    "the quick brown fox jumps over the lazy dog",
    "say it's <unk> again",
    "we met in 我们 北京 ok",
    "pack my box with five dozen liquor jugs",
]
LETTERS = sorted({c for text in TEXTS for c in text.replace("<unk>", " ")})
KINDS = {"bpe": train_bpe(TEXTS, 80), "char": train_char(TEXTS)}

in_vocabulary = st.lists(
    st.one_of(st.text(alphabet=LETTERS + ["\t", "\n"], max_size=8), st.just("<unk>")), max_size=6
).map(" ".join)
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@given(text=in_vocabulary)
def test_decode_inverts_encode(kind, text):
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.canonical(text)
    assert ids == tokenizer.encode(text) == tokenizer.encode(tokenizer.decode(ids))
    assert ids.count(tokenizer.unk_id) == tokenizer.canonical(text).split().count("<unk>")


@each_kind
@given(text=st.text(max_size=40))
def test_any_text_gives_ids_a_transcript_may_hold(kind, text):
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    assert all(tokenizer.unk_id <= i < tokenizer.vocab_size for i in ids)
    unknown = tokenizer.coverage([text])
    assert bool(unknown) <= (tokenizer.unk_id in ids)
    if not unknown:
        assert tokenizer.decode(ids) == tokenizer.canonical(text)


@pytest.mark.parametrize("name", NORMALIZERS)
@given(text=in_vocabulary)
def test_round_trip_with_every_normalizer(name, text):
    tokenizer = train_char(["".join(c for t in TEXTS for c in t + t.upper())], name)
    if not tokenizer.coverage([text]):
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.canonical(text)


@each_kind
def test_special_ids(kind):
    tokenizer = KINDS[kind]
    assert tokenizer.kind == kind
    assert tokenizer.pieces[:3] == ["<blk>", "<sos/eos>", "<unk>"]
    assert (tokenizer.blank_id, tokenizer.unk_id) == (0, 2)
    assert tokenizer.sos_id == tokenizer.eos_id == 1
    assert tokenizer.vocab_size == len(tokenizer.pieces) == len(set(tokenizer.pieces))
    word = tokenizer.encode("hello")
    assert tokenizer.decode([1, 0, *word, 0, 1]) == "hello"
    assert tokenizer.decode([]) == "" and tokenizer.encode(" \n") == []


@each_kind
@pytest.mark.parametrize("text", ["<unk>", "<UNK>", "<blk>", "<sos/eos>", "<SOS/EOS>"])
def test_symbols_in_a_transcript_are_one_unk(kind, text):
    assert KINDS[kind].encode(text) == [2]
    assert KINDS[kind].encode(f"hello {text} fox").count(2) == 1


def test_bpe_is_sentencepiece_s():
    tokenizer = KINDS["bpe"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._units.model)
    for text in TEXTS:
        if "<unk>" not in text:
            assert tokenizer.encode(text) == processor.encode(text)
            assert tokenizer.decode(tokenizer.encode(text)) == processor.decode(
                processor.encode(text)
            )
    assert tokenizer.vocab_size == 80


def test_bpe_from_elsewhere_cannot_bring_a_blank_into_a_transcript(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(tmp_path / "bpe"), vocab_size=80,
        model_type="bpe", user_defined_symbols=["<blk>", "<sos/eos>"], unk_id=2, bos_id=-1,
        eos_id=-1, minloglevel=2,
    )  # fmt: skip
    assert min(Tokenizer.load(tmp_path / "bpe.model").encode("a<blk>b <sos/eos> c")) == 2


def test_characters_mark_boundaries_where_they_matter():
    tokenizer = KINDS["char"]
    spelled = [tokenizer.pieces[i] for i in tokenizer.encode("in 我 们 ok 北")]
    assert "".join(spelled).replace(WORD_BOUNDARY, "_") == "in_我们_ok_北"
    assert tokenizer.decode(tokenizer.encode("我们 ok")) == "我们 ok"
    assert tokenizer.decode(tokenizer.encode("我们ok")) == "我们ok"


@each_kind
def test_unknown_letters_are_counted(kind):
    found = KINDS[kind].coverage(["hello é ééZ", "<unk> fox Z", ""])
    assert found == {"é": 3, "Z": 2}
    assert not KINDS[kind].coverage(TEXTS)


def test_normalizer_gives_words_in_any_case_the_same_ids(tmp_path):
    train_bpe(TEXTS, 80, "lower").save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("Hello WORLD") == tokenizer.encode("hello world")
    assert tokenizer.encode("Hello WORLD") == KINDS["bpe"].encode("hello world")


@each_kind
def test_saved_and_loaded_is_the_same(kind, tmp_path):
    tokenizer = KINDS[kind]
    tokenizer.save(tmp_path)
    file = tmp_path / ("bpe.model" if kind == "bpe" else "tokens.txt")
    pickled = pickle.loads(pickle.dumps(tokenizer))
    for copy in [Tokenizer.load(tmp_path), Tokenizer.load(file), pickled]:
        assert (copy.kind, copy.pieces, copy.fingerprint) == (
            kind, tokenizer.pieces, tokenizer.fingerprint,
        )  # fmt: skip
        assert copy.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])
    lines = (tmp_path / "tokens.txt").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["<blk> 0", "<sos/eos> 1", "<unk> 2"]


def test_training_is_deterministic_and_fingerprints_differ():
    assert train_bpe(TEXTS, 80).fingerprint == KINDS["bpe"].fingerprint
    assert train_bpe(TEXTS, 80)._units.model == KINDS["bpe"]._units.model
    assert train_char(TEXTS[::-1]).fingerprint == KINDS["char"].fingerprint
    others = [train_bpe(TEXTS, 79), train_char(TEXTS[:2]), *KINDS.values()]
    assert len({tokenizer.fingerprint for tokenizer in others}) == 4


def test_disambiguation_symbols_of_a_lexicon_are_no_tokens(tmp_path):
    KINDS["char"].save(tmp_path)
    with open(tmp_path / "tokens.txt", "a", encoding="utf-8") as file:
        n = KINDS["char"].vocab_size
        file.write(f"#0 {n}\n#1 {n + 1}\n")
    assert Tokenizer.load(tmp_path).fingerprint == KINDS["char"].fingerprint


WORDS = "<eps> 0\n!SIL 1\n<UNK> 2\nhello 3\n#0 4\n"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("words.txt", WORDS, "word list"),
        ("bpe.model", WORDS, "not a sentencepiece model"),
        ("bpe.model", "", "is empty"),
        ("tokens.txt", "", "another vocabulary"),
        ("tokens.txt", b"\xff\xfe\x00binary", "not a text file"),
        ("tokens.txt", "<blk> 0\n<sos/eos> 1\n<unk> 2\nhe 3\n", r"tokens.txt:4: 'he' is not one"),
        ("tokens.txt", "<blk> 0\n<sos/eos> 1\n<unk> 2\nh 4\n", r"tokens.txt:4: expected 'piece 3'"),
        ("tokens.txt", "<blk> 0\n<sos/eos> 1\n<unk> 2\nh 3\nh 4\n", "'h' has two ids"),
        ("tokens.txt", "<blk>\n", r"tokens.txt:1: expected 'piece 0'"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as info:
        Tokenizer.load(path)
    assert str(path) in str(info.value) and "\n" not in str(info.value)


def test_a_sentencepiece_model_of_another_convention_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(tmp_path / "bpe"), vocab_size=80,
        model_type="bpe", minloglevel=2,
    )  # fmt: skip
    with pytest.raises(InputError, match="starts with '<unk> <s> </s>'"):
        Tokenizer.load(tmp_path / "bpe.model")


def test_folders_that_are_no_tokenizer_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="neither bpe.model nor tokens.txt"):
        Tokenizer.load(tmp_path)
    KINDS["bpe"].save(tmp_path)
    train_bpe(TEXTS, 79).save(tmp_path / "other")
    (tmp_path / "tokens.txt").write_bytes((tmp_path / "other" / "tokens.txt").read_bytes())
    with pytest.raises(InputError, match="other pieces than"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("size, message", [(5, "smaller"), (5000, "too high"), (-1, "-1")])
def test_impossible_vocabulary_sizes(size, message):
    with pytest.raises(InputError, match=message):
        train_bpe(TEXTS, size)


@pytest.mark.parametrize("texts", [[], ["", "  "], ["<unk>"]])
def test_nothing_to_train_on(texts):
    for train in (lambda t: train_bpe(t, 50), train_char):
        with pytest.raises(InputError, match="no text"):
            train(texts)


def test_rare_characters_become_unk():
    tokenizer = train_char(["aab", "a"], min_count=2)
    assert tokenizer.pieces[3:] == [WORD_BOUNDARY, "a"]
    assert tokenizer.encode("ab") == [4, 2]
