// Chips, machines and the links between them.
#pragma once

#include <string>
#include <vector>

namespace tessera::plan {

enum class Generation { ampere, hopper, cpu };

// Rates are those of data sheets; units are in the names.
struct Chip {
  std::string name{};
  Generation generation = Generation::hopper;
  double flops = 0;  // dense products in bfloat16, per second
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  double link_bytes_per_s = 0;     // to other chips of its machine, one direction
  double network_bytes_per_s = 0;  // its share of the machine's network cards, one direction
  double power = 1;                // power limit divided by that of the data sheet
  // The sustained clock divided by the data sheet's: power grows with the cube of the clock.
  double clock() const;
};

struct Cluster {
  Chip chip{};
  int64_t chips = 1, per_machine = 8;
};

// The table of chips: a100-40, a100-80, h100, h100-500w, h200, cpu.
const std::vector<Chip>& chips();
// Throws a usage error with the nearest name.
const Chip& find_chip(const std::string& name, const std::vector<Chip>& known = chips());

// Reads chips from a TOML file: [NAME] with `generation`, and `flops`, `memory`, `memory_rate`, `link`,
// `network` as strings with a unit ("989 TFLOP/s", "80 GB", "3350 GB/s"). Throws a usage error for a quantity
// without a unit.
std::vector<Chip> read_chips(const std::string& path);

// Reads "h100x64", or "h100x64/4" for machines of four chips. Throws a usage error for anything else.
Cluster parse_cluster(const std::string& name, const std::vector<Chip>& known = chips());

// Reads the file that `tessera doctor --cluster` wrote: `chips`, `per_machine` and one chip as in read_chips().
// Throws a usage error for anything else.
Cluster read_cluster(const std::string& path);
// Returns text that read_cluster() reads.
std::string cluster_toml(const Cluster& cluster);

// Returns a value in base units of "989 TFLOP/s", "80 GB" or "3350 GB/s"; `unit`: "FLOP/s", "B" or "B/s".
double parse_quantity(const std::string& quantity, const std::string& unit, const std::string& where);

// Returns the bytes per second at which a collective of `members` chips moves data, if consecutive members
// are `stride` chips apart. The chips of a machine share its network cards, so a group with several members
// in a machine has the cards of all of them.
struct Bandwidth {
  double bytes_per_s = 0;
  bool over_network = false;
};
Bandwidth bandwidth(const Cluster& cluster, int64_t members, int64_t stride);

}  // namespace tessera::plan
