// Writes COCO's annotation and result files.
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

using Json = nlohmann::json;

Json json_of(const CocoAnnotation& a) {
  Json line{{"id", a.number},
            {"image_id", a.image},
            {"category_id", a.category},
            {"bbox", {a.box.left, a.box.top, a.box.width, a.box.height}},
            {"area", a.area},
            {"iscrowd", a.crowd ? 1 : 0}};
  if (a.outline.has_runs())
    line["segmentation"] = {{"size", {a.outline.runs.height, a.outline.runs.width}},
                            {"counts", compress_runs(a.outline.runs)}};
  else
    line["segmentation"] = a.outline.polygons;
  return line;
}

}  // namespace

void write_coco(const std::string& path, const CocoFile& file) {
  AtomicFile out(path);
  const auto list = [&](const char* name, const auto& all, const auto& line_of) {
    out.write(text("\"", name, "\": ["));
    for (size_t i = 0; i < all.size(); ++i) out.write((i ? ",\n" : "\n") + line_of(all[i]).dump());
    out.write(std::string_view("\n]"));
  };
  out.write(std::string_view("{"));
  list("images", file.images, [](const CocoImage& image) {
    return Json{
        {"id", image.number}, {"file_name", image.file}, {"width", image.width}, {"height", image.height}};
  });
  out.write(std::string_view(",\n"));
  list("categories", file.categories, [](const CocoCategory& category) {
    return Json{{"id", category.number}, {"name", category.name}};
  });
  out.write(std::string_view(",\n"));
  list("annotations", file.annotations, json_of);
  out.write(std::string_view("}\n"));
  out.commit();
}

void write_coco_results(const std::string& path, const std::vector<CocoResult>& results) {
  AtomicFile file(path);
  file.write(std::string_view("["));
  for (size_t i = 0; i < results.size(); ++i) {
    const CocoResult& result = results[i];
    Json line{{"image_id", result.image}, {"category_id", result.category}, {"score", result.score}};
    if (result.has_box) line["bbox"] = {result.box.left, result.box.top, result.box.width, result.box.height};
    if (!result.mask.counts.empty())
      line["segmentation"] = {{"size", {result.mask.height, result.mask.width}},
                              {"counts", compress_runs(result.mask)}};
    file.write(std::string_view((i ? ",\n" : "\n") + line.dump()));
  }
  file.write(std::string_view("\n]\n"));
  file.commit();
}

}  // namespace tessera::data
