"""Which utterances are compared together."""

import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.score.grouping import ALL, SnrBins, group, of_side
from icefall_ctx.score.wer import Utterance


def utterances(*snrs, side="B"):
    return [Utterance(f"u{k}", ["w"], ["w"], "c", side=side, snr=snr) for k, snr in enumerate(snrs)]


@pytest.mark.parametrize(
    "snr, name",
    [
        (-10.0, "-10 to -5 dB"),
        (-5.01, "-10 to -5 dB"),
        (-5.0, "-5 to 2.5 dB"),
        (2.5, "-5 to 2.5 dB"),
        (2.51, ""),
        (-10.01, ""),
        (None, ""),
        (float("nan"), ""),
    ],
)
def test_bins_have_their_lower_edge_and_the_last_both(snr, name):
    assert SnrBins((-10.0, -5.0, 2.5)).name(snr) == name


@pytest.mark.parametrize("edges", [(), (1.0,), (1.0, 1.0), (2.0, 1.0), (0.0, float("inf"))])
def test_bins_that_are_none(edges):
    with pytest.raises(InputError, match="rising numbers of dB"):
        SnrBins(edges)


def test_bins_come_in_their_order_and_empty_ones_not_at_all():
    found = group(utterances(9.0, -9.0, 30.0, None), "snr", SnrBins((-10.0, -5.0, 0.0, 10.0)))
    assert {name: len(members) for name, members in found.members.items()} == {
        "all": 4,
        "-10 to -5 dB": 1,
        "0 to 10 dB": 1,
    }
    assert found.left_out == "2 utterances, SNR 30.0 to 30.0 dB"


def test_no_group_at_all():
    with pytest.raises(InputError, match="any group of snr; it is 1.0 to 2.0 dB"):
        group(utterances(1.0, 2.0), "snr", SnrBins((-5.0, 0.0)))
    with pytest.raises(InputError, match="needs bins; here it is unknown"):
        group(utterances(None), "snr")
    with pytest.raises(InputError, match="a side is named 'all'"):
        group(utterances(1.0, side="all"), "side")


def test_turns_come_in_their_order():
    said = [Utterance(str(turn), ["w"], ["w"], turn=turn) for turn in (12, 0, 3, 4, -1)]
    found = group(said, "turn")
    assert list(found.members) == ["all", "0", "3-4", "10-19"]
    assert found.left_out == "1 utterances, turn unknown"


def test_one_side():
    assert len(of_side(utterances(1.0) + utterances(1.0, side="A"), "A")) == 1
    with pytest.raises(InputError, match="of the side 'C'; sides are: B"):
        of_side(utterances(1.0), "C")


@pytest.mark.parametrize("kind", ["side", "speaker"])
def test_a_test_set_that_does_not_say_has_one_group(kind):
    found = group(utterances(1.0, 2.0, side=""), kind)
    assert list(found.members) == [ALL]
    assert found.left_out == f"2 utterances, {kind} unknown"
