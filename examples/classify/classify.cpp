// Classifies images with a weights file of `tessera train`: classify WEIGHTS IMAGE…
#include <iostream>

#include "core/error.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "open/open_task.h"

int main(int argc, char** argv) try {
  if (argc < 3) tessera::fail_usage("usage: classify WEIGHTS IMAGE…");
  const tessera::train::OpenedTask opened = tessera::train::open_task(argv[1]);
  const auto transform = tessera::data::make_eval_transform(opened.info.preprocess);
  const int64_t side = opened.info.preprocess.size;
  const torch::InferenceMode no_gradients;

  for (int i = 2; i < argc; ++i) {
    torch::Tensor image = torch::empty({1, 3, side, side});
    const tessera::data::Slot slot{static_cast<std::byte*>(image.mutable_data_ptr()), nullptr};
    tessera::RandomStream unused(0, "classify");  // a test transform makes no random draws
    transform->apply(tessera::data::read_image_file(argv[i]), unused, {&slot, 1});

    const auto lines = opened.task->predict(image, /*most=*/1);
    for (const tessera::tasks::PredictionLine& line : lines.at(0))
      std::cout << argv[i] << ": " << line.words << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << "classify: " << error.what() << "\n";
  return 1;
}
