#include "data/sources/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/error.h"
#include "core/random.h"

namespace tessera::data {
namespace {

// Softmax regression, trained one sample at a time.
class LinearClassifier {
 public:
  LinearClassifier(int64_t inputs, int64_t classes)
      : inputs_(inputs), classes_(classes), weights_(static_cast<size_t>((inputs + 1) * classes)) {}

  void step(const std::vector<float>& x, int64_t label, float rate, float decay) {
    std::vector<float> p = scores(x);
    const float top = *std::max_element(p.begin(), p.end());
    float sum = 0;
    for (float& v : p) sum += v = std::exp(v - top);
    for (int64_t c = 0; c < classes_; ++c) {
      const float slope = p[static_cast<size_t>(c)] / sum - (c == label ? 1.0f : 0.0f);
      float* w = weights_.data() + c * (inputs_ + 1);
      for (int64_t i = 0; i < inputs_; ++i) w[i] -= rate * (slope * x[static_cast<size_t>(i)] + decay * w[i]);
      w[inputs_] -= rate * slope;
    }
  }

  int64_t predict(const std::vector<float>& x) const {
    const auto s = scores(x);
    return std::max_element(s.begin(), s.end()) - s.begin();
  }

 private:
  std::vector<float> scores(const std::vector<float>& x) const {
    std::vector<float> s(static_cast<size_t>(classes_));
    for (int64_t c = 0; c < classes_; ++c) {
      const float* w = weights_.data() + c * (inputs_ + 1);
      float sum = w[inputs_];
      for (int64_t i = 0; i < inputs_; ++i) sum += w[i] * x[static_cast<size_t>(i)];
      s[static_cast<size_t>(c)] = sum;
    }
    return s;
  }
  int64_t inputs_, classes_;
  std::vector<float> weights_;  // [classes, inputs + 1]
};

std::vector<float> pixels_of(const Image& image) {
  std::vector<float> x;
  for (const uint8_t value : image.pixels) x.push_back((static_cast<float>(value) - 127.5f) / 70.0f);
  return x;
}

using LabelOf = std::function<int64_t(Split, int64_t index, const Image&)>;

// Returns the accuracy on 1000 held-out images of a classifier trained on 4000.
double linear_accuracy(const ShapesConfig& config, int64_t classes, float decay, const LabelOf& label_of) {
  constexpr int64_t kTrain = 4000, kTest = 1000;
  constexpr int kEpochs = 10;
  std::vector<std::vector<float>> train;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kTrain; ++i) {
    const Image image = draw_shapes(config, Split::train, i);
    train.push_back(pixels_of(image));
    labels.push_back(label_of(Split::train, i, image));
  }
  LinearClassifier classifier(static_cast<int64_t>(train[0].size()), classes);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const float rate = 2e-4f * (1 - static_cast<float>(epoch) / kEpochs);
    for (const int64_t i : RandomStream(0, "order", static_cast<uint64_t>(epoch)).permutation(kTrain))
      classifier.step(train[static_cast<size_t>(i)], labels[static_cast<size_t>(i)], rate, decay);
  }
  int64_t right = 0;
  for (int64_t i = 0; i < kTest; ++i) {
    const Image image = draw_shapes(config, Split::validation, i);
    right += classifier.predict(pixels_of(image)) == label_of(Split::validation, i, image);
  }
  return static_cast<double>(right) / kTest;
}

TEST(Shapes, ALinearClassifierOnPixelsStaysBelow40Percent) {
  const ShapesConfig config;
  const LabelOf shape = [&](Split split, int64_t i, const Image&) {
    return shapes_label(config, split, i).shape;
  };
  const LabelOf texture = [&](Split split, int64_t i, const Image&) {
    return shapes_label(config, split, i).texture;
  };
  // The classifier is adequate: it learns linear functions of the pixels.
  const LabelOf mostly_red = [](Split, int64_t, const Image& image) {
    int64_t red_less_green = 0;
    for (size_t p = 0; p < image.pixels.size(); p += 3)
      red_less_green += image.pixels[p] - image.pixels[p + 1];
    return red_less_green > 0 ? 1 : 0;
  };
  EXPECT_GT(linear_accuracy(config, 2, 0, mostly_red), 0.95);
  for (const float decay : {0.0f, 0.3f}) {
    EXPECT_LT(linear_accuracy(config, 10, decay, shape), 0.40) << "weight decay " << decay;
    EXPECT_LT(linear_accuracy(config, 8, decay, texture), 0.40) << "weight decay " << decay;
  }
}

TEST(Shapes, ShapeAndTextureAreUniformAndIndependent) {
  const ShapesConfig config;
  constexpr int64_t kSamples = 40000;
  const size_t shapes = shape_names().size(), textures = texture_names().size();
  ASSERT_GE(shapes, 10u);
  ASSERT_GE(textures, 8u);
  std::vector<int64_t> cells(shapes * textures);
  for (int64_t i = 0; i < kSamples; ++i) {
    const ShapesLabel label = shapes_label(config, Split::train, i);
    ++cells[static_cast<size_t>(label.shape) * textures + static_cast<size_t>(label.texture)];
  }
  // Pearson's statistic over 80 cells: mean 79, deviation sqrt(2 * 79) = 12.6; the limit is five deviations.
  double statistic = 0;
  const double expected = static_cast<double>(kSamples) / static_cast<double>(cells.size());
  for (const int64_t n : cells)
    statistic += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
  EXPECT_LT(statistic, 79 + 5 * 12.6);
}

TEST(Shapes, CuesAgreeOrConflictInEverySample) {
  const ShapesConfig agree = parse_shapes("shapes:cues=agree"),
                     conflict = parse_shapes("shapes:cues=conflict");
  std::vector<int64_t> pairs(kCueClasses * kCueClasses);
  for (int64_t i = 0; i < 2000; ++i) {
    const ShapesLabel same = shapes_label(agree, Split::train, i),
                      other = shapes_label(conflict, Split::train, i);
    EXPECT_EQ(same.shape, same.texture);
    EXPECT_NE(other.shape, other.texture);
    ++pairs[static_cast<size_t>(other.shape * kCueClasses + other.texture)];
  }
  EXPECT_EQ(std::count(pairs.begin(), pairs.end(), 0), kCueClasses);  // the agreeing ones
  EXPECT_EQ(open_source({.path = "shapes:cues=agree"}, Split::train)->class_labels()->class_names().size(),
            static_cast<size_t>(kCueClasses));
  EXPECT_THROW(parse_shapes("shapes:cues=maybe"), Error);
}

TEST(Shapes, ASampleDependsOnSeedSplitAndIndexAlone) {
  ShapesConfig config;
  const auto draw = [&](Split split, int64_t i) { return draw_shapes(config, split, i).pixels; };
  const auto first = draw(Split::train, 7);
  EXPECT_NE(first, draw(Split::train, 8));
  EXPECT_NE(first, draw(Split::validation, 7));
  config.train = 50;
  config.task = "texture";
  EXPECT_EQ(first, draw(Split::train, 7)) << "neither the set's size nor the question changes the image";
  config.seed = 1;
  EXPECT_NE(first, draw(Split::train, 7));
}

TEST(Shapes, TrainAndHeldOutPicturesDiffer) {
  const ShapesConfig config;
  std::set<std::vector<uint8_t>> train;
  for (int64_t i = 0; i < 1000; ++i) train.insert(draw_shapes(config, Split::train, i).pixels);
  EXPECT_EQ(train.size(), 1000u);
  for (int64_t i = 0; i < 1000; ++i)
    EXPECT_FALSE(train.contains(draw_shapes(config, Split::validation, i).pixels)) << i;
}

TEST(Shapes, TheObjectStandsOutAndLiesInThePicture) {
  // Images of one class differ, but every image has contrast.
  ShapesConfig config;
  for (const int64_t size : {32, 64}) {
    config.size = size;
    for (int64_t i = 0; i < 200; ++i) {
      const Image image = draw_shapes(config, Split::train, i);
      ASSERT_EQ(image.width, size);
      ASSERT_EQ(image.height, size);
      double sum = 0, squares = 0;
      for (const uint8_t v : image.pixels) sum += v, squares += static_cast<double>(v) * v;
      const auto n = static_cast<double>(image.pixels.size());
      EXPECT_GT(squares / n - sum / n * sum / n, 100.0) << "sample " << i;
    }
  }
}

TEST(Shapes, ThePathIsRead) {
  const ShapesConfig config = parse_shapes("shapes:train=300,val=20,size=64,seed=5,task=texture");
  EXPECT_EQ(config.train, 300);
  EXPECT_EQ(config.val, 20);
  EXPECT_EQ(config.size, 64);
  EXPECT_EQ(config.seed, 5);
  EXPECT_EQ(config.task, "texture");
  EXPECT_EQ(parse_shapes("shapes:").train, 20000);
  EXPECT_EQ(parse_shapes("shapes").size, 32);
}

TEST(Shapes, AWrongPathIsNamed) {
  const auto error_of = [](const char* path) -> std::string {
    try {
      parse_shapes(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of("shapes:trian=3"), "unknown key 'shapes.trian', did you mean 'train'?");
  EXPECT_EQ(error_of("shapes:size=48"), "shapes.size is 48, must be 32 or 64");
  EXPECT_EQ(error_of("shapes:train=0"), "shapes.train is 0, must be 1 to 1000000000");
  EXPECT_EQ(error_of("shapes:task=colour"),
            "shapes.task is 'colour', must be shape, texture, segment or text");
  EXPECT_EQ(error_of("shapes:size"), "shapes:size: 'size' must read key=value");
  EXPECT_EQ(error_of("shapes:size=big"), "shapes.size is a string, must be an integer");
}

// A caption describes its image, and the image is the same as in the other tasks.
TEST(Shapes, CaptionsTellWhatIsDrawn) {
  const ShapesConfig config = parse_shapes("shapes:train=200,val=20,task=text"),
                     plain = parse_shapes("shapes:train=200,val=20");
  std::set<std::string> colours, places;
  for (int64_t i = 0; i < 200; ++i) {
    const ShapesWords words = shapes_words(config, Split::train, i);
    const ShapesLabel label = shapes_label(config, Split::train, i);
    EXPECT_EQ(words.shape, shape_names()[static_cast<size_t>(label.shape)]);
    EXPECT_EQ(words.texture, texture_names()[static_cast<size_t>(label.texture)]);
    colours.insert(words.colour), places.insert(words.place);
    const std::vector<std::string> captions = shapes_captions(words);
    EXPECT_NE(captions[0].find(words.colour), std::string::npos);
    EXPECT_NE(captions[0].find(words.place), std::string::npos);
  }
  EXPECT_GE(colours.size(), 9u);
  EXPECT_EQ(places.size(), 9u);
  EXPECT_EQ(draw_shapes(config, Split::train, 3).pixels, draw_shapes(plain, Split::train, 3).pixels);
}

}  // namespace
}  // namespace tessera::data
