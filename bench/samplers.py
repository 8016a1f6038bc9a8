"""FID of one generator by sampler and by guidance, as rows of Markdown: bench/samplers.sh runs it."""

import argparse
import json
import pathlib
import subprocess
import tempfile

from chart import write_chart
from rounds import head, row

# Samplers of each kind of generator, with their numbers of steps; None if a sampler chooses its own.
CHAIN = {"ddpm": (250, 50, 20), "ddim": (250, 50, 20, 10), "dpmpp": (20,), "dpmpp_2m": (20, 10, 5), "dpmpp_3m": (20, 10),
         "dpmpp_2m_sde": (20,), "euler": (20,), "euler_ancestral": (20,), "heun": (10,)}
PATH = {"dopri5": (None,), "heun": (10, 5), "euler": (50, 20), "sde": (250, 50), "sde_heun": (50,)}


def said(command):
    """Returns the JSON object that a command prints, ignoring other output."""
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


class Measurement:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def program(self, *words):
        return [self.options.program, *map(str, words)]

    def of(self, sampler, steps, cfg):
        """(evaluations, seconds, FID, precision, recall) of options.images images."""
        images = self.folder / "images.npz"
        images.unlink(missing_ok=True)
        counted = () if steps is None else ("--steps", steps)
        drawn = said(self.program("generate", "--weights", self.options.run, "-o", images, "-n", self.options.images, "--batch",
                                  self.options.batch, "--sampler", sampler, *counted, "--cfg", cfg, "--precision", "bf16",
                                  "--json"))
        found = said(self.program("fid", images, "--reference", self.options.data, "--reference-split", "validation",
                                  "--weights", self.options.classifier, "--metrics", "fid,pr", "--json"))
        return drawn["evaluations"], drawn["seconds"], found["fid"], found["precision"], found["recall"]

    def print_row(self, *name, sampler, steps, cfg):
        evaluations, seconds, fid, precision, recall = self.of(sampler, steps, cfg)
        row(*name, evaluations, f"{seconds:.0f}", f"{fid:.3f}", f"{precision:.3f}", f"{recall:.3f}")
        return fid, precision, recall


def kind_of(options):
    """Returns the samplers for these weights: those of a chain unless the program rejects one."""
    with tempfile.TemporaryDirectory() as directory:
        asked = subprocess.run([options.program, "generate", "--weights", options.run, "-o", f"{directory}/one.png", "-n", "1",
                                "--sampler", "ddim", "--steps", "1"], capture_output=True, text=True)
    return PATH if asked.returncode == 2 and "interpolants" in asked.stderr else CHAIN


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--classifier", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--plot", help="file for FID, precision and recall by guidance (SVG)")
    parser.add_argument("--cfg", type=float, default=1.5, help="guidance in the table of samplers")
    options = parser.parse_args()
    samplers = kind_of(options)
    with tempfile.TemporaryDirectory() as directory:
        measurement = Measurement(options, pathlib.Path(directory))
        head("sampler", "steps", "evaluations", "seconds", "FID", "precision", "recall")
        for sampler, counts in samplers.items():
            for steps in counts:
                measurement.print_row(sampler, steps or "its own", sampler=sampler, steps=steps, cfg=options.cfg)
        print("\nBy guidance:\n")
        head("guidance", "evaluations", "seconds", "FID", "precision", "recall")
        best = "dpmpp_2m" if samplers is CHAIN else "heun"
        scales = (1, 1.25, 1.5, 2, 2.5, 3, 4)
        found = [measurement.print_row(cfg, sampler=best, steps=20, cfg=cfg) for cfg in scales]
        if options.plot:
            fid, precision, recall = ([(cfg, one[i]) for cfg, one in zip(scales, found)] for i in range(3))
            write_chart(options.plot, [("FID", "guidance", "", {"": fid}, True),
                                       ("Precision and recall", "guidance", "",
                                        {"precision": precision, "recall": recall}, True)])


if __name__ == "__main__":
    main()
