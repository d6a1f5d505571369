"""Formulas as MathML, written while the site is built: no script, and screen readers have the formula itself.

* Every formula goes through math-core, which turns TeX into MathML Core. One that it cannot turn is a warning with its
  place, and the build with -W ends.
* After the build: a font with only the characters that occur, cut from STIX Two Math (SIL Open Font License), which the
  package ziamath carries. Chromium, Firefox and Safari lay MathML out by the tables of such a font.
"""

import html
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from math_core import LatexError, LatexToMathML
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

LOGGER = logging.getLogger(__name__)
TO_MATHML = LatexToMathML(fancy_error=False)
FONT = Path("ziamath", "fonts", "STIXTwoMath-Regular.ttf")
PRIMES = range(0x2032, 0x2038)
NUMBERED = re.compile(r"\\(begin|end)\{(align|equation|gather|multline)\}")


def mathml(tex: str, *, block: bool) -> str:
    """Return the MathML of one formula; raise LatexError if it is not understood."""
    # Numbers of equations are Sphinx's, not TeX's.
    tex = NUMBERED.sub(r"\\\1{\2*}", tex.strip())
    return TO_MATHML.convert_with_local_state(tex, displaystyle=block)


def lines(tex: str) -> str:
    """Return what a block means: an empty line or a bare double backslash begins a new line, as Sphinx has it."""
    parts = [part.strip() for part in tex.split("\n\n") if part.strip()]
    whole = r" \\ ".join(parts)
    if r"\begin" in whole or r"\\" not in whole:
        return whole
    return rf"\begin{{aligned}} {whole} \end{{aligned}}"


def _convert(tex: str, node: nodes.Element, *, block: bool) -> str:
    try:
        return mathml(tex, block=block)
    except LatexError as error:
        LOGGER.warning("formula %r: %s", tex, error, location=node)
        return f"<code>{html.escape(tex)}</code>"


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_convert(node.astext(), node, block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", "", CLASS="math"))
    if node.get("number"):
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, _("Link to this equation"))
        writer.body.append("</span>")
    tex = node.astext() if node.get("nowrap") else lines(node.astext())
    writer.body.append(_convert(tex, node, block=True) + "</div>\n")
    raise nodes.SkipNode


# A formula in the text, with what stands close to it and no end of a line may part from it.
CLOSE = re.compile(
    r"([(\[“]*)(<math>(?:(?!</math>).)*</math>)([.,;:?!…)\]”’%-]*)", re.S
)


def keep_together(body: str) -> str:
    """Return the HTML with formulas that keep their brackets and their full stop in the same line."""
    return CLOSE.sub(
        lambda m: f'<span class="dp-keep">{m[0]}</span>' if m[1] or m[3] else m[0],
        body,
    )


def _page(
    _app: Any, _name: str, _template: str, context: dict[str, Any], _doctree: Any
) -> None:
    if context.get("body"):
        context["body"] = keep_together(context["body"])


def characters(page: str) -> set[str]:
    """Return the characters that the font must have for the formulas of a page."""
    found: set[str] = set()
    for formula in re.findall(r"<math.*?</math>", page, re.S):
        found |= set(html.unescape(re.sub(r"<[^>]*>", "", formula)))
        # A letter alone is shown slanted, which Unicode counts as another letter.
        for letter in re.findall(r"<mi>(.)</mi>", formula):
            for first, slanted in (("A", 0x1D434), ("a", 0x1D44E), ("Α", 0x1D6E2), ("α", 0x1D6FC)):  # fmt: skip
                if 0 <= ord(letter) - ord(first) < 26:
                    found.add(chr(slanted + ord(letter) - ord(first)))
        found -= {"\U0001d455"}  # Unicode has no such letter: it is the next one
        found |= set("ℎ") if "<mi>h</mi>" in formula else set()
        found |= set("√") if "<msqrt" in formula or "<mroot" in formula else set()
    return found


def _primes(font: TTFont) -> None:
    """Give primes the form that they have as a superscript, for they are nothing else in MathML.

    The font has it as an alternative, which browsers do not ask for: a prime would be a speck.
    """
    forms: dict[str, list[str]] = {}
    table = font["GSUB"].table
    for record in table.FeatureList.FeatureRecord:
        if record.FeatureTag == "ssty":
            for index in record.Feature.LookupListIndex:
                for part in table.LookupList.Lookup[index].SubTable:
                    forms |= part.alternates
    for letters in {
        id(one.cmap): one.cmap for one in font["cmap"].tables if one.isUnicode()
    }.values():
        letters |= {
            code: forms[letters[code]][0] for code in PRIMES if code in letters
        }


def _roots(font: TTFont) -> None:
    """Make the taller root signs as narrow as the plain one.

    Chromium keeps for every root the room that the widest sign would take: a gap would follow it.
    """
    plain = font.getBestCmap()[ord("√")]
    variants = font["MATH"].table.MathVariants
    signs = variants.VertGlyphConstruction[
        variants.VertGlyphCoverage.glyphs.index(plain)
    ]
    names = {one.VariantGlyph for one in signs.MathGlyphVariantRecord}
    names |= {one.glyph for one in signs.GlyphAssembly.PartRecords}
    width = font["hmtx"][plain][0]
    for name in names - {plain}:
        glyph = font["glyf"][name]
        glyph.coordinates.scale((width / font["hmtx"][name][0], 1))
        glyph.coordinates.toInt()
        glyph.recalcBounds(font["glyf"])
        font["hmtx"][name] = (width, glyph.xMin)


def write_font(wanted: set[str], target: Path) -> None:
    """Write a font with these characters, in all the sizes of brackets, roots and sums."""
    place = find_spec("ziamath")
    if place is None or place.origin is None:
        raise ModuleNotFoundError("ziamath, which carries the font of the formulas")
    font = TTFont(Path(place.origin).parent.parent / FONT)
    _primes(font)
    _roots(font)
    # Exponents of 78 % instead of 70 %: the ε of a power is what most formulas here are about.
    sizes = font["MATH"].table.MathConstants
    sizes.ScriptPercentScaleDown, sizes.ScriptScriptPercentScaleDown = 78, 62
    # Without hints, and without the forms for small sizes, which would double the font for little that can be seen.
    options = subset.Options(layout_features=[], notdef_outline=True, hinting=False)
    options.name_IDs = [0, 1, 2, 13, 14]  # with the licence
    cut = subset.Subsetter(options)
    cut.populate(unicodes={ord(one) for one in wanted})
    cut.subset(font)
    font.flavor = "woff"
    font.save(target)


def _finished(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        site = Path(app.outdir)
        pages = [p for p in site.rglob("*.html") if "_static" not in p.relative_to(site).parts]  # fmt: skip
        wanted = set().union(*(characters(path.read_text(encoding="utf8")) for path in pages))  # fmt: skip
        write_font(wanted, site / "_static" / "formulas.woff")


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    app.connect("html-page-context", _page)
    app.connect("build-finished", _finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
