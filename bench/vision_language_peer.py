"""Language and image-text models against transformers, OpenCLIP and tokenizers, in turns: run by vision_language.sh."""

import argparse
import pathlib
import statistics
import subprocess
import tempfile

import torch

import clip_peer
from rounds import head, row, seconds, take_turns, tessera, times_faster


def llama(dtype):
    """The sizes of `tessera bench decode`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    return LlamaForCausalLM(config).to(dtype).eval()


def peer_decode(model, batch, prompt, tokens):
    """Prefill and decoding of one `generate`, in tokens per second."""
    ids = torch.randint(0, 49152, (batch, prompt))

    def generate(count):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False,
                       pad_token_id=0)

    first = seconds(lambda: generate(1))
    return {"prefill": batch * prompt / first, "decode": batch * tokens / (seconds(lambda: generate(tokens + 1)) - first)}


def decode(options):
    """One row per precision and batch, against the better of the peer's precisions."""
    peers = {"fp32": llama(torch.float32), "bf16": llama(torch.bfloat16)}
    size = {"prompt": options.prompt, "tokens": options.tokens}
    ways = {}
    for batch in (1, 8):
        for precision in ("fp32", "bf16", "int8"):
            ways["tessera", precision, batch] = lambda p=precision, b=batch: tessera(
                options.program, "decode", precision=p, batch=b, rounds=1, threads=options.threads, **size)
    for precision, model in peers.items():
        ways["transformers", precision, 1] = lambda m=model: peer_decode(m, 1, **size)
    with torch.inference_mode():
        results = take_turns(ways, options.rounds, "decode")
    best = {}
    for what in ("prefill", "decode"):
        best[what] = max(([one[what] for one in results["transformers", p, 1]] for p in peers), key=statistics.median)
    head("precision", "batch", "prefill tokens/s", "decoding tokens/s", "of the memory's bound",
         "prefill is faster by", "decoding is faster by")
    for (who, precision, batch), runs in results.items():
        if who == "transformers":
            row(f"transformers {precision}", batch, f"{max(r['prefill'] for r in runs):.0f}",
                f"{max(r['decode'] for r in runs):.1f}", "", "", "")
            continue
        prefill = [run["prefill_tokens_per_second"] for run in runs]
        steps = [run["tokens_per_second"] for run in runs]
        bound = statistics.median(run["percent_of_memory_bound"] for run in runs)
        alone = batch == 1
        row(f"Tessera {precision}", batch, f"{max(prefill):.0f}", f"{max(steps):.1f}", f"{bound:.0f} %",
            f"{times_faster(prefill, best['prefill']):.2f}" if alone else "",
            f"{times_faster(steps, best['decode']):.2f}" if alone else "")


def image_tower(options):
    import open_clip

    model = open_clip.create_model("ViT-B-32", pretrained=None).visual.eval()
    images = torch.randn(8, 3, 224, 224)

    def peer(dtype):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            return 8 / seconds(lambda: model(images), 4)

    ways = {}
    for precision in ("fp32", "bf16"):
        ways["tessera", precision] = lambda p=precision: tessera(
            options.program, "infer", model="vit_base_patch32_224", batch=8, precision=p, seconds=2,
            threads=options.threads)["images_per_second"]
        ways["peer", precision] = lambda p=precision: peer(p)
    with torch.inference_mode():
        results = take_turns(ways, options.rounds, "image tower")
    head("ViT-B/32, batch 8", "Tessera images/s", "OpenCLIP images/s", "Tessera is faster by")
    for precision in ("fp32", "bf16"):
        ours, theirs = results["tessera", precision], results["peer", precision]
        row(precision, f"{max(ours):.1f}", f"{max(theirs):.1f}", f"{times_faster(ours, theirs):.2f}")


def tokenising(options):
    """Tokenises 10 MB of text with one tokenizer.json, on one thread."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = pathlib.Path(options.text).read_text(encoding="utf-8", errors="replace")
    text = (words * (10_000_000 // max(1, len(words)) + 1))[:10_000_000]
    with tempfile.TemporaryDirectory() as folder:
        file, input_file = pathlib.Path(folder) / "tokenizer.json", pathlib.Path(folder) / "text.txt"
        peer = Tokenizer(models.BPE())
        peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        peer.train_from_iterator([words], trainers.BpeTrainer(
            vocab_size=16000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        peer.save(str(file))
        input_file.write_text(text, encoding="utf-8")
        lines = text.split("\n")

        def ours(path=input_file):
            return seconds(lambda: subprocess.run(
                [options.program, "tokens", "--tokenizer", str(file), "--file", str(path)], check=True,
                capture_output=True))

        results = take_turns({"tessera": ours, "peer": lambda: seconds(lambda: [peer.encode(line) for line in lines])},
                             options.rounds, "tokens")
    head("tokenising 10 MB, one thread", "seconds", "MB/s")
    for name, label in (("tessera", "Tessera"), ("peer", "tokenizers")):
        row(label, f"{min(results[name]):.2f}", f"{10 / min(results[name]):.1f}")


PARTS = {"decode": decode, "image": image_tower, "texts": clip_peer.texts, "step": clip_peer.step, "tokens": tokenising}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--text", default=str(pathlib.Path(__file__).parent.parent / "CHANGELOG.md"))
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"no part '{name}', it must be one of {', '.join(PARTS)}")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    for name in options.parts or PARTS:
        PARTS[name](options)
        print(flush=True)


main()
