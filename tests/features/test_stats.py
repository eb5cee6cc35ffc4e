import numpy as np
import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.features.stats import MIN_STD, FeatureStats, merged


def test_mean_and_deviation_of_parts_are_those_of_the_whole(tmp_path):
    frames = np.random.default_rng(0).normal(5, 3, (1000, 4)).astype(np.float32)
    frames[:, 3] = 7.0
    parts = []
    for block in np.split(frames, [100, 350]):
        parts.append(FeatureStats.zeros(4))
        parts[-1].add(block)
    merged(parts, 4).save(tmp_path / "stats.json")
    stats = FeatureStats.load(tmp_path / "stats.json")
    assert stats.count == 1000
    np.testing.assert_allclose(stats.mean, frames.mean(0), rtol=1e-5)
    np.testing.assert_allclose(stats.std[:3], frames.std(0)[:3], rtol=1e-4)
    assert stats.std[3] == pytest.approx(MIN_STD)


def test_nothing_counted_is_finite():
    stats = FeatureStats.zeros(2)
    assert np.isfinite(stats.mean).all() and (stats.std > 0).all()


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "stats.json"
    with pytest.raises(InputError, match="no such file"):
        FeatureStats.load(path)
    for text in ["", "[]", "{}", '{"count": 1}']:
        path.write_text(text)
        with pytest.raises(InputError, match="not a file of feature statistics"):
            FeatureStats.load(path)
