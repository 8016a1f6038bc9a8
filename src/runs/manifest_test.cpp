#include "runs/manifest.h"

#include <gtest/gtest.h>

#include "io/files/io_testing.h"

namespace tessera::train {
namespace {

Manifest some_manifest() {
  Manifest manifest{.step = 12, .files = {{"weights.safetensors", 7, "0123456789abcdef"}}, .state = {}};
  manifest.state.set("epoch", 2);
  manifest.state.set("note", "a \"quoted\" name\n}\n");
  return manifest;
}

TEST(Manifest, WhatIsWrittenIsRead) {
  const Manifest manifest = some_manifest();
  EXPECT_EQ(parse_manifest(write_manifest(manifest), "m"), manifest);
}

TEST(Manifest, AnyOtherTextIsRefused) {
  const std::string whole = write_manifest(some_manifest());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string other = whole;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(error_of([&] { parse_manifest(other, "m"); }), "") << "bit " << bit;
  }
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of([&] { parse_manifest(whole.substr(0, size), "m"); }), "") << size;
  EXPECT_NE(error_of([&] { parse_manifest(whole + "\n", "m"); }), "");
}

TEST(Manifest, DamageIsSaid) {
  std::string other = write_manifest(some_manifest());
  other.replace(other.find("\"epoch\": 2"), 10, "\"epoch\": 3");
  EXPECT_EQ(error_of([&] { parse_manifest(other, "m"); }),
            "'m' is damaged: its checksum is not that of its text");
}

TEST(Manifest, FormatOneHasNoChecksum) {
  const std::string before =
      R"({"format":1,"step":3,"files":[{"name":"a","bytes":1,"xxh3":"00"}],"state":{"epoch":1}})";
  const Manifest manifest = parse_manifest(before, "m");
  EXPECT_EQ(manifest.step, 3);
  EXPECT_EQ(manifest.files, (std::vector<ManifestFile>{{"a", 1, "00"}}));
  const auto error = [](const std::string& json) { return error_of([&] { parse_manifest(json, "m"); }); };
  EXPECT_EQ(error(R"({"format":2,"step":3,"files":[],"state":{}})"),
            "'m' is damaged: it does not end with its checksum");
  EXPECT_EQ(error(R"({"format":3,"step":3,"files":[],"state":{}})"),
            "'m': format 3, this program reads 1 and 2");
  EXPECT_EQ(error(R"({"format":1,"step":-1,"files":[],"state":{}})"),
            "'m': 'step' is -1, must be at least 0");
  EXPECT_EQ(error(R"({"format":1,"step":3,"files":[],"state":{},"xxh2":"0"})"), "'m': unknown key 'xxh2'");
  EXPECT_EQ(error(R"({"format":1,"step":3,"files":[{"name":"a/b","bytes":1,"xxh3":"0"}],"state":{}})"),
            "'m': 'a/b' is not a file name");
  EXPECT_EQ(error(R"({"format":1,"step":3,"files":[{"name":"a","bytes":1,"xxh3":"0"},)"
                  R"({"name":"a","bytes":1,"xxh3":"0"}],"state":{}})"),
            "'m': 'a' is listed twice");
  EXPECT_EQ(error("[]"), "'m': no usable 'format'");
}

}  // namespace
}  // namespace tessera::train
