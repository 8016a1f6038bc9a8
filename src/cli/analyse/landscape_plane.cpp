#include "cli/analyse/landscape_plane.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "report/matrix_chart.h"

namespace tessera::cli {
namespace {

// In cells from the middle of the first one; points are evenly spaced.
double in_cells(double place, const std::vector<double>& places) {
  return (place - places.front()) / (places.back() - places.front()) * static_cast<double>(places.size() - 1);
}

report::Drawing plane_drawing(const LossPlane& plane) {
  report::Matrix matrix;
  for (const double place : plane.first) matrix.rows.push_back(fixed(place, 2));
  for (const double place : plane.second) matrix.columns.push_back(fixed(place, 2));
  for (const double loss : plane.losses) matrix.values.push_back(std::log10(std::max(loss, 1e-12)));
  report::MatrixOptions chart{.title = "Loss over a plane",
                              .note = "log10 of the loss",
                              .row_label = "first direction",
                              .column_label = "second"};
  for (const PlaneMark& mark : plane.marks)
    chart.marks.push_back({in_cells(mark.first, plane.first), in_cells(mark.second, plane.second),
                           mark.letter, text(mark.weights, ": ", fixed(mark.loss, 4))});
  return same_drawing(report::matrix_chart(matrix, chart));
}

AnalysisSection checkpoints_section(const std::vector<PlaneMark>& marks) {
  AnalysisSection section{.heading = "Checkpoints", .note = "Their places on the plane."};
  section.table = {.name = "checkpoints",
                   .columns = {{"mark"}, {"weights"}, {"first", true}, {"second", true}, {"loss", true}}};
  for (const PlaneMark& mark : marks)
    section.table.rows.push_back(
        {mark.letter, mark.weights, fixed(mark.first, 4), fixed(mark.second, 4), fixed(mark.loss, 6)});
  return section;
}

}  // namespace

std::string checksum_of_tensors(const std::vector<torch::Tensor>& tensors) {
  std::string sums;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
    sums += checksum_of({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  }
  return checksum_of(as_bytes(sums));
}

nlohmann::ordered_json losses_key(const AnalysedModel& model, const AnalysedImages& images,
                                  const std::string& precision) {
  std::vector<torch::Tensor> weights;
  for (const tasks::Part& part : model.opened().task->parts())
    for (const auto& list : {part.module->parameters(), part.module->buffers()})
      weights.insert(weights.end(), list.begin(), list.end());
  return {
      {"weights", model.file()},
      {"precision", precision},
      {"weights_checksum", checksum_of_tensors(weights)},
      {"data", images.source},
      {"images", images.count()},
      {"size", text(images.images.size(2), "x", images.images.size(3))},
      {"images_checksum", checksum_of_tensors({images.images, torch::tensor(images.labels, torch::kInt64)})}};
}

PlaneState::PlaneState(std::string path, nlohmann::ordered_json request, size_t most)
    : path_(std::move(path)), request_(std::move(request)) {
  if (path_.empty() || !file_exists(path_)) return;
  const auto stored = parse_json<nlohmann::ordered_json>(read_text(path_), path_);
  for (const auto& [key, value] : request_.items())
    if (!stored.contains(key) || stored[key] != value)
      fail_usage("--state ", path_, " is of another plane: its ", key, " is ",
                 stored.contains(key) ? stored[key].dump() : "missing", ", here it is ", value.dump(),
                 "; name another file, or remove this one");
  if (!stored.contains("losses") || !stored["losses"].is_array() || stored["losses"].size() > most)
    fail(path_, ": holds no losses of this plane");
  for (const auto& loss : stored["losses"])
    losses_.push_back(loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN());
}

void PlaneState::save(const std::vector<double>& so_far) const {
  if (path_.empty()) return;
  nlohmann::ordered_json state = request_;
  state["losses"] = so_far;
  write_text_atomic(path_, state.dump() + "\n");
}

std::vector<AnalysisSection> plane_sections(const LossPlane& plane) {
  AnalysisSection section{.heading = "Loss over a plane"};
  section.note =
      plane.marks.empty()
          ? "Two filter-normalised directions through the weights, which are in the middle; the shade "
            "is the logarithm of the loss."
          : "The plane through three checkpoints: the first direction leads from A to B, the second is "
            "orthogonal to it on C's side; distances are those of the weights, and the shade is the "
            "logarithm of the loss.";
  section.table = {.name = "losses", .columns = {{"first", true}, {"second", true}, {"loss", true}}};
  const size_t side = plane.second.size();
  for (size_t i = 0; i < plane.losses.size(); ++i)
    section.table.rows.push_back(
        {fixed(plane.first[i / side], 4), fixed(plane.second[i % side], 4), fixed(plane.losses[i], 6)});
  section.drawings = {plane_drawing(plane)};
  std::vector<AnalysisSection> out;
  out.push_back(std::move(section));
  if (!plane.marks.empty()) out.push_back(checkpoints_section(plane.marks));
  return out;
}

}  // namespace tessera::cli
