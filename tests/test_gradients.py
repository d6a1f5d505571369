"""The clipped sum of gradients is right, and one record moves it by at most C: exactly, whatever the floats do."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import gradients, sensitivity
from dpbook.gradients import Model, Records

KINDS = {
    "linear": Model(features=6, loss="squared"),
    "linear_through_0": Model(features=6, loss="squared", intercept=False),
    "logistic": Model(features=6, loss="logistic"),
    "logistic_through_0": Model(features=6, loss="logistic", intercept=False),
    "softmax": Model(features=6, outputs=4, loss="softmax"),
    "tanh": Model(features=6, outputs=4, hidden=(5,), activation="tanh", loss="softmax"),
    "relu": Model(features=6, outputs=4, hidden=(5, 3), activation="relu", loss="softmax"),
    "relu_through_0": Model(features=6, outputs=4, hidden=(5,), activation="relu", loss="softmax", intercept=False),
    "tanh_binary": Model(features=6, hidden=(5,), activation="tanh", loss="logistic"),
    "relu_squared": Model(features=6, hidden=(5,), activation="relu", loss="squared"),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def data(model, n, seed=0, spread=0.0):
    """Return rows whose sizes differ by up to so many powers of ten, targets and parameters."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, model.features)) * 10.0 ** rng.uniform(-spread, spread, (n, 1))
    classes = 2 if model.loss == "logistic" else model.outputs
    targets = rng.normal(0, 3, n) if model.loss == "squared" else rng.integers(0, classes, n).astype(float)
    return rows, targets, rng.normal(0, 1, model.size)


def exact(vector):
    return [Fraction(x) for x in vector.tolist()]


def square(vector):
    return sum(x * x for x in exact(vector))


# --- gradients are right ---------------------------------------------------------------------------------------------


def loss_with_50_digits(model, parameters, row, target):
    mp = mpmath.mp
    values, at = [mp.mpf(x) for x in row], 0
    for layer, (a, b) in enumerate(model.shapes):
        values += [mp.mpf(1)] if model.intercept else []
        values = [mp.fsum(values[i] * parameters[at + i * b + j] for i in range(a)) for j in range(b)]
        at += a * b
        if layer < len(model.shapes) - 1:
            values = [mp.tanh(z) if model.activation == "tanh" else max(z, mp.mpf(0)) for z in values]
    if model.loss == "squared":
        return (values[0] - target) ** 2 / 2
    if model.loss == "logistic":
        return mp.log1p(mp.exp(-values[0] if target else values[0]))
    return mp.log(mp.fsum(map(mp.exp, values))) - values[int(target)]


@EVERY
def test_gradients_are_those_of_the_loss_with_50_digits(kind):
    model = KINDS[kind]
    rows, targets, parameters = data(model, 3)
    found = gradients.per_example_gradients(model, parameters, rows, targets)
    losses = gradients.per_example_losses(model, parameters, rows, targets)
    with mpmath.workdps(50):
        step = mpmath.mpf(10) ** -20
        for i in range(len(rows)):
            point = [mpmath.mpf(x) for x in parameters]
            assert losses[i] == pytest.approx(float(loss_with_50_digits(model, point, rows[i], targets[i])), rel=1e-12)
            for j in range(0, model.size, 3):
                ends = []
                for sign in (1, -1):
                    moved = point.copy()
                    moved[j] += sign * step
                    ends.append(loss_with_50_digits(model, moved, rows[i], targets[i]))
                expected = float((ends[0] - ends[1]) / (2 * step))
                assert found[i, j] == pytest.approx(expected, rel=1e-10, abs=1e-12)


@EVERY
@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e3])
def test_the_clipped_sum_is_the_sum_of_clipped_gradients(kind, norm):
    model = KINDS[kind]
    rows, targets, parameters = data(model, 300)
    each = gradients.per_example_gradients(model, parameters, rows, targets)
    expected = sensitivity.clip_norm(each, max_norm=norm).sum(axis=0)
    found = gradients.clipped_gradient_sum(model, parameters, rows, targets, clipping_norm=norm)
    # A record is cut off to 2**-20 of the norm in each entry of its derivatives, and the inputs have 20 digits.
    assert np.abs(found - expected).max() <= 300 * norm * 2.0**-17
    assert np.linalg.norm(found - expected) <= 1e-4 * max(np.linalg.norm(expected), norm)


def test_logistic_and_linear_gradients_by_hand():
    logistic = Model(features=2, loss="logistic")
    row, w = np.array([[0.6, -0.8]]), [1.0, 2.0, 0.5]
    p = 1 / (1 + math.exp(-(0.6 - 1.6 + 0.5)))
    for target in (0, 1):
        expected = (p - target) * np.array([0.6, -0.8, 1.0])
        assert gradients.per_example_gradients(logistic, w, row, [target])[0] == pytest.approx(expected, rel=1e-14)
    linear = Model(features=2, loss="squared", intercept=False)
    assert gradients.per_example_gradients(linear, [1.0, 2.0], row, [3.0])[0] == pytest.approx(-4.0 * row[0])


def test_probabilities_add_up_to_one_and_follow_the_outputs():
    model = KINDS["tanh"]
    rows, _, parameters = data(model, 50, spread=3.0)
    scores = gradients.outputs(model, parameters, rows)
    shares = gradients.probabilities(model, scores)
    assert shares.sum(axis=1) == pytest.approx(np.ones(50))
    assert (shares.argmax(axis=1) == scores.argmax(axis=1)).all()
    binary = gradients.probabilities(KINDS["logistic"], [[2.0], [-800.0]])
    assert binary[0] == pytest.approx([1 / (1 + math.exp(2)), 1 / (1 + math.exp(-2))])
    assert binary[1].tolist() == [1.0, 0.0]


# --- one record moves the sum by at most C, exactly ------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("norm", [0.3, 1.0, 7.0])
def test_no_record_adds_more_than_the_norm(kind, norm):
    model = KINDS[kind]
    for seed, spread in ((0, 0.0), (1, 8.0), (2, 150.0)):
        rows, targets, parameters = data(model, 200, seed, spread)
        records = Records(model, rows, targets)
        sizes = [square(records.clipped_sum(parameters, norm, np.array([i]))) for i in range(200)]
        assert max(sizes) <= Fraction(norm) ** 2
        assert max(sizes) > Fraction(norm) ** 2 * Fraction(99, 100) or norm > 1  # it is reached, nearly


@EVERY
def test_a_sum_is_exactly_the_sum_of_what_its_records_add(kind):
    """So what one record adds depends on no other, and the order does not matter: nothing at all is rounded."""
    model = KINDS[kind]
    rows, targets, parameters = data(model, 257, spread=2.0)
    records = Records(model, rows, targets)
    singles = [exact(records.clipped_sum(parameters, 1.0, np.array([i]))) for i in range(257)]
    for part in (np.arange(257), np.arange(1, 257), np.arange(256, -1, -1), np.arange(0, 257, 7), np.array([], int)):
        total = [sum(column, Fraction(0)) for column in zip(*(singles[i] for i in part), strict=True)]
        found = exact(records.clipped_sum(parameters, 1.0, part))
        assert found == (total or [Fraction(0)] * model.size)


@EVERY
def test_neighbours_of_other_data_give_the_same_record(kind):
    """The same for data that is prepared with and without the record: no scale is taken from the data."""
    model = KINDS[kind]
    rows, targets, parameters = data(model, 60, spread=2.0)
    rows[0] *= 1e6
    everybody = Records(model, rows, targets).clipped_sum(parameters, 1.0)
    without = Records(model, rows[1:], targets[1:]).clipped_sum(parameters, 1.0)
    alone = Records(model, rows[:1], targets[:1]).clipped_sum(parameters, 1.0)
    assert [a - b for a, b in zip(exact(everybody), exact(without), strict=True)] == exact(alone)


def test_the_margin_pays_for_every_rounding():
    """That of sums of 2**27 records, and that of the factor, where a norm lies just below a whole number of steps."""
    assert Fraction(gradients.MARGIN) >= 2 * Fraction(2**27, 2**53) + Fraction(1, 2**40)
    model = Model(features=1, loss="squared", intercept=False)
    for norm in (math.nextafter(1.0, 0.0), math.nextafter(0.75, 0.0), math.nextafter(2.0**-30, 0.0)):
        targets = -np.arange(1.0, 400.0)
        records = Records(model, np.ones((len(targets), 1)), targets)
        sizes = [records.clipped_sum(np.zeros(1), norm, np.array([i]))[0] for i in range(len(targets))]
        assert max(sizes) <= norm
        assert min(sizes) >= norm * (1 - 2.0**-18)


def test_sums_refuse_a_norm_or_parameters_out_of_range():
    records = Records(Model(features=1, loss="squared", intercept=False), [[1.0]], [1.0])
    for norm in (0.0, -1.0, math.inf, math.nan, 2.0**-101, "1"):
        with pytest.raises((TypeError, ValueError), match="clipping_norm must"):
            records.clipped_sum(np.zeros(1), norm)
    with pytest.raises(ValueError, match="parameters must be finite"):
        records.clipped_sum(np.array([math.nan]), 1.0)
    assert abs(records.clipped_sum(np.array([1e308]), 1.0)[0]) <= 1.0


def test_a_float_implementation_fails_where_this_one_does_not():
    """The power of the two tests above: plain float32 or float64 products give other last digits to other batches."""
    model = Model(features=64, outputs=10, hidden=(32,), loss="softmax")
    rows, targets, parameters = data(model, 256)

    def naive(index):
        each = gradients.per_example_gradients(model, parameters, rows[index], targets[index])
        return sensitivity.clip_norm(each, max_norm=1.0).sum(axis=0)

    difference = [a - b for a, b in zip(exact(naive(slice(0, 256))), exact(naive(slice(1, 256))), strict=True)]
    assert difference != exact(naive(slice(0, 1)))


@pytest.mark.parametrize("n", [2048, 2049, 5000, 10_000])
def test_large_batches_are_added_in_parts(n):
    model = KINDS["tanh"]
    rows, targets, parameters = data(model, n)
    records = Records(model, rows, targets)
    whole = exact(records.clipped_sum(parameters, 1.0))
    parts = [exact(records.clipped_sum(parameters, 1.0, np.arange(at, min(at + 999, n)))) for at in range(0, n, 999)]
    for got, added in zip(whole, map(sum, zip(*parts, strict=True)), strict=True):
        assert abs(got - added) <= abs(added) * Fraction(1, 2**53)  # the one rounding


def test_partial_sums_stay_below_the_limit_in_the_worst_case():
    """2**11 equal records, each with all its digits and the largest derivative."""
    for loss, outputs in (("squared", 1), ("softmax", 3)):
        for width in (1, 2, 3, 1000):
            model = Model(features=width, outputs=outputs, loss=loss, intercept=False)
            for top in (0.5, 0.500001, 0.999999, 1.0):
                rows = np.zeros((gradients.ROWS, width))
                rows[:, 0] = top
                for norm in (1.0, 1.9999, 0.5000001):
                    records = Records(model, rows, np.zeros(len(rows)) if outputs > 1 else np.full(len(rows), 1e9))
                    weights = list(records._weights(np.zeros(model.size)))
                    step = math.ldexp(1.0, math.frexp(norm)[1] - gradients.RECORD_BITS - 1)
                    total = records._whole_sum(weights, norm, step, np.arange(len(rows)))
                    one = records._whole_sum(weights, norm, step, np.arange(1))
                    assert np.abs(total).max() <= 2.0**53
                    assert exact(total) == [x * len(rows) for x in exact(one)]


@given(
    st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2), min_size=1, max_size=6),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([2.0**-100, 1e-9, 1.0, 3.7, 1e9, 2.0**100]),
    st.sampled_from(["squared", "logistic"]),
    st.integers(0, 3),
)
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
def test_any_floats_are_neighbours_within_the_norm(rows, target, norm, loss, hidden):
    model = Model(features=2, hidden=(3,) * (hidden > 1), activation=("tanh", "relu")[hidden % 2], loss=loss)
    parameters = np.linspace(-2, 2, model.size)
    targets = np.resize([target, 0.0, 1.0], len(rows))
    with np.errstate(all="raise"):
        everybody = gradients.clipped_gradient_sum(model, parameters, rows, targets, clipping_norm=norm)
        without = gradients.clipped_gradient_sum(
            model, parameters, np.reshape(rows[1:], (-1, 2)), targets[1:], clipping_norm=norm
        )
    moved = sum((a - b) ** 2 for a, b in zip(exact(everybody), exact(without), strict=True))
    assert moved <= Fraction(norm) ** 2


ODD = [0.0, -0.0, 5e-324, -1e-310, 1e-200, -1e200, 1.7e308, math.inf, -math.inf, math.nan]


@EVERY
def test_odd_records_never_raise_nor_warn_nor_change_a_shape(kind):
    model = KINDS[kind]
    rows = [[a, b, 1.0, 0.0, a, b] for a, b in itertools.product(ODD, ODD)]
    targets = np.resize([0.0, 1.0, math.nan, 1e200, -1.0, math.inf, 0.5], len(rows))
    with np.errstate(all="raise"):
        for parameters in (np.zeros(model.size), np.full(model.size, 1e30), data(model, 1)[2]):
            records = Records(model, rows, targets)
            for i in range(len(rows)):
                one = records.clipped_sum(parameters, 1.0, np.array([i]))
                assert one.shape == (model.size,)
                assert square(one) <= 1
                if not np.isfinite(rows[i]).all() or not np.isfinite(targets[i]):
                    assert not one.any()
            for function in (gradients.per_example_gradients, gradients.per_example_losses):
                assert np.isfinite(function(model, parameters, rows, targets)).all()
            assert np.isfinite(gradients.outputs(model, parameters, rows)).all()


@EVERY
def test_nobody_is_data_too(kind):
    model = KINDS[kind]
    for rows in ([], (), np.empty((0, 6))):
        found = gradients.clipped_gradient_sum(model, np.zeros(model.size), rows, [], clipping_norm=1.0)
        assert found.tolist() == [0.0] * model.size


@pytest.mark.parametrize("kind", ["logistic", "softmax", "tanh"])
def test_a_label_that_is_no_class_has_gradient_zero(kind):
    model = KINDS[kind]
    rows, _, parameters = data(model, 1)
    for target in (-1, 0.5, 7, math.nan, math.inf, 1e300, None, "1"):
        assert not gradients.clipped_gradient_sum(model, parameters, rows, [target], clipping_norm=1.0).any()
        assert not gradients.per_example_gradients(model, parameters, rows, [target]).any()


def test_directions_are_kept_for_finite_gradients():
    """cases: tiny and huge gradients are scaled, not dropped."""
    model = Model(features=2, loss="squared", intercept=False)
    for size in (1e-30, 1e-9, 1.0, 1e9, 1e50):
        found = gradients.clipped_gradient_sum(model, [0.0, 0.0], [[3 * size, 4 * size]], [-1e55], clipping_norm=1.0)
        assert found == pytest.approx([0.6, 0.8], abs=2e-6)
    small = gradients.clipped_gradient_sum(model, [0.0, 0.0], [[3e-3, 4e-3]], [-1.0], clipping_norm=1.0)
    assert small == pytest.approx([3e-3, 4e-3], abs=2.0**-19)  # not scaled up


def test_elementary_functions_do_not_depend_on_the_place():
    """What the module takes for granted of NumPy: exp and tanh, in any place of arrays of any length."""
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(0, 1, 3000), rng.normal(0, 100, 500), [0.0, -0.0, 1e-300, -745.2, 709.7]])
    for function in (np.exp, np.tanh):
        with np.errstate(all="ignore"):
            alone = np.array([function(values[i : i + 1])[0] for i in range(len(values))])
            for at in range(9):
                for stride in (1, 2):
                    part = np.ascontiguousarray(values[at::stride])
                    assert np.array_equal(function(part), alone[at::stride])
            shaped = function(values[:3500].reshape(500, 7))
            assert np.array_equal(shaped.ravel(), alone[:3500])


@EVERY
def test_what_is_multiplied_are_whole_numbers_whose_sums_are_exact(kind):
    """A last digit of a sum shows in one gradient of many millions only, so the numbers themselves are looked at."""
    model = KINDS[kind]
    rows, targets, parameters = data(model, 50, spread=3.0)
    records = Records(model, rows, targets)
    weights = list(records._weights(parameters))
    for inputs, _, squares, back, _, layer in records._passes(weights, np.arange(50)):
        matrix, width = weights[layer][0], max(model.shapes[layer])
        for whole in (inputs, back, matrix, squares):
            assert np.array_equal(whole, np.rint(whole))
        largest = max(np.abs(inputs).max(), np.abs(back).max())
        assert width * largest * np.abs(matrix).max() <= 2.0**53
        assert width * largest**2 <= 2.0**53


def test_the_sum_of_a_softmax_does_not_depend_on_the_order():
    z, order = seeded_outputs(), np.random.default_rng(9).permutation(37)
    targets = np.zeros(2000, dtype=int)
    first = gradients._output_derivatives("softmax", z.copy(), targets)
    second = gradients._output_derivatives("softmax", z[:, order].copy(), np.full(2000, np.flatnonzero(order == 0)[0]))
    assert np.array_equal(first[:, order], second)
    e = np.exp(z)  # plain sums would show
    assert not np.array_equal(e.sum(axis=1), e[:, order].sum(axis=1))


def seeded_outputs():
    return np.random.default_rng(8).normal(0, 2, (2000, 37))


# --- models ----------------------------------------------------------------------------------------------------------


def test_the_start_is_public_and_fixed():
    model = KINDS["tanh"]
    assert np.array_equal(gradients.starting_parameters(model), gradients.starting_parameters(model, seed=0))
    assert not np.array_equal(gradients.starting_parameters(model), gradients.starting_parameters(model, seed=1))
    first, second = model.layers(gradients.starting_parameters(model))
    assert not first[-1].any()
    assert not second[-1].any()
    wide = Model(features=2000, hidden=(50,), loss="squared", activation="relu")
    (matrix, _) = wide.layers(gradients.starting_parameters(wide))
    assert matrix[:-1].std() == pytest.approx(math.sqrt(2 / 2000), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": 0, "loss": "squared"}, "features must be at least 1"),
        ({"features": 2, "loss": "hinge"}, "loss must be one of"),
        ({"features": 2, "loss": "softmax"}, "outputs must be at least 2"),
        ({"features": 2, "loss": "logistic", "outputs": 2}, "outputs must be 1"),
        ({"features": 2, "loss": "squared", "outputs": 2}, "outputs must be 1"),
        ({"features": 2, "loss": "squared", "hidden": (0,)}, r"hidden\[0\] must be at least 1"),
        ({"features": 2, "loss": "squared", "hidden": 3}, "hidden must be a tuple"),
        ({"features": 2**21, "loss": "squared"}, "features must be at most"),
        ({"features": 2**20, "loss": "squared", "hidden": (2**10,)}, "hidden must give at most"),
        ({"features": 2, "loss": "squared", "activation": "sigmoid"}, "activation must be one of"),
        ({"features": 2, "loss": "squared", "intercept": 1}, "intercept must be True or False"),
    ],
)
def test_bad_models_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Model(**arguments)
