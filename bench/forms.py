"""The fused forms against the same networks in LibTorch's own operations (`--impl reference`): rows of Markdown.

For networks without usable published code (Vision-LSTM, VisionLLaMA, iLLaMA) the reference represents it: scaled
dot-product attention, linear, the paper's parallel mLSTM. It runs in fp32 and in bf16; the faster of the two counts.
"""

import argparse
import math
import statistics

from rounds import head, row, take_turns, tessera, times_faster

INFER = ["vil_tiny_patch16_224", "vil_small_patch16_224", "vil_base_patch16_224", "visionllama_small_patch16_224",
         "illama_small_patch16_224"]
TRAIN = ["deit3_small_patch16_224", "vil_tiny_patch16_224", "vil_small_patch16_224"]
SIZES = [224, 448, 896, 1344, 1792]
LARGEST_REFERENCE = 896  # larger images exceed most memories: the parallel form has matrices of tokens x
                         # tokens
EMPTY = 32               # four tokens: memory of the program and the weights


def compare(options, kind, model, batch, size=224, slow=False):
    """One row: our images per second in each precision, the reference's, and the speedup of our bf16.

    Slow steps, about a minute in total, run one round.
    """
    precisions = ("bf16", "fp32")
    ways = {(impl, dtype): lambda impl=impl, dtype=dtype: tessera(
        options.program, kind, model=model, batch=batch, size=size, precision=dtype, impl=impl, threads=options.threads,
        seconds=0 if slow else options.seconds)["images_per_second"]
        for impl in ("fast", "reference") for dtype in precisions}
    rates = take_turns(ways, 1 if slow else options.rounds, f"{kind} {model} {size}")
    middle = {way: statistics.median(values) for way, values in rates.items()}
    best = max(precisions, key=lambda dtype: middle["reference", dtype])
    row(model, size, batch, *(f"{middle[way]:.3g}" for way in ways), best,
        f"{times_faster(rates['fast', 'bf16'], rates['reference', best]):.2f}",
        f"{times_faster(rates['fast', best], rates['reference', best]):.2f}")


def compare_head(*precisions):
    head("model", "size", "batch", *(f"{impl} {dtype}" for impl in ("fused", "reference") for dtype in precisions),
         "the reference's best", "our bf16 is faster by", "in the same precision by")


def by_size(options):
    """Time and memory per token of ViL-T from 224 to 1792; the points of both forms."""

    def point(size, impl):
        line = tessera(options.program, "infer", model="vil_tiny_patch16_224", batch=1, size=size, precision="bf16",
                       threads=options.threads, seconds=0, impl=impl)
        return line["ms"], line["peak_rss_mb"]

    ways = {(impl, size): lambda impl=impl, size=size: point(size, impl) for size in [EMPTY, *SIZES]
            for impl in ("fast", "reference") if impl == "fast" or size <= LARGEST_REFERENCE}
    results = take_turns(ways, max(1, options.rounds // 2), "ViL-T by size")
    points = {}
    head("form", "size", "tokens", "ms", "microseconds a token", "working memory, MB", "kB a token")
    for (impl, size), found in results.items():
        if size == EMPTY:
            continue
        tokens = (size // 16) ** 2
        ms = statistics.median(each[0] for each in found)
        memory = min(each[1] for each in found) - min(each[1] for each in results[impl, EMPTY])
        points.setdefault(impl, []).append((tokens, ms * 1e3 / tokens, memory * 1e3 / tokens))
        row("fused" if impl == "fast" else "reference", size, tokens, f"{ms:.1f}", f"{ms * 1e3 / tokens:.0f}",
            f"{memory:.0f}", f"{memory * 1e3 / tokens:.0f}")
    return points


def panel(points, value, left, title, unit):
    """One pair of logarithmic axes as SVG, 320 wide: `value` returns the number of a point."""
    every = [p[value] for line in points.values() for p in line]
    low, high = 10 ** math.floor(math.log10(min(every))), 10 ** math.ceil(math.log10(max(every)))
    tokens = sorted({p[0] for line in points.values() for p in line})

    def x(count):
        return left + 50 + 250 * math.log(count / tokens[0]) / math.log(tokens[-1] / tokens[0])

    def y(number):
        return 210 - 160 * math.log(number / low) / math.log(high / low)

    parts = [f'<text x="{left + 50}" y="30" class="title">{title}</text>']
    decade = low
    while decade <= high:
        parts.append(f'<path d="M{left + 50} {y(decade):.1f}h250" class="grid"/>'
                     f'<text x="{left + 44}" y="{y(decade) + 4:.1f}" text-anchor="end">{decade:g}</text>')
        decade *= 10
    parts += [f'<text x="{x(count):.1f}" y="228" text-anchor="middle">{count}</text>' for count in tokens]
    parts.append(f'<text x="{left + 175}" y="246" text-anchor="middle">tokens</text>'
                 f'<text x="{left + 50}" y="44">{unit}</text>')
    for name, line in points.items():
        path = "L".join(f"{x(p[0]):.1f} {y(p[value]):.1f}" for p in line)
        parts.append(f'<path d="M{path}" class="{name}"/>')
        parts += [f'<circle cx="{x(p[0]):.1f}" cy="{y(p[value]):.1f}" r="3" class="{name} dot"/>' for p in line]
        if name == "fast":
            parts.append(f'<text x="{x(line[-1][0]):.1f}" y="{y(line[-1][value]) + 14:.1f}" text-anchor="end" '
                         f'class="fast label">fused, chunkwise</text>')
        else:  # the corner that a rising line leaves free
            parts.append(f'<text x="{left + 54}" y="64" class="reference label">parallel, of ATen\'s operations</text>')
    return "\n".join(parts)


def plot(points, path):
    style = ("text{font:11px sans-serif;fill:#555}.title{font-weight:bold;fill:#222}.grid{stroke:#ddd}"
             "path{fill:none;stroke-width:2}.grid{stroke-width:1}.fast{stroke:#1b6ca8}.reference{stroke:#c0504d}"
             ".dot.fast,.label.fast{fill:#1b6ca8}.dot.reference,.label.reference{fill:#c0504d}.label{stroke:none}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 260" width="680" height="260">\n'
                   f"<style>{style}</style>\n<rect width=\"680\" height=\"260\" fill=\"#fff\"/>\n"
                   + panel(points, 1, 0, "ViL-T, batch 1, bfloat16: time", "microseconds a token") + "\n"
                   + panel(points, 2, 340, "working memory", "kB a token") + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="per implementation and round")
    parser.add_argument("--parts", default="infer,train,size", help="comma-separated: infer, train, size")
    parser.add_argument("--plot", help="file for the plot by size (SVG)")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if "infer" in parts:
        print("\nInference, images/s:\n")
        compare_head("bf16", "fp32")
        for model in INFER:
            compare(options, "infer", model, 8)
        compare(options, "infer", INFER[0], 1, 896, slow=True)
    if "train" in parts:
        print("\nTraining steps, images/s:\n")
        compare_head("bf16", "fp32")
        for model in TRAIN:
            compare(options, "train", model, 8)
    if "size" in parts:
        print("\nViL-T by size of the picture, batch 1, bf16:\n")
        points = by_size(options)
        if options.plot:
            plot(points, options.plot)


if __name__ == "__main__":
    main()
