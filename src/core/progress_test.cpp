#include "core/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace tessera {
namespace {

struct FakeClock {
  double seconds = 0;
};

TEST(ProgressLine, APipeGetsPlainLinesAtTheirIntervalAndNoControlCodes) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(
      out, {.label = "train", .total = 100, .plain_seconds = 10, .now = [&] { return clock.seconds; }});
  for (int done = 1; done <= 25; ++done) {
    clock.seconds = done;
    line.update(done, {{"loss", "1.50"}});
  }
  clock.seconds = 26;
  line.finish();
  EXPECT_EQ(out.str(),
            "train 10/100  loss 1.50  time 00:10  left 01:30\n"
            "train 20/100  loss 1.50  time 00:20  left 01:20\n"
            "train 25/100  loss 1.50  time 00:26  left 01:18\n");
}

TEST(ProgressLine, ATerminalGetsOneLineThatFitsAndIsRedrawnTenTimesASecond) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(out,
                    {.label = "train", .total = 1000, .columns = 60, .now = [&] { return clock.seconds; }});
  for (int done = 1; done <= 500; ++done) {
    clock.seconds = done * 0.01;
    line.update(done, {{"loss", "1.50"}, {"a_field_that_is_far_too_long_for_this_terminal_of_ours", "1"}});
  }
  const std::string drawn = out.str();
  const auto redraws = std::count(drawn.begin(), drawn.end(), '\r');
  EXPECT_GE(redraws, 45);
  EXPECT_LE(redraws, 52);
  EXPECT_EQ(drawn.find("far_too_long"), std::string::npos);
  const std::string last = drawn.substr(drawn.rfind('\r') + 1);
  const auto columns = std::count_if(last.begin(), last.end(), [](char c) { return (c & 0xC0) != 0x80; });
  EXPECT_LE(columns, 60 + 3);  // the three bytes of the erase code take no space
  EXPECT_NE(last.find("49%"), std::string::npos) << last;
}

TEST(ProgressLine, TimeLeftCountsOnlyWhatThisProcessDid) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(out, {.label = "train", .total = 100, .start = 90, .plain_seconds = 1, .now = [&] {
                            return clock.seconds;
                          }});
  clock.seconds = 10;
  line.update(95, {});
  EXPECT_EQ(out.str(), "train 95/100  time 00:10  left 00:10\n");
}

TEST(ProgressLine, APrintedLineStandsAboveTheBar) {
  std::ostringstream out;
  ProgressLine line(out, {.label = "train", .total = 10, .columns = 80, .now = [] { return 1.0; }});
  line.update(5, {});
  line.print("saved step-000005");
  EXPECT_NE(out.str().find("\r\x1b[2Ksaved step-000005\n\rtrain 50%"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace tessera
