"""Lattice methods of decode.py: same rules as beam search, scales from dev, fallbacks alone."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from model_inputs import make_batch, small_model, sound
from test_run import TEST, corrupt, experiment, hyp_lines

from icefall_ctx.config import DecodeConfig
from icefall_ctx.data.batch import TokenHistory
from icefall_ctx.data.manifests import read_manifest
from icefall_ctx.decode import lattice_run
from icefall_ctx.decode.lattice_search import LatticeSearch
from icefall_ctx.decode.methods import LATTICE_METHODS
from icefall_ctx.decode.run import Experiment, check_history, main
from icefall_ctx.decode.word_memory import WordMemory
from icefall_ctx.errors import InputError
from icefall_ctx.formats.ctm import read_ctm
from icefall_ctx.lattice import decode as lattice_decode
from icefall_ctx.lattice import k2_import
from icefall_ctx.lattice.nbest import Hypothesis
from icefall_ctx.models.lm import LstmLm, LstmLmConfig, save_lm
from icefall_ctx.models.memory_bank import EntryList, MemoryBank
from icefall_ctx.score.wer import Utterance
from icefall_ctx.text.ngram import estimate, write_arpa
from icefall_ctx.text.tokenizer import Tokenizer

pytest.importorskip("k2", reason="k2 is not installed")
pytest.importorskip("kaldilm", reason="kaldilm is not installed")

from icefall_ctx.lattice.check import perfect_log_probs  # noqa: E402
from icefall_ctx.lattice.compile import compile_graphs  # noqa: E402
from icefall_ctx.lattice.fsa_files import load_fsa  # noqa: E402
from icefall_ctx.lattice.lexicon import build_lexicon  # noqa: E402
from icefall_ctx.lattice.rescore import add_attention_scores  # noqa: E402

DEV = "valid.jsonl.gz"
NO_G = ("nbest-rescoring", "whole-lattice-rescoring")
CASES = [(m, g) for m in LATTICE_METHODS for g in ("HLG", "ctc") if g == "HLG" or m not in NO_G]


def with_graphs(folder: Path, **options) -> Path:
    """An experiment with a random model, its lang folder with HLG and a 3-gram, and an LSTM LM."""
    exp_dir = experiment(folder, **options)
    lang_dir = folder / "lang_char"
    tokenizer = Tokenizer.load(lang_dir)
    texts = [cut.supervisions[0].text for cut in read_manifest(folder / TEST, "cuts")]
    lexicon = build_lexicon([*texts, *"abcdef"], tokenizer)
    lexicon.save(lang_dir, tokenizer)
    for order in (2, 3):
        model = estimate([[t, t[0]] for t in texts], order, [*lexicon.words[1:-3]])
        write_arpa(model, folder / f"{order}.arpa")
    compile_graphs(lang_dir, lexicon, folder / "2.arpa", folder / "3.arpa")
    torch.manual_seed(5)
    lm = LstmLm(LstmLmConfig(tokenizer.vocab_size, 8, 1))
    for parameter in lm.parameters():
        torch.nn.init.normal_(parameter)
    save_lm(folder / "lm" / "best.pt", lm, tokenizer.fingerprint)
    return exp_dir


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """One experiment for the tests that change no file of it."""
    folder = tmp_path_factory.mktemp("shared")
    return with_graphs(folder, attention="context", text_context="attention")


def decode(exp_dir: Path, output: Path, *flags: str) -> str:
    """The hypotheses that decode.py writes."""
    if "lstm-lm" in flags:
        flags = (*flags, "--lm-exp-dir", str(exp_dir.parent / "lm"), "--carry-lm-state", "yes")
    main(argv=["--exp-dir", str(exp_dir), "--avg", "1", "--test-cuts", TEST, "--num-paths", "20",
               "--output-dir", str(output / "out"), *flags])  # fmt: skip
    return hyp_lines(output, "out")


def config_of(exp_dir: Path, **options) -> DecodeConfig:
    return DecodeConfig(exp_dir=exp_dir, avg=1, test_cuts=TEST, **options)


def report_of(output: Path) -> dict:
    [path] = (output / "out").glob("report-*.json")
    return json.loads(path.read_text())


def test_names_are_those_of_the_lattice_library():
    assert LATTICE_METHODS == tuple(lattice_decode.METHODS) == tuple(lattice_run.SCALES)


def test_decoding_without_lattices_imports_neither_k2_nor_lattices():
    code = (
        "import sys, icefall_ctx.decode.run, icefall_ctx.decode.live; "
        "print([m for m in sys.modules if m == 'k2' or m.startswith('icefall_ctx.lattice')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("method, graph", CASES)
def test_every_method_decodes_and_says_what_it_cost(shared, tmp_path, method, graph):
    """Conversations in step give the text of each alone, with a report, a CTM and lattices."""
    flags = ("--method", method, "--graph", graph)
    together = decode(shared, tmp_path, *flags, "--save-lattices", "yes")
    report = report_of(tmp_path)
    assert report["real_time_factor"] > 0 and report["peak_memory_mb"] > 50
    assert report["graph"] == graph and report["scales_from"] == "defaults"
    [ctm] = (tmp_path / "out").glob("*.ctm")
    words = read_ctm(ctm)
    assert words and all(0 <= w.confidence <= 1 for w in words)
    [lattices] = (tmp_path / "out").glob("lattices-*")
    assert all(load_fsa(path).num_arcs for path in lattices.iterdir())
    assert len(list(lattices.iterdir())) >= 20
    assert decode(shared, tmp_path, *flags, "--batch-size", "1") == together


def heard(exp_dir: Path, method: str, history: str):
    """For every utterance the text and, to the last bit, all scores of the n-best list."""
    lm = dict(lm_exp_dir=exp_dir.parent / "lm", carry_lm_state=True) if method == "lstm-lm" else {}
    config = config_of(exp_dir, method=method, num_paths=20, history=history, **lm)
    opened = Experiment.open(config)
    opened.recogniser.lattice.start(keep_nbest=True)
    decoded = opened.decode(opened.module.read_cuts(TEST), check_history(config, opened.recogniser))
    found = opened.recogniser.lattice.found
    lists = [[h.scores for h in found[u.utt_id].hypotheses] for u in decoded.utterances]
    return [(u.utt_id, u.hyp, scores) for u, scores in zip(decoded.utterances, lists)]


@pytest.mark.parametrize("method", ["1best", "nbest-rescoring", "attention-decoder", "lstm-lm"])
def test_references_do_not_reach_the_output(tmp_path, method):
    """Own hypotheses, none or another conversation's as history: all the same; a control is not."""
    exp_dir = with_graphs(tmp_path, attention="context", text_context="conditional")
    reads = method in ("attention-decoder", "lstm-lm")
    kinds = ["hyp", "none", "shuffled"] + ["ref"] * reads
    before = {kind: heard(exp_dir, method, kind) for kind in kinds}
    corrupt(tmp_path / TEST)
    after = {kind: heard(exp_dir, method, kind) for kind in kinds}
    assert {k for k in kinds if before[k] != after[k]} == ({"ref"} if reads else set())
    assert before["hyp"] != before["none"] and before["hyp"] != before["shuffled"]


def test_scales_come_from_dev_and_are_written(shared, tmp_path):
    flags = ("--method", "attention-decoder", "--tune-cuts", DEV)
    tuned = decode(shared, tmp_path, *flags)
    [path] = (tmp_path / "out").glob("scales-attention-decoder-*.json")
    content = json.loads(path.read_text())
    report = report_of(tmp_path)
    assert content["tuned_on"] == "valid" and report["scales_from"] == "tuned on valid"
    assert set(content["scales"]) == {"lm", "attention"}
    assert {k: report["scales"][k] for k in content["scales"]} == content["scales"]
    given = ",".join(f"{name}={value}" for name, value in content["scales"].items())
    for scales in (given, str(path)):
        assert decode(shared, tmp_path, *flags[:2], "--scales", scales) == tuned


def test_test_references_choose_no_scales_and_dev_references_do(tmp_path):
    exp_dir = with_graphs(tmp_path)
    flags = ("--method", "attention-decoder", "--tune-cuts", DEV)
    outputs = [decode(exp_dir, tmp_path, *flags)]
    [path] = (tmp_path / "out").glob("scales-*.json")
    scales = path.read_text()
    corrupt(tmp_path / TEST)
    outputs.append(decode(exp_dir, tmp_path, *flags))
    assert path.read_text() == scales and outputs[0] == outputs[1]


def test_tuning_finds_the_scale_with_the_fewest_errors_on_dev():
    def hypothesis(text, acoustic, lm):
        return Hypothesis((text,), scores={"acoustic": acoustic, "lm": lm})

    nbest = [hypothesis("a b", -1.0, -9.0), hypothesis("a c", -3.0, -2.0)]
    decoder = SimpleNamespace(text=lambda h: h.words[0])
    search = SimpleNamespace(found={"u": SimpleNamespace(hypotheses=nbest)}, decoder=decoder)
    for reference, scale, errors in (["a", "b"], 0.0, 0), (["a", "c"], 0.3, 0), (["x"], 0.0, 2):
        dev = [Utterance("u", reference, []), Utterance("lost", ["a"], None)]
        found = lattice_run.tune(search, DecodeConfig(method="1best"), dev)
        assert found.scales == {"hlg": scale} and found.errors == errors


def test_tuning_counts_errors_under_the_rules_of_the_report():
    """Transcripts in capitals, hypotheses in the tokenizer's small letters."""
    nbest = [
        Hypothesis(("a b",), scores={"acoustic": -1.0, "lm": -9.0}),
        Hypothesis(("a c",), scores={"acoustic": -3.0, "lm": -2.0}),
    ]
    decoder = SimpleNamespace(text=lambda h: h.words[0])
    search = SimpleNamespace(found={"u": SimpleNamespace(hypotheses=nbest)}, decoder=decoder)
    config = DecodeConfig(method="1best", normalizer="english")
    found = lattice_run.tune(search, config, [Utterance("u", ["A", "C"], [])])
    assert found.scales == {"hlg": 0.3} and found.errors == 0


def opened(exp_dir: Path, **options) -> LatticeSearch:
    search = Experiment.open(config_of(exp_dir, **options)).recogniser.lattice
    search.start()
    return search


def rows(search: LatticeSearch, sentences):
    """Perfect network output of a batch; a sentence None has no frames."""
    lexicon, size = search.decoder.lexicon, search.decoder.tokenizer.vocab_size
    parts = [
        torch.zeros(0, size) if s is None
        else perfect_log_probs(lexicon.spell([lexicon.ids[w] for w in s.split()]), size)[0]
        for s in sentences
    ]  # fmt: skip
    lens = torch.tensor([len(part) for part in parts])
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    names = [f"u{i}" for i in range(len(parts))]
    return SimpleNamespace(utt_ids=names, texts=[""] * len(parts)), None, padded, lens, None


def test_perfect_posteriors_come_out_as_their_words(shared):
    search = opened(shared, method="1best")
    words = [w for w in search.decoder.lexicon.words[2:-3] if len(w) > 1]
    results = search.search(*rows(search, words[:6]))
    assert [nbest[0].text for nbest in results] == words[:6]
    assert all(nbest[0].confidence > 0.9 for nbest in results)
    tokenizer = search.decoder.tokenizer
    assert [tokenizer.decode(nbest[0].tokens) for nbest in results] == words[:6]


def test_an_empty_lattice_falls_back_alone_and_is_named(shared):
    config = config_of(shared, method="1best")
    search = opened(shared, method="1best")
    word = next(w for w in search.decoder.lexicon.words[2:-3] if len(w) > 1)
    results = search.search(*rows(search, [word, None, word]))
    assert [nbest[0].text for nbest in results] == [word, "", word]
    values = lattice_run.details(search, config)
    assert values["fallbacks"] == {"no frames": ["u1"]}
    assert "1 no frames (u1)" in lattice_run.details_text(values)
    assert results[1][0].confidence < 1e-6 and search.found["u1"].words == []


def test_word_times_are_on_the_clock_of_the_recording(shared, tmp_path):
    search = opened(shared, method="1best")
    word = next(w for w in search.decoder.lexicon.words[2:-3] if len(w) > 1)
    search.search(*rows(search, [word]))
    cut = next(iter(read_manifest(shared.parent / TEST, "cuts")))
    [sup] = cut.supervisions
    for side, channel in ("A", "A"), ("caller", "1"):
        custom = dict(sup.custom, utt_id="u0", side=side)
        moved = replace(sup, start=2.0, channel=1, recording_id="rec", custom=custom)
        late = SimpleNamespace(id="x", start=10.0, supervisions=[moved])
        lattice_run.write_word_times(search, [late], tmp_path / "x.ctm")
        [found] = read_ctm(tmp_path / "x.ctm")
        assert (found.recording, found.channel, found.word) == ("rec", channel, word)
        assert found.start == pytest.approx(12.0 + search.found["u0"].words[0].start, abs=1e-3)


@pytest.mark.parametrize("memory", ["none", "2mem"])
def test_attention_scores_of_a_list_are_those_of_each_alone(memory):
    """History and word memory of the utterance's own row, however many hypotheses there are."""
    options = dict(memory=memory, memory_encoder_layers=1, memory_decoder_layers=1)
    model = small_model(text_context="conditional", **(options if memory != "none" else {}))
    batch = make_batch([sound(60, 1), sound(80, 2)])
    out, lens = model.encode(batch).out, model.encode(batch).lens
    history = TokenHistory.from_lists([[[4, 5]], [[6], [7, 4]]])
    given = [out, lens, history]
    if memory != "none":
        words = WordMemory(MemoryBank(model.decoder), EntryList([[5, 6], [7]]))
        sessions = [SimpleNamespace(words=None, learnt_words=None)] * 2
        given += [words.memory(batch, sessions), model.memory_audio(batch)]
    with torch.no_grad():
        state = model.decoder.prepare(*given)
    nbest = [Hypothesis((), tokens) for tokens in ((4, 5, 6), (7,), (), (8, 8, 3, 3))]
    add_attention_scores(nbest, model.decoder, state, row=1, chunk=3)
    together = [h.scores["attention"] for h in nbest]
    for hypothesis, score in zip(nbest, together):
        total, step = 0.0, state.select(torch.tensor([1]))
        for before, token in zip((1, *hypothesis.tokens), (*hypothesis.tokens, 1)):
            with torch.no_grad():
                log_probs, step = model.decoder.step(torch.tensor([before]), step)
            total += float(log_probs[0, token])
        assert score == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("flags, says", [
    (["--method", "1bset"], "none of beam"),
    (["--method", "1best", "--lang-dir", "nowhere"], "prepare.sh --stage 5"),
    (["--method", "1best", "--scales", "lm=0.5"], "has no 'lm'; it has hlg"),
    (["--method", "1best", "--scales", "hlg=much"], "'hlg=much' is not NAME=NUMBER"),
    (["--method", "1best", "--scales", "none.json"], "not a file of score scales"),
    (["--method", "1best", "--graph", "ctc", "--tune-cuts", DEV], "leave out --tune-cuts"),
    (["--method", "1best", "--tune-cuts", TEST], "tune on dev cuts"),
    (["--method", "nbest", "--tune-cuts", DEV, "--scales", "hlg=1"], "leave out --scales"),
    (["--method", "nbest-rescoring", "--graph", "ctc"], "tokens have no n-gram"),
    (["--method", "nbest-rescoring", "--rescoring-g", "none.pt"], "none.pt"),
    (["--method", "lstm-lm"], "needs --lm-exp-dir"),
    (["--method", "1best", "--history", "ref"], "read no text"),
    (["--method", "1best", "--words", "abc"], "no word memory"),
    (["--method", "beam", "--graph", "ctc"], "--graph is of lattice methods"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")  # fmt: skip
def test_what_cannot_be_decoded_is_one_line(shared, tmp_path, capsys, flags, says):
    with pytest.raises(SystemExit) as stop:
        main(argv=["--exp-dir", str(shared), "--avg", "1", "--test-cuts", TEST,
                   "--output-dir", str(tmp_path), *flags])  # fmt: skip
    message = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and says in message and "\n" not in message


def test_without_k2_a_lattice_method_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise ImportError(f"no {name}")

    monkeypatch.setattr(k2_import.importlib, "import_module", missing)
    with pytest.raises(InputError, match="pip install"):
        lattice_run.check_options(DecodeConfig(method="1best"))
    lattice_run.check_options(DecodeConfig(method="ctc-greedy"))


def test_the_largest_g_for_rescoring_is_taken(tmp_path):
    config = DecodeConfig(method="nbest-rescoring")
    with pytest.raises(InputError, match="no G_N_gram.pt"):
        lattice_run.find_g(config, tmp_path)
    for name in ("G_3_gram.fst.txt", "G_4_gram.pt", "G_10_gram.pt"):
        (tmp_path / name).touch()
        assert lattice_run.find_g(config, tmp_path).name == name
    assert lattice_run.find_g(replace(config, method="1best"), tmp_path) is None
    (tmp_path / "G_4_gram.pt").unlink()
    (tmp_path / "G_10_gram.pt").unlink()
    assert lattice_run.find_g(replace(config, method="attention-decoder"), tmp_path) is None
