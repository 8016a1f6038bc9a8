"""Decoding of latents, features of Inception-v3 and the Frechet distance: tessera against diffusers and pytorch-fid, in
turns in one run. bench/latents.sh runs it.

All weights are random and exchanged; both programs' results are compared before timing.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from unittest import mock

import numpy
import torch
from PIL import Image

import generate_peer
from rounds import head, row, run_watched, seconds, take_turns, tessera, timed, times_faster

FEW, MANY = 16, 80  # images of the two runs: their difference gives the time of features


def said(*command):
    return json.loads(subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout)


class Decoding:
    """A generator that outputs noise, so its latents and their images are both known."""

    def __init__(self, options, folder):
        from diffusers import AutoencoderKL

        self.options, self.folder = options, folder
        torch.manual_seed(0)
        self.vae = AutoencoderKL(block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
                                 down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                                 scaling_factor=0.18215).eval()
        self.vae.save_pretrained(folder / "vae")
        self.generator = generate_peer.create("dit_s_patch2", options.program, folder)[1]

    def command(self, name, *words):
        return [self.options.program, "generate", "--weights", self.generator, "-o", self.folder / name, "-n", "1",
                "--sampler", "ddim", "--steps", "1", "--cfg", "1", "--threads", str(self.options.threads), *map(str, words)]

    def generate(self, name, *words):
        subprocess.run(self.command(name, *words), check=True, capture_output=True)
        return self.folder / name

    def check(self):
        latents = numpy.load(self.generate("latents.npy"))
        ours = numpy.load(self.generate("images.npz", "--vae", str(self.folder / "vae")))["arr_0"]
        with torch.inference_mode():
            theirs = self.vae.decode(torch.from_numpy(latents) / 0.18215).sample
        theirs = (theirs * 127.5 + 127.5).clamp(0, 255).permute(0, 2, 3, 1).numpy()
        apart = numpy.abs(theirs - ours).max()
        if apart > 1:
            sys.exit(f"decoded pictures differ by {apart:.2f} of 255")

    def measure(self):
        self.check()
        for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            vae, latents = self.vae.to(dtype), torch.randn(1, 4, 32, 32, dtype=dtype)

            def decode(vae=vae, latents=latents):
                with torch.inference_mode():
                    vae.decode(latents)

            ways = {"tessera": lambda precision=precision: tessera(self.options.program, "infer", model="autoencoder_kl_f8",
                                                                   size=256, batch=1, precision=precision, seconds=4,
                                                                   threads=self.options.threads),
                    "diffusers": lambda decode=decode: {"images_per_second": 1 / timed(decode, 4)}}
            results = take_turns(ways, self.options.rounds, f"decoding, {precision}")
            rates = {way: [line["images_per_second"] for line in lines] for way, lines in results.items()}
            limit = statistics.median(line["percent_of_limit"] for line in results["tessera"])
            row("decoding to 256 x 256", precision, f"{statistics.median(rates['tessera']):.2f}",
                f"{statistics.median(rates['diffusers']):.2f}", f"{times_faster(*rates.values()):.2f}",
                f"{limit:.0f} % of the products' limit")

    def memory(self):
        for tile in (512, 256):
            took, peak = run_watched(self.command("large.png", "--vae", self.folder / "vae", "--size", 128, "--tile", tile))
            row(f"a picture of 1024 x 1024, drawn and decoded with `--tile {tile}`", "fp32", f"{took:.1f} s", "", "",
                f"{peak:.0f} MB")


class Features:
    def __init__(self, options, folder):
        import pytorch_fid.inception as published

        self.options, self.folder = options, folder
        torch.manual_seed(0)
        # pytorch-fid's own network, with random weights instead of a download.
        drawn = {}

        def keep(network, state, *rest, **named):
            for name, tensor in network.state_dict().items():
                drawn[name] = tensor.clone() if tensor.dim() != 4 else torch.randn_like(tensor) * (2 / tensor[0].numel()) ** 0.5
            return original(network, drawn, *rest, **named)

        original = torch.nn.Module.load_state_dict
        with mock.patch.object(published, "load_state_dict_from_url", lambda *_, **__: {}), \
                mock.patch.object(torch.nn.Module, "load_state_dict", keep):
            self.network = published.InceptionV3([published.InceptionV3.BLOCK_INDEX_BY_DIM[2048]]).eval()
        torch.save(drawn, folder / "inception.pth")
        generator = numpy.random.default_rng(0)
        for count in (FEW, MANY):
            (folder / str(count)).mkdir()
            for i in range(count):
                pixels = generator.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).resize((256, 256), Image.BICUBIC).save(folder / str(count) / f"{i:03}.png")

    def ours(self, count):
        out = self.folder / f"{count}.npz"
        out.unlink(missing_ok=True)
        subprocess.run([self.options.program, "fid", self.folder / str(count), "--weights", self.folder / "inception.pth", "-o",
                        out, "--protocol", "pytorch", "--metrics", "fid", "--batch-size", "16", "--threads",
                        str(self.options.threads)], check=True, capture_output=True)
        return numpy.load(out)

    def theirs(self, count):
        from pytorch_fid.fid_score import calculate_activation_statistics

        files = sorted((self.folder / str(count)).glob("*.png"))
        return calculate_activation_statistics(files, self.network, batch_size=16, dims=2048, device="cpu", num_workers=0)

    def rate(self, way):
        return (MANY - FEW) / (seconds(lambda: way(MANY)) - seconds(lambda: way(FEW)))

    def measure(self):
        mean, covariance = self.theirs(FEW)
        found = self.ours(FEW)
        apart = numpy.abs(found["mu"] - mean).max() / numpy.abs(mean).max()
        if apart > 1e-3:
            sys.exit(f"means of Inception's features differ by {apart:.2g} of the largest")
        rates = take_turns({"tessera": lambda: self.rate(self.ours), "pytorch-fid": lambda: self.rate(self.theirs)},
                           self.options.rounds, "Inception")
        row("Inception-v3, PNGs of 256 x 256", "fp32", f"{statistics.median(rates['tessera']):.1f}",
            f"{statistics.median(rates['pytorch-fid']):.1f}", f"{times_faster(*rates.values()):.2f}", "")

    def distance(self):
        """Distance of a few images' features from a file's Gaussian; ours excludes the time of the features."""
        generator = numpy.random.default_rng(1)
        rows = generator.standard_normal((4096, 2048))
        mean, covariance = rows.mean(0), numpy.cov(rows, rowvar=False)
        numpy.savez(self.folder / "reference.npz", mu=mean, sigma=covariance)
        few = self.ours(FEW)

        def ours():
            return said(self.options.program, "fid", self.folder / str(FEW), "--reference", self.folder / "reference.npz",
                        "--weights", self.folder / "inception.pth", "--protocol", "pytorch", "--metrics", "fid", "--batch-size",
                        "16", "--threads", self.options.threads, "--json")["fid"]

        def theirs():
            from pytorch_fid.fid_score import calculate_frechet_distance

            return float(calculate_frechet_distance(few["mu"], few["sigma"], mean, covariance))

        if abs(ours() - theirs()) > 1e-3 * abs(theirs()):
            sys.exit(f"Frechet distances differ: {ours()} and {theirs()}")
        times = take_turns({"tessera": lambda: seconds(ours) - seconds(lambda: self.ours(FEW)),
                            "pytorch-fid": lambda: seconds(theirs)}, self.options.rounds, "Frechet distance")
        row("Frechet distance of two Gaussians, 2048 dimensions", "fp64", f"{statistics.median(times['tessera']):.1f} s",
            f"{statistics.median(times['pytorch-fid']):.1f} s",
            f"{times_faster(times['pytorch-fid'], times['tessera']):.2f}", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="features,distance,decoding,memory", help="comma-separated")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    head("", "precision", "tessera, images/s", "peer, images/s", "tessera is faster by", "")
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        parts = options.parts.split(",")
        features = Features(options, folder)
        if "features" in parts:
            features.measure()
        if "distance" in parts:
            features.distance()
        decoding = Decoding(options, folder)
        if "decoding" in parts:
            decoding.measure()
        if "memory" in parts:
            decoding.memory()


if __name__ == "__main__":
    main()
