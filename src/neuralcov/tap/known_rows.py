"""What is known about the order of rows of a model's layers: found, kept, compared, and said where there is none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import CoverageWarning, LayerError, MismatchError
from neuralcov.tap.axes import OutputAxes
from neuralcov.tap.rows import INPUT_MAJOR, UNDECIDED, Note, RowOrder, find_order, likely_order, without

_NAMED = 8
_MEAN = "mean"


class KnownRows:
    """Which layers have their rows in which order, and which are left out because they have none.

    Args:
        choice: the user's ``layers=``; a layer that a user chose is refused where others are left out.
    """

    def __init__(self, choice: object = None) -> None:
        self.orders: dict[str, RowOrder] = {}
        self.left_out: dict[str, str] = {}
        self.widths: dict[str, int] = {}
        self.pool = _MEAN
        """What is made of the tokens of an input, which files keep with the order of rows."""
        self.asked = False
        self.why_not = ""
        # Layers with several rows per input that were never asked about inputs of unlike lengths.
        self.doubtful: set[str] = set()
        self.batch_second = False
        """Whether modules, or somebody, say that the batch is not on axis 0."""
        self._choice = choice
        self._heard: dict[str, int] = {}
        self._axes: dict[str, tuple[int, ...]] = {}
        self._batches = 0
        self.unsaid = False

    def wants_probe(self) -> bool:
        """Return whether to probe before this batch: at the first, and while two orders fit, ever more seldom."""
        if not self.asked:
            return True
        if not any(order.order == UNDECIDED for order in self.orders.values()):
            return False
        self._batches += 1
        return self._batches & (self._batches - 1) == 0

    def learn(
        self,
        larger: Mapping[str, Note],
        smaller: Mapping[str, Note],
        sizes: tuple[int, int],
        axes: tuple[int, ...],
        again: Collection[str] = (),
    ) -> dict[str, str]:
        """Take in what two runs show about layers that are not settled yet.

        Args:
            larger: what the run on more inputs showed of each layer.
            smaller: what the run on fewer showed.
            sizes: how many inputs these were.
            axes: lengths of the inputs' other axes.
            again: settled layers that gave a shape which does not agree with what was found.

        Returns:
            Layers without an order, and why.
        """
        problems = {}
        self.asked = True
        for layer in dict.fromkeys([*larger, *smaller]):
            known = self.orders.get(layer)
            if layer in self.left_out or (known is not None and known.order != UNDECIDED and layer not in again):
                continue
            one, other = larger.get(layer), smaller.get(layer)
            found = find_order(one, other, sizes)
            if isinstance(found, RowOrder) and (known is None or found.agrees_with(known)):
                self.orders[layer] = found
                self.widths[layer] = (one or other).width  # type: ignore[union-attr]
                if found.per_input > 1:
                    self._axes[layer] = axes
                    self.doubtful.add(layer)
                continue
            reason = found if isinstance(found, str) else f"its rows are {found} here but were {known} before"
            problems[layer] = _problem(one, other, sizes, reason)
        return problems

    def confirm(
        self, larger: Mapping[str, Note], smaller: Mapping[str, Note], sizes: tuple[int, int]
    ) -> dict[str, str]:
        """Hold doubtful layers against two runs on inputs of unlike lengths; return those that fail, and why.

        What packs tokens, or leaves padding out, has an order of rows as long as all inputs are of one length.
        """
        problems = {}
        for layer in self.doubtful:
            one, other, known = larger.get(layer), smaller.get(layer), self.orders[layer]
            found = find_order(one, other, sizes)
            if not isinstance(found, RowOrder) or not found.agrees_with(known) or found.per_input != known.per_input:
                problems[layer] = _problem(one, other, sizes, "it has other rows for inputs of unlike lengths")
        self.doubtful.clear()
        return problems

    def count(self, notes: Mapping[str, Note], size: int) -> dict[str, str]:
        """Hold experts against a run on some inputs; return those with another number of rows for them, and why."""
        problems = {}
        for layer in self.experts:
            order = self.orders[layer]
            shape = notes[layer].shape if layer in notes else None
            if shape is None or shape[order.axis] != order.per_input * size:
                problems[layer] = f"shape {shape or 'none'} for {size} inputs: it takes rows by their content"
        return problems

    @property
    def experts(self) -> list[str]:
        """Return layers within experts, which may have been given the same number of rows for every input by chance."""
        return [layer for layer in self.orders if "expert" in layer.lower() and layer not in self.left_out]

    @property
    def undecided(self) -> bool:
        """Return whether two orders fit some layer."""
        return any(order.order == UNDECIDED for order in self.orders.values())

    def order_of(
        self, layer: str, shape: Sequence[int], size: int, axes: Callable[[], tuple[int, ...]]
    ) -> RowOrder | None:
        """Return the order of an output's rows, ``None`` if none was found that agrees with its shape.

        Args:
            layer: the layer's name.
            shape: of its output.
            size: B, the number of inputs.
            axes: gives the lengths of the inputs' other axes.
        """
        order = self.orders.get(layer)
        if order is None or order.axis >= len(shape):
            return None
        if size > 1 and order.per_input == 1 and shape[order.axis] == size:
            return order
        if size <= 1:
            return RowOrder(order.axis, INPUT_MAJOR)
        per_input = order.rows_per_input(shape, size)
        if per_input is None:
            return None
        return order if _explained(order.per_input, per_input, self._axes.get(layer, ()), axes()) else None

    def heard_order(self, layer: str, shape: Sequence[int], size: int, kind: OutputAxes) -> RowOrder | str:
        """Return the order of an output in a pass that somebody else makes, or why it is left open.

        The arguments are those of ``likely_order``. Where two axes fit, an earlier pass may have shown which it is.
        """
        order = likely_order(shape, size, kind, axis=self._heard.get(layer, None if self.batch_second else 0))
        if order is None:
            why = "leaves open whose its rows are"
        elif size > 1 and self._heard.setdefault(layer, order.axis) != order.axis:
            why = f"has its rows on axis {order.axis} here but on axis {self._heard[layer]} in an earlier pass"
        else:
            return order
        return f"shape {tuple(shape)} for {size} inputs {why}; call cov.probe(inputs) before the block"

    def drop(self, problems: Mapping[str, str], fixed: Collection[str]) -> None:
        """Leave out layers without an order of rows, or refuse them where a user chose them.

        Args:
            problems: layer → why it has none.
            fixed: layers that have been measured, which cannot be left out any more.
        """
        measured = [layer for layer in problems if layer in fixed]
        if problems and (self._choice is not None or measured):
            layer = (measured or list(problems))[0]
            more = f" (and {len(problems) - 1} more like it)" if len(problems) > 1 else ""
            raise LayerError(
                f"layer {layer!r}{more} does not tell which of its rows belong to which input ({problems[layer]}): "
                f"leave out what does not with layers={without(problems, self._choice)!r}, or pass rows=, a function "
                "from layer and output to the input of each row, -1 for none"
            )
        for layer in problems:
            self.orders.pop(layer, None)
            self.doubtful.discard(layer)
        self.left_out |= problems
        self.unsaid |= bool(problems)

    def leave_out_siblings(self, silent: Sequence[str]) -> None:
        """Leave out layers that did not fire and differ from others left out by a number alone, as experts do."""
        patterns = {_pattern(layer) for layer in self.left_out}
        for name in silent:
            if _pattern(name) in patterns:
                self.left_out[name] = "it does not fire in every pass, like others of its name"

    @property
    def sentence(self) -> str:
        """Return what was left out and why, in one sentence; nothing if nothing was."""
        if not self.left_out:
            return ""
        named = [f"{layer!r} ({why})" for layer, why in self.left_out.items()][:_NAMED]
        more = len(self.left_out) - len(named)
        return (
            f"{counted(len(self.left_out), 'layer')} {agreeing(len(self.left_out), 'was', 'were')} left "
            f"out, whose rows could not be told apart by input: "
            + ", ".join(named)
            + (f" and {more} more" if more else "")
            + f"; choose layers without them (layers={without(self.left_out)!r}), or pass rows="
        )

    def say(self) -> None:
        """Warn once about layers that were left out."""
        if self.unsaid:
            self.unsaid = False
            warnings.warn(self.sentence, CoverageWarning, stacklevel=4)

    def to_json(self) -> dict[str, Any] | None:
        """Return what was found, for a file; ``None`` if nothing was."""
        if not self.orders and not self.left_out and self.pool == _MEAN:
            return None
        orders = {name: [order.axis, order.order, order.per_input] for name, order in self.orders.items()}
        return {
            "orders": orders,
            "left_out": self.left_out,
            "axes": {name: list(axes) for name, axes in self._axes.items()},
            **({} if self.pool == _MEAN else {"pool": self.pool}),
        }

    def expect(self, found: Mapping[str, Any]) -> None:
        """Go on from what ``to_json`` gave."""
        self.orders = orders_of(found)
        self.doubtful = {layer for layer, order in self.orders.items() if order.per_input > 1}
        self.left_out = {str(name): str(why) for name, why in found["left_out"].items()}
        self._axes = {str(name): tuple(axes) for name, axes in found["axes"].items()}
        self.asked = True


def orders_of(found: Mapping[str, Any]) -> dict[str, RowOrder]:
    """Return the orders in what ``KnownRows.to_json`` gave."""
    return {
        str(name): RowOrder(int(axis), str(order), int(count)) for name, (axis, order, count) in found["orders"].items()
    }


def require_same_rows(ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None, what: str) -> None:
    """Refuse to join measurements that gave a layer's rows to inputs in different orders."""
    require_same_pool(pool_of(ours), theirs, what)
    if ours is None or theirs is None:
        return
    others = orders_of(theirs)
    for layer, order in orders_of(ours).items():
        if layer in others and not order.agrees_with(others[layer]):
            raise MismatchError(
                f"layer {layer!r} has its rows {others[layer]} in {what} but {order} in this coverage: "
                "measure both with the same batch_axis= and shapes"
            )


def pool_of(found: Mapping[str, Any] | None) -> str:
    """Return what was made of the tokens of an input, by what ``KnownRows.to_json`` gave."""
    return _MEAN if found is None else str(found.get("pool", _MEAN))


def require_same_pool(ours: str, theirs: Mapping[str, Any] | None, what: str) -> None:
    """Refuse what was measured with another pool."""
    if ours != pool_of(theirs):
        raise MismatchError(f"tokens are pooled otherwise: pool={ours!r} here, pool={pool_of(theirs)!r} in {what}")


def _problem(one: Note | None, other: Note | None, sizes: tuple[int, int], reason: str) -> str:
    shapes = " and ".join("none" if noted is None else str(noted.shape) for noted in (one, other))
    return f"shapes {shapes} for {sizes[0]} and {sizes[1]} inputs: {reason}"


def _explained(before: int, now: int, axes: Sequence[int], axes_now: Sequence[int]) -> bool:
    """Return whether an output may have ``now`` rows per input where it had ``before``.

    Inputs of the same shape have as many. Of another shape they have as many, or so many more or fewer as an axis of
    the inputs grew or shrank, by factor or by difference. Packed tokens and routed ones have any number.
    """
    if len(axes) != len(axes_now) or axes == tuple(axes_now):
        return before == now
    changed = [(old, new) for old, new in zip(axes, axes_now, strict=True) if old != new]
    constant = before == now and all(before % old for old, _ in changed if old)
    return constant or any(before * new == now * old or now - before == new - old for old, new in changed)


def _pattern(layer: str) -> str:
    return re.sub(r"\d+", "*", layer)
