"""A badge (SVG) for each profile, for a vendor's README."""

from __future__ import annotations

from xml.sax.saxutils import escape

from conformance.results import ProfileTally

GREEN, YELLOW, RED, GREY = "#1e7a3e", "#8a5a10", "#b3232f", "#5f6b72"
LETTER_WIDTH = 6.6
"""The average width of a letter of Verdana at 11 px; `textLength` makes the text fit exactly."""


def badge(tally: ProfileTally) -> str:
    """The badge of a profile: green where all musts pass, yellow where some were not judged, red where one fails, grey where
    none was judged."""
    passed = tally.judged - len(tally.failed)
    colour = GREY if not tally.judged else RED if tally.failed else YELLOW if tally.judged < tally.musts else GREEN
    left, right = f"tidegauge {tally.profile}", f"{passed} of {tally.musts} musts pass"
    widths = [round(len(text) * LETTER_WIDTH + 12) for text in (left, right)]
    texts = "".join(
        f'<text x="{start + 6}" y="14" textLength="{width - 12}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
        for text, start, width in ((left, 0, widths[0]), (right, widths[0], widths[1]))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" '
        f'aria-label="{escape(left)}: {right}">'
        f"<title>{escape(left)}: {right}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#3a434a"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
