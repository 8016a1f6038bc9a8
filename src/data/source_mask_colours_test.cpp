// Masks with a colour for each class, and the files that name the classes of masks.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source_kinds.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

using Colour = std::array<uint8_t, 3>;
using Names = std::vector<std::string>;

constexpr int kSide = 4;

class MaskColours : public testing::Test {
 protected:
  void SetUp() override { put("images/a.png", encode_png(Image(kSide, kSide))); }
  void put(const std::string& name, const std::vector<std::byte>& bytes) const {
    write_file_atomic(folder_.write(name, ""), bytes);
  }
  // Writes a mask with these colours in its first pixels, and the first of them in the others.
  void put_colours(const std::vector<Colour>& colours) const {
    Image mask(kSide, kSide);
    for (size_t i = 0; i < kSide * kSide; ++i)
      std::ranges::copy(colours[i < colours.size() ? i : 0], mask.pixels.data() + 3 * i);
    put("masks/a.png", encode_png(mask));
  }
  std::vector<int> values(size_t count) const {
    const RawSample sample = open_source({.path = folder_.path(), .val_share = 0}, Split::train)->read(0);
    const auto& pixels = sample.annotation.mask.value().pixels;
    return {pixels.begin(), pixels.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::string error() const {
    return error_of([&] { values(1); }, &folder_);
  }
  TemporaryFolder folder_;
};

TEST_F(MaskColours, AreClassesByTheFilesOfOtherPrograms) {
  put_colours({{0, 0, 0}, {128, 0, 0}, {0, 128, 255}});
  for (
      const auto& [file, content] : std::initializer_list<std::pair<const char*, const char*>>{
          {"labelmap.txt",
           "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:0,128,255::\ndog:128,0,0::\n"},
          {"class_dict.csv", "name,r,g,b\nbackground,0,0,0\ncat, 0, 128, 255\ndog,128,0,0\n"},
          {"class_dict.csv", "class,color\nbackground,#000000\ncat,#0080ff\ndog,\"(128, 0, 0)\"\n"},
          {"label_colors.txt", "0 0 0\tbackground\n0 128 255\tcat\n128 0 0\t\tdog\n"},
          {"classes.json",
           R"([{"id": 2, "name": "dog", "color": [128, 0, 0]}, {"id": 0, "name": "background", "color": [0, 0, 0]},
                {"id": 1, "name": "cat", "color": [0, 128, 255, 255]}])"},
          {"meta.json", R"({"classes": [{"title": "background", "color": "#000000"},
                            {"title": "cat", "color": "#0080FF"}, {"title": "dog", "color": "#800000"}]})"}}) {
    folder_.write(file, content);
    EXPECT_EQ(values(3), (std::vector<int>{0, 2, 1})) << content;
    const auto source = open_source({.path = folder_.path(), .val_share = 0}, Split::train);
    EXPECT_EQ(mask_labels(*source)->mask_classes(), (Names{"background", "cat", "dog"})) << content;
    std::filesystem::remove(folder_.path(file));
  }
}

TEST_F(MaskColours, ThatAreUnknownAreRefusedByName) {
  put_colours({{0, 0, 0}, {1, 2, 3}});
  folder_.write("classes.txt", "background\ncat\n");
  EXPECT_EQ(error(),
            "DIR/masks/a.png: has colours, must have one number a pixel, or the colour of each class in "
            "DIR/labelmap.txt ('cat:128,0,0::' a line) or class_dict.csv (name,r,g,b)");
  EXPECT_EQ(error_of([&] { open_source({.path = folder_.path(), .val_share = 0}, Split::train); }, &folder_),
            error());  // before any mask is asked for
  folder_.write("class_dict.csv", "name,r,g,b\ncat,128,0,0\nbackground,0,0,0\n");
  EXPECT_EQ(error(), "DIR/masks/a.png: DIR/class_dict.csv has no class of the colour 1,2,3 (1 pixel)");
  put_colours({{0, 0, 0}, {128, 0, 0}});
  EXPECT_EQ(values(2), (std::vector<int>{0, 1}));  // by the names of classes.txt
  folder_.write("class_dict.csv", "name,r,g,b\ndog,128,0,0\nbackground,0,0,0\n");
  EXPECT_EQ(error(),
            "DIR/masks/a.png: has colours, which are not read: DIR/class_dict.csv has the classes dog, "
            "background, not background, cat");
  folder_.write("class_dict.csv", "name,r,g,b\ncat,0,0,0\nbackground,0,0,0\n");
  EXPECT_EQ(
      error(),
      "DIR/masks/a.png: has colours, which are not read: DIR/class_dict.csv: 'background' and 'cat' have "
      "one colour, 0,0,0");
  folder_.write("class_dict.csv", "name,r,g,b\ncat,0,0,300\nbackground,0,0,0\n");
  EXPECT_EQ(error(), "DIR/class_dict.csv line 2: the colour of 'cat' must be three numbers from 0 to 255");
}

TEST_F(MaskColours, NumbersStayNumbers) {
  folder_.write("class_dict.csv", "name,r,g,b\ncat,128,0,0\ndog,0,128,0\nvoid,0,0,0\n");
  Image mask(kSide, kSide, 1);
  mask.pixels[1] = 1, mask.pixels[2] = 2;
  put("masks/a.png", encode_png(mask));
  EXPECT_EQ(values(3), (std::vector<int>{0, 1, 2}));
  // A palette of the classes' colours in another order; another palette has numbers.
  const std::vector<Colour> theirs = {{0, 0, 0}, {0, 128, 0}, {128, 0, 0}},
                            others = {{9, 9, 9}, {8, 8, 8}, {7, 7, 7}};
  put("masks/a.png", encode_index_png(mask, theirs));
  EXPECT_EQ(values(3), (std::vector<int>{2, 1, 0}));
  put("masks/a.png", encode_index_png(mask, others));
  EXPECT_EQ(values(3), (std::vector<int>{0, 1, 2}));
  // Black and white of two classes.
  folder_.write("class_dict.csv", "name,r,g,b\nbackground,0,0,0\nroad,255,255,255\n");
  mask.pixels[1] = 255, mask.pixels[2] = 0;
  put("masks/a.png", encode_png(mask));
  EXPECT_EQ(values(3), (std::vector<int>{0, 1, 0}));
}

TEST_F(MaskColours, NamesOfASetInVocsLayout) {
  const TemporaryFolder voc;
  const auto put_voc = [&](const std::string& name, const Image& image) {
    write_file_atomic(voc.write(name, ""), encode_png(image));
  };
  put_voc("JPEGImages/one.png", Image(kSide, kSide));
  Image mask(kSide, kSide, 1);
  mask.pixels[0] = 2;
  put_voc("SegmentationClass/one.png", mask);
  const auto open = [&] { return open_source({.path = voc.path(), .val_share = 0}, Split::train); };
  EXPECT_EQ(mask_labels(*open())->mask_classes().size(), 21u);
  EXPECT_EQ(open()->warnings(),
            Names{voc.path() + " names no classes: Pascal VOC's 21 are assumed; other names belong in " +
                  voc.path() + "/class_names.txt, one a line, the background first"});
  mask.pixels[0] = 30;
  put_voc("SegmentationClass/one.png", mask);
  EXPECT_NE(error_of([&] { open()->read(0); }).find("the value 30 (1 pixel) means no class, must be 0 to 20"),
            std::string::npos);
  voc.write("class_names.txt", "_background_\nleaf\nstem\n");
  EXPECT_EQ(mask_labels(*open())->mask_classes(), (Names{"_background_", "leaf", "stem"}));
  EXPECT_TRUE(open()->warnings().empty());
  voc.write("class_names.txt", "__ignore__\n_background_\nleaf\nstem\n");
  EXPECT_EQ(mask_labels(*open())->mask_classes(), (Names{"_background_", "leaf", "stem"}));
  // CVAT's colours; the border of VOC's objects has no class.
  voc.write("labelmap.txt", "background:0,0,0::\nstem:51,221,255::\n");
  Image colours(kSide, kSide);
  std::ranges::copy(Colour{51, 221, 255}, colours.pixels.data() + 3);
  std::ranges::copy(Colour{224, 224, 192}, colours.pixels.data() + 6);
  put_voc("SegmentationClass/one.png", colours);
  EXPECT_EQ(mask_labels(*open())->mask_classes(), (Names{"background", "stem"}));
  const RawSample sample = open()->read(0);
  EXPECT_EQ(sample.annotation.mask->pixels[1], 1);
  EXPECT_EQ(sample.annotation.mask->pixels[2], kIgnoredPixel);
  // Of VOC's own images no line is printed.
  const TemporaryFolder own;
  for (const char* name : {"JPEGImages/2007_000032.png", "SegmentationClass/2007_000032.png"})
    write_file_atomic(own.write(name, ""), encode_png(Image(kSide, kSide)));
  EXPECT_TRUE(open_source({.path = own.path(), .val_share = 0}, Split::train)->warnings().empty());
}

}  // namespace
}  // namespace tessera::data
