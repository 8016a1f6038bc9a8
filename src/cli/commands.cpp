// The table of subcommands: adding one takes its file and a line here.
#include "cli/base/command.h"
#include "core/error.h"

namespace tessera::cli {

void add_sweep(Arguments&, Action&);
void add_train(Arguments&, Action&);
void add_eval(Arguments&, Action&);
void add_probe(Arguments&, Action&);
void add_predict(Arguments&, Action&);
void add_segment(Arguments&, Action&);
void add_complete(Arguments&, Action&);
void add_chat(Arguments&, Action&);
void add_detect(Arguments&, Action&);
void add_features(Arguments&, Action&);
void add_generate(Arguments&, Action&);
void add_fid(Arguments&, Action&);
void add_zeroshot(Arguments&, Action&);
void add_retrieve(Arguments&, Action&);
void add_caption(Arguments&, Action&);
void add_analyse_attention(Arguments&, Action&);
void add_analyse_maps(Arguments&, Action&);
void add_analyse_landscape(Arguments&, Action&);
void add_analyse_similarity(Arguments&, Action&);
void add_analyse_predictions(Arguments&, Action&);
void add_analyse_robustness(Arguments&, Action&);
void add_analyse_cues(Arguments&, Action&);
void add_analyse_features(Arguments&, Action&);
void add_analyse_embedding(Arguments&, Action&);
void add_analyse_cost(Arguments&, Action&);
void add_analyse_weights(Arguments&, Action&);
void add_analyse_curves(Arguments&, Action&);
void add_models(Arguments&, Action&);
void add_inspect(Arguments&, Action&);
void add_convert(Arguments&, Action&);
void add_export(Arguments&, Action&);
void add_serve(Arguments&, Action&);
void add_data_info(Arguments&, Action&);
void add_data_check(Arguments&, Action&);
void add_data_pack(Arguments&, Action&);
void add_data_encode(Arguments&, Action&);
void add_data_instruct(Arguments&, Action&);
void add_data_preview(Arguments&, Action&);
void add_data_corrupt(Arguments&, Action&);
void add_bench_infer(Arguments&, Action&);
void add_bench_train(Arguments&, Action&);
void add_bench_linear(Arguments&, Action&);
void add_bench_attention(Arguments&, Action&);
void add_bench_mlstm(Arguments&, Action&);
void add_bench_decode(Arguments&, Action&);
void add_bench_memory(Arguments&, Action&);
void add_bench_data(Arguments&, Action&);
void add_tokens_show(Arguments&, Action&);
void add_tokens_train(Arguments&, Action&);
void add_adapter_save(Arguments&, Action&);
void add_adapter_merge(Arguments&, Action&);
void add_completion(Arguments&, Action&);
void add_manual(Arguments&, Action&);
void add_curves(Arguments&, Action&);
void add_plan(Arguments&, Action&);
void add_laws_fit(Arguments&, Action&);
void add_doctor(Arguments&, Action&);
void add_version(Arguments&, Action&);

std::span<const Command> commands() {
  static constexpr Command table[] = {
      {"train", "train a model by a recipe",
       "tessera train recipes/demo.toml --set train.epochs=5 --output runs/demo", add_train},
      {"sweep", "run a recipe with every combination of some settings",
       "tessera sweep recipes/ablations/vil_pooling.toml recipes/scale/shapes.toml --output runs/ablation",
       add_sweep},
      {"curves", "print a run's metrics as a table or CSV", "tessera curves runs/demo --csv > metrics.csv",
       add_curves},
      {"eval", "measure a trained model on a validation set",
       "tessera eval --weights runs/demo/model.safetensors --per-class", add_eval},
      {"probe", "linear probe and k-NN accuracy of a model's features, layer by layer",
       "tessera probe --weights runs/shapes-mae --features mean,last --report probe.html", add_probe},
      {"predict", "classify images",
       "tessera predict photo.jpg --weights runs/demo/model.safetensors --top 3", add_predict},
      {"segment", "find the class of each pixel of images",
       "tessera segment street.jpg --weights runs/camvid -o street.png --overlay", add_segment},
      {"complete", "draw images patch by patch, from nothing or from part of an image",
       "tessera complete photo.jpg --weights runs/shapes-darl-samples --given 0.5 -o completed.png",
       add_complete},
      {"chat", "chat with a language model, also about images",
       "tessera chat --weights llava-1.5-7b/ --image photo.png --prompt \"What is this?\"", add_chat},
      {"detect", "find objects in images: boxes, classes, masks",
       "tessera detect photo.jpg --weights runs/mask_rcnn --overlay found.png", add_detect},
      {"features", "feature extraction: a backbone's features of images as arrays",
       "tessera features photos/ --weights runs/demo -o photos.npy", add_features},
      {"generate", "generate images by a trained generator",
       "tessera generate --weights runs/shapes-dit --classes 0,3 --cfg 1.5 --steps 50 -o grid.png",
       add_generate},
      {"fid", "FID and other distances between generated and real images",
       "tessera fid samples/ --reference photos/ --weights pt_inception-2015-12-05.pth", add_fid},
      {"zeroshot", "classify images by the names of classes",
       "tessera zeroshot photo.png --weights runs/clip --classes classes.txt --templates \"a photo of {}\"",
       add_zeroshot},
      {"retrieve", "find images by a text or by another image",
       "tessera retrieve \"crescent moon\" --weights runs/clip --in photos/ --top 9 -o grid.png",
       add_retrieve},
      {"caption", "write a caption for each image", "tessera caption photo.png --weights runs/coca --beams 4",
       add_caption},
      {"analyse attention", "ranks, distances and entropies of attention by head and layer",
       "tessera analyse attention --weights runs/demo --report attention.html", add_analyse_attention},
      {"analyse maps", "regions of images that a prediction depends on, by several methods",
       "tessera analyse maps photos/ --weights runs/demo --report maps.html", add_analyse_maps},
      {"analyse landscape", "loss around and between weights, and its curvature",
       "tessera analyse landscape --weights runs/demo --kind plane --points 11 --svg plane.svg",
       add_analyse_landscape},
      {"analyse similarity", "similarity of the blocks of one model or two",
       "tessera analyse similarity --weights runs/demo --other runs/other", add_analyse_similarity},
      {"analyse predictions",
       "accuracy with intervals, areas, calibration, and models compared on the same images",
       "tessera analyse predictions --weights runs/a runs/b --temperature 0.2 --report predictions.html",
       add_analyse_predictions},
      {"analyse robustness", "errors under corruptions, relative to a baseline",
       "tessera analyse robustness --weights runs/demo --data shapes: --severity 3", add_analyse_robustness},
      {"analyse cues", "shape bias and texture bias",
       "tessera analyse cues --weights runs/demo --data shapes:cues=conflict", add_analyse_cues},
      {"analyse features", "rank of each block's features, and their receptive field",
       "tessera analyse features --weights runs/demo --svg field.svg", add_analyse_features},
      {"analyse embedding", "images as points of a plane, and their nearest neighbours",
       "tessera analyse embedding --weights runs/demo --method pca --report places.html",
       add_analyse_embedding},
      {"analyse cost", "parameters and multiply-adds of models over resolutions",
       "tessera analyse cost vit_small_patch16_224 vil_small_patch16_224 --size 224,384", add_analyse_cost},
      {"analyse weights", "norms and spectra of tensors, and the distance of two checkpoints",
       "tessera analyse weights --weights runs/a --other runs/b --csv change.csv", add_analyse_weights},
      {"analyse curves", "losses and metrics of several runs in one chart",
       "tessera analyse curves runs/a runs/b --report curves.html", add_analyse_curves},
      {"models", "list the backbones with their parameters and multiply-adds", "tessera models vil --json",
       add_models},
      {"inspect", "print the tensors and metadata of a weights file or checkpoint",
       "tessera inspect runs/demo/model.safetensors --stats", add_inspect},
      {"convert", "convert weights of any format to safetensors with metadata",
       "tessera convert deit3_small.pth deit3_small.safetensors", add_convert},
      {"export", "write trained weights as ONNX for other programs, checked before it is written",
       "tessera export runs/demo -o demo.onnx", add_export},
      {"serve", "answer requests over HTTP with trained weights", "tessera serve runs/demo --port 8080",
       add_serve},
      {"data info", "print sizes, classes, mean and std of a data set", "tessera data info photos/",
       add_data_info},
      {"data check", "read a whole data set and report all errors",
       "tessera data check 'train-{000..004}.tar.gz' --val-data test-000.tar.gz", add_data_check},
      {"data pack", "write a data set as shards", "tessera data pack photos/ -o shards/ --resize 256",
       add_data_pack},
      {"data encode", "encode images as latents of a VAE, for training",
       "tessera data encode photos/ --weights runs/vae -o latents/", add_data_encode},
      {"data instruct", "write conversations about images from their labels and boxes",
       "tessera data instruct coco/ -o instruct.jsonl", add_data_instruct},
      {"data preview", "draw samples with their labels in one image",
       "tessera data preview shapes: samples.png", add_data_preview},
      {"tokens show", "print the tokens of a text",
       "tessera tokens \"a photo of a cat\" --tokenizer tokenizer.json", add_tokens_show},
      {"tokens train", "learn a byte-level BPE from texts",
       "tessera tokens train papers/*.md --size 4096 -o tokenizer.json", add_tokens_train},
      {"adapter save", "write a run's LoRA in the format of the library PEFT",
       "tessera adapter save --weights runs/llava -o adapter/", add_adapter_save},
      {"adapter merge", "merge an adapter into a language model's weights",
       "tessera adapter merge --weights Llama-3.2-1B/ --adapter adapter/ -o merged.safetensors",
       add_adapter_merge},
      {"data corrupt", "write a set with the corruptions of ImageNet-C or CIFAR-10-C",
       "tessera data corrupt shapes: -o corrupted --corruption fog,snow --severity 3", add_data_corrupt},
      {"bench infer", "images a second of a model, with the limit of the machine",
       "tessera bench infer --model deit3_small_patch16_224 --precision bf16 --profile", add_bench_infer},
      {"bench train", "images a second of training steps",
       "tessera bench train --model vil_tiny_patch16_224 --precision bf16", add_bench_train},
      {"bench linear", "a linear layer in each precision",
       "tessera bench linear --rows 1576 --in 384 --out 1536", add_bench_linear},
      {"bench attention", "attention, forward and backward",
       "tessera bench attention --batch 8 --tokens 197 --heads 6 --head-dim 64", add_bench_attention},
      {"bench mlstm", "the mLSTM cell, forward and backward, each form",
       "tessera bench mlstm --batch 1 --tokens 3136 --heads 4 --head-dim 96", add_bench_mlstm},
      {"bench decode", "tokens a second of a language model, with the limit of memory bandwidth",
       "tessera bench decode --precision int8 --prompt 512 --tokens 128", add_bench_decode},
      {"bench memory", "norm, GELU, residual and optimisers, with the limit of memory bandwidth",
       "tessera bench memory --device cuda", add_bench_memory},
      {"bench data", "the training loader on a folder of images", "tessera bench data photos/ --size 224",
       add_bench_data},
      {"plan", "search layouts of a training on a cluster, with time, memory and traffic",
       "tessera plan recipes/vil/table10_base.toml --cluster h100x64 --report plan.html", add_plan},
      {"laws fit", "fit scaling laws to runs, sweeps or a table, for the best size of a budget",
       "tessera laws fit runs/scaling --budget 1e18 --report laws.html", add_laws_fit},
      {"doctor", "print libraries, instruction sets, threads and GPU", "tessera doctor", add_doctor},
      {"completion", "print a script that completes commands and options in a shell",
       "source <(tessera completion bash)", add_completion},
      {"manual", "write man pages of all commands", "tessera manual -o /usr/local/share/man/man1",
       add_manual},
      {"version", "print the version of the program and of LibTorch", "tessera version", add_version},
  };
  return table;
}

std::string_view group_summary(std::string_view group) {
  if (group == "laws") return "scaling laws of trainings";
  if (group == "adapter") return "LoRA adapters: from runs, and into weights";
  if (group == "tokens") return "tokenise texts, and train tokenisers";
  if (group == "data") return "inspect, check, pack, encode and corrupt data sets";
  if (group == "analyse") return "look inside trained models";
  if (group == "bench") return "measure speed, with the limit of the machine";
  fail("commands.cpp has no summary of the group '", group, "'");
}

}  // namespace tessera::cli
