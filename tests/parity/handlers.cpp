// Which handler checks which golden. The first line that fits a case is taken; what belongs to later work is
// skipped with its reason.
#include "tests/parity/backbone_cases.h"
#include "tests/parity/convnet_cases.h"
#include "tests/parity/detection_case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

const std::vector<Entry>& entries() {
  static const std::vector<Entry> table = {
      // folder, prefix, family, handler, reason for skipping

      {"models", "vil2_", "vision_lstm", check_vision_lstm, ""},
      {"models", "mlstm_parallel", "mlstm", check_mlstm_parallel, ""},
      {"models", "mlstm_cell", "mlstm", check_mlstm_cell, ""},
      {"models", "vllama_mmpretrain", "vision_llama_mae", check_visionllama, ""},
      {"models", "mlstm_states", "mlstm", check_mlstm_states, ""},
      {"models", "vil1_", "vision_lstm", check_vision_lstm_1, ""},
      {"models", "vil_stack_", "vision_lstm", check_vision_lstm_stack, ""},
      {"models", "vllama_", "vision_llama_plain", check_visionllama, ""},
      {"models", "pyramid_", "vision_llama_pyramid", check_pyramid, ""},
      {"models", "illama_rmsnorm", "illama", check_rms_norm, ""},
      {"models", "illama_schedules", "illama", check_illama_schedules, ""},
      {"models", "illama_weight_selection", "illama", check_weight_selection, ""},
      {"models", "illama_", "illama", check_illama, ""},
      {"models", "dit", "", nullptr, "generation (DiT) comes later"},
      {"models", "sit", "", nullptr, "generation (SiT) comes later"},
      {"models", "diffusion", "", nullptr, "diffusion comes later"},
      {"models", "vllama_mae", "", check_visionllama_mae, ""},

      {"training", "", "", check_trajectory, ""},

      {"components", "aug_resize_tensor", "", check_resample, ""},
      {"components", "aug_image_decode", "", check_image, ""},
      {"components", "aug_resize", "", check_image, ""},
      {"components", "aug_eval_transform", "", check_image, ""},
      {"components", "aug_random_resized_crop", "", check_image, ""},
      {"components", "aug_mixup_cutmix", "", check_image, ""},
      {"components", "aug_color_jitter", "", check_augment, ""},
      {"components", "aug_three_augment", "", check_augment, ""},
      {"components", "aug_randaugment", "", check_augment, ""},
      {"components", "aug_random_erasing", "", check_augment, ""},
      {"components", "aug_detection", "", check_detection_geometry, ""},
      {"components", "aug_", "", nullptr, "this augmentation comes with the training system"},
      {"components", "opt_", "", check_optimiser, ""},
      {"components", "loss_", "", check_loss, ""},
      {"components", "metric_coco", "", check_coco, ""},
      {"components", "metric_", "", check_metric, ""},
      {"components", "det_fpn", "", check_fpn, ""},
      {"components", "det_vitdet_backbone", "", check_vitdet, ""},
      {"components", "det_mask_rcnn", "", check_detector, ""},
      {"components", "det_cascade", "", check_detector, ""},
      {"components", "det_nms", "", check_detection_part, ""},
      {"components", "det_roi_align", "", check_detection_part, ""},
      {"components", "det_anchors", "", check_detection_part, ""},
      {"components", "det_masks", "", check_detection_part, ""},
      {"components", "model_vit", "", check_vit, ""},
      {"components", "model_deit_distilled", "", check_vit, ""},
      {"components", "model_deit3", "", check_vit, ""},
      {"components", "model_torchvision_vit", "", check_vit, ""},
      {"components", "model_swin", "", check_swin, ""},
      {"components", "model_twins_svt", "", check_twins, ""},
      {"components", "model_mae_vit", "", check_mae_vit, ""},
      {"components", "model_siglip_openclip", "", check_siglip_tower, ""},
      {"components", "model_resnet", "", check_resnet, ""},
      {"components", "model_clip_resnet", "", check_clip_resnet, ""},
      {"components", "model_convnext", "", check_convnext, ""},
      {"components", "model_llama", "", nullptr, "language models come with vision-language models"},
      {"components", "model_detr", "", nullptr, "detection comes later"},
      {"components", "model_", "", nullptr, "this model comes with vision-language models"},
      {"components", "posenc_basic", "", check_sine_positions, ""},
      {"components", "posenc_grid_rope", "", check_grid_rotary, ""},
      {"components", "posenc_rope", "", check_rotary_positions, ""},
      {"components", "block_resample_pos_embed", "", check_resampled_positions, ""},
      {"components", "block_timm_layers", "", check_timm_layers, ""},
      {"components", "block_attention_classic", "", check_classic_attention, ""},
      {"components", "block_attention_pool", "", check_attention_pool, ""},
      {"components", "block_", "", nullptr, "this block comes with vision-language models"},
      {"components", "darl_mse", "", check_darl_next_patch, ""},
      {"components", "darl_two_stream", "", check_darl_two_stream, ""},
      {"components", "darl_rope2d", "", check_darl_rope, ""},
      {"components", "darl_patch_orders", "", check_darl_orders, ""},
      {"components", "darl_diffusion", "", check_darl_diffusion, ""},
      {"components", "darl_sampling", "", check_darl_sampling, ""},
      {"components", "darl_beta_schedule", "", check_darl_schedule, ""},
      {"components", "quant_lsq", "", check_learned_step, ""},
      {"components", "quant_int8_linear", "", check_int8_linear, ""},
      {"components", "quant_torch_fake", "", check_fake_quantise, ""},
      {"components", "tok_", "", nullptr, "tokenisers come with vision-language models"},
  };
  return table;
}

}  // namespace tessera::parity
