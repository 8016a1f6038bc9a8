#include "analysis/counted_products.h"

#include <gtest/gtest.h>

#include "models/base/capability.h"
#include "models/base/model.h"

namespace tessera::analysis {
namespace {

std::shared_ptr<models::Classifier> built(const std::string& name) {
  const auto model = models::build_classifier(models::resolve_model(name, Value()), 0);
  model->backbone->to(torch::kFloat64);
  return model;
}

// The families' formulas match the counts, even at sides that no model was built for.
TEST(CountedProducts, EqualTheFormulas) {
  for (const char* name : {"vit_tiny_patch16_224", "deit3_small_patch16_224", "illama_tiny_patch16_224",
                           "visionllama_small_patch16_224", "visionllama_pyramid_small_224",
                           "swin_tiny_patch4_window7_224", "twins_svt_small", "resnet50", "convnext_tiny"}) {
    const auto model = built(name);
    for (const int64_t side : {224, 64}) {
      if (side == 64 && std::string(name).starts_with("illama")) continue;  // the context length is fixed
      const CountedProducts found = sum_of(count_products(*model, 3, side));
      EXPECT_EQ(found.sum(), model->exact_macs(side, side)) << name << " at " << side;
    }
  }
}

// Layers around the cells match the formula. The composed chunks compute whole squares, while the kernels
// skip the masked part.
TEST(CountedProducts, OfVisionLstmAreThoseOfItsLayersAndCells) {
  const auto model = built("vil_tiny_patch16_224");
  const auto& cells = dynamic_cast<const models::MlstmCells&>(*model->backbone);
  const int64_t chunks = cells.cell_macs(models::MlstmForm::chunkwise, 224, 224);
  const CountedProducts found = sum_of(count_products(*model, 3, 224));
  EXPECT_EQ(found.weights + found.convolutions, model->exact_macs(224, 224) - chunks);
  EXPECT_GE(found.between, chunks);
  EXPECT_EQ(found.scores, 0);
  // 196 tokens of width 384 in 4 heads, 24 layers.
  EXPECT_EQ(cells.cell_macs(models::MlstmForm::parallel, 224, 224), int64_t{24} * 196 * 197 * 384);
  EXPECT_EQ(cells.cell_macs(models::MlstmForm::recurrent, 224, 224),
            int64_t{24} * 196 * 2 * (96 * 384 + 384));
}

TEST(CountedProducts, AreToldByPlace) {
  const auto model = built("vit_tiny_patch16_224");
  const std::vector<PlaceProducts> places = count_products(*model, 3, 224);
  ASSERT_EQ(places.size(), 14u);
  EXPECT_EQ(places[0].place, "blocks.0");
  EXPECT_EQ(places[5].products.sum(), places[6].products.sum());
  EXPECT_EQ(places[5].products.between, int64_t{2} * 197 * 197 * 192);
  EXPECT_EQ(places[5].products.scores, int64_t{3} * 197 * 197);
}

}  // namespace
}  // namespace tessera::analysis
