// JPEG through libjpeg-turbo: slow integer DCT and fancy upsampling, as in Pillow.
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <jpeglib.h>
// jerror.h after jpeglib.h
#include <jerror.h>

#if __has_include(<jpegint.h>)
#define TESSERA_OWN_HUFFMAN 1
#include <jpegint.h>
#endif

#include "core/error.h"
#include "io/images/image_codec.h"
#include "io/images/jpeg_huffman.h"

namespace tessera::codec {

namespace {

constexpr int kMaxScans = 500;  // a small progressive file can have any number of passes over the whole image

// libjpeg reports an error by calling error_exit, which must not return. As libjpeg is C, longjmp leaves it.
struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX] = "";
  char damage[JMSG_LENGTH_MAX] = "";  // the first warning of pixels that are invented
  bool truncated = false;
  bool left_to_libjpeg = false;  // our own Huffman decoder found odd data
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  (*info->err->format_message)(info, manager->message);
  std::longjmp(manager->escape, 1);
}
// libjpeg warns of data that it replaces by gray, and of bytes that it skips.
void on_message(j_common_ptr info, int level) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  const int code = info->err->msg_code;
  if (level < 0 && manager->damage[0] == 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM)
    (*info->err->format_message)(info, manager->damage);
}
void on_output(j_common_ptr) {}

void prepare(ErrorManager& errors) {
  jpeg_std_error(&errors.base);
  errors.base.error_exit = on_error;
  errors.base.emit_message = on_message;
  errors.base.output_message = on_output;
}

// Runs `step`; returns false if libjpeg failed. `step` must not contain anything that needs a destructor.
template <class Step>
[[gnu::noinline]] bool guarded(ErrorManager& errors, Step&& step) {
  if (setjmp(errors.escape)) return false;
  step();
  return true;
}

// The bytes as a source. If they run out, it is an error; libjpeg's own source would pretend an end of image.
void source_init(j_decompress_ptr) {}
void source_term(j_decompress_ptr) {}
boolean source_fill(j_decompress_ptr info) {
  reinterpret_cast<ErrorManager*>(info->err)->truncated = true;
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}
void source_skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) source_fill(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void limit_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans)
    ERREXIT(info, JERR_BAD_PROGRESSION);
}

// muldiv255 of Pillow's cmyk2rgb: a * b / 255, rounded.
inline int multiply255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// Adobe writes inverted inks, and Pillow assumes Adobe for every CMYK JPEG.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int pixels) {
  for (int i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const int light = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int v = light - multiply255(255 - cmyk[c], light);
      rgb[c] = static_cast<uint8_t>(v < 0 ? 0 : v);
    }
  }
}

// Thrown if an image must be decoded again without our own Huffman decoder.
struct LeftToLibjpeg {};

#ifdef TESSERA_OWN_HUFFMAN

HuffmanDecoder huffman_decoder() {
#if defined(__x86_64__)
  static const bool bmi2 = __builtin_cpu_supports("bmi2");
  if (bmi2) return decode_mcu_bmi2;
#endif
  return decode_mcu_plain;
}

// Replaces libjpeg's Huffman decoder with ours.
class OwnHuffman {
 public:
  // Call after jpeg_start_decompress. Does nothing unless the image is a plain baseline JPEG.
  void take_over(jpeg_decompress_struct& info) {
    if (info.progressive_mode || info.arith_code || info.restart_interval || info.data_precision != 8 ||
        info.comps_in_scan != info.num_components || !layout_of(info) || !find_end(info))
      return;
    decode_ = huffman_decoder();
    huffman_use().taken.fetch_add(1, std::memory_order_relaxed);
    info.client_data = this;
    info.entropy->decode_mcu = decode_mcu;
  }

 private:
  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
    auto* self = static_cast<OwnHuffman*>(info->client_data);
    int16_t* coefficients[D_MAX_BLOCKS_IN_MCU];
    for (int b = 0; blocks && b < self->layout_.blocks; ++b) coefficients[b] = *blocks[b];
    if (self->decode_(self->state_, self->layout_, blocks ? coefficients : nullptr)) return TRUE;
    reinterpret_cast<ErrorManager*>(info->err)->left_to_libjpeg = true;
    ERREXIT(info, JERR_BAD_STATE);
    return FALSE;
  }

  bool layout_of(const jpeg_decompress_struct& info) {
    layout_.blocks = info.blocks_in_MCU;
    bool dc_built[4] = {}, ac_built[4] = {};
    for (int b = 0; b < info.blocks_in_MCU; ++b) {
      const int component = info.MCU_membership[b];
      const int dc = info.cur_comp_info[component]->dc_tbl_no, ac = info.cur_comp_info[component]->ac_tbl_no;
      const size_t d = static_cast<size_t>(dc) & 3, a = static_cast<size_t>(ac) & 3;
      if (!dc_built[d] && !build(info.dc_huff_tbl_ptrs[d], true, dc_[d])) return false;
      if (!ac_built[a] && !build(info.ac_huff_tbl_ptrs[a], false, ac_[a])) return false;
      dc_built[d] = ac_built[a] = true;
      layout_.component[b] = component;
      layout_.dc[b] = &dc_[d];
      layout_.ac[b] = &ac_[a];
    }
    return true;
  }

  static bool build(const JHUFF_TBL* table, bool dc, HuffmanTable& out) {
    return table && build_huffman_table(table->bits, table->huffval, dc, out);
  }

  // Copies the scan's bytes without stuffing and moves libjpeg past them, to continue at the end. Returns
  // false if the scan does not end in EOI.
  bool find_end(jpeg_decompress_struct& info) {
    const JOCTET* at = info.src->next_input_byte;
    const JOCTET* const end = at + info.src->bytes_in_buffer;
    plain_.resize(static_cast<size_t>(end - at) + kHuffmanSlack);
    uint8_t* to = plain_.data();
    for (;;) {
      // Eight bytes at once while none of them is 0xff: then no byte of ~eight is zero.
      for (uint64_t eight; end - at >= 8; at += 8, to += 8) {
        std::memcpy(&eight, at, 8);
        if ((~eight - 0x0101010101010101u) & eight & 0x8080808080808080u) break;
        std::memcpy(to, &eight, 8);
      }
      while (at < end && *at != 0xff) *to++ = *at++;
      if (end - at < 2) return false;
      at += 2;
      if (at[-1] == JPEG_EOI) break;
      if (at[-1] != 0) return false;
      *to++ = 0xff;
    }
    std::memset(to, 0, kHuffmanSlack);
    state_ = {};
    state_.at = plain_.data();
    state_.end = to;
    info.src->next_input_byte = at;
    info.src->bytes_in_buffer = static_cast<size_t>(end - at);
    info.unread_marker = JPEG_EOI;
    return true;
  }

  HuffmanDecoder decode_ = nullptr;
  HuffmanLayout layout_;
  HuffmanState state_;
  HuffmanTable dc_[4], ac_[4];
  std::vector<uint8_t> plain_;
};

#else

struct OwnHuffman {
  void take_over(jpeg_decompress_struct&) {}
};

#endif

class Decompressor {
 public:
  // `own`: null to let libjpeg decode the Huffman codes.
  Decompressor(Bytes bytes, const std::string& name, OwnHuffman* own) : name_(name), own_(own) {
    prepare(errors_);
    info_.err = &errors_.base;
    run([this] { jpeg_create_decompress(&info_); });
    source_.init_source = source_init;
    source_.fill_input_buffer = source_fill;
    source_.skip_input_data = source_skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = source_term;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    progress_.progress_monitor = limit_scans;
    info_.src = &source_;
    info_.progress = &progress_;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;

  void decode(const Box& box, const DecodeOptions& options, Image& out) {
    start(options);
    check(box.left + box.width <= static_cast<int>(info_.image_width) &&
              box.top + box.height <= static_cast<int>(info_.image_height),
          name_, ": broken JPEG (its headers disagree about its size)");
    place(box, options.scale);
    const int width = x1_ - x0_;
    out.reshape(width, y1_ - y0_);
    const int channels = info_.output_components;
    const size_t skipped = static_cast<size_t>(x0_ - crop_left_) * static_cast<size_t>(channels);
    const bool in_place = channels == 3 && static_cast<int>(info_.output_width) == width;
    constexpr int kRows = 16;
    const size_t stride = static_cast<size_t>(info_.output_width) * static_cast<size_t>(channels);
    line_.resize(in_place && static_cast<int>(info_.output_scanline) == y0_ ? 0 : stride * kRows);
    while (static_cast<int>(info_.output_scanline) < y1_) {
      const int y = static_cast<int>(info_.output_scanline);
      const bool direct = in_place && y >= y0_;
      const int wanted = std::min(kRows, (y < y0_ ? y0_ : y1_) - y);
      JSAMPROW rows[kRows];
      for (int i = 0; i < wanted; ++i)
        rows[i] = direct ? out.row(y - y0_ + i) : line_.data() + stride * static_cast<size_t>(i);
      JDIMENSION got = 0;
      run([&] { got = jpeg_read_scanlines(&info_, rows, static_cast<JDIMENSION>(wanted)); });
      if (direct || y < y0_) continue;
      for (int i = 0; i < static_cast<int>(got); ++i) {
        if (channels == 4)
          cmyk_to_rgb(rows[i] + skipped, out.row(y - y0_ + i), width);
        else
          std::memcpy(out.row(y - y0_ + i), rows[i] + skipped, static_cast<size_t>(width) * 3);
      }
    }
    finish();
  }

  const char* damage() const { return errors_.damage; }

 private:
  template <class Step>
  void run(Step&& step) {
    if (guarded(errors_, step)) return;
    if (errors_.left_to_libjpeg) throw LeftToLibjpeg();
    if (errors_.truncated) fail(name_, ": truncated JPEG, the file ends before the image does");
    fail(name_, ": broken JPEG (", errors_.message, ")");
  }

  void start(const DecodeOptions& options) {
    run([this] { jpeg_read_header(&info_, TRUE); });
    check_size(info_.image_width, info_.image_height, options.max_pixels, name_);
    const int components = info_.num_components;
    check(components == 1 || components == 3 || components == 4, name_, ": JPEG with ", components,
          " components, must be 1 (gray), 3 (colour) or 4 (CMYK)");
    run([this, &options, components] {
      info_.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
      info_.dct_method = JDCT_ISLOW;
      info_.do_fancy_upsampling = TRUE;
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(options.scale);
      jpeg_start_decompress(&info_);
    });
    if (own_) own_->take_over(info_);
  }

  // Sets up the decoding of the box. Upsampled chroma depends on neighbours, which a cropped decoder lacks to
  // the left and right. So one more iMCU on each side is decoded and cut off; for the rows above, skipping
  // handles it.
  void place(const Box& box, int scale) {
    x0_ = box.left / scale, x1_ = (box.left + box.width + scale - 1) / scale;
    y0_ = box.top / scale, y1_ = (box.top + box.height + scale - 1) / scale;
    const int full_width = static_cast<int>(info_.output_width),
              full_height = static_cast<int>(info_.output_height);
    x1_ = std::min(x1_, full_width), y1_ = std::min(y1_, full_height);
    whole_ = y1_ == full_height;
    crop_left_ = 0;
    const int unit_x = info_.max_h_samp_factor * info_.min_DCT_scaled_size;
    const int left = std::max(0, (x0_ / unit_x - 1) * unit_x);
    const int right = std::min(full_width, ((x1_ + unit_x - 1) / unit_x + 1) * unit_x);
    // libjpeg-turbo 2.1 crops 4:1:0 wrongly if it also scales.
    if (scale > 1 && info_.max_h_samp_factor * info_.max_v_samp_factor > 4) return;
    if (right - left < full_width) {
      JDIMENSION offset = static_cast<JDIMENSION>(left), width = static_cast<JDIMENSION>(right - left);
      run([&] { jpeg_crop_scanline(&info_, &offset, &width); });
      crop_left_ = static_cast<int>(offset);
    }
    if (y0_ > 0) run([&] { jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(y0_)); });
  }

  // A file that lacks its end is truncated even if the crop was complete: the validity of a sample must not
  // depend on a random crop. In entropy-coded data 0xff is always followed by 0 or a restart marker.
  void finish() {
    if (whole_) {
      run([this] { jpeg_finish_decompress(&info_); });
      return;
    }
    if (jpeg_has_multiple_scans(&info_)) return;  // read to its end before the first row
    if (info_.unread_marker == JPEG_EOI) return;  // already met after the last decoded row
    const JOCTET* at = source_.next_input_byte;
    const JOCTET* end = at + source_.bytes_in_buffer;
    if (end - at >= 2 && end[-2] == 0xff && end[-1] == JPEG_EOI) return;
    while (at < end &&
           (at = static_cast<const JOCTET*>(std::memchr(at, 0xff, static_cast<size_t>(end - at))))) {
      if (++at < end && *at == JPEG_EOI) return;
    }
    fail(name_, ": truncated JPEG, the file ends before the image does");
  }

  const std::string& name_;
  OwnHuffman* own_;
  jpeg_decompress_struct info_{};
  ErrorManager errors_;
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::vector<uint8_t> line_;
  int x0_ = 0, x1_ = 0, y0_ = 0, y1_ = 0;  // the requested region, in scaled pixels
  int crop_left_ = 0;                      // where libjpeg's rows begin
  bool whole_ = false;                     // every row is read
};

}  // namespace

HuffmanUse& huffman_use() {
  static HuffmanUse use;
  return use;
}

ImageInfo jpeg_info(Bytes bytes, const std::string& name) {
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  ImageInfo info{0, 0, "jpeg", 1};
  Orientation orientation;
  size_t at = 2;
  auto truncated = [&] { fail(name, ": truncated JPEG, the file ends in its headers"); };
  for (;;) {
    while (at < bytes.size() && byte_at(bytes, at) != 0xff) ++at;  // skips garbage between segments
    while (at < bytes.size() && byte_at(bytes, at) == 0xff) ++at;
    if (at >= bytes.size()) truncated();
    const uint8_t marker = byte_at(bytes, at++);
    if (marker == 0 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8))
      continue;  // no segment follows these
    if (marker == 0xd9 || marker == 0xda) fail(name, ": broken JPEG (no frame header)");
    if (at + 2 > bytes.size()) truncated();
    const size_t length = big_endian16(bytes, at);
    if (length < 2) fail(name, ": broken JPEG (segment length ", length, ")");
    if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
      if (at + 8 > bytes.size()) truncated();
      info.height = static_cast<int>(big_endian16(bytes, at + 3));
      info.width = static_cast<int>(big_endian16(bytes, at + 5));
      check(info.width > 0 && info.height > 0, name, ": the image has no pixels (", info.width, "x",
            info.height, ")");
      info.orientation = orientation.value();
      return info;
    }
    if (at + length > bytes.size()) truncated();
    const std::string_view content(reinterpret_cast<const char*>(bytes.data()) + at + 2, length - 2);
    if (marker == 0xe1 && content.starts_with(std::string_view("Exif\0\0", 6)))
      orientation.add_exif(bytes.subspan(at + 2, length - 2));
    if (marker == 0xe1 && content.starts_with(kXmp))
      orientation.add_xmp(bytes.subspan(at + 2 + kXmp.size(), length - 2 - kXmp.size()));
    at += length;
  }
}

void decode_jpeg(Bytes bytes, const std::string& name, const Box& box, const DecodeOptions& options,
                 Image& out, std::string* damage) {
  static thread_local OwnHuffman own;
  const auto decode = [&](OwnHuffman* huffman) {
    Decompressor decompressor(bytes, name, huffman);
    decompressor.decode(box, options, out);
    if (damage) *damage = decompressor.damage();
  };
  try {
    decode(huffman_use().allowed ? &own : nullptr);
  } catch (const LeftToLibjpeg&) {
    huffman_use().left.fetch_add(1, std::memory_order_relaxed);
    decode(nullptr);
  }
}

}  // namespace tessera::codec

namespace tessera {
namespace {

void write_orientation(jpeg_compress_struct& info, int orientation) {
  const auto exif = codec::exif_block(orientation);
  std::array<JOCTET, 6 + exif.size()> marker{'E', 'x', 'i', 'f'};
  std::copy(exif.begin(), exif.end(), marker.begin() + 6);
  jpeg_write_marker(&info, JPEG_APP0 + 1, marker.data(), marker.size());
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Image& image, int quality, int orientation) {
  check(image.width > 0 && image.height > 0 && image.width <= 65500 && image.height <= 65500, "cannot write ",
        image.width, "x", image.height, " pixels as JPEG, each side must be 1 to 65500");
  check(image.channels == 1 || image.channels == 3, "cannot write ", image.channels,
        " channels as JPEG, must be 1 or 3");
  check(quality >= 1 && quality <= 100, "JPEG quality is ", quality, ", must be 1 to 100");
  jpeg_compress_struct info{};
  codec::ErrorManager errors;
  codec::prepare(errors);
  info.err = &errors.base;
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const bool ok = codec::guarded(errors, [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = static_cast<JDIMENSION>(image.width);
    info.image_height = static_cast<JDIMENSION>(image.height);
    info.input_components = image.channels;
    info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);  // 4:2:0 for colour
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    if (orientation != 1) write_orientation(info, orientation);
    while (info.next_scanline < info.image_height) {
      JSAMPROW row = const_cast<JSAMPROW>(image.row(static_cast<int>(info.next_scanline)));
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  jpeg_destroy_compress(&info);
  std::vector<std::byte> bytes;
  if (ok) bytes.assign(reinterpret_cast<std::byte*>(memory), reinterpret_cast<std::byte*>(memory) + size);
  std::free(memory);
  check(ok, "cannot write JPEG: ", errors.message);
  return bytes;
}

}  // namespace tessera
