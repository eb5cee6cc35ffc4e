"""Lattice decoding against brute force, torch, and itself; every way it can go wrong."""

import itertools
import logging
import math
import random

import pytest
import torch
from torch import nn

from icefall_ctx.errors import InputError
from icefall_ctx.lattice import k2_import
from icefall_ctx.lattice.check import perfect_log_probs, self_check
from icefall_ctx.lattice.lexicon import build_lexicon, load_lexicon
from icefall_ctx.lattice.scales import load_scales, save_scales, tune_scales
from icefall_ctx.models.lm import LstmLm, LstmLmConfig
from icefall_ctx.text.ngram import estimate, write_arpa
from icefall_ctx.text.tokenizer import train_bpe, train_char

k2 = pytest.importorskip("k2", reason="k2 is not installed")
pytest.importorskip("kaldilm", reason="kaldilm is not installed")

from icefall_ctx.lattice.backoff import BackoffG  # noqa: E402
from icefall_ctx.lattice.compile import compile_g, compile_graphs, load_g  # noqa: E402
from icefall_ctx.lattice.ctc import k2_ctc_loss, min_frames  # noqa: E402
from icefall_ctx.lattice.decode import LatticeDecoder, LatticeOptions, word_errors  # noqa: E402
from icefall_ctx.lattice.fsa_files import (  # noqa: E402
    load_fsa,
    read_openfst,
    save_fsa,
    save_lattice,
)
from icefall_ctx.lattice.graphs import compile_hlg, token_graph  # noqa: E402
from icefall_ctx.lattice.intersect import Beams, dense_lattices, prune_to  # noqa: E402
from icefall_ctx.lattice.nbest import Hypothesis, nbest  # noqa: E402
from icefall_ctx.lattice.rescore import rescore_lattice  # noqa: E402
from icefall_ctx.lattice.words import ctm_words, word_confidences  # noqa: E402

WORDS = ["a", "ab", "abc", "cab", "bad", "day", "before", "for", "fore"]
ALL = LatticeOptions(Beams(search=1e3, output=5.0, max_active=10**6))


def sentences(seed=0, n=200):
    rng = random.Random(seed)
    return [rng.choices(WORDS, k=rng.randint(1, 5)) for _ in range(n)]


class Setup:
    def __init__(self, folder, tokenizer):
        self.folder, self.tokenizer = folder, tokenizer
        tokenizer.save(folder)
        build_lexicon(WORDS, tokenizer).save(folder, tokenizer)
        self.lexicon = load_lexicon(folder, tokenizer)
        for order in (2, 3):
            model = estimate(sentences(), order, [*WORDS, "<UNK>"])
            write_arpa(model, folder / f"{order}.arpa")
        self.model = model
        compile_graphs(folder, self.lexicon, folder / "2.arpa", folder / "3.arpa")
        self.hlg = load_fsa(folder / "HLG.pt")
        self.g = load_fsa(folder / "G_3_gram.pt")

    def decoder(self, options=LatticeOptions(), **kwargs) -> LatticeDecoder:
        kwargs.setdefault("g", self.g)
        return LatticeDecoder(self.hlg, self.tokenizer, self.lexicon, options=options, **kwargs)

    def log_probs(self, n, t, seed=0, sharp=2.0):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(n, t, self.tokenizer.vocab_size, generator=generator) * sharp
        return scores.log_softmax(dim=-1)


@pytest.fixture(scope="module", params=["bpe", "char"])
def setup(request, tmp_path_factory):
    texts = [" ".join(s) for s in sentences()]
    tokenizer = train_bpe(texts, 24) if request.param == "bpe" else train_char(texts)
    return Setup(tmp_path_factory.mktemp("lang"), tokenizer)


def brute_force(setup, log_probs, scale=1.0):
    """Best sentence by scoring every word sequence with CTC's best path and the 2-gram G."""
    g = BackoffG(load_g(setup.folder / "G_2_gram.fst.txt", setup.lexicon))
    first = setup.lexicon.ids["<UNK>"]
    ids = range(first, first + len(WORDS) + 1)
    best = (-math.inf, None)
    for words in itertools.chain.from_iterable(itertools.product(ids, repeat=n) for n in range(4)):
        tokens = setup.lexicon.spell(words)
        if len(tokens) > log_probs.size(0):
            continue
        total = viterbi(log_probs, tokens) + scale * g.score(words)
        best = max(best, (total, words))
    return best


def viterbi(log_probs, tokens):
    """Best CTC path of ``tokens``, full topology."""
    states = [0]
    for token in tokens:
        states += [token, 0]
    score = [-math.inf] * len(states)
    for t, row in enumerate(log_probs.tolist()):
        new = []
        for j, token in enumerate(states):
            options = [score[j], score[j - 1] if j else -math.inf]
            if j > 1 and token and token != states[j - 2]:
                options.append(score[j - 2])
            before = max(options) if t else (0.0 if j < 2 else -math.inf)
            new.append(before + row[token])
        score = new
    return max(score[-2:])


@pytest.mark.parametrize("seed", range(3))
def test_one_best_is_the_best_path_by_brute_force(setup, seed):
    log_probs = setup.log_probs(1, 5, seed)
    expected, words = brute_force(setup, log_probs[0])
    result = setup.decoder(ALL).decode(log_probs, torch.tensor([5]), ["u"])[0]
    got = result.hypotheses[0]
    # k2 takes G's backoff as an epsilon, so it may beat the exact score, never miss it.
    exact = viterbi(log_probs[0], setup.lexicon.spell(got.words))
    assert got.scores["acoustic"] == pytest.approx(exact, abs=1e-3)
    assert result.score >= expected - 1e-3
    if got.words == words:
        assert result.score == pytest.approx(expected, abs=0.5)


def test_ctc_loss_equals_torch_and_short_utterances_do_not_hide_others():
    torch.manual_seed(0)
    log_probs = torch.randn(4, 12, 7).log_softmax(-1).requires_grad_()
    targets = [[1, 2, 2], [3, 3], [4, 5, 6, 1], [2]]
    lens = torch.tensor([12, 2, 4, 9])  # "3 3" needs three frames; four tokens in four frames fit
    assert [min_frames(t) for t in targets] == [4, 3, 4, 1]
    ours = k2_ctc_loss(log_probs, lens, targets)
    flat = torch.tensor([t for ts in targets for t in ts])
    theirs = nn.functional.ctc_loss(
        log_probs.transpose(0, 1), flat, lens, torch.tensor([len(t) for t in targets]),
        reduction="none", zero_infinity=True,
    )
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-4, atol=1e-4)
    (gradient,) = torch.autograd.grad(ours.sum(), log_probs)
    assert torch.isfinite(gradient).all() and gradient[1].abs().sum() == 0


def test_g_gives_the_probabilities_of_the_ngram_model(setup):
    g = BackoffG(setup.g)
    for sentence in sentences(seed=5, n=40) + [["day", "day", "day", "day"], []]:
        ids = [setup.lexicon.ids[word] for word in sentence]
        expected = setup.model.score(sentence) * math.log(10)
        assert g.score(ids) == pytest.approx(expected, abs=1e-3)


def test_exhaustive_nbest_rescoring_equals_whole_lattice(setup):
    options = LatticeOptions(Beams(output=6.0), num_paths=5000, nbest_scale=0.1)
    decoder = setup.decoder(options)
    for seed in range(3):
        log_probs, lens = setup.log_probs(1, 4, seed), torch.tensor([4])
        whole = decoder.decode(log_probs, lens, ["u"], "whole-lattice-rescoring")[0]
        listed = decoder.decode(log_probs, lens, ["u"], "nbest-rescoring")[0]
        assert whole.text == listed.text
        assert whole.score == pytest.approx(listed.score, abs=1e-3)


def test_rescoring_leaves_its_input_unchanged_and_posteriors_sum_to_one(setup):
    lattice = dense_lattices(setup.hlg, setup.log_probs(1, 20), torch.tensor([20]), Beams())[0]
    before = {k: str(v) for k, v in lattice.as_dict().items()}
    rescored, pruned = rescore_lattice(lattice, BackoffG(setup.g), 1.0, 0.7)
    nbest(lattice, 50)
    prune_to(lattice, 10)
    assert {k: str(v) for k, v in lattice.as_dict().items()} == before
    assert not pruned
    for each in (lattice, rescored):
        posteriors = each.get_arc_post(True, True).exp()
        for frame in range(20):
            total = float(posteriors[each.frame == frame].sum())
            assert total == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("max_arcs", [5, 60, 500])
def test_pruning_keeps_the_best_path(setup, max_arcs):
    lattice = dense_lattices(setup.hlg, setup.log_probs(1, 20), torch.tensor([20]), Beams())[0]
    pruned = prune_to(lattice, max_arcs)
    assert pruned.num_arcs < lattice.num_arcs
    for each in (pruned, lattice):
        each.total = float(each.get_tot_scores(True, False))
    assert pruned.total == pytest.approx(lattice.total, abs=1e-4)


class ToyDecoder(nn.Module):
    """An attention decoder that likes one token per row of its state."""

    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens, state):
        return (self.table(tokens) + state.bias[:, None]).log_softmax(-1)


class ToyState:
    def __init__(self, bias):
        self.bias = bias

    def select(self, indices):
        return ToyState(self.bias[indices])


def all_methods(setup, log_probs, lens, rows=None):
    torch.manual_seed(1)
    v = setup.tokenizer.vocab_size
    decoder = ToyDecoder(v)
    lm = LstmLm(LstmLmConfig(v, 8, 1)).eval()
    bias = torch.randn(8, v)
    rows = list(range(len(lens))) if rows is None else rows
    _, lm_state = lm.score([[3 + i] for i in range(8)])
    lattice_decoder = setup.decoder(decoder=decoder, lm=lm)
    for method in ["1best", "nbest", "nbest-oracle", "nbest-rescoring",
                   "whole-lattice-rescoring", "attention-decoder", "lstm-lm"]:
        yield method, lattice_decoder.decode(
            log_probs, lens, [f"u{i}" for i in rows], method,
            decoder_state=ToyState(bias[rows]) if "att" in method or "lstm" in method else None,
            lm_state=lm_state.select(torch.tensor(rows)),
            references=["a day"] * len(rows),
        )


def test_batch_of_eight_equals_eight_singles_in_every_method(setup):
    lens = torch.tensor([20, 3, 17, 1, 9, 20, 12, 5])
    log_probs = setup.log_probs(8, 20)
    together = dict(all_methods(setup, log_probs, lens))
    for i in (0, 1, 3, 6):
        alone = all_methods(setup, log_probs[i : i + 1, : lens[i]], lens[i : i + 1], [i])
        for method, (result,) in alone:
            assert result.text == together[method][i].text, method
            assert result.score == pytest.approx(together[method][i].score, abs=1e-3)


def test_confidences_and_times_with_every_fusion_on(setup):
    lens = torch.tensor([20, 14])
    for method, results in all_methods(setup, setup.log_probs(2, 20, sharp=1.0), lens):
        for result, n in zip(results, lens.tolist()):
            assert all(0.0 <= w.confidence <= 1.0 for w in result.words), method
            starts = [w.start for w in result.words]
            assert starts == sorted(starts) and all(w.duration > 0 for w in result.words)
            assert all(w.start + w.duration <= n * 0.04 + 1e-9 for w in result.words)
            assert len(result.words) == len(result.hypotheses[0].words)
    [word] = ctm_words(results[0].words[:1], "rec", "1", offset=3.0)
    assert word.start == pytest.approx(3.0 + results[0].words[0].start) and word.channel == "1"


def test_attention_and_lm_scores_are_those_of_the_models(setup):
    log_probs, lens = setup.log_probs(2, 15), torch.tensor([15, 15])
    results = dict(all_methods(setup, log_probs, lens))["lstm-lm"]
    torch.manual_seed(1)
    v = setup.tokenizer.vocab_size
    decoder, lm = ToyDecoder(v), LstmLm(LstmLmConfig(v, 8, 1)).eval()
    bias = torch.randn(8, v)
    _, lm_state = lm.score([[3 + i] for i in range(8)])
    for row, result in enumerate(results):
        hypothesis = result.hypotheses[-1]
        tokens = [1, *hypothesis.tokens, 1]
        out = decoder(torch.tensor([tokens[:-1]]), ToyState(bias[[row]]))
        expected = sum(float(out[0, i, t]) for i, t in enumerate(tokens[1:]))
        assert hypothesis.scores["attention"] == pytest.approx(expected, abs=1e-3)
        alone, _ = lm.score([hypothesis.tokens], lm_state.select(torch.tensor([row])))
        assert hypothesis.scores["lstm"] == pytest.approx(float(alone), abs=1e-3)


def test_an_empty_lattice_falls_back_alone_and_is_named(setup, caplog):
    decoder = setup.decoder()
    tokens = setup.lexicon.spell([setup.lexicon.ids["before"]])
    cut = perfect_log_probs(tokens[:-1], setup.tokenizer.vocab_size)  # ends inside the word
    good = perfect_log_probs(
        setup.lexicon.spell([setup.lexicon.ids["a"]]), setup.tokenizer.vocab_size
    )
    batch = torch.zeros(3, cut.size(1), cut.size(2)).log_softmax(-1)
    batch[0], batch[1, : good.size(1)] = cut[0], good[0]
    lens = torch.tensor([cut.size(1), good.size(1), 0])
    decoder.options = LatticeOptions(Beams(search=5.0, output=2.0, min_active=1, max_active=5))
    with caplog.at_level(logging.WARNING):
        results = decoder.decode(batch, lens, ["cut", "good", "none"])
    assert results[1].text == "a" and not results[1].fallback
    assert results[0].fallback == "partial" and "cut:" in caplog.text
    assert results[2].fallback == "no frames" and results[2].text == ""
    assert "good:" not in caplog.text


def test_a_lattice_too_large_is_pruned_and_named(setup, caplog):
    decoder = setup.decoder(LatticeOptions(max_arcs=300))
    log_probs = setup.log_probs(1, 30, sharp=0.1)
    with caplog.at_level(logging.WARNING):
        result = decoder.decode(log_probs, torch.tensor([30]), ["big"], "whole-lattice-rescoring")
    assert result[0].fallback == "pruned" and "big:" in caplog.text
    assert result[0].lattice.num_arcs <= 300


def test_depth_bounds_the_arcs_of_a_frame_and_keeps_the_best_path(setup, caplog):
    log_probs = setup.log_probs(1, 30, sharp=0.1)
    results = {}
    for depth in (3, 1000):
        decoder = setup.decoder(LatticeOptions(depth=depth))
        results[depth] = decoder.decode(log_probs, torch.tensor([30]), ["flat"])[0]
    assert results[3].lattice.num_arcs <= 3 * 30 < results[1000].lattice.num_arcs
    assert results[3].text == results[1000].text
    assert results[3].score == pytest.approx(results[1000].score)
    assert not results[3].fallback and "flat:" not in caplog.text


def test_token_graph_equals_greedy_without_a_language_model(setup):
    graph = token_graph(setup.tokenizer.vocab_size, "full", setup.tokenizer.fingerprint)
    decoder = LatticeDecoder(graph, setup.tokenizer)
    log_probs = setup.log_probs(3, 25)
    for result, row in zip(decoder.decode(log_probs, torch.tensor([25] * 3), "abc"), log_probs):
        path = torch.unique_consecutive(row.argmax(-1)).tolist()
        assert result.tokens == [t for t in path if t]
        assert result.score == pytest.approx(float(row.max(-1).values.sum()), abs=1e-3)


def test_other_vocabularies_are_refused_before_anything_is_composed(setup, tmp_path):
    other = train_char(["xyz a"])
    with pytest.raises(InputError, match="vocabulary"):
        LatticeDecoder(setup.hlg, other)
    with pytest.raises(InputError, match="word list"):
        LatticeDecoder(setup.hlg, setup.tokenizer)  # the lexicon is missing
    lexicon = build_lexicon(WORDS[:-1], setup.tokenizer)
    with pytest.raises(InputError, match="word list"):
        compile_hlg(lexicon, setup.g)
    with pytest.raises(InputError, match="word list"):
        LatticeDecoder(setup.hlg, setup.tokenizer, lexicon)
    decoder = setup.decoder()
    with pytest.raises(InputError, match="columns"):
        decoder.decode(torch.zeros(1, 4, 9), torch.tensor([4]), ["u"])
    graph = token_graph(setup.tokenizer.vocab_size + 1, "full", setup.tokenizer.fingerprint)
    with pytest.raises(InputError, match="label"):
        LatticeDecoder(graph, setup.tokenizer)
    lm = LstmLm(LstmLmConfig(setup.tokenizer.vocab_size + 1, 8, 1))
    with pytest.raises(InputError, match="language model"):
        setup.decoder(lm=lm)


def test_methods_that_lack_their_model_are_refused(setup):
    decoder = setup.decoder(g=None)
    log_probs, lens = setup.log_probs(1, 4), torch.tensor([4])
    for method, need in [("whole-lattice-rescoring", "g"), ("attention-decoder", "decoder"),
                         ("lstm-lm", "lm"), ("nbest-oracle", "references"), ("best", "choose")]:
        with pytest.raises(InputError, match=need):
            decoder.decode(log_probs, lens, ["u"], method)


def test_the_oracle_reads_references_as_the_tokenizer_does(tmp_path):
    """Capitals that no path of the graph has."""
    texts = [" ".join(s) for s in sentences()]
    lower = Setup(tmp_path, train_char(texts, normalizer="lower"))
    log_probs, lens = lower.log_probs(1, 12), torch.tensor([12])
    decoder = lower.decoder()
    [best] = decoder.decode(log_probs, lens, ["u"], "1best")
    others = {r.text for seed in range(1, 4) for r in decoder.decode(
        lower.log_probs(1, 12, seed), lens, ["u"], "1best")}  # fmt: skip
    for text in sorted({best.text, *others}):
        small, large = (
            decoder.decode(log_probs, lens, ["u"], "nbest-oracle", references=[reference])[0]
            for reference in (text, text.upper())
        )
        assert small.text == large.text
    [found] = decoder.decode(log_probs, lens, ["u"], "nbest-oracle", references=[best.text.upper()])
    assert found.text == best.text


def test_self_check_finds_words_that_g_lacks(setup, tmp_path):
    write_arpa(estimate([["a", "ab"]], 1), tmp_path / "small.arpa")
    compile_g(tmp_path / "small.arpa", setup.lexicon, setup.folder, tmp_path / "g.txt")
    hlg = compile_hlg(setup.lexicon, load_g(tmp_path / "g.txt", setup.lexicon))
    with pytest.raises(InputError, match="self-check"):
        self_check(hlg, setup.lexicon)


def test_homophones_are_told_apart_by_g_only(setup, tmp_path):
    text = (setup.folder / "lexicon.txt").read_text().splitlines()
    spelling = next(line for line in text if line.startswith("day ")).split(None, 1)[1]
    (tmp_path / "lexicon.txt").write_text("\n".join([*text, f"dey {spelling}"]) + "\n")
    lexicon = load_lexicon(tmp_path, setup.tokenizer)
    assert list(lexicon.homophones().values()) == [["day", "dey"]]
    assert lexicon.disambiguated()[1] >= 2
    lexicon.save(tmp_path, setup.tokenizer)
    text = [["a", "day"], ["ab", "dey"]] * 5 + [[word] for word in WORDS]
    model = estimate(text, 2, lexicon.words[1:-3])
    write_arpa(model, tmp_path / "2.arpa")
    compile_graphs(tmp_path, lexicon, tmp_path / "2.arpa")
    decoder = LatticeDecoder(load_fsa(tmp_path / "HLG.pt"), setup.tokenizer, lexicon)
    for words in ("a day", "ab dey"):
        tokens = lexicon.spell([lexicon.ids[word] for word in words.split()])
        log_probs = perfect_log_probs(tokens, setup.tokenizer.vocab_size)
        result = decoder.decode(log_probs, torch.tensor([log_probs.size(1)]), ["u"])[0]
        assert result.text == words


@pytest.mark.parametrize(
    "line,message",
    [("new qqq", r"lexicon.txt:\d+: new needs the unknown piece qqq"),
     ("<UNK> <unk>", "again, it is in line 1"), ("new", "no pieces")],
)
def test_bad_lexicon_lines_are_named(setup, tmp_path, line, message):
    text = (setup.folder / "lexicon.txt").read_text()
    (tmp_path / "lexicon.txt").write_text(f"{text}{line}\n")
    with pytest.raises(InputError, match=message):
        load_lexicon(tmp_path, setup.tokenizer)


@pytest.mark.parametrize(
    "text,message",
    [("0 1 2 2\n1 0\n", r"g.txt:1: the weight is missing"), ("0 0 1 1 0.5\n0\n", r"g.txt:2"),
     ("0 1 hello hello 0.5\n1 0\n", "not a number"), ("0 1 2 2 0.5\n", "no final state")],
)
def test_g_with_missing_weights_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_openfst(tmp_path / "g.txt")


def test_graph_files_run_no_code(setup, tmp_path):
    path = save_lattice(tmp_path, "a/b c", setup.hlg)
    again = load_fsa(path)
    assert again.token_fingerprint == setup.tokenizer.fingerprint
    assert str(again.aux_labels) == str(setup.hlg.aux_labels)
    torch.save({"arcs": print}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match="not a graph"):
        load_fsa(tmp_path / "evil.pt")
    (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match="not a graph"):
        load_fsa(tmp_path / "cut.pt")
    with pytest.raises(InputError, match="no such graph"):
        load_fsa(tmp_path / "none.pt")


def test_scales_are_tuned_for_fewest_errors(tmp_path):
    def hypothesis(acoustic, lm):
        return Hypothesis((1,), scores={"acoustic": acoustic, "lm": lm})

    nbests = [[hypothesis(-1, -9), hypothesis(-3, -2)], [hypothesis(-1, -2)], []]
    found = tune_scales(nbests, [[2, 0], [1], []], {"lm": [0.0, 0.2, 0.5, 1.0]})
    assert found.scales == {"acoustic": 1.0, "lm": 0.5} and found.errors == 1
    save_scales(tmp_path / "scales.json", found, "dev")
    assert load_scales(tmp_path / "scales.json", "test") == found.scales
    save_scales(tmp_path / "scales.json", found, "test")
    with pytest.raises(InputError, match="tune on dev"):
        load_scales(tmp_path / "scales.json", "test")
    with pytest.raises(InputError, match="no dev"):
        tune_scales([[]], [[]], {"lm": [0.0]})
    assert word_errors("a b c", "a c d") == 2


def test_without_k2_the_error_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise ImportError(f"no {name}")

    monkeypatch.setattr(k2_import.importlib, "import_module", missing)
    with pytest.raises(InputError, match="pip install"):
        k2_import.require_k2()


def test_confidence_without_a_lattice_is_zero():
    assert word_confidences(None, Hypothesis((1, 2))) == [0.0, 0.0]


def test_save_and_load_keep_ragged_words(setup, tmp_path):
    save_fsa(tmp_path / "x.pt", setup.g)
    assert load_fsa(tmp_path / "x.pt").num_arcs == setup.g.num_arcs
