"""Draws docs/benchmarks/plots/one-node.svg from the table of docs/benchmarks/figures.md.

    python3 bench/plot-figures.py

Needs nothing but Python. Run it when the table "On tmpfs" has changed.
"""

import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / 'docs/benchmarks/figures.md'
PLOT = ROOT / 'docs/benchmarks/plots/one-node.svg'

RATIO = r'([\d.]+) \(([\d.]+)–([\d.]+)\)'
ROW = re.compile(rf'\| ([\w/]+) \| \S+ \| {RATIO} \| [\d.]+ \| \S+ \| {RATIO} \|')
TITLE = 'An instance in memory beside tmpfs: ratio of the rates, median and span'
ONE, TWO = '#1f6fb2', '#d9762b'
WIDTH, LEFT, ROW_HEIGHT, TOP = 760, 190, 18, 58
LEAST, MOST = 0.06, 12.0


def x(ratio):
    """Where a ratio is drawn; the scale is logarithmic."""
    share = math.log(ratio / LEAST) / math.log(MOST / LEAST)
    return LEFT + (WIDTH - LEFT - 20) * min(max(share, 0.01), 0.99)


def plot(rows):
    height = TOP + ROW_HEIGHT * len(rows) + 40
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12">')
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    yield f'<text x="10" y="18" font-size="14">{TITLE}</text>'
    yield f'<circle cx="16" cy="36" r="4" fill="{ONE}"/><text x="26" y="40">1 process</text>'
    yield f'<circle cx="106" cy="36" r="4" fill="{TWO}"/><text x="116" y="40">2 processes</text>'
    yield '<text x="210" y="40" fill="#555">right of the line at 1: faster than tmpfs</text>'
    for ratio in (0.1, 0.25, 0.5, 1, 2, 4, 8):
        colour = '#333' if ratio == 1 else '#ddd'
        yield (f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="{TOP - 6}" y2="{height - 32}" '
               f'stroke="{colour}"/>')
        yield f'<text x="{x(ratio):.1f}" y="{height - 16}" text-anchor="middle">{ratio:g}</text>'
    for number, (name, *ratios) in enumerate(rows):
        middle = TOP + ROW_HEIGHT * (number + 0.5)
        yield f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{name}</text>'
        for (median, least, most), colour, y in (
                (ratios[:3], ONE, middle - 3), (ratios[3:], TWO, middle + 3)):
            yield (f'<line x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                   f'stroke="{colour}" stroke-opacity="0.45" stroke-width="2"/>')
            yield f'<circle cx="{x(median):.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>'
    yield '</svg>'


def main():
    found = map(ROW.match, FIGURES.read_text(encoding='utf-8').split('\n'))
    rows = [(row[1], *map(float, row.groups()[1:])) for row in found if row]
    assert rows, 'the table has another form'
    PLOT.write_text('\n'.join(plot(rows)) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
