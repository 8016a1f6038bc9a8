#include "tasks/dense/object_finder.h"

#include <algorithm>

#include "core/error.h"
#include "core/progress.h"

namespace tessera::tasks {
namespace {

constexpr double kSeam = 2;  // pixels from a tile's border within which an object counts as cut

struct Tile {
  int left = 0, top = 0, width = 0, height = 0;
};

struct TiledObject {
  FoundObject object;
  size_t tile = 0;
};

// Start offsets of tiles along a side: they overlap by a quarter, and the last ends at the border.
std::vector<int> tile_starts(int size, int tile) {
  std::vector<int> starts;
  for (int at = 0;; at += tile - tile / 4) {
    if (at + tile >= size) {
      starts.push_back(std::max(size - tile, 0));
      return starts;
    }
    starts.push_back(at);
  }
}

std::vector<Tile> tiles_of(const Image& image, int tile) {
  std::vector<Tile> tiles;
  for (const int top : tile_starts(image.height, tile))
    for (const int left : tile_starts(image.width, tile))
      tiles.push_back({left, top, std::min(tile, image.width), std::min(tile, image.height)});
  return tiles;
}

Image part_of(const Image& image, const Tile& tile) {
  Image out(tile.width, tile.height);
  for (int y = 0; y < tile.height; ++y)
    std::copy_n(image.row(tile.top + y) + 3 * tile.left, 3 * tile.width, out.row(y));
  return out;
}

// Converts a tile's mask to one of the whole image.
RunLengths whole_mask(const RunLengths& part, const Tile& tile, const Image& image) {
  const std::vector<uint8_t> mask = mask_of_runs(part);
  std::vector<uint8_t> whole(static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
  for (int64_t y = 0; y < part.height; ++y)
    std::copy_n(mask.begin() + y * part.width, part.width,
                whole.begin() + (tile.top + y) * image.width + tile.left);
  return runs_of_mask(whole, image.height, image.width);
}

// True if a seam cuts the object (in pixels of its tile) and the adjacent tile contains all of it.
bool whole_beside(const FoundObject& object, const Tile& tile, const Image& image) {
  const bool cut = (tile.left > 0 && object.left < kSeam) || (tile.top > 0 && object.top < kSeam) ||
                   (tile.left + tile.width < image.width && object.right > tile.width - kSeam) ||
                   (tile.top + tile.height < image.height && object.bottom > tile.height - kSeam);
  const int overlap_across = tile.width / 4, overlap_down = tile.height / 4;
  return cut && object.right - object.left < overlap_across && object.bottom - object.top < overlap_down;
}

// True if two tiles saw the same object. Objects of the same tile stay distinct.
bool same_thing(const TiledObject& a, const TiledObject& b) {
  const FoundObject &x = a.object, &y = b.object;
  if (a.tile == b.tile || x.label != y.label) return false;
  const double width = std::min(x.right, y.right) - std::max(x.left, y.left),
               height = std::min(x.bottom, y.bottom) - std::max(x.top, y.top);
  const double smaller =
      std::min((x.right - x.left) * (x.bottom - x.top), (y.right - y.left) * (y.bottom - y.top));
  return width > 0 && height > 0 && width * height > 0.5 * smaller;
}

}  // namespace

std::vector<FoundObject> find_in_tiles(ObjectFinder& finder, const Image& image, int tile, double score,
                                       torch::Device device, Precision precision) {
  std::vector<TiledObject> all;
  const std::vector<Tile> tiles = tiles_of(image, tile);
  for (size_t i = 0; i < tiles.size(); ++i) {
    const Tile& at = tiles[i];
    for (FoundObject& object : finder.find(part_of(image, at), score, device, precision)) {
      if (whole_beside(object, at, image)) continue;
      if (!object.mask.counts.empty()) object.mask = whole_mask(object.mask, at, image);
      object.left += at.left, object.right += at.left, object.top += at.top, object.bottom += at.top;
      all.push_back({std::move(object), i});
    }
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.object.score > b.object.score; });
  std::vector<TiledObject> kept;
  for (TiledObject& one : all)
    if (std::none_of(kept.begin(), kept.end(), [&](const auto& other) { return same_thing(one, other); }))
      kept.push_back(std::move(one));
  std::vector<FoundObject> out;
  for (TiledObject& one : kept) out.push_back(std::move(one.object));
  return out;
}

}  // namespace tessera::tasks
