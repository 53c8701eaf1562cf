"""Shapes in types: ``Float[Tensor, "batch neurons"]``, checked by ``make shapes``, free at run time.

jaxtyping is a development dependency. Where it is absent an annotation such as
``Float[Tensor, "batch"]`` simply means ``Tensor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:

        class Shaped:
            """Stands in for jaxtyping's types: subscripting gives the array type back."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Shaped

__all__ = ["Bool", "Float", "Int", "Shaped"]
