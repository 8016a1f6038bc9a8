// The bases of sources with masks and with objects, and the drawing of objects over their image.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/base/objects.h"
#include "data/base/source.h"
#include "data/transforms/mask_labels.h"
#include "io/images/image.h"
#include "io/images/run_lengths.h"

namespace tessera::data {

class ObjectSource : public Source, public ObjectLabels {
 public:
  std::unique_ptr<Annotations> annotations() const override;
};

struct CocoFile;
struct CocoImage;

// The files of a set of objects, for its messages and images.
struct ObjectPlace {
  std::string kind = "COCO", file = {}, images = {};
  bool by_share = false;  // the split is a share of the file's images
  std::vector<std::string> warnings = {};
};
// Makes the source of annotations that were read into COCO's form. Classes are in the order of their numbers.
std::unique_ptr<Source> make_object_source(CocoFile file, ObjectPlace place, const SourceConfig& config,
                                           Split split);
// Returns the size of an image as displayed.
Extent shown_size(const ImageInfo& info);
// Sets missing image sizes from the files' headers, as displayed. Masks and boxes are compared with the
// size.
void measure_images(std::vector<CocoImage>& images, const std::string& folder);

class MaskedSource : public Source, public MaskLabels {
 public:
  std::unique_ptr<Annotations> annotations() const override;
};

// Returns the mask as its image is displayed, oriented by EXIF. A mask with the size of the stored image is
// oriented along with it. Throws if it has neither size.
Image mask_as_shown(Image mask, const ImageInfo& image, const std::string& mask_name,
                    const std::string& image_name);

// Returns the colour of a class of objects. Colours can be distinguished with all kinds of colour vision.
std::array<uint8_t, 3> object_colour(int64_t label);

// Draws boxes and masks over an image, in the colours of their classes.
struct DrawnObject {
  double left = 0, top = 0, right = 0, bottom = 0;
  int64_t label = 0;
  const RunLengths* mask = nullptr;  // has the image's size
};
Image draw_objects(const Image& image, const std::vector<DrawnObject>& objects);

}  // namespace tessera::data
