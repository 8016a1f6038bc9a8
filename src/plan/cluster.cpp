#include "plan/cluster.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/value.h"
#include "io/files/file.h"

namespace tessera::plan {
namespace {

// A core of this machine: eight multiply-adds per cycle in each of two units, at 2.5 GHz.
constexpr double kCoreFlops = 8e10, kCoreBytes = 8e9;
// The rate of a process to another one of its machine, over the loopback interface.
constexpr double kLoopback = 5e8;

Chip this_cpu() {
  const double cores = available_cores();
  const auto memory = static_cast<double>(main_memory_bytes());
  return {"cpu", Generation::cpu, kCoreFlops * cores, memory, kCoreBytes * cores, kLoopback, 1e9, 1};
}

const std::vector<std::string>& generation_names() {
  static const std::vector<std::string> names = {"ampere", "hopper", "cpu"};
  return names;
}

std::vector<std::string> names_of(const std::vector<Chip>& known) {
  std::vector<std::string> names;
  for (const Chip& chip : known) names.push_back(chip.name);
  return names;
}

double quantity_of(const Value& table, const std::string& chip, const char* key, const char* unit) {
  const Value* value = table.find(key);
  const std::string where = chip + "." + key;
  if (!value) fail_usage(where, " is missing");
  if (!value->is_string()) fail_usage(where, " has no unit, as in \"80 G", unit, "\"");
  return parse_quantity(value->as_string(), unit, where);
}

Chip chip_of(const std::string& name, const Value& table) {
  static const std::vector<std::string> keys = {"generation", "flops",   "memory", "memory_rate",
                                                "link",       "network", "power"};
  if (!table.is_table()) fail_usage(name, " is ", table.type_name(), ", must be a table of one chip");
  for (const auto& [key, value] : table.as_table())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail_usage("unknown key '", name, ".", key, "'", did_you_mean(key, keys));
  Chip chip{.name = name};
  if (const Value* generation = table.find("generation")) {
    const std::vector<std::string>& names = generation_names();
    const auto found = generation->is_string()
                           ? std::find(names.begin(), names.end(), generation->as_string())
                           : names.end();
    if (found == names.end()) fail_usage(name, ".generation must be ampere, hopper or cpu");
    chip.generation = static_cast<Generation>(found - names.begin());
  }
  chip.flops = quantity_of(table, name, "flops", "FLOP/s");
  chip.memory_bytes = quantity_of(table, name, "memory", "B");
  chip.memory_bytes_per_s = quantity_of(table, name, "memory_rate", "B/s");
  chip.link_bytes_per_s = quantity_of(table, name, "link", "B/s");
  chip.network_bytes_per_s = quantity_of(table, name, "network", "B/s");
  if (const Value* power = table.find("power")) {
    if (!power->is_number() || power->as_double() <= 0 || power->as_double() > 1)
      fail_usage(name, ".power must be above 0 and at most 1: the power limit over the data sheet's");
    chip.power = power->as_double();
  }
  return chip;
}

}  // namespace

double Chip::clock() const { return std::cbrt(power); }

const std::vector<Chip>& chips() {
  static const std::vector<Chip> table = {
      {"a100-40", Generation::ampere, 312e12, 40e9, 1555e9, 300e9, 25e9, 1},
      {"a100-80", Generation::ampere, 312e12, 80e9, 2039e9, 300e9, 25e9, 1},
      {"h100", Generation::hopper, 989e12, 80e9, 3350e9, 450e9, 50e9, 1},
      {"h100-500w", Generation::hopper, 989e12, 96e9, 2400e9, 450e9, 50e9, 500.0 / 700},
      {"h200", Generation::hopper, 989e12, 141e9, 4800e9, 450e9, 50e9, 1},
      this_cpu(),
  };
  return table;
}

const Chip& find_chip(const std::string& name, const std::vector<Chip>& known) {
  for (const Chip& chip : known)
    if (chip.name == name) return chip;
  const std::vector<std::string> names = names_of(known);
  fail_usage("no chip '", printable(name, 40), "'; there are ", join(names, ", "), did_you_mean(name, names));
}

std::vector<Chip> read_chips(const std::string& path) {
  const Value file = parse_toml(read_text(path, uint64_t{1} << 20), path);
  std::vector<Chip> known = chips();
  try {
    for (const auto& [name, table] : file.as_table()) {
      Chip chip = chip_of(name, table);
      std::erase_if(known, [&](const Chip& other) { return other.name == chip.name; });
      known.push_back(std::move(chip));
    }
  } catch (const Error& error) {
    throw Error(error.kind, path + ": " + error.what());
  }
  return known;
}

Cluster parse_cluster(const std::string& name, const std::vector<Chip>& known) {
  const size_t slash = name.rfind('/'), cross = name.substr(0, slash).rfind('x');
  Cluster cluster;
  std::string chip = name.substr(0, slash), count = "1";
  if (cross != std::string::npos && cross + 1 < chip.size() && parse_int(chip.substr(cross + 1)))
    count = chip.substr(cross + 1), chip = chip.substr(0, cross);
  const auto chips_asked = parse_int(count);
  const auto per_machine =
      slash == std::string::npos ? std::optional<int64_t>(8) : parse_int(name.substr(slash + 1));
  if (!chips_asked || *chips_asked < 1 || *chips_asked > (1 << 20) || !per_machine || *per_machine < 1)
    fail_usage("cluster '", printable(name, 60), "': write CHIPxCOUNT, as h100x64 (1 to 1048576 chips)");
  cluster.chip = find_chip(chip, known);
  cluster.chips = *chips_asked;
  cluster.per_machine = std::min(*per_machine, cluster.chips);
  return cluster;
}

namespace {

int64_t count_of(Value& file, const std::string& key) {
  const Value* value = file.find(key);
  if (!value || !value->is_int() || value->as_int() < 1 || value->as_int() > (1 << 20))
    fail_usage(key, " must be a number from 1 to 1048576");
  const int64_t count = value->as_int();
  std::erase_if(file.as_table(), [&](const auto& entry) { return entry.first == key; });
  return count;
}

}  // namespace

Cluster read_cluster(const std::string& path) {
  Value file = parse_toml(read_text(path, uint64_t{1} << 20), path);
  try {
    Cluster cluster;
    cluster.chips = count_of(file, "chips"), cluster.per_machine = count_of(file, "per_machine");
    if (file.as_table().size() != 1) fail_usage("there are ", file.as_table().size(), " chips, must be one");
    const auto& [name, table] = file.as_table()[0];
    cluster.chip = chip_of(name, table);
    cluster.per_machine = std::min(cluster.per_machine, cluster.chips);
    return cluster;
  } catch (const Error& error) {
    throw Error(error.kind, path + ": " + error.what());
  }
}

std::string cluster_toml(const Cluster& cluster) {
  const Chip& chip = cluster.chip;
  const auto quantity = [](double value, const char* unit) {
    return text(shortest(value / 1e9), " G", unit);
  };
  Value file;
  file.set("chips", cluster.chips), file.set("per_machine", cluster.per_machine);
  Value table;
  table.set("generation", generation_names().at(static_cast<size_t>(chip.generation)));
  table.set("flops", quantity(chip.flops, "FLOP/s"));
  table.set("memory", quantity(chip.memory_bytes, "B"));
  table.set("memory_rate", quantity(chip.memory_bytes_per_s, "B/s"));
  table.set("link", quantity(chip.link_bytes_per_s, "B/s"));
  table.set("network", quantity(chip.network_bytes_per_s, "B/s"));
  table.set("power", chip.power);
  file.as_table().emplace_back(chip.name, table);
  return write_toml(file);
}

double parse_quantity(const std::string& quantity, const std::string& unit, const std::string& where) {
  const std::string_view words = trim(quantity);
  const size_t digits = words.find_first_not_of("0123456789.eE+-");
  const auto number = parse_double(words.substr(0, digits));
  if (!number || !(*number > 0)) fail_usage(where, " = \"", printable(quantity, 40), "\", must be above 0");
  std::string_view rest = digits == std::string_view::npos ? "" : trim(words.substr(digits));
  double factor = 1;
  static const std::string prefixes = "kMGTP";
  if (rest.size() > unit.size() && prefixes.find(rest[0]) != std::string::npos) {
    factor = std::pow(1000.0, static_cast<double>(prefixes.find(rest[0]) + 1));
    rest.remove_prefix(1);
  }
  if (rest != unit)
    fail_usage(where, " = \"", printable(quantity, 40), "\" has no unit ", unit, " (with k, M, G, T or P)");
  return *number * factor;
}

Bandwidth bandwidth(const Cluster& cluster, int64_t members, int64_t stride) {
  const int64_t inside = std::max<int64_t>(1, cluster.per_machine / stride);
  if (members <= inside) return {cluster.chip.link_bytes_per_s, false};
  return {
      std::min(cluster.chip.link_bytes_per_s, cluster.chip.network_bytes_per_s * static_cast<double>(inside)),
      true};
}

}  // namespace tessera::plan
