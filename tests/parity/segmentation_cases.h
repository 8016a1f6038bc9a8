// Handlers of semantic segmentation.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_segmentation_head(const Golden& golden);     // components/seg_upernet_head*
CaseResult check_map_necks(const Golden& golden);             // components/seg_feature_pyramid*
CaseResult check_segmenter(const Golden& golden);             // components/seg_upernet_swin*
CaseResult check_segmentation_augment(const Golden& golden);  // components/aug_segmentation*
CaseResult check_photometric(const Golden& golden);           // components/aug_photometric*
CaseResult check_segmentation_metric(const Golden& golden);   // components/metric_segmentation*
CaseResult check_sliding(const Golden& golden);               // components/metric_slide_inference*

}  // namespace tessera::parity
