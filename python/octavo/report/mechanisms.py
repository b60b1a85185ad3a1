"""Figures of mechanisms, for docs/explanation and for the designs of `octavo explain`.

Lines and letters have the colour of the surrounding text. In a page of the site, a figure follows
the light or dark scheme of the page; as a file, it follows that of the system.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

WIDTH = 480
STYLE = (
    "<style>svg { color: #263238 } "
    "@media (prefers-color-scheme: dark) { svg { color: #eceff1 } }</style>"
)
TEAL, ORANGE = "#00897b", "#f4511e"


class Figure:
    """Boxes, arrows and words on a canvas as wide as a phone's screen can show."""

    def __init__(self, height: int, label: str) -> None:
        self._height, self._label = height, label
        self._parts: list[str] = []

    def words(self, x: int, y: int, text: str, anchor: str = "middle", size: int = 14) -> None:
        """A line of text, whose baseline is y."""
        at = f'x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
        self._parts.append(f'<text {at} fill="currentColor">{escape(text)}</text>')

    def box(
        self, x: int, y: int, width: int, height: int, *lines: str, fill: str | None = None
    ) -> None:
        """A box with lines of text in its middle, optionally filled with a colour."""
        colour = f'fill="{fill}" fill-opacity="0.3"' if fill else 'fill="none"'
        at = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self._parts.append(f'<rect {at} rx="3" stroke="currentColor" {colour}/>')
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.words(x + width // 2, round(first + 18 * number), line)

    def arrow(self, x1: int, y1: int, x2: int, y2: int) -> None:
        """A horizontal or vertical line with an arrow head at its end."""
        self._parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="currentColor" fill="none"/>')
        if y1 == y2:
            back = 7 if x2 > x1 else -7
            head = f"M{x2} {y2}l{-back} -4v8z"
        else:
            back = 7 if y2 > y1 else -7
            head = f"M{x2} {y2}l-4 {-back}h8z"
        self._parts.append(f'<path d="{head}" fill="currentColor"/>')

    def line(self, *points: tuple[int, int], colour: str = "currentColor") -> None:
        """A polyline through points."""
        path = "L".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')

    def svg(self) -> str:
        """The figure as the text of an SVG file."""
        label = escape(self._label, quote=True)
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" '
            f'class="figure" role="img" aria-label="{label}" font-family="sans-serif">'
        )
        return "\n".join([opening, STYLE, *self._parts, "</svg>", ""])


FIGURES: dict[str, Callable[[], Figure]] = {}
"""Figures by mechanism; the registration of a design names one, and docs/explanation shows some."""


def _figure(height: int, label: str) -> Callable[[Callable[[Figure], None]], None]:
    """A decorator that registers the figure that a function draws, under the function's name."""

    def add(draw: Callable[[Figure], None]) -> None:
        def drawn() -> Figure:
            figure = Figure(height, label)
            draw(figure)
            return figure

        FIGURES[draw.__name__.replace("_", "-")] = drawn

    return add


@_figure(330, "A virtual address is looked up in two TLBs; a miss in both walks the page table")
def translation(figure: Figure) -> None:
    """The path of an access through two TLBs and a page walk."""
    figure.box(10, 10, 200, 34, "virtual page number")
    figure.arrow(110, 44, 110, 78)
    for y, name, cost in ((78, "first-level TLB", "64 entries"), (154, "second-level TLB", "2048")):
        figure.box(10, y, 200, 42, name, fill=TEAL)
        figure.words(225, y + 16, cost, "start")
        figure.arrow(110, y + 42, 110, y + 76)
        figure.words(122, y + 63, "miss", "start")
    figure.box(10, 230, 200, 80)
    figure.words(110, 252, "page walk")
    for level in range(4):
        figure.box(22 + 46 * level, 266, 38, 30, str(4 - level), fill=ORANGE)
    for y in (99, 175):
        figure.arrow(330, y, 380, y)
    figure.words(355, 91, "hit")
    figure.words(355, 167, "hit")
    figure.arrow(210, 280, 380, 280)
    figure.words(295, 270, "4 loads at most")
    figure.box(380, 78, 90, 232, "physical", "frame")


@_figure(250, "A segment is defined once; each execution adds its number and its data addresses")
def segments(figure: Figure) -> None:
    """Segments defined once, and the stream of their executions."""
    figure.box(10, 10, 150, 90, "program under", "Valgrind")
    figure.box(10, 150, 150, 90, "segment 7", "fetch, load, fetch,", "store")
    figure.arrow(85, 100, 85, 150)
    figure.words(95, 130, "once", "start")
    figure.arrow(160, 55, 200, 55)
    for number, text in enumerate(("7", "a1", "a2", "7", "a3", "a4")):
        figure.box(200 + 32 * number, 38, 32, 34, text, fill=ORANGE if text == "7" else TEAL)
    figure.words(296, 26, "ring in shared memory")
    figure.arrow(392, 55, 420, 55)
    figure.words(450, 60, "…")
    figure.arrow(296, 72, 296, 150)
    figure.words(306, 116, "each execution", "start")
    figure.arrow(160, 195, 200, 195)
    figure.box(200, 150, 192, 90, "decoder", "every reference,", "in order")
    figure.arrow(392, 195, 420, 195)
    figure.words(442, 190, "TLBs,")
    figure.words(442, 208, "all sizes", size=13)


@_figure(250, "The depth of a page in the LRU stack is the least TLB that hits")
def curves(figure: Figure) -> None:
    """A stack of pages and the curve of its distances."""
    for number, page in enumerate(("C", "A", "F", "B", "D")):
        figure.box(20, 20 + 38 * number, 80, 38, page, fill=ORANGE if page == "B" else None)
        figure.words(112, 44 + 38 * number, str(number + 1), "start")
    figure.words(60, 234, "LRU stack")
    figure.words(150, 158, "B referenced: depth 4", "start", 13)
    figure.line((220, 20), (220, 130), (460, 130))
    figure.line(
        *((220, 30), (250, 30), (250, 62), (290, 62), (290, 84), (330, 84), (330, 112), (450, 112)),
        colour=TEAL,
    )
    figure.words(340, 22, "misses of every size")
    figure.words(455, 148, "entries", "end", 12)
    figure.words(150, 184, "hits with 4 entries or more,", "start", 13)
    figure.words(150, 204, "misses with 3 or fewer", "start", 13)


@_figure(230, "A chunk with half of its blocks in use becomes one large page")
def two_page_sizes(figure: Figure) -> None:
    """Two chunks, one of which is promoted."""
    for y, used, name in ((40, {0, 2, 3, 5, 7}, "large page"), (150, {1, 6}, "2 small pages")):
        for block in range(8):
            figure.box(10 + 34 * block, y, 34, 40, fill=TEAL if block in used else None)
        figure.arrow(290, y + 20, 330, y + 20)
        figure.words(10, y - 10, f"{len(used)} of 8 blocks used lately", "start")
        if len(used) >= 4:
            figure.box(340, y, 130, 40, name, fill=ORANGE)
        else:
            figure.box(340, y, 34, 40, fill=ORANGE)
            figure.box(384, y, 34, 40, fill=ORANGE)
            figure.words(405, y + 62, name)


@_figure(210, "A mapping of 28 KiB is three pages: 16, 8 and 4 KiB, each one TLB entry")
def power_of_two_pages(figure: Figure) -> None:
    """A mapping as pages of powers of two."""
    figure.words(10, 24, "a mapping of 28 KiB", "start")
    for page in range(7):
        figure.box(10 + 60 * page, 34, 60, 36, "4K")
    figure.words(10, 100, "its pages, each aligned to its size", "start")
    for x, width, name in ((10, 240, "16K"), (250, 120, "8K"), (370, 60, "4K")):
        figure.box(x, 110, width, 36, name, fill=TEAL)
        figure.arrow(x + width // 2, 146, x + width // 2, 176)
    figure.words(220, 196, "one TLB entry each; its mask has the size")


@_figure(250, "Most of a 2 MiB page is in one frame; holes are translated by their own entries")
def holes(figure: Figure) -> None:
    """A large page with holes."""
    figure.words(10, 24, "virtual page of 2 MiB", "start")
    holes = {3, 8}
    for part in range(12):
        figure.box(10 + 38 * part, 34, 38, 36, fill=ORANGE if part in holes else TEAL)
    figure.words(160, 110, "one entry, one 2 MiB frame", "start")
    figure.box(10, 124, 456, 30, fill=TEAL)
    figure.arrow(48, 70, 48, 124)
    for hole in sorted(holes):
        x = 29 + 38 * hole
        figure.box(x - 19, 124, 38, 30, fill="#9e9e9e")
        figure.arrow(x, 154, x, 196)
    figure.words(29 + 38 * 3 + 14, 182, "hole: used by others", "start", 12)
    figure.box(100, 196, 90, 40, "4 KiB frame", fill=ORANGE)
    figure.box(288, 196, 90, 40, "4 KiB frame", fill=ORANGE)


@_figure(170, "Virtual caches hit without translation; a miss of the second runs a handler")
def software_translation(figure: Figure) -> None:
    """Virtual caches in front of a handler."""
    figure.box(10, 40, 90, 60, "L1 cache", "virtual", fill=TEAL)
    figure.box(140, 40, 90, 60, "L2 cache", "virtual", fill=TEAL)
    figure.box(270, 40, 90, 60, "handler", "software", fill=ORANGE)
    figure.box(400, 40, 70, 60, "memory", "physical")
    for x in (100, 230, 360):
        figure.arrow(x, 70, x + 40, 70)
    figure.words(120, 30, "miss")
    figure.words(250, 30, "miss")
    figure.words(120, 130, "hits: no translation")
    figure.words(350, 130, "translates each miss of L2,")
    figure.words(350, 148, "from page-table entries in L2")


@_figure(240, "Two misses that overlap cost less time than their latencies added up")
def core_model(figure: Figure) -> None:
    """A walk that overlaps with another miss."""
    rows = (("load, cache miss", 10, 260, TEAL), ("page walk", 60, 150, ORANGE))
    figure.words(10, 22, "out of order", "start")
    for number, (name, x, width, colour) in enumerate(rows):
        figure.box(x, 32 + 36 * number, width, 30, name, fill=colour)
    figure.line((270, 24), (270, 106))
    figure.words(278, 62, "the walk adds nothing", "start", 13)
    figure.words(10, 140, "latencies added up", "start")
    figure.box(10, 150, 260, 30, rows[0][0], fill=TEAL)
    figure.box(270, 150, 150, 30, rows[1][0], fill=ORANGE)
    figure.line((420, 142), (420, 190))
    figure.arrow(10, 206, 470, 206)
    figure.words(465, 226, "cycles", "end")


@_figure(220, "A 2 MiB page takes one TLB entry, 512 pages of 4 KiB take 512")
def huge_pages(figure: Figure) -> None:
    """512 base pages as one."""
    figure.words(10, 24, "2 MiB of memory as 4 KiB pages", "start")
    for page in range(24):
        figure.box(10 + 19 * page, 34, 19, 30, fill=TEAL)
    figure.words(10, 86, "512 TLB entries, page table of four levels", "start", 13)
    figure.arrow(238, 94, 238, 122)
    figure.words(250, 113, "aligned, in one free piece", "start", 13)
    figure.box(10, 126, 456, 36, "one page of 2 MiB", fill=ORANGE)
    figure.words(10, 188, "1 TLB entry, a walk is one level shorter", "start", 13)


@_figure(240, "Pages go to their places in a reserved frame, and become one once it is full")
def reservation(figure: Figure) -> None:
    """Base pages in a reserved frame."""
    figure.words(10, 24, "virtual pages, as they are touched", "start")
    figure.words(10, 122, "frame of 2 MiB, reserved at the first touch", "start")
    for page in range(12):
        touched = page in {0, 1, 2, 4, 7}
        figure.box(10 + 38 * page, 34, 38, 30, fill=TEAL if touched else None)
        figure.box(10 + 38 * page, 132, 38, 30, fill=TEAL if touched else None)
    figure.arrow(29, 64, 29, 104)
    figure.words(40, 90, "each to the same place", "start", 13)
    figure.arrow(238, 162, 238, 190)
    figure.words(250, 181, "all touched", "start", 13)
    figure.box(10, 194, 456, 34, "one page of 2 MiB, nothing copied", fill=ORANGE)


@_figure(200, "Aligned 4 KiB pages in one larger page share a page fault and a TLB entry")
def granules(figure: Figure) -> None:
    """Base pages of another size in one entry."""
    figure.words(10, 24, "4 KiB of address space each", "start")
    for page in range(12):
        figure.box(10 + 38 * page, 34, 38, 30)
    figure.words(10, 100, "larger base pages, each allocated whole at its first touch", "start", 13)
    for page in range(3):
        figure.box(10 + 152 * page, 110, 152, 34, "one page", fill=TEAL if page < 2 else None)
        figure.arrow(86 + 152 * page, 144, 86 + 152 * page, 168)
    figure.words(238, 188, "one TLB entry each, in the arrays of base pages")


@_figure(240, "Pages that are contiguous in both address spaces share one TLB entry")
def coalescing(figure: Figure) -> None:
    """A run of pages in one entry."""
    figure.words(10, 24, "virtual pages of an aligned group", "start")
    places = (4, 5, 6, 9, 1, 2, 10, 8)
    for page, place in enumerate(places):
        colour = TEAL if page < 3 else ORANGE if page in {4, 5} else None
        figure.box(10 + 45 * page, 34, 45, 34, str(page), fill=colour)
        figure.box(10 + 38 * place, 118, 38, 34, str(page), fill=colour)
    figure.words(10, 108, "frames", "start")
    for x, width, text, colour in (
        (10, 140, "pages 0 to 2", TEAL),
        (160, 140, "pages 4 and 5", ORANGE),
        (310, 160, "3, 6, 7: 3 entries", None),
    ):
        figure.box(x, 180, width, 36, text, fill=colour)
    figure.words(10, 174, "TLB entries", "start", 13)


@_figure(250, "A miss of the first level asks the second level and a range TLB at once")
def range_tlb(figure: Figure) -> None:
    """A range TLB beside the second level."""
    figure.box(10, 10, 200, 40, "first-level TLB", fill=TEAL)
    figure.words(225, 60, "miss", "start")
    figure.arrow(110, 50, 110, 82)
    figure.line((110, 66), (350, 66))
    figure.arrow(350, 66, 350, 82)
    figure.box(10, 82, 200, 46, "second-level TLB", "pages", fill=TEAL)
    figure.box(250, 82, 210, 46, "range TLB", "first, last, offset", fill=ORANGE)
    figure.words(120, 150, "both miss", "start")
    figure.arrow(110, 128, 110, 168)
    figure.arrow(350, 200, 350, 128)
    figure.words(362, 156, "fills", "start")
    figure.box(10, 168, 200, 46, "walk of the page table")
    figure.box(250, 200, 210, 40, "walk of the range table")
    figure.arrow(210, 208, 250, 208)
    figure.words(10, 240, "the second walk costs no time", "start", 13)


@_figure(230, "Addresses between base and limit are translated by adding an offset")
def direct_segment(figure: Figure) -> None:
    """Registers that translate one range."""
    figure.words(10, 24, "virtual addresses", "start")
    figure.box(10, 34, 110, 36, "pages")
    figure.box(120, 34, 240, 36, "segment", fill=ORANGE)
    figure.box(360, 34, 106, 36, "pages")
    figure.words(120, 90, "base", "start", 13)
    figure.words(360, 90, "limit", "end", 13)
    figure.arrow(240, 70, 240, 150)
    figure.words(250, 122, "+ offset, no TLB", "start")
    figure.arrow(65, 70, 65, 150)
    figure.words(75, 122, "TLB, walk", "start")
    figure.box(10, 150, 456, 36)
    figure.box(180, 150, 240, 36, "contiguous frames", fill=ORANGE)
    figure.words(10, 210, "physical memory", "start")


@_figure(240, "A 2 MiB page is made of any 32 of the 64 sub-blocks of a 4 MiB chunk")
def gaps(figure: Figure) -> None:
    """A page made of some sub-blocks of a chunk."""
    figure.words(10, 24, "virtual page of 2 MiB: 32 sub-blocks of 64 KiB", "start")
    for block in range(6):
        figure.box(10 + 38 * block, 34, 38, 32, str(block), fill=TEAL)
    figure.words(10, 108, "chunk of 4 MiB: 64 sub-blocks, half of them used by others", "start", 13)
    used, number = {0, 2, 3, 6, 8, 11}, 0
    for block in range(12):
        inside = block in used
        text = (str(number),) if inside else ()
        number += inside
        figure.box(10 + 38 * block, 118, 38, 32, *text, fill=TEAL if inside else "#9e9e9e")
        figure.box(10 + 38 * block, 182, 38, 32, "1" if inside else "0", fill=ORANGE)
    figure.arrow(124, 66, 124, 94)
    figure.words(10, 176, "bitmap of the chunk: the n-th 1 is sub-block n", "start", 13)


@_figure(300, "A third-level TLB lies in memory, and data caches hold lines of it")
def tlb_in_memory(figure: Figure) -> None:
    """A third level in memory."""
    for y, text, colour in ((10, "first-level TLB", TEAL), (84, "second-level TLB", TEAL)):
        figure.box(10, y, 200, 40, text, fill=colour)
        figure.arrow(110, y + 40, 110, y + 74)
        figure.words(120, y + 62, "miss", "start")
    figure.box(10, 158, 200, 50, "third-level TLB", "16 MiB of memory", fill=ORANGE)
    figure.box(290, 158, 170, 50, "data caches", "a set is a line")
    figure.arrow(210, 183, 290, 183)
    figure.words(250, 174, "reads", size=13)
    figure.arrow(110, 208, 110, 244)
    figure.words(120, 231, "miss", "start")
    figure.box(10, 244, 200, 40, "page walk")
    figure.words(290, 140, "predicted page size", "start", 13)


@_figure(290, "Lines of the second-level data cache hold the TLB entries of eight pages")
def tlb_in_cache(figure: Figure) -> None:
    """Blocks of TLB entries among the lines of a data cache."""
    for y, text in ((10, "first-level TLB"), (84, "second-level TLB")):
        figure.box(10, y, 200, 40, text, fill=TEAL)
        figure.arrow(110, y + 40, 110, y + 74)
        figure.words(120, y + 62, "miss", "start")
    figure.box(10, 158, 200, 40, "page walk")
    figure.arrow(210, 104, 290, 104)
    figure.words(250, 95, "miss", size=13)
    figure.words(375, 50, "second-level data cache")
    for row, text in enumerate(("data", "8 TLB entries", "data", "page table", "8 TLB entries")):
        fill = ORANGE if text.startswith("8") else None
        figure.box(290, 64 + 36 * row, 170, 36, text, fill=fill)
    figure.words(110, 222, "a hit ends the walk", size=13)
    figure.arrow(210, 190, 290, 226)
    figure.words(110, 262, "a costly walk fills a block", size=13)


@_figure(250, "A walk probes all ways of hashed page tables at once")
def cuckoo_tables(figure: Figure) -> None:
    """Probes of all ways at once."""
    figure.box(10, 10, 200, 40, "virtual page number")
    figure.words(230, 36, "walk tables say which sizes", "start", 13)
    for way in range(3):
        x = 10 + 156 * way
        figure.box(x, 122, 140, 60, f"way {way + 1}", fill=TEAL)
        figure.box(x + 12, 190, 116, 34, "8 pages a line", fill=ORANGE if way == 1 else None)
        figure.arrow(x + 70, 86, x + 70, 122)
        figure.words(x + 80, 110, f"hash {way + 1}", "start", 13)
    figure.line((110, 50), (110, 86))
    figure.line((80, 86), (392, 86))
    figure.words(238, 244, "one memory latency, not four", size=13)


@_figure(190, "Hardware looks the page-table entry up in the virtual cache itself")
def in_cache_translation(figure: Figure) -> None:
    """Page-table entries that hardware finds in the cache."""
    figure.box(10, 50, 120, 70, "virtual caches", fill=TEAL)
    figure.box(200, 50, 120, 70, "hardware", "makes the", "entry's address", fill=ORANGE)
    figure.box(390, 50, 80, 70, "memory", "physical")
    figure.arrow(130, 70, 200, 70)
    figure.words(165, 62, "miss")
    figure.arrow(200, 104, 130, 104)
    figure.words(165, 138, "entry?", size=13)
    figure.arrow(320, 85, 390, 85)
    figure.words(355, 77, "frame")
    figure.words(10, 30, "hits: no translation", "start")
    figure.words(10, 174, "entries have virtual addresses, and share the cache", "start", 13)


@_figure(180, "Misses of virtual caches ask a TLB, which a software handler refills")
def software_refill_virtual(figure: Figure) -> None:
    """A TLB behind virtual caches."""
    _software_refill(figure, "virtual")


@_figure(180, "Each access asks a TLB, which a software handler refills")
def software_refill_physical(figure: Figure) -> None:
    """A TLB in front of physical caches."""
    _software_refill(figure, "physical")


def _software_refill(figure: Figure, caches: str) -> None:
    """A TLB that software refills, behind virtual caches or in front of physical ones."""
    cache, tlb = (f"{caches} caches", TEAL), ("TLB, 64 entries", ORANGE)
    order = (cache, tlb) if caches == "virtual" else (tlb, cache)
    for x, (text, colour) in zip((10, 190), order, strict=True):
        figure.box(x, 50, 140, 50, text, fill=colour)
    figure.box(390, 50, 80, 50, "memory", "physical")
    for x, width in ((150, 40), (330, 60)):
        figure.arrow(x, 75, x + width, 75)
    at = 260 if caches == "virtual" else 80
    figure.box(at - 70, 130, 140, 36, "handler refills")
    figure.arrow(at - 20, 100, at - 20, 130)
    figure.arrow(at + 20, 130, at + 20, 100)
    figure.words(at + 30, 120, "miss", "start", 13)
    text = "hits: no translation" if caches == "virtual" else "every access is translated"
    figure.words(10, 30, text, "start")


@_figure(106, "A first-level TLB that never misses: a bound, which cannot be built")
def perfect_first(figure: Figure) -> None:
    """A first level that never misses, without a second level."""
    _perfect(figure, "first")


@_figure(182, "A second-level TLB that never misses: a bound, which cannot be built")
def perfect_second(figure: Figure) -> None:
    """A second level that never misses, behind a first level that may miss."""
    _perfect(figure, "second")


def _perfect(figure: Figure, level: str) -> None:
    """A level that never misses."""
    names = ["first-level TLB"] if level == "first" else ["first-level TLB", "second-level TLB"]
    height = 42 + 76 * (len(names) - 1)
    for number, name in enumerate(names):
        y = 20 + 76 * number
        is_perfect = name.startswith(level)
        figure.box(10, y, 200, 42, name, fill=ORANGE if is_perfect else TEAL)
        figure.arrow(210, y + 21, 330, y + 21)
        figure.words(270, y + 13, "always hits" if is_perfect else "hit")
        if not is_perfect:
            figure.arrow(110, y + 42, 110, y + 76)
            figure.words(120, y + 64, "miss", "start")
    figure.box(330, 20, 130, height, "physical frame")
    figure.words(10, height + 46, "no page walks; page faults stay", "start", 13)
