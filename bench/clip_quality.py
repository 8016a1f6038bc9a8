#!/usr/bin/env python3
"""CLIP from nothing on the emoji set beside OpenCLIP, equal time on one thread each; prints a table for docs/ablations/images-and-texts.md.

  PYTHON bench/clip_quality.py --program BUILD/tessera --data EMOJI --output runs/clip-quality [--minutes 20] [--seeds 0,1,2] [NAME ...]

PYTHON has torch, torchvision, open_clip and Pillow. EMOJI contains train-{000..003}.tar.gz and the tests. NAME is one of
tessera (recipes/clip/emoji.toml), siglip, vil, visionllama, illama (the same with that loss or tower) and openclip. The
default is tessera and openclip. The number of our steps comes from a trial's speed. OpenCLIP has towers of the same
size, its own tokeniser, its own crops (0.9 to 1) and its recipe (AdamW without decay of gains and biases, warm-up,
cosine). A text is its image's name, and belongs to every image of that name. Finished runs are skipped.
"""
import argparse
import io
import json
import math
import pathlib
import random
import statistics
import tarfile
import time

from recipe_runs import Runs, processor_seconds
from rounds import head, row

RECIPES = {"tessera": "clip/emoji.toml", "siglip": "siglip/emoji.toml", "vil": "clip/emoji_vil.toml",
           "visionllama": "clip/emoji_visionllama.toml", "illama": "clip/emoji_illama.toml"}
TESTS = ("pair", "style", "concept")
BATCH, CONTEXT, WARMUP = 128, 24, 100


def samples(shard):
    """(image bytes, captions, name) of every sample."""
    with tarfile.open(shard) as tar:
        parts = {}
        for member in tar:
            key, _, ending = member.name.partition(".")
            parts.setdefault(key, {})[ending] = tar.extractfile(member).read()
    for part in parts.values():
        described = json.loads(part["json"])
        yield part["png"], described["captions"], described["captions"][0]


class OpenClip:
    def __init__(self, seed):
        import open_clip
        import torch
        from torchvision import transforms

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.torch, self.draw = torch, random.Random(seed)
        self.tokens = open_clip.SimpleTokenizer(context_length=CONTEXT)
        self.model = open_clip.CLIP(192, {"image_size": 64, "patch_size": 8, "width": 192, "layers": 6, "head_width": 64},
                                    {"context_length": CONTEXT, "vocab_size": 49408, "width": 192, "heads": 3, "layers": 4})
        self.loss = open_clip.ClipLoss()
        norm = transforms.Normalize(open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
        self.crop = transforms.Compose([transforms.RandomResizedCrop(64, (0.9, 1.0), interpolation=transforms.InterpolationMode.BICUBIC),
                                        transforms.ToTensor(), norm])
        self.whole = transforms.Compose([transforms.ToTensor(), norm])

    def decoded(self, shards):
        from PIL import Image
        return [(Image.open(io.BytesIO(picture)).convert("RGB"), captions, name)
                for shard in shards for picture, captions, name in samples(shard)]

    def autocast(self):
        return self.torch.autocast("cpu", self.torch.bfloat16)

    def train(self, shards, minutes):
        """Trains for `minutes` of CPU time; the learning rate falls with time. Returns the number of images seen."""
        data, model = self.decoded(shards), self.model.train()
        plain = [p for n, p in model.named_parameters() if p.ndim < 2 or "bn" in n or "ln" in n or "logit_scale" in n]
        others = [p for n, p in model.named_parameters() if not any(p is q for q in plain)]
        optimiser = self.torch.optim.AdamW([{"params": plain, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.2}],
                                           lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
        began, step, order = time.process_time(), 0, []
        while (passed := (time.process_time() - began) / (60 * minutes)) < 1:
            if len(order) < BATCH:
                order = self.draw.sample(range(len(data)), len(data))
            chosen, order = order[:BATCH], order[BATCH:]
            rate = 1e-3 * min((step + 1) / WARMUP, 0.5 * (1 + math.cos(math.pi * passed)))
            for group in optimiser.param_groups:
                group["lr"] = rate
            images = self.torch.stack([self.crop(data[i][0]) for i in chosen])
            texts = self.tokens([self.draw.choice(data[i][1]) for i in chosen])
            optimiser.zero_grad()
            with self.autocast():
                found = self.loss(*model(images, texts)[:3])
            found.backward()
            self.torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            with self.torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            step += 1
        return step * BATCH

    def recalls(self, shard):
        """Image to text R@1 and R@10."""
        data, model = self.decoded([shard]), self.model.eval()
        names = sorted({name for _, _, name in data})
        with self.torch.inference_mode(), self.autocast():
            texts = model.encode_text(self.tokens(names), normalize=True).float()
            images = self.torch.cat([model.encode_image(self.torch.stack([self.whole(d[0]) for d in data[i:i + BATCH]]),
                                                        normalize=True).float() for i in range(0, len(data), BATCH)])
        best = (images @ texts.T).topk(10).indices.tolist()
        return [sum(name in [names[i] for i in found[:k]] for (_, _, name), found in zip(data, best)) / len(data) for k in (1, 10)]


def peer(options, _, seed):
    kept = options.output / f"openclip-seed-{seed}.json"
    if not kept.exists():
        model = OpenClip(seed)
        seen = model.train([options.data / f"train-{i:03}.tar.gz" for i in range(4)], options.minutes)
        result = {test: model.recalls(options.data / f"test-{test}-000.tar.gz") for test in TESTS}
        kept.write_text(json.dumps({"pictures": seen, **result}))
    return json.loads(kept.read_text())


def ours(options, name, seed):
    options.seed = seed
    runs = Runs(options)
    data = ["--data", options.data / "train-{000..003}.tar.gz", "--val-data", options.data / "val-000.tar.gz"]
    folder = options.output / f"{name}-seed-{seed}"
    kept = options.output / f"{name}-seed-{seed}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    recipe = (folder.name, RECIPES[name], ["train.eval_every=0"])
    steps, batch = runs.steps_of(options.minutes, *recipe, *data)
    used = processor_seconds()
    runs.train(*recipe, *data, steps=steps)
    result = {"pictures": steps * batch, "minutes": (processor_seconds() - used) / 60}
    for test in TESTS:
        found = runs.json_of("eval", "--weights", folder, "--data", options.data / f"test-{test}-000.tar.gz", "--threads", 1)
        result[test] = [found["image_to_text_r1"], found["image_to_text_r10"]]
    kept.write_text(json.dumps(result))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("names", nargs="*", metavar="NAME", default=["tessera", "openclip"])
    options = parser.parse_args()
    for name in options.names:
        if name != "openclip" and name not in RECIPES:
            parser.error(f"no model {name}; there are openclip, {', '.join(RECIPES)}")
    options.threads, options.precision, options.scale = 1, "bf16", 1
    options.output.mkdir(parents=True, exist_ok=True)
    head("program", "seed", "processor minutes", "pictures", *(f"{test}: R@1, R@10" for test in TESTS))
    for name in options.names:
        measure = ours if name in RECIPES else peer
        results = [(seed, measure(options, name, seed)) for seed in map(int, options.seeds.split(","))]
        for seed, result in results:
            row(name, seed, f"{result.get('minutes', options.minutes):.1f}", result["pictures"], *(f"{100 * result[t][0]:.1f}, {100 * result[t][1]:.0f} %" for t in TESTS))
        if len(results) > 1:
            row(name, "mean", "", "", *(f"{100 * statistics.mean(r[t][0] for _, r in results):.1f} %" for t in TESTS))


if __name__ == "__main__":
    main()
