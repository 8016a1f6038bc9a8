#include "eval/statistics_file.h"

#include "io/files/io_testing.h"
#include "io/weights/array_file.h"

namespace tessera::eval {
namespace {

using StatisticsFile = TemporaryFolder;

FeatureStatistics example() {
  FeatureStatistics out;
  out.origin = {"Inception-v3 (FID) 0123", "tf"};
  out.pooled = {500, {1, 2}, {3, 0.5, 0.5, 4}};
  out.spatial = Gaussian{500, {7}, {8}};
  return out;
}

void write_arrays(const std::string& path, const std::vector<int64_t>& mean,
                  const std::vector<int64_t>& covariance, double value) {
  ArrayFile file(path, {{"mu", DType::f64, mean}, {"sigma", DType::f64, covariance}});
  int64_t numbers = 0;
  for (const auto* shape : {&mean, &covariance}) {
    int64_t product = 1;
    for (const int64_t extent : *shape) product *= extent;
    numbers += product;
  }
  for (int64_t i = 0; i < numbers; ++i) {
    const double number = value * static_cast<double>(i);
    file.write(std::as_bytes(std::span(&number, 1)));
  }
  file.commit();
}

TEST_F(StatisticsFile, ComesBackAsItWas) {
  const FeatureStatistics written = example();
  write_statistics(path("a.npz"), written);
  const FeatureStatistics read = read_statistics(path("a.npz"));
  EXPECT_EQ(read.origin.extractor, written.origin.extractor);
  EXPECT_EQ(read.origin.protocol, written.origin.protocol);
  EXPECT_EQ(read.pooled.samples, 500);
  EXPECT_EQ(read.pooled.mean, written.pooled.mean);
  EXPECT_EQ(read.pooled.covariance, written.pooled.covariance);
  ASSERT_TRUE(read.spatial);
  EXPECT_EQ(read.spatial->covariance, written.spatial->covariance);
}

TEST_F(StatisticsFile, OfOtherProgramsSayNothingOfTheirOrigin) {
  write_arrays(path("a.npz"), {2}, {2, 2}, 0);
  const FeatureStatistics read = read_statistics(path("a.npz"));
  EXPECT_FALSE(read.origin.known());
  EXPECT_EQ(read.pooled.samples, 0);
  EXPECT_FALSE(read.spatial);
}

TEST_F(StatisticsFile, NamesWhatIsWrong) {
  const auto error = [&] { return error_of([&] { read_statistics(path("a.npz")); }); };
  write_arrays(path("a.npz"), {2}, {2, 3}, 0);
  EXPECT_NE(error().find("sigma must be [2, 2], as many as mu has"), std::string::npos) << error();
  write_arrays(path("a.npz"), {2}, {2, 2}, 1);
  EXPECT_NE(error().find("sigma is not symmetric at [1, 0]: 4 and 3"), std::string::npos) << error();
  write_arrays(path("a.npz"), {2, 1}, {2, 2}, 0);
  EXPECT_NE(error().find("mu must be a row of"), std::string::npos) << error();
  ArrayFile(path("a.npz"), {{"arr_0", DType::u8, {0, 2, 2, 3}}}).commit();
  EXPECT_NE(error().find("holds images (arr_0), no statistics of features"), std::string::npos) << error();
}

TEST(FeatureOrigin, MustBeTheSame) {
  const FeatureOrigin a{"A", "tf"}, b{"B", "tf"}, c{"A", "clean"}, unknown;
  require_same_origin(a, "x", a, "y");
  require_same_origin(a, "x", unknown, "y");
  EXPECT_EQ(error_of([&] { require_same_origin(a, "x", b, "y"); }),
            "features of two extractors cannot be compared: x has those of A, y those of B");
  EXPECT_EQ(error_of([&] { require_same_origin(a, "x", c, "y"); }),
            "features of two protocols cannot be compared: x was made with 'tf', y with 'clean'");
}

}  // namespace
}  // namespace tessera::eval
