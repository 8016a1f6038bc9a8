// The table of subcommands: adding one is its file and a line here.
#include "cli/command.h"

namespace tessera::cli {

void add_train(CLI::App&, Action&);
void add_eval(CLI::App&, Action&);
void add_predict(CLI::App&, Action&);
void add_models(CLI::App&, Action&);
void add_inspect(CLI::App&, Action&);
void add_doctor(CLI::App&, Action&);
void add_version(CLI::App&, Action&);

std::span<const Command> commands() {
  static constexpr Command table[] = {
      {"train", "train a model by a recipe",
       "tessera train recipes/demo.toml --set train.epochs=5 --output runs/demo", add_train},
      {"eval", "measure a trained model on held-out pictures",
       "tessera eval --weights runs/demo/model.safetensors --per-class", add_eval},
      {"predict", "classify pictures",
       "tessera predict photo.jpg --weights runs/demo/model.safetensors --top 3", add_predict},
      {"models", "list the backbones with their parameters and multiply-adds", "tessera models vil --json",
       add_models},
      {"inspect", "the tensors and metadata of a weights file or checkpoint",
       "tessera inspect runs/demo/model.safetensors --stats", add_inspect},
      {"doctor", "what is installed: libraries, instruction sets, threads, GPU", "tessera doctor",
       add_doctor},
      {"version", "the version of the program and of LibTorch", "tessera version", add_version},
  };
  return table;
}

}  // namespace tessera::cli
