"""The word memory against direct formulas; cases of empty, mixed, large and changed lists."""

import math
from itertools import product

import pytest
import torch
from model_inputs import make_batch, small_model, sound

from icefall_ctx.models.asr import with_baseline
from icefall_ctx.models.memory import mix
from icefall_ctx.models.memory_bank import EntryList, MemoryBank
from icefall_ctx.models.memory_entries import EntryTokens

ENTRIES = [[3, 4], [5, 6, 7], [8], [3, 4, 5]]
KINDS = ("mem", "2mem")


def memory_model(kind="2mem", **options):
    options = {"memory_encoder_layers": 1, "memory_decoder_layers": 2, **options}
    return small_model(memory=kind, **options)


def audio(n=2):
    torch.manual_seed(5)
    return torch.randn(n, 9, 16), torch.tensor([9, 6, 7, 4][:n])


TOKENS = torch.tensor([[1, 3, 4, 5, 6], [1, 8, 8, 3, 4]])


def prepared(model, memory, n=2):
    return model.decoder.prepare(*audio(n), None, memory)


def encode(model, entries=ENTRIES):
    return model.decoder.encode(EntryTokens.from_lists(entries))


def test_mixture_is_the_formula():
    model = memory_model()
    state = prepared(model, encode(model))
    out = model.decoder.mixture(TOKENS, state)
    linear = model.decoder.gate
    for n, u in product(range(2), range(5)):
        z = linear.bias.item()
        for w, scores in zip(linear.weight[0].tolist(), out.scores):
            row = scores.scores[n, u].tolist()
            z += w * math.exp(row[0]) / sum(map(math.exp, row))
        g = 1 / (1 + math.exp(-z))
        assert out.gate[n, u].item() == pytest.approx(g, abs=1e-5)
        p = g * out.baseline[n, u].exp() + (1 - g) * out.memory[n, u].exp()
        torch.testing.assert_close(out.log_probs[n, u].exp(), p, rtol=1e-4, atol=1e-6)
    assert float(mix(torch.tensor(1.0), torch.tensor(0.0), torch.tensor(1.0))) == pytest.approx(
        math.log(1e-12)
    )


def test_scores_are_the_formula():
    model = memory_model()
    attention = model.decoder.blocks[0].memory
    memory = encode(model)
    x = torch.randn(2, 3, 16)
    found = attention.scores(x, memory, 0, None, None).scores
    summed = [memory.encoded[s : s + n].mean(0) for s, n in zip(memory.starts[1:], memory.lens[1:])]
    keys = torch.stack([model.decoder.dummy, *summed])
    k = attention.key_norm(attention.key(keys))
    q = attention.query_norm(attention.query(x))
    torch.testing.assert_close(found, q @ k.t() / math.sqrt(16), rtol=1e-4, atol=1e-5)
    assert memory.lens.tolist() == [0, 4, 5, 3, 5]


@pytest.mark.parametrize("values", ["embedded", "encoded"])
def test_gather_scatter_equals_the_dense_computation(values):
    model = memory_model(memory_values=values)
    decoder = model.decoder
    attention = decoder.blocks[0].memory
    memory = encode(model)
    x = torch.randn(2, 3, 16)
    choice = torch.tensor([[0, 1, 4], [2, 2, 0]])
    found = attention._read_chosen(x, choice, memory, decoder.embed)
    for n, u in product(range(2), range(3)):
        entry = int(choice[n, u])
        expected = x[n, u]
        if entry:
            start, size = int(memory.starts[entry]), int(memory.lens[entry])
            key = memory.encoded[start : start + size]
            value = key
            if values == "embedded":
                value = decoder.embed(torch.tensor([[1, *ENTRIES[entry - 1], 1]]))[0]
            torch_attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
            ours = attention.entry_attention
            torch_attention.in_proj_weight.data = torch.cat(
                [ours.query.weight, ours.key_value.weight]
            ).data
            biases = [ours.query.bias, ours.key_value.bias]
            torch_attention.in_proj_bias.data = torch.cat(biases).data
            torch_attention.out_proj.weight.data = ours.out.weight.data
            torch_attention.out_proj.bias.data = ours.out.bias.data
            out, _ = torch_attention(x[n, u][None, None], key[None], value[None])
            expected = expected + out[0, 0]
        torch.testing.assert_close(found[n, u], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kind, residual, decoder", list(product(KINDS, (False, True), ("transformer", "lstm")))
)
def test_steps_equal_teacher_forcing_also_after_reordering(kind, residual, decoder):
    model = memory_model(kind, memory_score_residual=residual, decoder=decoder).decoder
    memory = MemoryBank(model).memory([(EntryList(ENTRIES),), (EntryList(ENTRIES[:2]),)])
    state = prepared_state = model.prepare(*audio(), None, memory)
    full = model(TOKENS, prepared_state)
    torch.testing.assert_close(full.exp().sum(-1), torch.ones(2, 5), rtol=1e-4, atol=1e-4)
    state = state.select(torch.tensor([0, 0, 1, 1]))
    for u in range(5):
        log_probs, state = model.step(TOKENS[[0, 0, 1, 1], u], state)
        torch.testing.assert_close(log_probs[::2], full[:, u], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(log_probs[1::2], full[:, u], rtol=1e-4, atol=1e-5)
    only = model.prepare(*audio(), None, memory).select(torch.tensor([1, 1]))
    log_probs, _ = model.step(TOKENS[[1, 1], 0], only)
    torch.testing.assert_close(log_probs[1], full[1, 0], rtol=1e-4, atol=1e-5)


def test_score_residual_averages_with_the_block_before():
    plain, averaged = memory_model(), memory_model(memory_score_residual=True)
    averaged.load_state_dict(plain.state_dict())
    for model in (plain, averaged):  # the same input to every block
        for block in model.decoder.blocks:
            block.memory.entry_attention.out.weight.data.zero_()
            block.memory.entry_attention.out.bias.data.zero_()
    a = plain.decoder.mixture(TOKENS, prepared(plain, encode(plain))).scores
    b = averaged.decoder.mixture(TOKENS, prepared(averaged, encode(averaged))).scores
    torch.testing.assert_close(b[0].scores, a[0].scores)
    torch.testing.assert_close(b[1].scores, (a[0].scores + a[1].scores) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decoder, context", [("transformer", "conditional"), ("lstm", "none")])
def test_empty_memory_is_the_baseline_bit_for_bit(decoder, context):
    model = memory_model(decoder=decoder, text_context=context).decoder
    assert MemoryBank(model).memory([(EntryList(),), ()]) is None
    state, base = model.prepare(*audio()), model.baseline.prepare(*audio())
    assert torch.equal(model(TOKENS, state), model.baseline(TOKENS, base))
    ours, _ = model.step(TOKENS[:, 0], state)
    theirs, _ = model.baseline.step(TOKENS[:, 0], base)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_an_utterance_without_entries_beside_one_with_entries_is_its_baseline(kind):
    model = memory_model(kind).decoder
    bank = MemoryBank(model)
    both = model(TOKENS, model.prepare(*audio(), None, bank.memory([(), (EntryList(ENTRIES),)])))
    assert torch.equal(both[0], model.baseline(TOKENS, model.baseline.prepare(*audio()))[0])
    alone = bank.memory([(EntryList(ENTRIES),), (EntryList(ENTRIES),)])
    expected = model(TOKENS, model.prepare(*audio(), None, alone))[1]
    torch.testing.assert_close(both[1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_one_batch_equal_single_utterances(kind):
    model = memory_model(kind).decoder
    out, lens = audio()
    lists = [(EntryList(ENTRIES[:2]), EntryList([[7, 7]])), (EntryList(ENTRIES[1:]),)]
    together = model(TOKENS, model.prepare(out, lens, None, MemoryBank(model).memory(lists)))
    for n in range(2):
        memory = MemoryBank(model).memory(lists[n : n + 1])
        state = model.prepare(out[n : n + 1], lens[n : n + 1], None, memory)
        torch.testing.assert_close(
            model(TOKENS[n : n + 1], state)[0], together[n], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("kind", KINDS)
def test_same_entry_five_times_prefixes_and_order_change_nothing(kind):
    model = memory_model(kind).decoder

    def outputs(entries):
        memory = MemoryBank(model).memory([(EntryList(entries),)] * 2)
        return model(TOKENS, model.prepare(*audio(), None, memory))

    expected = outputs(ENTRIES)
    torch.testing.assert_close(outputs(ENTRIES[::-1]), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(outputs(ENTRIES + 4 * [ENTRIES[0]]), expected, rtol=1e-4, atol=1e-5)


def test_only_changed_entries_are_encoded_again():
    model = memory_model().decoder
    bank = MemoryBank(model)
    entries = [[a, b] for a in range(3, 9) for b in range(3, 9)]
    words = EntryList(entries[:30])
    bank.memory([(words,)])
    bank.memory([(words,)])
    assert bank.encoded == 30
    words.remove(entries[0])
    words.add(entries[31])
    words.add(entries[32])
    memory = bank.memory([(words,)])
    assert bank.encoded == 32
    fresh = MemoryBank(model).memory([(EntryList(words.weights),)])
    state = (audio(1), TOKENS[:1])
    a, b = (model(state[1], model.prepare(*state[0], None, m)) for m in (memory, fresh))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_full_bank_forgets_what_no_list_uses():
    model = memory_model().decoder
    bank = MemoryBank(model, capacity=10)
    entries = [[a, b] for a in range(3, 9) for b in range(3, 9)]
    for start in range(0, 36, 6):
        words = EntryList(entries[start : start + 6])
        memory = bank.memory([(words,)])
        assert len(memory) >= 6 and len(bank) <= 18
    with pytest.raises(ValueError):
        words.add([], 1.0)
    with pytest.raises(ValueError):
        words.add([3], 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_and_preselection_of_all_are_close_to_exact(kind):
    model = memory_model(kind).decoder
    lists = [(EntryList(ENTRIES),)] * 2
    exact = model(TOKENS, model.prepare(*audio(), None, MemoryBank(model).memory(lists)))
    half = MemoryBank(model, half=True).memory(lists)
    assert half.keys[0].dtype == torch.float16
    torch.testing.assert_close(
        model(TOKENS, model.prepare(*audio(), None, half)).exp(), exact.exp(), rtol=0.02, atol=0.01
    )
    kept = MemoryBank(model, preselect=4).memory(lists)
    assert torch.equal(model(TOKENS, model.prepare(*audio(), None, kept)), exact)


@pytest.mark.parametrize("kind, residual", list(product(KINDS, (False, True))))
def test_preselection_scores_the_best_entries_of_the_first_block(kind, residual):
    model = memory_model(kind, memory_score_residual=residual).decoder
    lists = [(EntryList(ENTRIES),), (EntryList(ENTRIES[1:]),)]
    memory = MemoryBank(model, preselect=2).memory(lists)
    out = model.mixture(TOKENS, model.prepare(*audio(), None, memory))
    first, second = out.scores
    assert first.columns is None and second.scores.shape == (2, 5, 3)
    best = first.scores[..., 1:].amax(1).topk(2).indices + 1
    assert [sorted(row) for row in best.tolist()] == second.columns[:, 1:].tolist()
    allowed = torch.cat([torch.zeros(2, 1, dtype=torch.long), second.columns], 1)
    assert all(c in a for c, a in zip(second.choice()[0].tolist(), [allowed[0].tolist()] * 5))


def test_weights_raise_the_score_by_their_logarithm():
    model = memory_model().decoder
    plain, heavy = EntryList(ENTRIES), EntryList(ENTRIES)
    heavy.add(ENTRIES[2], 3.0)
    a, b = (
        model.mixture(TOKENS, model.prepare(*audio(), None, MemoryBank(model).memory([(w,)] * 2)))
        for w in (plain, heavy)
    )
    difference = (b.scores[0].scores - a.scores[0].scores).amax(dim=(0, 1))
    assert sorted(difference.tolist())[-1] == pytest.approx(math.log(3), abs=1e-4)


def test_in_2mem_scores_and_dummy_learn_from_the_memory_loss_only():
    model = memory_model()
    out = model.decoder.mixture(TOKENS, prepared(model, encode(model)))
    out.log_probs.sum().backward(retain_graph=True)
    parts = [model.decoder.dummy]
    for block in model.decoder.blocks:
        parts += [*block.memory.query.parameters(), *block.memory.key.parameters()]
    assert all(p.grad is None or not p.grad.any() for p in parts)
    sum(s.scores.log_softmax(-1)[..., 1].sum() for s in out.scores).backward()
    assert all(p.grad is not None and p.grad.any() for p in parts if p.dim() > 1)
    assert model.decoder.dummy.grad.any()


def test_an_entry_alone_is_encoded_as_among_longer_ones():
    model = memory_model()
    alone, among = encode(model, [[8]]), encode(model, ENTRIES)
    torch.testing.assert_close(alone.keys[1][1], among.keys[1][3], rtol=1e-4, atol=1e-5)
    long = encode(model, [[3] * 700])  # beyond the table of positions
    assert torch.isfinite(long.keys[0]).all()


@pytest.mark.parametrize("decoder", ["transformer", "lstm"])
def test_a_baseline_takes_the_place_of_another(decoder):
    model = memory_model("2mem")
    encoder = "lstm" if decoder == "lstm" else "conformer"
    other = small_model(seed=7, encoder=encoder, decoder=decoder)
    expected_batch = make_batch([sound(40, 1)])
    encoded = other.encode(expected_batch)
    expected = other.decoder(TOKENS[:1], other.decoder.prepare(encoded.out, encoded.lens))
    heard = model.encode(expected_batch)
    swapped = with_baseline(model, other)
    again = swapped.encode(expected_batch)
    state = swapped.decoder.prepare(again.out, again.lens)
    assert torch.equal(swapped.decoder(TOKENS[:1], state), expected)
    out, lens = swapped.memory_audio(expected_batch)
    assert torch.equal(out, heard.out)
    memory = MemoryBank(swapped.decoder).memory([(EntryList(ENTRIES),)])
    mixed = swapped.decoder.prepare(again.out, again.lens, None, memory, (out, lens))
    assert torch.isfinite(swapped.decoder(TOKENS[:1], mixed)).all()


def test_memory_starts_from_the_baseline():
    model = memory_model(memory_decoder_layers=3, decoder_layers=2).decoder
    model.start_from_baseline()
    assert torch.equal(model.embed.table.weight, model.baseline.embedding.weight)
    assert torch.equal(model.out.weight, model.baseline.out.weight)
    ours = [b.layer.feed_forward[0].weight for b in model.blocks]
    theirs = [layer.feed_forward[0].weight for layer in model.baseline.layers]
    for block, source in zip(ours, (0, 0, 1)):
        assert torch.equal(block, theirs[source])


