import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("espeakng_loader")

from icefall_ctx.corpora.espeak import Espeak, Voice, trim_silence  # noqa: E402
from icefall_ctx.corpora.mini_dialog import VARIANTS, speaker_voice  # noqa: E402
from icefall_ctx.errors import InputError  # noqa: E402

SUM = """
import hashlib
from icefall_ctx.corpora.espeak import Espeak
from icefall_ctx.corpora.mini_dialog import VARIANTS, speaker_voice
for variant in VARIANTS["test"] + VARIANTS["train"][::6]:
    with Espeak() as espeak:
        samples = espeak("the shoe [[kr'i:f]]", speaker_voice(variant, 1.0))
    print(variant, hashlib.md5(samples.tobytes()).hexdigest())
"""


def test_same_bytes_in_every_process():
    runs = [subprocess.run([sys.executable, "-c", SUM], capture_output=True) for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert len(runs[0].stdout.splitlines()) == 17
    assert runs[0].stdout == runs[1].stdout


def test_a_fresh_synthesiser_does_not_remember():
    voice = Voice("en-us+m3")
    with Espeak() as espeak:
        first = espeak("good morning", voice)
    with Espeak() as espeak:
        espeak("something else", Voice("en+klatt2", rate=200))
    with Espeak() as espeak:
        assert np.array_equal(first, espeak("good morning", voice))
        assert espeak.sampling_rate == 22050
    assert first.dtype == np.float32 and 0.3 < len(first) / 22050 < 1.5
    assert 0.05 < np.abs(first).max() <= 1.0


def test_sounds_in_brackets_are_spoken_as_sounds():
    voice = Voice("en-us+m3")

    def say(text):
        with Espeak() as espeak:
            return espeak(text, voice)

    assert np.array_equal(say("[[k'i:k]]"), say("[[k'i:k]]"))
    assert not np.array_equal(say("[[k'i:k]]"), say("[[k'aIk]]"))


def test_faster_voice_is_shorter_and_unknown_voice_is_named():
    with Espeak() as espeak:
        slow = espeak("one two three four", Voice("en-us+m3", rate=140))
        fast = espeak("one two three four", Voice("en-us+m3", rate=210))
        assert len(fast) < 0.8 * len(slow)
        with pytest.raises(InputError, match="xx-nowhere"):
            espeak("hello", Voice("xx-nowhere"))


def test_every_voice_of_the_corpus_exists_and_belongs_to_one_part():
    every = [variant for variants in VARIANTS.values() for variant in variants]
    assert len(every) == len(set(every)) >= 70
    with Espeak() as espeak:
        for variant in every:
            assert len(espeak("yes", speaker_voice(variant, 1.0))) > 2000


def test_trim_silence():
    samples = np.zeros(5000, dtype="f4")
    samples[2000:3000] = 0.5
    assert len(trim_silence(samples)) == 1000 + 799
    assert len(trim_silence(samples[:100])) == 100
