#include "io/files/tar.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "io/files/io_testing.h"

namespace tessera {
namespace {

class TarTest : public TemporaryFolder {};

// Headers by hand, to test reading forms that TarWriter never writes.
struct RawHeader {
  std::string name;
  uint64_t size = 0;
  char type = '0';
  std::string link = "", prefix = "";
  std::string magic = std::string("ustar\00000", 8);
  std::string size_field = "";  // instead of octal digits
};

std::string block(const RawHeader& h) {
  std::string out(512, '\0');
  const auto put = [&](size_t at, const std::string& value) { out.replace(at, value.size(), value); };
  const auto octal = [](uint64_t value, int digits) {
    std::array<char, 32> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%0*lo", digits, static_cast<unsigned long>(value));
    return std::string(buffer.data());
  };
  put(0, h.name);
  put(124, h.size_field.empty() ? octal(h.size, 11) : h.size_field);
  put(148, "        ");
  out[156] = h.type;
  put(157, h.link);
  put(257, h.magic);
  put(345, h.prefix);
  uint64_t sum = 0;
  for (const char c : out) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6));
  out[154] = '\0';
  return out;
}

std::string padded(std::string content) {
  content.resize((content.size() + 511) / 512 * 512, '\0');
  return content;
}

std::string entry(const RawHeader& h, const std::string& content = "") {
  RawHeader with = h;
  with.size = content.size();
  return block(with) + padded(content);
}

const std::string kEnd(1024, '\0');

std::string pax(const std::string& key, const std::string& value) {
  std::string record = " " + key + "=" + value + "\n";
  size_t length = record.size() + 1;
  while (std::to_string(length).size() + record.size() != length) ++length;
  return std::to_string(length) + record;
}

// Returns "name=content;" for every member.
std::string listing(const std::string& archive) {
  const TarIndex index = index_tar(as_bytes(archive), "a.tar");
  std::string out;
  for (const TarMember& m : index.members) out += text(m.name, "=", archive.substr(m.offset, m.size), ";");
  return out;
}

std::string refusal(const std::string& archive) {
  return error_of([&] { index_tar(as_bytes(archive), "a.tar"); });
}

TEST_F(TarTest, WhatIsWrittenIsReadPlainAndGzipped) {
  const std::string long_name = std::string(150, 'd') + "/" + std::string(200, 'n') + ".jpg";
  const std::string exact_name(100, 'e');
  for (const std::string name : {"a.tar", "a.tar.gz", "a.tgz"}) {
    TarWriter writer(path(name));
    writer.add("000.jpg", std::string(513, 'j'));
    writer.add("000.cls", "7");
    writer.add("empty", "");
    writer.add(long_name, "long");
    writer.add(exact_name, std::string(512, 'b'));
    writer.commit();
    const TarArchive archive(path(name));
    ASSERT_EQ(archive.members().size(), 5u) << name;
    EXPECT_EQ(archive.members()[0].name, "000.jpg");
    EXPECT_EQ(as_text(archive.bytes(0)), std::string(513, 'j'));
    EXPECT_EQ(archive.members()[1].name, "000.cls");
    EXPECT_EQ(as_text(archive.bytes(1)), "7");
    EXPECT_EQ(as_text(archive.bytes(2)), "");
    EXPECT_EQ(archive.members()[3].name, long_name);
    EXPECT_EQ(as_text(archive.bytes(3)), "long");
    EXPECT_EQ(archive.members()[4].name, exact_name);
    EXPECT_EQ(as_text(archive.bytes(4)), std::string(512, 'b'));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"a.tar", "a.tar.gz", "a.tgz"}));
  EXPECT_EQ(as_text(inflate_gzip(read_file(path("a.tar.gz")), "")), read_text(path("a.tar")));
  EXPECT_EQ(read_text(path("a.tar")).size() % 10240, 0u);
}

TEST_F(TarTest, OtherProgramsReadWhatIsWritten) {
  const std::string long_name = "folder/" + std::string(120, 'n');
  TarWriter writer(path("a.tar.gz"));
  writer.add("one", "content of one");
  writer.add(long_name, "content of the other");
  writer.commit();
  const std::string unpack = "cd '" + folder() + "' && tar xzf a.tar.gz 2>warnings";
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  EXPECT_EQ(read_text(path("one")), "content of one");
  EXPECT_EQ(read_text(path(long_name)), "content of the other");
  EXPECT_EQ(read_text(path("warnings")), "");
}

TEST_F(TarTest, WhatOtherProgramsWriteIsRead) {
  const std::string long_name = std::string(90, 'd') + "/" + std::string(130, 'n');
  std::filesystem::create_directories(path("in/" + std::string(90, 'd')));
  write_text_atomic(path("in/b"), "content of b");
  write_text_atomic(path("in/" + long_name), "long");
  std::filesystem::create_hard_link(path("in/b"), path("in/c"));
  for (const std::string format : {"gnu", "pax", "oldgnu"}) {
    const std::string pack =
        "cd '" + folder() + "' && tar --format=" + format + " --sort=name -cf " + format + ".tar -C in .";
    ASSERT_EQ(std::system(pack.c_str()), 0) << format;
    const TarArchive archive(path(format + ".tar"));
    ASSERT_EQ(archive.members().size(), 3u) << format;
    EXPECT_EQ(archive.members()[0].name, "./b");
    EXPECT_EQ(as_text(archive.bytes(0)), "content of b");
    EXPECT_EQ(archive.members()[1].name, "./c");
    EXPECT_EQ(as_text(archive.bytes(1)), "content of b") << "a hard link stands for its file";
    EXPECT_EQ(archive.members()[2].name, "./" + long_name);
    EXPECT_EQ(as_text(archive.bytes(2)), "long");
  }
}

TEST_F(TarTest, ManyThreadsReadOneArchive) {
  {
    TarWriter writer(path("a.tar.gz"));
    for (int i = 0; i < 200; ++i) writer.add(std::to_string(i), std::string(1000 + i, static_cast<char>(i)));
    writer.commit();
  }
  TarArchive first(path("a.tar.gz"));
  const TarArchive archive = std::move(first);
  std::vector<std::thread> threads;
  std::array<int, 4> right{};
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i)
        right[t] += as_text(archive.bytes(i)) == std::string(1000 + i, static_cast<char>(i)) &&
                    archive.members()[i].name == std::to_string(i);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, (std::array<int, 4>{200, 200, 200, 200}));
}

TEST(TarIndex, ReadsEveryWayToNameAMember) {
  EXPECT_EQ(listing(kEnd), "");
  EXPECT_EQ(listing(entry({"a"}, "1") + entry({"b"}, "") + kEnd), "a=1;b=;");
  EXPECT_EQ(listing(entry({.name = "a", .prefix = "some/folder"}, "1") + kEnd), "some/folder/a=1;");
  // GNU stores other data in ustar's prefix field.
  EXPECT_EQ(listing(entry({.name = "a", .prefix = "x", .magic = std::string("ustar  \0", 8)}, "1") + kEnd),
            "a=1;");
  EXPECT_EQ(listing(entry({.name = "a", .type = '\0', .magic = ""}, "1") + kEnd), "a=1;")
      << "the oldest form";
  EXPECT_EQ(listing(entry({.name = "d/", .type = '\0'}) + entry({.name = "d/", .type = '5'}) + kEnd), "");
  EXPECT_EQ(listing(entry({.name = "x", .type = 'x'}, pax("path", "p/q") + pax("mtime", "1.5")) +
                    entry({"a"}, "1") + entry({"b"}, "2") + kEnd),
            "p/q=1;b=2;");
  EXPECT_EQ(listing(entry({.name = "x", .type = 'x'}, pax("size", "3")) + block({.name = "a", .size = 0}) +
                    padded("123") + kEnd),
            "a=123;");
  EXPECT_EQ(listing(entry({.name = "g", .type = 'g'}, pax("comment", "hello")) + entry({"a"}, "1") + kEnd),
            "a=1;");
  EXPECT_EQ(
      listing(entry({.name = "L", .type = 'L'}, std::string("long name\0", 10)) + entry({"a"}, "1") + kEnd),
      "long name=1;");
  const std::string base256 = std::string("\x80\0\0\0\0\0\0\0\0\0\0\3", 12);
  EXPECT_EQ(listing(block({.name = "a", .size_field = base256}) + padded("123") + kEnd), "a=123;");
  EXPECT_EQ(listing(entry({.name = "V", .type = 'V'}) + entry({"../a"}, "1") + kEnd), "../a=1;")
      << "nothing is unpacked to names";
}

TEST(TarIndex, HardLinksStandForTheirFile) {
  EXPECT_EQ(listing(entry({"a"}, "1") + entry({.name = "b", .type = '1', .link = "a"}) +
                    entry({.name = "c", .type = '1', .link = "b"}) + kEnd),
            "a=1;b=1;c=1;");
  EXPECT_EQ(listing(entry({.name = "a"}, "1") + entry({.name = "K", .type = 'K'}, std::string("a\0", 2)) +
                    entry({.name = "b", .type = '1', .link = "cut off"}) + kEnd),
            "a=1;b=1;");
  EXPECT_EQ(refusal(entry({.name = "b", .type = '1', .link = "a"}) + entry({"a"}, "1") + kEnd),
            "a.tar: member 'b' is a hard link to 'a', which does not precede it");
}

TEST(TarIndex, RefusesWhatIsNoDataFile) {
  const auto typed = [](char type) {
    return refusal(entry({.name = "m", .type = type, .link = "a"}) + kEnd);
  };
  EXPECT_EQ(typed('2'), "a.tar: member 'm' is a symbolic link, must be a regular file");
  for (const char type : {'3', '4', '6'})
    EXPECT_EQ(typed(type), "a.tar: member 'm' is a device or a pipe, must be a regular file");
  EXPECT_EQ(typed('S'), "a.tar: member 'm' is a sparse file, must be a regular file");
  EXPECT_EQ(typed('M'), "a.tar: member 'm' is a part of a multi-volume archive, must be a regular file");
  EXPECT_EQ(typed('?'), "a.tar: member 'm' has the unknown type 63, must be a regular file");
  EXPECT_EQ(
      refusal(entry({.name = "x", .type = 'x'}, pax("GNU.sparse.major", "1")) + entry({"m"}, "1") + kEnd),
      "a.tar: member 'm' is a sparse file, must be a regular file");
}

TEST(TarIndex, RefusesDamage) {
  EXPECT_EQ(refusal(""), "a.tar: is empty, must be a tar archive");
  EXPECT_EQ(refusal("hello"), "a.tar: truncated at byte 5: no end mark");
  EXPECT_EQ(refusal(std::string(2000, 'h')), "a.tar: no tar header at byte 0: is it a tar archive?");
  const std::string one = entry({"first"}, std::string(600, 'c'));
  EXPECT_EQ(refusal(one + std::string(600, 'x') + kEnd),
            "a.tar: no tar header at byte 1536 (after member 'first')");
  EXPECT_EQ(refusal(one + kEnd + one),
            "a.tar: bytes after the end of the archive at byte 2048 "
            "(are several archives in one file?)");
  EXPECT_EQ(refusal(block({.name = "m", .size_field = "12345678x"}) + kEnd),
            "a.tar: member 'm' has no readable size");
  EXPECT_EQ(refusal(block({.name = "m", .size_field = std::string(12, '\xFF')}) + kEnd),
            "a.tar: member 'm' has no readable size");
  EXPECT_EQ(refusal(block({.name = "m", .size_field = "777777777777"}) + kEnd),
            "a.tar: truncated: member 'm' has 68719476735 bytes, the archive ends after 1024");
  const std::string huge = std::string("\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12);
  EXPECT_EQ(refusal(block({.name = "m", .size_field = huge}) + kEnd),
            "a.tar: truncated: member 'm' has 9223372036854775807 bytes, the archive ends after 1024");
  EXPECT_EQ(refusal(entry({""}, "1") + kEnd), "a.tar: a member without a name at byte 0");
  EXPECT_EQ(refusal(one + entry({"a\nb"}, "1") + kEnd),
            "a.tar: a member name with control characters at byte 1536 (after member 'first')");
}

TEST(TarIndex, RefusesBrokenExtensions) {
  const auto with = [](const std::string& records, char type = 'x') {
    return refusal(entry({.name = "h", .type = type}, records) + entry({"m"}, "1") + kEnd);
  };
  for (const std::string records : {"x", "5", " ", "99 path=a\n", "0 path=a\n", "9 path=a?", "-9 path=a\n",
                                    "3 \n", "99999999999999999999 path=a\n", "7 patha\n"})
    EXPECT_EQ(with(records), "a.tar: pax header 'h' holds a broken record") << records;
  EXPECT_EQ(with(pax("size", "-1")), "a.tar: pax header 'h' holds the size '-1'");
  EXPECT_EQ(with(pax("size", "99999999999999999999")),
            "a.tar: pax header 'h' holds the size '99999999999999999999'");
  EXPECT_EQ(with(pax("size", "5000")),
            "a.tar: truncated: member 'm' has 5000 bytes, the archive ends after 1536");
  EXPECT_EQ(with(pax("path", "")), "a.tar: a member without a name at byte 1024");
  EXPECT_EQ(with(pax("path", std::string(5000, 'p'))),
            "a.tar: a member name of 5000 characters at byte 5632, at most 4096");
  EXPECT_EQ(with(pax("path", "a"), 'g'), "a.tar: global header 'h' sets a name or a size");
  EXPECT_EQ(with(std::string((1 << 20) + 1, ' ')), "a.tar: header 'h' of 1048577 bytes, at most 1048576");
  EXPECT_EQ(refusal(entry({.name = "h", .type = 'x'}, pax("path", "a")) + kEnd),
            "a.tar: ends after the header for a long name");
}

// Truncated at every byte: an error with the archive's name, never a shorter list.
TEST(TarIndex, EveryTruncationIsAnError) {
  const std::string whole = entry({"first"}, "1") + entry({.name = "x", .type = 'x'}, pax("path", "second")) +
                            entry({"s"}, std::string(700, '2')) + std::string(512, '\0');
  EXPECT_EQ(refusal(whole), "");
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string said = refusal(whole.substr(0, size));
    EXPECT_TRUE(said.starts_with("a.tar: truncated")) << size << ": " << said;
  }
  EXPECT_EQ(refusal(whole.substr(0, 2900)),
            "a.tar: truncated: member 'second' has 700 bytes, the archive ends after 340");
}

TEST_F(TarTest, PackedWithSomethingElseIsNamed) {
  const auto said = [&](const std::string& start) {
    write_text_atomic(path("a"), start + std::string(100, 'x'));
    return error_of([&] { TarArchive{path("a")}; });
  };
  EXPECT_EQ(said("\x28\xB5\x2F\xFD"),
            path("a") + ": is packed with zstd, must be a tar archive, plain or gzipped");
  EXPECT_EQ(said("BZh9"), path("a") + ": is packed with bzip2, must be a tar archive, plain or gzipped");
  EXPECT_EQ(said("\x1F\x8B\x08"), path("a") + ": gzip data damaged at byte 4: unknown header flags set");
}

TEST_F(TarTest, ABombIsRefusedAndLeavesNothing) {
  {
    TarWriter writer(path("bomb.tar.gz"));
    writer.add("zeros", std::string(3 << 20, '\0'));
    writer.commit();
  }
  EXPECT_EQ(error_of([&] {
              TarArchive(path("bomb.tar.gz"), {1000000, 250});
            }),
            path("bomb.tar.gz") + ": inflates to more than 1.00 MB, the limit here");
}

TEST_F(TarTest, TheWriterRefusesNamesThatTheReaderWould) {
  TarWriter writer(path("a.tar"));
  for (const std::string& name : {std::string(), std::string("a\nb"), std::string(5000, 'n')})
    EXPECT_TRUE(error_of([&] { writer.add(name, "x"); }).starts_with("cannot add '")) << name;
  EXPECT_EQ(writer.size(), 0u);
}

}  // namespace
}  // namespace tessera
