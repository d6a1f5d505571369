"""DP-SGD runs what it accounts: samples, clipping, noise, divisor, steps. Faulty twins of each part are caught."""

import dataclasses
import io
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpbook import accounting, audit, budget, training
from dpbook.training import plan_training

Model, Records = training.Model, training.Records  # of the module under test, which may be a copy
BASIS = {"neighbors": "add_remove", "delta": 1e-5, "clipping_norm": 1.0}
ONE = {**BASIS, "noise_multiplier": 1.0, "sampling_prob": 0.5, "expected_batch_size": 10, "steps": 1}
LINE = Model(features=1, loss="squared", intercept=False)


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: for tests, not private


def nobody(model=LINE, n=3):
    """Records that all have gradient zero, as their targets are no numbers."""
    return Records(model, np.ones((n, model.features)), np.full(n, np.nan))


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "q", "divisor"),
    [
        ({"sampling_prob": 0.1, "n": 2000}, 0.1, 200.0),
        ({"expected_batch_size": 256, "n": 60_000}, 256 / 60_000, 256.0),
        ({"sampling_prob": 0.1, "expected_batch_size": 170}, 0.1, 170.0),
        ({"sampling_prob": 1.0, "n": 5}, 1.0, 5.0),
    ],
)
def test_the_divisor_is_public(size, q, divisor):
    plan = plan_training(**BASIS, noise_multiplier=1.0, steps=3, **size)
    assert (plan.sampling_prob, plan.divisor) == (q, divisor)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sampling_prob": 0.1}, "two of n, sampling_prob and expected_batch_size must be given"),
        ({"expected_batch_size": 10}, "two of n, sampling_prob and expected_batch_size must be given"),
        ({"n": 100}, "two of n, sampling_prob.*=None"),
        (
            {"n": 100, "sampling_prob": 0.1, "expected_batch_size": 10},
            "two of n, sampling_prob.*n=100, sampling_prob=0.1, expected_batch_size=10",
        ),
        ({"n": 100, "expected_batch_size": 101}, "expected_batch_size must be at most n=100"),  # q > 1
        ({"n": 100, "sampling_prob": 0.0}, "sampling_prob must be positive"),
        ({"n": 100, "sampling_prob": 0.1, "epochs": 3}, "steps or epochs must be given"),
        ({"n": 100, "sampling_prob": 0.1, "steps": None}, "steps or epochs must be given"),
        ({"n": 100, "sampling_prob": 0.1, "target_epsilon": 1.0}, "target_epsilon or noise_multiplier must be given"),
        ({"n": 100, "sampling_prob": 0.1, "noise_multiplier": None}, "target_epsilon or noise_multiplier must be"),
        ({"n": 100, "sampling_prob": 0.1, "noise_multiplier": 0.0}, "noise_multiplier must be positive"),
        ({"n": 100, "sampling_prob": 0.1, "clipping_norm": math.inf}, "clipping_norm must be"),
        ({"n": 100, "sampling_prob": 1e-9, "steps": None, "epochs": 10}, "epochs must be for at most"),
    ],
)
def test_plans_that_say_too_little_or_too_much_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plan_training(**{**BASIS, "noise_multiplier": 1.0, "steps": 3, **arguments})


@pytest.mark.parametrize(("epochs", "q", "steps"), [(1, 0.1, 10), (1, 0.3, 4), (0.5, 0.01, 50), (3, 1.0, 3), (7, 1, 7)])
def test_epochs_become_steps_rounded_up(epochs, q, steps):
    plan = plan_training(**BASIS, noise_multiplier=1.0, sampling_prob=q, n=100, epochs=epochs)
    assert plan.steps == steps == math.ceil(Fraction(epochs) / Fraction(q))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("target", [0.1, 1.0, 8.0])
def test_the_target_is_kept_and_not_wasted(relation, q, target):
    plan = plan_training(**{**BASIS, "neighbors": relation}, target_epsilon=target, sampling_prob=q, n=1000, steps=40)
    assert plan.strict_epsilon < target
    assert plan.epsilon <= target
    step = accounting.SubsampledGaussian(noise_multiplier=0.99 * plan.noise_multiplier, sampling_prob=q)
    assert accounting.Accountant(neighbors=relation).add(step, steps=40).epsilon(delta=1e-5) > target


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [0.1, 1.0])
def test_the_account_is_under_the_plans_relation(relation, q):
    """Whoever is replaced moves a sum by twice the norm."""
    plan = plan_training(**{**ONE, "neighbors": relation, "sampling_prob": q})
    step = accounting.SubsampledGaussian(noise_multiplier=1.0, sampling_prob=q)
    own = accounting.Accountant(neighbors=relation).add(step)
    assert plan.account.neighbors == relation
    assert plan.epsilon == own.epsilon(delta=1e-5)
    assert plan.strict_epsilon == own.epsilon(delta=math.nextafter(1e-5, 0.0)) >= plan.epsilon
    ledger = budget.Ledger(budget.basic(epsilon=100.0, delta=1e-4, neighbors=relation))
    training.charge(plan, ledger=ledger, label="x")
    assert Fraction(ledger.history[0].amount["epsilon"]) >= Fraction(own.epsilon(delta=1e-5))


def test_the_account_is_the_one_of_the_golden_number():
    plan = plan_training(**BASIS, noise_multiplier=1.5, sampling_prob=0.04, n=1000, steps=2249)
    assert 6.76504 <= plan.epsilon <= 6.7697  # opacus tests: PRV bounds for the same steps


def test_sigma_is_the_multiplier_times_the_norm_rounded_up():
    for multiplier, norm in itertools.product((0.7, 1.1, 3.3), (0.1, 1.0, 7.7)):
        plan = plan_training(**{**ONE, "noise_multiplier": multiplier, "clipping_norm": norm})
        assert Fraction(plan.sigma) >= Fraction(multiplier) * Fraction(norm)
        assert plan.sigma == pytest.approx(multiplier * norm, rel=1e-15)


# --- one step --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_the_noise_of_a_step_is_sigma_c_over_the_public_size(n):
    """Zero gradients, so that a step is its noise: the same for every n, and independent in all coordinates."""
    model = Model(features=99, outputs=200, loss="softmax")
    plan = plan_training(**{**BASIS, "clipping_norm": 2.0}, noise_multiplier=1.0, sampling_prob=0.01, n=1000, steps=1)
    step = training.noisy_gradient(nobody(model, n), np.zeros(model.size), plan=plan, rng=seeded(n))
    assert step.shape == (20_000,)
    assert 1.0 * 2.0 / 10 == plan.sigma / plan.divisor == 0.2
    assert stats.kstest(step, stats.norm(scale=0.2).cdf).pvalue > 1e-6
    assert stats.kstest(step, stats.norm(scale=0.2 / 0.9).cdf).pvalue < 1e-6  # noise × 0.9 is told apart
    assert abs(np.corrcoef(step[:10_000], step[10_000:])[0, 1]) < 5 / 100  # two layers of equal shape


def test_all_layers_have_noise_of_their_own():
    model = Model(features=8, hidden=(8, 8), loss="squared")
    step = training.noisy_gradient(nobody(model), np.zeros(model.size), plan=plan_training(**ONE), rng=seeded())
    assert len(np.unique(step)) == model.size  # every entry passed the noise


def test_a_divisor_taken_from_the_batch_is_told_apart():
    """The twin of the first test: with the batch's own size in the divisor, n shows."""

    def step(n):
        records, plan = nobody(Model(features=99, outputs=200, loss="softmax"), n), plan_training(**ONE)
        sample, perturb = training._sources(records, plan, seeded(n))
        return perturb(records.clipped_sum(np.zeros(20_000), 1.0, sample())) / max(1, records.count)

    assert stats.kstest(step(2), stats.norm(scale=step(3).std()).cdf).pvalue < 1e-6


def test_a_huge_gradient_moves_a_step_by_c_over_the_divisor_at_most():
    plan = plan_training(**{**ONE, "sampling_prob": 1.0, "clipping_norm": 2.0})
    records = Records(LINE, [[1.0]] * 3, [1e9, 10.0, 0.0])
    step = training._noisy(records, np.zeros(1), plan, lambda: np.arange(3), lambda total: total)
    assert -step[0] == pytest.approx(2 * 2.0 / 10, rel=1e-5)
    assert -step[0] <= 2 * 2.0 / 10


def test_noise_is_added_to_the_sum_and_not_to_each_record():
    calls = []
    records = Records(LINE, [[1.0]] * 50, [1.0] * 50)
    training._noisy(records, np.zeros(1), plan_training(**ONE), lambda: np.arange(50), lambda t: calls.append(t) or t)
    assert [len(total) for total in calls] == [1]


def test_neighbours_with_the_same_draws_differ_by_one_record():
    """Replay: the same sample of the others and the same noise; steps differ by the record's own part, exactly."""
    rng = seeded(5)
    model = Model(features=5, outputs=3, hidden=(4,), loss="softmax")
    rows, targets = rng.standard_normal((40, 5)), rng.integers(0, 3, 40)
    rows[7] *= 1e8
    parameters = rng.standard_normal(model.size)
    everybody, without = Records(model, rows, targets), Records(model, np.delete(rows, 7, 0), np.delete(targets, 7))
    for _ in range(20):
        mask = rng.random(40) < 0.5
        mask[7] = True
        with_it, others = np.flatnonzero(mask), np.flatnonzero(np.delete(mask, 7))
        a, b = everybody.clipped_sum(parameters, 1.0, with_it), without.clipped_sum(parameters, 1.0, others)
        assert sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True)) <= 1


# --- the loop --------------------------------------------------------------------------------------------------------


def test_empty_batches_are_steps_with_noise():
    plan = plan_training(**BASIS, noise_multiplier=1.0, sampling_prob=1e-12, expected_batch_size=1, steps=10)
    seen = []
    training.dp_sgd(
        LINE, [[1.0]], [1.0], plan=plan, learning_rate=1.0, rng=seeded(), callback=lambda i, p: seen.append((i, p[0]))
    )
    assert [i for i, _ in seen] == list(range(1, 11))
    values = [value for _, value in seen]
    assert np.isfinite(values).all()
    assert len(set(values)) == 10


@pytest.mark.parametrize(("q", "steps"), [(0.25, 7), (1.0, 3), (0.3, 10)])
def test_the_steps_that_ran_are_the_steps_accounted(q, steps):
    plan = plan_training(**BASIS, noise_multiplier=1.0, sampling_prob=q, n=10, steps=steps)
    samples, noises = [], []
    records = Records(LINE, [[1.0]] * 10, [1.0] * 10)
    sample, perturb = training._sources(records, plan, seeded())
    training._descend(
        records, np.zeros(1), plan, training._Descent("sgd", 0.1, 0.0, 0.0), lambda step, p: None,
        (lambda: samples.append(1) or sample(), lambda total: noises.append(1) or perturb(total)),
    )  # fmt: skip
    ((mechanism, number),) = plan.account.entries
    assert len(samples) == len(noises) == number == steps
    assert (mechanism.sampling_prob, mechanism.noise_multiplier) == (q, 1.0)


def test_batches_are_fresh_poisson_samples_in_every_step():
    """Sizes vary as a binomial does, and a record's presence in one step says nothing about the next."""
    plan = plan_training(**BASIS, noise_multiplier=1.0, sampling_prob=0.25, n=20, steps=1)
    sample, _ = training._sources(Records(LINE, [[1.0]] * 20, [1.0] * 20), plan, seeded(2))
    present = np.zeros((20_000, 20))
    for row in present:
        row[sample()] = 1
    sizes = present.sum(axis=1)
    assert abs(sizes.mean() - 5) < 5 * math.sqrt(20 * 0.25 * 0.75 / 20_000)
    expected = 20_000 * stats.binom(20, 0.25).pmf(np.arange(21))
    counts = np.bincount(sizes.astype(int), minlength=21)
    keep = expected > 20
    assert stats.chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue > 1e-6
    for record in (0, 19):
        following = np.corrcoef(present[:-1, record], present[1:, record])[0, 1]
        assert abs(following) < 5 / math.sqrt(20_000)
        # Epochs of shuffled batches, four steps each, would show a correlation of -1/3 between steps.


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
def test_what_follows_the_noise_uses_nothing_but_the_noise(optimizer, momentum):
    """Post-processing: the parameters can be computed anew from the noisy sums alone."""
    plan = plan_training(**BASIS, noise_multiplier=1.0, sampling_prob=0.5, n=20, steps=8)
    records, released, seen = Records(LINE, [[1.0]] * 20, [1.0] * 20), [], []
    sample, perturb = training._sources(records, plan, seeded(3))

    def noisy(total):
        released.append(perturb(total))
        return released[-1]

    training._descend(
        records, np.zeros(1), plan, training._Descent(optimizer, 0.1, momentum, 0.2), lambda i, p: seen.append(p[0]),
        (sample, noisy),
    )  # fmt: skip
    w, m, v = 0.0, 0.0, 0.0
    for t, total in enumerate(released, start=1):
        g = total[0] / 10 + 0.2 * w
        if optimizer == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            g = (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        else:
            m = g = momentum * m + g
        w -= 0.1 * g
        assert seen[t - 1] == pytest.approx(w, rel=1e-12)


def quiet(records, plan, steps=3000, rate=1.0, l2=0.0):
    """Train without noise and without sampling: what no public function does."""
    plan = dataclasses.replace(plan, steps=steps)
    return training._descend(
        records, np.zeros(records.model.size), plan, training._Descent("sgd", rate, 0.9, l2), lambda i, p: None,
        (lambda: np.arange(records.count), lambda total: total),
    )  # fmt: skip


def test_without_noise_it_solves_least_squares():
    rng = seeded(1)
    X = rng.uniform(-1, 1, (200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 + rng.normal(0, 0.1, 200)
    plan = plan_training(**{**BASIS, "clipping_norm": 1000.0}, noise_multiplier=1.0, sampling_prob=1.0, n=200, steps=1)
    found = quiet(Records(Model(features=3, loss="squared"), X, y), plan, 500, 0.5)
    expected = np.linalg.lstsq(np.c_[X, np.ones(200)], y, rcond=None)[0]
    assert found == pytest.approx(expected, abs=5e-3)  # a clipping norm of 1000 has steps of 2**-20 of it


@pytest.mark.parametrize("classes", [2, 4])
def test_without_noise_it_finds_scikit_learns_logistic_regression(classes):
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = seeded(2)
    X = rng.uniform(-1, 1, (300, 5))
    y = (X @ rng.normal(0, 3, (5, classes)) + rng.normal(0, 1, (300, classes))).argmax(axis=1)
    l2 = 0.01
    reference = linear_model.LogisticRegression(C=1 / (l2 * 300), tol=1e-10, max_iter=10_000).fit(X, y)
    loss = {"loss": "logistic"} if classes == 2 else {"loss": "softmax", "outputs": classes}
    model = Model(features=5, **loss)
    plan = plan_training(**{**BASIS, "clipping_norm": 10.0}, noise_multiplier=1.0, sampling_prob=1.0, n=300, steps=1)
    matrix = model.layers(quiet(Records(model, X, y), plan, 2000, 1.0, l2))[0]
    assert pytest.approx(reference.coef_, abs=5e-3) == matrix[:-1].T
    constant, expected = matrix[-1], reference.intercept_
    assert constant - constant.mean() == pytest.approx(expected - expected.mean(), abs=5e-3) if classes > 2 else True
    assert classes > 2 or constant == pytest.approx(expected, abs=5e-3)


def test_a_plan_is_checked_however_it_is_made():
    plan = plan_training(**ONE)
    for name, bad in (
        ("noise_multiplier", 1e-6), ("noise_multiplier", -1.0), ("sampling_prob", 1.1), ("steps", 0), ("divisor", 0.0),
        ("clipping_norm", math.inf), ("neighbors", "x"), ("delta", 0.0), ("delta", math.nan),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} must be"):
            dataclasses.replace(plan, **{name: bad})
    with pytest.raises(ValueError, match="expected_batch_size must be larger"):
        plan_training(**{**ONE, "sampling_prob": None, "expected_batch_size": 1e-320, "n": 2**53})


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e-60, 1e300])
def test_no_divisor_makes_steps_that_are_no_numbers(optimizer, momentum, size):
    """Parameters that are NaN would show whether a batch is empty: a sum over nobody is 0, and any other NaN."""
    plan = plan_training(**{**ONE, "clipping_norm": 2.0**100, "expected_batch_size": size, "steps": 6})
    for people in (0, 3):
        found = training.dp_sgd(
            LINE, np.ones((people, 1)), np.ones(people), plan=plan, learning_rate=1e6, optimizer=optimizer,
            momentum=momentum, l2=1e6, rng=seeded(),
        )  # fmt: skip
        assert np.isfinite(found).all()


def test_no_public_function_trains_without_noise():
    for multiplier in (0, 0.0, 1e-3, None):
        with pytest.raises((TypeError, ValueError), match="noise_multiplier must be"):
            plan_training(**{**ONE, "noise_multiplier": multiplier})


def test_seeds_repeat_and_entropy_does_not():
    plan = plan_training(**{**ONE, "steps": 5})
    run = lambda rng: training.dp_sgd(LINE, [[1.0]] * 9, [1.0] * 9, plan=plan, learning_rate=0.1, rng=rng)[0]  # noqa: E731
    assert run(seeded(4)) == run(seeded(4))
    assert len({run(None), run(None), run(seeded(4)), run(seeded(5))}) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": 1e7}, "learning_rate must be at most"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum must be 0 with adam"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of"),
        ({"l2": -1.0}, "l2 must be non-negative"),
        ({"callback": 3}, "callback must be callable"),
        ({"progress": 1}, "progress must be True or False"),
        ({"start": [0.0, 0.0]}, "start must be a vector of 1 numbers"),
        ({"plan": None}, "plan must be a Plan"),
        ({"rng": 0}, "rng must be None"),
        ({"ledger": 3}, "ledger must be a Ledger"),
    ],
)
def test_bad_arguments_are_refused_before_the_data(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        training.dp_sgd(LINE, None, None, **{"plan": plan_training(**ONE), "learning_rate": 0.1, **arguments})


def test_a_line_of_progress_goes_to_stderr_alone(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    plan = plan_training(**{**ONE, "steps": 5})
    training.dp_sgd(LINE, [[1.0]], [1.0], plan=plan, learning_rate=0.1)
    assert stream.getvalue() == ""  # no terminal
    training.dp_sgd(LINE, [[1.0]], [1.0], plan=plan, learning_rate=0.1, progress=True)
    assert stream.getvalue().endswith("step 5 of 5\n")


# --- the ledger ------------------------------------------------------------------------------------------------------


class Unread:
    def __array__(self, *args, **keywords):
        raise AssertionError("the data was read")


def test_a_ledger_is_charged_before_the_data_is_read_or_refuses():
    ledger = budget.Ledger(budget.basic(epsilon=3.0, delta=2e-5, neighbors="add_remove"))
    plan = plan_training(**BASIS, target_epsilon=2.0, sampling_prob=0.1, n=100, steps=20)
    with pytest.raises(AssertionError, match="was read"):
        training.dp_sgd(LINE, Unread(), [1.0], plan=plan, learning_rate=0.1, ledger=ledger)
    (line,) = ledger.history
    assert Fraction(line.amount["epsilon"]) >= Fraction(plan.epsilon)
    with pytest.raises(budget.BudgetExceededError):
        training.dp_sgd(LINE, Unread(), [1.0], plan=plan, learning_rate=0.1, ledger=ledger)
    assert len(ledger.history) == 1


def test_what_is_charged_is_never_below_the_cost():
    for multiplier in (0.7, 1.0, 2.3):
        ledger = budget.Ledger(budget.basic(epsilon=100.0, delta=1e-4, neighbors="replace_one"))
        plan = plan_training(**{**ONE, "noise_multiplier": multiplier, "neighbors": "replace_one"})
        training.charge(plan, ledger=ledger, label="x")
        amount = ledger.history[0].amount
        d = math.nextafter(float(amount["delta"]), 0.0)
        assert Fraction(amount["epsilon"]) >= Fraction(plan.account.epsilon(delta=d))
        with pytest.raises(ValueError, match="epsilon must be above the plan's own"):
            training.charge(plan, ledger=ledger, label="x", epsilon=plan.epsilon * 0.999)


def test_ledgers_of_other_terms_are_refused():
    plan = plan_training(**ONE)
    with pytest.raises(ValueError, match="ledger must be for neighbors='add_remove', got 'replace_one'"):
        training.charge(
            plan, ledger=budget.Ledger(budget.basic(epsilon=9.0, delta=1e-5, neighbors="replace_one")), label="x"
        )
    rho = budget.Ledger(budget.zcdp(rho=9.0, neighbors="add_remove"))
    with pytest.raises(ValueError, match="basic budget for sampled batches"):
        training.charge(plan, ledger=rho, label="x")
    whole = plan_training(**{**ONE, "sampling_prob": 1.0, "noise_multiplier": 3.0, "steps": 6})
    training.charge(whole, ledger=rho, label="x")
    assert float(rho.spent["rho"]) == pytest.approx(6 / 18)
    assert Fraction(rho.spent["rho"]) >= Fraction(6, 18)
    replaced = budget.Ledger(budget.zcdp(rho=9.0, neighbors="replace_one"))
    training.charge(dataclasses.replace(whole, neighbors="replace_one"), ledger=replaced, label="x")
    assert float(replaced.spent["rho"]) == pytest.approx(4 * 6 / 18)
    assert Fraction(replaced.spent["rho"]) >= Fraction(4 * 6, 18)


# --- audits: a planted record, and faulty twins ----------------------------------------------------------------------


def out_of(fault, records, plan, rng):
    """Return the sample, the noise and the sum of a step with this fault."""
    sample, perturb = training._sources(records, plan, rng)
    total, divisor, noises = records.clipped_sum, plan.divisor, itertools.count()
    if fault == "no clipping":
        return lambda w: perturb(records.clipped_sum(w, 50.0, sample())) / divisor
    if fault == "the mean is clipped":

        def mean(w):
            whole = records.clipped_sum(w, 50.0, sample())
            size = np.linalg.norm(whole) / divisor
            return perturb(whole / max(1.0, size)) / divisor

        return mean
    if fault == "half the noise":
        halved = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier / 2)
        _, perturb = training._sources(records, halved, rng)
    if fault == "noise once an epoch":
        return lambda w: (perturb if next(noises) % 4 == 0 else np.asarray)(total(w, 1.0, sample())) / divisor
    if fault == "size of the batch":

        def own(w):
            index = sample()
            return perturb(total(w, 1.0, index)) / max(len(index), 1)

        return own
    return lambda w: perturb(total(w, plan.clipping_norm, sample())) / divisor


CANARY, OTHERS = ([[1.0]], [-40.0]), ([[0.01]] * 4, [0.0] * 4)
PEOPLE = Records(LINE, *OTHERS), Records(LINE, OTHERS[0] + CANARY[0], OTHERS[1] + CANARY[1])
STEP = {**BASIS, "delta": 0.05, "expected_batch_size": 2}
FAULTS = ["no clipping", "the mean is clipped", "half the noise"]


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_an_audit_of_one_step_catches_faults(fault):
    plan = plan_training(**STEP, noise_multiplier=1.0, sampling_prob=0.5, steps=1)
    rng = seeded(11)

    def release(records, count):
        step = out_of(fault, records, plan, rng)
        return np.array([step(np.zeros(1))[0] for _ in range(count)])

    found = audit.audit(release, *PEOPLE, epsilon=plan.epsilon, delta=0.05, draws=6000, vectorized=True)
    assert found.violated == bool(fault), found


@pytest.mark.parametrize("fault", ["", "no clipping", "noise once an epoch", "half the noise", "size of the batch"])
def test_an_audit_of_a_whole_training_catches_faults(fault):
    """All models on the way are released."""
    empty = fault == "size of the batch"  # whoever is alone in a batch shows by the size of the noise
    plan = plan_training(**STEP, noise_multiplier=2.0, sampling_prob=1.0 if empty else 0.5, steps=8)
    zero = Records(LINE, [[0.0]], [0.0]), Records(LINE, [[0.0]] * 2, [0.0] * 2)
    rng = seeded(12)

    def release(records, count):
        outputs = np.empty((count, 8))
        for row in outputs:
            step, w = out_of(fault, records, plan, rng), np.zeros(1)
            for i in range(8):
                w = w - 0.5 * step(w)
                row[i] = w[0]
        updates = np.diff(outputs, axis=1, prepend=0.0)
        return np.c_[outputs[:, -1], (updates**2).sum(axis=1), updates]

    pair = zero if empty else PEOPLE
    found = audit.audit(release, *pair, epsilon=plan.epsilon, delta=0.05, draws=3000, vectorized=True)
    assert found.violated == bool(fault), found
