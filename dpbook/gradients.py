"""Per-example gradients, and their clipped sum without a rounding error that could leak.

DP-SGD clips the gradient of each record to a norm C and adds noise to the sum. Its proof needs two facts: one record
moves the sum by at most C, and what a record adds depends on no other record. With floats both fail in the last digits.
A product of matrices gives the same row other last digits when another row leaves the batch, and a sum rounds after
each term. Here everything that mixes records, or entries of a record, is arithmetic of whole numbers below 2**53, which
float64 does exactly in any order:

1. The inputs of a layer are rounded, row by row, to whole numbers of a power of two that depends on the row alone;
   the weights, which are public, likewise. Then ``inputs @ weights`` is exact.
2. The gradient of a dense layer is the outer product of its inputs a and of the derivatives d of the loss with respect
   to its outputs. So its squared norm is ``|a|² |d|²``: the gradients themselves are never made (*ghost clipping*). The
   two squares are exact sums too.
3. A record's d is scaled so that its whole gradient has a norm of at most ``C * (1 - MARGIN)``, and cut off towards
   zero to whole numbers of a public step, which can only make the norm smaller. The sum of the clipped gradients is
   then one product of matrices for each layer, ``inputs.T @ d``, exact again.
4. The whole numbers become float64 once, at the end. For up to 2**27 records that moves a sum by at most
   ``2**-53 * 2**27 * C = 2**-26 * C`` in norm, so two neighbouring sums by ``2**-25 * C`` further apart. `MARGIN` is
   ``2**-24``: it pays for this, and for the few roundings (below ``2**-40``) in the factor of each record.

So for up to 2**27 records, adding or removing one moves the sum by at most C in the L2 norm, on the computer; replacing
one by at most 2 C. Assumed is that NumPy's ``exp`` and ``tanh`` give the same number for the same number, wherever it
stands in an array; the tests look at that. The gradients are those of the rounded inputs and weights, about as precise
as float32; what is lost is far below the noise.

Rows: one person each. A record with an entry that is no finite number, or a target that is none, has gradient zero.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dpbook import _validate
from dpbook._validate import FloatArray, IntArray

LOSSES = ("squared", "logistic", "softmax")
ACTIVATIONS = ("tanh", "relu")
EXACT_BITS = 53  # whole numbers up to 2**53 are float64
RECORD_BITS = 20  # of inputs and derivatives, in narrow layers
MARGIN = 2.0**-24
ROWS = 2**11  # rows of one product: 2**11 * 2**20 * 2**22 = 2**53
HALF_WORD = 2**26
LARGEST, SMALLEST_UNIT = 2.0**200, -200  # inputs and outputs are clipped to ±2**200, so that no square overflows
SMALLEST_NORM, LARGEST_NORM = 2.0**-100, 2.0**100
LARGEST_WIDTH, LARGEST_SIZE = 2**20, 2**27


@dataclass(frozen=True, kw_only=True)
class Model:
    """A fully connected network, public: its layers, its loss, and how its parameters lie in one vector.

    Without hidden layers it is linear regression (``loss="squared"``), logistic regression (``"logistic"``, one output,
    targets 0 and 1) or multinomial logistic regression (``"softmax"``, targets 0 to ``outputs - 1``).

    Parameters
    ----------
    features : int
        Number of columns of the data, public.
    outputs : int, optional
        Number of outputs: 1, or with "softmax" the number of classes.
    hidden : tuple of int, optional
        Widths of the hidden layers.
    activation : {"tanh", "relu"}, optional
        Of the hidden layers.
    loss : {"squared", "logistic", "softmax"}
        ``(output - target)**2 / 2``, or the negative log-likelihood of the class.
    intercept : bool, optional
        Whether every layer has a constant input too. Its weights stand in the last row of each layer's matrix.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Examples
    --------
    >>> model = Model(features=64, hidden=(32,), outputs=10, loss="softmax")
    >>> model.shapes, model.size
    (((65, 32), (33, 10)), 2410)
    """

    features: int
    outputs: int = 1
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    loss: str
    intercept: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, (tuple, list)):
            raise TypeError(f"hidden must be a tuple of whole numbers, got {_validate.shown(self.hidden)}")
        loss = _validate.choice(LOSSES, loss=self.loss)
        widths = {"features": self.features, "outputs": self.outputs}
        widths |= {f"hidden[{i}]": width for i, width in enumerate(self.hidden)}
        whole = {name: _validate.integer(**{name: width}) for name, width in widths.items()}
        for name, width in whole.items():
            if width > LARGEST_WIDTH:
                raise ValueError(f"{name} must be at most 2**20, got {width}")
        if loss == "logistic" and self.outputs != 1:
            raise ValueError(f"outputs must be 1 with the logistic loss, got {self.outputs}")
        if loss == "softmax" and self.outputs < 2:
            raise ValueError(f"outputs must be at least 2 with the softmax loss, got {self.outputs}")
        if loss == "squared" and self.outputs != 1:
            raise ValueError(f"outputs must be 1 with the squared loss, got {self.outputs}")
        set_ = object.__setattr__
        set_(self, "features", whole["features"])
        set_(self, "outputs", whole["outputs"])
        set_(self, "hidden", tuple(whole[f"hidden[{i}]"] for i in range(len(self.hidden))))
        set_(self, "activation", _validate.choice(ACTIVATIONS, activation=self.activation))
        set_(self, "intercept", _validate.flag(intercept=self.intercept))
        if self.size > LARGEST_SIZE:
            raise ValueError(f"hidden must give at most 2**27 parameters, got {self.size}")

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shape of each layer's matrix, inputs (and the constant one) by outputs."""
        widths = (self.features, *self.hidden, self.outputs)
        return tuple((a + self.intercept, b) for a, b in pairwise(widths))

    @functools.cached_property
    def size(self) -> int:
        """The number of parameters."""
        return sum(a * b for a, b in self.shapes)

    def layers(self, parameters: FloatArray) -> list[FloatArray]:
        """Return the matrix of each layer, as views of one vector of parameters."""
        result: list[FloatArray] = []
        at = 0
        for a, b in self.shapes:
            result.append(parameters[at : at + a * b].reshape(a, b))
            at += a * b
        return result


def _model(model: Any) -> Model:
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model, got {_validate.shown(model)} of type {type(model).__name__}")
    return model


def _parameters(model: Model, parameters: Any, name: str = "parameters") -> FloatArray:
    vector = _validate.finite_array(**{name: parameters})
    if vector.shape != (model.size,):
        raise ValueError(f"{name} must be a vector of {model.size} numbers, got shape {vector.shape}")
    return np.clip(vector, -LARGEST_NORM, LARGEST_NORM)


def starting_parameters(model: Model, *, seed: int = 0) -> FloatArray:
    """Return parameters to start from, public: zeros without hidden layers, else random weights from a public seed.

    They say nothing about any record, under either neighbour relation, and so their seed may be known.

    Parameters
    ----------
    model : Model
        The network.
    seed : int, optional
        Of the random weights, from 0.

    Returns
    -------
    numpy.ndarray of float64
        One vector of `Model.size` entries.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Glorot, Bengio (2010), Understanding the difficulty of training deep feedforward neural networks, Eq. 16 (tanh); He,
    Zhang, Ren, Sun (2015), Delving deep into rectifiers, Eq. 10 (ReLU).

    Examples
    --------
    >>> starting_parameters(Model(features=2, loss="logistic"))
    array([0., 0., 0.])
    """
    network, start = _model(model), _validate.integer(0, seed=seed)
    vector = np.zeros(network.size)
    if network.hidden:
        rng = np.random.default_rng(start)  # public: it decides nothing that is private
        for layer in network.layers(vector):
            inputs, outputs = layer.shape[0] - network.intercept, layer.shape[1]
            scale = math.sqrt(2 / inputs if network.activation == "relu" else 2 / (inputs + outputs))
            layer[:inputs] = rng.normal(0.0, scale, (inputs, outputs))
    return vector


# --- exact sums ------------------------------------------------------------------------------------------------------


def _digits(count: int) -> int:
    """Return how many binary digits a sum of so many numbers may be longer than they are."""
    return (count - 1).bit_length()


def _whole(values: FloatArray, bits: int) -> tuple[FloatArray, FloatArray]:
    """Return whole numbers up to ``2**bits`` and a unit for each row, a power of two: about ``values = whole * unit``.

    A row depends on itself alone. Its largest entry is at least ``2**(bits - 1)``; a row below 2**-200 becomes zero.
    """
    top = np.abs(values.T).max(axis=0, initial=0.0)  # transposed: many short rows are slow in NumPy
    exponent = np.frexp(top)[1]
    factor = np.ldexp(1.0, bits - np.maximum(exponent, SMALLEST_UNIT))
    factor[exponent <= SMALLEST_UNIT] = 0.0
    whole = values * factor[:, None]
    return np.rint(whole, out=whole), np.ldexp(1.0, exponent - bits)


def _squares(whole: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", whole, whole), dtype=np.float64)


def _sigmoid(z: FloatArray) -> FloatArray:
    e = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, e) / (1.0 + e))


class Records:
    """Rows and targets as whole numbers, ready for clipped sums of gradients. Each record depends on itself alone.

    Parameters
    ----------
    model : Model
        The network.
    rows : array_like
        Two-dimensional, one row a person, with `Model.features` columns. Entries are clipped to ±2**200.
    targets : array_like
        One for each row: a number for the squared loss, else a class from 0. A record with a target that is none of
        these, or with an entry that is no finite number, has gradient zero.

    Raises
    ------
    TypeError, ValueError
        When the shapes do not fit. Never for a single record.
    """

    def __init__(self, model: Model, rows: Any, targets: Any) -> None:
        self.model = _model(model)
        # Digits of a layer's inputs and of its derivatives: their squares, too, must add up exactly.
        self._bits = [min(RECORD_BITS, (EXACT_BITS - _digits(max(shape))) // 2) for shape in self.model.shapes]
        data, aims, good = _cleaned(self.model, rows, targets)
        self.count, self.good = len(data), good.astype(np.float64)
        self.targets: Any = aims if self.model.loss != "softmax" else aims.astype(np.int64)
        with np.errstate(all="ignore"):
            self.inputs, self.units = _whole(_with_constant(data, self.model), self._bits[0])
            self.squares = _squares(self.inputs)

    def _weights(self, parameters: FloatArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield each layer's matrix as whole numbers and its unit: products with inputs or derivatives are exact."""
        for layer, matrix in enumerate(self.model.layers(parameters)):
            bits = EXACT_BITS - self._bits[layer] - _digits(max(matrix.shape))
            exponent = max(math.frexp(float(np.abs(matrix).max()))[1], SMALLEST_UNIT)
            yield np.rint(matrix * math.ldexp(1.0, bits - exponent)), math.ldexp(1.0, exponent - bits)

    def clipped_sum(self, parameters: FloatArray, clipping_norm: float, index: Any = None) -> FloatArray:
        """Return the sum of the gradients, each clipped to the norm; of the records of an index, if there is one.

        Adding or removing a record moves it by at most `clipping_norm`, in L2, for up to 2**27 records.
        """
        vector, norm = _parameters(self.model, parameters), _clipping_norm(clipping_norm)
        with np.errstate(all="ignore"):
            weights = list(self._weights(vector))
            chosen = np.arange(self.count) if index is None else index
            step = math.ldexp(1.0, math.frexp(norm)[1] - RECORD_BITS - 1)  # C is at most 2**21 steps
            if len(chosen) <= ROWS:
                total = self._whole_sum(weights, norm, step, chosen)
            else:
                high, low = np.zeros((2, self.model.size), dtype=np.int64)
                for start in range(0, len(chosen), ROWS):
                    part = self._whole_sum(weights, norm, step, chosen[start : start + ROWS])
                    whole = part.astype(np.int64)
                    high += whole // HALF_WORD
                    low += whole % HALF_WORD
                total = high.astype(np.float64) * HALF_WORD + low.astype(np.float64)  # the one rounding
            for layer, part in enumerate(self.model.layers(total)):
                part *= step * 2.0 ** -self._bits[layer]
            return total

    def _whole_sum(self, weights: Any, norm: float, step: float, index: IntArray) -> FloatArray:
        """Return the sum for up to `ROWS` records as whole numbers, in steps of ``step * 2**-bits`` of each layer."""
        passes = list(self._passes(weights, index))
        square = np.zeros(len(index))
        for _, unit, squares, back, back_unit, _ in passes:
            square += squares * _squares(back) * (unit * back_unit) ** 2
        factor = np.minimum(1.0, norm * (1 - MARGIN) / np.sqrt(square)) * self.good[index]
        total = np.empty(self.model.size)
        matrices = self.model.layers(total)
        for inputs, unit, _, back, back_unit, layer in passes:
            # The largest input of a record is at least half of 2**bits, so its scaled derivatives are below 2**22.
            scale = factor * back_unit * (unit * (2.0 ** self._bits[layer] / step))
            scaled = back * scale[:, None]
            np.trunc(scaled, out=scaled)
            np.matmul(inputs.T, scaled, out=matrices[layer])
        return total

    def _passes(self, weights: Any, index: IntArray) -> Iterator[tuple[Any, ...]]:
        """Yield, for each layer from the last: inputs, their unit and squares, derivatives, their unit, the layer."""
        model, last = self.model, len(weights) - 1
        inputs, unit = self.inputs.take(index, axis=0), self.units[index]
        forward = [(inputs, unit, self.squares[index])]
        hidden: list[FloatArray] = []
        for layer, (matrix, matrix_unit) in enumerate(weights):
            z = inputs @ matrix
            z *= (unit * matrix_unit)[:, None]
            np.clip(z, -LARGEST, LARGEST, out=z)
            if layer < last:
                h = np.tanh(z, out=z) if model.activation == "tanh" else np.maximum(z, 0.0, out=z)
                hidden.append(h)
                inputs, unit = _whole(_with_constant(h, model), self._bits[layer + 1])
                forward.append((inputs, unit, _squares(inputs)))
        derivatives = _output_derivatives(model.loss, z, self.targets[index])
        for layer in range(last, -1, -1):
            back, back_unit = _whole(derivatives, self._bits[layer])
            yield (*forward[layer], back, back_unit, layer)
            if layer:
                matrix, matrix_unit = weights[layer]
                h = hidden[layer - 1]
                derivatives = back @ matrix[: h.shape[1]].T
                derivatives *= (back_unit * matrix_unit)[:, None]
                derivatives *= 1.0 - h * h if model.activation == "tanh" else h > 0
                np.clip(derivatives, -LARGEST, LARGEST, out=derivatives)


def _output_derivatives(loss: str, z: FloatArray, targets: Any) -> FloatArray:
    """Return the derivative of each record's loss with respect to its outputs; no record depends on another."""
    if loss == "softmax":
        e = np.ascontiguousarray(z.T)  # transposed: many short rows are slow in NumPy
        e -= e.max(axis=0)
        np.exp(e, out=e)
        e *= 2.0 ** (EXACT_BITS - _digits(len(e)))
        np.rint(e, out=e)  # whole numbers: their sum is exact
        e /= e.sum(axis=0)
        e[targets, np.arange(e.shape[1])] -= 1.0
        return np.ascontiguousarray(e.T)
    if loss == "logistic":
        return np.asarray(_sigmoid(z) - targets[:, None])
    return np.asarray(z - targets[:, None])


def _with_constant(rows: FloatArray, model: Model) -> FloatArray:
    if not model.intercept:
        return rows
    result = np.empty((len(rows), rows.shape[1] + 1))
    result[:, :-1] = rows
    result[:, -1] = 1.0
    return result


def _cleaned(model: Model, rows: Any, targets: Any) -> tuple[FloatArray, FloatArray, Any]:
    """Return rows and targets, zeros in the place of a bad record, and which records are good."""
    aims = _validate.records(targets=targets)
    if isinstance(rows, (list, tuple)) and not rows:  # nobody: such a list has no columns to count
        rows = np.empty((0, model.features))
    data, good = _cleaned_rows(model, rows)
    if len(aims) != len(data):
        raise ValueError("rows and targets must be of one length, with one row and one target for each person")
    with np.errstate(all="ignore"):
        good &= np.isfinite(aims)
        if model.loss != "squared":
            good &= (aims >= 0) & (aims < max(2, model.outputs)) & (aims == np.rint(aims))
        data[~good] = aims[~good] = 0.0
        np.clip(aims, -LARGEST, LARGEST, out=aims)
    return data, aims, good


def _cleaned_rows(model: Model, rows: Any) -> tuple[FloatArray, Any]:
    data = _validate.rows(rows=rows)
    if data.shape[1] != model.features:
        raise ValueError(f"rows must have {model.features} columns, got {data.shape[1]}")
    with np.errstate(all="ignore"):
        good = np.isfinite(data).all(axis=1)
        data[~good] = 0.0
        return np.asarray(np.clip(data, -LARGEST, LARGEST, out=data)), good


def clipped_gradient_sum(model: Model, parameters: Any, rows: Any, targets: Any, *, clipping_norm: float) -> FloatArray:
    """Return the sum of the records' gradients, each clipped to a norm: one record moves it by at most that norm.

    In L2, on the computer, for up to 2**27 records, when a record is added or removed; by twice the norm when one is
    replaced. It is not private itself: add noise before it leaves your hands.

    Parameters
    ----------
    model : Model
        The network.
    parameters : array_like
        One vector of `Model.size` finite numbers, public; clipped to ±2**100.
    rows : array_like
        Two-dimensional, one row a person. A row with an entry that is no finite number has gradient zero.
    targets : array_like
        One for each row; a record whose target is no number, or no class from 0 on, has gradient zero.
    clipping_norm : float
        C, from 2**-100 to 2**100.

    Returns
    -------
    numpy.ndarray of float64
        One vector of `Model.size` entries.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1; Goodfellow (2015), Efficient per-example
    gradient computations, for the norms; Li, Tramèr, Liang, Hashimoto (2022), Large language models can be strong
    differentially private learners, for ghost clipping; the proof for floats is at the top of this module.

    Examples
    --------
    >>> model = Model(features=2, loss="squared", intercept=False)
    >>> clipped_gradient_sum(model, [0.0, 0.0], [[3.0, 4.0]], [-10.0], clipping_norm=1.0).round(6)
    array([0.6, 0.8])
    """
    c = _clipping_norm(clipping_norm)
    vector = _parameters(_model(model), parameters)
    return Records(model, rows, targets).clipped_sum(vector, c)


def _clipping_norm(clipping_norm: Any) -> float:
    c = _validate.positive(clipping_norm=clipping_norm)
    if not SMALLEST_NORM <= c <= LARGEST_NORM:
        raise ValueError(f"clipping_norm must lie between 2**-100 and 2**100, got {_validate.shown(clipping_norm)}")
    return c


# --- plain floats: for predictions, for teaching and to test the above -----------------------------------------------


def _forward(model: Model, parameters: FloatArray, data: FloatArray) -> list[FloatArray]:
    """Return the inputs of each layer, and the outputs of the last."""
    values = [_with_constant(data, model)]
    layers = model.layers(parameters)
    for layer, matrix in enumerate(layers):
        z = np.clip(values[-1] @ matrix, -LARGEST, LARGEST)
        if layer < len(layers) - 1:
            z = _with_constant(np.tanh(z) if model.activation == "tanh" else np.maximum(z, 0.0), model)
        values.append(z)
    return values


def outputs(model: Model, parameters: Any, rows: Any) -> FloatArray:
    """Return the network's outputs for each row: values, or what becomes probabilities by a sigmoid or softmax.

    It reads no training data: private parameters stay as private as they are, under the same neighbour relation.

    Parameters
    ----------
    model : Model
        The network.
    parameters : array_like
        One vector of `Model.size` finite numbers.
    rows : array_like
        Two-dimensional. A row with an entry that is no finite number counts as a row of zeros.

    Returns
    -------
    numpy.ndarray of float64
        Shape ``(len(rows), model.outputs)``.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Goodfellow, Bengio, Courville (2016), Deep learning, Sec. 6.

    Examples
    --------
    >>> outputs(Model(features=2, loss="squared"), [1.0, 2.0, 0.5], [[10.0, 100.0]])
    array([[210.5]])
    """
    vector = _parameters(_model(model), parameters)
    data, _ = _cleaned_rows(model, rows)
    with np.errstate(all="ignore"):
        return _forward(model, vector, data)[-1]


def probabilities(model: Model, scores: FloatArray) -> FloatArray:
    """Return the probability of each class for outputs of a network with the logistic or softmax loss.

    Post-processing: it costs nothing under either neighbour relation.

    Parameters
    ----------
    model : Model
        The network.
    scores : array_like
        What `outputs` returned.

    Returns
    -------
    numpy.ndarray of float64
        One row for each row, one column for each class; each row adds up to 1.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Bishop (2006), Pattern recognition and machine learning, Sec. 4.3.

    Examples
    --------
    >>> probabilities(Model(features=1, loss="logistic"), [[0.0]])
    array([[0.5, 0.5]])
    """
    network, z = _model(model), _validate.finite_array(scores=scores)
    if network.loss == "squared":
        raise ValueError("model must be one of classes, got the squared loss")
    if z.ndim != 2 or z.shape[1] != network.outputs:
        raise ValueError(f"scores must have shape (rows, {network.outputs}), got {z.shape}")
    with np.errstate(all="ignore"):
        if network.loss == "logistic":
            return np.asarray(np.concatenate([_sigmoid(-z), _sigmoid(z)], axis=1))
        e = np.exp(z - z.max(axis=1, keepdims=True, initial=-LARGEST))
        return np.asarray(e / e.sum(axis=1, keepdims=True))


def per_example_losses(model: Model, parameters: Any, rows: Any, targets: Any) -> FloatArray:
    """Return the loss of each record, with plain floats. It is not private under any neighbour relation.

    Parameters
    ----------
    model : Model
        The network.
    parameters : array_like
        One vector of `Model.size` finite numbers.
    rows : array_like
        Two-dimensional, one row a person.
    targets : array_like
        One for each row.

    Returns
    -------
    numpy.ndarray of float64
        One number for each row, 0 for a record that is not valid (see `Records`).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Bishop (2006), Pattern recognition and machine learning, Sec. 4.3.

    Examples
    --------
    >>> per_example_losses(Model(features=1, loss="squared"), [2.0, 1.0], [[3.0]], [5.0])
    array([2.])
    """
    vector = _parameters(_model(model), parameters)
    data, aims, good = _cleaned(model, rows, targets)
    with np.errstate(all="ignore"):
        z = _forward(model, vector, data)[-1]
        if model.loss == "squared":
            losses = (z[:, 0] - aims) ** 2 / 2
        elif model.loss == "logistic":
            losses = np.logaddexp(0.0, np.where(aims == 1, -z[:, 0], z[:, 0]))
        else:
            top = z.max(axis=1, keepdims=True, initial=-LARGEST)
            losses = np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(z)), aims.astype(np.int64)]
    return np.where(good, losses, 0.0)


def per_example_gradients(model: Model, parameters: Any, rows: Any, targets: Any) -> FloatArray:
    """Return the gradient of each record's loss, with plain floats. It is not private under any neighbour relation.

    For teaching, and for looking at norms of public data: training uses `clipped_gradient_sum`, which does not make
    these matrices. Clip them with `dpbook.sensitivity.clip_norm`.

    Parameters
    ----------
    model : Model
        The network.
    parameters : array_like
        One vector of `Model.size` finite numbers.
    rows : array_like
        Two-dimensional, one row a person.
    targets : array_like
        One for each row.

    Returns
    -------
    numpy.ndarray of float64
        Shape ``(len(rows), model.size)``; zeros for a record that is not valid (see `Records`).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Rumelhart, Hinton, Williams (1986), Learning representations by back-propagating errors.

    Examples
    --------
    >>> per_example_gradients(Model(features=1, loss="squared"), [2.0, 1.0], [[3.0]], [5.0])
    array([[6., 2.]])
    """
    vector = _parameters(_model(model), parameters)
    data, aims, good = _cleaned(model, rows, targets)
    result = np.empty((len(data), model.size))
    with np.errstate(all="ignore"):
        *inputs, z = _forward(model, vector, data)
        back = _output_derivatives(model.loss, z, aims.astype(np.int64) if model.loss == "softmax" else aims)
        at, layers = model.size, model.layers(vector)
        for layer in range(len(layers) - 1, -1, -1):
            a = inputs[layer]
            size = layers[layer].size
            result[:, at - size : at] = np.einsum("bi,bj->bij", a, back).reshape(len(a), size)
            at -= size
            if layer:
                h = a[:, : layers[layer].shape[0] - model.intercept]
                back = back @ layers[layer][: h.shape[1]].T
                back *= 1.0 - h * h if model.activation == "tanh" else h > 0
    result[~good] = 0.0
    return np.clip(result, -(LARGEST**2), LARGEST**2)
