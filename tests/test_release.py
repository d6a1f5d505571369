"""A release: frozen, readable, complete, and never showing less than its price."""

import copy
import dataclasses
import pickle

import pytest
from replay import AR, seeded

from dpbook.histograms import private_histogram
from dpbook.quantiles import private_bounds
from dpbook.queries import private_count, private_mean
from dpbook.release import Release


def test_releases_are_frozen_readable_and_complete():
    release = private_mean([5.0] * 100, bounds=(0, 10), epsilon=0.5, delta=1e-6, neighbors=AR, rng=seeded())
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.value = 1.0
    made = Release("mean", 5.0, (4.0, 6.0), 0.05, 1.0, 0.5, 1e-6, AR, "gaussian")
    again = pickle.loads(pickle.dumps(copy.deepcopy(dataclasses.replace(made, parts={"count": made}))))
    assert repr(again) == repr(again.parts["count"]) == repr(made)
    text = repr(release)
    for part in ("mean = ", "95 % noise interval", "epsilon=0.5", "delta=1e-06", "neighbors='add_remove'", "gaussian"):
        assert part in text
    assert (release.epsilon, release.delta, release.alpha, release.mechanism) == (0.5, 1e-6, 0.05, "gaussian")
    many = private_histogram(range(100), edges=range(60), epsilon=1.0, neighbors=AR)
    assert "… 39 more" in repr(many)
    assert "0 to 1: " in repr(many)
    assert " to " in repr(private_bounds([1.0], epsilon=1.0, neighbors=AR, magnitudes=(1, 2)))


@pytest.mark.parametrize(
    ("epsilon", "text"), [(1, "1"), (0.1, "0.1"), (0.12345678, "0.12345678"), (1 / 3, repr(1 / 3))]
)
def test_a_release_never_shows_less_than_its_price(epsilon, text):
    release = private_count([1], epsilon=epsilon, neighbors=AR)
    assert f"epsilon={text}, " in repr(release)
    assert f"delta={0.5 * 1e-7 + 1e-13!r}" in repr(
        private_count([1], epsilon=1, delta=0.5 * 1e-7 + 1e-13, neighbors=AR)
    )
