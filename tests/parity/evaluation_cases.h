// Handlers of measurements (evaluation_cases.cpp), of looks inside models (analysis_cases.cpp) and of corruptions
// (corruption_cases.cpp).
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_corruption_error(const Golden& golden);  // components/metric_imagenet_c_mce*
CaseResult check_shape_bias(const Golden& golden);        // components/metric_shape_bias*
CaseResult check_group_means(const Golden& golden);       // components/metric_vtab*
CaseResult check_discrimination(const Golden& golden);    // components/metric_discrimination*
CaseResult check_receptive_field(const Golden& golden);   // components/metric_effective_receptive_field*

CaseResult check_attention_rank(const Golden& golden);  // components/metric_attention_rank*
CaseResult check_attention_maps(const Golden& golden);  // components/metric_attention_maps*
CaseResult check_loss_landscape(const Golden& golden);  // components/metric_loss_landscape*
CaseResult check_embedding_maps(const Golden& golden);  // components/metric_embedding_maps*

CaseResult check_corruptions(const Golden& golden);  // components/aug_corruptions*

}  // namespace tessera::parity
