// components/aug_*: decoding, resizing, test and training transforms, mixup.
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "data/base/geometry.h"
#include "data/transforms/mixup.h"
#include "data/transforms/resize.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "tests/parity/case.h"
#include "tests/parity/image_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;
using data::Interpolation;

torch::Tensor tensor_of(const Image& image, bool with_channels = true) {
  const torch::Tensor bytes =
      torch::tensor(at::ArrayRef<uint8_t>(image.pixels.data(), image.pixels.size()), torch::kUInt8);
  if (!with_channels) return bytes.reshape({image.height, image.width});
  return bytes.reshape({image.height, image.width, image.channels});
}

// "32x48" as height and width.
data::Extent extent_of(const std::string& size) {
  const std::vector<std::string> sides = split(size, 'x');
  check(sides.size() == 2, "'", size, "' is no size");
  return {static_cast<int>(parse_int(sides[0]).value_or(0)),
          static_cast<int>(parse_int(sides[1]).value_or(0))};
}

CaseResult check_decode(const Golden& golden) {
  Comparison compare;
  for (const auto& [file, config] : golden.config().items()) {
    const std::vector<std::byte> bytes = read_file(golden.directory + "/images/" + file);
    if (config.contains("raises")) {
      bool refused = false;
      try {
        decode_image(bytes, file);
      } catch (const Error&) {
        refused = true;
      }
      compare.holds(file, refused, "is decoded, must be an error");
      continue;
    }
    const Image image = decode_image(bytes, file, {.apply_exif = false});
    // Pillow clips gray of 16 bits at 255, where the upper 8 bits are decoded.
    if (file.find("gray16") == std::string::npos) expect_picture(compare, golden, "output." + file, image);
    const int w = image.width, h = image.height;
    for (const Box& box : {Box{w / 3, h / 3, (w + 2) / 3, (h + 2) / 3}, Box{w / 2, 0, w - w / 2, h}})
      compare.equal("a crop of " + file,
                    tensor_of(decode_image_crop(bytes, file, box, {.apply_exif = false})),
                    tensor_of(cut(image, box)));
    if (!golden.has("output_transposed." + file)) continue;
    DecodeOptions options;
    options.apply_exif = true;
    expect_picture(compare, golden, "output_transposed." + file, decode_image(bytes, file, options));
  }
  return compare.result();
}

// output.FILTER.HxW, output.gray.FILTER.HxW and output.BOX.FILTER, where config has BOX.
CaseResult check_resize(const Golden& golden) {
  Comparison compare;
  for (const std::string& form : data::resample_form_names()) {
    data::use_resample_form(form);
    for (const std::string& name : golden.names("output.")) {
      const std::vector<std::string> parts = split(name, '.');
      const bool boxed = golden.config().contains(parts[0]);
      const bool other_input = !boxed && golden.has("input." + parts[0]);
      const Image input = image_of(golden.view("input." + (other_input ? parts[0] : "rgb")));
      const Interpolation filter = data::parse_interpolation(parts[boxed || other_input ? 1 : 0]);
      data::FloatBox box{0, 0, static_cast<double>(input.width), static_cast<double>(input.height)};
      data::Extent size{};
      if (boxed) {
        const Json& config = golden.config()[parts[0]];
        const Json& ltrb = config["box_ltrb"];
        box = {ltrb[0], ltrb[1], ltrb[2], ltrb[3]};
        size = {config["size_hw"][0], config["size_hw"][1]};
      } else {
        size = extent_of(parts.back());
      }
      expect_picture(compare, golden, "output." + name,
                     data::resize(input, size.width, size.height, filter, box));
    }
  }
  data::use_resample_form("");
  return compare.result();
}

void check_eval_case(const Golden& golden, const Json& config, size_t index, Comparison& compare) {
  const Image input = image_of(golden.view("input.rgb"));
  data::Preprocess p;
  p.crop = config["crop_pct"];
  p.interpolation = config["interp"];
  p.crop_mode = config["mode"];
  p.mean = config["mean"].get<std::vector<double>>();
  p.std = config["std"].get<std::vector<double>>();
  const data::Extent output{config["size"][0], config["size"][1]};
  const std::string prefix = text("output.case", index, ".");

  const data::Extent size =
      data::test_size({input.height, input.width}, output, p.crop, data::parse_crop_mode(p.crop_mode));
  expect_picture(compare, golden, prefix + "stage0",
                 data::resize(input, size.width, size.height, data::parse_interpolation(p.interpolation)));
  const auto transform = data::make_eval_transform(p, output.height, output.width);
  torch::Tensor got = torch::empty({3, output.height, output.width});
  RandomStream unused(0, "none");
  const data::Slot slot{reinterpret_cast<std::byte*>(got.data_ptr<float>())};
  transform->apply({"input", input}, unused, std::span(&slot, 1));
  compare.close(prefix + "tensor", got, golden.tensor(prefix + "tensor"), 1e-6, 1e-6);
}

// The centre of a picture, with black around it where it is smaller.
Image centre_crop(const Image& image, data::Extent size) {
  const data::Placement place = data::centre({image.height, image.width}, size);
  const Image part = cut(image, place.window);
  Image out(size.width, size.height);
  for (int y = 0; y < part.height; ++y)
    std::memcpy(out.row(place.top + y) + 3 * place.left, part.row(y), 3 * static_cast<size_t>(part.width));
  return out;
}

CaseResult check_eval(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const Json none = Json::array();
  const Json& cases = config["cases"];
  for (size_t i = 0; i < cases.size(); ++i) check_eval_case(golden, cases[i], i, compare);
  const Image input = image_of(golden.view("input.rgb"));
  const Json crops = config.value("center_crop_sizes_hw", none);
  for (size_t i = 0; i < crops.size(); ++i)
    expect_picture(compare, golden, text("output.center_crop", i),
                   centre_crop(input, {crops[i][0], crops[i][1]}));
  for (const std::string& name : golden.names("output.resize_short")) {
    const std::vector<std::string> parts = split(name, '.');
    const int side = static_cast<int>(parse_int(parts[0]).value_or(0));
    const data::Extent size = data::resize_short_side({input.height, input.width}, side);
    expect_picture(compare, golden, "output.resize_short" + name,
                   data::resize(input, size.width, size.height, data::parse_interpolation(parts[1])));
  }
  for (const Json& c : config.value("resize_short_sizes", none)) {
    const data::Extent size = data::resize_short_side({c["h"], c["w"]}, c["short"]);
    compare.holds(c.dump(), c["out_hw"] == Json::array({size.height, size.width}),
                  text("is ", size.height, "x", size.width));
  }
  return compare.result();
}

CaseResult check_resized_crop(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const Image input = image_of(golden.view("input.rgb"));
  const Json& cases = config["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json &box = cases[i]["tlhw"], &size = cases[i]["size_hw"];
    const Image crop = cut(input, {box[1], box[0], box[3], box[2]});
    const std::string prefix = text("output.case", i, ".");
    for (const std::string& filter : golden.names(prefix))
      expect_picture(compare, golden, prefix + filter,
                     data::resize(crop, size[1], size[0], data::parse_interpolation(filter)));
  }
  if (golden.has("output.hflip")) expect_picture(compare, golden, "output.hflip", orient(input, 2));
  if (golden.has("output.vflip")) expect_picture(compare, golden, "output.vflip", orient(input, 4));
  for (const Json& c : config["param_draws"]) {
    data::ListedDraws draws = recorded_draws(c["draws"]);
    const Box box = data::random_resized_crop({c["h"], c["w"]}, c["scale"], c["ratio"], draws);
    compare.holds(text("box of ", c["h"], "x", c["w"]),
                  draws.used_up() && c["out_tlhw"] == Json::array({box.top, box.left, box.height, box.width}),
                  text("is ", box.width, "x", box.height, "+", box.left, "+", box.top, ", must be ",
                       c["out_tlhw"].dump()));
  }
  return compare.result();
}

// What a case drew: one draw, or one for each picture or pair, with the box centres in the order of their
// use.
std::vector<data::MixDraw> recorded_mix(const Json& config, int64_t height, int64_t width) {
  const bool single = config["lam"].is_number();
  const Json lambdas = single ? Json::array({config["lam"]}) : config["lam"];
  const Json switches = single ? Json::array({config["use_cutmix"]}) : config["use_cutmix"];
  Json centres = Json::array();
  if (single && config["center_yx"].is_array()) centres = config["center_yx"];
  if (!single) centres = config["centers_flat_yx_per_cutmix_elem_in_order"];
  size_t used = 0;
  std::vector<data::MixDraw> draws;
  for (size_t i = 0; i < lambdas.size(); ++i) {
    data::MixDraw draw;
    draw.lambda = lambdas[i];
    draw.cutmix = switches[i];
    if (draw.cutmix && centres.empty()) {  // of sides that were drawn: lambda is the share outside, always
      const Json& box = config["boxes_y0y1x0x1"].at(used++);
      draw.box = {box[0], box[1], box[2], box[3]};
      const int64_t area = (draw.box.bottom - draw.box.top) * (draw.box.right - draw.box.left);
      if (config.value("correct_lam", true))
        draw.lambda = 1 - static_cast<double>(area) / static_cast<double>(height * width);
    } else if (draw.cutmix) {
      draw.box = data::cutmix_box(height, width, draw.lambda, centres.at(used), centres.at(used + 1));
      used += 2;
    }
    draws.push_back(draw);
  }
  return draws;
}

CaseResult check_mixup(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const torch::Tensor input = golden.tensor("input.x"), labels = golden.tensor("input.target");
  const std::vector<int64_t> label_list(labels.data_ptr<int64_t>(),
                                        labels.data_ptr<int64_t>() + labels.numel());
  const Json& cases = config["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto draws = recorded_mix(cases[i], input.size(2), input.size(3));
    torch::Tensor x = input.clone();
    std::vector<float*> pictures;
    for (int64_t p = 0; p < x.size(0); ++p) pictures.push_back(x[p].data_ptr<float>());
    const std::vector<double> lambda = data::mix_pictures(parse_enum<data::MixMode>(cases[i]["mode"], "mode"),
                                                          draws, pictures, x.size(1), x.size(2), x.size(3));
    const std::vector<float> targets =
        data::mix_targets(label_list, config["num_classes"], cases[i]["smoothing"], lambda);
    const std::string prefix = text("output.case", i, ".");
    const torch::Tensor want = golden.tensor(prefix + "target");
    compare.close(prefix + "x", x, golden.tensor(prefix + "x"), 1e-6, 1e-6);
    compare.close(prefix + "target", torch::tensor(targets).reshape(want.sizes()), want, 1e-6, 1e-6);
  }
  for (const Json& c : config.value("bbox_cases", Json::array())) {
    double lambda = c["lam"];
    const data::MixBox box = data::cutmix_box(c["h"], c["w"], lambda, c["cy"], c["cx"]);
    compare.holds(c.dump(),
                  c["box"] == Json::array({box.top, box.bottom, box.left, box.right}) &&
                      std::abs(lambda - c["lam_corrected"].get<double>()) < 1e-12,
                  text("is rows ", box.top, " to ", box.bottom, ", columns ", box.left, " to ", box.right,
                       ", lambda ", lambda));
  }
  return compare.result();
}

}  // namespace

Image image_of(const TensorView& view) {
  check(view.dtype == DType::u8 && (view.shape.size() == 2 || view.shape.size() == 3), view.name,
        " is no picture");
  Image image(static_cast<int>(view.shape[1]), static_cast<int>(view.shape[0]),
              view.shape.size() == 3 ? static_cast<int>(view.shape[2]) : 1);
  std::memcpy(image.pixels.data(), view.bytes.data(), image.pixels.size());
  return image;
}

void expect_picture(Comparison& compare, const Golden& golden, const std::string& name, const Image& got) {
  const torch::Tensor want = golden.tensor(name);
  compare.equal(name, tensor_of(got, want.dim() == 3), want);
}

data::ListedDraws recorded_draws(const Json& draws) {
  std::vector<data::RecordedDraw> list;
  for (const Json& d : draws)
    list.push_back(d.size() == 2 ? data::RecordedDraw{d[0], 0, 1, d[1]}
                                 : data::RecordedDraw{d[0], d[1], d[2], d[3]});
  return data::ListedDraws(list);
}

namespace {

const Registered registered({
    {"image_decode", check_decode, {"components/aug_image_decode"}},
    {"image_resize", check_resize, {"components/aug_resize"}},
    {"evaluation_transform", check_eval, {"components/aug_eval_transform"}},
    {"resized_crop", check_resized_crop, {"components/aug_random_resized_crop"}},
    {"mixup_cutmix", check_mixup, {"components/aug_mixup_cutmix"}},
});

}  // namespace
}  // namespace tessera::parity
