"""The estimators train by DP-SGD, keep scikit-learn's conventions, and take nothing public from the data."""

import copy
import io
import pickle

import numpy as np
import pytest

from dpbook import accounting, budget, estimators
from dpbook.estimators import BoundedScaler, DPLinearRegression, DPLogisticRegression, DPNeuralClassifier

COMMON = {"neighbors": "add_remove", "delta": 1e-5, "n": 1000, "sampling_prob": 0.1, "steps": 20}
MAKERS = {
    "logistic": lambda **more: DPLogisticRegression(
        **{"classes": ["no", "yes"], "noise_multiplier": 1.0, **COMMON, **more}
    ),
    "multinomial": lambda **more: DPLogisticRegression(
        **{"classes": ["no", "yes", "maybe"], "noise_multiplier": 1.0, **COMMON, **more}
    ),
    "network": lambda **more: DPNeuralClassifier(
        **{"classes": ["no", "yes"], "hidden": (4,), "noise_multiplier": 1.0, **COMMON, **more}
    ),
    "linear": lambda **more: DPLinearRegression(
        **{"target_bounds": (0, 10), "noise_multiplier": 1.0, **COMMON, **more}
    ),
}
EVERY = pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: for tests, not private


def people(maker, n=300):
    X = seeded(1).uniform(-1, 1, (n, 3))
    linear = isinstance(maker(), DPLinearRegression)
    return X, 5 + 3 * X[:, 0] if linear else np.where(X[:, 0] > 0, "yes", "no")


@EVERY
def test_what_ran_is_in_the_account_and_a_second_fit_adds_to_it(maker):
    X, y = people(maker)
    model = maker(rng=seeded())
    assert model.fit(X, y) is model
    step = accounting.SubsampledGaussian(noise_multiplier=1.0, sampling_prob=0.1)
    for fits in (1, 2):
        ((mechanism, steps),) = model.accountant_.entries
        assert (repr(mechanism), steps) == (repr(step), 20 * fits)
        account = accounting.Accountant(neighbors="add_remove").add(step, steps=20 * fits)
        assert model.epsilon_ == account.epsilon(delta=1e-5)
        model.fit(X, y)
    with pytest.raises(ValueError, match="neighbors must stay 'add_remove' in a second fit"):
        model.set_params(neighbors="replace_one").fit(X, y)


@EVERY
def test_a_target_is_kept(maker):
    X, y = people(maker)
    model = maker(noise_multiplier=None, target_epsilon=2.0, rng=seeded()).fit(X, y)
    assert 1.9 < model.epsilon_ <= 2.0


@EVERY
def test_a_fitted_estimator_holds_no_data(maker):
    """It will be pickled and passed on: what is in it is what was released, and what is public."""
    model = maker(rng=seeded(), keep_models=True).fit(*people(maker))
    public = {"plan_", "model_", "classes_", "target_unit_"}
    released = {"parameters_", "models_", "accountant_"}
    assert set(vars(model)) - set(model.get_params()) <= public | released
    assert len(pickle.dumps(model)) < 3000 + model.models_.nbytes + len(pickle.dumps(seeded()))


@EVERY
def test_clones_share_the_generator(maker):
    """A copy of a generator would give two models the same noise, and their difference none."""
    X, y = people(maker)
    model = maker(rng=seeded())
    twin = model.__sklearn_clone__()
    assert twin.rng is model.rng
    assert not np.array_equal(model.fit(X, y).parameters_, twin.fit(X, y).parameters_)


@EVERY
def test_the_account_stands_before_the_first_step(maker):
    """Whoever stops a training has paid for all of it, and keeps the parameters reached."""

    def stop(step, parameters):
        if step == 3:
            raise KeyboardInterrupt

    X, y = people(maker)
    model = maker(rng=seeded(), callback=stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.accountant_.entries[0][1] == 20
    assert model.parameters_.any()


@EVERY
def test_a_ledger_is_charged_first_and_shared_by_clones(maker):
    X, y = people(maker)
    ledger = budget.Ledger(budget.basic(epsilon=3.0, delta=1e-4, neighbors="add_remove"))
    model = maker(noise_multiplier=None, target_epsilon=2.0, ledger=ledger, label="a model", rng=seeded())
    model.fit(X, y)
    assert [(line.label, float(line.amount["epsilon"])) for line in ledger.history] == [("a model", 2.0)]
    with pytest.raises(budget.BudgetExceededError):
        model.__sklearn_clone__().fit(None, None)  # refused before the data is looked at
    with pytest.raises(TypeError, match="must not be copied"):
        copy.deepcopy(model)


@EVERY
def test_warm_start_and_kept_models(maker):
    X, y = people(maker)
    model = maker(rng=seeded(), keep_models=True, warm_start=True).fit(X, y)
    first = model.parameters_.copy()
    assert model.models_.shape == (20, model.model_.size)
    assert np.array_equal(model.models_[-1], first)
    model.fit(X, y)
    assert np.abs(model.models_[0] - first).max() < np.abs(first).max() + 1
    assert not np.array_equal(model.models_[0], maker(rng=seeded(), keep_models=True).fit(X, y).models_[0])


@EVERY
@pytest.mark.parametrize("n", [1, 2, 300])
def test_bad_records_never_raise_and_never_change_a_shape(maker, n):
    X, y = people(maker, n)
    good = maker(rng=seeded()).fit(X, y)
    for bad in (np.nan, np.inf, -np.inf, 1e308):
        spoilt = X.copy()
        spoilt[0] = bad
        model = maker(rng=seeded()).fit(spoilt, y)
        assert model.parameters_.shape == good.parameters_.shape
        assert np.isfinite(model.parameters_).all()
        assert model.predict(spoilt).shape == (n,)
    labels = y.astype(object)
    for odd in ("unheard of", None, np.nan, 3.5, [1]):
        labels[0] = odd
        assert maker(rng=seeded()).fit(X, labels).parameters_.shape == good.parameters_.shape


@EVERY
def test_predictions_have_the_usual_shapes(maker):
    X, y = people(maker)
    model = maker(rng=seeded()).fit(X, y)
    assert model.n_features_in_ == 3
    assert model.predict(X).shape == (300,)
    assert -10 < model.score(X, y) <= 1
    if isinstance(model, DPLinearRegression):
        assert model.coef_.shape == (3,)
        assert model.predict(X) == pytest.approx(X @ model.coef_ + model.intercept_)
        return
    k = len(model.classes)
    assert model.predict_proba(X).shape == (300, k)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(300))
    assert model.decision_function(X).shape == ((300,) if k == 2 else (300, k))
    assert model.classes_.tolist() == model.classes
    assert set(model.predict(X)) <= set(model.classes)
    if isinstance(model, DPLogisticRegression):
        scores = X @ model.coef_.T + model.intercept_
        assert np.squeeze(scores) == pytest.approx(model.decision_function(X))


@EVERY
def test_scores_never_warn(maker):
    X, y = people(maker)
    model = maker(rng=seeded()).fit(X, y)
    assert model.score(X[:0], y[:0]) == 0.0  # nobody
    for odd in (np.nan, 1e300, -1.7e308, np.inf, None):
        labels = y.astype(object)
        labels[0] = odd
        assert model.score(X, labels) <= 1.0
        assert model.score(X[:1], labels[:1]) <= 1.0


def test_classes_come_from_the_caller_and_not_from_the_data():
    """A class that nobody has, and labels that are no class: the output's shape says nothing about the labels."""
    X, _ = people(MAKERS["multinomial"])
    for labels in (["no"] * 300, ["other"] * 300, [None] * 300, list(range(300))):
        model = MAKERS["multinomial"](rng=seeded()).fit(X, labels)
        assert model.classes_.tolist() == ["no", "yes", "maybe"]
        assert model.coef_.shape == (3, 3)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'classes'"):
        DPLogisticRegression(neighbors="add_remove", delta=1e-5)
    for classes in ([1], [1, 1], "ab", None):
        with pytest.raises((TypeError, ValueError), match="classes must be"):
            MAKERS["logistic"](classes=classes).fit(None, None)


def test_booleans_and_whole_numbers_are_classes_too():
    X, y = people(MAKERS["logistic"])
    for classes, labels in (([False, True], y == "yes"), ([0, 1], (y == "yes").astype(int))):
        model = MAKERS["logistic"](classes=classes, noise_multiplier=0.5, steps=100, rng=seeded()).fit(X, labels)
        assert model.predict(X).dtype == np.asarray(classes).dtype
        assert model.score(X, labels) > 0.8


def test_linear_regression_works_in_the_unit_of_the_targets():
    X = seeded(3).uniform(-1, 1, (5000, 2))
    y = 2000.0 + X @ [300.0, -500.0]
    model = DPLinearRegression(
        target_bounds=(1000, 3000), neighbors="add_remove", target_epsilon=4.0, delta=1e-5, n=5000, sampling_prob=0.1,
        epochs=20, rng=seeded(),
    ).fit(X, y)  # fmt: skip
    assert model.coef_ == pytest.approx([300, -500], abs=40)
    assert model.intercept_ == pytest.approx(2000, abs=20)
    assert model.score(X, y) > 0.98
    with pytest.raises(ValueError, match="target_bounds must have lower < upper"):
        MAKERS["linear"](target_bounds=(1, 1)).fit(None, None)


def test_targets_are_clipped_to_the_public_bounds():
    X = seeded(3).uniform(-1, 1, (50, 2))
    inside = np.where(X[:, 0] > 0, 10.0, 0.0)
    outside = np.where(X[:, 0] > 0, 1e9, -1e300)
    found = [MAKERS["linear"](rng=seeded(), clipping_norm=100.0).fit(X, y).parameters_ for y in (inside, outside)]
    assert np.array_equal(*found)


def test_sparse_data_are_refused_by_name():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match=r"X must be .*, got csr_matrix"):
        MAKERS["logistic"]().fit(sparse.csr_matrix(np.eye(3)), ["no"] * 3)


def test_all_three_learn():
    X = seeded(4).uniform(-1, 1, (4000, 2))
    kinds = np.digitize(X[:, 0], [-0.3, 0.3])
    common = {"neighbors": "add_remove", "target_epsilon": 3.0, "delta": 1e-5, "n": 4000, "sampling_prob": 0.05}
    three = DPLogisticRegression(classes=[0, 1, 2], **common, epochs=30, learning_rate=4.0, rng=seeded())
    assert three.fit(X, kinds).score(X, kinds) > 0.85
    cross = X[:, 0] * X[:, 1] > 0
    for activation in ("tanh", "relu"):
        network = DPNeuralClassifier(
            classes=[False, True], hidden=(16,), activation=activation, **common, epochs=30, rng=seeded()
        )
        assert network.fit(X, cross).score(X, cross) > 0.85
    adam = DPLogisticRegression(
        classes=[False, True], **common, epochs=10, optimizer="adam", learning_rate=0.1, rng=seeded()
    )
    assert adam.fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.95


@EVERY
def test_parameters_go_in_and_come_out(maker):
    model = maker()
    again = type(model)(**model.get_params())
    assert again.get_params() == model.get_params()
    assert model.set_params(steps=7, clipping_norm=2.0) is model
    assert (model.steps, model.clipping_norm) == (7, 2.0)
    with pytest.raises(ValueError, match="params must be of"):
        model.set_params(C=1.0)
    assert repr(model).startswith(type(model).__name__ + "(")
    assert "steps=7" in repr(model)
    with pytest.raises(TypeError):
        type(model)([0, 1])
    with pytest.raises(AttributeError, match="must be fitted first"):
        model.predict([[1.0, 2.0, 3.0]])
    pickle.loads(pickle.dumps(maker().fit(*people(maker))))


@EVERY
@pytest.mark.parametrize(
    "bad",
    [
        {"neighbors": "both"}, {"delta": 0.0}, {"noise_multiplier": 0.0}, {"sampling_prob": 2.0}, {"steps": 0},
        {"learning_rate": -1.0}, {"optimizer": "x"}, {"fit_intercept": 1}, {"warm_start": 0}, {"keep_models": None},
        {"rng": 0}, {"callback": 1}, {"progress": 0}, {"ledger": 1}, {"label": 1}, {"clipping_norm": 0},
        {"momentum": 1}, {"l2": -1},
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters_are_refused_before_the_data(maker, bad):
    (name,) = bad
    with pytest.raises((TypeError, ValueError), match=name if name != "fit_intercept" else "intercept"):
        maker(**bad).fit(None, None)


def test_a_row_too_many_or_too_few_is_refused():
    for maker in MAKERS.values():
        X, y = people(maker)
        with pytest.raises(ValueError, match="must be of one length"):
            maker().fit(X, y[1:])
        with pytest.raises(ValueError, match="rows must have 3 columns"):
            maker().fit(X, y).predict(X[:, :2])


def test_progress_is_silent_without_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    MAKERS["logistic"]().fit(*people(MAKERS["logistic"]))
    assert stream.getvalue() == ""


# --- the scaler ------------------------------------------------------------------------------------------------------


def test_the_scaler_treats_each_row_on_its_own():
    X = seeded(5).normal(0, 100, (50, 3))
    scaler = BoundedScaler(bounds=[(0, 10), (-1, 1), (-50, 70)])
    whole = scaler.fit(X).transform(X)
    assert np.array_equal(whole, np.concatenate([scaler.fit_transform(X[i : i + 1]) for i in range(50)]))
    assert np.abs(whole).max() == 1.0
    assert scaler.transform([[5, 0, 10]]).tolist() == [[0.0, 0.0, 0.0]]
    assert np.array_equal(BoundedScaler(bounds=(0, 10)).transform(X), np.clip(X, 0, 10) / 5 - 1)


def test_the_scaler_puts_rows_into_the_unit_ball():
    scaled = BoundedScaler(bounds=(-1, 1), unit_ball=True).transform(seeded(6).normal(0, 3, (100, 7)))
    assert np.linalg.norm(scaled, axis=1).max() <= 1 + 1e-15


@pytest.mark.parametrize("bounds", [None, (1, 1), (2, 1), (0, np.inf), [(0, 1), (3, 3)], "ab", 3, [], {"a": 1}])
def test_the_scaler_needs_public_bounds(bounds):
    with pytest.raises((TypeError, ValueError), match="bounds"):
        BoundedScaler(bounds=bounds).fit()


def test_the_scaler_passes_on_bad_records_as_such():
    assert np.isnan(BoundedScaler(bounds=(0, 1)).transform([[np.nan], [None], ["text"]])).all()
    assert BoundedScaler(bounds=(0, 1)).transform([[np.inf], [-np.inf], [1e308]]).ravel().tolist() == [1.0, -1.0, 1.0]
    with pytest.raises(ValueError, match="one for each of 2 columns"):
        BoundedScaler(bounds=[(0, 1)] * 3).transform([[1, 2]])


# --- with scikit-learn, where it is installed ------------------------------------------------------------------------


@EVERY
def test_pipelines_and_clones_of_scikit_learn(maker):
    base = pytest.importorskip("sklearn.base")
    pipeline = pytest.importorskip("sklearn.pipeline")
    X, y = people(maker)
    ledger = budget.Ledger(budget.basic(epsilon=100.0, delta=1e-3, neighbors="add_remove"))
    made = pipeline.make_pipeline(BoundedScaler(bounds=(-1, 1)), maker(ledger=ledger, rng=seeded()))
    twin = base.clone(made)
    assert twin[-1] is not made[-1]
    assert twin[-1].ledger is ledger
    twin.fit(X, y)
    made.fit(X, y)
    assert len(ledger.history) == 2
    assert twin.predict(X).shape == (300,)
    assert twin.score(X, y) == twin[-1].score(X, y)
    kind = base.is_regressor if isinstance(maker(), DPLinearRegression) else base.is_classifier
    assert kind(made)
    assert kind(maker())
    name = type(maker()).__name__.lower()
    assert made.set_params(**{f"{name}__steps": 3})[-1].steps == 3
    assert name in repr(made) + str(made.get_params())


def test_the_module_needs_no_scikit_learn():
    import subprocess
    import sys

    code = "import sys; sys.modules['sklearn'] = None; from dpbook import estimators; print(estimators.BoundedScaler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert estimators.BoundedScaler.__name__ in done.stdout
