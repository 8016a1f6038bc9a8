#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/random.h"
#include "data/base/data_testing.h"
#include "data/base/source.h"
#include "data/tools/check.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/transform.h"
#include "data/transforms/transform_masks.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int kWidth = 12, kHeight = 9;

Image gray(int value, int width = kWidth, int height = kHeight) {
  Image mask(width, height, 1);
  std::fill(mask.pixels.begin(), mask.pixels.end(), static_cast<uint8_t>(value));
  return mask;
}

// A folder with two training images, one validation image and three classes.
class MaskFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tessera_masks_" + std::to_string(::getpid()) + "_" +
                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    add("training", "a", gray(0));
    add("training", "b", gray(2));
    add("validation", "c", gray(255));
    write_text_atomic((root_ / "classes.txt").string(), "sky\nroad\ncar\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void add(const std::string& split, const std::string& name, const Image& mask) {
    fs::create_directories(root_ / "images" / split);
    fs::create_directories(root_ / "annotations" / split);
    write_file_atomic((root_ / "images" / split / (name + ".png")).string(),
                      encode_png(Image(kWidth, kHeight)));
    write_file_atomic((root_ / "annotations" / split / (name + ".png")).string(), encode_png(mask));
  }
  std::unique_ptr<Source> open(Split split, const std::string& path = "") const {
    return open_source({.path = path.empty() ? root_.string() : path}, split);
  }
  // Returns the error from opening the source or reading its samples.
  std::string message(const std::string& path = "") const {
    try {
      const auto source = open(Split::train, path);
      for (int64_t i = 0; i < source->size(); ++i) source->read(i);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path root_;
};

TEST_F(MaskFolder, SplitsAndClassesAreFound) {
  const auto train = open(Split::train), validation = open(Split::validation);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(validation->size(), 1);
  EXPECT_EQ(mask_labels(*train)->mask_classes(), (std::vector<std::string>{"sky", "road", "car"}));
  EXPECT_EQ(train->class_labels(), nullptr);
  EXPECT_EQ(train->read(1).annotation.mask->pixels, gray(2).pixels);
  EXPECT_EQ(validation->read(0).annotation.mask->pixels, gray(kIgnoredPixel).pixels);
  require_same_masks(*train, *validation);
  EXPECT_EQ(mask_pixels(*train, 10), (std::vector<int64_t>{kWidth * kHeight, 0, kWidth * kHeight, 0}));
  // A split with its own path.
  EXPECT_EQ(open(Split::train, (root_ / "images" / "validation").string())->size(), 1);
}

TEST_F(MaskFolder, OtherNamesOfFoldersAndMasksAreFound) {
  const auto open_again = [&] {
    const auto source = open(Split::train);
    ASSERT_EQ(source->size(), 2);
    EXPECT_EQ(source->read(1).annotation.mask->pixels, gray(2).pixels);
  };
  fs::create_directories(root_ / "images/training/.ipynb_checkpoints");
  fs::copy_file(root_ / "images/training/a.png",
                root_ / "images/training/.ipynb_checkpoints/a-checkpoint.png");
  open_again();
  for (const char* name : {"a", "b"})
    fs::rename(root_ / "annotations/training" / (std::string(name) + ".png"),
               root_ / "annotations/training" / (std::string(name) + "_mask.png"));
  open_again();
  fs::rename(root_ / "annotations", root_ / "mask");
  fs::rename(root_ / "images", root_ / "image");
  open_again();
}

// VOC2012 as it is unpacked, with boxes and without.
TEST_F(MaskFolder, PascalVocsListsNameTheImagesOfEachSplit) {
  const fs::path set = root_ / "VOC2012";
  const auto write = [&](const char* name, const std::string& content) {
    fs::create_directories((set / name).parent_path());
    write_text_atomic((set / name).string(), content);
  };
  for (const char* name : {"a", "b", "c", "d"}) {
    fs::create_directories(set / "JPEGImages"), fs::create_directories(set / "SegmentationClass");
    write_file_atomic((set / "JPEGImages" / name).string() + ".jpg", encode_jpeg(Image(kWidth, kHeight)));
    if (*name != 'd')
      write_file_atomic((set / "SegmentationClass" / name).string() + ".png",
                        encode_png(gray(*name - 'a' + 1)));
  }
  EXPECT_EQ(open(Split::train, set.string())->size() + open(Split::validation, set.string())->size(), 3);
  write("ImageSets/Segmentation/train.txt", "a\nb\n");
  write("ImageSets/Segmentation/val.txt", "c\n");
  for (const std::string& path : {set.string(), (set / "SegmentationClass").string()}) {
    const auto train = open(Split::train, path), held_out = open(Split::validation, path);
    EXPECT_EQ(train->size(), 2);
    EXPECT_EQ(train->read(1).annotation.mask->pixels[0], 2);
    EXPECT_EQ(held_out->read(0).annotation.mask->pixels[0], 3);
    ASSERT_EQ(mask_labels(*train)->mask_classes().size(), 21u);
    EXPECT_EQ(mask_labels(*train)->mask_classes()[2], "bicycle");
    EXPECT_EQ(train->problems(), std::vector<std::string>{});
  }
  // With boxes the folder is a set of objects, unless the task reads masks.
  write("Annotations/a.xml", "<annotation></annotation>");
  EXPECT_EQ(source_kind(set.string()), "Pascal VOC");
  EXPECT_EQ(source_kind((set / "SegmentationClass").string()), "masks");
  EXPECT_EQ(open_source({.path = root_.string() + "/VOC2012", .reads_masks = true}, Split::train)->size(), 2);
  write("ImageSets/Segmentation/train.txt", "a\nx\n");
  EXPECT_NE(message((set / "SegmentationClass").string()).find("train.txt: 'x' has no image in JPEGImages"),
            std::string::npos);
}

TEST_F(MaskFolder, SplitsMayContainTheImagesAndMasks) {
  const TemporaryFolder folder;
  folder.write("classes.txt", "sky\nroad\ncar\n");
  for (const char* split : {"train", "valid"}) {
    folder.write(text("inside/", split, "/images/a.jpg"), ""),
        folder.write(text("inside/", split, "/masks/a.png"), "");
    folder.write(text("robo/", split, "/_classes.csv"), "Pixel Value, Class\n0, sky\n1, road\n2, car\n");
    for (const char* place : {"inside/%/images/a.png", "robo/%/a.png"}) {
      std::string name = place;
      write_file_atomic(folder.path(name.replace(name.find('%'), 1, split)),
                        encode_png(Image(kWidth, kHeight)));
    }
    for (const char* place : {"inside/%/masks/a.png", "robo/%/a_mask.png"}) {
      std::string name = place;
      write_file_atomic(folder.path(name.replace(name.find('%'), 1, split)), encode_png(gray(2)));
    }
  }
  fs::remove(folder.path("inside/train/images/a.jpg")), fs::remove(folder.path("inside/valid/images/a.jpg"));
  fs::rename(folder.path("classes.txt"), folder.path("inside/classes.txt"));
  for (const char* name : {"inside", "robo"})
    for (const Split split : {Split::train, Split::validation}) {
      const auto source = open_source({.path = folder.path(name)}, split);
      ASSERT_EQ(source->size(), 1) << name;
      EXPECT_EQ(mask_labels(*source)->mask_classes(), (std::vector<std::string>{"sky", "road", "car"}));
      EXPECT_EQ(source->read(0).annotation.mask->pixels, gray(2).pixels) << name;
    }
}

// A mask of the image as it is shown, or as it is stored, follows the image.
TEST_F(MaskFolder, MasksAreOrientedWithTheirImage) {
  Image shown(4, 6, 1);
  shown.row(1)[3] = 2;
  for (const bool as_stored : {false, true}) {
    const Image mask = as_stored ? orient(shown, inverse_orientation(6)) : shown;
    write_file_atomic((root_ / "images/training/a.png").string(), encode_png(Image(6, 4), 6));
    write_file_atomic((root_ / "annotations/training/a.png").string(), encode_png(mask));
    const RawSample sample = open(Split::train)->read(0);
    EXPECT_EQ(sample.annotation.mask.value().pixels, shown.pixels);
    EXPECT_EQ(decode_sample(sample).width, 4);
  }
  write_file_atomic((root_ / "annotations/training/a.png").string(), encode_png(Image(5, 6, 1)));
  EXPECT_NE(message().find("the mask has 5x6 pixels, its image"), std::string::npos) << message();
}

TEST_F(MaskFolder, WrongMasksAreNamed) {
  add("training", "d", gray(0, kWidth + 1));
  EXPECT_NE(message().find("annotations/training/d.png: the mask has 13x9 pixels, its image"),
            std::string::npos);
  Image colours(kWidth, kHeight);
  colours.pixels[0] = 2;
  add("training", "d", colours);
  EXPECT_NE(
      message().find("d.png: has colours, must have one number a pixel, or the colour of each class in "),
      std::string::npos);
  add("training", "d", gray(3));
  EXPECT_NE(
      message().find("d.png: the value 3 (108 pixels) means no class, must be 0 to 2, or 255 for none: is"),
      std::string::npos);
  EXPECT_NE(message().find("reduce_zero_label"), std::string::npos);
  add("training", "d", gray(77));
  EXPECT_EQ(message().find("reduce_zero_label"), std::string::npos);
  Image several = gray(0);
  several.pixels[0] = 9, several.pixels[1] = several.pixels[2] = 3;
  add("training", "d", several);
  EXPECT_NE(message().find("the values 3 (2 pixels), 9 (1 pixel) mean no class"), std::string::npos);
}

TEST_F(MaskFolder, AMissingFolderIsNamedToWhoNeedsMasks) {
  const auto refusal = [&] {
    try {
      require_masks(*open(Split::train), "the task");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "");
  fs::rename(root_ / "annotations", root_ / "kept");
  fs::remove_all(root_ / "kept");
  EXPECT_NE(refusal().find("annotations/ (or labels/, masks/) with a .png for each image is missing"),
            std::string::npos);
}

TEST_F(MaskFolder, MasksWithoutAnyClassAreAProblemOfTheSet) {
  add("training", "d", gray(1));
  CheckReport report = check_data({.path = root_.string()});
  ASSERT_EQ(report.set.count, 1);
  EXPECT_NE(report.set.lines[0].find("(validation), 1 image, 3 classes: no mask has a pixel of a class"),
            std::string::npos);
  add("validation", "e", gray(1));
  EXPECT_EQ(check_data({.path = root_.string()}).set.count, 0);
}

TEST_F(MaskFolder, PicturesWithoutMasksAndTheReverseAreProblems) {
  fs::remove(root_ / "annotations" / "training" / "a.png");
  EXPECT_NE(message().find("a.png has no mask"), std::string::npos);
  add("training", "a", gray(0));
  fs::remove(root_ / "images" / "training" / "a.png");
  EXPECT_NE(message().find("is the mask of no image"), std::string::npos);
}

TEST_F(MaskFolder, ADescriptionSaysWhatFoldersDoNot) {
  const std::string file = (root_ / "set.toml").string();
  write_text_atomic(file, "reduce_zero_label = true\n");
  add("training", "d", gray(3));
  const auto reduced = open(Split::train, file);
  EXPECT_EQ(reduced->read(0).annotation.mask->pixels, gray(kIgnoredPixel).pixels);
  EXPECT_EQ(reduced->read(2).annotation.mask->pixels, gray(2).pixels);
  write_text_atomic(file, "class_map = { \"3\" = 1, \"0\" = -1 }\nvalidation = \"validation\"\n");
  const auto mapped = open(Split::train, file);
  EXPECT_EQ(mapped->read(0).annotation.mask->pixels, gray(kIgnoredPixel).pixels);
  EXPECT_EQ(mapped->read(2).annotation.mask->pixels, gray(1).pixels);
  EXPECT_NE(mapped->fingerprint(), reduced->fingerprint());
  write_text_atomic(file, "class_map = { \"3\" = 7 }\n");
  EXPECT_NE(message(file).find("must be -1 (none) to 2"), std::string::npos);
  write_text_atomic(file, "image = \"images\"\n");
  EXPECT_NE(message(file).find("did you mean"), std::string::npos);
}

TEST_F(MaskFolder, WithoutNamesOfClassesItSaysWhereTheyGo) {
  fs::remove(root_ / "classes.txt");
  EXPECT_NE(message().find("classes.txt"), std::string::npos);
}

TEST(ShapesMasks, BelongToTheirImages) {
  const auto source = open_source({.path = "shapes:task=segment,train=20,val=5,size=64"}, Split::train);
  ASSERT_EQ(mask_labels(*source)->mask_classes().size(), 11u);
  for (int64_t i = 0; i < source->size(); ++i) {
    const RawSample sample = source->read(i);
    const Image& mask = sample.annotation.mask.value();
    EXPECT_EQ(mask.width, 64);
    int64_t shape = 0;
    for (const uint8_t value : mask.pixels) shape += value > 0;
    EXPECT_GT(shape, 64 * 64 / 40);  // the shape is visible
    EXPECT_LT(shape, 64 * 64 * 9 / 10);
  }
}

// Encodes positions as colours; the mask encodes row 2 * (y / 4) + x / 4 in the same way.
RawSample striped(int width, int height) {
  Image picture(width, height), mask(width, height, 1);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const auto value = static_cast<uint8_t>(40 * ((x / 8 + y / 8) % 5));
      for (int c = 0; c < 3; ++c) picture.row(y)[3 * x + c] = value;
      mask.row(y)[x] = static_cast<uint8_t>(value / 40);
    }
  RawSample sample{"striped", picture};
  sample.annotation.mask = mask;
  return sample;
}

TEST(MaskTraining, ImageAndMaskMoveTogether) {
  Preprocess preprocess;
  preprocess.mean = {0, 0, 0}, preprocess.std = {1, 1, 1};
  MaskTraining options;
  options.crop = {.scale = {64, 48}, .ratio = {1, 1}, .most_of_one_class = 1};
  options.photometric = false;
  const auto transform = make_mask_training(preprocess, options, 32, 40);
  std::vector<float> image(3 * 32 * 40);
  std::vector<uint8_t> mask(32 * 40);
  const std::array slots = {Slot{reinterpret_cast<std::byte*>(image.data())},
                            Slot{reinterpret_cast<std::byte*>(mask.data())}};
  const RawSample sample = striped(64, 48);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, "crop");
    transform->apply(sample, random, slots);
    for (size_t i = 0; i < mask.size(); ++i)
      ASSERT_EQ(static_cast<int>(image[i] * 255 / 40 + 0.5f), mask[i])
          << "pixel " << i << " of seed " << seed;
  }
  // Outside an image smaller than the crop, the field is empty.
  const auto larger = make_mask_training(preprocess, options, 60, 64);
  image.resize(3 * 60 * 64), mask.resize(60 * 64);
  const std::array more = {Slot{reinterpret_cast<std::byte*>(image.data())},
                           Slot{reinterpret_cast<std::byte*>(mask.data())}};
  RandomStream random(1, "crop");
  larger->apply(sample, random, more);
  EXPECT_EQ(mask.back(), kIgnoredPixel);
  EXPECT_EQ(image.back(), 0);
}

// 255 is no class, though many programs write it for the second of two.
TEST_F(MaskFolder, ClassesWithoutAPixelAreFound) {
  write_text_atomic((root_ / "classes.txt").string(), "background\nobject\n");
  for (const char* split : {"training", "validation"})
    for (const char* name : {"a", "b", "c"}) {
      Image mask = gray(0);
      std::fill_n(mask.pixels.begin(), 30, uint8_t{255});
      add(split, name, mask);
    }
  const auto lines = [&](const std::string& path) {
    std::string all;
    for (const std::string& line : check_data({.path = path}).set.lines) all += line + "\n";
    return all;
  };
  EXPECT_NE(
      lines(root_.string()).find("no mask has a pixel of the class 'object'; pixels of 255 have no class"),
      std::string::npos);
  const std::string described = (root_ / "set.toml").string();
  write_text_atomic(described,
                    "train = \"training\"\nvalidation = \"validation\"\nignore_index = 254\n"
                    "class_map = { 0 = 0, 255 = 1 }\n");
  EXPECT_EQ(lines(described), "");
  const auto source = open_source({.path = described}, Split::train);
  EXPECT_EQ(source->read(0).annotation.mask->pixels[0], 1);
}

// With a folder for training alone, the share for validation is none of the training images.
TEST_F(MaskFolder, AShareOfTheTrainingFolderIsHeldOut) {
  for (const char* folder : {"images", "annotations"}) fs::remove_all(root_ / folder / "validation");
  for (const char* name : {"c", "d", "e"}) add("training", name, gray(1));
  const auto train = open(Split::train), held_out = open(Split::validation);
  EXPECT_EQ(train->size(), 4);
  ASSERT_EQ(held_out->size(), 1);
  for (int64_t i = 0; i < train->size(); ++i) EXPECT_NE(train->read(i).name, held_out->read(0).name);
  EXPECT_EQ(open_source({.path = root_.string(), .val_path = root_.string()}, Split::train)->size(), 5);
  for (const char* folder : {"images", "annotations"})
    fs::rename(root_ / folder / "training", root_ / folder / "val");
  EXPECT_EQ(message(), root_.string() + ": has the folder val but none for training");
}

TEST_F(MaskFolder, FoldersAsOtherProgramsNameThem) {
  const auto open_again = [&](const std::string& images, const std::string& masks) {
    for (const std::string split : {"train", "val"})
      for (const auto& [folder, image] : {std::pair(images, Image(kWidth, kHeight)), {masks, gray(2)}}) {
        std::string place = folder;
        place.replace(place.find('%'), 1, split);
        fs::create_directories(root_ / place);
        write_file_atomic((root_ / place / "x.png").string(), encode_png(image));
      }
    for (const Split split : {Split::train, Split::validation}) {
      const auto source = open(split);
      ASSERT_EQ(source->size(), 1) << images;
      EXPECT_EQ(source->read(0).annotation.mask->pixels, gray(2).pixels);
    }
    for (const fs::path& entry :
         std::vector<fs::path>(fs::directory_iterator(root_), fs::directory_iterator()))
      if (fs::is_directory(entry)) fs::remove_all(entry);
  };
  fs::remove_all(root_ / "images"), fs::remove_all(root_ / "annotations");
  open_again("img_dir/%", "ann_dir/%");
  open_again("Images/%", "Masks/%");
  open_again("%", "%annot");
  open_again("%", "%_labels");
  open_again("%_images", "%_masks");
}

// As of competitions: masks of the training images alone.
TEST_F(MaskFolder, ATestFolderWithoutMasksHoldsNoValidationImages) {
  const TemporaryFolder folder;
  folder.write("classes.txt", "sky\nroad\ncar\n");
  const auto write = [&](const std::string& name, const Image& image) {
    fs::create_directories(fs::path(folder.path(name)).parent_path());
    write_file_atomic(folder.path(name), encode_png(image));
  };
  for (int i = 0; i < 10; ++i) {
    write(text("train_images/", i, ".png"), Image(kWidth, kHeight));
    write(text("train_masks/", i, ".png"), gray(2));
    write(text("test_images/", i, ".png"), Image(kWidth, kHeight));
  }
  EXPECT_EQ(open_source({.path = folder.path()}, Split::train)->size(), 9);
  EXPECT_EQ(open_source({.path = folder.path()}, Split::validation)->size(), 1);
}

TEST_F(MaskFolder, AFolderMayHoldPairsOfImageAndMask) {
  const TemporaryFolder folder;
  folder.write("classes.txt", "sky\nroad\ncar\n");
  const std::string three[] = {"a", "b", "c"};
  for (const std::string& name : three) {
    write_file_atomic(folder.path(name + ".png"), encode_png(Image(kWidth, kHeight)));
    write_file_atomic(folder.path(name + "_seg.png"), encode_png(gray(2)));
  }
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->read(2).annotation.mask->pixels, gray(2).pixels);
  // Without masks of the images they are images alone.
  for (const std::string& name : three) fs::remove(folder.path(name + ".png"));
  EXPECT_EQ(source_kind(folder.path()), "ImageFolder");
}

// As of BUSI: a classifier would learn the masks.
TEST_F(MaskFolder, MasksAmongTheImagesOfClassesAreNamed) {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "a/1_mask.png", "a/2.png", "b/1.png", "b/1_mask.png", "b/_mask.png"})
    folder.write(name, "x");
  const auto source = open_source({.path = folder.path(), .val_path = folder.path()}, Split::train);
  EXPECT_EQ(source->warnings(),
            std::vector<std::string>{folder.path() + ": 2 files such as 'a/1_mask.png' look like masks of "
                                                     "other images, and are read as images"});
}

TEST_F(MaskFolder, EndingsOfMasksMatchInAnyCase) {
  fs::rename(root_ / "annotations/training/a.png", root_ / "annotations/training/a.PNG");
  EXPECT_EQ(open(Split::train)->size(), 2);
}

}  // namespace
}  // namespace tessera::data
