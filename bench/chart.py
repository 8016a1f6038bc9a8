"""Charts for docs/images: panels next to each other, each with points of several series, joined or not."""

import math

COLOURS = ("#1b6ca8", "#c0504d", "#2e7d32", "#8e5ea2", "#b07d12")
WIDTH, HEIGHT, LEFT, TOP, INNER_WIDTH, INNER_HEIGHT = 340, 280, 52, 40, 268, 180
STYLE = ("text{font:11px sans-serif;fill:#555}.title{font-weight:bold;fill:#222}.grid{stroke:#ddd}"
         ".line{fill:none;stroke-width:2}")


def ticks(low, high):
    """Returns about five round numbers that cover the range."""
    raw = (high - low or 1) / 4
    step = min((m * 10 ** math.floor(math.log10(raw)) for m in (1, 2, 5, 10)), key=lambda size: abs(size - raw))
    first = math.floor(low / step)
    return [round(step * i, 12) for i in range(first, math.ceil(high / step) + 1)]


def panel(left, title, x_label, y_label, series, joined):
    every = [point for points in series.values() for point in points]
    across, up = ticks(*bounds(every, 0)), ticks(*bounds(every, 1))

    def x(value):
        return left + LEFT + INNER_WIDTH * (value - across[0]) / (across[-1] - across[0])

    def y(value):
        return TOP + INNER_HEIGHT * (1 - (value - up[0]) / (up[-1] - up[0]))

    parts = [f'<text x="{left + LEFT}" y="16" class="title">{title}</text><text x="{left + LEFT}" y="30">{y_label}</text>',
             f'<text x="{left + LEFT + INNER_WIDTH / 2}" y="{TOP + INNER_HEIGHT + 34}" text-anchor="middle">{x_label}</text>']
    for value in up:
        parts.append(f'<path d="M{left + LEFT} {y(value):.1f}h{INNER_WIDTH}" class="grid"/>'
                     f'<text x="{left + LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [f'<text x="{x(value):.1f}" y="{TOP + INNER_HEIGHT + 18}" text-anchor="middle">{value:g}</text>'
              for value in across]
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x(point[0]), y(point[1])) for point in points]
        if joined:
            path = "L".join(f"{across:.1f} {up:.1f}" for across, up in places)
            parts.append(f'<path d="M{path}" class="line" stroke="{colour}"/>')
        for point, (across_at, up_at) in zip(points, places):
            parts.append(f'<circle cx="{across_at:.1f}" cy="{up_at:.1f}" r="3" fill="{colour}"/>')
            if len(point) > 2:
                near = [other[1] for other in places if 0 < abs(other[1] - up_at) < 14 and abs(other[0] - across_at) < 120]
                beside = up_at + (4 if not near else -3 if near[0] > up_at else 13)
                far = across_at > left + LEFT + 0.7 * INNER_WIDTH
                at, anchor = (across_at - 6, "end") if far else (across_at + 6, "start")
                parts.append(f'<text x="{at:.1f}" y="{beside:.1f}" text-anchor="{anchor}">{point[2]}</text>')
        if name:
            parts.append(f'<text x="{left + LEFT + number % 2 * 134}" y="{TOP + INNER_HEIGHT + 50 + number // 2 * 14}" '
                         f'style="fill:{colour}">{name}</text>')
    return "\n".join(parts)


def bounds(points, axis):
    values = [point[axis] for point in points]
    return min(values), max(values)


def write_chart(path, panels):
    """`panels`: (title, label across, label up, {series: [(x, y) or (x, y, words)]}, joined)."""
    rows = max((len(one[3]) + 1) // 2 for one in panels)
    width, height = WIDTH * len(panels), HEIGHT + 14 * (rows - 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                   f'height="{height}">\n<style>{STYLE}</style>\n<rect width="{width}" height="{height}" fill="#fff"/>\n')
        for number, one in enumerate(panels):
            file.write(panel(WIDTH * number, *one) + "\n")
        file.write("</svg>\n")
