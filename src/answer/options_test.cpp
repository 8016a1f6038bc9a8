#include "answer/options.h"

#include <gtest/gtest.h>

#include "answer/caption.h"
#include "answer/zero_shot.h"
#include "core/core_testing.h"

namespace tessera::answer {
namespace {

Value beams(int64_t count) { return Value(Value::Table{{"beams", count}}); }

TEST(RequestOptions, BeamsHaveASmallerRangeThanOnACommandLine) {
  EXPECT_EQ(read_options<CaptionOptions>(beams(16)).request.search.beams, 16);
  EXPECT_NE(usage_error_of([] { read_options<CaptionOptions>(beams(17)); }).find("from 1 to 16"),
            std::string::npos);
  for (const OptionDescription& option : describe_options<CaptionOptions>())
    if (option.key == "beams") {
      EXPECT_EQ(option.high, 16);
    }
}

// A name is in each template, and in each place of it: few bytes of a request make many.
TEST(RequestOptions, TextsOfClassesAreBounded) {
  const std::vector<std::string> own = {"a photo of a {}"};
  ZeroShotOptions options;
  options.names.assign(2000, "a cat");
  options.templates = {"imagenet"};
  EXPECT_NO_THROW(check_texts(options, own));
  options.names.assign(3000, "a cat");
  EXPECT_THROW(check_texts(options, own), TooLarge);
  options.names.resize(2000);
  options.templates = {};
  EXPECT_NO_THROW(check_texts(options, own));
  EXPECT_THROW(check_texts(options, std::vector<std::string>(101, own[0])), TooLarge);

  options.names = {std::string(1 << 20, 'x')};
  options.templates.assign(60, "a {}");
  EXPECT_NO_THROW(check_texts(options, own));
  options.templates.assign(70, "a {}");
  EXPECT_THROW(check_texts(options, own), TooLarge);
  std::string many;
  for (int i = 0; i < 70; ++i) many += "{} ";
  options.templates = {many};
  EXPECT_THROW(check_texts(options, own), TooLarge);
}

TEST(RequestOptions, ErrorsNameOptionsAndInputsOfARequest) {
  Description description;
  description.options = describe_options<CaptionOptions>();
  description.inputs.push_back({.name = "image"});
  const auto worded = [&](const std::string& message) { return in_request_words(message, description); };
  EXPECT_EQ(worded("--beam-groups = 3, must divide --beams = 4"),
            "option 'beam_groups' = 3, must divide option 'beams' = 4");
  EXPECT_EQ(worded("--image is for others"), "input 'image' is for others");
  EXPECT_EQ(worded("--device, a -- b, --"), "--device, a -- b, --");
  EXPECT_EQ(worded(""), "");
}

}  // namespace
}  // namespace tessera::answer
