"""Self-contained HTML pages: one style sheet, one script, a policy that lets nothing else run or be fetched."""

from __future__ import annotations

import base64
import hashlib
import io
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from neuralcov.core.arguments import require
from neuralcov.core.counted import agreeing, counted
from neuralcov.report.svg import bar_styles

if TYPE_CHECKING:
    from jinja2 import Environment

_PNG = b"\x89PNG\r\n\x1a\n"
# A page with 64 pictures stays below 2 MB: larger ones are drawn again, this wide at most.
_LARGEST_PICTURE, _SIDE = 16_000, 64


def render_page(template: str, **content: Any) -> str:
    """Return a page: a template in the common frame, whose policy names its style and its script by their SHA-256."""
    style, script = _asset("report.css") + bar_styles(), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    markup = _markup()
    page = _environment().get_template(template)
    return valid_text(page.render(style=markup(style), script=markup(script), policy=policy, **content))


def render_part(template: str, **content: Any) -> str:
    """Return a part of a page, without style and script."""
    return valid_text(_environment().get_template(template).render(**content))


def valid_text(text: str) -> str:
    """Replace what UTF-8 cannot hold: names of files may have half a character in them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def picture_source(picture: bytes) -> str | None:
    """Return a picture (PNG) as the source of an image, a large one made smaller; ``None`` for what is no PNG."""
    if not picture.startswith(_PNG):
        return None
    if len(picture) > _LARGEST_PICTURE:
        from PIL import Image

        with Image.open(io.BytesIO(picture)) as image:
            smaller = image.convert("RGB")
        smaller.thumbnail((_SIDE, _SIDE))
        out = io.BytesIO()
        smaller.save(out, "PNG", optimize=True)
        picture = out.getvalue()
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _asset(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _markup() -> Any:
    return require("markupsafe", "HTML reports", extra="report").Markup


@cache
def _environment() -> Environment:
    jinja2 = require("jinja2", "HTML reports", extra="report")
    environment: Environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_asset),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Charts are built by svg.py, which escapes what it is given.
    environment.filters["chart"] = _markup()
    environment.filters |= {"counted": counted, "agreeing": agreeing}
    return environment
