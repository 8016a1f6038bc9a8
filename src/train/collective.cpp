#include "parallel/collectives.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

class AxisCollective final : public tasks::Collective {
 public:
  explicit AxisCollective(const parallel::Axis& axis) : axis_(axis) {}

  // Processes have different numbers of rows. Rows of other pieces of the step are zero.
  torch::Tensor gather(const torch::Tensor& rows, int64_t first, int64_t whole) override {
    if (axis_.size() == 1) return rows;
    const torch::Tensor places = axis_.gather_counts({first, rows.size(0)});  // [size, 2]
    const auto place = places.accessor<int64_t, 2>();
    std::vector<int64_t> counts;
    int64_t end = 0;
    bool complete = true;
    for (int64_t rank = 0; rank < places.size(0); ++rank) {
      complete = complete && place[rank][0] == end;
      end = place[rank][0] + place[rank][1];
      counts.push_back(place[rank][1]);
    }
    const torch::Tensor all = parallel::gather_over(rows, counts, axis_);
    if (complete && end == whole) return all;
    std::vector<torch::Tensor> indices;
    for (int64_t rank = 0; rank < places.size(0); ++rank)
      indices.push_back(torch::arange(place[rank][0], place[rank][0] + place[rank][1]));
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = whole;
    return torch::zeros(shape, rows.options()).index_copy(0, torch::cat(indices).to(rows.device()), all);
  }
  torch::Tensor sum(const torch::Tensor& values) override { return parallel::sum_over(values, axis_); }
  int64_t rank() const override { return axis_.rank(); }
  int64_t size() const override { return axis_.size(); }
  std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t count) override {
    const torch::Tensor sent = rows.detach().contiguous();
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = count;
    const torch::Tensor into = torch::empty(shape, sent.options());
    return [wait = axis_.start_shift(sent, into), into] {
      wait();
      return into;
    };
  }

 private:
  const parallel::Axis& axis_;
};

}  // namespace

std::unique_ptr<tasks::Collective> make_collective(const parallel::Axis& axis) {
  return std::make_unique<AxisCollective>(axis);
}

}  // namespace tessera::train
