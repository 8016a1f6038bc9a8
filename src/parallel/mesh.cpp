#include "parallel/mesh.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kLargestDegree = 1 << 20;
constexpr int64_t kAuto = 0;

std::array<const Value*, kAxes> values_of(const ParallelConfig& config) {
  return {&config.pipeline, &config.replicate, &config.shard, &config.context, &config.tensor};
}

std::string key_of(size_t axis) { return "parallel." + name_of(static_cast<AxisName>(axis)); }

// Returns the degree, kAuto for "auto".
int64_t degree_in(const Value& value, const std::string& key) {
  if (value.is_string() && value.as_string() == "auto") return kAuto;
  if (!value.is_int())
    fail_usage(key, " is ",
               value.is_string() ? "'" + printable(value.as_string(), 40) + "'" : value.type_name(),
               ", must be a number of processes or \"auto\"");
  if (value.as_int() < 1 || value.as_int() > kLargestDegree)
    fail_usage(key, " = ", value.as_int(), ", must be 1 to ", kLargestDegree, " or \"auto\"");
  return value.as_int();
}

// Without a degree of its own, the axis that ZeRO divides takes all processes that are left.
ParallelConfig with_shard(ParallelConfig config) {
  const auto is_text = [](const Value& value, const char* text) {
    return value.is_string() && value.as_string() == text;
  };
  const bool chosen = !config.shard.is_int() || config.shard.as_int() != 1;
  if (config.zero == 0 || chosen) return config;
  if (is_text(config.replicate, "auto")) config.replicate = 1;
  config.shard = "auto";
  return config;
}

// Returns the degrees, kAuto for at most one.
std::array<int64_t, kAxes> degrees_in(const ParallelConfig& config) {
  const ParallelConfig wanted = with_shard(config);
  std::array<int64_t, kAxes> degrees = {};
  std::optional<size_t> open;
  int64_t product = 1;
  const auto values = values_of(wanted);
  for (size_t i = 0; i < kAxes; ++i) {
    degrees[i] = degree_in(*values[i], key_of(i));
    if (degrees[i] == kAuto && open)
      fail_usage(key_of(*open), " and ", key_of(i), " are both \"auto\": one of them may be");
    if (degrees[i] == kAuto) open = i;
    product *= std::max<int64_t>(1, degrees[i]);
    if (product > kLargestDegree) fail_usage("[parallel] needs more than ", kLargestDegree, " processes");
  }
  return degrees;
}

// "replicate 2 x shard 3"; "1" if all degrees are 1.
std::string product_text(const std::array<int64_t, kAxes>& degrees) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kAxes; ++i)
    if (degrees[i] > 1) parts.push_back(text(name_of(static_cast<AxisName>(i)), " ", degrees[i]));
  return parts.empty() ? "1" : join(parts, " x ");
}

}  // namespace

Mesh::Mesh(int64_t processes) { degrees_[static_cast<size_t>(AxisName::replicate)] = processes; }

Mesh::Mesh(const ParallelConfig& config, int64_t processes) {
  degrees_ = degrees_in(config);
  const auto open = std::find(degrees_.begin(), degrees_.end(), kAuto);
  const bool is_open = open != degrees_.end();
  if (is_open) *open = 1;
  const int64_t product = Mesh::processes();
  if (is_open && processes % product == 0) {
    *open = processes / product;
    return;
  }
  if (!is_open && product == processes) return;
  const int64_t nearest =
      is_open ? std::max<int64_t>(1, (processes + product / 2) / product) * product : product;
  fail_usage("[parallel] divides processes as ", product_text(degrees_), is_open ? " x auto" : "",
             ", and there ", processes == 1 ? "is 1" : text("are ", processes), ": start ", nearest,
             nearest == 1 ? " process" : " processes", ", or change a degree");
}

int64_t Mesh::processes() const {
  int64_t product = 1;
  for (const int64_t degree : degrees_) product *= degree;
  return product;
}

std::array<int64_t, kAxes> Mesh::place_of(int64_t rank) const {
  std::array<int64_t, kAxes> place = {};
  for (size_t i = kAxes; i-- > 0;) {
    place[i] = rank % degrees_[i];
    rank /= degrees_[i];
  }
  return place;
}

std::vector<int> Mesh::group_of(int64_t rank, const std::vector<AxisName>& axes) const {
  const auto mine = place_of(rank);
  std::vector<int> members;
  for (int64_t other = 0; other < processes(); ++other) {
    const auto place = place_of(other);
    bool inside = true;
    for (size_t i = 0; i < kAxes; ++i) {
      const bool free = std::find(axes.begin(), axes.end(), static_cast<AxisName>(i)) != axes.end();
      inside = inside && (free || place[i] == mine[i]);
    }
    if (inside) members.push_back(static_cast<int>(other));
  }
  return members;
}

namespace {

// Each process of a pipeline has the whole weights of its blocks.
void refuse_next_to_pipeline(const std::array<int64_t, kAxes>& degrees, int64_t zero) {
  if (degrees[static_cast<size_t>(AxisName::pipeline)] == 1) return;
  if (zero > 0)
    fail_usage("parallel.zero = ", zero,
               " divides what parallel.pipeline has divided: leave one of them out");
  if (degrees[static_cast<size_t>(AxisName::tensor)] != 1)
    fail_usage("parallel.tensor and parallel.pipeline divide the same layers: leave one of them at 1");
}

void refuse_untrained(const std::array<int64_t, kAxes>& degrees, int64_t zero) {
  refuse_next_to_pipeline(degrees, zero);
  for (size_t i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<AxisName>(i);
    if (degrees[i] == 1 || (axis != AxisName::context && (axis != AxisName::shard || zero > 0))) continue;
    const std::string setting =
        text(key_of(i), " = ", degrees[i] == kAuto ? "\"auto\"" : std::to_string(degrees[i]));
    if (axis == AxisName::shard) fail_usage(setting, " divides nothing: set parallel.zero to 1, 2 or 3");
    fail_usage(setting, ": training does not divide the tokens of a sample; leave it at 1");
  }
}

}  // namespace

void require_trainable(const ParallelConfig& config, const Mesh& mesh) {
  std::array<int64_t, kAxes> degrees = {};
  for (size_t i = 0; i < kAxes; ++i) degrees[i] = mesh.degree(static_cast<AxisName>(i));
  refuse_untrained(degrees, config.zero);
}

void require_trainable(const ParallelConfig& config) { refuse_untrained(degrees_in(config), config.zero); }

void check_degrees(const ParallelConfig& config) { degrees_in(config); }

}  // namespace tessera::parallel
