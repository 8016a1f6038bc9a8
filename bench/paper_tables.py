#!/usr/bin/env python3
"""Tables of the papers that are speeds: seconds an iteration by norm (VisionLLaMA, Table 7b), and hours of ten epochs of
ImageNet-1K by family and precision, planned from measured images/s (Vision-LSTM, Table 6).

  bench/tables norms docs/performance.md bench/paper_tables.py norms --program BUILD/tessera
  bench/tables hours docs/performance.md bench/paper_tables.py hours --program BUILD/tessera
"""
import argparse
import statistics

from rounds import head, row, take_turns, tessera
from train_runs import HERE, mean, train

IMAGES = 1_281_167  # of ImageNet-1K's training set
EPOCHS = 10
FAMILIES = ("vil_tiny_patch16_224", "vil_small_patch16_224", "vil_base_patch16_224", "deit3_small_patch16_224",
            "deit3_base_patch16_224", "vim_tiny_patch16_224", "vrwkv_tiny_patch16_224")


def norms(options):
    """Training steps of VisionLLaMA-S with both norms, in turns."""
    def seconds(norm):
        lines = train([options.program], HERE.parent / "recipes" / "visionllama" / "small.toml",
                      f"shapes:size=224,train={4 * options.batch},val={options.batch}", 8, "--set", f"model.norm={norm}",
                      f"train.batch_size={options.batch}", f"train.precision={options.precision}")
        return options.batch / mean(lines, "images_per_second")

    found = take_turns({name: lambda norm=norm: seconds(norm) for name, norm in
                        (("LayerNorm", "layer"), ("RMSNorm", "rms"))}, options.rounds, "norms")
    head("norm", "seconds an iteration", f"images ({options.precision})", "of LayerNorm's time")
    layer = statistics.median(found["LayerNorm"])
    for name, all_rounds in found.items():
        median = statistics.median(all_rounds)
        row(name, f"{median:.3f}", options.batch, f"{median / layer:.3f}")


def hours(options):
    """Hours of training of each model, from images/s of its training steps."""
    head("model", "precision", "images/s", f"hours of {EPOCHS} epochs")
    for model in options.models:
        for precision in ("fp32", "bf16"):
            rates = [tessera(options.program, "train", model=model, batch_size=options.batch, precision=precision,
                             seconds=options.seconds)["images_per_second"] for _ in range(options.rounds)]
            rate = statistics.median(rates)
            row(model, precision, f"{rate:.1f}", f"{EPOCHS * IMAGES / rate / 3600:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("norms", "hours"))
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--models", nargs="+", default=FAMILIES)
    options = parser.parse_args()
    norms(options) if options.table == "norms" else hours(options)


if __name__ == "__main__":
    main()
