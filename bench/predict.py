"""`tessera predict` with ViL-S: a new process for one image, and a folder against the model's own rate; JSON and a table."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from rounds import head, row, run_watched, tessera

MODEL = "vil_small_patch16_224"


def weights(program, folder):
    """A file of ViL-S as training writes it: one step on images that need no files."""
    recipe = folder / "recipe.toml"
    recipe.write_text("[preprocess]\nsize = 224\n[train]\nepochs = 1\nbatch_size = 2\n")
    subprocess.run([program, "train", recipe, "--model", MODEL, "--data", "shapes:train=2,val=2", "-o", folder / "run"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "run" / "model.safetensors"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--pictures", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    pictures = sorted(options.pictures.glob("*/*.jpg"))
    with tempfile.TemporaryDirectory() as folder:
        predict = [options.program, "predict", "--weights", weights(options.program, pathlib.Path(folder)), "--threads",
                   str(options.threads), "--batch", str(options.batch), "--csv"]
        result = {"benchmark": "tessera predict, ViL-S", "threads": options.threads, "images": len(pictures)}
        for precision in ("fp32", "bf16"):
            single = [run_watched([*predict, "--precision", precision, pictures[0]]) for _ in range(options.rounds + 1)][1:]
            # Measures the model alone before and after the folder, so that other load affects both.
            alone = lambda: tessera(options.program, "infer", model=MODEL, batch=options.batch, precision=precision,
                                    threads=options.threads, seconds=6)["images_per_second"]
            before = alone()
            seconds, memory = run_watched([*predict, "--precision", precision, options.pictures])
            rate = (before + alone()) / 2
            result[precision] = {
                "one_picture_seconds": round(statistics.median(s for s, _ in single), 3),
                "one_picture_seconds_slowest": round(max(s for s, _ in single), 3),
                "one_picture_peak_mb": round(max(m for _, m in single)),
                "folder_images_per_second": round(len(pictures) / seconds, 2),
                "folder_peak_mb": round(memory),
                "model_alone_images_per_second": round(rate, 2),
                "folder_percent_of_model_alone": round(100 * len(pictures) / seconds / rate, 1),
            }
        print(json.dumps(result))
    print()
    head("precision", "one picture, new process", "slowest", "peak memory", "folder", "model alone", "share")
    for precision in ("fp32", "bf16"):
        line = result[precision]
        row(precision, f"{line['one_picture_seconds']:.2f} s", f"{line['one_picture_seconds_slowest']:.2f} s",
            f"{line['one_picture_peak_mb']} MB", f"{line['folder_images_per_second']} images/s",
            f"{line['model_alone_images_per_second']} images/s", f"{line['folder_percent_of_model_alone']} %")


if __name__ == "__main__":
    main()
