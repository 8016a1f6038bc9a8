#include "core/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera {

void keep_freed_memory() {
#ifdef __GLIBC__
  // 1 GiB: smaller blocks come from the heap, which is never trimmed and grows 64 MiB at a time.
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there are threads
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

void trim_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void return_freed_memory(int large) {
#ifdef __GLIBC__
  // NOLINTBEGIN(concurrency-mt-unsafe): these settings are single words that later allocations read
  mallopt(M_MMAP_THRESHOLD, large);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  malloc_trim(0);
  // NOLINTEND(concurrency-mt-unsafe)
#else
  (void)large;
#endif
}

namespace {

// Returns the first word of a file and its second one; empty ones if there are none.
std::pair<std::string, std::string> two_words(const std::string& path) {
  std::ifstream file(path);
  std::pair<std::string, std::string> words;
  file >> words.first >> words.second;
  return words;
}

template <class Number>
void lower(std::optional<Number>& limit, Number value) {
  limit = limit ? std::min(*limit, value) : value;
}

// "max" (no limit), -1 (the same in the first version) and damaged files give none.
std::optional<double> positive(const std::string& word) {
  const std::optional<double> number = parse_double(word);
  return number && *number > 0 ? number : std::nullopt;
}

// Reads the limits of one group's folder. Folders of the first version have one kind of limit each.
void read_group(const std::string& folder, ContainerLimits& limits) {
  const auto [quota, period] = two_words(folder + "/cpu.max");
  if (const auto time = positive(quota), of = positive(period); time && of) lower(limits.cores, *time / *of);
  const auto time = positive(two_words(folder + "/cpu.cfs_quota_us").first);
  const auto of = positive(two_words(folder + "/cpu.cfs_period_us").first);
  if (time && of) lower(limits.cores, *time / *of);
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"})
    if (const auto bytes = positive(two_words(folder + name).first); bytes && *bytes < 0x1p62)
      lower(limits.memory, static_cast<uint64_t>(*bytes));
}

}  // namespace

ContainerLimits container_limits(const std::string& root) {
  ContainerLimits limits;
  std::ifstream groups(root + "/proc/self/cgroup");
  // "0::/job" in the second version, "4:cpu,cpuacct:/job" in the first. A container may see its group as the
  // top folder but be named by its path on the machine, so missing folders are passed.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string top = text(root, "/sys/fs/cgroup", controllers.empty() ? "" : "/", controllers);
    for (std::string group = line.substr(second + 1); group.starts_with('/'); group.resize(group.rfind('/')))
      read_group(top + group, limits);
    read_group(top, limits);
  }
  return limits;
}

uint64_t main_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  const uint64_t machine =
      pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
  static const std::optional<uint64_t> limit = container_limits().memory;
  return limit && (machine == 0 || *limit < machine) ? *limit : machine;
}

uint64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  if (!(pages >> all >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

namespace {

// Parses "12.5 GiB", "1024 bytes": LibTorch's text after "to allocate".
uint64_t parse_size(std::string_view size) {
  double number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  if (error != std::errc() || !(number >= 0 && number < 1e18)) return 0;
  const std::string_view unit = trim(size.substr(static_cast<size_t>(end - size.data())));
  constexpr std::array kUnits = {std::pair("bytes", 0), std::pair("KiB", 10), std::pair("MiB", 20),
                                 std::pair("GiB", 30)};
  for (const auto& [name, shift] : kUnits)
    if (unit.starts_with(name))
      return static_cast<uint64_t>(number * static_cast<double>(uint64_t{1} << shift));
  return 0;
}

}  // namespace

std::optional<FailedAllocation> failed_allocation(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return FailedAllocation();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system && system->code() == std::errc::not_enough_memory)
    return FailedAllocation();
  const std::string_view message = error.what();
  const auto size_after = [&](std::string_view words) -> uint64_t {
    const size_t at = message.find(words);
    return at == std::string_view::npos ? 0 : parse_size(message.substr(at + words.size(), 40));
  };
  for (const std::string_view words :
       {"can't allocate memory: you tried to allocate ", "out of memory. Tried to allocate "})
    if (message.find(words) != std::string_view::npos)
      return FailedAllocation{size_after(words), size_after("GiB of which ")};
  return std::nullopt;
}

std::string out_of_memory_line(const FailedAllocation& failed, const std::string& advice) {
  if (failed.wanted == 0) return "out of memory: " + advice;
  const std::string free = failed.free > 0 ? text(", ", human_bytes(failed.free), " free on the GPU") : "";
  return text("out of memory: ", human_bytes(failed.wanted), " more needed", free, "; ", advice);
}

}  // namespace tessera
