"""Folders written by timm's, transformers' and OpenCLIP's own `save`, opened here: the largest difference of the top-5 probabilities.

    python bench/published_folders.py --program build/tessera [--only NAME] [--keep FOLDER]

Needs a Python with torch, timm, transformers, open_clip and Pillow (TESSERA_PEER_PYTHON of the other benchmarks). Weights are random, with
heads that make the classes differ. Prints a Markdown table; the exit code is 1 if a difference exceeds 1e-4.
`bench/tables published-folders docs/weights.md python bench/published_folders.py --program build/tessera` writes it into the page.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import safetensors.torch
import timm
import torch
from PIL import Image

MOST = 1e-4
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
CLASSES = ["cat", "dog", "red star", "boat", "tree", "lamp"]

# Name, architecture, arguments of its constructor, and keys of pretrained_cfg that differ from the published ones.
TIMM = [
    ("vit_tiny", "vit_tiny_patch16_224", {}, {}),
    ("vit_384", "vit_tiny_patch16_384", {}, {}),
    ("vit_img_size", "vit_tiny_patch16_224", {"img_size": 160}, {}),
    ("vit_avg", "vit_tiny_patch16_224", {"global_pool": "avg"}, {}),
    ("vit_avg_norm_before", "vit_tiny_patch16_224", {"global_pool": "avg", "fc_norm": False}, {}),
    ("vit_max", "vit_tiny_patch16_224", {"global_pool": "max"}, {}),
    ("vit_avgmax", "vit_tiny_patch16_224", {"global_pool": "avgmax", "class_token": False}, {}),
    ("vit_map", "vit_tiny_patch16_224", {"global_pool": "map", "class_token": False}, {}),
    ("vit_quick_gelu", "vit_tiny_patch16_224", {"act_layer": "quick_gelu"}, {}),
    ("vit_relu", "vit_tiny_patch16_224", {"act_layer": "relu", "qkv_bias": False}, {}),
    ("vit_registers", "vit_tiny_patch16_224", {"reg_tokens": 4, "no_embed_class": True}, {}),
    ("vit_border_dropped", "vit_tiny_patch16_224", {"img_size": 230}, {}),
    ("vit_clip", "vit_base_patch32_clip_224", {}, {}),
    ("vit_clip_openai", "vit_base_patch32_clip_quickgelu_224", {}, {}),
    ("vit_medium", "vit_medium_patch16_gap_256", {}, {}),
    ("vit_little", "vit_little_patch16_reg4_gap_256", {}, {}),
    ("vit_so150m", "vit_so150m_patch16_reg4_map_256", {}, {}),
    ("eva02_tiny", "eva02_tiny_patch14_224", {}, {}),
    ("poolformer_s12", "poolformer_s12", {}, {}),
    ("poolformerv2_s12", "poolformerv2_s12", {}, {}),
    ("vit_init_values", "vit_tiny_patch16_224", {"init_values": 0.5, "qk_norm": True}, {}),
    ("vit_dynamic", "vit_tiny_patch16_224", {"dynamic_img_size": True}, {"input_size": (3, 256, 256)}),
    ("vit_squash", "vit_tiny_patch16_224", {}, {"crop_mode": "squash", "crop_pct": 0.8, "interpolation": "bilinear"}),
    ("vit_border", "vit_tiny_patch16_224", {}, {"crop_mode": "border", "crop_pct": 1.0, "interpolation": "lanczos"}),
    ("vit_grey", "vit_tiny_patch16_224", {"in_chans": 1}, {"mean": (0.5,), "std": (0.5,)}),
    ("deit_tiny", "deit_tiny_patch16_224", {}, {}),
    ("deit_distilled", "deit_tiny_distilled_patch16_224", {}, {}),
    ("deit3_small", "deit3_small_patch16_224", {}, {}),
    ("dinov2_small", "vit_small_patch14_dinov2", {"img_size": 224}, {}),
    ("dinov2_registers", "vit_small_patch14_reg4_dinov2", {"img_size": 224}, {}),
    ("siglip_base", "vit_base_patch16_siglip_224", {}, {}),
    ("swin_tiny", "swin_tiny_patch4_window7_224", {}, {}),
    ("swin_256", "swin_tiny_patch4_window7_224", {"img_size": 256}, {}),
    ("swin_window4", "swin_tiny_patch4_window7_224", {"window_size": 4, "img_size": 128}, {}),
    ("twins_small", "twins_svt_small", {}, {}),
    ("twins_crop", "twins_svt_small", {}, {"crop_pct": 0.7, "interpolation": "bilinear"}),
    ("eva02_336", "eva02_tiny_patch14_224", {"img_size": 336}, {}),
    ("resnet18", "resnet18", {}, {}),
    ("resnet26", "resnet26", {}, {}),
    ("resnet34_160", "resnet34", {}, {"input_size": (3, 160, 160)}),
    ("resnet50", "resnet50", {}, {"crop_pct": 0.875, "interpolation": "bilinear"}),
    ("resnet50_stride16", "resnet50", {"output_stride": 16}, {}),
    ("resnet101_half", "resnet101", {}, HALF),
    ("convnext_tiny", "convnext_tiny", {}, {}),
    ("convnext_384", "convnext_tiny", {}, {"input_size": (3, 384, 384), "crop_pct": 1.0, "crop_mode": "squash"}),
    ("convnext_conv_mlp", "convnext_tiny", {"conv_mlp": True}, {}),
    ("convnext_atto", "convnext_atto", {}, {}),
    ("convnextv2_atto", "convnextv2_atto", {}, {}),
    ("convnextv2_nano", "convnextv2_nano", {}, {}),
    ("convnextv2_tiny", "convnextv2_tiny", {}, {"input_size": (3, 288, 288), "crop_pct": 1.0}),
]


def probes(folder):
    """Two images that are not square."""
    paths = []
    for seed, size in enumerate([(302, 230), (190, 260)]):
        torch.manual_seed(seed)
        small = (torch.rand(24, 24, 3) * 255).byte().numpy()
        paths.append(folder / f"probe{seed}.png")
        Image.fromarray(small).resize(size, Image.BICUBIC).save(paths[-1])
    return paths


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, encoding="utf-8")
    return done.stdout if done.returncode == 0 else sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr}")


def difference(theirs, ours):
    """Of their five largest probabilities."""
    return max(abs(value - ours.get(name, 0.0)) for name, value in sorted(theirs.items(), key=lambda one: -one[1])[:5])


def timm_case(case, folder, program, images):
    name, architecture, create, config = case
    torch.manual_seed(7)
    # Absolute positions and fixed inputs follow the constructor.
    model = timm.create_model(architecture, num_classes=10, **create).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 2 and key.startswith(("head", "fc")) and parameter.shape[0] == 10:
                torch.nn.init.normal_(parameter, std=0.3)
    model.pretrained_cfg = {**model.pretrained_cfg, **config}
    timm.models.save_for_hf(model, str(folder), safe_serialization=True)
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    settings = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**settings, is_training=False)
    worst = 0
    for image in images:
        mode = "L" if settings["input_size"][0] == 1 else "RGB"
        with torch.no_grad():
            scores = model(transform(Image.open(image).convert(mode))[None]).softmax(-1)[0]
        theirs = {str(i): float(value) for i, value in enumerate(scores)}
        lines = run(program, "predict", image, "--weights", folder, "--csv", "--top", "10").splitlines()[1:]
        ours = dict(line.rsplit(",", 2)[1:] for line in lines)
        worst = max(worst, difference(theirs, {key: float(value) for key, value in ours.items()}))
    return worst, f"{settings['input_size'][1]}, {settings['crop_mode']} {settings['crop_pct']}"


def tokeniser():
    """CLIP's kind of tokeniser: bytes, and the two special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: i for i, letter in enumerate(letters)}
    words.update({"<|startoftext|>": 256, "<|endoftext|>": 257})
    plain = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<|endoftext|>"))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[("<|startoftext|>", 256), ("<|endoftext|>", 257)])
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<|startoftext|>", eos_token="<|endoftext|>",
                                   pad_token="<|endoftext|>")


SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 100,
         "image_size": 64, "patch_size": 8}
STAGES = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 2, 2, 1]}
SWIN = {"embed_dim": 24, "depths": [2, 2, 2, 2], "num_heads": [1, 2, 4, 8], "window_size": 4, "image_size": 128}
SHARED = ({**SMALL, **STAGES, **SWIN}.keys() | {"vision_config"}) - {"image_size"}  # settings that the table leaves out
SQUARE = {"size": {"height": 64, "width": 64}}
CROPPED = {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}
# Name, class, settings that differ from the configuration's, and those of the image processor.
CLASSIFIERS = [
    ("hf_vit", "ViTForImageClassification", SMALL, {"class": "ViT", **SQUARE}),
    ("hf_vit_relu", "ViTForImageClassification", {**SMALL, "hidden_act": "relu", "qkv_bias": False},
     {"class": "ViT", **SQUARE, "resample": 3, "do_rescale": True}),
    ("hf_vit_eps", "ViTForImageClassification", {**SMALL, "layer_norm_eps": 1e-2, "hidden_act": "gelu_new"},
     {"class": "ViT", **SQUARE, "do_normalize": False}),
    ("hf_vit_grey", "ViTForImageClassification", {**SMALL, "num_channels": 1},
     {"class": "ViT", **SQUARE, "image_mean": [0.5], "image_std": [0.5]}),
    ("hf_deit", "DeiTForImageClassification", SMALL,
     {"class": "DeiT", "size": {"height": 72, "width": 72}, "crop_size": {"height": 64, "width": 64}}),
    ("hf_deit_distilled", "DeiTForImageClassificationWithTeacher", SMALL,
     {"class": "DeiT", "size": {"height": 72, "width": 72}, "crop_size": {"height": 64, "width": 64}}),
    ("hf_beit", "BeitForImageClassification", {**SMALL, "use_relative_position_bias": True}, {"class": "Beit", **SQUARE}),
    ("hf_beit_shared", "BeitForImageClassification",
     {**SMALL, "use_shared_relative_position_bias": True, "use_mask_token": True, "use_mean_pooling": False},
     {"class": "Beit", **SQUARE}),
    ("hf_beit_absolute", "BeitForImageClassification",
     {**SMALL, "use_absolute_position_embeddings": True, "layer_scale_init_value": 0.0}, {"class": "Beit", **SQUARE}),
    ("hf_data2vec", "Data2VecVisionForImageClassification", {**SMALL, "use_relative_position_bias": True},
     {"class": "Beit", **SQUARE}),
    ("hf_vit_msn", "ViTMSNForImageClassification", SMALL, {"class": "ViT", **SQUARE}),
    ("hf_ijepa", "IJepaForImageClassification", SMALL, {"class": "ViT", **SQUARE}),
    ("hf_clip_classifier", "CLIPForImageClassification", {"vision_config": SMALL}, {"class": "CLIP", **CROPPED}),
    ("hf_siglip_classifier", "SiglipForImageClassification", {"vision_config": SMALL}, {"class": "Siglip", **SQUARE}),
    ("hf_swin", "SwinForImageClassification", SWIN, {"class": "ViT", "size": {"height": 128, "width": 128}}),
    ("hf_swin_padded", "SwinForImageClassification",
     {**SWIN, "image_size": 176, "use_absolute_embeddings": True},
     {"class": "ViT", "size": {"height": 176, "width": 176}}),
    ("hf_convnext", "ConvNextForImageClassification", {**STAGES, "layer_scale_init_value": 0.5},
     {"class": "ConvNext", "size": {"shortest_edge": 96}}),
    ("hf_convnext_384", "ConvNextForImageClassification", STAGES, {"class": "ConvNext", "size": {"shortest_edge": 384}}),
    ("hf_convnextv2", "ConvNextV2ForImageClassification", STAGES,
     {"class": "ConvNext", "size": {"shortest_edge": 96}, "crop_pct": 0.8}),
    ("hf_resnet", "ResNetForImageClassification", {**STAGES, "embedding_size": 24},
     {"class": "ConvNext", "size": {"shortest_edge": 96}}),
    ("hf_resnet_basic", "ResNetForImageClassification", {**STAGES, "embedding_size": 16, "layer_type": "basic"},
     {"class": "ConvNext", "size": {"shortest_edge": 96}}),
    ("hf_resnet_caffe", "ResNetForImageClassification", {**STAGES, "downsample_in_bottleneck": True},
     {"class": "ConvNext", "size": {"shortest_edge": 96}}),
    ("hf_poolformer", "PoolFormerForImageClassification", STAGES,
     {"class": "PoolFormer", "size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}}),
    ("hf_poolformer_unscaled", "PoolFormerForImageClassification",
     {**STAGES, "use_layer_scale": False, "mlp_ratio": 2.0, "pool_size": 5},
     {"class": "PoolFormer", "size": {"shortest_edge": 96}, "crop_pct": 0.7, "crop_size": {"height": 96, "width": 96}}),
    ("hf_dinov2", "Dinov2ForImageClassification", {**SMALL, "image_size": 96}, {"class": "Bit", **CROPPED}),
    ("hf_dinov2_swiglu", "Dinov2ForImageClassification",
     {**SMALL, "use_swiglu_ffn": True, "qkv_bias": False, "layerscale_value": 0.5}, {"class": "Bit", **CROPPED}),
]
# Classes without a head: their pooled outputs are compared with `tessera features`, relative to the largest.
ENCODERS = [
    ("hf_dinov2_model", "Dinov2Model", {**SMALL, "image_size": 96, "layer_norm_eps": 1e-3}, {"class": "Bit", **CROPPED}),
    ("hf_vit_mae", "ViTMAEForPreTraining", SMALL, {"class": "ViT", **SQUARE}),
    ("hf_vit_mae_model", "ViTMAEModel", {**SMALL, "hidden_act": "relu"}, {"class": "ViT", **SQUARE}),
    ("hf_clip_vision", "CLIPVisionModel", SMALL, {"class": "CLIP", **CROPPED}),
    ("hf_clip_projection", "CLIPVisionModelWithProjection", {**SMALL, "hidden_act": "gelu"}, {"class": "CLIP", **CROPPED}),
]


def encoder_case(case, folder, program, images):
    import transformers

    name, kind, settings, processor = case
    torch.manual_seed(7)
    model = getattr(transformers, kind)(getattr(transformers, kind).config_class(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    processor = dict(processor)
    prepare = getattr(transformers, processor.pop("class") + "ImageProcessorPil")(**processor)
    for part in (model, prepare):
        part.save_pretrained(folder)
    trunk = model.vit if kind == "ViTMAEForPreTraining" else getattr(model, "vision_model", model)
    if "MAE" in kind:
        trunk.config.mask_ratio = 0.0  # all patches
    run(program, "features", *images, "--weights", folder, "-o", folder / "features.safetensors")
    ours = safetensors.torch.load_file(folder / "features.safetensors")["features"]
    worst = 0
    for image, found in zip(images, ours):
        pixels = prepare(images=Image.open(image).convert("RGB"), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            output = trunk(pixel_values=pixels)
        theirs = output.last_hidden_state[0, 0] if "MAE" in kind else output.pooler_output[0]
        worst = max(worst, float((theirs - found).abs().max() / theirs.abs().max()))
    return worst, "preprocessor_config.json"


def classifier_case(case, folder, program, images):
    import transformers

    name, kind, settings, processor = case
    torch.manual_seed(7)
    family = getattr(transformers, kind).config_class
    names = {i: f"class {i}" for i in range(10)}
    model = getattr(transformers, kind)(family(**settings, id2label=names, num_labels=10)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3 if "classifier" in key else parameter[0].numel() ** -0.5)
        for key, buffer in model.named_buffers():
            if key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    processor = dict(processor)
    prepare = getattr(transformers, processor.pop("class") + "ImageProcessorPil")(**processor)
    for part in (model, prepare):
        part.save_pretrained(folder)
    worst = 0
    for image in images:
        mode = "L" if settings.get("num_channels") == 1 else "RGB"
        pixels = prepare(images=Image.open(image).convert(mode), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            scores = model(pixel_values=pixels).logits[0].softmax(-1)
        lines = run(program, "predict", image, "--weights", folder, "--csv", "--top", "10").splitlines()[1:]
        ours = {line.rsplit(",", 3)[1]: float(line.rsplit(",", 1)[1]) for line in lines}
        worst = max(worst, difference({names[i]: float(value) for i, value in enumerate(scores)}, ours))
    return worst, "preprocessor_config.json"


TOWER = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 1, "num_hidden_layers": 2}
TRANSFORMERS = [
    ("clip", "CLIP", {}, {}),
    ("clip_half", "CLIP", {"hidden_act": "gelu"}, {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}),
    ("clip_bilinear", "CLIP", {"layer_norm_eps": 1e-3}, {"resample": 2, "size": {"shortest_edge": 40}}),
    ("metaclip2", "MetaClip2", {}, {}),
    ("siglip", "Siglip", {}, {}),
    ("siglip_unscaled", "Siglip", {}, {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3}),
]


def transformers_case(case, folder, program, images):
    import transformers

    name, kind, tower, processor = case
    torch.manual_seed(7)
    siglip = kind == "Siglip"
    vision = {**TOWER, **tower, "image_size": 32, "patch_size": 8}
    text = {**TOWER, **tower, "vocab_size": 258, "max_position_embeddings": 32, "bos_token_id": 256, "eos_token_id": 257,
            "pad_token_id": 257}
    if siglip:
        text["projection_size"] = 64
    config = getattr(transformers, f"{kind}Config")(vision_config=vision, text_config=text,
                                                    **({} if siglip else {"projection_dim": 32}))
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.12)
    sizes = {"size": {"height": 32, "width": 32}} if siglip else {
        "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    prepare = getattr(transformers, f"{'CLIP' if kind == 'MetaClip2' else kind}ImageProcessorPil")(
        **{**sizes, **processor})
    words = tokeniser()
    for part in (model, prepare, words):
        part.save_pretrained(folder)
    ids = words([f"a {name}" for name in CLASSES], padding="max_length", max_length=32, return_tensors="pt")
    worst = 0
    for image in images:
        pixels = prepare(images=Image.open(image).convert("RGB"), return_tensors="pt")
        with torch.no_grad():
            more = {} if siglip else {"attention_mask": ids["attention_mask"]}
            scores = model(pixel_values=pixels["pixel_values"], input_ids=ids["input_ids"],
                           **more).logits_per_image[0].softmax(-1)
        worst = max(worst, difference(dict(zip(CLASSES, map(float, scores))), zeroshot(program, image, folder)))
    return worst, "preprocessor_config.json"


def zeroshot(program, image, folder, *more):
    """The shares of the classes."""
    given = [word for one in CLASSES for word in ("--class", one)]
    found = json.loads(run(program, "zeroshot", image, "--weights", folder, *given, "--templates", "a {}", "--json",
                           "--top", str(len(CLASSES)), *more).splitlines()[0])
    return {one["class"]: one["share"] for one in found["predictions"]}


# Name, architecture, settings of its towers, and those of the images.
OPEN_CLIP = [
    ("open_clip_vit", "ViT-B-32", {"layers": 2, "width": 64, "head_width": 32}, {}),
    ("open_clip_quickgelu", "ViT-B-32-quickgelu", {"layers": 2, "width": 64, "head_width": 32}, {}),
    ("open_clip_squash", "ViT-B-16", {"layers": 2, "width": 64, "head_width": 32, "image_size": 96},
     {"resize_mode": "squash", "mean": (0.5,) * 3, "std": (0.5,) * 3}),
    ("open_clip_resnet", "RN50", {"layers": [1, 1, 1, 1], "width": 32}, {}),
]


def open_clip_case(case, folder, program, images):
    import open_clip
    from open_clip.push_to_hf_hub import save_for_hf

    name, architecture, vision, preprocess = case
    torch.manual_seed(7)
    config = open_clip.get_model_config(architecture)
    config["embed_dim"] = 64
    config["vision_cfg"].update(vision)
    config["text_cfg"].update(layers=2, width=64, heads=2)
    open_clip.factory._MODEL_CONFIGS[name] = config
    model, _, prepare = open_clip.create_model_and_transforms(
        name, **{f"image_{key}": value for key, value in preprocess.items()})
    model.eval()
    words = open_clip.get_tokenizer(name)
    type(words).save_pretrained = lambda *_: None  # the vocabulary is a part of the package
    save_for_hf(model, words, config, folder, safe_serialization=True)
    vocabulary = pathlib.Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    worst = 0
    for image in images:
        with torch.no_grad():
            pixels = model.encode_image(prepare(Image.open(image).convert("RGB"))[None], normalize=True)
            texts = model.encode_text(words([f"a {one}" for one in CLASSES]), normalize=True)
            scores = (model.logit_scale.exp() * pixels @ texts.T).softmax(-1)[0]
        ours = zeroshot(program, image, folder, "--tokenizer", vocabulary)
        worst = max(worst, difference(dict(zip(CLASSES, map(float, scores))), ours))
    return worst, "open_clip_config.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the folders here")
    options = parser.parse_args()
    failed = False
    print("| folder | written by | model | images | largest difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or pathlib.Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        images = probes(root)
        for program, cases, check in (("timm", TIMM, timm_case), ("transformers", TRANSFORMERS, transformers_case),
                                      ("transformers", CLASSIFIERS, classifier_case),
                                      ("transformers", ENCODERS, encoder_case),
                                      ("open_clip", OPEN_CLIP, open_clip_case)):
            for case in cases:
                if options.only not in case[0]:
                    continue
                folder = root / case[0]
                folder.mkdir(exist_ok=True)
                try:
                    worst, how = check(case, folder, options.program, images)
                except SystemExit as refusal:
                    print(refusal, file=sys.stderr)
                    worst, how = float("inf"), "refused"
                failed = failed or worst > MOST
                more = ", ".join(f"{key} {value}" for key, value in case[2].items()
                                 if program != "transformers" or key not in SHARED)
                print(f"| {case[0]} | {program} | {case[1]}{', ' if more else ''}{more} | {how} | {worst:.1e} |", flush=True)
                if not options.keep:
                    shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
