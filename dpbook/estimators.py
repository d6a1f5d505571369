"""Estimators trained with DP-SGD, and a scaler with public bounds, in scikit-learn's conventions.

They have `fit`, `predict`, `score`, `get_params` and `set_params`, work in its pipelines and with its `clone`, and do
not need it. What differs is what privacy asks for:

- The classes, the bounds and a number n of records are arguments, public, and never read from the data. So is the
  number of columns.
- Every `fit` is a spend. ``accountant_`` adds up all fits of one object, and ``epsilon_`` is what they cost together. A
  ledger is charged before the data is read, and clones share it: a copy would spend its budget twice.
- The models on the way are covered by the same ε. Cross-validation and `GridSearchCV` on private data are not: each
  fit and each score is one more release. `dpbook.trials` chooses among settings at a known price.
- In a pipeline every step before must be private too. A `StandardScaler` that is fitted to the data is not.

`dpbook.training` says what is guaranteed, and why.
"""

import importlib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpbook import _validate, gradients, training
from dpbook._validate import FloatArray
from dpbook.accounting import Accountant
from dpbook.gradients import Model, Records
from dpbook.training import Plan


@dataclass(kw_only=True, eq=False, repr=False)
class _Estimator:
    """What scikit-learn asks of an estimator; the fields are the parameters of the constructor."""

    _estimator_type: ClassVar[str] = ""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor, as they are."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def set_params(self, **params: Any) -> Any:
        """Set parameters of the constructor, and return the object."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(f"params must be of {sorted(known)}, got {name!r}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = {f.name: f.default for f in fields(self) if f.init}
        parts = [
            f"{name}={_validate.shown(value)}"
            for name, value in self.get_params().items()
            if shown[name] is MISSING or value is not shown[name]
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __sklearn_clone__(self) -> Any:
        # Clones share the ledger: a copy of it would spend its budget twice.
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        utils = importlib.import_module("sklearn.utils")  # only scikit-learn calls this
        kind = self._estimator_type
        return utils.Tags(
            estimator_type=kind or None,
            target_tags=utils.TargetTags(required=bool(kind)),
            transformer_tags=None if kind else utils.TransformerTags(),
            classifier_tags=utils.ClassifierTags() if kind == "classifier" else None,
            regressor_tags=utils.RegressorTags() if kind == "regressor" else None,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class _Trained(_Estimator):
    """What the estimators share that are trained with DP-SGD."""

    neighbors: str
    delta: float
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    clipping_norm: float = 1.0
    sampling_prob: float | None = None
    expected_batch_size: float | None = None
    n: int | None = None
    steps: int | None = None
    epochs: float | None = None
    learning_rate: float = 1.0
    optimizer: str = "sgd"
    momentum: float = 0.0
    l2: float = 0.0
    fit_intercept: bool = True
    warm_start: bool = False
    keep_models: bool = False
    ledger: Any = None
    label: str = "training"
    callback: Callable[[int, FloatArray], Any] | None = None
    progress: bool | None = None
    rng: np.random.Generator | None = None
    parameters_: FloatArray = field(init=False)
    model_: Model = field(init=False)
    models_: FloatArray = field(init=False)
    plan_: Plan = field(init=False)
    accountant_: Accountant = field(init=False)

    _planned: ClassVar[tuple[str, ...]] = (
        "neighbors", "delta", "clipping_norm", "target_epsilon", "noise_multiplier", "sampling_prob",
        "expected_batch_size", "n", "steps", "epochs",
    )  # fmt: skip

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "parameters_")

    @property
    def epsilon_(self) -> float:
        """The ε, at the δ of the last `fit`, of all fits of this object: every fit is a spend."""
        self._fitted()
        return self.accountant_.epsilon(delta=self.plan_.delta)

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""
        return self._fitted().features

    def _fitted(self) -> Model:
        if not hasattr(self, "parameters_"):
            raise AttributeError(f"this {type(self).__name__} must be fitted first")
        return self.model_

    def _outputs(self, rows: Any) -> FloatArray:
        return gradients.outputs(self._fitted(), self.parameters_, _validate.rows(X=rows))

    def _train(
        self, shape: dict[str, Any], rows: Any, read_targets: Callable[[], Any], seed: int = 0, **public: Any
    ) -> None:
        """Plan, charge, and only then read the data and run."""
        plan = training.plan_training(**{name: getattr(self, name) for name in self._planned})
        descent = training._Descent(self.optimizer, self.learning_rate, self.momentum, self.l2)
        Model(features=1, **shape)  # refused before the data is read
        warm, keep = _validate.flag(warm_start=self.warm_start), _validate.flag(keep_models=self.keep_models)
        _validate.generator(self.rng)
        told = training._reporter(plan, self.callback, self.progress)
        before = getattr(self, "accountant_", None)
        if before is not None and before.neighbors != plan.neighbors:
            raise ValueError(f"neighbors must stay {before.neighbors!r} in a second fit, got {plan.neighbors!r}")
        training.charge(plan, ledger=self.ledger, label=self.label, epsilon=self.target_epsilon)

        data = _validate.rows(X=rows)
        model = Model(features=data.shape[1], **shape)
        start = gradients.starting_parameters(model, seed=seed)
        if warm and getattr(self, "model_", None) == model:
            start = self.parameters_
        records = Records(model, data, read_targets())
        # Before the first step: an interrupted training is paid for too.
        account = Accountant(neighbors=plan.neighbors) if before is None else before
        self.accountant_ = account.add(plan.mechanism, steps=plan.steps)
        self.plan_, self.model_, self.parameters_ = plan, model, start
        for name, value in public.items():
            setattr(self, name, value)
        models: list[FloatArray] = []

        def report(step: int, parameters: FloatArray) -> None:
            self.parameters_ = parameters
            if keep:
                models.append(parameters)
            told(step, parameters)

        training._descend(records, start, plan, descent, report, training._sources(records, plan, self.rng))
        if keep:
            self.models_ = np.array(models)


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(_Trained):
    classes: Any
    classes_: npt.NDArray[Any] = field(init=False)

    _estimator_type: ClassVar[str] = "classifier"

    def _fit(self, rows: Any, labels: Any, seed: int = 0, **layers: Any) -> None:
        table = _validate.categories(2, classes=self.classes)
        shape: dict[str, Any] = (
            {"outputs": 1, "loss": "logistic"} if len(table) == 2 else {"outputs": len(table), "loss": "softmax"}
        )
        shape = {**shape, "intercept": self.fit_intercept, **layers}
        self._train(shape, rows, lambda: _validate.codes(table, y=labels), seed, classes_=_keys(table))

    def decision_function(self, X: Any) -> FloatArray:
        """Return the outputs: one number for each row with two classes, else one for each class."""
        scores = self._outputs(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, in the order of `classes`."""
        return gradients.probabilities(self._fitted(), self._outputs(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: Any) -> float:
        """Return the share of right predictions: a number about the data given, which is not private."""
        table = _validate.categories(2, classes=self.classes)
        codes = _validate.codes(table, y=y)
        right = self.predict_proba(X).argmax(axis=1) == codes
        return float(right.mean()) if len(right) else 0.0


def _keys(table: dict[Any, int]) -> npt.NDArray[Any]:
    """Return the classes as an array: of numbers or texts where all are of one type, else of objects."""
    keys = list(table)
    if len({type(key) for key in keys}) == 1 and isinstance(keys[0], (int, float, str, np.generic)):
        return np.array(keys)
    result = np.empty(len(keys), dtype=object)
    result[:] = keys
    return result


class _Linear:
    """The weights under the names of scikit-learn's linear models."""

    def _matrix(self) -> tuple[FloatArray, FloatArray]:
        fitted: Any = self
        model = fitted._fitted()
        matrix = model.layers(fitted.parameters_)[0]
        return matrix[: model.features].T, matrix[-1] if model.intercept else np.zeros(matrix.shape[1])


@dataclass(kw_only=True, eq=False, repr=False)
class DPLogisticRegression(_Linear, _Classifier):
    """Logistic regression by DP-SGD, (ε, δ)-DP under the neighbour relation that is named; multinomial from 3 classes.

    Parameters
    ----------
    classes : list or tuple
        The classes, public: never those that occur in the data.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation; one row a person.
    delta : float
        δ in (0, 1).
    target_epsilon : float, optional
        ε that must not be passed: the least noise that keeps it is taken. Or else:
    noise_multiplier : float, optional
        Standard deviation of the noise over the clipping norm.
    clipping_norm : float, optional
        The most that one record adds to a sum of gradients, in L2.
    sampling_prob, expected_batch_size, n, steps, epochs : optional
        As in `dpbook.training.plan_training`: a public number n of records, with one of the first two, and one of the
        last two.
    learning_rate, optimizer, momentum, l2, callback, progress, ledger, label : optional
        As in `dpbook.training.dp_sgd`.
    fit_intercept : bool, optional
        Whether there are intercepts.
    warm_start : bool, optional
        Whether a second `fit` starts from the parameters of the first. It is a second spend in any case.
    keep_models : bool, optional
        Whether the parameters after each step are kept, in ``models_``: covered by the same ε.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded training is reproducible and therefore NOT private.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_ :
        As in scikit-learn.
    accountant_ : dpbook.accounting.Accountant
        All that this object was fitted to; ``epsilon_`` is its ε at `delta`.
    plan_, model_, parameters_ :
        What was run, the network, and all its parameters in one vector.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "left", "right")
    >>> model = DPLogisticRegression(classes=["left", "right"], neighbors="add_remove", target_epsilon=1.0,
    ...                              delta=1e-5, n=2000, sampling_prob=0.1, epochs=10, rng=rng).fit(X, y)
    >>> model.score(X, y) > 0.9, model.epsilon_ <= 1.0
    (True, True)
    """

    learning_rate: float = 2.0

    def fit(self, X: Any, y: Any) -> "DPLogisticRegression":
        """Train, and return the estimator: (ε, δ)-DP. A second `fit` is a second spend.

        A row with an entry that is no finite number, or with a label that is not one of `classes`, has gradient zero.
        """
        self._fit(X, y)
        return self

    @property
    def coef_(self) -> FloatArray:
        """The weights, one row for each class, or one row in all with two classes."""
        return np.array(self._matrix()[0])

    @property
    def intercept_(self) -> FloatArray:
        """The intercepts, one for each row of ``coef_``."""
        return np.array(self._matrix()[1])


@dataclass(kw_only=True, eq=False, repr=False)
class DPNeuralClassifier(_Classifier):
    """A small fully connected network by DP-SGD, (ε, δ)-DP under the neighbour relation that is named.

    Parameters
    ----------
    classes : list or tuple
        The classes, public: never those that occur in the data.
    hidden : tuple of int, optional
        Widths of the hidden layers.
    activation : {"tanh", "relu"}, optional
        Of the hidden layers. Bounded ones often do better under clipping (Papernot et al., 2021).
    start_seed : int, optional
        Of the first weights, which are public.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation; one row a person.
    delta : float
        δ in (0, 1).
    target_epsilon, noise_multiplier, clipping_norm : float, optional
        As in `DPLogisticRegression`.
    sampling_prob, expected_batch_size, n, steps, epochs : optional
        As in `dpbook.training.plan_training`: a public number n of records, with one of the first two, and one of the
        last two.
    learning_rate, optimizer, momentum, l2, callback, progress, ledger, label : optional
        As in `dpbook.training.dp_sgd`.
    fit_intercept, warm_start, keep_models : bool, optional
        As in `DPLogisticRegression`.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded training is reproducible and therefore NOT private.

    Attributes
    ----------
    classes_, n_features_in_ :
        As in scikit-learn.
    accountant_ : dpbook.accounting.Accountant
        All that this object was fitted to; ``epsilon_`` is its ε at `delta`.
    plan_, model_, parameters_ :
        What was run, the network, and all its parameters in one vector.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1; Papernot, Thakurta, Song, Chien, Erlingsson
    (2021), Tempered sigmoid activations for deep learning with differential privacy.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = DPNeuralClassifier(classes=[False, True], hidden=(16,), neighbors="add_remove", noise_multiplier=1.0,
    ...                            delta=1e-5, n=2000, sampling_prob=0.1, epochs=40, rng=rng).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    hidden: tuple[int, ...] = (32,)
    activation: str = "tanh"
    start_seed: int = 0
    learning_rate: float = 2.0

    def fit(self, X: Any, y: Any) -> "DPNeuralClassifier":
        """Train, and return the estimator: (ε, δ)-DP. A second `fit` is a second spend.

        A row with an entry that is no finite number, or with a label that is not one of `classes`, has gradient zero.
        """
        seed = _validate.integer(0, start_seed=self.start_seed)
        self._fit(X, y, seed, hidden=self.hidden, activation=self.activation)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearRegression(_Linear, _Trained):
    """Linear regression by DP-SGD on the squared loss, (ε, δ)-DP under the neighbour relation that is named.

    Parameters
    ----------
    target_bounds : tuple of float
        Public bounds of the targets, which are clipped to them. Inside, a target is counted from -1 to 1, so that the
        learning rate and the clipping norm need not know the unit.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation; one row a person.
    delta : float
        δ in (0, 1).
    target_epsilon, noise_multiplier, clipping_norm : float, optional
        As in `DPLogisticRegression`.
    sampling_prob, expected_batch_size, n, steps, epochs : optional
        As in `dpbook.training.plan_training`: a public number n of records, with one of the first two, and one of the
        last two.
    learning_rate, optimizer, momentum, l2, callback, progress, ledger, label : optional
        As in `dpbook.training.dp_sgd`.
    fit_intercept, warm_start, keep_models : bool, optional
        As in `DPLogisticRegression`.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded training is reproducible and therefore NOT private.

    Attributes
    ----------
    coef_, intercept_, n_features_in_ :
        As in scikit-learn, in the unit of the targets.
    accountant_ : dpbook.accounting.Accountant
        All that this object was fitted to; ``epsilon_`` is its ε at `delta`.
    plan_, model_, parameters_ :
        What was run, the network, and all its parameters in one vector, for targets from -1 to 1.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = 50 + X @ [30.0, -10.0]
    >>> model = DPLinearRegression(target_bounds=(0, 100), neighbors="add_remove", target_epsilon=1.0, delta=1e-5,
    ...                            n=2000, sampling_prob=0.1, epochs=10, rng=rng).fit(X, y)
    >>> model.score(X, y) > 0.9, bool(25 < model.coef_[0] < 35)
    (True, True)
    """

    target_bounds: tuple[float, float]
    learning_rate: float = 0.5
    target_unit_: tuple[float, float] = field(init=False)  # middle and half width of the bounds

    _estimator_type: ClassVar[str] = "regressor"

    def _unit(self) -> tuple[float, float]:
        lower, upper = _validate.bounds(target_bounds=self.target_bounds)
        if lower == upper:
            raise ValueError(f"target_bounds must have lower < upper, got ({lower}, {upper})")
        return lower + (upper - lower) / 2, (upper - lower) / 2

    def fit(self, X: Any, y: Any) -> "DPLinearRegression":
        """Train, and return the estimator: (ε, δ)-DP. A second `fit` is a second spend.

        A row with an entry, or a target, that is no finite number has gradient zero.
        """
        middle, half = self._unit()

        def targets() -> FloatArray:
            with np.errstate(all="ignore"):
                values = _validate.records(y=y)
                bad = ~np.isfinite(values)
                values = np.clip((values - middle) / half, -1.0, 1.0)
            values[bad] = np.nan
            return values

        shape = {"loss": "squared", "intercept": self.fit_intercept}
        self._train(shape, X, targets, target_unit_=(middle, half))
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the value of the line for each row, which may leave the bounds."""
        values = self._outputs(X)[:, 0]
        return np.asarray(self.target_unit_[0] + self.target_unit_[1] * values)

    def score(self, X: Any, y: Any) -> float:
        """Return R²: a number about the data given, which is not private. Records that are no numbers are left out."""
        predicted, values = self.predict(X), _validate.records(y=y)
        known = np.isfinite(values)
        if not known.any():
            return 0.0
        with np.errstate(all="ignore"):
            scale = max(1.0, float(np.abs(values[known]).max()), float(np.abs(predicted[known]).max()))
            values, predicted = values[known] / scale, predicted[known] / scale  # so that no square overflows
            residual = float(((values - predicted) ** 2).sum())
            spread = float(((values - values.mean()) ** 2).sum())
        return 1.0 - residual / spread if spread else float(residual == 0)

    @property
    def coef_(self) -> FloatArray:
        """The slope of each column."""
        return np.asarray(self._matrix()[0][0] * self.target_unit_[1])

    @property
    def intercept_(self) -> float:
        """The value at the origin."""
        return float(self.target_unit_[0] + self.target_unit_[1] * self._matrix()[1][0])


@dataclass(kw_only=True, eq=False, repr=False)
class BoundedScaler(_Estimator):
    """Clip each column to public bounds and map them to [-1, 1], or the row into the unit ball: costs nothing.

    Each row is mapped by public numbers alone, so under either neighbour relation neighbours stay neighbours. A scaler
    that is fitted to the data mixes people's rows.

    Parameters
    ----------
    bounds : tuple of float, or list of tuples
        Public bounds (lower, upper), with lower < upper: one pair for all columns, or one for each.
    unit_ball : bool, optional
        Divide by the square root of the number of columns too, so that each row has an L2 norm of at most 1.

    References
    ----------
    Dwork, Roth (2014), Prop. 2.1, for each record on its own.

    Examples
    --------
    >>> BoundedScaler(bounds=[(0, 100), (-1, 1)]).fit_transform([[25, 3], [100, None]])
    array([[-0.5,  1. ],
           [ 1. ,  nan]])
    """

    bounds: Any
    unit_ball: bool = False

    def _pairs(self, columns: int | None = None) -> tuple[FloatArray, FloatArray]:
        given = self.bounds
        if isinstance(given, (list, tuple, np.ndarray)) and len(given) and np.ndim(given[0]):
            pairs = [_validate.bounds(**{f"bounds[{i}]": pair}) for i, pair in enumerate(given)]
            if columns is not None and len(pairs) != columns:
                raise ValueError(f"bounds must be one pair, or one for each of {columns} columns, got {len(pairs)}")
        else:
            pairs = [_validate.bounds(bounds=given)]
        lower, upper = np.array(pairs).T
        if not (lower < upper).all():
            raise ValueError(f"bounds must have lower < upper, got {_validate.shown(given)}")
        return lower, upper

    def fit(self, X: Any = None, y: Any = None) -> "BoundedScaler":
        """Check the bounds, and return the object. It does not look at the data."""
        self._pairs()
        _validate.flag(unit_ball=self.unit_ball)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the rows, scaled; an entry that is no number is NaN, and its row has gradient zero in training."""
        data = _validate.rows(X=X)
        lower, upper = self._pairs(data.shape[1])
        ball = _validate.flag(unit_ball=self.unit_ball)
        with np.errstate(all="ignore"):
            result = np.clip((np.clip(data, lower, upper) - lower) / (upper - lower) * 2 - 1, -1.0, 1.0)
        return result / np.sqrt(max(data.shape[1], 1)) if ball else result

    def fit_transform(self, X: Any, y: Any = None) -> FloatArray:
        """Return the rows, scaled."""
        return self.fit().transform(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True
