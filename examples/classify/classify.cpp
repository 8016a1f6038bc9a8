// Classifies pictures with a weights file that `tessera train` has written: classify WEIGHTS PICTURE…
#include <iostream>

#include "core/error.h"
#include "core/text.h"
#include "data/transform.h"
#include "io/file.h"
#include "train/open_model.h"

int main(int argc, char** argv) try {
  if (argc < 3) tessera::fail_usage("usage: classify WEIGHTS PICTURE…");
  const auto [model, info, file, notes] = tessera::train::open_model(argv[1]);
  const auto transform = tessera::data::make_eval_transform(info.preprocess);
  const torch::InferenceMode no_gradients;

  for (int i = 2; i < argc; ++i) {
    torch::Tensor picture = torch::empty({1, 3, transform->height(), transform->width()});
    tessera::RandomStream unused(0, "classify");  // a test transform draws nothing
    transform->apply({argv[i], tessera::read_file(argv[i])}, unused, picture.data_ptr<float>());

    const auto [probability, index] = model->forward(picture).softmax(1).max(1);
    std::cout << argv[i] << ": " << info.class_names.at(index.item<int64_t>()) << " ("
              << tessera::fixed(100 * probability.item<double>(), 1) << " %)\n";
  }
} catch (const std::exception& error) {
  std::cerr << "classify: " << error.what() << "\n";
  return 1;
}
