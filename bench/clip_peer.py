"""CLIP's text tower, class weights and training step against OpenCLIP, in turns: parts of vision_language_peer.py."""

import json
import pathlib
import subprocess
import tempfile

import torch

from rounds import head, row, seconds, take_turns, times_faster

TEMPLATES = 80
FEW, MANY = 1, 9  # classes: the difference of two runs excludes the program's start


def templates(words):
    """Templates with lengths that grow with `words`."""
    return [f"{number} " + "a photo of the {} " + "and more " * words for number in range(TEMPLATES)]


def own_texts(program, folder, precision, threads, lines):
    """Seconds for (MANY - FEW) x TEMPLATES texts."""
    found = []
    for count in (FEW, MANY):
        names = [word for number in range(count) for word in ("--class", f"name{number}")]
        command = [program, "zeroshot", str(folder / "one.png"), "--weights", str(folder / "clip.safetensors"), "--tokenizer",
                   str(folder / "bpe.txt.gz"), "--precision", precision, "--threads", str(threads), "--device", "cpu", *names,
                   "--templates", *lines]
        found.append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
    return found[1] - found[0]


def texts(options):
    """ViT-B/32's text tower at full context length, and class weights of short prompts."""
    import open_clip
    from open_clip.tokenizer import default_bpe
    from PIL import Image
    from safetensors.torch import save_file

    model = open_clip.create_model("ViT-B-32", pretrained=None).eval()
    tokenise = open_clip.get_tokenizer("ViT-B-32")

    def peer(precision, lines):
        prompts = [line.format(f"name{number}") for number in range(MANY - FEW) for line in lines]
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return seconds(lambda: [model.encode_text(tokenise(prompts[at:at + TEMPLATES]))
                                    for at in range(0, len(prompts), TEMPLATES)])

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        save_file({key: value.contiguous().clone() for key, value in model.state_dict().items()}, folder / "clip.safetensors")
        (folder / "bpe.txt.gz").write_bytes(pathlib.Path(default_bpe()).read_bytes())
        Image.new("RGB", (224, 224)).save(folder / "one.png")
        kinds = {"text tower, contexts of 77": templates(40), "class weights, short prompts": templates(0)}
        ways = {}
        for kind, lines in kinds.items():
            for precision in ("fp32", "bf16"):
                ways[kind, "tessera", precision] = lambda p=precision, t=lines: own_texts(
                    options.program, folder, p, options.threads, t)
                ways[kind, "peer", precision] = lambda p=precision, t=lines: peer(p, t)
        results = take_turns(ways, options.rounds, "texts")
    head("ViT-B/32", "", "Tessera texts/s", "OpenCLIP texts/s", "Tessera is faster by")
    count = (MANY - FEW) * TEMPLATES
    for kind in kinds:
        for precision in ("fp32", "bf16"):
            ours = [count / s for s in results[kind, "tessera", precision]]
            theirs = [count / s for s in results[kind, "peer", precision]]
            row(kind, precision, f"{max(ours):.1f}", f"{max(theirs):.1f}", f"{times_faster(ours, theirs):.2f}")


def own_step(options, precision):
    """Images per second of the recipe, including augmentation, on built-in images with texts."""
    recipe = pathlib.Path(__file__).parent.parent / "recipes/clip/emoji.toml"
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        subprocess.run([options.program, "train", str(recipe), "--data", "shapes:task=text,size=64,train=5120,val=128",
                        "--output", str(run), "--threads", str(options.threads), "--set", "train.epochs=1",
                        "train.eval_every=0", "schedule.warmup_steps=5",
                        f'train.precision="{precision}"', "train.log_every=10"],
                       check=True, capture_output=True)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return max(line["images_per_second"] for line in lines if line.get("kind") == "train")


def step(options):
    """A training step of recipes/clip/emoji.toml, batches of 128."""
    import open_clip

    model = open_clip.CLIP(192, {"image_size": 64, "patch_size": 8, "width": 192, "layers": 6, "head_width": 64},
                           {"context_length": 24, "vocab_size": 4096, "width": 192, "heads": 3, "layers": 4}).train()
    loss = open_clip.ClipLoss()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.2)
    images, ids = torch.randn(128, 3, 64, 64), torch.randint(1, 4095, (128, 24))
    ids[:, 9] = 4095

    def peer(precision, count=4):
        def one():
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                found = loss(*model(images, ids)[:3])
            found.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()

        one()
        return 128 * count / seconds(lambda: [one() for _ in range(count)])

    ways = {}
    for precision in ("fp32", "bf16"):
        ways["tessera", precision] = lambda p=precision: own_step(options, p)
        ways["peer", precision] = lambda p=precision: peer(p)
    results = take_turns(ways, options.rounds, "step")
    head("CLIP's step, tower 192 x 6, batch 128", "Tessera images/s", "OpenCLIP images/s", "Tessera is faster by")
    for precision in ("fp32", "bf16"):
        ours, theirs = results["tessera", precision], results["peer", precision]
        row(precision, f"{max(ours):.1f}", f"{max(theirs):.1f}", f"{times_faster(ours, theirs):.2f}")
